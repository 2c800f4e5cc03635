//! What the store's threads and handles share.

use std::fmt;
use std::sync::atomic::AtomicBool;

use parking_lot::RwLock;

use super::checkpoint::Alarm;
use super::error::StoreError;
use super::flusher::Flusher;
use super::inbox::Inbox;
use super::index::Index;
use super::options::{Drive, Options};
use super::segment::SEGMENT_HEADER;
use super::segments::Segments;
use super::space::Space;
use super::state::{Snapshot, State};
use super::stats::{Counter, Counters};
use super::types::Admit;
use super::writer::Writer;

/// Messages are refused while more than this many times the memory that triggers a checkpoint waits for one.
const OVERLAY_LIMIT: u64 = 8;
/// The part of a segment that only what was admitted before may use when there is no next segment.
const RESERVE: u64 = 16;

/// What the index has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Indexed {
    /// Everything in the log before this position.
    pub(super) position: u64,
    /// Where the log starts.
    pub(super) start: u64,
}

/// The store.
pub(super) struct Shared {
    pub(super) options: Options,
    pub(super) segments: Segments,
    pub(super) space: Space,
    pub(super) flusher: Flusher,
    pub(super) inbox: Inbox,
    pub(super) state: RwLock<State>,
    pub(super) index: Index,
    pub(super) alarm: Alarm,
    pub(super) counters: Counters,
    /// The end of the segment that is written.
    pub(super) segment_end: Counter,
    /// The end of what is in the index.
    indexed: Counter,
    /// Where the log starts: as it says itself, and as the index has it. What lies before the latter can be removed.
    start: Counter,
    indexed_start: Counter,
    overlay_bytes: Counter,
    /// Somebody is about to shorten the log.
    pub(super) shortening: AtomicBool,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("dir", &self.options.dir).finish_non_exhaustive()
    }
}

impl Shared {
    pub(super) fn new(
        options: Options,
        segments: Segments,
        space: Space,
        state: RwLock<State>,
        index: Index,
        writer: &Writer,
        indexed: Indexed,
    ) -> Self {
        let bell = match &options.drive {
            Drive::Threads => None,
            Drive::ByHand { bell } => Some(bell.clone()),
        };
        let shared = Self {
            flusher: Flusher::new(options.disk.clone(), writer.end()),
            options,
            segments,
            space,
            inbox: Inbox::with_bell(bell),
            state,
            index,
            alarm: Alarm::default(),
            counters: Counters::default(),
            segment_end: Counter::default(),
            indexed: Counter::default(),
            start: Counter::default(),
            indexed_start: Counter::default(),
            overlay_bytes: Counter::default(),
            shortening: AtomicBool::new(false),
        };
        shared.segment_end.set(writer.segment_end());
        shared.indexed.set(indexed.position);
        shared.indexed_start.set(indexed.start);
        shared.set_applied(&shared.state.read());
        shared
    }

    /// Whether a change of this kind would be taken now.
    pub(super) fn admit(&self, kind: Admit) -> Result<(), StoreError> {
        if let Some(refusal) = self.inbox.refuses() {
            return Err(refusal);
        }
        let pending = self.inbox.pending_bytes();
        let crowded = self.overlay_bytes.get() > OVERLAY_LIMIT * self.options.index_overlay_bytes;
        let is_full = self.space.is_full();
        match kind {
            Admit::Append if is_full || (crowded && self.alarm.is_full()) => Err(StoreError::DiskFull),
            Admit::Append if crowded => Err(StoreError::Busy),
            Admit::State if is_full && self.room() < pending + self.options.segment_bytes / RESERVE => {
                Err(StoreError::DiskFull)
            }
            _ if pending > self.options.max_pending_bytes => Err(StoreError::Busy),
            _ => Ok(()),
        }
    }

    /// Bytes that are left in the current segment.
    fn room(&self) -> u64 {
        self.segment_end.get().saturating_sub(self.segments.committed())
    }

    /// Takes nothing more, for this reason.
    pub(super) fn fail(&self, reason: &str) {
        tracing::error!(reason, "the store has failed and takes nothing until it is opened again");
        self.inbox.fail(reason.into());
        // Whoever waits for one of these waits no longer.
        self.space.stop();
        self.alarm.ring();
    }

    /// A batch was refused: whoever submitted it may count on it already.
    pub(super) fn refused(&self, error: &StoreError) {
        if self.options.refused_is_fatal {
            self.fail(&format!("a change could not be made: {error}"));
        }
    }

    /// The longest record that the log takes.
    pub(super) fn record_max(&self) -> u64 {
        self.options.segment_bytes - SEGMENT_HEADER
    }

    /// True if something was committed that is not in the index.
    pub(super) fn is_changed(&self) -> bool {
        self.segments.committed() > self.indexed.get()
    }

    /// True if so much was committed that it should go to the index.
    pub(super) fn checkpoint_is_due(&self) -> bool {
        let grown = self.segments.committed().saturating_sub(self.indexed.get());
        grown >= self.options.index_checkpoint_bytes
            || self.overlay_bytes.get() >= self.options.index_overlay_bytes
            || self.start.get() > self.indexed_start.get()
    }

    /// Notes what a changed state means for the threads.
    pub(super) fn set_applied(&self, state: &State) {
        self.overlay_bytes.set(state.bytes());
        self.start.set(state.start());
    }

    /// Where the log starts.
    pub(super) fn log_start(&self) -> u64 {
        self.start.get()
    }

    /// Where the log starts according to the index.
    pub(super) fn indexed_start(&self) -> u64 {
        self.indexed_start.get()
    }

    /// Lets go of what a checkpoint wrote.
    pub(super) fn thaw(&self, snapshot: &Snapshot) {
        let mut state = self.state.write();
        state.thaw(snapshot);
        self.overlay_bytes.set(state.bytes());
        self.indexed.set(snapshot.applied.position);
        self.indexed_start.set(snapshot.start);
    }

    /// The end of what is in the index.
    pub(super) fn indexed(&self) -> u64 {
        self.indexed.get()
    }

    pub(super) fn overlay_bytes(&self) -> u64 {
        self.overlay_bytes.get()
    }
}
