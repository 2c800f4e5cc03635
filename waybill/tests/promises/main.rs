//! What the sidecar promises about a lease, kept by a sidecar with a real configuration file and a real broker over TCP: the
//! renewal switch, groups that override it, and what becomes of leases when the sidecar stops. And delayed messages, in real time, and the
//! same by IPv6.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests say what they expect"
)]

mod addresses;
mod client;
mod delays;
mod rig;
mod shutdown;
#[path = "../support/mod.rs"]
mod support;
mod switch;
