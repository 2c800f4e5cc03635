//! What is asked of a [`MessageService`](super::MessageService) and what it answers.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use waybill_protocol::{handle::ReceiptHandle, message::StoredMessage};

/// One message to be stored.
#[derive(Clone, Debug)]
pub struct OutgoingMessage {
    /// The body as it is to be stored (compressed or not, see [`SendRequest::sys_flag`]).
    pub body: Bytes,
    /// All properties in their raw stored form, user and system ones (UNIQ_KEY, TAGS, KEYS …).
    pub properties: String,
}

/// Messages for one queue of one topic. Two or more are stored as a batch: in one queue, one after the other.
#[derive(Clone, Debug)]
pub struct SendRequest {
    /// The topic.
    pub topic: String,
    /// At least one message.
    pub messages: Vec<OutgoingMessage>,
    /// Flags of all these messages (`waybill_protocol::message::sys_flag`).
    pub sys_flag: i32,
    /// When the messages were made, in milliseconds since the epoch.
    pub born_timestamp: i64,
    /// The message group of all these messages, which go to its queue; `None`: they have none.
    pub message_group: Option<String>,
    /// How long to wait for the broker.
    pub timeout: Duration,
}

/// How safe a stored message is. In each of these the message is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendStatus {
    /// As safe as the broker is configured to make it.
    Ok,
    /// Stored, but not known to be on disk.
    FlushDiskTimeout,
    /// Stored, but the replica did not answer in time.
    FlushSlaveTimeout,
    /// Stored, but there is no replica.
    SlaveNotAvailable,
}

/// Where the messages of one [`SendRequest`] are.
#[derive(Clone, Debug)]
pub struct SendResult {
    /// How safe they are.
    pub status: SendStatus,
    /// The broker that has them.
    pub broker_name: String,
    /// Their queue.
    pub queue_id: i32,
    /// Offset of the first; the others follow without gaps.
    pub queue_offset: i64,
    /// The broker's own message ids, one per message.
    pub offset_msg_ids: Vec<String>,
    /// The transaction id (only for prepared messages it matters).
    pub transaction_id: Option<String>,
    /// What recalls a delayed message, if the broker gave one.
    pub recall_handle: Option<String>,
}

/// Which messages of a topic are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// The kind of the expression.
    pub kind: FilterKind,
    /// The expression; `*` takes all.
    pub expression: String,
}

/// Kinds of filter expressions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterKind {
    /// Tags joined by `||`.
    Tag,
    /// An SQL92 condition over properties.
    Sql92,
}

impl FilterKind {
    /// The name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tag => "TAG",
            Self::Sql92 => "SQL92",
        }
    }
}

/// Take messages and hide them from the rest of the group for a while.
#[derive(Clone, Debug)]
pub struct PopRequest {
    /// The gRPC client id: the holder of the leases.
    pub client_id: String,
    /// The consumer group.
    pub group: String,
    /// The topic; its retry topics are included by the broker.
    pub topic: String,
    /// The broker to ask. Empty or unknown: the readable brokers of the topic take turns.
    pub broker_name: Option<String>,
    /// At most this many messages, 1 to 32.
    pub max_messages: i32,
    /// How long the messages are hidden, in milliseconds.
    pub invisible_ms: i64,
    /// How long the broker may wait for a message, in milliseconds; 0 answers at once.
    pub poll_ms: i64,
    /// Which messages.
    pub filter: Filter,
    /// The group consumes in order.
    pub fifo: bool,
    /// The same id again means: the answer to the last attempt was not seen (FIFO only).
    pub attempt_id: Option<String>,
    /// All topics that the client subscribes to, sorted and joined by commas, if that is known.
    pub subscribed_topics: Option<Arc<str>>,
}

/// How a pop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PopStatus {
    /// There are messages.
    Found,
    /// Nothing came until the poll ended.
    NoNewMessage,
    /// The broker has too many waiting polls.
    PollingFull,
}

/// A message that was given out.
#[derive(Clone, Debug)]
pub struct PoppedMessage {
    /// The message. Its topic is the requested one, its `reconsume_times` the number of earlier deliveries.
    pub message: StoredMessage,
    /// The lease.
    pub handle: ReceiptHandle,
    /// UNIQ_KEY, or the broker's own id for messages without one.
    pub message_id: String,
}

/// The answer to a [`PopRequest`].
#[derive(Clone, Debug)]
pub struct PopResult {
    /// How it ended.
    pub status: PopStatus,
    /// The messages, in the broker's order. Empty unless `Found`.
    pub messages: Vec<PoppedMessage>,
}

/// A lease, and what it is about.
#[derive(Clone, Debug)]
pub struct LeaseRef {
    /// The consumer group.
    pub group: Arc<str>,
    /// The topic the client asked for (never the retry topic: the handle knows).
    pub topic: Arc<str>,
    /// The newest handle known.
    pub handle: ReceiptHandle,
}

/// Change how long a message stays hidden, from now.
#[derive(Clone, Debug)]
pub struct ChangeEntry {
    /// Which lease.
    pub lease: LeaseRef,
    /// From now, in milliseconds; 0 makes the message visible at once.
    pub invisible_ms: i64,
    /// Give the message back without counting this delivery as an attempt.
    pub suspend: bool,
}

/// Move a message to the dead-letter topic of its group and finish its lease.
#[derive(Clone, Debug)]
pub struct ForwardRequest {
    /// Which lease.
    pub lease: LeaseRef,
    /// The message's id (UNIQ_KEY), kept in the dead letter.
    pub message_id: String,
    /// How long to wait for the broker.
    pub timeout: Duration,
}
