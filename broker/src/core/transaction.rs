//! Transactions: a half is held in the log; its decision moves it to its queue or lets go of it, in one batch, and is in that batch
//! itself. The body is written once. It is stored as it will be delivered: a half is known by its row.

use bytes::Bytes;
use tracing::{info, warn};
use waybill_protocol::message::{StoredMessage, properties, sys_flag};

use super::queues::{link, queue_now};
use super::send::{Encoded, Target, forget_delivery};
use super::{Core, Send, Sent};
use crate::config::BrokerConfig;
use crate::error::BrokerError;
use crate::limits;
use crate::store::{Admit, Batch, Committed, HeldRow, Keyspace, QueueKey};
use crate::transaction::{Change, Decision, Due, Ended, Row, Rules, Transactions, schema};

/// What a producer decided about a half.
#[derive(Debug, Clone)]
pub struct End {
    /// The half, by its position in the log.
    pub position: u64,
    /// The producer's group, which must be the half's.
    pub producer_group: String,
    /// The id the producer gave the message; empty only if it gave none.
    pub message_id: String,
    /// [`Decision::Commit`] or [`Decision::Rollback`].
    pub decision: Decision,
}

/// A half whose producer is to be asked.
#[derive(Debug, Clone)]
pub struct Question {
    /// Its position in the log.
    pub position: u64,
    /// Whom to ask.
    pub producer_group: String,
    /// How often that was done before.
    pub checks: u32,
    /// The half as its producer sent it.
    pub message: StoredMessage,
}

impl Core {
    /// Holds the message of a transaction until its producer decides. It is on disk when this returns. The offset in the answer is the
    /// message's position.
    ///
    /// # Errors
    /// As [`Core::send`]; more than one message; too many open transactions.
    pub async fn send_half(&self, mut send: Send, producer_group: &str) -> Result<Sent, BrokerError> {
        forget_delivery(&mut send.messages);
        let [message] = send.messages.as_mut_slice() else {
            let count = send.messages.len();
            return Err(BrokerError::Illegal(format!("a transaction has one message, this one has {count}")));
        };
        if properties::get(&message.properties, properties::PGROUP).is_none() {
            properties::set(&mut message.properties, properties::PGROUP, producer_group);
        }
        let Target { topic, queue, .. } = self.target(&send).await?;
        let now = self.now();
        let first_check_ms = {
            let transactions = self.transactions.lock();
            if !transactions.has_room() {
                let most = transactions.rules().open_max;
                return Err(BrokerError::Busy(format!("{most} transactions are open, no more are taken")));
            }
            let immunity = |raw: &str| properties::get(raw, properties::CHECK_IMMUNITY_TIME_IN_SECONDS)?.parse().ok();
            let said = send.messages.first().and_then(|message| immunity(&message.properties));
            transactions.rules().first_check_ms(now, said)
        };
        send.sys_flag = send.sys_flag & !sys_flag::TRANSACTION | sys_flag::TRANSACTION_COMMIT;
        let Some(message) = send.messages.first() else { return Err(BrokerError::Illegal("no message".into())) };
        let Encoded { meta, payload } = self.encode_message(&send, queue, message, now)?;
        let time_ms = u64::try_from(first_check_ms).unwrap_or_default();
        let queue = QueueKey { topic: topic.id, queue };
        let mut batch = Batch::new();
        batch.hold(Keyspace::Half, time_ms, queue, meta, &payload);
        let Committed { positions } = self.store.submit(batch).await?;
        let [position] = positions[..] else {
            return Err(BrokerError::Internal("the store does not say where the half is".into()));
        };
        let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let row = HeldRow { time_ms, position, len, tag_hash: meta.tag_hash, queue, store_time_ms: now };
        let mut transactions = self.transactions.lock();
        transactions.accept(row);
        // Who deletes the topic if it is empty sees the half from here on.
        self.still_there(&topic, &send.topic)?;
        drop(transactions);
        Ok(Sent { queue_id: queue.queue, first_offset: position, due_ms: None, positions })
    }

    /// Carries out what a producer decided; it is on disk when this returns. The first decision holds, and the same once more is done
    /// already.
    ///
    /// # Errors
    /// [`BrokerError::Decided`] if it was decided otherwise; [`BrokerError::NotFound`] if there is no such half, or it is another group's
    /// or another message; the topic is gone; a store that takes no writes.
    pub async fn end_transaction(&self, end: &End) -> Result<(), BrokerError> {
        self.store.admit(Admit::State)?;
        let Some(row) = self.open_half(end.position) else { return self.decided_before(end).await };
        let message = decode(self.store.read(row.position)?)?;
        check_owner(&message, end)?;
        if end.decision != Decision::Commit {
            return match self.let_go(row, end.decision).await? {
                Ended::Now(_) => Ok(()),
                _ => self.decided_before(end).await,
            };
        }
        let gone = || BrokerError::TopicNotFound(message.topic.clone());
        let topic = self.catalog.topic(&message.topic).filter(|topic| topic.id == row.queue.topic).ok_or_else(gone)?;
        let queues = self.topic_queues(topic.id);
        // A delivery says the queue that the message is in.
        let queue = queue_now(&topic, row.queue.queue);
        let counter = queues.next_offset(queue, &self.store);
        let commit = {
            let mut transactions = self.transactions.lock();
            let mut next = counter.lock();
            let now = self.catalog.topic(&message.topic).filter(|now| now.id == topic.id).ok_or_else(gone)?;
            super::send::check_queue(&now, queue)?;
            let (mut changes, mut batch) = (Vec::new(), Batch::new());
            let ended = transactions.end(self.now(), row.position, Decision::Commit, &mut changes);
            matches!(ended, Ended::Now(_)).then(|| {
                schema::record(&mut batch, &changes);
                link(&mut batch, &row, QueueKey { topic: topic.id, queue }, &mut next, self.now());
                self.store.submit(batch)
            })
        };
        let Some(commit) = commit else { return self.decided_before(end).await };
        commit.await?;
        self.metrics.messages_in(&message.topic, 1, u64::from(row.len));
        self.metrics.transaction_ended(Decision::Commit);
        queues.arrived(queue);
        Ok(())
    }

    /// Whether a half is open, and its row.
    pub fn open_half(&self, position: u64) -> Option<HeldRow> {
        self.transactions.lock().open(position)
    }

    /// Every open half.
    pub fn open_halves(&self) -> Vec<HeldRow> {
        self.transactions.lock().iter().copied().collect()
    }

    /// Gives up at most `max` halves whose producers did not say what became of them, and answers with those that are to be asked about
    /// now. They are to be handed to [`Core::asked`] then.
    ///
    /// # Errors
    /// A store that takes no writes.
    pub async fn transactions_due(&self, max: usize) -> Result<Vec<Question>, BrokerError> {
        let due = self.transactions.lock().due(self.now(), max);
        if !due.is_empty() {
            self.store.admit(Admit::State)?;
        }
        let mut questions = Vec::new();
        for due in due {
            let (Due::Ask(row, checks) | Due::GiveUp(row, checks)) = due;
            let message = match self.store.read(row.position).map_err(BrokerError::from).and_then(decode) {
                Ok(message) => message,
                Err(error @ (BrokerError::NotFound(_) | BrokerError::Internal(_))) => {
                    self.metrics.damaged_message();
                    warn!(position = row.position, %error, "a half cannot be read, its transaction is given up");
                    self.let_go(row, Decision::GivenUp).await?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            if self.catalog.topic(&message.topic).is_none_or(|topic| topic.id != row.queue.topic) {
                info!(topic = message.topic, "a transaction is given up: its topic is gone");
                self.let_go(row, Decision::GivenUp).await?;
            } else if matches!(due, Due::GiveUp(..)) {
                self.give_up(row, checks, &message).await?;
            } else {
                let group = properties::get(&message.properties, properties::PGROUP).unwrap_or_default().to_owned();
                questions.push(Question { position: row.position, producer_group: group, checks, message });
            }
        }
        Ok(questions)
    }

    /// Producers were asked about the halves at `asked`; nobody could be about those at `postponed`.
    ///
    /// # Errors
    /// A store that takes no writes.
    pub async fn asked(&self, asked: &[u64], postponed: &[u64]) -> Result<(), BrokerError> {
        let commit = {
            let (mut transactions, mut changes, mut batch) = (self.transactions.lock(), Vec::new(), Batch::new());
            let now = self.now();
            for position in postponed {
                transactions.postpone(now, *position);
            }
            for position in asked {
                transactions.asked(now, *position, &mut changes);
            }
            schema::record(&mut batch, &changes);
            self.store.submit(batch)
        };
        commit.await?;
        Ok(())
    }

    /// Ends a transaction whose message goes nowhere.
    async fn let_go(&self, row: HeldRow, decision: Decision) -> Result<Ended, BrokerError> {
        let (ended, commit) = {
            let (mut transactions, mut changes, mut batch) = (self.transactions.lock(), Vec::new(), Batch::new());
            let ended = transactions.end(self.now(), row.position, decision, &mut changes);
            schema::record(&mut batch, &changes);
            (ended, self.store.submit(batch))
        };
        commit.await?;
        if let Ended::Now(_) = ended {
            self.metrics.transaction_ended(decision);
        }
        Ok(ended)
    }

    /// Ends a transaction of which nobody says what became of it. The message can be looked at in a topic of its own.
    async fn give_up(&self, row: HeldRow, checks: u32, message: &StoredMessage) -> Result<(), BrokerError> {
        let (ended, commit, queues) = {
            let mut batch = Batch::new();
            let mut writer = self.catalog.writer();
            let topic = self.given_up_topic(&mut writer, &mut batch)?;
            let queues = self.topic_queues(topic);
            let counter = queues.next_offset(0, &self.store);
            let (mut transactions, mut changes) = (self.transactions.lock(), Vec::new());
            let mut next = counter.lock();
            let ended = transactions.end(self.now(), row.position, Decision::GivenUp, &mut changes);
            if let Ended::Now(_) = ended {
                schema::record(&mut batch, &changes);
                link(&mut batch, &row, QueueKey { topic, queue: 0 }, &mut next, self.now());
            }
            (ended, self.store.submit(batch), queues)
        };
        commit.await?;
        let Ended::Now(_) = ended else { return Ok(()) };
        self.metrics.transaction_ended(Decision::GivenUp);
        queues.arrived(0);
        let id = properties::get(&message.properties, properties::UNIQ_KEY).unwrap_or_default();
        warn!(
            topic = message.topic,
            id,
            checks,
            kept_in = GIVEN_UP_TOPIC,
            "nobody says what became of this transaction, it is rolled back"
        );
        Ok(())
    }

    /// What a second decision is told, when the first is on disk. Only who may decide is told anything.
    async fn decided_before(&self, end: &End) -> Result<(), BrokerError> {
        let decided = self.transactions.lock().decided(end.position).is_some();
        if decided {
            // The message is in the log still, whatever became of it, unless retention has taken it since.
            check_owner(&decode(self.store.read(end.position)?)?, end)?;
        }
        let (first, commit) = {
            let (transactions, mut batch) = (self.transactions.lock(), Batch::new());
            let first = transactions.decided(end.position);
            if let Some((decision, at_ms)) = first {
                // The same row once more, behind the first in the log: on disk with it or after it.
                schema::record(&mut batch, &[Change::Put(end.position, Row::Decided { decision, at_ms })]);
            }
            (first, self.store.submit(batch))
        };
        commit.await?;
        let word = match first {
            Some((decision, _)) if decision == end.decision => return Ok(()),
            Some((Decision::Commit, _)) => "committed",
            Some((Decision::Rollback, _)) => "rolled back",
            Some((Decision::GivenUp, _)) => "rolled back because nobody said what became of it",
            None => {
                return Err(BrokerError::NotFound(format!(
                    "there is no open transaction at {}: it was decided long ago, or never was",
                    end.position
                )));
            }
        };
        Err(BrokerError::Decided(format!("the transaction was {word} before, and the first decision holds")))
    }
}

/// Where messages are whose transactions were given up; upstream's name.
pub(super) const GIVEN_UP_TOPIC: &str = "TRANS_CHECK_MAX_TIME_TOPIC";

/// The rules that a configuration asks for.
pub(super) fn rules(config: &BrokerConfig) -> Rules {
    let ms = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    Rules {
        timeout_ms: ms(config.transaction_time_out),
        interval_ms: ms(config.transaction_check_interval),
        checks_max: config.transaction_check_max,
        give_up_ms: ms(config.transaction_give_up_after),
        open_max: limits::HALVES_MAX,
        decisions_max: limits::DECISIONS_MAX,
        remember_ms: limits::DECISIONS_MS,
    }
}

/// What the store knows of transactions.
pub(super) fn restore(config: &BrokerConfig, store: &crate::store::Store) -> Result<Transactions, BrokerError> {
    let damaged = |what: &str| BrokerError::Internal(format!("a row of {what} is damaged or of a newer version"));
    let mut halves = Vec::new();
    for (key, value) in store.scan(Keyspace::Half, &[])? {
        halves.push(HeldRow::read(&key, &value).ok_or_else(|| damaged("halves of transactions"))?);
    }
    let mut rows = Vec::new();
    for (key, value) in store.scan(Keyspace::Decision, &[])? {
        rows.push(schema::read(&key, &value).ok_or_else(|| damaged("decisions about transactions"))?);
    }
    Ok(Transactions::restore(rules(config), halves, rows))
}

/// A half as it was sent.
fn decode(mut payload: Bytes) -> Result<StoredMessage, BrokerError> {
    let mut message = StoredMessage::decode(&mut payload).map_err(|error| BrokerError::Internal(error.to_string()))?;
    message.sys_flag = message.sys_flag & !sys_flag::TRANSACTION | sys_flag::TRANSACTION_PREPARED;
    Ok(message)
}

/// Whether somebody may decide about a half.
fn check_owner(message: &StoredMessage, end: &End) -> Result<(), BrokerError> {
    let owner = properties::get(&message.properties, properties::PGROUP).unwrap_or_default();
    let id = properties::get(&message.properties, properties::UNIQ_KEY).unwrap_or_default();
    if owner != end.producer_group {
        return Err(BrokerError::NotFound(format!(
            "the transaction at {} is not one of producer group {}",
            end.position, end.producer_group
        )));
    }
    if end.message_id != id {
        return Err(BrokerError::NotFound(format!(
            "the transaction at {} is not about message {}",
            end.position, end.message_id
        )));
    }
    Ok(())
}
