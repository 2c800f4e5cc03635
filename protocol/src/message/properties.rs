//! The properties of a message in the form in which they travel and are stored: `name` 0x01 `value` 0x02, repeated.

/// Ends a name.
pub const NAME_VALUE_SEPARATOR: char = '\u{1}';
/// Ends a value. May be missing behind the last.
pub const PROPERTY_SEPARATOR: char = '\u{2}';

/// Declares the names as constants and says which are reserved.
macro_rules! names {
    (@reserved reserved) => { true };
    (@reserved internal) => { false };
    ($( $(#[$doc:meta])* $name:ident = $text:literal $class:ident, )*) => {
        $( $(#[$doc])* pub const $name: &str = $text; )*

        /// Whether users may not set a property of this name, and are not shown it.
        pub fn is_reserved(name: &str) -> bool {
            match name {
                $( $text => names!(@reserved $class), )*
                _ => false,
            }
        }
    };
}

names! {
    /// Words the message can be found by, separated by spaces.
    KEYS = "KEYS" reserved,
    /// The tag.
    TAGS = "TAGS" reserved,
    /// Whether the producer waits for the store.
    WAIT = "WAIT" reserved,
    /// Level of delay of 4.x producers.
    DELAY = "DELAY" reserved,
    /// The topic a retried message came from.
    RETRY_TOPIC = "RETRY_TOPIC" reserved,
    /// The topic a delayed or half message is bound for.
    REAL_TOPIC = "REAL_TOPIC" reserved,
    /// The queue it is bound for.
    REAL_QID = "REAL_QID" reserved,
    /// `true` for the first half of a transaction.
    TRAN_MSG = "TRAN_MSG" reserved,
    /// Producer group of a transaction.
    PGROUP = "PGROUP" reserved,
    /// Of the queue, at delivery.
    MIN_OFFSET = "MIN_OFFSET" reserved,
    /// Of the queue, at delivery.
    MAX_OFFSET = "MAX_OFFSET" reserved,
    /// Unused.
    BUYER_ID = "BUYER_ID" reserved,
    /// Id of the message that a retried one is a copy of.
    ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID" reserved,
    /// Unused.
    TRANSFER_FLAG = "TRANSFER_FLAG" reserved,
    /// Unused.
    CORRECTION_FLAG = "CORRECTION_FLAG" reserved,
    /// Unused.
    MQ2_FLAG = "MQ2_FLAG" reserved,
    /// How often a 4.x consumer tried it.
    RECONSUME_TIME = "RECONSUME_TIME" reserved,
    /// Where the broker is.
    MSG_REGION = "MSG_REGION" reserved,
    /// Whether clients shall trace.
    TRACE_ON = "TRACE_ON" reserved,
    /// The id the producer gave the message.
    UNIQ_KEY = "UNIQ_KEY" reserved,
    /// Unused.
    EXTEND_UNIQ_INFO = "EXTEND_UNIQ_INFO" reserved,
    /// After how many attempts it is a dead letter.
    MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES" reserved,
    /// When a 4.x consumer began with it.
    CONSUME_START_TIME = "CONSUME_START_TIME" reserved,
    /// Messages in an inner batch.
    INNER_NUM = "INNER_NUM" internal,
    /// First offset of an inner batch.
    INNER_BASE = "INNER_BASE" internal,
    /// Marks duplicates.
    DUP_INFO = "DUP_INFO" reserved,
    /// How long an open transaction is not asked about.
    CHECK_IMMUNITY_TIME_IN_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS" internal,
    /// Where the first half lies.
    TRAN_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET" reserved,
    /// Id of the transaction.
    TRANSACTION_ID = "__transactionId__" internal,
    /// How often it was asked about.
    TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES" internal,
    /// Unused.
    INSTANCE_ID = "INSTANCE_ID" reserved,
    /// Ties a reply to its request.
    CORRELATION_ID = "CORRELATION_ID" reserved,
    /// Who waits for a reply.
    REPLY_TO_CLIENT = "REPLY_TO_CLIENT" reserved,
    /// How long a reply is waited for.
    TTL = "TTL" reserved,
    /// When a reply came to the broker.
    ARRIVE_TIME = "ARRIVE_TIME" reserved,
    /// When it was pushed.
    PUSH_REPLY_TIME = "PUSH_REPLY_TIME" reserved,
    /// The cluster a reply is for.
    CLUSTER = "CLUSTER" reserved,
    /// `reply` for replies.
    MSG_TYPE = "MSG_TYPE" reserved,
    /// The receipt handle.
    POP_CK = "POP_CK" reserved,
    /// Where the handle was stored.
    POP_CK_OFFSET = "POP_CK_OFFSET" reserved,
    /// When the message was first delivered, milliseconds since the epoch.
    FIRST_POP_TIME = "1ST_POP_TIME" reserved,
    /// The message group of FIFO messages.
    SHARDING_KEY = "__SHARDINGKEY" internal,
    /// Unused.
    FORWARD_QUEUE_ID = "PROPERTY_FORWARD_QUEUE_ID" internal,
    /// Unused.
    REDIRECT = "REDIRECT" internal,
    /// Further queues.
    INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH" internal,
    /// Offsets in them.
    INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET" reserved,
    /// Context of a distributed trace.
    TRACE_CONTEXT = "TRACE_CONTEXT" internal,
    /// Delay in seconds.
    TIMER_DELAY_SEC = "TIMER_DELAY_SEC" reserved,
    /// Moment of delivery, milliseconds since the epoch.
    TIMER_DELIVER_MS = "TIMER_DELIVER_MS" reserved,
    /// Delay in milliseconds.
    TIMER_DELAY_MS = "TIMER_DELAY_MS" reserved,
    /// Address of the producer, if a proxy stands between.
    BORN_HOST = "__BORNHOST" reserved,
    /// When the producer made it, if a proxy stands between.
    BORN_TIMESTAMP = "BORN_TIMESTAMP" reserved,
    /// When the timer took it.
    TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS" reserved,
    /// When the timer gave it back.
    TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS" reserved,
    /// How often the timer rolled it over.
    TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES" reserved,
    /// When it is due in the timer.
    TIMER_OUT_MS = "TIMER_OUT_MS" reserved,
    /// The message that a recall takes back.
    TIMER_DEL_UNIQKEY = "TIMER_DEL_UNIQKEY" reserved,
    /// Level of delay.
    TIMER_DELAY_LEVEL = "TIMER_DELAY_LEVEL" reserved,
    /// Checksum of all properties.
    CRC32 = "__CRC32#" reserved,
    /// The topic a dead letter came from.
    DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC" reserved,
    /// The id it had there.
    DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID" reserved,
    /// The lite topic.
    LITE_TOPIC = "__LITE_TOPIC" internal,
    /// The priority.
    PRIORITY = "_SYS_MSG_PRIORITY_" reserved,
    /// The group a message was first sent by.
    ORIGIN_GROUP = "ORIGIN_GROUP" reserved,
}

/// Prefix of properties that are not stored.
pub const TRANSIENT_PREFIX: &str = "__RMQ.TRANSIENT.";

/// Why properties cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PropertyError {
    /// A property without a name.
    #[error("a property has no name")]
    EmptyName,
    /// One of the two separators in a name or value. Holds the name.
    #[error("the property {0:?} contains a separator (0x01 or 0x02)")]
    Separator(String),
    /// More than [`MAX_PROPERTIES`](super::MAX_PROPERTIES) bytes in all.
    #[error("the properties have {0} bytes, at most {max} fit", max = super::MAX_PROPERTIES)]
    TooLong(usize),
}

/// The value of a property; if the name occurs more than once, the last.
pub fn get<'a>(raw: &'a str, name: &str) -> Option<&'a str> {
    raw.rsplit(PROPERTY_SEPARATOR)
        .filter_map(|property| property.split_once(NAME_VALUE_SEPARATOR))
        .find_map(|(n, value)| (n == name).then_some(value))
}

/// All properties in their order. What has no name or no separator is skipped.
pub fn iter(raw: &str) -> impl Iterator<Item = (&str, &str)> {
    raw.split(PROPERTY_SEPARATOR)
        .filter_map(|property| property.split_once(NAME_VALUE_SEPARATOR))
        .filter(|(name, _)| !name.is_empty())
}

/// Writes properties.
///
/// # Errors
/// A name is empty, a separator occurs in a name or value, or all together is too long for its length field.
pub fn encode<N, V>(pairs: impl IntoIterator<Item = (N, V)>) -> Result<String, PropertyError>
where
    N: AsRef<str>,
    V: AsRef<str>,
{
    let mut raw = String::new();
    for (name, value) in pairs {
        let (name, value) = (name.as_ref(), value.as_ref());
        if name.is_empty() {
            return Err(PropertyError::EmptyName);
        }
        if has_separator(name) || has_separator(value) {
            return Err(PropertyError::Separator(name.to_owned()));
        }
        push(&mut raw, name, value);
    }
    if raw.len() > super::MAX_PROPERTIES { Err(PropertyError::TooLong(raw.len())) } else { Ok(raw) }
}

/// Sets a property, replacing what had its name. For names and values the caller made: separators in them are left out.
pub fn set(raw: &mut String, name: &str, value: &str) {
    remove(raw, name);
    add(raw, name, value);
}

/// Sets a property whose name is not there yet. For names and values the caller made: separators in them are left out.
pub fn add(raw: &mut String, name: &str, value: &str) {
    if !raw.is_empty() && !raw.ends_with(PROPERTY_SEPARATOR) {
        raw.push(PROPERTY_SEPARATOR);
    }
    if has_separator(name) || has_separator(value) {
        push(raw, &name.replace(is_separator, ""), &value.replace(is_separator, ""));
    } else {
        push(raw, name, value);
    }
}

/// Removes a property, wherever and however often it occurs.
pub fn remove(raw: &mut String, name: &str) {
    if get(raw, name).is_none() {
        return;
    }
    let kept: String = raw
        .split_inclusive(PROPERTY_SEPARATOR)
        .filter(|property| property.split_once(NAME_VALUE_SEPARATOR).is_none_or(|(n, _)| n != name))
        .collect();
    *raw = kept;
}

fn push(raw: &mut String, name: &str, value: &str) {
    raw.reserve(name.len() + value.len() + 2);
    raw.push_str(name);
    raw.push(NAME_VALUE_SEPARATOR);
    raw.push_str(value);
    raw.push(PROPERTY_SEPARATOR);
}

fn has_separator(text: &str) -> bool {
    // They are one byte each, and bytes are looked at more quickly than characters.
    text.bytes().any(|byte| is_separator(byte.into()))
}

fn is_separator(c: char) -> bool {
    matches!(c, NAME_VALUE_SEPARATOR | PROPERTY_SEPARATOR)
}
