//! What retention has to know of leases, and leases of retention.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Core, GroupTopic};
use crate::catalog::{TopicInfo, reserved_hours};
use crate::error::BrokerError;
use crate::store::{Admit, Commit, QueueKey, StoreError};

/// Entries of a queue that are read at a time.
const ENTRIES: usize = 256;

impl Core {
    /// The position of the first message in the log that somebody holds. Looks at each lease.
    pub(crate) async fn lowest_leased(&self) -> Result<Option<u64>, BrokerError> {
        let mut lowest = None;
        for consumer in self.consumers() {
            let live: Vec<(u32, u64)> = match consumer.open_ledger() {
                Some(ledger) => ledger.live(self.now()).collect(),
                None => continue,
            };
            for of_queue in live.chunk_by(|one, other| one.0 == other.0) {
                let found = self.lowest_of_queue(consumer.topic, of_queue).await?;
                lowest = lowest.into_iter().chain(found).min();
            }
            tokio::task::yield_now().await;
        }
        Ok(lowest)
    }

    /// The lowest position of these messages (queue, offset) of one queue, in order.
    async fn lowest_of_queue(&self, topic: u32, mut wanted: &[(u32, u64)]) -> Result<Option<u64>, StoreError> {
        let mut lowest = None;
        while let Some((queue, first)) = wanted.first() {
            let entries = self.store.entries(QueueKey { topic, queue: *queue }, *first, ENTRIES)?;
            let Some(last) = entries.last() else { break };
            let here = wanted.partition_point(|(_, offset)| *offset <= last.offset);
            let (of_chunk, rest) = wanted.split_at(here);
            let held = entries.iter().filter(|entry| of_chunk.binary_search_by_key(&entry.offset, |row| row.1).is_ok());
            lowest = lowest.into_iter().chain(held.map(|entry| entry.position)).min();
            wanted = rest;
            tokio::task::yield_now().await;
        }
        Ok(lowest)
    }

    /// Has all groups leave behind what is below these offsets, because it is to go: but for what somebody holds, it is done for them, and
    /// for those that come later, too.
    /// `false` if somebody holds some of it; that must not go yet.
    pub(crate) async fn leave_behind(&self, mins: &HashMap<QueueKey, u64>) -> Result<bool, BrokerError> {
        let mut of_topic: HashMap<u32, Vec<(u32, u64)>> = HashMap::new();
        for (key, min) in mins {
            of_topic.entry(key.topic).or_default().push((key.queue, *min));
        }
        // Before any of them is looked at: one that begins meanwhile begins behind it.
        self.left_behind.raise(mins, &self.store);
        let mut nothing_left = true;
        for consumer in self.consumers() {
            let Some(mins) = of_topic.get(&consumer.topic) else { continue };
            self.store.admit(Admit::State)?;
            let (done, commit) = self.leave_behind_one(&consumer, mins);
            nothing_left &= done;
            if let Some(commit) = commit {
                commit.await?;
            }
        }
        Ok(nothing_left)
    }

    fn leave_behind_one(&self, consumer: &GroupTopic, mins: &[(u32, u64)]) -> (bool, Option<Commit>) {
        let Some(mut ledger) = consumer.open_ledger() else { return (true, None) };
        let mut changes = Vec::new();
        let done = ledger.leave_behind(self.now(), mins, &mut changes);
        (done, self.submit_if_any(consumer, &changes))
    }

    /// Takes from the queues of topics with a time of their own (`reserve.time`) what is older and held by nobody. Answers how many
    /// messages. Their bytes stay in the log until their segment goes.
    pub(crate) async fn drop_old_of_topics(&self) -> Result<u64, BrokerError> {
        let mut messages = 0;
        for topic in self.catalog.topics() {
            if let Some(hours) = reserved_hours(&topic.config) {
                messages += self.drop_old_of_topic(&topic, hours).await?;
            }
        }
        Ok(messages)
    }

    async fn drop_old_of_topic(&self, topic: &TopicInfo, hours: i64) -> Result<u64, BrokerError> {
        let oldest_ms = self.now().saturating_sub(hours.saturating_mul(3_600_000));
        let queues = topic.config.read_queue_nums.max(topic.config.write_queue_nums);
        let mut mins = HashMap::new();
        for queue in 0..u32::try_from(queues).unwrap_or(0) {
            let key = QueueKey { topic: topic.id, queue };
            let young = self.first_younger(key, oldest_ms).await?;
            if young > self.store.bounds(key).0 {
                mins.insert(key, young);
            }
        }
        if mins.is_empty() {
            return Ok(0);
        }
        if !self.leave_behind(&mins).await? {
            for consumer in self.topic_queues(topic.id).consumers() {
                let Some(ledger) = consumer.open_ledger() else { continue };
                for (queue, offset) in ledger.live(self.now()) {
                    if let Some(min) = mins.get_mut(&QueueKey { topic: topic.id, queue }) {
                        *min = offset.min(*min);
                    }
                }
            }
        }
        let messages = mins.iter().map(|(key, min)| min.saturating_sub(self.store.bounds(*key).0)).sum();
        self.store.trim(mins).await?;
        Ok(messages)
    }

    /// The offset of the first message of a queue that is not older than that.
    async fn first_younger(&self, key: QueueKey, oldest_ms: i64) -> Result<u64, StoreError> {
        let (mut at, next) = self.store.bounds(key);
        while at < next {
            let entries = self.store.entries(key, at, ENTRIES)?;
            let Some(last) = entries.last() else { break };
            if let Some(young) = entries.iter().find(|entry| entry.store_time_ms >= oldest_ms) {
                return Ok(young.offset);
            }
            at = last.offset + 1;
            tokio::task::yield_now().await;
        }
        Ok(at)
    }

    fn consumers(&self) -> Vec<Arc<GroupTopic>> {
        self.ledgers.read().values().cloned().collect()
    }
}
