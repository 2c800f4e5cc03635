//! Leases of many messages on their way from the sidecar to a broker, both real, over TCP: how many requests they cost,
//! as the broker counts them.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, reason = "tests say what they expect")]

mod acks;
mod callers;
mod cut;
mod gates;
mod grpc;
mod mixed;
mod rig;
#[path = "../support/mod.rs"]
mod support;
mod switches;
