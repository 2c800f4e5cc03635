//! Writes the valid inputs of each target into `corpus/<target>`, where cargo-fuzz starts from.

use std::path::PathBuf;
use std::{fs, io};

use waybill_fuzz::{seeds, targets};

fn main() -> io::Result<()> {
    let corpus = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for (target, _) in targets::ALL {
        let folder = corpus.join(target);
        fs::create_dir_all(&folder)?;
        for (number, seed) in seeds::of(target).iter().enumerate() {
            fs::write(folder.join(format!("seed-{number}")), seed)?;
        }
    }
    Ok(())
}
