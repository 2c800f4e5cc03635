//! What the rest of the sidecar calls.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;
use waybill_protocol::handle::ReceiptHandle;

use super::{
    changer::Changer,
    policy::Policy,
    types::{AckOutcome, ChangeOutcome, ChannelKind, DrainPolicy, DrainReport, Holder, Received, Registered, Stats},
};

/// The receipt handles that clients of this sidecar hold. Cheap to clone.
#[derive(Clone)]
pub struct Receipts {}

/// The right to ack (or to forward to the dead-letter topic) one message.
///
/// Dropped without [`AckTicket::done`] (the call was cancelled) it counts as [`AckOutcome::Failed`].
pub struct AckTicket {}

/// The right to change the invisible duration of one message. Dropped without [`ChangeTicket::done`] it counts as [`ChangeOutcome::Failed`].
pub struct ChangeTicket {}

#[allow(unused_variables, missing_docs, clippy::unimplemented)]
impl Receipts {
    /// A manager that works until `stop`. Must be called within a tokio runtime: it spawns one task.
    pub fn start(policy: Policy, changer: Arc<dyn Changer>, stop: CancellationToken) -> Self {
        unimplemented!()
    }
    /// New settings, for everything from now on.
    pub fn set_policy(&self, policy: Policy) {
        unimplemented!()
    }
    /// Takes over messages that were popped for a client, before they are written to it.
    pub fn register(&self, holder: Holder<'_>, kind: ChannelKind, received: Vec<Received>) -> Registered {
        unimplemented!()
    }
    /// The newest handle of the delivery that `client_handle` names, or `client_handle` itself if it is not held here. Waits only while a renewal
    /// is under way at a broker whose handles change, at most `request_timeout_ms`.
    pub async fn resolve_for_ack(&self, holder: Holder<'_>, client_handle: ReceiptHandle) -> AckTicket {
        unimplemented!()
    }
    /// Like `resolve_for_ack`; waits while any renewal is under way, so that the change is the last word.
    pub async fn resolve_for_change(
        &self,
        holder: Holder<'_>,
        client_handle: ReceiptHandle,
        invisible_ms: i64,
    ) -> ChangeTicket {
        unimplemented!()
    }
    /// Like `resolve_for_ack`.
    pub async fn resolve_for_forward(&self, holder: Holder<'_>, client_handle: ReceiptHandle) -> AckTicket {
        unimplemented!()
    }
    /// The newest handle held of a message, found by its id.
    pub fn find_by_message_id(&self, holder: Holder<'_>, message_id: &str) -> Option<ReceiptHandle> {
        unimplemented!()
    }
    /// Messages that could not be written to the client: returned to the broker, whether they were registered or not.
    pub fn give_back(&self, holder: Holder<'_>, kind: ChannelKind, handles: Vec<ReceiptHandle>) {
        unimplemented!()
    }
    /// The client is gone (from one group, or altogether): renewal stops, all it holds is returned. Later `register`s for it are returned too,
    /// until `client_back`.
    pub fn client_gone(&self, client: &str, group: Option<&str>) {
        unimplemented!()
    }
    /// The client is here (again). Call it whenever a client registers; what was not returned yet is kept and renewed again.
    pub fn client_back(&self, client: &str) {
        unimplemented!()
    }
    /// Stops renewing; returns when all is returned (or everything is left to its lease), at the latest after `limit`.
    pub async fn drain(&self, policy: DrainPolicy, limit: Duration) -> DrainReport {
        unimplemented!()
    }
    /// What is held at this moment.
    pub fn stats(&self) -> Stats {
        unimplemented!()
    }
}

#[allow(unused_variables, clippy::unimplemented)]
impl AckTicket {
    /// What to send to the broker.
    #[must_use]
    pub fn handle(&self) -> &ReceiptHandle {
        unimplemented!()
    }
    /// Tells how it ended.
    pub fn done(self, outcome: AckOutcome) {
        unimplemented!()
    }
}

#[allow(unused_variables, clippy::unimplemented)]
impl ChangeTicket {
    /// What to send to the broker.
    #[must_use]
    pub fn handle(&self) -> &ReceiptHandle {
        unimplemented!()
    }
    /// Tells how it ended.
    pub fn done(self, outcome: ChangeOutcome) {
        unimplemented!()
    }
}
