//! The thread that commits: takes everything that waits, writes it, syncs once, applies it, answers all of it, and repeats.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use super::batch::{Batch, Record};
use super::commit::Committed;
use super::error::StoreError;
use super::inbox::{Arrived, Late, Submission};
use super::options::Flush;
use super::record::{Operation, Operations};
use super::shared::Shared;
use super::types::{Entry, QueueKey};
use super::writer::Writer;

/// The committer's own.
pub(super) struct Committer {
    shared: Arc<Shared>,
    writer: Writer,
    /// Where the log ended when the store was opened.
    opened_at: u64,
    /// The lowest offset that may be appended to each queue, after what is being committed.
    next: HashMap<QueueKey, u64>,
    /// The group that is being committed; kept for its room.
    group: Vec<Submission>,
}

impl Committer {
    pub(super) fn new(shared: Arc<Shared>, writer: Writer) -> Self {
        let next = shared.state.read().queues.nexts().collect();
        Self { opened_at: writer.end(), shared, writer, next, group: Vec::new() }
    }

    /// Commits until the inbox is closed and empty, or has failed.
    pub(super) fn run(mut self) {
        let mut arrived = Arrived::default();
        while let Some(found) = self.shared.inbox.take(arrived) {
            arrived = found;
            self.turn(&mut arrived);
        }
        self.end();
    }

    /// Commits what has arrived, as one group unless some of it is refused.
    pub(super) fn turn(&mut self, Arrived { submissions: arrived, settled }: &mut Arrived) {
        while !arrived.is_empty() {
            let refused = self.accept(arrived);
            match self.commit() {
                Ok(without_room) => self.refuse(without_room, &StoreError::DiskFull),
                Err(error) => self.fail(&error),
            }
            if let Some((error, submission)) = refused {
                self.refuse(vec![submission], &error);
            }
            if self.has_failed() {
                self.refuse(std::mem::take(arrived), &StoreError::Failed("a change before it was refused".into()));
            }
        }
        if !settled.is_empty() {
            let answer = match self.shared.inbox.refuses() {
                Some(error @ StoreError::Failed(_)) => Err(error),
                _ => Ok(Committed::default()),
            };
            for waiting in settled.drain(..) {
                // Nobody needs to be interested any longer.
                let _ = waiting.send(answer.clone());
            }
        }
        if let Err(error) = self.make_late() {
            self.fail(&error);
        }
    }

    fn has_failed(&self) -> bool {
        matches!(self.shared.inbox.refuses(), Some(StoreError::Failed(_)))
    }

    /// Answers what cannot be committed; the store fails first, if that is to be.
    fn refuse(&mut self, refused: Vec<Submission>, error: &StoreError) {
        if !refused.is_empty() && !self.has_failed() {
            self.shared.refused(error);
        }
        for submission in refused {
            answer(&self.shared, submission, |_| Err(error.clone()));
        }
    }

    /// Commits a batch that had to wait for everything before it, if there is one, as a group of its own.
    fn make_late(&mut self) -> io::Result<()> {
        let shared = self.shared.clone();
        let Some(Late { make, answer: caller }) = shared.inbox.take_late() else { return Ok(()) };
        let max = shared.record_max();
        let made = match make(&shared) {
            Ok(batch) if batch.is_empty() => Err(Ok(Committed::default())),
            Ok(batch) => batch.finish(max).map_err(|bytes| Err(StoreError::TooLarge { bytes, max })),
            Err(error) => Err(Err(error)),
        };
        match made {
            Ok(record) => {
                shared.inbox.expect(record.len());
                self.group.push(Submission { record, answer: caller });
                for submission in self.commit()? {
                    // Nobody's memory is ahead of it.
                    answer(&shared, submission, |_| Err(StoreError::DiskFull));
                }
                Ok(())
            }
            Err(nothing) => {
                // Nobody needs to be interested any longer.
                let _ = caller.send(nothing);
                Ok(())
            }
        }
    }

    /// Nothing more will come: says in the log that everything is on the disk, unless the log has failed.
    pub(super) fn end(&mut self) {
        if !self.has_failed()
            && self.writer.end() > self.opened_at
            && let Err(error) = self.finish()
        {
            self.fail(&error);
        }
    }

    /// Moves what has arrived into the group, up to the first that is not acceptable, and answers why not.
    fn accept(&mut self, arrived: &mut Vec<Submission>) -> Option<(StoreError, Submission)> {
        let (log_start, mut refusal) = (self.shared.log_start(), None);
        let is_fine = |submission: &&Submission| {
            refusal = claim(&mut self.next, log_start, &submission.record).err();
            refusal.is_none()
        };
        let fine = arrived.iter().take_while(is_fine).count();
        self.group.extend(arrived.drain(..fine));
        refusal.map(|error| (error, arrived.remove(0)))
    }

    /// Commits the group and answers it. What there is no room for is given back.
    fn commit(&mut self) -> io::Result<Vec<Submission>> {
        if self.group.is_empty() {
            return Ok(Vec::new());
        }
        let shared = self.shared.clone();
        let started = Instant::now();
        let records = self.group.iter_mut().map(|submission| &mut submission.record);
        let written = self.writer.write(records, &shared.space, &shared.segments, &shared.flusher)?;
        if shared.options.flush == Flush::Sync {
            shared.flusher.sync()?;
        }
        shared.counters.log_nanos.add(started.elapsed().as_nanos() as u64);
        let without_room = self.group.split_off(written);
        self.apply();

        let bytes = self.group.iter().map(|submission| submission.record.len()).sum();
        shared.counters.records.add(written as u64);
        shared.counters.bytes.add(bytes);
        shared.counters.groups.add(1);
        shared.counters.largest_group.raise(written as u64);
        for submission in self.group.drain(..) {
            answer(&shared, submission, |record| Ok(Committed { positions: record.into_positions() }));
        }
        if !without_room.is_empty() {
            // The offsets they had claimed are free again.
            self.next = shared.state.read().queues.nexts().collect();
        }
        Ok(without_room)
    }

    /// Shows the written group to the readers.
    fn apply(&self) {
        let shared = &*self.shared;
        // First, so that what is found can be read.
        shared.segments.set_committed(self.writer.end());
        shared.segment_end.set(self.writer.segment_end());
        let mut state = shared.state.write();
        for Submission { record, .. } in &self.group {
            let base = shared.segments.base_of(record.position());
            state.apply(base, record.position(), record.len(), record.body());
        }
        shared.set_applied(&state);
        drop(state);
        if shared.checkpoint_is_due() {
            shared.alarm.ring();
        }
    }

    /// Writes an empty record, which says that everything before it is on the disk.
    fn finish(&mut self) -> io::Result<()> {
        let shared = self.shared.clone();
        shared.flusher.sync()?;
        let room = self.writer.segment_end().saturating_sub(self.writer.end());
        if let Ok(mut last) = Batch::new().finish(room) {
            self.writer.write([&mut last].into_iter(), &shared.space, &shared.segments, &shared.flusher)?;
            shared.flusher.sync()?;
            shared.segments.set_committed(self.writer.end());
            let base = shared.segments.base_of(last.position());
            shared.state.write().apply(base, last.position(), last.len(), last.body());
        }
        Ok(())
    }

    /// The log cannot be trusted any longer.
    fn fail(&mut self, error: &io::Error) {
        let reason = error.to_string();
        self.shared.fail(&reason);
        for submission in self.group.drain(..) {
            answer(&self.shared, submission, |_| Err(StoreError::Failed(reason.as_str().into())));
        }
    }
}

/// Checks that a batch's appends are above all earlier ones, and that what it links is there, and reserves their offsets.
fn claim(next: &mut HashMap<QueueKey, u64>, log_start: u64, record: &Record) -> Result<(), StoreError> {
    let mut claimed = Vec::new();
    for located in Operations::new(record.body()) {
        match located.operation {
            Operation::Append { queue, offset, .. } | Operation::Link { queue, entry: Entry { offset, .. } } => {
                let before = next.get(&queue).copied();
                let free = before.unwrap_or(0);
                let gone = match located.operation {
                    Operation::Link { entry, .. } if entry.position < log_start => Some(entry.position),
                    _ => None,
                };
                // The last offset of all has none after it.
                if gone.is_some() || offset < free || offset == u64::MAX {
                    for (queue, before) in claimed.into_iter().rev() {
                        match before {
                            Some(before) => next.insert(queue, before),
                            None => next.remove(&queue),
                        };
                    }
                    let out_of_order =
                        StoreError::OutOfOrder { topic: queue.topic, queue: queue.queue, offset, next: free };
                    return Err(gone.map_or(out_of_order, StoreError::NotFound));
                }
                next.insert(queue, offset + 1);
                claimed.push((queue, before));
            }
            // Always alone in its batch, so there is nothing to take back.
            Operation::DropTopic { topic } => next.retain(|queue, _| queue.topic != topic),
            // Those that say something again do not pass here.
            Operation::Put { .. }
            | Operation::Delete { .. }
            | Operation::Hold { .. }
            | Operation::Trim { .. }
            | Operation::Start { .. } => {}
        }
    }
    Ok(())
}

fn answer(shared: &Shared, submission: Submission, say: impl FnOnce(Record) -> Result<Committed, StoreError>) {
    shared.inbox.answered(submission.record.len());
    // Nobody needs to be interested any longer.
    let _ = submission.answer.send(say(submission.record));
}
