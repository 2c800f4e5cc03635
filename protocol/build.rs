//! Turns `proto/` into Rust with protox (no `protoc` on the machine needed) and keeps the descriptor set for reflection and tests.

use std::path::PathBuf;
use std::{env, error::Error, fs};

use prost::Message;

const FILES: [&str; 3] =
    ["apache/rocketmq/v2/definition.proto", "apache/rocketmq/v2/service.proto", "apache/rocketmq/v2/admin.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    for file in FILES {
        println!("cargo::rerun-if-changed=proto/{file}");
    }
    println!("cargo::rerun-if-changed=build.rs");
    let descriptors = protox::compile(FILES, ["proto"])?;

    // Comments are wanted in the generated Rust but are dead weight in the set that servers carry.
    let mut bare = descriptors.clone();
    for file in &mut bare.file {
        file.source_code_info = None;
    }
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("descriptors.bin"), bare.encode_to_vec())?;

    tonic_prost_build::configure().bytes(".").codec_path("crate::grpc::Codec").compile_fds(descriptors)?;
    Ok(())
}
