//! Offsets by store time.

use super::Core;
use crate::error::BrokerError;
use crate::store::{Entry, QueueKey, StoreError};

impl Core {
    /// The first offset of a queue whose message was stored at `time_ms` or later; one past the highest if there is none. Senders that
    /// store at the same time may swap by as much as their writes took: then one of the neighbours is found.
    pub(super) fn offset_at(&self, key: QueueKey, time_ms: i64) -> Result<u64, StoreError> {
        let (mut low, mut high) = self.store.bounds(key);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.entry(key, middle)? {
                Some(entry) if entry.offset < high && entry.store_time_ms < time_ms => low = entry.offset + 1,
                _later => high = middle,
            }
        }
        Ok(low)
    }

    /// The entry at an offset, or the first one behind it.
    pub(super) fn entry(&self, key: QueueKey, offset: u64) -> Result<Option<Entry>, StoreError> {
        Ok(self.store.entries(key, offset, 1)?.into_iter().next())
    }

    /// The offset of a queue by store time: the first message stored at `time_ms` or later, or with `upper` the last one stored then
    /// or earlier. Within the bounds of the queue.
    ///
    /// # Errors
    /// [`BrokerError::TopicNotFound`], a store that cannot be read.
    pub fn search_offset(&self, topic: &str, queue: u32, time_ms: i64, upper: bool) -> Result<u64, BrokerError> {
        let key = QueueKey { topic: self.topic(topic)?.id, queue };
        if !upper {
            return Ok(self.offset_at(key, time_ms)?);
        }
        let behind = self.offset_at(key, time_ms.saturating_add(1))?;
        Ok(behind.saturating_sub(1).max(self.store.bounds(key).0))
    }

    /// When the oldest message of a queue was stored, milliseconds since 1970; `None` if it is empty.
    ///
    /// # Errors
    /// As [`Core::search_offset`].
    pub fn earliest_store_time(&self, topic: &str, queue: u32) -> Result<Option<i64>, BrokerError> {
        let key = QueueKey { topic: self.topic(topic)?.id, queue };
        Ok(self.entry(key, self.store.bounds(key).0)?.map(|entry| entry.store_time_ms))
    }
}
