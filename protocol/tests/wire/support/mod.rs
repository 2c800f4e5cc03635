//! What several tests share, and the fuzzer too.

pub mod seeds;
pub mod targets;
