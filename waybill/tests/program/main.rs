//! The program as a person or a script meets it: real processes on loopback, arguments in, text and exit codes out.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests say what they expect"
)]

mod administration;
mod bench;
mod failures;
mod full_disk;
mod garbage;
mod ipv6;
mod leases;
mod letters;
mod messages;
mod metrics;
mod standalone;
mod support;
mod tls;
