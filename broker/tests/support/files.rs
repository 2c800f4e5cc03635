//! Where the stores of tests are, and what a crash of the machine leaves of one.
#![allow(dead_code, clippy::unwrap_used, clippy::panic, unreachable_pub, missing_docs)]

use std::fs;
use std::io;
use std::path::Path;

use tempfile::TempDir;

/// In memory where there is such a place: waiting for disks is most of what many openings cost.
pub fn temp_dir() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Copies a store's directory while it is in use.
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else if let Err(error) = fs::copy(entry.path(), target) {
            // The thread that reserves segments may just have given one its name.
            assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
        }
    }
}
