//! What is known about queues without reading: their bounds, and the entries that are not in the index yet.

use std::collections::{HashMap, VecDeque};
use std::mem::size_of;

use super::types::{Entry, QueueKey};

/// One queue.
#[derive(Debug)]
struct Queue {
    /// The log position of its first message since it is known; tells a queue from one of the same name before it.
    born: u64,
    min: u64,
    next: u64,
    /// Entries below this offset are in the index.
    indexed: u64,
    /// The entries from `indexed` on.
    tail: VecDeque<Entry>,
    /// The bounds that the index has, if it has any.
    written: Option<(u64, u64)>,
}

/// All queues.
#[derive(Debug, Default)]
pub(super) struct Queues {
    queues: HashMap<QueueKey, Queue>,
    tail_entries: u64,
}

/// Where the entries that were asked for are.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Sought {
    /// Offsets of the index to read first, if any.
    pub(super) indexed: Option<std::ops::Range<u64>>,
    /// What follows.
    pub(super) tail: Vec<Entry>,
}

/// What a checkpoint writes about one queue.
#[derive(Debug)]
pub(super) struct QueueChange {
    pub(super) queue: QueueKey,
    born: u64,
    pub(super) min: u64,
    pub(super) next: u64,
    /// The lower bound that the index has, if it knows the queue.
    pub(super) written_min: Option<u64>,
    /// Entries below this offset are in the index.
    pub(super) indexed: u64,
    pub(super) entries: Vec<Entry>,
}

impl Queues {
    /// A queue whose entries are all in the index.
    pub(super) fn restore(&mut self, key: QueueKey, min: u64, next: u64) {
        let written = Some((min, next));
        self.queues.insert(key, Queue { born: 0, min, next, indexed: next, tail: VecDeque::new(), written });
    }

    /// Adds an entry that is above all others of its queue.
    pub(super) fn append(&mut self, key: QueueKey, entry: Entry) {
        let queue = self.queues.entry(key).or_insert_with(|| Queue {
            born: entry.position,
            min: entry.offset,
            next: entry.offset,
            indexed: entry.offset,
            tail: VecDeque::new(),
            written: None,
        });
        if queue.min == queue.next {
            queue.min = entry.offset;
        }
        queue.tail.push_back(entry);
        queue.next = entry.offset + 1;
        self.tail_entries += 1;
    }

    /// Makes a queue known, if it is not, raises its lower bound and, if they lie higher, its next offset. `position` is where the
    /// log says so.
    pub(super) fn trim(&mut self, key: QueueKey, position: u64, min: u64, next: u64) {
        let unknown = Queue { born: position, min, next, indexed: next, tail: VecDeque::new(), written: None };
        let queue = self.queues.entry(key).or_insert(unknown);
        queue.min = queue.min.max(min);
        queue.next = queue.next.max(next);
        let below = queue.tail.partition_point(|entry| entry.offset < queue.min);
        queue.tail.drain(..below);
        self.tail_entries -= below as u64;
    }

    /// Forgets the queues of a topic.
    pub(super) fn drop_topic(&mut self, topic: u32) {
        let tail_entries = &mut self.tail_entries;
        self.queues.retain(|key, queue| {
            let keep = key.topic != topic;
            if !keep {
                *tail_entries -= queue.tail.len() as u64;
            }
            keep
        });
    }

    pub(super) fn bounds(&self, key: QueueKey) -> (u64, u64) {
        self.known_bounds(key).unwrap_or_default()
    }

    /// Every queue and its bounds.
    pub(super) fn all_bounds(&self) -> impl Iterator<Item = (QueueKey, u64, u64)> {
        self.queues.iter().map(|(key, queue)| (*key, queue.min, queue.next))
    }

    /// The bounds of a queue, if there is one.
    pub(super) fn known_bounds(&self, key: QueueKey) -> Option<(u64, u64)> {
        self.queues.get(&key).map(|queue| (queue.min, queue.next))
    }

    /// Every queue and the offset that comes next in it.
    pub(super) fn nexts(&self) -> impl Iterator<Item = (QueueKey, u64)> {
        self.queues.iter().map(|(key, queue)| (*key, queue.next))
    }

    /// Where at most `max` entries from `from` on are.
    pub(super) fn seek(&self, key: QueueKey, from: u64, max: usize) -> Sought {
        let Some(queue) = self.queues.get(&key) else { return Sought::default() };
        let from = from.max(queue.min);
        let start = queue.tail.partition_point(|entry| entry.offset < from);
        Sought {
            indexed: (from < queue.indexed).then_some(from..queue.indexed),
            tail: queue.tail.iter().skip(start).take(max).copied().collect(),
        }
    }

    /// What a checkpoint has to write.
    pub(super) fn changes(&self) -> Vec<QueueChange> {
        let changed = self
            .queues
            .iter()
            .filter(|(_, queue)| !queue.tail.is_empty() || queue.written != Some((queue.min, queue.next)));
        changed
            .map(|(key, queue)| QueueChange {
                queue: *key,
                born: queue.born,
                min: queue.min,
                next: queue.next,
                written_min: queue.written.map(|(min, _)| min),
                indexed: queue.indexed,
                entries: queue.tail.iter().copied().collect(),
            })
            .collect()
    }

    /// Lets go of what a checkpoint wrote.
    pub(super) fn indexed(&mut self, changes: &[QueueChange]) {
        for change in changes {
            let same = self.queues.get_mut(&change.queue).filter(|queue| queue.born == change.born);
            let Some(queue) = same else { continue };
            let written = queue.tail.partition_point(|entry| entry.offset < change.next);
            queue.tail.drain(..written);
            queue.tail.shrink_to_fit();
            queue.indexed = change.next;
            queue.written = Some((change.min, change.next));
            self.tail_entries -= written as u64;
        }
    }

    /// About how much memory the entries use.
    pub(super) fn bytes(&self) -> u64 {
        self.tail_entries * size_of::<Entry>() as u64
    }
}
