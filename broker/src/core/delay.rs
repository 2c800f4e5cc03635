//! Delayed messages. They are in the log, and in no queue: a row in the keyspace Timer says where they are to go and when. When they
//! are due, one batch links many of them into their queues and deletes their rows; no body is copied, and a crash finds each message
//! in one place or in the other. What is moved when is decided by [`crate::timer`].

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tracing::warn;
use waybill_protocol::message::{peek_properties, properties};
use waybill_protocol::recall::RecallHandle;

use super::queues::{TopicQueues, link, queue_now};
use super::{Core, OutgoingMessage};
use crate::catalog::TopicInfo;
use crate::error::BrokerError;
use crate::limits;
use crate::store::{Admit, Batch, Commit, HeldRow, Keyspace, QueueKey, Store};
use crate::timer::{Look, Refusal, Timer, ask};

/// What the core knows of delayed messages.
#[derive(Debug)]
pub(super) struct Delays {
    state: Mutex<State>,
    /// Rings when a message is due sooner than any before.
    sooner: Notify,
}

#[derive(Debug)]
struct State {
    timer: Timer,
    /// How many wait, by topic. Below 0 for a moment where messages were moved before it was told that they are held.
    held: HashMap<u32, i64>,
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
    /// Reads what waits.
    pub(super) fn load(store: &Store, precision_ms: u64) -> Result<Self, BrokerError> {
        let mut held: HashMap<u32, i64> = HashMap::new();
        for page in store.pages(Keyspace::Timer, limits::TIMER_BATCH) {
            for (key, value) in &page? {
                if let Some(row) = HeldRow::read(key, value) {
                    *held.entry(row.queue.topic).or_default() += 1;
                }
            }
        }
        // Half of the precision is for the step, and half for the work at it.
        let state = Mutex::new(State { timer: Timer::new(precision_ms / 2), held });
        Ok(Self { state, sooner: Notify::new() })
    }

    fn held(&self, topic: u32, due_ms: impl Iterator<Item = u64>) {
        let mut state = self.state.lock();
        let mut sooner = false;
        for due_ms in due_ms {
            sooner |= state.timer.held(due_ms);
            state.count(topic, 1);
        }
        if sooner {
            self.sooner.notify_one();
        }
    }
}

impl State {
    fn left(&mut self, topic: u32, count: u64) {
        self.count(topic, 0_i64.saturating_sub_unsigned(count));
    }

    fn count(&mut self, topic: u32, more: i64) {
        let held = self.held.entry(topic).or_default();
        *held = held.saturating_add(more);
        if *held == 0 {
            self.held.remove(&topic);
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
            self.delays.held(topic.id, due_ms);
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
        let committed = commit.await;
        {
            let mut state = self.delays.state.lock();
            if let Err(error) = committed {
                state.timer.failed();
                return Err(error.into());
            }
            state.timer.moved();
            for (topic, (_, count)) in &moved {
                state.left(*topic, *count);
            }
        }
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
        let mut state = self.delays.state.lock();
        let (from, until_ms, fresh) = match state.timer.look(self.now_unsigned()) {
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
        let mut rows = state.timer.found(&rows, next.as_ref().map(|_| until_ms));
        if let Some(found) = fresh {
            let all = found.len() < limits::TIMER_FRESH;
            rows.extend(state.timer.found_fresh(&readable(found, &mut damaged), all.then_some(until_ms)));
        }
        if let Some(next) = next {
            // The time is the front of the key, whatever the row says.
            let time = |key: &Bytes| key.first_chunk().copied().map(u64::from_be_bytes);
            state.timer.next_is(next.first().and_then(|(key, _)| time(key)));
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
                if let Some(queue) = queue
                    && let Some(next) = next.get_mut(queue)
                {
                    link(&mut batch, row, *queue, next, now);
                }
                batch.delete(Keyspace::Timer, &HeldRow::key(row.time_ms, row.position));
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

    /// Takes a delayed message back: it will not be delivered. Durable when it returns. Copies of it, of a send that was repeated
    /// because its answer was lost, go with it.
    ///
    /// # Errors
    /// [`BrokerError::IllegalOperation`] for a handle of something else, or too late; [`BrokerError::NotFound`] if nothing waits under
    /// it: recalled before, or never there.
    pub async fn recall(&self, topic: &str, handle: &RecallHandle) -> Result<(), BrokerError> {
        let info = self.topic(topic)?;
        let illegal = |why: String| BrokerError::IllegalOperation(format!("the recall handle {why}"));
        if handle.topic != topic {
            return Err(illegal(format!("is for topic {}, not for {topic}", handle.topic)));
        }
        let here = self.config.load().broker_name.clone();
        if handle.broker_name != here {
            return Err(illegal(format!("is for broker {}, this is {here}", handle.broker_name)));
        }
        let now = self.now();
        let due_ms = u64::try_from(handle.time_ms).unwrap_or(0);
        if handle.time_ms <= now {
            return Err(illegal(format!("comes too late: the message was due at {}, it is {now}", handle.time_ms)));
        }
        self.store.admit(Admit::State)?;
        let (rows, commit) = {
            let mut state = self.delays.state.lock();
            let mut batch = Batch::new();
            let mut taken = Vec::new();
            let mut refusal = None;
            for row in self.copies(info.id, due_ms, handle)? {
                match state.timer.recall(row.position) {
                    Ok(()) => {
                        batch.delete(Keyspace::Timer, &HeldRow::key(row.time_ms, row.position));
                        taken.push(row);
                    }
                    Err(refused) => refusal = Some(refused),
                }
            }
            match (taken.is_empty(), refusal) {
                (true, Some(Refusal::TooLate)) => {
                    return Err(illegal("comes too late: the message is being delivered".into()));
                }
                (true, _) => {
                    let what = format!(
                        "no message {} waits in {topic} for {due_ms}: it was recalled, or never there",
                        handle.message_id
                    );
                    return Err(BrokerError::NotFound(what));
                }
                (false, _) => (taken, self.store.submit(batch)),
            }
        };
        let committed = commit.await;
        {
            let mut state = self.delays.state.lock();
            for row in &rows {
                state.timer.recalled(row.position, committed.is_err().then_some(row.time_ms));
            }
            if committed.is_ok() {
                state.left(info.id, rows.len() as u64);
            }
        }
        committed?;
        self.metrics.timer_recalled(rows.len() as u64);
        Ok(())
    }

    /// The rows of a message that waits: the one that the handle names, and others of the same time, if they are among the first few.
    fn copies(&self, topic: u32, due_ms: u64, handle: &RecallHandle) -> Result<Vec<HeldRow>, BrokerError> {
        let named = match handle.position.map(|position| HeldRow::key(due_ms, position)) {
            Some(key) => self.store.get(Keyspace::Timer, &key)?.and_then(|value| HeldRow::read(&key, &value)),
            None => None,
        };
        let (from, to) = (HeldRow::key(due_ms, 0), HeldRow::key(due_ms.saturating_add(1), 0));
        let near = self.store.range(Keyspace::Timer, &from, &to, limits::RECALL_LOOKS_MAX)?;
        // A copy is as long as the message.
        let like = |row: &HeldRow| named.is_none_or(|named| named.len == row.len && named.position != row.position);
        let near = near.iter().filter_map(|(key, value)| HeldRow::read(key, value)).filter(like);
        let mut bytes = 0;
        let mut copies = Vec::new();
        for row in named.into_iter().chain(near).filter(|row| row.queue.topic == topic) {
            if bytes > limits::RECALL_BYTES_MAX {
                break;
            }
            bytes += u64::from(row.len);
            if self.has_id(&row, &handle.message_id)? {
                copies.push(row);
            }
        }
        Ok(copies)
    }

    fn has_id(&self, row: &HeldRow, id: &str) -> Result<bool, BrokerError> {
        let payload = self.store.read(row.position)?;
        let raw = peek_properties(&payload).map_err(|error| BrokerError::Internal(error.to_string()))?;
        Ok(properties::get(raw, properties::UNIQ_KEY) == Some(id))
    }

    /// How many delayed messages of a topic wait for their time.
    pub fn delayed(&self, topic: &TopicInfo) -> u64 {
        let held = self.delays.state.lock().held.get(&topic.id).copied().unwrap_or(0);
        u64::try_from(held).unwrap_or(0)
    }

    /// Removes what is delayed of a topic that was deleted, so that it does not keep its bytes in the log until it would be due. What is
    /// being moved at this moment goes by itself.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub(super) async fn forget_delayed(&self, topic: u32) -> Result<(), BrokerError> {
        if !self.delays.state.lock().held.contains_key(&topic) {
            return Ok(());
        }
        let mut dropped = 0;
        for page in self.store.pages(Keyspace::Timer, limits::TIMER_BATCH) {
            let rows = page?;
            let of_topic =
                |(key, value): &(Bytes, Bytes)| HeldRow::read(key, value).is_some_and(|row| row.queue.topic == topic);
            let gone: Vec<&Bytes> = rows.iter().filter(|row| of_topic(row)).map(|(key, _)| key).collect();
            dropped += gone.len() as u64;
            self.store.clean_up(Keyspace::Timer, gone);
            tokio::task::yield_now().await;
        }
        self.delays.state.lock().left(topic, dropped);
        self.metrics.timer_dropped(dropped);
        Ok(())
    }

    /// Topics with delayed messages, and how many.
    pub(crate) fn all_delayed(&self) -> Vec<(String, u64)> {
        let positive = |(topic, count): (&u32, &i64)| Some((*topic, u64::try_from(*count).ok()?));
        let held: Vec<(u32, u64)> = self.delays.state.lock().held.iter().filter_map(positive).collect();
        held.into_iter()
            .filter_map(|(topic, count)| Some((self.catalog.topic_by_id(topic)?.config.topic_name.clone(), count)))
            .collect()
    }

    /// For how long, in milliseconds, the first delayed message that is not in its queue yet has been due.
    pub(crate) fn overdue_ms(&self) -> u64 {
        self.delays.state.lock().timer.overdue_ms(self.now_unsigned())
    }

    fn now_unsigned(&self) -> u64 {
        u64::try_from(self.now()).unwrap_or(0)
    }
}

/// The rows that can be read; keys of the others go to `damaged`.
fn readable(found: Vec<(Bytes, Bytes)>, damaged: &mut Vec<Bytes>) -> Vec<HeldRow> {
    let mut rows = Vec::with_capacity(found.len());
    for (key, value) in found {
        match HeldRow::read(&key, &value) {
            Some(row) => rows.push(row),
            None => damaged.push(key),
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is due within the time that its commit takes may be moved before its sender says that it is held.
    #[test]
    fn a_message_that_is_moved_before_it_is_counted_is_not_counted_for_ever() {
        let state = &mut State { timer: Timer::new(1), held: HashMap::new() };
        state.count(1, 2);
        state.left(1, 3);
        assert_eq!(state.held.get(&1), Some(&-1));
        state.count(1, 1);
        assert!(state.held.is_empty(), "{:?}", state.held);
    }
}
