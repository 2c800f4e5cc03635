//! Taking delayed messages back: one that its sender recalls, and all of a topic that is deleted. Nobody takes a row whose message is
//! being moved to its queue at this moment, nor is one moved that is being taken: the timer's lock and lists see to that.

use waybill_protocol::message::{peek_properties, properties};
use waybill_protocol::recall::RecallHandle;

use super::Core;
use super::delay::readable;
use crate::error::BrokerError;
use crate::limits;
use crate::store::{Admit, Batch, Commit, HeldRow, Keyspace, StoreError};
use crate::timer::Refusal;

/// Messages that are taken back.
struct Taken {
    rows: Vec<HeldRow>,
    commit: Commit,
}

impl Core {
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
        let copies = self.copies(info.id, due_ms, handle).await?;
        let taken = match self.take_back(&copies)? {
            Ok(taken) => taken,
            Err(Refusal::TooLate) => return Err(illegal("comes too late: the message is being delivered".into())),
            Err(Refusal::Recalled) => {
                let what = format!(
                    "no message {} waits in {topic} for {due_ms}: it was recalled, or never there",
                    handle.message_id
                );
                return Err(BrokerError::NotFound(what));
            }
        };
        let count = self.gone(taken).await?;
        self.metrics.timer_recalled(count);
        Ok(())
    }

    /// Submits a batch without these rows, or with those of them that are nobody else's. They were read a moment ago: by now they may
    /// be in their queues, or recalled.
    fn take_back(&self, rows: &[HeldRow]) -> Result<Result<Taken, Refusal>, BrokerError> {
        let mut timer = self.delays.timer.lock();
        let mut there = Vec::with_capacity(rows.len());
        for row in rows {
            if self.store.get(Keyspace::Timer, &HeldRow::key(row.time_ms, row.position))?.is_some() {
                there.push(*row);
            }
        }
        let gone = rows.iter().any(|row| row.time_ms <= self.now_unsigned());
        let mut refusal = if gone { Refusal::TooLate } else { Refusal::Recalled };
        there.retain(|row| timer.recall(row.position).inspect_err(|refused| refusal = *refused).is_ok());
        Ok(if there.is_empty() { Err(refusal) } else { Ok(self.remove(there)) })
    }

    /// Submits a batch without these rows, which the timer has let out of its hands; its lock is held.
    fn remove(&self, rows: Vec<HeldRow>) -> Taken {
        let mut batch = Batch::new();
        rows.iter().for_each(|row| batch.let_go(Keyspace::Timer, row));
        Taken { rows, commit: self.store.submit(batch) }
    }

    /// Waits until they are gone; how many that are.
    async fn gone(&self, Taken { rows, commit }: Taken) -> Result<u64, BrokerError> {
        let committed = commit.await;
        let mut timer = self.delays.timer.lock();
        for row in &rows {
            timer.recalled(row.position, committed.is_err().then_some(row.time_ms));
        }
        committed?;
        Ok(rows.len() as u64)
    }

    /// The rows of a message that waits: the one that the handle names, and others of the same time, if they are among the first few.
    async fn copies(&self, topic: u32, due_ms: u64, handle: &RecallHandle) -> Result<Vec<HeldRow>, BrokerError> {
        let named = match handle.position.map(|position| HeldRow::key(due_ms, position)) {
            Some(key) => self.store.get(Keyspace::Timer, &key)?.and_then(|value| HeldRow::read(&key, &value)),
            None => None,
        };
        let (from, to) = (HeldRow::key(due_ms, 0), HeldRow::key(due_ms.saturating_add(1), 0));
        let near = self.store.range(Keyspace::Timer, &from, &to, limits::RECALL_LOOKS_MAX)?;
        // A copy is as long as the message, and has its tag.
        let like = |row: &HeldRow| {
            named.is_none_or(|named| {
                (named.len, named.tag_hash) == (row.len, row.tag_hash) && named.position != row.position
            })
        };
        let near = near.iter().filter_map(|(key, value)| HeldRow::read(key, value)).filter(like);
        let rows: Vec<HeldRow> = named.into_iter().chain(near).filter(|row| row.queue.topic == topic).collect();
        let mut bytes = 0;
        let mut copies = Vec::new();
        for row in rows {
            if bytes > limits::RECALL_BYTES_MAX {
                break;
            }
            bytes += u64::from(row.len);
            if self.has_id(&row, &handle.message_id)? {
                copies.push(row);
            }
            tokio::task::yield_now().await;
        }
        Ok(copies)
    }

    fn has_id(&self, row: &HeldRow, id: &str) -> Result<bool, BrokerError> {
        let payload = match self.store.read(row.position) {
            // It was let go meanwhile, and its segment with it.
            Err(StoreError::NotFound(_)) => return Ok(false),
            payload => payload?,
        };
        let raw = peek_properties(&payload).map_err(|error| BrokerError::Internal(error.to_string()))?;
        Ok(properties::get(raw, properties::UNIQ_KEY) == Some(id))
    }

    /// Removes what is delayed of a topic that was deleted, so that it does not keep its bytes in the log until it would be due. What is
    /// being moved at this moment goes by itself.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub(super) async fn forget_delayed(&self, topic: u32) -> Result<(), BrokerError> {
        if self.store.waiting(topic) == 0 {
            return Ok(());
        }
        let mut dropped = 0;
        let mut pages = self.store.pages(Keyspace::Timer, limits::TIMER_BATCH);
        while self.store.admit(Admit::State).is_ok() {
            let taken = {
                // Read under it, so that what was read is there, or in the timer's hands.
                let mut timer = self.delays.timer.lock();
                let Some(page) = pages.next() else { break };
                let rows = readable(page?, &mut Vec::new());
                let free = |row: &HeldRow| row.queue.topic == topic && timer.recall(row.position).is_ok();
                self.remove(rows.into_iter().filter(free).collect())
            };
            dropped += self.gone(taken).await?;
            tokio::task::yield_now().await;
        }
        self.metrics.timer_dropped(dropped);
        Ok(())
    }
}
