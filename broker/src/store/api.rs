//! The store as its users see it.

use bytes::Bytes;

use super::batch::Batch;
use super::commit::Commit;
use super::error::StoreError;
use super::options::Options;
use super::stats::Stats;
use super::types::{Admit, Entry, Health, Keyspace, QueueKey};

/// A handle to an open store; clones share it.
#[derive(Clone)]
pub struct Store {}

impl Store {
    /// Opens the store, recovering what a crash left.
    ///
    /// Errors: [`StoreError::Locked`], [`StoreError::Corrupt`] (nothing was changed on disk), [`StoreError::Options`], [`StoreError::Io`].
    pub fn open(_options: Options) -> Result<Self, StoreError> {
        Ok(Self {})
    }

    /// Whether a change of this kind would be taken now; ask before changing anything.
    ///
    /// Errors: [`StoreError::DiskFull`], [`StoreError::Busy`], [`StoreError::Failed`], [`StoreError::Closed`].
    pub fn admit(&self, _kind: Admit) -> Result<(), StoreError> {
        Err(StoreError::Closed)
    }

    /// Hands a batch to the committer. The order of calls is the order in the log.
    pub fn submit(&self, _batch: Batch) -> Commit {
        Commit::answered(Err(StoreError::Closed))
    }

    /// The committed value of a key.
    ///
    /// Errors: [`StoreError::Index`].
    pub fn get(&self, _keyspace: Keyspace, _key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        Err(StoreError::Closed)
    }

    /// Every committed key that starts with `prefix`, in order, with its value. Reads all of them: for start-up and administration.
    ///
    /// Errors: [`StoreError::Index`].
    pub fn scan(&self, _keyspace: Keyspace, _prefix: &[u8]) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        Err(StoreError::Closed)
    }

    /// At most `max` committed entries of a queue, from offset `from` on, in order.
    ///
    /// Errors: [`StoreError::Index`].
    pub fn entries(&self, _queue: QueueKey, _from: u64, _max: usize) -> Result<Vec<Entry>, StoreError> {
        Err(StoreError::Closed)
    }

    /// The lowest offset that is there and the one that comes next; equal for an empty queue, (0, 0) for an unknown one.
    #[must_use]
    pub fn bounds(&self, _queue: QueueKey) -> (u64, u64) {
        (0, 0)
    }

    /// The payload at a log position, its checksum verified.
    ///
    /// Errors: [`StoreError::NotFound`] for a position that is none, [`StoreError::Corrupt`], [`StoreError::Io`].
    pub fn read(&self, position: u64) -> Result<Bytes, StoreError> {
        Err(StoreError::NotFound(position))
    }

    /// Forgets all queues of a topic; as durable and as ordered as a batch.
    pub fn drop_topic(&self, _topic: u32) -> Commit {
        Commit::answered(Err(StoreError::Closed))
    }

    /// What happened since the store was opened.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats::default()
    }

    /// Whether the store can take changes.
    #[must_use]
    pub fn health(&self) -> Health {
        Health::Ok
    }

    /// Commits what waits, writes a last checkpoint and gives the directory back. Other handles answer `Closed` from then on.
    ///
    /// Errors: [`StoreError::Failed`], [`StoreError::Index`]; the directory is given back all the same.
    pub fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
