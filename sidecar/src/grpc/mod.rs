//! What clients call: the service `apache.rocketmq.v2.MessagingService`, one file per RPC.
//!
//! A call is read (`metadata`), let in (`gates`), answered by its own file, and counted ([`Metrics`]). What goes wrong
//! on the way is a `Problem`, and what that means to a client is said in `errors` and nowhere else. The gRPC status of
//! an answer is OK even then: the code is in the body.

mod ack_message;
mod adoption;
mod change_invisible_duration;
mod convert;
mod end_transaction;
mod errors;
mod forward_to_dlq;
mod gates;
mod heartbeat;
mod metadata;
mod metrics;
mod named;
mod notify_client_termination;
mod orphans;
mod query_assignment;
mod query_route;
mod recall_message;
mod receive_message;
mod send_message;
mod server;
mod service;
mod telemetry;
mod unsupported;
mod validate;

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use waybill_ops::{clock::Clock, config::Live};

use self::gates::Gates;
pub use self::metrics::Metrics;
pub use self::orphans::Orphans;
pub use self::server::{SERVICE, Served, router};
pub use self::service::Messaging;
use crate::backend::MessageService;
use crate::config::Config;
use crate::receipts::Receipts;
use crate::session::Sessions;

/// What the gRPC room works with.
#[derive(Clone)]
pub struct Parts {
    /// What may be asked of brokers.
    pub messages: MessageService,
    /// The leases that are kept for clients.
    pub receipts: Receipts,
    /// The clients.
    pub sessions: Sessions,
    /// The configuration, which may change at any time.
    pub config: Arc<Live<Config>>,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// What is counted.
    pub metrics: Metrics,
    /// From then on nothing is given out; everything else is still answered.
    pub draining: CancellationToken,
    /// Ends telemetry streams and receives that wait; answers to other calls are finished.
    pub stop: CancellationToken,
}

/// [`Parts`], and what all calls share.
struct Room {
    messages: MessageService,
    receipts: Receipts,
    sessions: Sessions,
    config: Arc<Live<Config>>,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    draining: CancellationToken,
    stop: CancellationToken,
    gates: Gates,
}

impl Room {
    fn new(parts: Parts) -> Self {
        let Parts { messages, receipts, sessions, config, clock, metrics, draining, stop } = parts;
        Self { messages, receipts, sessions, config, clock, metrics, draining, stop, gates: Gates::default() }
    }

    /// How long a broker may take to answer what it does not wait for.
    fn broker_timeout(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.config.get().backend_request_timeout_ms).unwrap_or_default())
    }
}
