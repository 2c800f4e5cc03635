//! Finding messages by id, by key or by their place in the log.
//!
//! There is no index of ids and keys, which every send would pay for. The queues are searched between two store times, in the order of
//! these times, and an id of the official clients says when it was made. One search looks at so many messages and then says how far it
//! came, so that the next one can go on there.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use waybill_protocol::message::{
    Delivery, StoredMessage, offset_msg_id, offset_of_msg_id, patch_delivery, peek_properties, properties,
};

use super::Core;
use crate::catalog::TopicInfo;
use crate::error::BrokerError;
use crate::limits;
use crate::store::{Entry, QueueKey, StoreError};

/// Entries of a queue that are fetched at a time.
const CHUNK: u64 = 256;
/// Messages that are looked at before others get their turn.
const TURN: usize = 64;
/// What ids of the official clients count their seconds from: 2021-01-01T00:00:00 UTC, milliseconds since 1970.
const ID_EPOCH_MS: i64 = 1_609_459_200_000;
/// How much a client's clock may be ahead of the broker's, milliseconds: a message is looked for from so long before the time in its id.
const CLOCKS_APART_MS: i64 = 10 * 60_000;

/// Which messages are looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// Those with this id: the producer's, or the broker's, which says where the message lies.
    Id(String),
    /// Those with this word among their keys.
    Key(String),
}

/// A search.
#[derive(Debug, Clone)]
pub struct Query {
    /// The topic.
    pub topic: String,
    /// What is looked for.
    pub wanted: Wanted,
    /// Stored then or later, milliseconds since 1970.
    pub since_ms: i64,
    /// Stored then or earlier, milliseconds since 1970.
    pub until_ms: i64,
    /// At most so many.
    pub max: usize,
}

/// A message that was found.
#[derive(Debug, Clone)]
pub struct Match {
    /// The queue it is in.
    pub queue: u32,
    /// Its place there.
    pub entry: Entry,
    /// As it is stored.
    pub payload: Bytes,
}

/// What a search came to.
#[derive(Debug, Clone, Default)]
pub struct QueryAnswer {
    /// What was found, in the order of the search.
    pub matches: Vec<Match>,
    /// Messages looked at.
    pub looked_at: usize,
    /// From the oldest to the newest; else the other way round.
    pub oldest_first: bool,
    /// Store time of the oldest message that was not left out, milliseconds since 1970: later than asked if the id says so.
    pub since_ms: i64,
    /// The bound of one search ended it here: everything stored before (after, if the newest came first) was looked at.
    pub cut_at: Option<i64>,
}

impl Core {
    /// Searches a topic. An id that says when it was made is looked for from then on, the oldest first; anything else from the newest to
    /// the oldest.
    ///
    /// # Errors
    /// [`BrokerError::TopicNotFound`], a store that cannot be read.
    pub async fn query(&self, query: &Query) -> Result<QueryAnswer, BrokerError> {
        self.search(query, limits::QUERY_LOOK_MAX).await
    }

    /// As [`Core::query`]; looks at `look_max` messages at most.
    pub(super) async fn search(&self, query: &Query, look_max: usize) -> Result<QueryAnswer, BrokerError> {
        let topic = self.topic(&query.topic)?;
        if let Wanted::Id(id) = &query.wanted
            && let Some((_, found)) = self.by_message_id(id).await?.filter(|(found, _)| found.id == topic.id)
        {
            return Ok(QueryAnswer {
                matches: vec![found],
                looked_at: 1,
                since_ms: query.since_ms,
                ..Default::default()
            });
        }
        let made_ms = match &query.wanted {
            Wanted::Id(id) => time_of_id(id),
            Wanted::Key(_) => None,
        };
        let since_ms = made_ms.map_or(query.since_ms, |made_ms| query.since_ms.max(made_ms - CLOCKS_APART_MS));
        let mut answer = QueryAnswer { oldest_first: made_ms.is_some(), since_ms, ..QueryAnswer::default() };
        let mut cursors = Vec::new();
        for queue in 0..u32::try_from(topic.config.read_queue_nums.max(topic.config.write_queue_nums)).unwrap_or(0) {
            let key = QueueKey { topic: topic.id, queue };
            let (low, high) = (self.offset_at(key, since_ms)?, self.offset_at(key, query.until_ms.saturating_add(1))?);
            cursors.push(Cursor { key, low, high, oldest_first: answer.oldest_first, chunk: Vec::new() });
        }
        let mut bytes = 0;
        while let Some((queue, entry)) = self.next_of(&mut cursors)? {
            if answer.matches.len() >= query.max {
                break;
            }
            if answer.looked_at >= look_max || bytes >= limits::QUERY_BYTES_MAX {
                answer.cut_at = Some(entry.store_time_ms);
                break;
            }
            answer.looked_at += 1;
            bytes += entry.len as usize;
            if answer.looked_at.is_multiple_of(TURN) {
                tokio::task::yield_now().await;
            }
            // Retention may take a message between the look at its entry and at itself, and a damaged one is no hit.
            let Ok(payload) = self.store.read(entry.position) else { continue };
            if query.wanted.is(peek_properties(&payload).unwrap_or_default()) {
                answer.matches.push(Match { queue, entry, payload });
            }
        }
        Ok(answer)
    }

    /// The next entry of all queues by store time.
    fn next_of(&self, cursors: &mut [Cursor]) -> Result<Option<(u32, Entry)>, StoreError> {
        let mut best: Option<(i64, usize)> = None;
        for (index, cursor) in cursors.iter_mut().enumerate() {
            let Some(entry) = cursor.head(self)? else { continue };
            let time = if cursor.oldest_first { entry.store_time_ms } else { -entry.store_time_ms };
            if best.is_none_or(|(least, _)| time < least) {
                best = Some((time, index));
            }
        }
        let cursor = best.and_then(|(_, index)| cursors.get_mut(index));
        Ok(cursor.and_then(|cursor| cursor.take().map(|entry| (cursor.key.queue, entry))))
    }

    /// The message that an id of this broker names, with its topic; nothing if it names none that is in a queue.
    async fn by_message_id(&self, id: &str) -> Result<Option<(Arc<TopicInfo>, Match)>, BrokerError> {
        let Some(position) = offset_of_msg_id(id) else { return Ok(None) };
        // An id of an old client has as many digits.
        if !offset_msg_id(self.store_host, position).eq_ignore_ascii_case(id) {
            return Ok(None);
        }
        self.at_position(position.cast_unsigned()).await
    }

    /// The message at a position of the log, with its topic; nothing if there is none, or none that is in a queue.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub async fn at_position(&self, position: u64) -> Result<Option<(Arc<TopicInfo>, Match)>, BrokerError> {
        let Ok(payload) = self.store.read(position) else { return Ok(None) };
        let Ok(message) = StoredMessage::decode(&mut payload.clone()) else { return Ok(None) };
        let Some(topic) = self.catalog.topic(&message.topic) else { return Ok(None) };
        let queues = u32::try_from(topic.config.read_queue_nums.max(topic.config.write_queue_nums)).unwrap_or(0);
        let sent_to = message.queue_id.cast_unsigned();
        // What was delayed is in its queue since it was due, which may be days and many other messages later.
        let due_ms = properties::get(&message.properties, properties::TIMER_OUT_MS).and_then(|due| due.parse().ok());
        let due_ms = due_ms.filter(|due_ms| *due_ms <= self.now());
        let since_ms = due_ms.map_or(message.store_timestamp, |due_ms| message.store_timestamp.max(due_ms));
        let mut budget = limits::QUERY_ENTRIES_MAX;
        for queue in std::iter::once(sent_to).chain((0..queues).filter(|queue| *queue != sent_to)) {
            let key = QueueKey { topic: topic.id, queue };
            // What was held before it came into its queue has a later time there.
            let mut at = self.offset_at(key, since_ms)?;
            while budget > 0 {
                let entries = self.store.entries(key, at, CHUNK as usize)?;
                let Some(last) = entries.last() else { break };
                at = last.offset + 1;
                budget = budget.saturating_sub(entries.len());
                tokio::task::yield_now().await;
                if let Some(entry) = entries.into_iter().find(|entry| entry.position == position) {
                    return Ok(Some((topic, Match { queue, entry, payload })));
                }
            }
        }
        Ok(None)
    }
}

impl Wanted {
    /// Whether it is a message with these properties, or the one whose place is in the broker's id.
    pub(super) fn names(&self, payload: &[u8], message_id: impl FnOnce() -> String) -> bool {
        self.is(peek_properties(payload).unwrap_or_default())
            || matches!(self, Self::Id(id) if message_id().eq_ignore_ascii_case(id))
    }

    fn is(&self, raw: &str) -> bool {
        match self {
            Self::Id(id) => properties::get(raw, properties::UNIQ_KEY) == Some(id),
            Self::Key(key) => {
                properties::get(raw, properties::KEYS).is_some_and(|keys| keys.split(' ').any(|word| word == key))
            }
        }
    }
}

impl Match {
    /// The message as a consumer gets it, with its place.
    ///
    /// # Errors
    /// A stored message that is damaged.
    pub fn delivered(&self) -> Result<Bytes, BrokerError> {
        let damaged = |error: waybill_protocol::message::MessageError| BrokerError::Internal(error.to_string());
        let reconsume_times = StoredMessage::decode(&mut self.payload.clone()).map_err(damaged)?.reconsume_times;
        let mut message = BytesMut::from(&self.payload[..]);
        let delivery = Delivery {
            queue_id: self.queue.cast_signed(),
            queue_offset: self.entry.offset.cast_signed(),
            physical_offset: self.entry.position.cast_signed(),
            store_timestamp: self.entry.store_time_ms,
            reconsume_times,
        };
        patch_delivery(&mut message, &delivery).map_err(damaged)?;
        Ok(message.freeze())
    }
}

/// The part of one queue that is not looked at yet.
struct Cursor {
    key: QueueKey,
    low: u64,
    high: u64,
    oldest_first: bool,
    /// The next ones, the first of them last.
    chunk: Vec<Entry>,
}

impl Cursor {
    fn head(&mut self, core: &Core) -> Result<Option<Entry>, StoreError> {
        while self.chunk.is_empty() && self.low < self.high {
            let size = CHUNK.min(self.high - self.low);
            let from = if self.oldest_first { self.low } else { self.high - size };
            let (low, high) = (self.low, self.high);
            let mut entries = core.store.entries(self.key, from, size as usize)?;
            entries.retain(|entry| (low..high).contains(&entry.offset));
            if self.oldest_first {
                self.low = from + size;
                entries.reverse();
            } else {
                self.high = from;
            }
            self.chunk = entries;
        }
        Ok(self.chunk.last().copied())
    }

    fn take(&mut self) -> Option<Entry> {
        self.chunk.pop()
    }
}

/// When an id of the official clients was made, milliseconds since 1970: `01`, address, process, seconds, sequence in hexadecimal digits.
fn time_of_id(id: &str) -> Option<i64> {
    let is_one = id.len() == 34 && id.starts_with("01") && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let seconds = is_one.then(|| id.get(18..26)).flatten()?;
    Some(ID_EPOCH_MS + i64::from(u32::from_str_radix(seconds, 16).ok()?) * 1_000)
}
