//! The words that the room and those who use it share.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelValue;
use waybill_protocol::handle::TopicType;

/// What is to be done with a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Kind {
    /// End it: the message is done.
    Ack,
    /// Let it end at another time.
    Change,
}

/// On whose behalf a lease is changed or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Caller {
    /// The client asked for it: it is done with the message, or gives it back.
    Client,
    /// A lease that this sidecar keeps is due.
    Renewal,
    /// The client is gone: what it held goes back. So it does when this sidecar stops.
    Disconnect,
    /// The answer to a receive could not be written: the messages go back.
    Undelivered,
    /// Messages of a pop that are not for the client: they match no filter, or nobody waits for them any more.
    Filter,
    /// A simple consumer asked for it, and holds the message until the new end.
    Extension,
}

impl Caller {
    /// All of them, in the order of their values.
    pub const ALL: [Self; 6] =
        [Self::Client, Self::Renewal, Self::Disconnect, Self::Undelivered, Self::Filter, Self::Extension];
}

/// What one request can be about: leases of one consumer group on one topic, as the broker keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// What is to be done.
    pub kind: Kind,
    /// The consumer group.
    pub group: Arc<str>,
    /// The topic that the client asked for.
    pub topic: Arc<str>,
    /// Whether the messages lie in that topic or in a retry topic of it.
    pub topic_type: TopicType,
}

/// How leases go to a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sending {
    /// Each with a request of its own.
    Singly,
    /// Many with one request.
    Batches {
        /// At most so many; at least 1.
        entries: usize,
        /// At most so many bytes of a request's body, except for a single entry.
        bytes: usize,
    },
}

/// What holds for a broker at this moment. It may change from one moment to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// How acks are sent.
    pub acks: Sending,
    /// How changes are sent.
    pub changes: Sending,
    /// Requests under way at a time of what is sent singly; at least 1.
    pub singly: usize,
    /// Requests under way at a time of what is sent in batches, about one target; at least 1.
    pub batches_of_target: usize,
    /// The same, about all targets together.
    pub batches: usize,
}

impl Plan {
    pub(super) fn sending(&self, kind: Kind) -> Sending {
        match kind {
            Kind::Ack => self.acks,
            Kind::Change => self.changes,
        }
    }
}
