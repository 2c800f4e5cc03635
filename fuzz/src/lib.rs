//! The targets themselves are shared with `cargo test` of the protocol crate, which runs them on a bounded stream of inputs.

#![forbid(unsafe_code)]

#[path = "../../protocol/tests/wire/support/seeds.rs"]
pub mod seeds;
#[path = "../../protocol/tests/wire/support/targets.rs"]
pub mod targets;
