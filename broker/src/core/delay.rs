//! Delayed messages. They are in the log, and in no queue: a row in the keyspace Timer says where they are to go and when. When they
//! are due, one batch links many of them into their queues and deletes their rows; no body is copied, and a crash finds each message
//! in one place or in the other. What is moved when is decided by [`crate::timer`]; how they are taken back is in `recall.rs`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tracing::warn;

use super::queues::{TopicQueues, link, queue_now};
use super::{Core, OutgoingMessage};
use crate::catalog::TopicInfo;
use crate::error::BrokerError;
use crate::limits;
use crate::store::{Admit, Batch, Commit, HeldRow, Keyspace, QueueKey};
use crate::timer::{Look, Timer, ask};

/// What the core knows of delayed messages.
#[derive(Debug)]
pub(super) struct Delays {
    pub(super) timer: Mutex<Timer>,
    /// Rings when a message is due sooner than any before.
    sooner: Notify,
}

/// What one look for due messages came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// So many messages went to their queues; there may be more.
    Moved(usize),
    /// Nothing is due before this time, milliseconds since 1970; `None`: nothing waits.
    Wait(Option<u64>),
}

/// Rows that are due and nobody else's.
struct Due {
    rows: Vec<HeldRow>,
    /// Keys of rows that cannot be read.
    damaged: Vec<Bytes>,
}

/// A batch of due messages on its way to the log.
struct Linked {
    commit: Commit,
    /// The queues that get messages.
    queues: Vec<(QueueKey, Arc<TopicQueues>)>,
    /// Messages by topic; `None`: the topic is gone.
    moved: HashMap<u32, (Option<Arc<TopicInfo>>, u64)>,
}

impl Delays {
    /// Nothing was looked at yet. `precision_ms`: how late a message may be.
    pub(super) fn new(precision_ms: u64) -> Self {
        // Half of the precision is for the step, and half for the work at it.
        Self { timer: Mutex::new(Timer::new(precision_ms / 2)), sooner: Notify::new() }
    }

    fn held(&self, due_ms: impl Iterator<Item = u64>) {
        let mut timer = self.timer.lock();
        let mut sooner = false;
        for due_ms in due_ms {
            sooner |= timer.held(due_ms);
        }
        drop(timer);
        if sooner {
            self.sooner.notify_one();
        }
    }
}

impl Core {
    /// When each of these is to be delivered, milliseconds since 1970; `None`: at once. What they say of it becomes what they shall say
    /// when they are delivered.
    pub(super) fn delays_of(&self, messages: &mut [OutgoingMessage]) -> Result<Vec<Option<u64>>, BrokerError> {
        let max_ms = self.delay_max_ms();
        let now = self.now();
        let mut delays = Vec::with_capacity(messages.len());
        for message in messages {
            let asked =
                ask(&message.properties, now, max_ms).map_err(|refused| BrokerError::Illegal(refused.to_string()))?;
            delays.push(asked.map(|asked| {
                message.properties = asked.properties;
                asked.due_ms
            }));
        }
        Ok(delays)
    }

    /// The longest delay that may be asked for, in milliseconds.
    pub(super) fn delay_max_ms(&self) -> i64 {
        i64::try_from(self.config.load().timer_max_delay_sec.saturating_mul(1_000)).unwrap_or(i64::MAX)
    }

    /// Messages with these due times are committed.
    pub(super) fn held(&self, topic: &TopicInfo, due_ms: impl Iterator<Item = u64> + Clone) {
        let count = due_ms.clone().count() as u64;
        if count > 0 {
            self.delays.held(due_ms);
            self.metrics.timer_held(&topic.config.topic_name, count);
        }
    }

    /// Moves messages that are due to their queues: one batch. Durable when it returns.
    ///
    /// # Errors
    /// A store that takes no writes or cannot be read; nothing is lost, and the next call tries the same messages.
    pub async fn deliver_due(&self) -> Result<Step, BrokerError> {
        self.store.admit(Admit::State)?;
        let due = match self.take_due()? {
            Ok(due) => due,
            Err(wait) => return Ok(wait),
        };
        if due.rows.is_empty() && due.damaged.is_empty() {
            return Ok(Step::Moved(0));
        }
        let Linked { commit, queues, moved } = self.link(&due);
        if let Err(error) = commit.await {
            self.delays.timer.lock().failed();
            return Err(error.into());
        }
        self.delays.timer.lock().moved();
        for (queue, queues) in queues {
            queues.arrived(queue.queue);
        }
        for (topic, (info, count)) in moved {
            match info {
                Some(info) => self.metrics.timer_moved(&info.config.topic_name, count),
                None => {
                    self.metrics.timer_dropped(count);
                    warn!(topic, messages = count, "delayed messages of a topic that was deleted are dropped");
                }
            }
        }
        for _ in &due.damaged {
            self.metrics.damaged_message();
        }
        Ok(Step::Moved(due.rows.len()))
    }

    /// Until a message is due sooner than any before, or `limit` is over.
    pub(crate) async fn until_sooner(&self, limit: Duration) {
        let _over = tokio::time::timeout(limit, self.delays.sooner.notified()).await;
    }

    fn take_due(&self) -> Result<Result<Due, Step>, BrokerError> {
        // Held until they are marked as being moved, so that a recall comes before or after and not in between.
        let mut timer = self.delays.timer.lock();
        let (from, until_ms, fresh) = match timer.look(self.now_unsigned()) {
            Look::Wait(at) => return Ok(Err(Step::Wait(at))),
            Look::Rows { from, until_ms, fresh } => (HeldRow::key(from.0, from.1), until_ms, fresh),
        };
        let until = HeldRow::key(until_ms, 0);
        let mut damaged = Vec::new();
        let found = self.store.range(Keyspace::Timer, &from, &until, limits::TIMER_BATCH)?;
        let is_full = found.len() == limits::TIMER_BATCH;
        let rows = readable(found, &mut damaged);
        let fresh =
            fresh.filter(|fresh| is_full && rows.last().is_some_and(|row| (row.time_ms, row.position) < *fresh));
        let fresh = match fresh.map(|fresh| HeldRow::key(fresh.0, fresh.1)) {
            Some(from) => Some(self.store.range(Keyspace::Timer, &from, &until, limits::TIMER_FRESH)?),
            None => None,
        };
        let next = match is_full {
            true => None,
            false => Some(self.store.range(Keyspace::Timer, &until, &[], 1)?),
        };
        let mut rows = timer.found(&rows, next.as_ref().map(|_| until_ms));
        if let Some(found) = fresh {
            let all = found.len() < limits::TIMER_FRESH;
            rows.extend(timer.found_fresh(&readable(found, &mut damaged), all.then_some(until_ms)));
        }
        if let Some(next) = next {
            // The time is the front of the key, whatever the row says.
            let time = |key: &Bytes| key.first_chunk().copied().map(u64::from_be_bytes);
            timer.next_is(next.first().and_then(|(key, _)| time(key)));
        }
        Ok(Ok(Due { rows, damaged }))
    }

    /// Submits the batch that moves these messages.
    fn link(&self, due: &Due) -> Linked {
        let mut plan = self.plan(&due.rows);
        loop {
            let mut queues: BTreeMap<QueueKey, (Arc<TopicQueues>, Arc<Mutex<u64>>)> = BTreeMap::new();
            for queue in plan.iter().flatten() {
                queues.entry(*queue).or_insert_with(|| {
                    let topic = self.topic_queues(queue.topic);
                    let counter = topic.next_offset(queue.queue, &self.store);
                    (topic, counter)
                });
            }
            // In the order of their keys, as everybody takes them who takes several.
            let mut next: BTreeMap<QueueKey, MutexGuard<'_, u64>> =
                queues.iter().map(|(queue, (_, counter))| (*queue, counter.lock())).collect();
            // Queues are taken away only under these locks; what was planned without them may be out of date.
            let again = self.plan(&due.rows);
            if again != plan {
                plan = again;
                continue;
            }
            let now = self.now();
            let mut batch = Batch::new();
            let mut moved = HashMap::new();
            for (row, queue) in due.rows.iter().zip(&plan) {
                match queue.as_ref().and_then(|queue| Some((*queue, next.get_mut(queue)?))) {
                    Some((queue, next)) => {
                        link(&mut batch, row, queue, next, now);
                        batch.delete(Keyspace::Timer, &HeldRow::key(row.time_ms, row.position));
                    }
                    None => batch.let_go(Keyspace::Timer, row),
                }
                let topic = row.queue.topic;
                moved.entry(topic).or_insert_with(|| (self.catalog.topic_by_id(topic), 0)).1 += 1;
            }
            for key in &due.damaged {
                batch.delete(Keyspace::Timer, key);
            }
            let commit = self.store.submit(batch);
            drop(next);
            return Linked {
                commit,
                queues: queues.into_iter().map(|(key, (topic, _))| (key, topic)).collect(),
                moved,
            };
        }
    }

    /// The queue for each message; `None` if its topic is gone.
    fn plan(&self, rows: &[HeldRow]) -> Vec<Option<QueueKey>> {
        let mut topics: HashMap<u32, Option<Arc<TopicInfo>>> = HashMap::new();
        rows.iter()
            .map(|row| {
                let topic = row.queue.topic;
                let info = topics.entry(topic).or_insert_with(|| self.catalog.topic_by_id(topic)).as_ref()?;
                Some(QueueKey { topic, queue: queue_now(info, row.queue.queue) })
            })
            .collect()
    }

    /// How many delayed messages of a topic wait for their time.
    pub fn delayed(&self, topic: &TopicInfo) -> u64 {
        self.store.waiting(topic.id)
    }

    /// Topics with delayed messages, and how many.
    pub(crate) fn all_delayed(&self) -> Vec<(String, u64)> {
        self.store
            .all_waiting()
            .into_iter()
            .filter_map(|(topic, count)| Some((self.catalog.topic_by_id(topic)?.config.topic_name.clone(), count)))
            .collect()
    }

    /// For how long, in milliseconds, the first delayed message that is not in its queue yet has been due.
    pub(crate) fn overdue_ms(&self) -> u64 {
        self.delays.timer.lock().overdue_ms(self.now_unsigned())
    }

    pub(super) fn now_unsigned(&self) -> u64 {
        u64::try_from(self.now()).unwrap_or(0)
    }
}

/// The rows that can be read; keys of the others go to `damaged`.
pub(super) fn readable(found: Vec<(Bytes, Bytes)>, damaged: &mut Vec<Bytes>) -> Vec<HeldRow> {
    let mut rows = Vec::with_capacity(found.len());
    for (key, value) in found {
        match HeldRow::read(&key, &value) {
            Some(row) => rows.push(row),
            None => damaged.push(key),
        }
    }
    rows
}
