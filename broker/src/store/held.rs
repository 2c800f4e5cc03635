//! Messages that are in the log and in no queue yet: delayed ones, and halves of transactions.

use super::record::{u32_at, u64_at};
use super::types::{Entry, Keyspace, QueueKey};

/// The row of a message that waits, as it stands in [`super::Keyspace::Timer`] or [`super::Keyspace::Half`].
///
/// ```text
/// Key:   time u64 · position u64, big-endian, so that rows are in the order of their time
/// Value: len u32 · tag_hash u32 · topic u32 · queue u32 · store time i64, little-endian
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldRow {
    /// What orders the rows; for whoever holds the message to say, e.g. when it is due, in milliseconds since 1970.
    pub time_ms: u64,
    /// The place of the payload in the log; what [`super::Store::read`] takes.
    pub position: u64,
    /// The payload's length in bytes.
    pub len: u32,
    /// Hash of the tag; 0 for a message without one.
    pub tag_hash: u32,
    /// Where it is to go.
    pub queue: QueueKey,
    /// When the broker took the message, in milliseconds since 1970.
    pub store_time_ms: i64,
}

impl HeldRow {
    /// The key of a row.
    #[must_use]
    pub fn key(time_ms: u64, position: u64) -> [u8; 16] {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&time_ms.to_be_bytes());
        key[8..].copy_from_slice(&position.to_be_bytes());
        key
    }

    /// Reads a row; `None` if it is damaged.
    #[must_use]
    pub fn read(key: &[u8], value: &[u8]) -> Option<Self> {
        let (time, position) = key.split_first_chunk()?;
        (value.len() == 24).then_some(())?;
        Some(Self {
            time_ms: u64::from_be_bytes(*time),
            position: u64::from_be_bytes(position.try_into().ok()?),
            len: u32_at(value, 0)?,
            tag_hash: u32_at(value, 4)?,
            queue: QueueKey { topic: u32_at(value, 8)?, queue: u32_at(value, 12)? },
            store_time_ms: u64_at(value, 16)?.cast_signed(),
        })
    }

    /// The place of the payload that the key of a row names; `None` if it is none.
    pub(super) fn position(key: &[u8]) -> Option<u64> {
        let (_time, position) = key.split_first_chunk::<8>()?;
        Some(u64::from_be_bytes(position.try_into().ok()?))
    }

    /// The keyspaces whose rows are those of held messages.
    pub(super) const KEYSPACES: [Keyspace; 2] = [Keyspace::Timer, Keyspace::Half];

    /// The position from which on the log is needed for this row, if it is that of a held message: where the payload is. The row was
    /// written with the payload or later. Of a row in another form nothing is known, so all of the log is needed.
    pub(super) fn needs(keyspace: Keyspace, key: &[u8], value: &[u8]) -> Option<u64> {
        Self::KEYSPACES.contains(&keyspace).then(|| Self::read(key, value).map_or(0, |row| row.position))
    }

    /// The value of the row.
    #[must_use]
    pub fn value(&self) -> [u8; 24] {
        let mut value = [0; 24];
        value[0..4].copy_from_slice(&self.len.to_le_bytes());
        value[4..8].copy_from_slice(&self.tag_hash.to_le_bytes());
        value[8..12].copy_from_slice(&self.queue.topic.to_le_bytes());
        value[12..16].copy_from_slice(&self.queue.queue.to_le_bytes());
        value[16..].copy_from_slice(&self.store_time_ms.to_le_bytes());
        value
    }

    /// The entry of a queue that points at the message, as taken at `store_time_ms`.
    #[must_use]
    pub fn entry(&self, offset: u64, store_time_ms: i64) -> Entry {
        Entry { offset, position: self.position, len: self.len, tag_hash: self.tag_hash, store_time_ms }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(time_ms: u64, position: u64, len: u32, tag_hash: u32, topic: u32, queue: u32, store_time_ms: i64) {
            let row = HeldRow { time_ms, position, len, tag_hash, queue: QueueKey { topic, queue }, store_time_ms };
            prop_assert_eq!(HeldRow::read(&HeldRow::key(time_ms, position), &row.value()), Some(row));
        }

        #[test]
        fn any_bytes_are_survived(key: Vec<u8>, value: Vec<u8>) {
            let _ = HeldRow::read(&key, &value);
        }
    }
}
