//! The queues of one topic: the next offset of each, and who consumes from them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::{Mutex, RwLock};

use super::GroupTopic;
use crate::store::{QueueKey, Store};

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
