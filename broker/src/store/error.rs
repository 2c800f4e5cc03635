//! What can go wrong in the store.

use std::path::PathBuf;
use std::sync::Arc;

/// Why the store could not do what it was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// There is no free space for this kind of change. Nothing was changed; it works again by itself once there is space.
    #[error("no space left for the log")]
    DiskFull,
    /// So many bytes wait to be committed that no more are admitted. Nothing was changed; try again.
    #[error("too many changes are waiting for the disk")]
    Busy,
    /// A write or a sync of the log failed. Whether the change survived is known only after the store has been opened again.
    #[error("the log failed: {0}")]
    Failed(Arc<str>),
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
    /// What is on disk is not what was written, and it had been durable.
    #[error("{file} is damaged at log position {position}: {reason}", file = .file.display())]
    Corrupt {
        /// The damaged file.
        file: PathBuf,
        /// The place of the damage, counted over the whole log.
        position: u64,
        /// What does not fit.
        reason: Arc<str>,
    },
    /// There is no message at this log position.
    #[error("there is no message at log position {0}")]
    NotFound(u64),
    /// The batch does not fit into a segment, or a key or value is longer than the format allows.
    #[error("a change of {bytes} bytes is larger than the {max} allowed")]
    TooLarge {
        /// What was asked for.
        bytes: u64,
        /// The most that is possible.
        max: u64,
    },
    /// An append whose offset is not above all earlier ones of its queue. Nothing of the batch was changed.
    #[error("offset {offset} of queue {queue} of topic {topic} was appended when {next} was next")]
    OutOfOrder {
        /// The topic's number.
        topic: u32,
        /// The queue's number.
        queue: u32,
        /// The offset that was asked for.
        offset: u64,
        /// The lowest offset that is free.
        next: u64,
    },
    /// Another process has this directory open.
    #[error("{} is open in another process", .0.display())]
    Locked(PathBuf),
    /// An option has a value that cannot work.
    #[error("option {name}: {reason}")]
    Options {
        /// The option's name.
        name: &'static str,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A file could not be read or written.
    #[error("{what}: {error}")]
    Io {
        /// What was tried, and on which file.
        what: Arc<str>,
        /// The operating system's answer.
        error: Arc<std::io::Error>,
    },
    /// The index could not answer. It repairs itself, at the latest when the store is opened again.
    #[error("the index failed: {0}")]
    Index(Arc<str>),
}

impl StoreError {
    /// Wraps the operating system's answer.
    pub(crate) fn io(what: impl AsRef<str>, error: std::io::Error) -> Self {
        Self::Io { what: what.as_ref().into(), error: Arc::new(error) }
    }
}
