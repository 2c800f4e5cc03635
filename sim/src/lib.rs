//! Deterministic simulation: the real broker and the real sidecar under simulated time, network and disk. See `sim/README.md`.

pub mod audit;
pub mod broker;
pub mod client;
pub mod clock;
pub mod dice;
pub mod disk;
pub mod entropy;
pub mod faults;
pub mod moving;
pub mod museum;
pub mod net;
pub mod plan;
pub mod promises;
pub mod run;
pub mod sidecar;
pub mod sim;
pub mod slow;
pub mod upkeep;
