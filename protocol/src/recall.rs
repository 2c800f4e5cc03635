//! Recall handles: the text that names one delayed message, to take it back with.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE;

const VERSION: &str = "v1";
/// The longest handle that is looked into, in bytes: names, an id and numbers, with room to spare.
const BYTES_MAX: usize = 4 * 1024;

/// Names one delayed message of one broker.
///
/// On the wire it is the URL-safe base64, with padding, of `v1 <topic> <broker> <time> <message id>`. Waybill's brokers add the
/// position of the message in their log as one more word, by which they find it at once among any number of messages that are due at
/// the same time; who reads five words is not disturbed by it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecallHandle {
    /// The topic it was sent to.
    pub topic: String,
    /// The broker that keeps it.
    pub broker_name: String,
    /// When it is due, milliseconds since the epoch.
    pub time_ms: i64,
    /// The id the producer gave it.
    pub message_id: String,
    /// Its position in the broker's log; `None` in a handle of another kind of broker.
    pub position: Option<u64>,
}

/// Why text is no recall handle.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecallHandleError {
    /// Longer than any handle.
    #[error("a recall handle has at most {BYTES_MAX} bytes, this has {0}")]
    TooLong(usize),
    /// Not URL-safe base64 of text.
    #[error("it is not base64 of text")]
    NotText,
    /// Of another version, or not even that.
    #[error("its version is not {VERSION}")]
    Version,
    /// A word is missing.
    #[error("it has no {0}")]
    Missing(&'static str),
    /// The time is no number.
    #[error("its time is no number of milliseconds")]
    Time,
}

impl FromStr for RecallHandle {
    type Err = RecallHandleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() > BYTES_MAX {
            return Err(RecallHandleError::TooLong(text.len()));
        }
        let bytes = URL_SAFE.decode(text).map_err(|_| RecallHandleError::NotText)?;
        let plain = String::from_utf8(bytes).map_err(|_| RecallHandleError::NotText)?;
        let mut words = plain.splitn(5, ' ');
        if words.next() != Some(VERSION) {
            return Err(RecallHandleError::Version);
        }
        let mut word = |name| words.next().filter(|word| !word.is_empty()).ok_or(RecallHandleError::Missing(name));
        let (topic, broker_name) = (word("topic")?.to_owned(), word("broker")?.to_owned());
        let time_ms = word("time")?.parse().map_err(|_| RecallHandleError::Time)?;
        let rest = word("message id")?;
        // An id may hold spaces, a position does not.
        let (message_id, position) = match rest.rsplit_once(' ').map(|(id, last)| (id, last.parse())) {
            Some((id, Ok(position))) if !id.is_empty() => (id, Some(position)),
            _ => (rest, None),
        };
        Ok(Self { topic, broker_name, time_ms, message_id: message_id.to_owned(), position })
    }
}

impl RecallHandle {
    /// The text of a handle of these words.
    #[must_use]
    pub fn text(topic: &str, broker_name: &str, time_ms: i64, message_id: &str, position: Option<u64>) -> String {
        let mut plain = String::with_capacity(64 + topic.len() + broker_name.len() + message_id.len());
        for word in [VERSION, topic, broker_name, &time_ms.to_string(), message_id] {
            if !plain.is_empty() {
                plain.push(' ');
            }
            plain.push_str(word);
        }
        if let Some(position) = position {
            plain.push(' ');
            plain.push_str(&position.to_string());
        }
        URL_SAFE.encode(plain)
    }
}

impl fmt::Display for RecallHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { topic, broker_name, time_ms, message_id, position } = self;
        f.write_str(&Self::text(topic, broker_name, *time_ms, message_id, *position))
    }
}
