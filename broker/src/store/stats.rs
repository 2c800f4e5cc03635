//! Numbers about the store.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What happened since the store was opened, and where it stands. Bytes, positions and counts unless it says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Batches that were written to the log.
    pub records: u64,
    /// Bytes that were written to the log.
    pub bytes: u64,
    /// Groups of batches that were committed together; `records / groups` is the mean size of a group.
    pub groups: u64,
    /// The largest group, in batches.
    pub largest_group: u64,
    /// Syncs of the log.
    pub syncs: u64,
    /// Time spent in writing and syncing the log.
    pub log_time: Duration,
    /// Bytes that were submitted and are not answered yet.
    pub pending_bytes: u64,
    /// Checkpoints of the index that succeeded.
    pub checkpoints: u64,
    /// Checkpoints of the index that failed; what they would have written is kept and tried again.
    pub failed_checkpoints: u64,
    /// How long the last checkpoint took.
    pub last_checkpoint: Duration,
    /// About the memory that waits for a checkpoint.
    pub overlay_bytes: u64,
    /// The end of what is committed.
    pub log_end: u64,
    /// The end of what is known to be on the disk.
    pub log_durable: u64,
    /// The end of what is in the index.
    pub log_indexed: u64,
    /// The first position of the oldest segment that is there.
    pub log_start: u64,
    /// Segments that are there, without the one that is kept ready.
    pub segments: u64,
}

/// The counters behind [`Stats`].
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) records: Counter,
    pub(super) bytes: Counter,
    pub(super) groups: Counter,
    pub(super) largest_group: Counter,
    pub(super) log_nanos: Counter,
    pub(super) checkpoints: Counter,
    pub(super) failed_checkpoints: Counter,
    pub(super) last_checkpoint_nanos: Counter,
}

/// A number that threads add to.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    pub(super) fn raise(&self, to: u64) {
        self.0.fetch_max(to, Ordering::Relaxed);
    }

    pub(super) fn set(&self, to: u64) {
        self.0.store(to, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
