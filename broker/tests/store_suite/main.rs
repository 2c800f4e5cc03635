//! Tests of the store through its public side: what was committed is there, whatever happened to the process and the files.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "the helpers of tests say what they expect; the lints know tests only by their attribute"
)]

mod basics;
mod commits;
mod corruption;
mod disk_full;
#[path = "../support/files.rs"]
mod files;
mod kill;
mod model;
mod shorten;
mod support;
