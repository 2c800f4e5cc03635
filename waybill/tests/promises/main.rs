//! What the sidecar promises about a lease, kept by a sidecar with a real configuration file and a real broker over TCP: the
//! renewal switch, groups that override it, and what becomes of leases when the sidecar stops. And delayed messages, in real time.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, reason = "tests say what they expect")]

mod client;
mod delays;
mod rig;
mod shutdown;
#[path = "../support/mod.rs"]
mod support;
mod switch;
