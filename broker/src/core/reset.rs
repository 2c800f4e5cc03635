//! A group goes on elsewhere in a topic, further on or further back.

use std::collections::BTreeMap;

use tracing::info;

use super::{Core, GroupTopic};
use crate::error::BrokerError;
use crate::lease::{Change, Progress, schema};
use crate::store::{Admit, Batch, Commit, Keyspace, QueueKey};

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
    /// Moves a group to another place in the queues of a topic; answers the offset in each. Open leases of these queues are forgotten, and
    /// handles from before name nothing: acknowledging with them has no effect. A message that a consumer holds is delivered again if it
    /// lies at or behind the new place, and done for the group if it lies before it. All of it happens or nothing, also after a crash.
    ///
    /// # Errors
    /// A missing group, topic or queue, an offset outside of the queue, a store that takes no writes.
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
        self.store.admit(Admit::State)?;
        let consumer = self.ledger(&group, &topic)?;
        let (offsets, commit) = {
            let gone = || BrokerError::TopicNotFound(reset.topic.clone());
            let mut ledger = consumer.open_ledger().ok_or_else(gone)?;
            // Under the lock: what retention decides later it makes this ledger leave behind, too.
            let offset = |queue| Ok((queue, self.reset_offset(QueueKey { topic: topic.id, queue }, reset.to)?));
            let offsets = queues.map(offset).collect::<Result<BTreeMap<u32, u64>, BrokerError>>()?;
            let (mut changes, now) = (Vec::new(), self.now());
            for (queue, offset) in &offsets {
                ledger.reset(now, *queue, *offset, &mut changes);
            }
            (offsets, self.submit_reset(&consumer, &changes))
        };
        commit.await?;
        consumer.waiters.ring_all();
        info!(group = reset.group, topic = reset.topic, to = ?reset.to, ?offsets, "offsets were reset");
        Ok(offsets)
    }

    /// Submits a reset: as one batch, or, if there are more leases to forget than one can hold, as several. The first of these says then
    /// that it has begun, and so that the leases of these queues are void; the last one that it is done. The caller holds the ledger's
    /// lock until all are submitted, so nothing else is written of these queues between them, and whoever finds only the first, after a
    /// crash, can end it ([`Core::end_reset`]).
    fn submit_reset(&self, consumer: &GroupTopic, changes: &[Change]) -> Commit {
        let GroupTopic { group, topic, .. } = consumer;
        let mut first = Batch::new();
        let moved = changes.iter().filter_map(|change| match change {
            Change::Progress(queue, progress) => Some((*queue, *progress)),
            _ => None,
        });
        for (queue, _) in moved.clone() {
            // What a pull consumer committed would hide the new place.
            first.delete(Keyspace::Offset, &schema::progress_key(*group, *topic, queue));
        }
        if changes.len() <= self.rows_max() {
            schema::record(&mut first, *group, *topic, changes);
            return self.store.submit(first);
        }
        let moved: Vec<(u32, Progress)> = moved.collect();
        for (queue, progress) in &moved {
            schema::record_reset(&mut first, *group, *topic, *queue, progress);
        }
        // Nobody has to wait for any but the last.
        drop(self.store.submit(first));
        let void = changes.iter().filter_map(|change| match change {
            Change::Delete(queue, offset) => Some((*queue, *offset)),
            _ => None,
        });
        self.end_reset(*group, *topic, void, &moved)
    }

    /// Removes the leases (queue, offset) that a reset has made void, in as many batches as that takes, and says with the last of them that
    /// it is done.
    pub(super) fn end_reset(
        &self,
        group: u32,
        topic: u32,
        void: impl Iterator<Item = (u32, u64)>,
        moved: &[(u32, Progress)],
    ) -> Commit {
        let mut batch = Batch::new();
        for (number, (queue, offset)) in (1..).zip(void) {
            batch.delete(Keyspace::Lease, &schema::lease_key(group, topic, queue, offset));
            if number % self.rows_at_once() == 0 {
                drop(self.store.submit(std::mem::take(&mut batch)));
            }
        }
        let done: Vec<Change> = moved.iter().map(|(queue, progress)| Change::Progress(*queue, *progress)).collect();
        schema::record(&mut batch, group, topic, &done);
        self.store.submit(batch)
    }

    fn reset_offset(&self, key: QueueKey, to: ResetTo) -> Result<u64, BrokerError> {
        let (min, next) = self.left_behind.bounds(key, &self.store);
        match to {
            ResetTo::Latest => Ok(next),
            ResetTo::Time(time_ms) => Ok(self.offset_at(key, time_ms)?.max(min)),
            ResetTo::Offset(offset) if (min..=next).contains(&offset) => Ok(offset),
            ResetTo::Offset(offset) => Err(BrokerError::InvalidParameter(format!(
                "offset {offset} is outside of what can be read in queue {}: {min} to {next}",
                key.queue
            ))),
        }
    }
}
