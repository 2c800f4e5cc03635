//! Numbers about the store.

/// What happened since the store was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Batches that were written to the log.
    pub records: u64,
    /// Bytes that were written to the log.
    pub bytes: u64,
    /// Syncs of the log.
    pub syncs: u64,
    /// Groups of batches that were committed together; `records / groups` is the mean size of a group.
    pub groups: u64,
}
