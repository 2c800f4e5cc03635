use serde::{Deserialize, Deserializer, Serialize};

use super::bodies::bodies;
use super::{BitSet, JsonBody};
use crate::handle::TopicType;

/// The body of BATCH_CHANGE_MESSAGE_INVISIBLETIME. A `null` entry is read as an empty one, whose handle does not parse.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BatchChangeInvisibleBody {
    /// At most 1024 unless the broker is configured otherwise.
    #[serde(deserialize_with = "null_is_empty")]
    pub entries: Vec<BatchChangeInvisibleEntry>,
}

impl JsonBody for BatchChangeInvisibleBody {}

fn null_is_empty<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<BatchChangeInvisibleEntry>, D::Error> {
    let entries: Option<Vec<Option<BatchChangeInvisibleEntry>>> = Deserialize::deserialize(from)?;
    Ok(entries.unwrap_or_default().into_iter().map(Option::unwrap_or_default).collect())
}

bodies! {
    /// The body of BATCH_ACK_MESSAGE.
    BatchAckBody {
        /// The broker meant.
        broker_name: String,
        /// Worked on in order; not all or nothing.
        acks: Vec<BatchAck>,
    }

    /// Acknowledges messages that one pop took from one queue. Written with short keys, read with short and long ones.
    BatchAck {
        /// The consumer group.
        #[serde(rename = "c", alias = "consumerGroup")]
        consumer_group: String,
        /// The topic as the consumer knows it; with `retry` and the group it gives the real one.
        #[serde(rename = "t", alias = "topic")]
        topic: String,
        /// The kind of the real topic.
        #[serde(rename = "r", alias = "retry")]
        retry: TopicType,
        /// First field of the receipt handles.
        #[serde(rename = "so", alias = "startOffset")]
        start_offset: i64,
        /// The queue.
        #[serde(rename = "q", alias = "queueId")]
        queue_id: i32,
        /// Fourth field of the receipt handles.
        #[serde(rename = "rq", alias = "reviveQueueId")]
        revive_queue_id: i32,
        /// When the leases began, milliseconds since the epoch.
        #[serde(rename = "pt", alias = "popTime")]
        pop_time: i64,
        /// Their length, milliseconds.
        #[serde(rename = "it", alias = "invisibleTime")]
        invisible_time: i64,
        /// Bit i stands for the offset `start_offset` + i.
        #[serde(rename = "b", alias = "bitSet")]
        bit_set: BitSet,
    }

    /// Optional answer to BATCH_ACK_MESSAGE: a result per message, in the order of acks and bits. Ours; others ignore it.
    EntryCodes {
        /// One per message.
        entries: Vec<EntryCode>,
    }

    /// The result for one message.
    EntryCode {
        /// A number of [`crate::remoting::codes::response`].
        code: i32,
    }

    /// Moves the end of one lease.
    BatchChangeInvisibleEntry {
        /// Empty: that of the request's header.
        consumer_group: String,
        /// The real topic. Empty: that of the request's header.
        topic: String,
        /// The queue of the message.
        queue_id: i32,
        /// The receipt handle.
        extra_info: String,
        /// The queue offset of the message.
        offset: i64,
        /// From now on, milliseconds.
        invisible_time: i64,
        /// The lite topic, if it is one.
        #[serde(skip_serializing_if = "Option::is_none")]
        lite_topic: Option<String>,
        /// The next delivery is not counted as another attempt.
        suspend: bool,
        /// A word of [`crate::remoting::ChangedBy`]. Ours; others ignore it.
        #[serde(skip_serializing_if = "Option::is_none")]
        changed_by: Option<String>,
    }

    /// The answer to BATCH_CHANGE_MESSAGE_INVISIBLETIME.
    BatchChangeInvisibleResult {
        /// One per entry of the request, in its order.
        entries: Vec<BatchChangeInvisibleResultEntry>,
    }

    /// The result for one lease.
    BatchChangeInvisibleResultEntry {
        /// A number of [`crate::remoting::codes::response`].
        code: i32,
        /// When the lease began, milliseconds since the epoch; 0 on failure.
        pop_time: i64,
        /// Its length from then on, milliseconds; 0 on failure.
        invisible_time: i64,
        /// The fourth field of the receipt handle.
        revive_qid: i32,
    }
}

impl BatchAck {
    /// The offsets that are acknowledged, ascending. Those beyond the range of an offset are left out.
    pub fn offsets(&self) -> impl Iterator<Item = i64> {
        self.bit_set.iter().filter_map(|bit| self.start_offset.checked_add(bit as i64))
    }
}
