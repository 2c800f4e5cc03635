//! Writing to the index what was committed since the last time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tracing::{debug, info, warn};

use super::blocks::{self, BLOCK_ENTRIES};
use super::disk::Disk;
use super::error::StoreError;
use super::index::{Index, IndexError};
use super::options::Flush;
use super::queues::QueueChange;
use super::schema;
use super::shared::Shared;
use super::state::Snapshot;
use super::types::Keyspace;

/// Wakes the checkpoint thread.
#[derive(Debug, Default)]
pub(super) struct Alarm {
    closing: Mutex<bool>,
    rung: Condvar,
    /// True while there is no space for a checkpoint.
    full: AtomicBool,
}

impl Alarm {
    /// Makes the thread look whether a checkpoint is due.
    pub(super) fn ring(&self) {
        // Taken, so that the thread is either waiting or has yet to look.
        drop(self.closing.lock());
        self.rung.notify_all();
    }

    /// Makes the thread write a last checkpoint and end.
    pub(super) fn close(&self) {
        *self.closing.lock() = true;
        self.rung.notify_all();
    }

    /// True while there is no space for a checkpoint.
    pub(super) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }
}

/// The checkpoint thread; returns after [`Alarm::close`] and a last checkpoint, with the error of that one.
pub(super) fn run(shared: &Shared) -> Result<(), IndexError> {
    let mut failed: Option<Snapshot> = None;
    let mut last = Instant::now();
    // A crash may have come before it was done.
    remove_old_segments(shared);
    loop {
        let closing = wait_until_due(shared, failed.is_some(), last);
        let snapshot = match failed.take() {
            Some(snapshot) => Some(snapshot),
            None if shared.is_changed() => Some(shared.state.write().freeze()),
            None => None,
        };
        let result = match &snapshot {
            Some(snapshot) => attempt(shared, snapshot),
            None => Ok(()),
        };
        last = Instant::now();
        remove_old_segments(shared);
        shared.alarm.full.store(matches!(&result, Err(error) if error.is_full()), Ordering::Relaxed);
        if closing && (result.is_err() || !shared.is_changed()) {
            return result;
        }
        if let Err(error) = result {
            shared.counters.failed_checkpoints.add(1);
            warn!(?error, "a checkpoint of the index failed; it will be tried again");
            failed = snapshot;
            recover(shared);
        }
    }
}

/// Takes a checkpoint if there is anything to write; for a store without threads.
pub(super) fn take(shared: &Shared) -> Result<(), IndexError> {
    remove_old_segments(shared);
    if !shared.is_changed() || shared.inbox.refuses().is_some_and(|refusal| matches!(refusal, StoreError::Failed(_))) {
        return Ok(());
    }
    let snapshot = shared.state.write().freeze();
    // What was set aside cannot be taken back, so the store is to be opened again.
    attempt(shared, &snapshot).inspect_err(|_| shared.fail("a checkpoint of the index failed"))?;
    remove_old_segments(shared);
    Ok(())
}

/// Removes the segments from before where the log starts. The index says so, too, and needs nothing of them.
fn remove_old_segments(shared: &Shared) {
    while let Some(removed) = shared.segments.remove_first(shared.indexed_start(), &*shared.options.disk) {
        match removed {
            Ok(segment) => info!(base = segment.base, bytes = segment.size, "a segment of the log is removed"),
            Err(error) => {
                warn!(%error, "a segment of the log could not be removed; it will be tried again");
                return;
            }
        }
    }
}

/// Waits for the next checkpoint to be due; true if it is the last.
fn wait_until_due(shared: &Shared, failed: bool, last: Instant) -> bool {
    let options = &shared.options;
    let mut closing = shared.alarm.closing.lock();
    loop {
        if *closing || (!failed && shared.checkpoint_is_due()) {
            return *closing;
        }
        let wait = if failed { options.space_retry_interval } else { options.index_checkpoint_interval };
        if shared.alarm.rung.wait_until(&mut closing, last + wait).timed_out() {
            return *closing;
        }
    }
}

fn attempt(shared: &Shared, snapshot: &Snapshot) -> Result<(), IndexError> {
    wait_until_durable(shared, snapshot.applied.position)?;
    let started = Instant::now();
    write(&shared.index, snapshot, &*shared.options.disk)?;
    shared.thaw(snapshot);
    let took = started.elapsed();
    shared.counters.checkpoints.add(1);
    shared.counters.last_checkpoint_nanos.set(took.as_nanos() as u64);
    debug!(position = snapshot.applied.position, ?took, "checkpoint");
    if let Err(error) = shared.index.compact() {
        warn!(?error, "tables of the index could not be merged; it will be tried again");
        recover(shared);
    }
    Ok(())
}

/// The index must not be ahead of what the disk has of the log.
fn wait_until_durable(shared: &Shared, position: u64) -> Result<(), IndexError> {
    let mut closing = shared.alarm.closing.lock();
    while shared.options.flush == Flush::Async && shared.flusher.durable() < position {
        if *closing || shared.inbox.refuses().is_some() {
            return Err(IndexError::Closed);
        }
        shared.alarm.rung.wait_for(&mut closing, Duration::from_millis(500));
    }
    Ok(())
}

/// Opens the index anew, which tidies up after a failed write, or gives up.
fn recover(shared: &Shared) {
    if shared.index.is_damaged() {
        shared.fail("the index is damaged; it is built again when the store is opened");
    } else if let Err(error) = shared.index.reopen() {
        warn!(?error, "the index could not be opened again; it will be tried again");
    }
}

/// Writes a snapshot to the index.
pub(super) fn write(index: &Index, snapshot: &Snapshot, disk: &dyn Disk) -> Result<(), IndexError> {
    disk.before_index_write().map_err(IndexError::Io)?;
    let queue_rows = queue_rows(index, snapshot)?;
    let user_rows = Keyspace::ALL.into_iter().flat_map(|keyspace| {
        let changes = snapshot.overlay.range(keyspace, &[]);
        changes.filter_map(move |(key, change)| {
            let key = schema::user_key(keyspace, key);
            match change {
                Some(value) => Some(Ok((key, Some(value.to_vec())))),
                // Most of these were in the index; to look costs more than to say it once too often.
                None if matches!(keyspace, Keyspace::Timer | Keyspace::Half) => Some(Ok((key, None))),
                // What never reached the index need not be removed from it.
                None => match index.contains(&key) {
                    Ok(true) => Some(Ok((key, None))),
                    Ok(false) => None,
                    Err(error) => Some(Err(error)),
                },
            }
        })
    });
    let applied = (schema::APPLIED_KEY.to_vec(), Some(schema::applied_value(snapshot.applied, snapshot.start)));
    index.write(user_rows.chain(queue_rows.into_iter().map(Ok)).chain([Ok(applied)]))
}

/// The rows about queues, segments and counts, in order.
fn queue_rows(index: &Index, snapshot: &Snapshot) -> Result<BTreeMap<Vec<u8>, Option<Vec<u8>>>, IndexError> {
    let mut rows = BTreeMap::new();
    for topic in snapshot.overlay.dropped_topics() {
        for prefix in schema::topic_prefixes(topic) {
            rows.extend(index.scan(&prefix)?.into_iter().map(|(key, _)| (key.to_vec(), None)));
        }
    }
    if snapshot.start > 0 {
        let old = index.between(&schema::all_segments(), &schema::segment_key(snapshot.start), usize::MAX)?;
        rows.extend(old.into_iter().map(|(key, _)| (key.to_vec(), None)));
    }
    for (base, facts) in &snapshot.facts {
        if *base >= snapshot.start {
            rows.insert(schema::segment_key(*base), Some(schema::segment_value(*facts)));
        }
    }
    if let Some(waiting) = &snapshot.waiting {
        let value = schema::waiting_value(snapshot.applied.position, waiting);
        rows.insert(schema::WAITING_KEY.to_vec(), Some(value));
    }
    for change in &snapshot.queues {
        rows.extend(trimmed_blocks(index, change)?.into_iter().map(|key| (key, None)));
        rows.insert(schema::bounds_key(change.queue), Some(schema::bounds_value(change.min, change.next)));
        for block in change.entries.chunks(BLOCK_ENTRIES) {
            if let Some(first) = block.first() {
                rows.insert(schema::block_key(change.queue, first.offset), Some(blocks::encode(block)));
            }
        }
    }
    Ok(rows)
}

/// The blocks of a queue in the index of which nothing is left.
fn trimmed_blocks(index: &Index, change: &QueueChange) -> Result<Vec<Vec<u8>>, IndexError> {
    let Some(before) = change.written_min.filter(|before| *before < change.min) else { return Ok(Vec::new()) };
    let mut blocks = Vec::new();
    let (prefix, from) = (schema::block_prefix(change.queue), schema::block_key(change.queue, before));
    index.visit(&prefix, &from, |key, _| {
        let begins_below = schema::block_first(key)? <= change.min;
        if begins_below {
            blocks.push(key.to_vec());
        }
        Some(begins_below)
    })?;
    // The last one may go on above.
    if change.min < change.indexed {
        blocks.pop();
    }
    Ok(blocks)
}
