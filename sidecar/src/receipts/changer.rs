//! The only thing the receipt manager asks of brokers.

use std::sync::Arc;

use async_trait::async_trait;
use waybill_protocol::handle::ReceiptHandle;

use crate::batching::Caller;

/// One lease to be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The newest handle known.
    pub handle: ReceiptHandle,
    /// From now, in milliseconds.
    pub invisible_ms: i64,
    /// The client never got the message: do not count the delivery as an attempt.
    pub suspend: bool,
    /// Why it is changed.
    pub caller: Caller,
}

/// Why one lease was not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ChangeError {
    /// The handle names no living delivery (expired, acked, topic or group deleted). Final.
    #[error("gone")]
    Gone,
    /// The broker has too much to do. Retried.
    #[error("busy")]
    Busy,
    /// No answer in time. Retried.
    #[error("timeout")]
    Timeout,
    /// The broker cannot be reached. Retried.
    #[error("unavailable")]
    Unavailable,
    /// The broker answered with an error of its own, or not about this entry. Retried.
    #[error("other")]
    Other,
    /// The broker does not permit or know the request. Final, but the handle may still be acked.
    #[error("refused")]
    Refused,
}

impl ChangeError {
    /// All of them, in the order of their values.
    pub const ALL: [Self; 6] = [Self::Gone, Self::Busy, Self::Timeout, Self::Unavailable, Self::Other, Self::Refused];

    /// The name in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Gone => "gone",
            Self::Busy => "busy",
            Self::Timeout => "timeout",
            Self::Unavailable => "unavailable",
            Self::Other => "other",
            Self::Refused => "refused",
        }
    }
}

/// Changes leases at a broker; implemented by the backend.
#[async_trait]
pub trait Changer: Send + Sync + 'static {
    /// Changes leases of one group and topic at one broker, in one request where the broker can. One result per entry,
    /// in order.
    ///
    /// All handles name the same broker and the same kind of topic (normal, or retry v1 or v2).
    async fn change_invisible(
        &self,
        group: &Arc<str>,
        topic: &Arc<str>,
        changes: Vec<Change>,
    ) -> Vec<Result<ReceiptHandle, ChangeError>>;

    /// Most leases of one broker to be changed by one call, so that the call takes no longer than one request: fewer
    /// where the broker must be asked one by one. Called often and under a lock: it must only look something up.
    fn batch_limit(&self, _broker: &str) -> usize {
        usize::MAX
    }

    /// How long the group lets a message rest before its next delivery, in milliseconds, after `reconsume_times`
    /// earlier deliveries. `None` if the group's settings cannot be had: the lease then simply runs out.
    async fn retry_delay_ms(&self, group: &Arc<str>, topic: &Arc<str>, reconsume_times: i32) -> Option<i64>;
}
