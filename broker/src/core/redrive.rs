//! Dead letters go back to where they came from: a copy in the queue that the message was in, for the group that gave up on it and for
//! no other, and a mark at the letter, in one batch. Attempts start anew; the message keeps its id, keys, properties and body.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use tracing::info;
use waybill_protocol::message::{StoredMessage, java_hash, properties, sys_flag};
use waybill_protocol::names::{DLQ_PREFIX, dlq_topic};

use super::Core;
use super::redriven::Marks;
use super::send::{Encoded, check_queue, encode};
use crate::catalog::TopicInfo;
use crate::error::BrokerError;
use crate::limits;
use crate::store::{Admit, Batch, Commit, Entry, QueueKey, StoreError};

/// Which dead letters are to go back.
#[derive(Debug, Clone, Default)]
pub struct Redrive {
    /// The group that gave up on them.
    pub group: String,
    /// Only messages with one of these ids; empty = every message.
    pub ids: HashSet<String>,
    /// Go on at this queue and offset of the dead-letter topic.
    pub from: (u32, u64),
    /// Only those stored until then, milliseconds since 1970, so that what dies again is not moved again and again.
    pub stored_until_ms: Option<i64>,
    /// At most so many.
    pub max: usize,
    /// Only say which it would be.
    pub dry_run: bool,
}

/// One dead letter, and where it went.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Letter {
    /// The id that the producer gave the message.
    pub message_id: String,
    /// Queue of the dead-letter topic.
    pub queue_id: u32,
    /// Offset there.
    pub offset: u64,
    /// When it died, milliseconds since 1970.
    pub died_at: i64,
    /// Where it came from, as far as that is known.
    pub topic: String,
    /// Why it stays where it is; nothing if it goes back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// What a redrive came to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RedriveAnswer {
    /// Those that went back, or would.
    pub moved: Vec<Letter>,
    /// Those that cannot go back and stay.
    pub refused: Vec<Letter>,
    /// Letters looked at.
    pub looked_at: usize,
    /// Where to go on: queue and offset; nothing at the end.
    pub next: Option<(u32, u64)>,
    /// The broker's time, milliseconds since 1970.
    pub now: i64,
}

/// A letter that can go back.
struct Ready {
    letter: Letter,
    message: StoredMessage,
    topic: Arc<TopicInfo>,
}

impl Core {
    /// Moves dead letters back, so many as one request may. What is answered is durable.
    ///
    /// # Errors
    /// [`BrokerError::GroupNotFound`], a full disk, a store that cannot be read or takes no writes.
    pub async fn redrive(&self, redrive: &Redrive) -> Result<RedriveAnswer, BrokerError> {
        self.group(&redrive.group)?;
        let Some(dead) = self.catalog.topic(&dlq_topic(&redrive.group)) else {
            return Ok(RedriveAnswer { now: self.now(), ..RedriveAnswer::default() });
        };
        if !redrive.dry_run {
            self.store.admit(Admit::Append)?;
        }
        let (answer, sent) = {
            // Held from the look to the batch: two redrives do not move the same letter.
            let mut marks = self.redriven.0.lock();
            let mut answer = RedriveAnswer { now: self.now(), ..RedriveAnswer::default() };
            let ready = self.dead_letters_for(redrive, &dead, &marks, &mut answer)?;
            if redrive.dry_run || ready.is_empty() {
                answer.moved = ready.into_iter().map(|ready| ready.letter).collect();
                return Ok(answer);
            }
            let sent = self.back_to_topics(ready, &dead, &mut marks, &mut answer);
            (answer, sent)
        };
        let (commit, arrivals) = sent;
        commit.await?;
        for (topic, queue) in arrivals {
            self.topic_queues(topic).arrived(queue);
        }
        self.metrics.redriven(&redrive.group, answer.moved.len() as u64);
        info!(group = redrive.group, messages = answer.moved.len(), "dead letters went back");
        Ok(answer)
    }

    /// Finds letters that can go back, up to the bounds of one request; those that cannot are among the refused.
    fn dead_letters_for(
        &self,
        redrive: &Redrive,
        dead: &TopicInfo,
        marks: &Marks,
        answer: &mut RedriveAnswer,
    ) -> Result<Vec<Ready>, BrokerError> {
        let (mut ready, mut bytes) = (Vec::new(), 0);
        let most = self.payload_bytes_max().min(limits::REDRIVE_BYTES_MAX);
        let queues = u32::try_from(dead.config.read_queue_nums.max(dead.config.write_queue_nums)).unwrap_or(0);
        for queue in redrive.from.0..queues {
            let key = QueueKey { topic: dead.id, queue };
            let (min, end) = self.store.bounds(key);
            let mut at = if queue == redrive.from.0 { redrive.from.1.max(min) } else { min };
            while at < end {
                let entries = self.store.entries(key, at, limits::REDRIVE_LOOK_MAX)?;
                if entries.is_empty() {
                    break;
                }
                for entry in entries {
                    let full = ready.len() >= redrive.max || answer.looked_at >= limits::REDRIVE_LOOK_MAX;
                    if full || bytes > 0 && bytes + entry.len as usize > most {
                        answer.next = Some((queue, entry.offset));
                        return Ok(ready);
                    }
                    at = entry.offset + 1;
                    answer.looked_at += 1;
                    let too_young = redrive.stored_until_ms.is_some_and(|until| entry.store_time_ms > until);
                    if too_young || marks.has(key, entry.offset) {
                        continue;
                    }
                    let payload = match self.store.read(entry.position) {
                        Err(gone @ (StoreError::NotFound(_) | StoreError::Corrupt { .. })) => {
                            let letter = Letter { queue_id: queue, offset: entry.offset, ..Letter::default() };
                            let letter = letter.refuse(format!("it cannot be read: {gone}"));
                            if redrive.wants(&letter) {
                                answer.refused.push(letter);
                            }
                            continue;
                        }
                        payload => payload?,
                    };
                    bytes += payload.len();
                    match self.judge_letter(&redrive.group, queue, &entry, payload) {
                        Ok(letter) if redrive.wants(&letter.letter) => ready.push(letter),
                        Err(letter) if redrive.wants(&letter) => answer.refused.push(letter),
                        _other => {}
                    }
                }
            }
        }
        Ok(ready)
    }

    /// Whether a letter can go back, and where to.
    fn judge_letter(&self, group: &str, queue: u32, entry: &Entry, mut payload: Bytes) -> Result<Ready, Letter> {
        let mut letter =
            Letter { queue_id: queue, offset: entry.offset, died_at: entry.store_time_ms, ..Letter::default() };
        let message = match StoredMessage::decode(&mut payload) {
            Ok(message) => message,
            Err(error) => return Err(letter.refuse(format!("it is damaged: {error}"))),
        };
        let property = |name: &str| properties::get(&message.properties, name).map(str::to_owned);
        letter.message_id = property(properties::UNIQ_KEY).unwrap_or_default();
        let origin = [properties::REAL_TOPIC, properties::DLQ_ORIGIN_TOPIC, properties::RETRY_TOPIC];
        let Some(origin) = origin.into_iter().find_map(property) else {
            return Err(letter.refuse("it does not say where it came from".to_owned()));
        };
        letter.topic.clone_from(&origin);
        if let Some(other) = origin.strip_prefix(DLQ_PREFIX) {
            return Err(letter.refuse(format!(
                "it died while it was consumed from {origin}, where it still is: redrive group {other}"
            )));
        }
        match self.catalog.topic(&origin) {
            None => Err(letter.refuse(format!("there is no topic {origin} any more"))),
            Some(topic) if topic.config.perm & 2 == 0 => {
                Err(letter.refuse(format!("topic {origin} may not be written")))
            }
            Some(topic) => Ok(Ready { message: back(message, group, &origin), letter, topic }),
        }
    }

    /// Stores copies of the letters, marks the letters, and hands the batch over. Answers the queues that get messages.
    fn back_to_topics(
        &self,
        ready: Vec<Ready>,
        dead: &TopicInfo,
        marks: &mut Marks,
        answer: &mut RedriveAnswer,
    ) -> (Commit, BTreeSet<(u32, u32)>) {
        let now = self.now();
        let mut by_queue: BTreeMap<(u32, u32), Vec<(Letter, Encoded)>> = BTreeMap::new();
        let mut topics: HashMap<u32, Arc<TopicInfo>> = HashMap::new();
        for Ready { letter, mut message, topic } in ready {
            let queue = self.queue_for(&message, &topic);
            message.queue_id = queue.cast_signed();
            message.store_timestamp = now;
            message.store_host = self.store_host;
            match encode(&message) {
                Ok(encoded) => by_queue.entry((topic.id, queue)).or_default().push((letter, encoded)),
                Err(error) => answer.refused.push(letter.refuse(error.to_string())),
            }
            topics.insert(topic.id, topic);
        }
        let counters: Vec<_> =
            by_queue.keys().map(|(topic, queue)| self.topic_queues(*topic).next_offset(*queue, &self.store)).collect();
        let mut batch = Batch::new();
        let mut arrivals = BTreeSet::new();
        let mut moved: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        // All of them until the batch is handed over; they are in the order of topic and queue, which is the order everywhere.
        let mut guards = Vec::with_capacity(counters.len());
        for (counter, ((topic, queue), letters)) in counters.iter().zip(by_queue) {
            let mut next = counter.lock();
            // The topic may be another one since the look, or have fewer queues.
            let name = topics.get(&topic).map(|topic| topic.config.topic_name.as_str()).unwrap_or_default();
            let now = self.catalog.topic(name).filter(|now| now.id == topic);
            for (letter, encoded) in letters {
                let refusal = match &now {
                    None => Some(format!("there is no topic {name} any more")),
                    Some(now) => check_queue(now, queue).err().map(|error| error.to_string()),
                };
                if let Some(refusal) = refusal {
                    answer.refused.push(letter.refuse(refusal));
                    continue;
                }
                batch.append(QueueKey { topic, queue }, *next, encoded.meta, &encoded.payload);
                *next += 1;
                arrivals.insert((topic, queue));
                moved.entry(letter.queue_id).or_default().push(letter.offset);
                answer.moved.push(letter);
            }
            guards.push(next);
        }
        for (queue, offsets) in moved {
            let key = QueueKey { topic: dead.id, queue };
            marks.mark(key, self.store.bounds(key).0, &offsets, &mut batch);
        }
        (self.store.submit(batch), arrivals)
    }

    /// The queue that the message was in, if the topic has it still; else that of its message group, or any.
    fn queue_for(&self, message: &StoredMessage, topic: &TopicInfo) -> u32 {
        let queues = u32::try_from(topic.config.write_queue_nums).unwrap_or(0).max(1);
        let was = properties::get(&message.properties, properties::REAL_QID).and_then(|queue| queue.parse().ok());
        let group = properties::get(&message.properties, properties::SHARDING_KEY);
        match (was.filter(|queue| *queue < queues), group) {
            (Some(queue), _) => queue,
            (None, Some(group)) => java_hash(group).cast_unsigned() % queues,
            (None, None) => self.topic_queues(topic.id).take_turn(queues),
        }
    }
}

impl Redrive {
    fn wants(&self, letter: &Letter) -> bool {
        self.ids.is_empty() || self.ids.contains(&letter.message_id)
    }
}

impl Letter {
    fn refuse(mut self, reason: String) -> Self {
        self.refused = Some(reason);
        self
    }
}

/// A dead letter as the message that it was, for this group only.
fn back(mut message: StoredMessage, group: &str, origin: &str) -> StoredMessage {
    origin.clone_into(&mut message.topic);
    for name in [
        properties::REAL_TOPIC,
        properties::DLQ_ORIGIN_TOPIC,
        properties::DLQ_ORIGIN_MESSAGE_ID,
        properties::RETRY_TOPIC,
        properties::MAX_RECONSUME_TIMES,
    ] {
        properties::remove(&mut message.properties, name);
    }
    properties::set(&mut message.properties, properties::ORIGIN_GROUP, group);
    message.sys_flag |= sys_flag::FOR_ONE_GROUP;
    message.reconsume_times = 0;
    message
}
