//! Giving messages out, and waiting for them.

mod notification;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::MappedMutexGuard;
use tokio_util::sync::CancellationToken;
use waybill_protocol::message::{Delivery, StoredMessage, java_hash, patch_delivery};
use waybill_protocol::names::RETRY_PREFIX;

use super::dead_letters::{Buried, DeadLetter};
use super::filter::Filter;
use super::source::Messages;
use super::wake::{For, Waiting};
use super::{Core, GroupTopic};
use crate::catalog::{GroupInfo, TopicInfo};
use crate::error::BrokerError;
use crate::lease::{Ledger, PopArgs, Popped, schema};
use crate::limits;
use crate::store::{Admit, Batch, Entry};

pub use notification::Notice;

/// Messages examined in one pop before others get their turn at the ledger.
const SCAN_MAX: usize = 800;

/// A request for messages.
#[derive(Debug, Clone)]
pub struct Pop {
    /// Consumer group.
    pub group: String,
    /// Topic.
    pub topic: String,
    /// One queue, or all for a negative number.
    pub queue_id: i32,
    /// Messages wanted at most, 1 to 32.
    pub max: usize,
    /// Invisible duration in milliseconds.
    pub invisible_ms: i64,
    /// How long to wait for a message, milliseconds; 0 or less = not at all.
    pub poll_ms: i64,
    /// When the client asked, milliseconds since 1970.
    pub born_ms: i64,
    /// `TAG` or absent.
    pub expression_type: Option<String>,
    /// Tags separated by `||`; absent or `*` = every message.
    pub expression: Option<String>,
    /// The client that will hold the messages, if it said who it is.
    pub client_id: Option<String>,
    /// Names this request: the same name again by the same client is given what the first was, as the same delivery.
    pub attempt_id: Option<String>,
    /// All topics that the client subscribes to, sorted and joined by commas, if its sidecar says so.
    pub subscribed_topics: Option<String>,
}

/// One message that was given out.
#[derive(Debug, Clone)]
pub struct Delivered {
    /// Queue it is in.
    pub queue: u32,
    /// Offset in that queue.
    pub offset: u64,
}

/// What a pop gave out. The leases are durable.
#[derive(Debug, Clone)]
pub struct PopAnswer {
    /// Pop time of all of them, milliseconds since 1970.
    pub pop_time_ms: i64,
    /// Invisible duration of all of them, counted from the pop time.
    pub invisible_ms: i64,
    /// How much more could be had.
    pub rest: u64,
    /// The messages, by queue and offset in the order of `body`.
    pub messages: Vec<Delivered>,
    /// Their encodings, one after the other.
    pub body: Bytes,
}

/// A pop whose names are resolved.
pub(super) struct Asked {
    pub(super) group: Arc<GroupInfo>,
    pub(super) topic: Arc<TopicInfo>,
    queues: Range<u32>,
    pub(super) filter: Filter,
    pub(super) consumer: Arc<GroupTopic>,
}

impl Asked {
    fn open_ledger(&self) -> Result<MappedMutexGuard<'_, Ledger>, BrokerError> {
        let gone = || BrokerError::TopicNotFound(self.topic.config.topic_name.clone());
        self.consumer.open_ledger().ok_or_else(gone)
    }
}

enum Attempt {
    Found {
        popped: Popped,
        commit: Buried,
        payloads: Vec<(Entry, Bytes)>,
    },
    /// Nothing to give out, but messages without attempts left went to the dead-letter topic.
    OnlyDead(Buried),
    /// The scan ended before anything was found; there may be more.
    ScanOn,
    Nothing {
        next_deadline_ms: Option<i64>,
    },
}

impl Core {
    /// Gives messages out, waiting up to `poll_ms` for the first; ends early when `gone` is cancelled.
    ///
    /// # Errors
    /// [`BrokerError::PollingTimeout`] if nothing came, [`BrokerError::PollingFull`] if too many wait, and everything that is
    /// wrong with the request.
    pub async fn pop(&self, pop: &Pop, gone: &CancellationToken) -> Result<PopAnswer, BrokerError> {
        let poll_end = pop.born_ms.saturating_add(pop.poll_ms.max(0));
        if self.now() > poll_end.saturating_add(limits::POP_LATE_MS) {
            return Err(BrokerError::PollingTimeout);
        }
        let mut asked = self.resolve(pop).await?;
        self.note_subscription(pop, &asked);
        if let Some(answer) = self.take_until_nothing(pop, &asked, gone).await?.0 {
            return Ok(answer);
        }
        let wait_end = poll_end - limits::POLL_EARLY_MS;
        if pop.poll_ms <= 0 || self.now() >= wait_end {
            return Err(BrokerError::PollingTimeout);
        }
        let _waiting = self.enter(&asked, For::Messages)?;
        let bell =
            asked.consumer.waiters.bell((asked.queues.len() == 1 && pop.queue_id >= 0).then_some(asked.queues.start));
        loop {
            let rung = bell.notified();
            tokio::pin!(rung);
            rung.as_mut().enable();
            let (answer, next_deadline) = self.take_until_nothing(pop, &asked, gone).await?;
            if let Some(answer) = answer {
                return Ok(answer);
            }
            let now = self.now();
            if now >= wait_end || self.stop.is_cancelled() {
                return Err(BrokerError::PollingTimeout);
            }
            let until = next_deadline.map_or(wait_end, |deadline| deadline.min(wait_end));
            let pause = Duration::from_millis(u64::try_from(until - now).unwrap_or(0).saturating_add(1));
            tokio::select! {
                () = rung => {}
                () = tokio::time::sleep(pause) => {}
                () = gone.cancelled() => return Err(BrokerError::PollingTimeout),
                () = self.stop.cancelled() => return Err(BrokerError::PollingTimeout),
            }
            // Queues may have been added meanwhile, and what rang may be a message in one of them.
            let fresh = self.resolve(pop).await?;
            if !Arc::ptr_eq(&fresh.consumer, &asked.consumer) {
                return Err(BrokerError::PollingTimeout);
            }
            asked = fresh;
        }
    }

    /// How many wait for a group on a topic, for messages or to be told of some.
    pub fn polling(&self, group: &str, topic: &str) -> Result<usize, BrokerError> {
        let (group, topic) = (self.group(group)?, self.topic(topic)?);
        Ok(self.existing_ledger(group.id, topic.id).map_or(0, |consumer| consumer.waiters.waiting()))
    }

    /// A place among those who wait.
    fn enter(&self, asked: &Asked, what: For) -> Result<Waiting, BrokerError> {
        let config = self.config.load();
        let (here, everywhere) = (config.pop_polling_size, config.max_pop_polling_size);
        asked.consumer.waiters.enter(what, &self.polls, here, everywhere).map_err(BrokerError::PollingFull)
    }

    fn may_read(&self) -> Result<(), BrokerError> {
        let config = self.config.load();
        if config.permission() & 4 != 0 {
            return Ok(());
        }
        Err(BrokerError::NoPermission(format!("the broker[{}] pop message is forbidden", config.broker_name)))
    }

    async fn resolve(&self, pop: &Pop) -> Result<Asked, BrokerError> {
        self.may_read()?;
        if pop.max == 0 || pop.max > limits::POP_MAX_MESSAGES {
            return Err(BrokerError::InvalidParameter(format!(
                "maxMsgNums is {}, allowed are 1 to {}",
                pop.max,
                limits::POP_MAX_MESSAGES
            )));
        }
        if !(1..=limits::INVISIBLE_MS_MAX).contains(&pop.invisible_ms) {
            return Err(BrokerError::InvalidParameter(format!(
                "invisibleTime is {} ms, allowed are 1 to {}",
                pop.invisible_ms,
                limits::INVISIBLE_MS_MAX
            )));
        }
        let topic = self.topic(&pop.topic)?;
        if topic.config.perm & 4 == 0 {
            return Err(BrokerError::NoPermission(format!("the topic[{}] peeking message is forbidden", pop.topic)));
        }
        let read_queues = u32::try_from(topic.config.read_queue_nums).unwrap_or(0);
        let queues = match u32::try_from(pop.queue_id) {
            Err(_) => 0..read_queues,
            Ok(queue) if queue < read_queues => queue..queue + 1,
            Ok(queue) => {
                return Err(BrokerError::InvalidParameter(format!(
                    "queueId[{queue}] is illegal, topic:[{}] topicConfig.readQueueNums:[{read_queues}]",
                    pop.topic
                )));
            }
        };
        let group = self.group_for_pop(&pop.group).await?;
        if !group.config.consume_enable {
            return Err(BrokerError::NoPermission(format!("subscription group no permission, {}", pop.group)));
        }
        let filter = Filter::parse(pop.expression_type.as_deref(), pop.expression.as_deref())?;
        let consumer = self.ledger(&group, &topic)?;
        Ok(Asked { group, topic, queues, filter, consumer })
    }

    /// Looks until something is found or there is nothing. With nothing, says when the next lease runs out.
    async fn take_until_nothing(
        &self,
        pop: &Pop,
        asked: &Asked,
        gone: &CancellationToken,
    ) -> Result<(Option<PopAnswer>, Option<i64>), BrokerError> {
        // What was passed over is done for the group, so the next request goes on where this one stops.
        let poll_end = pop.born_ms.saturating_add(pop.poll_ms.max(0));
        let scan_end = poll_end.max(self.now().saturating_add(limits::SCAN_MS_MAX));
        loop {
            match self.attempt(pop, asked)? {
                Attempt::Nothing { next_deadline_ms } => return Ok((None, next_deadline_ms)),
                Attempt::ScanOn if gone.is_cancelled() || self.stop.is_cancelled() || self.now() > scan_end => {
                    return Err(BrokerError::PollingTimeout);
                }
                Attempt::ScanOn => tokio::task::yield_now().await,
                Attempt::OnlyDead(buried) => buried.done().await?,
                Attempt::Found { popped, commit, payloads } => {
                    commit.done().await?;
                    if gone.is_cancelled() {
                        self.release_undelivered(asked, &popped);
                        return Err(BrokerError::PollingTimeout);
                    }
                    if popped.rest > 0 {
                        asked.consumer.waiters.ring_all();
                    }
                    self.metrics.messages_out(
                        &asked.topic.config.topic_name,
                        &asked.group.config.group_name,
                        &payloads,
                    );
                    return Ok((Some(answer(&pop.topic, popped, payloads)?), None));
                }
            }
        }
    }

    fn attempt(&self, pop: &Pop, asked: &Asked) -> Result<Attempt, BrokerError> {
        self.store.admit(Admit::State)?;
        let bytes_max = self.payload_bytes_max().min(limits::POP_MAX_BYTES);
        let mut source = Messages::new(self, asked, bytes_max);
        let mut changes = Vec::new();
        let mut batch = Batch::new();
        let mut ledger = asked.open_ledger()?;
        let now = self.now();
        let args = PopArgs {
            now_ms: now,
            queues: asked.queues.clone(),
            max: pop.max,
            invisible_ms: pop.invisible_ms,
            holder: pop.client_id.as_deref().map_or(0, |client| self.holders.number(client, &mut batch)),
            attempt: pop.attempt_id.as_deref().filter(|id| !id.is_empty()).map_or(0, name_of),
            max_attempts: u32::try_from(asked.group.config.retry_max_times).unwrap_or(0).saturating_add(1),
            in_flight_max: self.in_flight_max(),
            scan_max: SCAN_MAX,
            dead_letter: self.store.admit(Admit::Append).is_ok(),
        };
        let popped = ledger.pop(&args, &mut source, &mut changes);
        let next_deadline_ms = ledger.next_deadline(now, asked.queues.clone());
        if popped.messages.is_empty() && !popped.more {
            // The timer of a poll for one queue says nothing about the others: then every change is worth a look.
            let armed_ms = if pop.queue_id < 0 { next_deadline_ms } else { None };
            asked.consumer.armed_ms.store(armed_ms.unwrap_or(i64::MAX), Ordering::Relaxed);
        }
        let payloads: Vec<_> =
            popped.messages.iter().filter_map(|taken| source.take(taken.queue, taken.offset)).collect();
        if changes.is_empty() {
            if !batch.is_empty() {
                // A holder seen for the first time: its number must not be known in memory only.
                drop(self.store.submit(batch));
            }
            return Ok(if popped.more { Attempt::ScanOn } else { Attempt::Nothing { next_deadline_ms } });
        }
        schema::record(&mut batch, asked.group.id, asked.topic.id, &changes);
        let dead: Vec<_> = popped
            .dead
            .iter()
            .filter_map(|taken| {
                let (entry, payload) = source.take(taken.queue, taken.offset)?;
                Some(DeadLetter { payload, position: entry.position, attempts: taken.attempts })
            })
            .collect();
        let commit = self.bury_and_submit(&asked.group.config.group_name, dead, batch);
        drop(ledger);
        if !popped.messages.is_empty() {
            return Ok(Attempt::Found { popped, commit, payloads });
        }
        if !popped.dead.is_empty() {
            return Ok(Attempt::OnlyDead(commit));
        }
        // Only progress past messages that this subscription does not want: nobody waits for it.
        Ok(if popped.more { Attempt::ScanOn } else { Attempt::Nothing { next_deadline_ms } })
    }

    fn in_flight_max(&self) -> usize {
        match self.config.load().pop_inflight_message_threshold {
            0 => usize::MAX,
            limit => limit,
        }
    }

    /// The client went away while its messages were being leased: they are visible again at once, and nothing is counted.
    fn release_undelivered(&self, asked: &Asked, popped: &Popped) {
        let entries: Vec<_> = popped
            .messages
            .iter()
            .map(|taken| super::ChangeEntry {
                handle: super::HandleRef { queue: taken.queue, offset: taken.offset, pop_time_ms: popped.pop_time_ms },
                invisible_ms: 0,
                by: crate::lease::ChangedBy::Return,
                count: false,
            })
            .collect();
        // Nobody waits for it. If it cannot be written the broker opens the store anew, and the leases end by themselves.
        drop(self.submit_changes(&asked.consumer, &entries));
    }
}

/// A number for the id of an attempt. Two ids of one client with the same number are as unlikely as that they were made twice.
fn name_of(attempt_id: &str) -> u32 {
    java_hash(attempt_id).cast_unsigned().max(1)
}

/// Copies the messages into one body, each with its place and its attempt.
fn answer(topic: &str, popped: Popped, payloads: Vec<(Entry, Bytes)>) -> Result<PopAnswer, BrokerError> {
    // A copy there is one more attempt of the message that it is a copy of.
    let are_copies = topic.starts_with(RETRY_PREFIX);
    let size = payloads.iter().map(|(_, payload)| payload.len()).sum();
    let mut body = BytesMut::with_capacity(size);
    let mut messages = Vec::with_capacity(payloads.len());
    for (taken, (entry, payload)) in popped.messages.iter().zip(&payloads) {
        let start = body.len();
        body.extend_from_slice(payload);
        let mut message = body.split_off(start);
        let earlier = match are_copies {
            true => StoredMessage::decode(&mut payload.clone()).map_or(0, |message| message.reconsume_times),
            false => 0,
        };
        let here = i32::try_from(taken.attempts.saturating_sub(1)).unwrap_or(i32::MAX);
        let reconsume_times = here.saturating_add(earlier);
        let delivery = Delivery {
            queue_id: taken.queue.cast_signed(),
            queue_offset: taken.offset.cast_signed(),
            physical_offset: entry.position.cast_signed(),
            store_timestamp: entry.store_time_ms,
            reconsume_times,
        };
        patch_delivery(&mut message, &delivery).map_err(|error| BrokerError::Internal(error.to_string()))?;
        body.unsplit(message);
        messages.push(Delivered { queue: taken.queue, offset: taken.offset });
    }
    Ok(PopAnswer {
        pop_time_ms: popped.pop_time_ms,
        invisible_ms: popped.invisible_ms,
        rest: popped.rest,
        messages,
        body: body.freeze(),
    })
}
