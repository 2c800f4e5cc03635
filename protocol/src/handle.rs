//! Receipt handles: the text that names one delivery of one message.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::names::{RETRY_PREFIX, RETRY_V2_SEPARATOR, retry_topic_v1, retry_topic_v2};

/// From which of a consumer's topics a message came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub enum TopicType {
    /// The topic the consumer asked for. Marker 0.
    #[default]
    Normal,
    /// `%RETRY%<group>_<topic>`. Marker 1.
    RetryV1,
    /// `%RETRY%<group>+<topic>`. Marker 2.
    RetryV2,
}

impl TopicType {
    /// What kind of topic a real topic is.
    pub fn of(real_topic: &str) -> Self {
        match real_topic.strip_prefix(RETRY_PREFIX) {
            None => Self::Normal,
            Some(rest) if rest.contains(RETRY_V2_SEPARATOR) => Self::RetryV2,
            Some(_) => Self::RetryV1,
        }
    }

    /// The digit of the wire.
    pub fn marker(self) -> &'static str {
        match self {
            Self::Normal => "0",
            Self::RetryV1 => "1",
            Self::RetryV2 => "2",
        }
    }

    /// The other way.
    pub fn from_marker(marker: &str) -> Option<Self> {
        Some(match marker {
            "0" => Self::Normal,
            "1" => Self::RetryV1,
            "2" => Self::RetryV2,
            _ => return None,
        })
    }

    /// The topic the message really lies in.
    pub fn real_topic(self, group: &str, topic: &str) -> String {
        match self {
            Self::Normal => topic.to_owned(),
            Self::RetryV1 => retry_topic_v1(group, topic),
            Self::RetryV2 => retry_topic_v2(group, topic),
        }
    }
}

impl Serialize for TopicType {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.marker())
    }
}

impl<'de> Deserialize<'de> for TopicType {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let marker = std::borrow::Cow::<str>::deserialize(from)?;
        Self::from_marker(&marker).ok_or_else(|| serde::de::Error::custom("a topic type is 0, 1 or 2"))
    }
}

/// One delivery of one message. Its text form has eight words, or nine where the commit log offset is known.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ReceiptHandle {
    /// Where the pop began in the queue.
    pub start_offset: i64,
    /// When the lease began: milliseconds since the epoch by the broker's clock.
    pub pop_time: i64,
    /// Its length in milliseconds.
    pub invisible_time: i64,
    /// Where Apache's broker keeps the lease; 999 for FIFO groups.
    pub revive_queue_id: i32,
    /// From which topic the message came.
    pub topic_type: TopicType,
    /// The broker that has the message.
    pub broker_name: String,
    /// The queue of the message.
    pub queue_id: i32,
    /// Its queue offset.
    pub offset: i64,
    /// Its physical offset, which proxies add.
    pub commit_log_offset: Option<i64>,
}

/// A text that is no receipt handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HandleError {
    /// Fewer than eight words.
    #[error("a receipt handle has at least 8 words, this one has {0}")]
    TooShort(usize),
    /// A word is not what it must be.
    #[error("the word {0} of a receipt handle is malformed")]
    Malformed(&'static str),
}

impl ReceiptHandle {
    /// The end of the lease, milliseconds since the epoch.
    pub fn next_visible_time(&self) -> i64 {
        self.pop_time.saturating_add(self.invisible_time)
    }

    /// The topic the message really lies in.
    pub fn real_topic(&self, group: &str, topic: &str) -> String {
        self.topic_type.real_topic(group, topic)
    }
}

impl fmt::Display for ReceiptHandle {
    /// Written as one piece: every message goes out and comes back with its handle, and words that are formatted one by
    /// one cost several times as much.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Digits, signs and spaces of eight numbers.
        const NUMBERS: usize = 128;
        let mut text = String::with_capacity(NUMBERS + self.broker_name.len());
        let mut number = itoa::Buffer::new();
        let mut word = |word: &str| {
            text.push_str(word);
            text.push(' ');
        };
        word(number.format(self.start_offset));
        word(number.format(self.pop_time));
        word(number.format(self.invisible_time));
        word(number.format(self.revive_queue_id));
        word(self.topic_type.marker());
        word(&self.broker_name);
        word(number.format(self.queue_id));
        word(number.format(self.offset));
        if let Some(offset) = self.commit_log_offset {
            word(number.format(offset));
        }
        f.write_str(text.strip_suffix(' ').unwrap_or(&text))
    }
}

impl FromStr for ReceiptHandle {
    type Err = HandleError;

    /// Reads eight or more words, separated by single spaces. A ninth that is no number, or below 0, means that the commit log
    /// offset is unknown; what follows is ignored.
    fn from_str(text: &str) -> Result<Self, HandleError> {
        let mut words = [""; 9];
        let mut count = 0;
        for (slot, word) in words.iter_mut().zip(text.split(' ')) {
            *slot = word;
            count += 1;
        }
        let [start, pop, invisible, revive, kind, broker, queue, offset, commit_log] = words;
        if count < 8 {
            return Err(HandleError::TooShort(count));
        }
        if broker.is_empty() {
            return Err(HandleError::Malformed("broker name"));
        }
        Ok(Self {
            start_offset: number(start, "start offset")?,
            pop_time: number(pop, "pop time")?,
            invisible_time: number(invisible, "invisible time")?,
            revive_queue_id: number(revive, "revive queue id")?,
            topic_type: TopicType::from_marker(kind).ok_or(HandleError::Malformed("topic type"))?,
            broker_name: broker.to_owned(),
            queue_id: number(queue, "queue id")?,
            offset: number(offset, "offset")?,
            commit_log_offset: commit_log.parse().ok().filter(|offset| *offset >= 0),
        })
    }
}

fn number<N: FromStr>(word: &str, name: &'static str) -> Result<N, HandleError> {
    word.parse().map_err(|_| HandleError::Malformed(name))
}
