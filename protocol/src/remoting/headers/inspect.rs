//! Looking at messages and offsets, and moving offsets.

use crate::remoting::header::headers;

headers! {
    /// INVOKE_BROKER_TO_RESET_OFFSET: a group goes on elsewhere. The answer's body is a table of offsets by queue, see
    /// [`crate::remoting::queue_table`].
    ResetOffsetRequestHeader {
        /// The topic.
        topic: String = "topic",
        /// The consumer group.
        group: String = "group",
        /// Go on with the first message stored at this time or later; -1: with messages to come.
        timestamp: i64 = "timestamp",
        /// Also forward. Brokers that keep offsets themselves always do.
        is_force: bool = "isForce" or true,
        /// Only this queue; -1 or nothing: all of them.
        queue_id: Option<i32> = "queueId",
        /// This offset instead of a time; -1 or nothing: by the time.
        offset: Option<i64> = "offset",
    }

    /// QUERY_MESSAGE: messages by key, or by the producer's id if the field [`UNIQUE_KEY_QUERY`] is `true`. The answer's body is
    /// messages one after the other.
    QueryMessageRequestHeader {
        /// The topic.
        topic: String = "topic",
        /// The key or id.
        key: String = "key",
        /// At most so many.
        max_num: i32 = "maxNum",
        /// Stored at this time or later.
        begin_timestamp: i64 = "beginTimestamp",
        /// Stored at this time or earlier.
        end_timestamp: i64 = "endTimestamp",
    }

    /// The answer to QUERY_MESSAGE.
    QueryMessageResponseHeader {
        /// The latest store time that a query can see.
        index_last_update_timestamp: i64 = "indexLastUpdateTimestamp",
        /// The latest position in the log that a query can see.
        index_last_update_phyoffset: i64 = "indexLastUpdatePhyoffset",
    }

    /// VIEW_MESSAGE_BY_ID: the message at a position in the log.
    ViewMessageRequestHeader {
        /// The position, as message ids of brokers have it.
        offset: i64 = "offset",
        /// The topic.
        topic: Option<String> = "topic",
    }

    /// GET_CONSUME_STATS: how far a group is. The answer's body has a table by queue, see [`crate::remoting::queue_table`].
    GetConsumeStatsRequestHeader {
        /// The consumer group.
        consumer_group: String = "consumerGroup",
        /// Only on this topic.
        topic: Option<String> = "topic",
    }

    /// GET_TOPIC_STATS_INFO, QUERY_TOPIC_CONSUME_BY_WHO: about a topic.
    TopicRequestHeader {
        /// The topic.
        topic: String = "topic",
    }
}

/// The field of QUERY_MESSAGE that makes its key a producer's id.
pub const UNIQUE_KEY_QUERY: &str = "_UNIQUE_KEY_QUERY";
