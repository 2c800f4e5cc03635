//! Looking without touching: leases, offsets, bounds. And offsets that pull consumers commit by themselves.

use serde::Serialize;

use super::Core;
use crate::error::BrokerError;
use crate::lease::{Lease, schema};
use crate::store::{Admit, Batch, Keyspace, QueueKey};

/// One open lease, as `waybill lease list` shows it.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaseView {
    /// Consumer group.
    pub group: String,
    /// Topic.
    pub topic: String,
    /// Queue.
    pub queue_id: u32,
    /// Offset in the queue.
    pub offset: u64,
    /// Client that holds the message; empty if it did not say who it is.
    pub holder: String,
    /// When the message was given out, milliseconds since 1970.
    pub pop_time: i64,
    /// Invisible duration from then on, milliseconds.
    pub invisible_time: i64,
    /// When the message is visible again, milliseconds since 1970; in the past if nobody asked for it since.
    pub deadline: i64,
    /// Deliveries so far.
    pub attempts: u32,
    /// How often the invisible duration of this delivery was changed.
    pub changes: u32,
    /// So many of these were renewals by a sidecar that said so; 255 = 255 or more.
    pub renewals: u8,
    /// On whose behalf it was changed last; nothing if it was not, or nobody said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed_by: Option<&'static str>,
}

/// Which leases are looked for. What is not said does not matter.
#[derive(Debug, Clone, Default)]
pub struct LeaseQuery {
    /// Of this consumer group.
    pub group: Option<String>,
    /// On this topic.
    pub topic: Option<String>,
    /// Held by this client.
    pub client: Option<String>,
    /// Of this queue.
    pub queue: Option<u32>,
    /// Of the message at this offset.
    pub offset: Option<u64>,
    /// Those behind this one: group, topic, queue, offset. Groups and topics are in the order of their names.
    pub after: Option<(String, String, u32, u64)>,
}

impl LeaseQuery {
    fn wants(&self, group: &str, topic: &str, queue: u32, offset: u64) -> bool {
        let is_behind = |after: &(String, String, u32, u64)| {
            (group, topic, queue, offset) > (after.0.as_str(), after.1.as_str(), after.2, after.3)
        };
        self.queue.is_none_or(|wanted| wanted == queue)
            && self.offset.is_none_or(|wanted| wanted == offset)
            && self.after.as_ref().is_none_or(is_behind)
    }
}

impl Core {
    /// Open leases in the order of [`LeaseQuery::after`], at most `max`. A look at each lease of the groups and topics asked for.
    ///
    /// # Errors
    /// [`BrokerError::GroupNotFound`], [`BrokerError::TopicNotFound`].
    pub fn leases(&self, query: &LeaseQuery, max: usize) -> Result<Vec<LeaseView>, BrokerError> {
        let groups = match &query.group {
            Some(name) => vec![self.group(name)?],
            None => self.catalog.groups(),
        };
        let topics = match &query.topic {
            Some(name) => vec![self.topic(name)?],
            None => self.catalog.topics(),
        };
        let holder = match &query.client {
            Some(client) => match self.holders.numbers(&[client.as_str().into()]).into_iter().next() {
                Some(number) => Some(number),
                None => return Ok(Vec::new()),
            },
            None => None,
        };
        let mut views = Vec::new();
        for (group, topic) in groups.iter().flat_map(|group| topics.iter().map(move |topic| (group, topic))) {
            let Some(consumer) = self.existing_ledger(group.id, topic.id) else { continue };
            let Some(ledger) = consumer.open_ledger() else { continue };
            let (group, topic) = (&group.config, &topic.config);
            let wanted = |(queue, offset, lease): &(u32, u64, &Lease)| {
                !lease.is_deferred()
                    && holder.is_none_or(|holder| holder == lease.holder)
                    && query.wants(&group.group_name, &topic.topic_name, *queue, *offset)
            };
            for (queue, offset, lease) in ledger.iter().filter(wanted).take(max - views.len()) {
                views.push(LeaseView {
                    group: group.group_name.clone(),
                    topic: topic.topic_name.clone(),
                    queue_id: queue,
                    offset,
                    holder: self.holders.name(lease.holder).map(|name| name.to_string()).unwrap_or_default(),
                    pop_time: lease.pop_time_ms,
                    invisible_time: lease.invisible_ms,
                    deadline: lease.deadline_ms(),
                    attempts: lease.attempts,
                    changes: lease.changes,
                    renewals: lease.renewals,
                    changed_by: lease.changed_by.word(),
                });
            }
            if views.len() >= max {
                break;
            }
        }
        Ok(views)
    }

    /// Lowest offset and one past the highest of a queue.
    ///
    /// # Errors
    /// [`BrokerError::TopicNotFound`].
    pub fn bounds(&self, topic: &str, queue: u32) -> Result<(u64, u64), BrokerError> {
        let topic = self.topic(topic)?;
        Ok(self.store.bounds(QueueKey { topic: topic.id, queue }))
    }

    /// The offset below which a group is done: what a pull consumer committed, else what the group's ledger says.
    ///
    /// # Errors
    /// [`BrokerError::TopicNotFound`], [`BrokerError::GroupNotFound`], a store that cannot be read.
    pub fn consumer_offset(&self, group: &str, topic: &str, queue: u32) -> Result<Option<u64>, BrokerError> {
        let (group, topic) = (self.group(group)?, self.topic(topic)?);
        let committed = self.store.get(Keyspace::Offset, &schema::progress_key(group.id, topic.id, queue))?;
        if let Some(offset) = committed.and_then(|value| <[u8; 8]>::try_from(value.as_ref()).ok()) {
            return Ok(Some(u64::from_be_bytes(offset)));
        }
        Ok(self.existing_ledger(group.id, topic.id).and_then(|consumer| consumer.open_ledger()?.committed(queue)))
    }

    /// Remembers the offset that a pull consumer commits. Key as of the group's progress; value: offset u64 big-endian.
    ///
    /// # Errors
    /// As [`Core::consumer_offset`].
    pub async fn set_consumer_offset(
        &self,
        group: &str,
        topic: &str,
        queue: u32,
        offset: u64,
    ) -> Result<(), BrokerError> {
        let (group, topic) = (self.group(group)?, self.topic(topic)?);
        if queue >= u32::try_from(topic.config.read_queue_nums).unwrap_or(0) {
            return Err(BrokerError::InvalidParameter(format!("{} has no queue {queue}", topic.config.topic_name)));
        }
        self.store.admit(Admit::State)?;
        let mut batch = Batch::new();
        batch.put(Keyspace::Offset, &schema::progress_key(group.id, topic.id, queue), &offset.to_be_bytes());
        self.store.submit(batch).await?;
        Ok(())
    }
}
