//! How many messages are in which state, by group and topic.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;
use waybill_protocol::names::dlq_topic;

use super::{Core, GroupTopic};
use crate::catalog::{GroupInfo, TopicInfo};
use crate::error::BrokerError;
use crate::lease::Counts;
use crate::store::QueueKey;

/// What a group has before it on one topic. Ready, in flight, waiting for a retry and blocked are all of the lag.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TopicCounts {
    /// The topic.
    pub topic: String,
    /// Messages that are not done.
    pub lag: u64,
    /// Those that a receive could take now.
    pub ready: u64,
    /// Those that a consumer holds.
    pub in_flight: u64,
    /// Those that were given back and come again later.
    pub waiting_retry: u64,
    /// Those of which somebody holds another one of their message group. A message that no receive has come to yet counts as ready.
    pub blocked: u64,
    /// Messages of the topic that are not due yet. They are in no queue, so the lag does not count them.
    pub delayed: u64,
    /// The filters that members of the group use, if they differ: what one of them does not want is done for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub differing_filters: Vec<String>,
}

/// What a group has before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupCounts {
    /// The group.
    pub group: String,
    /// Messages in its dead-letter topic that were not redriven.
    pub dead_letters: u64,
    /// The lists of topics that its members subscribe to, each joined by commas, if they differ.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub differing_topics: Vec<String>,
    /// By topic that it reads, in the order of their names.
    pub topics: Vec<TopicCounts>,
}

/// How far a group is in one queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueStats {
    /// One past the highest offset of the queue.
    pub broker_offset: u64,
    /// Below it, everything is done.
    pub consumer_offset: u64,
    /// When the last message below it was stored, milliseconds since 1970; 0 = unknown.
    pub last_timestamp: i64,
    /// From it on, nothing was given out.
    pub pull_offset: u64,
}

impl Core {
    /// What one group, or every group, has before it on one topic, or on every one that it reads.
    ///
    /// # Errors
    /// [`BrokerError::GroupNotFound`], [`BrokerError::TopicNotFound`].
    pub fn counts(&self, group: Option<&str>, topic: Option<&str>) -> Result<Vec<GroupCounts>, BrokerError> {
        let groups = match group {
            Some(name) => vec![self.group(name)?],
            None => self.catalog.groups(),
        };
        let topics = match topic {
            Some(name) => vec![self.topic(name)?],
            None => self.catalog.topics(),
        };
        let mut of_group: HashMap<u32, Vec<TopicCounts>> = HashMap::new();
        for (group, topic, counts) in self.ledgers_of(&groups, &topics) {
            let Counts { in_flight, waiting, blocked, lag, .. } = counts;
            of_group.entry(group.id).or_default().push(TopicCounts {
                topic: topic.config.topic_name.clone(),
                lag,
                ready: counts.takeable(),
                in_flight,
                waiting_retry: waiting,
                blocked,
                delayed: self.delayed(&topic),
                differing_filters: self
                    .existing_ledger(group.id, topic.id)
                    .map(|consumer| consumer.differing_filters(self.now()))
                    .unwrap_or_default(),
            });
        }
        let now = self.now();
        let counts = groups.iter().map(|group| {
            let mut topics = of_group.remove(&group.id).unwrap_or_default();
            topics.sort_by(|one, other| one.topic.cmp(&other.topic));
            let subscribed = self.subscribed.lock().get(&group.id).cloned();
            let differing_topics = subscribed.map(|lists| lists.differing(now)).unwrap_or_default();
            let group = group.config.group_name.clone();
            GroupCounts { dead_letters: self.dead_letters(&group), differing_topics, group, topics }
        });
        Ok(counts.collect())
    }

    /// What every group has before it on every topic it reads: topic, group, counts.
    pub fn group_counts(&self) -> Vec<(String, String, Counts)> {
        let (groups, topics) = (self.catalog.groups(), self.catalog.topics());
        let named = |(group, topic, counts): (Arc<GroupInfo>, Arc<TopicInfo>, Counts)| {
            (topic.config.topic_name.clone(), group.config.group_name.clone(), counts)
        };
        self.ledgers_of(&groups, &topics).into_iter().map(named).collect()
    }

    /// Letters in the dead-letter topic of a group that were not redriven.
    pub fn dead_letters(&self, group: &str) -> u64 {
        let Some(topic) = self.catalog.topic(&dlq_topic(group)) else { return 0 };
        let marks = self.redriven.0.lock();
        let of_queue = |queue| {
            let key = QueueKey { topic: topic.id, queue };
            let (min, next) = self.store.bounds(key);
            next.saturating_sub(min).saturating_sub(marks.count(key, min))
        };
        (0..queues(&topic)).map(of_queue).sum()
    }

    fn ledgers_of(
        &self,
        groups: &[Arc<GroupInfo>],
        topics: &[Arc<TopicInfo>],
    ) -> Vec<(Arc<GroupInfo>, Arc<TopicInfo>, Counts)> {
        let now = self.now();
        let groups: HashMap<u32, _> = groups.iter().map(|group| (group.id, group)).collect();
        let topics: HashMap<u32, _> = topics.iter().map(|topic| (topic.id, topic)).collect();
        let consumers: Vec<Arc<GroupTopic>> = self.ledgers.read().values().cloned().collect();
        let mut all = Vec::new();
        for consumer in consumers {
            let (Some(topic), Some(group)) = (topics.get(&consumer.topic), groups.get(&consumer.group)) else {
                continue;
            };
            let Some(mut ledger) = consumer.open_ledger() else { continue };
            let bounds = |queue| self.left_behind.bounds(QueueKey { topic: consumer.topic, queue }, &self.store);
            all.push((Arc::clone(group), Arc::clone(topic), ledger.counts(now, queues(topic), bounds)));
        }
        all
    }

    /// How far a group is in each queue of one topic, or of every topic that it reads: topic, queue, numbers.
    ///
    /// # Errors
    /// [`BrokerError::GroupNotFound`], [`BrokerError::TopicNotFound`], a store that cannot be read.
    pub fn consume_stats(
        &self,
        group: &str,
        topic: Option<&str>,
    ) -> Result<Vec<(String, u32, QueueStats)>, BrokerError> {
        let group = self.group(group)?;
        let topics = match topic {
            Some(name) => vec![self.topic(name)?],
            None => self.catalog.topics(),
        };
        let mut all = Vec::new();
        for topic in topics {
            let Some(consumer) = self.existing_ledger(group.id, topic.id) else { continue };
            for queue in 0..queues(&topic) {
                let key = QueueKey { topic: topic.id, queue };
                let (min, next) = self.store.bounds(key);
                let progress = consumer.open_ledger().map(|ledger| (ledger.committed(queue), ledger.next(queue)));
                let (done, given_out) = progress.unwrap_or_default();
                let consumer_offset = done.unwrap_or(min);
                let last = match consumer_offset.checked_sub(1) {
                    Some(last) if last >= min => self.entry(key, last)?.map(|entry| entry.store_time_ms),
                    _nothing_done => None,
                };
                let stats = QueueStats {
                    broker_offset: next.max(consumer_offset),
                    consumer_offset,
                    last_timestamp: last.unwrap_or(0),
                    pull_offset: given_out.unwrap_or(consumer_offset),
                };
                all.push((topic.config.topic_name.clone(), queue, stats));
            }
        }
        Ok(all)
    }

    /// The groups that read a topic, or ever did.
    ///
    /// # Errors
    /// [`BrokerError::TopicNotFound`].
    pub fn groups_of(&self, topic: &str) -> Result<Vec<Arc<GroupInfo>>, BrokerError> {
        let topic = self.topic(topic)?;
        let reads = |group: &Arc<GroupInfo>| self.existing_ledger(group.id, topic.id).is_some();
        Ok(self.catalog.groups().into_iter().filter(reads).collect())
    }

    /// Bounds of each queue of a topic and when its last message was stored, milliseconds since 1970, 0 if there is none.
    ///
    /// # Errors
    /// [`BrokerError::TopicNotFound`], a store that cannot be read.
    pub fn topic_stats(&self, topic: &str) -> Result<Vec<(u32, u64, u64, i64)>, BrokerError> {
        let topic = self.topic(topic)?;
        let mut all = Vec::new();
        for queue in 0..queues(&topic) {
            let key = QueueKey { topic: topic.id, queue };
            let (min, next) = self.store.bounds(key);
            let last = if next > min { self.entry(key, next - 1)? } else { None };
            all.push((queue, min, next, last.map_or(0, |entry| entry.store_time_ms)));
        }
        Ok(all)
    }
}

/// Queues that may hold messages for somebody.
pub(super) fn queues(topic: &TopicInfo) -> u32 {
    u32::try_from(topic.config.read_queue_nums).unwrap_or(0)
}
