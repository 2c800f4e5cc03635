//! What clients call: the service `apache.rocketmq.v2.MessagingService`, one file per RPC.
//!
//! A call is read (`metadata`), let in (`gates`), answered by its own file, and counted ([`Metrics`]). What goes wrong
//! on the way is a `Problem`, and what that means to a client is said in `errors` and nowhere else. The gRPC status of
//! an answer is OK even then: the code is in the body.

mod ack_message;
mod adoption;
mod body;
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
mod needs;
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

use self::errors::Problem;
use self::gates::Gates;
use self::metadata::Caller;
pub use self::metrics::Metrics;
pub use self::orphans::Orphans;
pub use self::server::{SERVICE, Served, router};
pub use self::service::Messaging;
use crate::access::Access;
use crate::backend::MessageService;
use crate::config::Config;
use crate::limits;
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
    /// Who may do what.
    pub access: Access,
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
    access: Access,
    config: Arc<Live<Config>>,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    draining: CancellationToken,
    stop: CancellationToken,
    gates: Gates,
}

impl Room {
    fn new(parts: Parts) -> Self {
        let Parts { messages, receipts, sessions, access, config, clock, metrics, draining, stop } = parts;
        let gates = Gates::default();
        Self { messages, receipts, sessions, access, config, clock, metrics, draining, stop, gates }
    }

    /// Whether the caller is the client that it names, as far as users go: that client consumes in a group that the user may consume in.
    fn may_speak_for(&self, caller: &Caller) -> Result<(), Problem> {
        if !self.access.asks() {
            return Ok(());
        }
        let group = self.sessions.profile(&caller.client_id).and_then(|profile| profile.group);
        Ok(self.access.authorize(&caller.pass, group.as_deref().map(needs::in_group))?)
    }

    /// Takes a call as a sign of life of the client that it names, which only that client may give: a user that could keep another's
    /// dead client alive would keep its messages from everybody.
    fn hear(&self, caller: &Caller) -> Result<(), Problem> {
        self.may_speak_for(caller)?;
        self.sessions.heard(&caller.client_id);
        Ok(())
    }

    /// How long a broker may take to answer what it does not wait for.
    fn broker_timeout(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.config.get().backend_request_timeout_ms).unwrap_or_default())
    }

    /// How many bytes a body may have that is decompressed for a client.
    fn body_max(&self) -> usize {
        let limit = usize::try_from(self.config.get().max_message_size).ok();
        limit.filter(|limit| *limit > 0).unwrap_or(limits::BODY_BYTES_MAX)
    }
}
