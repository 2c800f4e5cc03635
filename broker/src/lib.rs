//! The Waybill broker: stores messages, gives them out under leases, and forgets them when they are acknowledged.
//!
//! - [`store`]: segmented log + index, group commit, recovery
//! - [`catalog`]: topics and consumer groups and their settings
//! - [`lease`]: who holds which message, and until when: a pure ledger
//! - [`core`]: puts the three together: send, pop, ack, change, forward
//! - [`timer`]: when delayed messages go to their queues: pure
//! - [`transaction`]: halves of transactions, decisions and questions: pure
//! - [`server`]: remoting requests and the listener
//! - [`Broker`]: a core behind ports

#![forbid(unsafe_code)]

mod broker;
pub mod catalog;
mod certificate;
mod clients;
pub mod config;
pub mod core;
mod error;
pub mod lease;
pub mod limits;
mod liveness;
mod metrics;
mod permission;
pub mod retention;
pub mod server;
pub mod store;
pub mod timer;
pub mod transaction;

pub use broker::Broker;
pub use config::{BrokerConfig, DYNAMIC, FlushDiskType, TlsServerMode};
pub use error::BrokerError;
pub use metrics::Metrics;
pub use server::{Channel, Peer};
