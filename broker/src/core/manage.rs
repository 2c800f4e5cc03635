//! Creating, changing and deleting topics and groups, by request or on first use.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tracing::info;
use waybill_protocol::names::{self, dlq_topic, validate_group, validate_topic};
use waybill_protocol::remoting::{SubscriptionGroupConfig, TopicConfig};

use super::shrink::{ReadQueues, Reader};
use super::{Core, GroupTopic, Slot};
use crate::catalog::{GroupInfo, MESSAGE_TYPE, TopicInfo, Writer, reserved_hours};
use crate::error::BrokerError;
use crate::lease::{Ledger, schema};
use crate::store::{Admit, Batch, Commit, Keyspace, QueueKey};
use crate::transaction::Transactions;

impl Core {
    /// Creates a topic or replaces its settings by what `make` says, which is shown the old ones.
    ///
    /// # Errors
    /// An illegal name, settings out of range, a `reserve.time` longer than this broker keeps messages, or fewer queues to read while
    /// one that would go holds messages that a group has not finished.
    pub async fn put_topic(
        &self,
        name: &str,
        make: impl FnOnce(Option<&TopicConfig>) -> Result<TopicConfig, BrokerError>,
    ) -> Result<Arc<TopicInfo>, BrokerError> {
        check_topic_name(name)?;
        self.store.admit(Admit::State)?;
        let (info, commit) = {
            let mut batch = Batch::new();
            let queues = self.catalog.topic(name).map(|topic| self.topic_queues(topic.id));
            let mut consumers = queues.as_ref().map(|queues| queues.consumers()).unwrap_or_default();
            consumers.sort_by_key(|consumer| consumer.group);
            let slots = lock_all(&consumers);
            let mut writer = self.catalog.writer();
            let old = self.catalog.topic(name);
            let wanted = make(old.as_ref().map(|old| &old.config))?;
            self.check_reserved(old.as_ref().map(|old| &old.config), &wanted)?;
            let change = old.as_ref().and_then(|old| Some((old, ReadQueues::lowered(&old.config, &wanted)?)));
            // Held until the new settings can be seen: no send comes between the look and the change.
            let counters = match (&queues, &change) {
                (Some(queues), Some((_, change))) => queues.counters(change.now, &self.store),
                _ => Vec::new(),
            };
            let ends: Vec<_> = counters.iter().map(|counter| counter.lock()).collect();
            if let Some((old, change)) = change {
                if queues.is_none_or(|queues| queues.id != old.id) {
                    return Err(BrokerError::Busy(format!("{name} was replaced by another topic just now, try again")));
                }
                let readers: Vec<_> =
                    consumers.iter().zip(&slots).map(|(consumer, slot)| Reader { consumer, slot }).collect();
                let ends: Vec<u64> = ends.iter().map(|end| **end).collect();
                self.check_emptied(old, change, &ends, &readers)?;
            }
            let info = writer.put_topic(wanted, self.now(), &mut batch)?;
            (info, self.submit_if_changed(batch))
        };
        if let Some(commit) = commit {
            commit.await?;
            info!(topic = info.config.topic_name, queues = info.config.write_queue_nums, "topic created or changed");
        }
        Ok(info)
    }

    /// The log goes for all topics alike, so a longer time than that would be a promise that is not kept. What a topic has already is let
    /// be: the broker's time may have become shorter since, and other settings can still be changed.
    fn check_reserved(&self, old: Option<&TopicConfig>, wanted: &TopicConfig) -> Result<(), BrokerError> {
        let all = self.config.load().file_reserved_time;
        match reserved_hours(wanted) {
            Some(hours) if hours.unsigned_abs() > all && old.and_then(reserved_hours) != Some(hours) => {
                Err(BrokerError::InvalidParameter(format!(
                    "reserve.time is {hours} hours, but this broker keeps messages of all topics for {all} hours at most (fileReservedTime)"
                )))
            }
            _ => Ok(()),
        }
    }

    /// Deletes a topic with its messages and everything that groups know about it. Nothing happens if it does not exist.
    ///
    /// # Errors
    /// A store that takes no writes.
    pub async fn delete_topic(&self, name: &str) -> Result<(), BrokerError> {
        self.delete_topic_if(name, false).await
    }

    /// The same if it has no messages, not even delayed ones or such of open transactions. Nothing that is answered as sent is lost: a message
    /// that comes at the same time either keeps the topic, or is refused.
    ///
    /// # Errors
    /// [`BrokerError::TopicNotEmpty`]; a store that takes no writes.
    pub async fn delete_empty_topic(&self, name: &str) -> Result<(), BrokerError> {
        self.delete_topic_if(name, true).await
    }

    async fn delete_topic_if(&self, name: &str, only_empty: bool) -> Result<(), BrokerError> {
        self.store.admit(Admit::State)?;
        let Some(topic) = self.catalog.topic(name) else { return Ok(()) };
        let commit = {
            let mut batch = Batch::new();
            let mut consumers = self.topic_queues(topic.id).consumers();
            consumers.sort_by_key(|consumer| consumer.group);
            let mut slots = lock_all(&consumers);
            let mut writer = self.catalog.writer();
            // As it is now; another one of the name has other consumers.
            let topic = match self.catalog.topic(name) {
                Some(now) if now.id == topic.id => now,
                Some(_another) => {
                    return Err(BrokerError::Busy(format!("{name} was replaced by another topic just now, try again")));
                }
                None => return Ok(()),
            };
            // All three are held until nobody finds the topic any more: nothing comes between the look and the deletion.
            let transactions = only_empty.then(|| self.transactions.lock());
            let mut redriven = self.redriven.0.lock();
            let counters = if only_empty { self.counters_of(&topic) } else { Vec::new() };
            let ends: Vec<_> = counters.iter().map(|counter| counter.lock()).collect();
            if let Some(transactions) = &transactions {
                let ends: Vec<u64> = ends.iter().map(|end| **end).collect();
                if self.has_messages(&topic, &ends, transactions) {
                    return Err(BrokerError::TopicNotEmpty(name.to_owned()));
                }
            }
            if writer.delete_topic(name, &mut batch).is_none() {
                return Ok(());
            }
            for (consumer, slot) in consumers.iter().zip(&mut slots) {
                self.forget(consumer, slot, &mut batch);
            }
            redriven.forget(topic.id, &mut batch);
            let commit = self.store.submit(batch);
            self.forget_leases(&consumers, &slots);
            commit
        };
        self.topics.write().remove(&topic.id);
        let groups: Vec<_> = self.catalog.groups();
        self.metrics.topic_deleted(name, groups.iter().map(|group| group.config.group_name.as_str()));
        commit.await?;
        self.store.drop_topic(topic.id).await?;
        self.forget_delayed(topic.id).await?;
        info!(topic = name, "topic deleted");
        Ok(())
    }

    /// The counters of all queues of a topic.
    fn counters_of(&self, topic: &TopicInfo) -> Vec<Arc<Mutex<u64>>> {
        let queues = topic.config.read_queue_nums.max(topic.config.write_queue_nums);
        self.topic_queues(topic.id).counters(u32::try_from(queues).unwrap_or(0), &self.store)
    }

    /// Whether a topic has messages. `ends`: the next offset of each queue, whose counters the caller holds.
    fn has_messages(&self, topic: &TopicInfo, ends: &[u64], transactions: &Transactions) -> bool {
        let bounds = |queue| self.store.bounds(QueueKey { topic: topic.id, queue });
        (0..).zip(ends).any(|(queue, end)| *end > bounds(queue).0)
            || self.delayed(topic) > 0
            || transactions.iter().any(|half| half.queue.topic == topic.id)
    }

    /// Creates a consumer group or replaces its settings by what `make` says, which is shown the old ones.
    ///
    /// # Errors
    /// An illegal name or settings out of range.
    pub async fn put_group(
        &self,
        name: &str,
        make: impl FnOnce(Option<&SubscriptionGroupConfig>) -> Result<SubscriptionGroupConfig, BrokerError>,
    ) -> Result<Arc<GroupInfo>, BrokerError> {
        check_group_name(name)?;
        self.store.admit(Admit::State)?;
        let (old, info, commit) = {
            let mut batch = Batch::new();
            let mut writer = self.catalog.writer();
            let old = self.catalog.group(name);
            let info = writer.put_group(make(old.as_ref().map(|old| &old.config))?, self.now(), &mut batch)?;
            (old, info, self.submit_if_changed(batch))
        };
        let ordered = info.config.consume_message_orderly;
        if old.is_some_and(|old| old.config.consume_message_orderly != ordered) {
            self.reorder(info.id, ordered);
        }
        if let Some(commit) = commit {
            commit.await?;
            info!(group = info.config.group_name, ordered, "consumer group created or changed");
        }
        Ok(info)
    }

    /// Deletes a consumer group with its leases and its progress. Nothing happens if it does not exist.
    ///
    /// # Errors
    /// A store that takes no writes.
    pub async fn delete_group(&self, name: &str) -> Result<(), BrokerError> {
        self.store.admit(Admit::State)?;
        let Some(group) = self.catalog.group(name) else { return Ok(()) };
        let commit = {
            let mut batch = Batch::new();
            let consumers = self.consumers_of(group.id);
            let mut slots = lock_all(&consumers);
            let mut writer = self.catalog.writer();
            if writer.delete_group(name, &mut batch).is_none() {
                return Ok(());
            }
            for (consumer, slot) in consumers.iter().zip(&mut slots) {
                self.forget(consumer, slot, &mut batch);
                self.topic_queues(consumer.topic).remove_consumer(group.id);
            }
            let commit = self.store.submit(batch);
            self.forget_leases(&consumers, &slots);
            commit
        };
        let topics: Vec<_> = self.catalog.topics();
        self.subscribed.lock().remove(&group.id);
        self.metrics.group_deleted(name, topics.iter().map(|topic| topic.config.topic_name.as_str()));
        commit.await?;
        info!(group = name, "consumer group deleted");
        Ok(())
    }

    /// The topic, created on first use if the broker is told to: with as many queues as the sender asks for, at most
    /// `defaultTopicQueueNums`, which is also the number if it asks for none.
    ///
    /// # Errors
    /// [`BrokerError::TopicNotFound`], or why it could not be created.
    pub async fn topic_for_send(&self, name: &str, default_queues: i32) -> Result<Arc<TopicInfo>, BrokerError> {
        match self.topic(name) {
            Err(_)
                if self.config.load().auto_create_topic_enable
                    && validate_topic(name).is_ok()
                    && !name.starts_with('%') =>
            {
                let config = self.config.load_full();
                let most = i32::try_from(config.default_topic_queue_nums).unwrap_or(1);
                let queues = if default_queues > 0 { default_queues.min(most) } else { most };
                let kind = config.auto_create_topic_message_type.clone();
                let fresh = topic_config(name, queues, BTreeMap::from([(MESSAGE_TYPE.to_owned(), kind)]));
                self.put_topic(name, |old| Ok(old.cloned().unwrap_or(fresh))).await
            }
            found => found,
        }
    }

    /// The group, created on first use if the broker is told to.
    ///
    /// # Errors
    /// [`BrokerError::GroupNotFound`], or why it could not be created.
    pub async fn group_for_pop(&self, name: &str) -> Result<Arc<GroupInfo>, BrokerError> {
        match self.group(name) {
            Err(_) if self.config.load().auto_create_subscription_group && validate_group(name).is_ok() => {
                let fresh =
                    SubscriptionGroupConfig { group_name: name.to_owned(), ..SubscriptionGroupConfig::default() };
                self.put_group(name, |old| Ok(old.cloned().unwrap_or(fresh))).await
            }
            found => found,
        }
    }

    /// The number of a group's dead-letter topic; its rows go into `batch` if it is new.
    pub(super) fn dead_letter_topic(
        &self,
        writer: &mut Writer<'_>,
        group: &str,
        batch: &mut Batch,
    ) -> Result<u32, BrokerError> {
        let name = dlq_topic(group);
        if let Some(topic) = self.catalog.topic(&name) {
            return Ok(topic.id);
        }
        let topic = writer.put_topic(topic_config(&name, 1, BTreeMap::new()), self.now(), batch)?;
        info!(topic = name, "dead-letter topic created");
        Ok(topic.id)
    }

    /// The number of the topic of messages whose transactions were given up; its rows go into `batch` if it is new.
    pub(super) fn given_up_topic(&self, writer: &mut Writer<'_>, batch: &mut Batch) -> Result<u32, BrokerError> {
        let name = super::transaction::GIVEN_UP_TOPIC;
        if let Some(topic) = self.catalog.topic(name) {
            return Ok(topic.id);
        }
        let topic = writer.put_topic(topic_config(name, 1, BTreeMap::new()), self.now(), batch)?;
        info!(topic = name, "topic of given-up transactions created");
        Ok(topic.id)
    }

    fn submit_if_changed(&self, batch: Batch) -> Option<Commit> {
        (!batch.is_empty()).then(|| self.store.submit(batch))
    }

    /// Takes a ledger out of memory and its progress out of the store; nothing is written for it any more.
    fn forget(&self, consumer: &Arc<GroupTopic>, slot: &mut Slot, batch: &mut Batch) {
        self.ledgers.write().remove(&(consumer.group, consumer.topic));
        slot.closed = true;
        for (queue, _) in slot.ledger.progress() {
            let key = schema::progress_key(consumer.group, consumer.topic, queue);
            batch.delete(Keyspace::Progress, &key);
            batch.delete(Keyspace::Offset, &key);
        }
        consumer.waiters.release_everyone();
    }

    /// Removes the leases of ledgers whose topic or group is deleted. There may be more than one batch can hold; what a crash leaves of them,
    /// the next start removes.
    fn forget_leases(&self, consumers: &[Arc<GroupTopic>], slots: &[MutexGuard<'_, Slot>]) {
        for (consumer, slot) in consumers.iter().zip(slots) {
            let key = |(queue, offset, _)| schema::lease_key(consumer.group, consumer.topic, queue, offset);
            self.store.clean_up(Keyspace::Lease, slot.ledger.iter().map(key));
        }
    }

    /// The ledgers of a group, in the order of locks.
    fn consumers_of(&self, group: u32) -> Vec<Arc<GroupTopic>> {
        let mut consumers: Vec<_> =
            self.ledgers.read().values().filter(|consumer| consumer.group == group).cloned().collect();
        consumers.sort_by_key(|consumer| consumer.topic);
        consumers
    }

    /// A group's order setting changed: its ledgers are built anew from what they hold.
    fn reorder(&self, group: u32, ordered: bool) {
        for consumer in self.consumers_of(group) {
            let Some(mut ledger) = consumer.open_ledger() else { continue };
            let progress: Vec<_> = ledger.progress().collect();
            let leases: Vec<_> = ledger.iter().map(|(queue, offset, lease)| (queue, offset, *lease)).collect();
            *ledger = Ledger::restore(ordered, progress, leases);
            drop(ledger);
            consumer.waiters.ring_all();
        }
    }
}

/// Locks several ledgers; they are in the order of group and topic, which is the order everywhere.
fn lock_all(consumers: &[Arc<GroupTopic>]) -> Vec<MutexGuard<'_, Slot>> {
    debug_assert!(consumers.is_sorted_by_key(|consumer| (consumer.group, consumer.topic)));
    consumers.iter().map(|consumer| consumer.ledger.lock()).collect()
}

pub(super) fn topic_config(name: &str, queues: i32, attributes: BTreeMap<String, String>) -> TopicConfig {
    TopicConfig {
        topic_name: name.to_owned(),
        read_queue_nums: queues,
        write_queue_nums: queues,
        attributes,
        ..TopicConfig::default()
    }
}

fn check_topic_name(name: &str) -> Result<(), BrokerError> {
    // Names that the broker derives from a group's name are as long as the group's name makes them.
    let derived = name.strip_prefix(names::DLQ_PREFIX).or_else(|| name.strip_prefix(names::RETRY_PREFIX));
    let checked = match derived {
        Some(group) => validate_group(group),
        None => validate_topic(name),
    };
    checked.map_err(|error| BrokerError::InvalidParameter(format!("topic {name:?}: {error}")))
}

fn check_group_name(name: &str) -> Result<(), BrokerError> {
    validate_group(name).map_err(|error| BrokerError::InvalidParameter(format!("consumer group {name:?}: {error}")))
}
