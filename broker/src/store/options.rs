//! How a store is opened.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::disk::{Disk, RealDisk};
use super::error::StoreError;

const MIB: u64 = 1024 * 1024;

/// When a commit is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Flush {
    /// When it is on the disk.
    #[default]
    Sync,
    /// When it is in the log; the disk follows within [`Options::async_sync_interval`]. Survives the end of the process, not of the machine.
    Async,
}

/// Who does the store's work.
#[derive(Debug, Clone, Default)]
pub enum Drive {
    /// Threads of the store's own.
    #[default]
    Threads,
    /// The owner, who calls [`Store::work`](super::Store::work) some time after the bell has rung and
    /// [`Store::checkpoint`](super::Store::checkpoint) when it likes: so a simulation decides what happens when. A store that is
    /// dropped without having been closed leaves its directory as a killed process would. Only for [`Flush::Sync`].
    ByHand {
        /// Rings when something waits to be committed.
        bell: Arc<Notify>,
    },
}

/// How a store is opened. [`Options::new`] gives the defaults.
#[derive(Debug, Clone)]
pub struct Options {
    /// The directory; created if it is missing. At most one process has it open.
    pub dir: PathBuf,
    /// When a commit is answered. Default: sync.
    pub flush: Flush,
    /// Size of a new log segment in bytes, a multiple of 4 KiB from 64 KiB to 1 GiB; also the bound of a batch. Default: 64 MiB.
    pub segment_bytes: u64,
    /// An index checkpoint is taken when the log has grown by this many bytes. Default: 64 MiB.
    pub index_checkpoint_bytes: u64,
    /// … or when changes have waited this long. Default: 30 s.
    pub index_checkpoint_interval: Duration,
    /// … or when what waits for the index uses about this many bytes of memory. Default: 16 MiB.
    pub index_overlay_bytes: u64,
    /// The longest time that `Flush::Async` leaves a commit without a sync. Default: 500 ms.
    pub async_sync_interval: Duration,
    /// How often it is tried again when space for the log or the index is missing. Default: 2 s.
    pub space_retry_interval: Duration,
    /// `admit` answers `Busy` while more bytes than this wait to be committed. Default: 64 MiB.
    pub max_pending_bytes: u64,
    /// A batch that is refused after it was submitted (no room for it, larger than a segment, out of order) fails the store, as a failed
    /// write does: for owners whose memory is ahead of the store until it is committed. Nothing that was submitted after it is committed.
    /// Default: no, only its own answer says so.
    pub refused_is_fatal: bool,
    /// What the log is written with; tests put one here that fails. Default: the operating system.
    pub disk: Arc<dyn Disk>,
    /// Who does the work. Default: threads.
    pub drive: Drive,
}

impl Options {
    /// The defaults, for this directory.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            flush: Flush::Sync,
            segment_bytes: 64 * MIB,
            index_checkpoint_bytes: 64 * MIB,
            index_checkpoint_interval: Duration::from_secs(30),
            index_overlay_bytes: 16 * MIB,
            async_sync_interval: Duration::from_millis(500),
            space_retry_interval: Duration::from_secs(2),
            max_pending_bytes: 64 * MIB,
            refused_is_fatal: false,
            disk: Arc::new(RealDisk),
            drive: Drive::Threads,
        }
    }

    /// Where the segments are.
    pub(super) fn log_dir(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// Whether there is a store in the directory.
    pub(crate) fn is_there(&self) -> bool {
        self.log_dir().is_dir()
    }

    pub(super) fn validate(&self) -> Result<(), StoreError> {
        let wrong = |name, reason| Err(StoreError::Options { name, reason });
        if !(64 * 1024..=1024 * MIB).contains(&self.segment_bytes) || !self.segment_bytes.is_multiple_of(4096) {
            return wrong("segment_bytes", "must be a multiple of 4 KiB from 64 KiB to 1 GiB");
        }
        if self.space_retry_interval.is_zero() {
            return wrong("space_retry_interval", "must not be zero");
        }
        if matches!(self.drive, Drive::ByHand { .. }) && self.flush == Flush::Async {
            return wrong("drive", "by hand goes with flush: sync only");
        }
        Ok(())
    }
}
