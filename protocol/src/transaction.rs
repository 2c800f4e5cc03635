//! Transaction ids as a sidecar gives them to clients: all that any sidecar must know to end the transaction.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

const VERSION: &str = "t1";
/// The longest id that is looked into, in bytes: two names and two numbers, with room to spare.
const BYTES_MAX: usize = 1024;

/// Names one transaction of one broker.
///
/// On the wire it is the URL-safe base64, without padding, of `t1 <position> <place> <broker> <topic>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionId {
    /// The position of the first half in the broker's log.
    pub commit_log_offset: i64,
    /// Its place among all first halves; Apache's brokers want both.
    pub tran_state_table_offset: i64,
    /// The broker that keeps it.
    pub broker_name: String,
    /// The topic of the message, which also is the producer group of producers of the gRPC protocol.
    pub topic: String,
}

/// Why text is no transaction id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransactionIdError {
    /// Longer than any id.
    #[error("a transaction id has at most {BYTES_MAX} bytes, this has {0}")]
    TooLong(usize),
    /// Not URL-safe base64 of text.
    #[error("it is not base64 of text")]
    NotText,
    /// Of another version, or not even that.
    #[error("its version is not {VERSION}")]
    Version,
    /// A word is missing, or one too many.
    #[error("it does not have five words")]
    Words,
    /// A position is no number of 0 or more.
    #[error("its positions are no numbers")]
    Number,
}

impl FromStr for TransactionId {
    type Err = TransactionIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() > BYTES_MAX {
            return Err(TransactionIdError::TooLong(text.len()));
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| TransactionIdError::NotText)?;
        let plain = String::from_utf8(bytes).map_err(|_| TransactionIdError::NotText)?;
        let mut words = plain.split(' ');
        if words.next() != Some(VERSION) {
            return Err(TransactionIdError::Version);
        }
        let words: Vec<&str> = words.collect();
        let [position, place, broker_name, topic] = words[..] else { return Err(TransactionIdError::Words) };
        if broker_name.is_empty() || topic.is_empty() {
            return Err(TransactionIdError::Words);
        }
        let number = |word: &str| word.parse().ok().filter(|number| *number >= 0).ok_or(TransactionIdError::Number);
        Ok(Self {
            commit_log_offset: number(position)?,
            tran_state_table_offset: number(place)?,
            broker_name: broker_name.to_owned(),
            topic: topic.to_owned(),
        })
    }
}

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { commit_log_offset, tran_state_table_offset, broker_name, topic } = self;
        let plain = format!("{VERSION} {commit_log_offset} {tran_state_table_offset} {broker_name} {topic}");
        f.write_str(&URL_SAFE_NO_PAD.encode(plain))
    }
}
