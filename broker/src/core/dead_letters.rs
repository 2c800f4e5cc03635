//! Dead letters: messages that used up their attempts, or that a client gave up on.
//!
//! The copy into `%DLQ%<group>` and the end of the lease are one batch, so a message is in exactly one of both places.

use std::sync::Arc;

use bytes::Bytes;
use tracing::{info, warn};
use waybill_protocol::message::{StoredMessage, offset_msg_id, properties, sys_flag};
use waybill_protocol::names::dlq_topic;

use super::queues::TopicQueues;
use super::send::{Encoded, encode};
use super::{Core, HandleRef};
use crate::catalog::GroupInfo;
use crate::error::BrokerError;
use crate::lease::{AckOutcome, schema};
use crate::limits;
use crate::store::{Admit, Batch, Commit, QueueKey, StoreError};

/// A message on its way to the dead-letter topic.
pub(super) struct DeadLetter {
    pub(super) payload: Bytes,
    /// Where it lies in the log.
    pub(super) position: u64,
    pub(super) attempts: u32,
}

/// A batch on its way to the log, perhaps with dead letters in it.
pub(super) struct Buried {
    commit: Commit,
    dead_letters: Option<Arc<TopicQueues>>,
}

impl Buried {
    /// Waits until the batch is durable, then wakes those who wait for dead letters.
    pub(super) async fn done(self) -> Result<(), StoreError> {
        self.commit.await?;
        if let Some(queues) = self.dead_letters {
            queues.arrived(0);
        }
        Ok(())
    }
}

/// A client gives up on a message.
#[derive(Debug, Clone)]
pub struct Forward {
    /// Consumer group.
    pub group: String,
    /// Topic that the message was received from.
    pub topic: String,
    /// The delivery, if the client's handle is known: copy and end of the lease are then one step, and a repetition is harmless.
    pub handle: Option<HandleRef>,
    /// Position of the message in the log.
    pub position: u64,
}

impl Core {
    /// Copies a message to the dead-letter topic of its group and, with a handle, ends its lease. Durable when it returns.
    ///
    /// # Errors
    /// [`BrokerError::StaleHandle`] if the handle names no live delivery, [`BrokerError::NotFound`] for a position without a message, or
    /// with one that the group cannot have received.
    pub async fn forward_to_dead_letters(&self, forward: &Forward) -> Result<(), BrokerError> {
        self.store.admit(Admit::Append)?;
        let group = self.group(&forward.group)?;
        let Some(handle) = forward.handle else {
            let payload = self.read_received(&group, forward.position).await?;
            let letter = DeadLetter { payload, position: forward.position, attempts: 0 };
            self.bury_and_submit(&group.config.group_name, vec![letter], Batch::new()).done().await?;
            return Ok(());
        };
        let Some(consumer) = self.consumer(&forward.group, &forward.topic)? else {
            return Err(BrokerError::StaleHandle(format!("group {} never read {}", forward.group, forward.topic)));
        };
        let key = QueueKey { topic: consumer.topic, queue: handle.queue };
        let entry = self.store.entries(key, handle.offset, 1)?.into_iter().find(|entry| entry.offset == handle.offset);
        let Some(entry) = entry else {
            return Err(BrokerError::NotFound(format!(
                "queue {} has no message at offset {}",
                handle.queue, handle.offset
            )));
        };
        let payload = self.store.read(entry.position)?;
        let (outcome, commit) = {
            let gone = || BrokerError::StaleHandle(format!("{} was deleted", forward.topic));
            let mut ledger = consumer.open_ledger().ok_or_else(gone)?;
            let attempts = ledger.get(handle.queue, handle.offset).map_or(0, |lease| lease.attempts);
            let mut changes = Vec::with_capacity(1);
            let outcome = ledger.ack(self.now(), handle, &mut changes);
            let commit = matches!(outcome, AckOutcome::Acked { .. }).then(|| {
                let mut batch = Batch::new();
                schema::record(&mut batch, consumer.group, consumer.topic, &changes);
                let letter = DeadLetter { payload, position: entry.position, attempts };
                self.bury_and_submit(&group.config.group_name, vec![letter], batch)
            });
            (outcome, commit)
        };
        if let Some(commit) = commit {
            commit.done().await?;
        }
        match outcome {
            AckOutcome::Acked { wake } => {
                if wake {
                    consumer.waiters.ring(handle.queue);
                }
                Ok(())
            }
            // The client repeats what was done already, and perhaps a moment ago.
            AckOutcome::AlreadyDone => {
                self.store.settled().await?;
                Ok(())
            }
            AckOutcome::Stale => Err(BrokerError::StaleHandle("the message was delivered again since".into())),
            AckOutcome::Unknown => {
                Err(BrokerError::StaleHandle("the message was never delivered to this group".into()))
            }
        }
    }

    /// The message at a position, if the group can have received it: it is in a queue, and the group has come past it.
    pub(super) async fn read_received(&self, group: &GroupInfo, position: u64) -> Result<Bytes, BrokerError> {
        let found = self.at_position(position).await?.filter(|(topic, found)| {
            let consumer = self.existing_ledger(group.id, topic.id);
            let next = consumer.and_then(|consumer| consumer.open_ledger()?.next(found.queue));
            next.is_some_and(|next| found.entry.offset < next)
        });
        found.map(|(_, found)| found.payload).ok_or_else(|| {
            let group = &group.config.group_name;
            BrokerError::NotFound(format!("no message at position {position} was delivered to group {group}"))
        })
    }

    /// Adds copies in the dead-letter topic to `batch`, creating the topic if need be, and submits it.
    /// The caller holds the ledger's lock, if the batch has changes of it.
    pub(super) fn bury_and_submit(&self, group: &str, dead: Vec<DeadLetter>, mut batch: Batch) -> Buried {
        if dead.is_empty() {
            return Buried { commit: self.store.submit(batch), dead_letters: None };
        }
        let now = self.now();
        // Held until the batch is submitted: a message never enters the log before the topic it is in.
        let mut writer = self.catalog.writer();
        let topic = match self.dead_letter_topic(&mut writer, group, &mut batch) {
            Ok(topic) => topic,
            Err(error) => {
                self.metrics.damaged_message();
                warn!(group, %error, "dead letters are dropped, their topic cannot be created");
                return Buried { commit: self.store.submit(batch), dead_letters: None };
            }
        };
        let encoded: Vec<Encoded> = dead.iter().filter_map(|letter| self.dead_letter(group, letter, now)).collect();
        let queues = self.topic_queues(topic);
        let counter = queues.next_offset(0, &self.store);
        let commit = {
            let mut next = counter.lock();
            for message in &encoded {
                batch.append(QueueKey { topic, queue: 0 }, *next, message.meta, &message.payload);
                *next += 1;
            }
            self.store.submit(batch)
        };
        self.metrics.dead_letters(group, encoded.len() as u64);
        info!(group, messages = encoded.len(), "messages went to the dead-letter topic");
        Buried { commit, dead_letters: Some(queues) }
    }

    fn dead_letter(&self, group: &str, letter: &DeadLetter, now: i64) -> Option<Encoded> {
        let mut message = match StoredMessage::decode(&mut letter.payload.clone()) {
            Ok(message) => message,
            Err(error) => {
                self.metrics.damaged_message();
                warn!(group, %error, "a dead letter cannot be decoded and is dropped");
                return None;
            }
        };
        let origin_topic = std::mem::replace(&mut message.topic, dlq_topic(group));
        let origin_id = match properties::get(&message.properties, properties::UNIQ_KEY) {
            Some(id) if !id.is_empty() => id.to_owned(),
            // Its producer gave it no id: consumers know it by its place.
            _ => offset_msg_id(self.store_host, letter.position.cast_signed()),
        };
        // Who reads the dead letters is another group than the one that a redriven message was for.
        message.sys_flag &= !sys_flag::FOR_ONE_GROUP;
        properties::remove(&mut message.properties, properties::ORIGIN_GROUP);
        let mut raw = message.properties.clone();
        properties::set(&mut raw, properties::REAL_TOPIC, &origin_topic);
        properties::set(&mut raw, properties::REAL_QID, &message.queue_id.to_string());
        if properties::get(&raw, properties::DLQ_ORIGIN_TOPIC).is_none() {
            properties::set(&mut raw, properties::DLQ_ORIGIN_TOPIC, &origin_topic);
            properties::set(&mut raw, properties::DLQ_ORIGIN_MESSAGE_ID, &origin_id);
        }
        // Properties that are full to the brim stay as they were: the message matters more than where it came from.
        if raw.len() <= limits::PROPERTIES_BYTES_MAX {
            message.properties = raw;
        }
        message.queue_id = 0;
        message.store_timestamp = now;
        message.store_host = self.store_host;
        message.reconsume_times = i32::try_from(letter.attempts.saturating_sub(1)).unwrap_or(i32::MAX);
        encode(&message).ok()
    }
}
