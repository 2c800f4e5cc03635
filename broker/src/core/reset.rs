//! A group goes on elsewhere in a topic, further on or further back.

use std::collections::BTreeMap;

use tracing::info;

use super::Core;
use crate::error::BrokerError;
use crate::lease::schema;
use crate::store::{Admit, Batch, Keyspace, QueueKey};

/// Where a group goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResetTo {
    /// With messages to come.
    Latest,
    /// With the first message stored at this time or later, milliseconds since 1970; 0 = with the oldest.
    Time(i64),
    /// At this offset.
    Offset(u64),
}

/// Moves the offsets of a group on a topic.
#[derive(Debug, Clone)]
pub struct Reset {
    /// Consumer group.
    pub group: String,
    /// Topic.
    pub topic: String,
    /// One queue; `None` = all that can be read.
    pub queue: Option<u32>,
    /// Where to.
    pub to: ResetTo,
}

impl Core {
    /// Moves a group to another place in the queues of a topic; answers the offset in each. All queues are one batch. Open leases of
    /// these queues are forgotten, and handles from before name nothing: acknowledging with them has no effect. A message that a
    /// consumer holds is delivered again if it lies at or behind the new place, and done for the group if it lies before it.
    ///
    /// # Errors
    /// A missing group, topic or queue, an offset outside of the queue, more open leases than one batch can forget, a store that takes no
    /// writes.
    pub async fn reset(&self, reset: &Reset) -> Result<BTreeMap<u32, u64>, BrokerError> {
        let (group, topic) = (self.group(&reset.group)?, self.topic(&reset.topic)?);
        let read_queues = u32::try_from(topic.config.read_queue_nums).unwrap_or(0);
        let queues = match reset.queue {
            None => 0..read_queues,
            Some(queue) if queue < read_queues => queue..queue + 1,
            Some(queue) => {
                return Err(BrokerError::InvalidParameter(format!("{} has no queue {queue}", reset.topic)));
            }
        };
        let mut offsets = BTreeMap::new();
        for queue in queues {
            offsets.insert(queue, self.reset_offset(QueueKey { topic: topic.id, queue }, reset.to)?);
        }
        self.store.admit(Admit::State)?;
        let consumer = self.ledger(&group, &topic)?;
        let commit = {
            let gone = || BrokerError::TopicNotFound(reset.topic.clone());
            let mut ledger = consumer.open_ledger().ok_or_else(gone)?;
            let open = ledger.iter().filter(|(queue, ..)| offsets.contains_key(queue)).count();
            if open.saturating_add(offsets.len()) > self.rows_max() {
                return Err(BrokerError::Busy(format!(
                    "consumers hold {open} messages, and a reset takes all of them back in one step, which is possible with fewer than \
                     {}: stop the consumers first, or reset one queue after the other",
                    self.rows_max()
                )));
            }
            let (mut batch, mut changes) = (Batch::new(), Vec::new());
            for (queue, offset) in &offsets {
                ledger.reset(self.now(), *queue, *offset, &mut changes);
                // What a pull consumer committed would hide it.
                batch.delete(Keyspace::Offset, &schema::progress_key(group.id, topic.id, *queue));
            }
            schema::record(&mut batch, group.id, topic.id, &changes);
            self.store.submit(batch)
        };
        commit.await?;
        consumer.waiters.ring_all();
        info!(group = reset.group, topic = reset.topic, to = ?reset.to, ?offsets, "offsets were reset");
        Ok(offsets)
    }

    fn reset_offset(&self, key: QueueKey, to: ResetTo) -> Result<u64, BrokerError> {
        let (min, next) = self.store.bounds(key);
        match to {
            ResetTo::Latest => Ok(next),
            ResetTo::Time(time_ms) => Ok(self.offset_at(key, time_ms)?),
            ResetTo::Offset(offset) if (min..=next).contains(&offset) => Ok(offset),
            ResetTo::Offset(offset) => Err(BrokerError::InvalidParameter(format!(
                "offset {offset} is outside of queue {}, which has {min} to {next}",
                key.queue
            ))),
        }
    }
}
