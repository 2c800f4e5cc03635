//! What was committed since the last checkpoint, in memory.

use std::sync::Arc;

use super::facts::{AllFacts, Facts};
use super::held::HeldRow;
use super::overlay::{Change, Overlay};
use super::queues::{QueueChange, Queues};
use super::record::{HEADER, Operation, Operations};
use super::types::{Entry, Keyspace};
use super::waiting::{COUNTED, Waiting};

/// The part of the store that is not only in the index. Behind one lock, so that a batch is seen as a whole or not at all.
#[derive(Debug, Default)]
pub(super) struct State {
    active: Overlay,
    /// What a checkpoint is writing; older than `active`, newer than the index.
    frozen: Option<Arc<Overlay>>,
    pub(super) queues: Queues,
    pub(super) facts: AllFacts,
    pub(super) waiting: Waiting,
    /// The log is complete from here on: nothing before this position is needed to build this state again.
    start: u64,
    /// The lowest position that a row of a held message named since [`State::watch_held`].
    lowest_held: Option<(u64, Keyspace)>,
    /// The end of the last record that is in here, and its start.
    applied: Applied,
}

/// How far a copy of the state goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Applied {
    /// Everything before this log position is in the copy.
    pub(super) position: u64,
    /// Where the last record of it starts.
    pub(super) last_record: u64,
}

/// What a checkpoint writes.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) overlay: Arc<Overlay>,
    pub(super) queues: Vec<QueueChange>,
    pub(super) facts: Vec<(u64, Facts)>,
    /// How many delayed messages wait, by topic, if that is certain.
    pub(super) waiting: Option<Vec<(u32, u64)>>,
    /// Where the log starts.
    pub(super) start: u64,
    pub(super) applied: Applied,
}

/// What was committed of a range of keys and may not be in the index yet.
pub(super) struct Changes {
    /// What a checkpoint is writing, of all keys.
    pub(super) frozen: Option<Arc<Overlay>>,
    /// What came after it, in order.
    pub(super) active: Vec<(Box<[u8]>, Change)>,
    /// There may be more, from this key on.
    pub(super) end: Option<Vec<u8>>,
}

impl State {
    /// An empty state on top of an index that goes this far.
    pub(super) fn new(queues: Queues, facts: AllFacts, waiting: Waiting, start: u64, applied: Applied) -> Self {
        Self { queues, facts, waiting, start, applied, ..Self::default() }
    }

    /// Makes the changes of a record in the segment at `base`.
    pub(super) fn apply(&mut self, base: u64, position: u64, record_len: u64, body: &[u8]) {
        self.facts.begun(base);
        // The last that was linked: its position, and the topic it went to.
        let mut linked = None;
        for located in Operations::new(body) {
            match located.operation {
                Operation::Put { keyspace, key, value } => {
                    if let Some(needed) = HeldRow::needs(keyspace, key, value) {
                        self.note_held(needed, keyspace);
                    }
                    self.active.set(keyspace, key, Some(value));
                }
                Operation::Delete { keyspace, key } => {
                    if keyspace == COUNTED {
                        self.went(key, linked);
                    }
                    self.active.set(keyspace, key, None);
                }
                Operation::Append { queue, offset, meta, payload } => {
                    let entry = Entry {
                        offset,
                        position: position + (HEADER + located.at) as u64,
                        len: payload.len() as u32,
                        tag_hash: meta.tag_hash,
                        store_time_ms: meta.store_time_ms,
                    };
                    self.queues.append(queue, entry);
                    self.facts.written(base, meta.store_time_ms);
                }
                Operation::Hold { keyspace, time_ms, queue, meta, payload } => {
                    let row = HeldRow {
                        time_ms,
                        position: position + (HEADER + located.at) as u64,
                        len: payload.len() as u32,
                        tag_hash: meta.tag_hash,
                        queue,
                        store_time_ms: meta.store_time_ms,
                    };
                    if keyspace == COUNTED {
                        self.waiting.came(queue.topic);
                    }
                    self.active.add(keyspace, &HeldRow::key(time_ms, row.position), &row.value());
                    self.note_held(row.position, keyspace);
                    self.facts.written(base, meta.store_time_ms);
                }
                Operation::Link { queue, entry } => {
                    linked = Some((entry.position, queue.topic));
                    self.queues.append(queue, entry);
                    self.facts.linked(entry.position, entry.store_time_ms);
                }
                Operation::Trim { queue, min, next } => self.queues.trim(queue, position, min, next),
                Operation::Start { position } => {
                    self.start = self.start.max(position);
                    self.facts.forget_before(self.start);
                }
                Operation::DropTopic { topic } => {
                    self.queues.drop_topic(topic);
                    self.active.drop_topic(topic);
                }
            }
        }
        self.applied = Applied { position: position + record_len, last_record: position };
    }

    fn note_held(&mut self, position: u64, keyspace: Keyspace) {
        let lowest = self.lowest_held.into_iter().chain([(position, keyspace)]).min();
        self.lowest_held = lowest;
    }

    /// A row of those that are counted is deleted; before it in the same batch this was linked.
    fn went(&mut self, key: &[u8], linked: Option<(u64, u32)>) {
        if let Some((position, topic)) = linked
            && HeldRow::position(key) == Some(position)
        {
            return self.waiting.went(topic);
        }
        match self.get(COUNTED, key).map(|change| change.as_deref().map(|value| HeldRow::read(key, value))) {
            Some(Some(Some(row))) => self.waiting.went(row.queue.topic),
            // It was not counted.
            Some(Some(None) | None) => {}
            None => self.waiting.lost(),
        }
    }

    /// `None` if the index has to be asked.
    pub(super) fn get(&self, keyspace: Keyspace, key: &[u8]) -> Option<&Change> {
        let frozen = || self.frozen.as_ref().and_then(|frozen| frozen.get(keyspace, key));
        self.active.get(keyspace, key).or_else(frozen)
    }

    /// The changes to make to what the index has, the older before the newer.
    pub(super) fn changes<'a>(
        &'a self,
        keyspace: Keyspace,
        prefix: &'a [u8],
    ) -> impl Iterator<Item = (&'a [u8], &'a Change)> {
        let frozen = self.frozen.iter().flat_map(move |frozen| frozen.range(keyspace, prefix));
        frozen.chain(self.active.range(keyspace, prefix))
    }

    /// The changes of keys from `from` on to before `to`, to make to what the index has; of the newest at most so many.
    pub(super) fn changes_between(&self, keyspace: Keyspace, (from, to): (&[u8], &[u8]), max: usize) -> Changes {
        let copy = |(key, change): (&[u8], &Change)| (Box::from(key), change.clone());
        let active: Vec<_> = self.active.between(keyspace, from, to).take(max).map(copy).collect();
        let end = active.last().filter(|_| active.len() == max).map(|(key, _)| after(key));
        Changes { frozen: self.frozen.clone(), active, end }
    }

    /// Where the log starts.
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    /// From now on the rows of held messages that are written are watched, see [`State::lowest_held`].
    pub(super) fn watch_held(&mut self) {
        self.lowest_held = None;
    }

    /// The lowest position that a row of a held message named since [`State::watch_held`], and the row's keyspace.
    pub(super) fn lowest_held(&self) -> Option<(u64, Keyspace)> {
        self.lowest_held
    }

    /// How far the state goes.
    pub(super) fn applied(&self) -> Applied {
        self.applied
    }

    /// Sets aside what was committed so far for a checkpoint. [`State::thaw`] comes before the next one.
    pub(super) fn freeze(&mut self) -> Snapshot {
        let overlay = Arc::new(std::mem::take(&mut self.active));
        self.frozen = Some(overlay.clone());
        Snapshot {
            overlay,
            queues: self.queues.changes(),
            facts: self.facts.take_changes(),
            waiting: self.waiting.is_certain().then(|| self.waiting.all().collect()),
            start: self.start,
            applied: self.applied,
        }
    }

    /// Lets go of what a checkpoint wrote.
    pub(super) fn thaw(&mut self, snapshot: &Snapshot) {
        self.frozen = None;
        self.queues.indexed(&snapshot.queues);
    }

    /// About how much memory waits for a checkpoint.
    pub(super) fn bytes(&self) -> u64 {
        let frozen = self.frozen.as_ref().map_or(0, |frozen| frozen.bytes());
        self.active.bytes() + frozen + self.queues.bytes()
    }
}

/// The least key that is greater.
pub(super) fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}
