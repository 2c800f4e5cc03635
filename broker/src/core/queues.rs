//! The queues of one topic: the next offset of each, and who consumes from them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::{Mutex, RwLock};

use super::GroupTopic;
use crate::catalog::TopicInfo;
use crate::store::{Batch, HeldRow, QueueKey, Store};

/// The queue a message goes to that was sent to `queue`: another one if the topic has fewer by now.
pub(super) fn queue_now(topic: &TopicInfo, queue: u32) -> u32 {
    let number = |number: i32| u32::try_from(number).unwrap_or(0);
    match (number(topic.config.write_queue_nums), number(topic.config.read_queue_nums)) {
        (0, 0) => queue,
        (0, read) if queue < read => queue,
        (0, read) => queue % read,
        (write, _) if queue < write => queue,
        (write, _) => queue % write,
    }
}

/// Puts a message that was held at the end of a queue. `next` is the counter of that queue, whose lock the caller holds until the batch
/// is submitted; the message counts as taken at `now_ms`.
pub(super) fn link(batch: &mut Batch, row: &HeldRow, queue: QueueKey, next: &mut u64, now_ms: i64) {
    batch.link(queue, row.entry(*next, now_ms));
    *next += 1;
}

/// A topic while the broker runs.
#[derive(Debug)]
pub(crate) struct TopicQueues {
    pub(crate) id: u32,
    /// Next offset to give, per queue. Held while a batch is submitted, so that offsets enter the log in order.
    next: RwLock<Vec<Arc<Mutex<u64>>>>,
    consumers: RwLock<Vec<Arc<GroupTopic>>>,
    turn: AtomicU32,
}

impl TopicQueues {
    pub(crate) fn new(id: u32) -> Self {
        Self { id, next: RwLock::default(), consumers: RwLock::default(), turn: AtomicU32::new(0) }
    }

    /// The counter of a queue.
    pub(crate) fn next_offset(&self, queue: u32, store: &Store) -> Arc<Mutex<u64>> {
        let index = queue as usize;
        if let Some(counter) = self.next.read().get(index) {
            return Arc::clone(counter);
        }
        let mut counters = self.next.write();
        while counters.len() <= index {
            let queue = u32::try_from(counters.len()).unwrap_or(u32::MAX);
            let (_, next) = store.bounds(QueueKey { topic: self.id, queue });
            counters.push(Arc::new(Mutex::new(next)));
        }
        Arc::clone(&counters[index])
    }

    /// The counters of the first `count` queues.
    pub(crate) fn counters(&self, count: u32, store: &Store) -> Vec<Arc<Mutex<u64>>> {
        (0..count).map(|queue| self.next_offset(queue, store)).collect()
    }

    /// The queue whose turn it is, out of `count`.
    pub(crate) fn take_turn(&self, count: u32) -> u32 {
        self.turn.fetch_add(1, Ordering::Relaxed) % count.max(1)
    }

    /// A group that consumes this topic, to be woken when messages arrive.
    pub(crate) fn add_consumer(&self, consumer: Arc<GroupTopic>) {
        self.consumers.write().push(consumer);
    }

    pub(crate) fn remove_consumer(&self, group: u32) {
        self.consumers.write().retain(|consumer| consumer.group != group);
    }

    pub(crate) fn consumers(&self) -> Vec<Arc<GroupTopic>> {
        self.consumers.read().clone()
    }

    /// Messages are there: wakes one poll of every group.
    pub(crate) fn arrived(&self, queue: u32) {
        for consumer in self.consumers.read().iter() {
            consumer.waiters.ring(queue);
        }
    }
}
