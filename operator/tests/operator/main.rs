//! The operator against an API server in this process and real brokers on loopback.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod api_failures;
mod conflicts;
mod convergence;
mod crds;
mod deletion;
mod fake_api;
mod generated;
mod rig;
mod whole;
