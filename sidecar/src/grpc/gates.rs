//! How much may be under way at a time. What is over it is refused at once, with TOO_MANY_REQUESTS: clients come again.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::errors::Problem;
use crate::limits;

/// The right to go on; given back when dropped.
pub(super) type Permit = OwnedSemaphorePermit;

/// Kinds of calls that do not crowd each other out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    /// QueryRoute, QueryAssignment.
    Route,
    /// SendMessage, ForwardMessageToDeadLetterQueue, RecallMessage, EndTransaction.
    Producer,
    /// AckMessage, ChangeInvisibleDuration.
    Consumer,
    /// Heartbeat, NotifyClientTermination, SyncLiteSubscription.
    Client,
}

/// One counter for each kind.
#[derive(Debug)]
pub(super) struct Gates {
    route: Arc<Semaphore>,
    producer: Arc<Semaphore>,
    consumer: Arc<Semaphore>,
    client: Arc<Semaphore>,
    receives: Arc<Semaphore>,
    /// In units of a kibibyte.
    send_kib: Arc<Semaphore>,
}

impl Default for Gates {
    fn default() -> Self {
        let gate = |permits| Arc::new(Semaphore::new(permits));
        Self {
            route: gate(limits::CALLS_IN_FLIGHT),
            producer: gate(limits::CALLS_IN_FLIGHT),
            consumer: gate(limits::CALLS_IN_FLIGHT),
            client: gate(limits::CALLS_IN_FLIGHT),
            receives: gate(limits::RECEIVES_IN_FLIGHT),
            send_kib: gate(limits::SEND_BYTES_IN_FLIGHT / 1024),
        }
    }
}

impl Gates {
    pub(super) fn call(&self, family: Family) -> Result<Permit, Problem> {
        let gate = match family {
            Family::Route => &self.route,
            Family::Producer => &self.producer,
            Family::Consumer => &self.consumer,
            Family::Client => &self.client,
        };
        gate.clone().try_acquire_owned().map_err(|_| Problem::FlowLimit)
    }

    pub(super) fn receive(&self) -> Result<Permit, Problem> {
        self.receives.clone().try_acquire_owned().map_err(|_| Problem::FlowLimit)
    }

    pub(super) fn send_bytes(&self, bytes: usize) -> Result<Permit, Problem> {
        let kib = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX);
        self.send_kib.clone().try_acquire_many_owned(kib).map_err(|_| Problem::FlowLimit)
    }
}
