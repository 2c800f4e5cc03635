//! What the sidecar asks of brokers.
//!
//! [`MessageService`] is the only thing the gRPC room knows of brokers. It speaks the remoting protocol over a [`Transport`]: over TCP
//! ([`RemoteTransport`]), or by calls into a broker of this very process ([`LocalTransport`]).

mod error;
mod transport;
mod types;

use std::sync::Arc;

use waybill_protocol::{
    handle::ReceiptHandle,
    remoting::body::{HeartbeatData, SubscriptionGroupConfig, TopicConfig},
};

pub use self::{
    error::BackendError,
    transport::{Transport, TransportError},
    types::*,
};
use crate::route::TopicRoute;

/// All that may be asked of brokers. Cheap to clone.
#[derive(Clone)]
pub struct MessageService {
    inner: Arc<Inner>,
}

struct Inner {
    transport: Arc<dyn Transport>,
}

#[allow(unused_variables, missing_docs)]
impl MessageService {
    /// Where a topic lives. Cached. `TopicNotFound` if nobody knows it.
    pub async fn route(&self, topic: &str) -> Result<Arc<TopicRoute>, BackendError> { unimplemented!() }
    /// A topic's settings (message type and so on). Cached for some seconds.
    pub async fn topic_config(&self, topic: &str) -> Result<Arc<TopicConfig>, BackendError> { unimplemented!() }
    /// A consumer group's settings. `topic` (one the group reads, if known) says which brokers to ask. Cached for some seconds.
    pub async fn group_config(&self, group: &str, topic: Option<&str>) -> Result<Arc<SubscriptionGroupConfig>, BackendError> { unimplemented!() }
    /// Stores messages. Chooses the queue.
    pub async fn send(&self, request: SendRequest) -> Result<SendResult, BackendError> { unimplemented!() }
    /// Takes messages.
    pub async fn pop(&self, request: PopRequest) -> Result<PopResult, BackendError> { unimplemented!() }
    /// Finishes leases: one result per entry, in order. `InvalidReceiptHandle` is final.
    pub async fn ack(&self, entries: Vec<LeaseRef>) -> Vec<Result<(), BackendError>> { unimplemented!() }
    /// Changes leases: one result per entry, in order, each with the new handle.
    pub async fn change_invisible(&self, entries: Vec<ChangeEntry>) -> Vec<Result<ReceiptHandle, BackendError>> { unimplemented!() }
    /// Moves a message to the dead-letter topic and finishes its lease.
    pub async fn forward_to_dlq(&self, request: ForwardRequest) -> Result<(), BackendError> { unimplemented!() }
    /// Tells every known broker which producers and consumers live here. One result per broker.
    pub async fn heartbeat(&self, data: &HeartbeatData) -> Vec<(String, Result<(), BackendError>)> { unimplemented!() }
}
