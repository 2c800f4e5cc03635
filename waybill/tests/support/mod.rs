//! What tests of a real broker and a real sidecar have in common.
#![allow(dead_code, reason = "not every test needs all of it")]

pub(crate) mod broker;
pub(crate) mod client;

/// What must happen, happens within this, however busy the machine.
pub(crate) const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);
