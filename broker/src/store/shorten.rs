//! Making the log start later, so that its oldest segments can go.
//!
//! The index can be lost and is then built from the log. So whatever only the oldest segments say, and still holds, is said again at the
//! end of the log first: every row, and the bounds of every queue. When that is done, a record says from where on the log is complete
//! ([`super::record`]: Start). Until it is on the disk nothing has changed; from then on the segments before it are not needed by
//! anything, and go after the next checkpoint (`checkpoint.rs`). Wherever a crash comes, the log is complete from its first segment on.
//!
//! Rows are said again by the committer, which alone knows that nobody changes them meanwhile, in small batches between those of others.
//! A row that is changed while this goes on is in the log after where it began, and need not be met.
//!
//! The rows of held messages are not said again: they are younger than their payloads, and no segment goes that has the payload of a
//! held message ([`Held`]).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;

use super::api::Store;
use super::batch::Batch;
use super::error::StoreError;
use super::held::HeldRow;
use super::range;
use super::shared::Shared;
use super::state::after;
use super::types::{Keyspace, QueueKey, SegmentInfo};

/// Rows that are read at a time.
const ROWS: usize = 256;
/// Bytes after which a batch of rows that are said again ends; a part of a segment, if that is less.
const BATCH_BYTES: u64 = 256 * 1024;
/// Queues whose bounds one batch says again.
const QUEUES: usize = 1024;
/// How often it is looked whether a checkpoint has made room in memory.
const CHECKPOINT_WAIT: Duration = Duration::from_millis(10);
/// Entries of a queue that are read at a time.
const ENTRIES: usize = 256;

/// The right to shorten the log, which one caller has at a time.
#[derive(Debug)]
struct Turn(Arc<Shared>);

impl Turn {
    fn take(shared: &Arc<Shared>) -> Result<Self, StoreError> {
        match shared.shortening.swap(true, Ordering::AcqRel) {
            true => Err(StoreError::Busy),
            false => Ok(Self(shared.clone())),
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.shortening.store(false, Ordering::Release);
    }
}

/// Where the first message lies that is held, if there is one. It stays true: whatever is held later lies after it, or after the end
/// that the log had then.
#[derive(Debug)]
pub struct Held {
    _turn: Turn,
    lowest: Option<(u64, Keyspace)>,
    /// The end of the log then. What was held since lies after it.
    end: u64,
}

impl Held {
    /// Its position, and the keyspace of its row.
    #[must_use]
    pub fn lowest(&self) -> Option<(u64, Keyspace)> {
        self.lowest
    }
}

/// What it takes to have the log start at a later segment.
#[derive(Debug)]
pub struct Cut {
    held: Held,
    start: u64,
    mins: HashMap<QueueKey, u64>,
}

impl Cut {
    /// Where the log would start: the first position of a segment.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Another cut may be wanted.
    #[must_use]
    pub fn into_held(self) -> Held {
        self.held
    }

    /// The new lower bounds of the queues that lose messages.
    #[must_use]
    pub fn mins(&self) -> &HashMap<QueueKey, u64> {
        &self.mins
    }
}

/// What shortening the log came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortened {
    /// Where the log starts. The files before it go with the next checkpoint, which is taken at once.
    pub start: u64,
    /// Bytes that were said again.
    pub restated_bytes: u64,
}

impl Store {
    /// The segments of the log, in order. The last one is being written.
    #[must_use]
    pub fn segments(&self) -> Vec<SegmentInfo> {
        let shared = self.shared();
        let segments = shared.segments.all();
        let state = shared.state.read();
        // What is known about a later segment tells about those of which nothing is known, from before this was written down.
        let mut later_ms = i64::MAX;
        let mut all: Vec<_> = segments
            .iter()
            .rev()
            .filter(|segment| segment.end() > state.start())
            .map(|segment| {
                let facts = state.facts.get(segment.base);
                let info = SegmentInfo {
                    base: segment.base,
                    end: segment.end(),
                    first_ms: facts.filter(|facts| facts.messages > 0).map(|facts| facts.first_ms),
                    newest_ms: match facts {
                        Some(facts) => (facts.messages > 0).then_some(facts.newest_ms),
                        None => Some(later_ms),
                    },
                    messages: facts.map_or(0, |facts| facts.messages),
                };
                later_ms = info.first_ms.unwrap_or(later_ms).min(later_ms);
                info
            })
            .collect();
        all.reverse();
        all
    }

    /// Finds the first message that is held. Looks at each held message.
    ///
    /// # Errors
    /// [`StoreError::Busy`] if somebody else is about to shorten the log; [`StoreError::Index`], [`StoreError::Closed`].
    pub async fn held(&self) -> Result<Held, StoreError> {
        let shared = self.shared();
        let turn = Turn::take(shared)?;
        // A row that is replaced while this goes on may be missed, and is watched for that reason.
        shared.state.write().watch_held();
        let mut lowest = None;
        for keyspace in HeldRow::KEYSPACES {
            let mut from = Vec::new();
            loop {
                let rows = self.range(keyspace, &from, &[], ROWS)?;
                let needed = rows.iter().filter_map(|(key, value)| HeldRow::needs(keyspace, key, value)).min();
                lowest = earlier(lowest, needed.map(|position| (position, keyspace)));
                let Some((last, _)) = rows.last() else { break };
                from = after(last);
                tokio::task::yield_now().await;
            }
        }
        let state = shared.state.read();
        Ok(Held { _turn: turn, lowest: earlier(lowest, state.lowest_held()), end: state.applied().position })
    }

    /// Finds out what it takes to have the log start at the segment in which `to` lies, or earlier if a held message lies before it.
    /// Looks at each entry that would go.
    ///
    /// # Errors
    /// [`StoreError::Index`], [`StoreError::Closed`].
    pub async fn cut(&self, held: Held, to: u64) -> Result<Cut, StoreError> {
        let shared = self.shared();
        let wanted = held.lowest.map_or(to, |(position, _)| position.min(to));
        // Everything before it is in the state, for it was when the held ones were looked at.
        let start = shared.segments.base_of(wanted.min(held.end));
        let queues: Vec<_> = shared.state.read().queues.all_bounds().collect();
        let mut mins = HashMap::new();
        for (queue, min, next) in queues {
            let mut new_min = min;
            'queue: while new_min < next {
                let entries = self.entries(queue, new_min, ENTRIES)?;
                tokio::task::yield_now().await;
                for entry in &entries {
                    // Held messages come into their queue later than they lie in the log, so that the first that stays decides.
                    if entry.position >= start {
                        new_min = entry.offset;
                        break 'queue;
                    }
                    new_min = entry.offset + 1;
                }
                if entries.is_empty() {
                    new_min = next;
                }
            }
            if new_min > min {
                mins.insert(queue, new_min);
            }
        }
        Ok(Cut { held, start, mins })
    }

    /// Raises the lower bounds of queues: what lies below is not there any more for any reader. Its bytes stay in the log.
    ///
    /// # Errors
    /// As of a batch.
    pub async fn trim(&self, mins: HashMap<QueueKey, u64>) -> Result<(), StoreError> {
        self.bounds_again(mins.keys().copied().collect(), mins).await
    }

    async fn bounds_again(&self, queues: Vec<QueueKey>, mins: HashMap<QueueKey, u64>) -> Result<(), StoreError> {
        let mins = Arc::new(mins);
        for queues in queues.chunks(QUEUES) {
            let (queues, mins) = (queues.to_vec(), mins.clone());
            self.shared().inbox.submit_late(move |shared| Ok(bounds_again(shared, &queues, &mins))).await?;
        }
        Ok(())
    }

    /// Has the log start later. Messages that lie before are gone when this returns, also if it fails on the way.
    ///
    /// # Errors
    /// As of a batch: [`StoreError::DiskFull`], [`StoreError::Failed`], [`StoreError::Closed`], and [`StoreError::Index`]. The log
    /// starts where it did, and it can be tried again.
    pub async fn shorten(&self, cut: Cut) -> Result<Shortened, StoreError> {
        let shared = self.shared();
        // To the end it is the turn of whoever made the cut.
        let Cut { held: _held, start, mins } = cut;
        let now = shared.state.read().start();
        if start <= now {
            return Ok(Shortened { start: now, restated_bytes: 0 });
        }
        let mut restated_bytes = 0;
        for keyspace in Keyspace::ALL.into_iter().filter(|keyspace| !HeldRow::KEYSPACES.contains(keyspace)) {
            let mut next = Some(Vec::new());
            while let Some(from) = next {
                let made = Arc::new(Mutex::new(Made::default()));
                let make = made.clone();
                let commit = shared.inbox.submit_late(move |shared| {
                    let (batch, next) = rows_again(shared, keyspace, &from)?;
                    *make.lock() = Made { next, bytes: batch.len() as u64 };
                    Ok(batch)
                });
                commit.await?;
                let made = std::mem::take(&mut *made.lock());
                next = made.next;
                restated_bytes += made.bytes;
                self.let_checkpoints_follow().await;
            }
        }
        let queues = shared.state.read().queues.nexts().map(|(queue, _)| queue).collect();
        self.bounds_again(queues, mins).await?;
        let say_start = move |_: &Shared| {
            let mut batch = Batch::new();
            batch.start(start);
            Ok(batch)
        };
        shared.inbox.submit_late(say_start).await?;
        Ok(Shortened { start, restated_bytes })
    }
}

impl Store {
    /// What is said again fills the memory of what is not in the index yet; there must be room for the changes of others.
    async fn let_checkpoints_follow(&self) {
        let shared = self.shared();
        while shared.overlay_bytes() > 2 * shared.options.index_overlay_bytes && shared.inbox.refuses().is_none() {
            tokio::time::sleep(CHECKPOINT_WAIT).await;
        }
    }
}

/// What the committer made.
#[derive(Debug, Default)]
struct Made {
    next: Option<Vec<u8>>,
    bytes: u64,
}

/// A batch that puts again the rows from `from` on, and where the next one begins.
fn rows_again(shared: &Shared, keyspace: Keyspace, from: &[u8]) -> Result<(Batch, Option<Vec<u8>>), StoreError> {
    let rows = range::read(&shared.state, &shared.index, keyspace, (from, &[]), ROWS)?;
    let limit = BATCH_BYTES.min(shared.options.segment_bytes / 16);
    let mut batch = Batch::new();
    for (key, value) in &rows {
        batch.put(keyspace, key, value);
        if batch.len() as u64 >= limit {
            return Ok((batch, Some(after(key))));
        }
    }
    let next = rows.last().filter(|_| rows.len() == ROWS).map(|(key, _)| after(key));
    Ok((batch, next))
}

/// A batch that says again how far these queues go, with the lower bounds that are to be. One that was dropped is not there any more.
fn bounds_again(shared: &Shared, queues: &[QueueKey], mins: &HashMap<QueueKey, u64>) -> Batch {
    let state = shared.state.read();
    let mut batch = Batch::new();
    for queue in queues {
        if let Some((min, next)) = state.queues.known_bounds(*queue) {
            let wanted = mins.get(queue).copied().unwrap_or(min);
            batch.trim(*queue, wanted.clamp(min, next), next);
        }
    }
    batch
}

fn earlier(one: Option<(u64, Keyspace)>, other: Option<(u64, Keyspace)>) -> Option<(u64, Keyspace)> {
    one.into_iter().chain(other).min()
}
