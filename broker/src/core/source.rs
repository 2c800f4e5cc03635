//! What a ledger asks about messages, answered from the store.

use std::collections::HashMap;

use bytes::Bytes;
use tracing::error;
use waybill_protocol::message::{java_hash, peek_properties, peek_sys_flag, properties, sys_flag};

use super::Core;
use super::filter::Filter;
use super::left_behind::LeftBehind;
use super::pop::Asked;
use crate::lease::{Source, Verdict};
use crate::limits;
use crate::metrics::Metrics;
use crate::store::{Entry, QueueKey, Store, StoreError};

/// Index entries fetched at a time; a pop takes at most as many messages.
const CHUNK: usize = limits::POP_MAX_MESSAGES;

/// Messages of one topic as one pop sees them.
pub(super) struct Messages<'a> {
    store: &'a Store,
    left_behind: &'a LeftBehind,
    metrics: &'a Metrics,
    topic: u32,
    group: &'a str,
    filter: &'a Filter,
    chunks: HashMap<u32, Vec<Entry>>,
    found: HashMap<(u32, u64), (Entry, Bytes)>,
    bytes: usize,
    /// See [`limits::POP_MAX_BYTES`]; less if a batch of dead letters has no room for so many.
    bytes_max: usize,
}

impl<'a> Messages<'a> {
    pub(super) fn new(core: &'a Core, asked: &'a Asked, bytes_max: usize) -> Self {
        let Core { store, left_behind, metrics, .. } = core;
        let Asked { group, topic, filter, .. } = asked;
        let (topic, group) = (topic.id, group.config.group_name.as_str());
        let (chunks, found) = (HashMap::new(), HashMap::new());
        Self { store, left_behind, metrics, topic, group, filter, chunks, found, bytes: 0, bytes_max }
    }

    /// The entry and the payload of a message that was found good; `None` for any other.
    pub(super) fn take(&mut self, queue: u32, offset: u64) -> Option<(Entry, Bytes)> {
        self.found.remove(&(queue, offset))
    }

    fn entry(&mut self, queue: u32, offset: u64) -> Result<Option<Entry>, StoreError> {
        let chunk = self.chunks.entry(queue).or_default();
        if let Some(entry) = find(chunk, offset) {
            return Ok(Some(entry));
        }
        *chunk = self.store.entries(QueueKey { topic: self.topic, queue }, offset, CHUNK)?;
        Ok(find(chunk, offset))
    }

    fn judge(&mut self, queue: u32, offset: u64) -> Result<Verdict, StoreError> {
        let Some(entry) = self.entry(queue, offset)? else { return Ok(Verdict::Gone) };
        let by_hash = self.filter.by_hash(entry.tag_hash);
        if by_hash == Some(false) {
            return Ok(Verdict::Filtered);
        }
        let len = entry.len as usize;
        if self.bytes > 0 && self.bytes + len > self.bytes_max {
            return Ok(Verdict::Stop);
        }
        // Read before the ledger decides: what it gives out is known to be readable and whole.
        let payload = self.store.read(entry.position)?;
        if by_hash.is_none() && !peek_properties(&payload).is_ok_and(|raw| self.filter.matches(raw)) {
            return Ok(Verdict::Filtered);
        }
        if peek_sys_flag(&payload) & sys_flag::FOR_ONE_GROUP != 0 && !is_for(self.group, &payload) {
            return Ok(Verdict::Filtered);
        }
        self.bytes += len;
        self.found.insert((queue, offset), (entry, payload));
        Ok(Verdict::Deliver)
    }
}

/// Whether a message that is for one group is for this one.
fn is_for(group: &str, payload: &Bytes) -> bool {
    peek_properties(payload).is_ok_and(|raw| properties::get(raw, properties::ORIGIN_GROUP) == Some(group))
}

fn find(chunk: &[Entry], offset: u64) -> Option<Entry> {
    let index = chunk.binary_search_by_key(&offset, |entry| entry.offset).ok()?;
    chunk.get(index).copied()
}

impl Source for Messages<'_> {
    fn bounds(&self, queue: u32) -> (u64, u64) {
        self.left_behind.bounds(QueueKey { topic: self.topic, queue }, self.store)
    }

    /// A new group begins with the oldest message that stays: it misses none, and where it begins does not depend on chance.
    fn start(&mut self, queue: u32) -> u64 {
        self.bounds(queue).0
    }

    fn examine(&mut self, queue: u32, offset: u64) -> Verdict {
        match self.judge(queue, offset) {
            Ok(verdict) => verdict,
            Err(StoreError::NotFound(_)) => Verdict::Gone,
            Err(damage @ StoreError::Corrupt { .. }) => {
                // Skipping it is the only way on for the queue; the counter and the line say that it happened.
                self.metrics.damaged_message();
                error!(topic = self.topic, queue, offset, error = %damage, "a stored message is damaged and is skipped");
                Verdict::Gone
            }
            Err(error) => {
                error!(topic = self.topic, queue, offset, %error, "a message could not be read");
                Verdict::Stop
            }
        }
    }

    fn message_group(&mut self, queue: u32, offset: u64) -> Option<u32> {
        let group_of = |payload: &Bytes| {
            let raw = peek_properties(payload).ok()?;
            properties::get(raw, properties::SHARDING_KEY).map(|group| java_hash(group).cast_unsigned())
        };
        if let Some((_, payload)) = self.found.get(&(queue, offset)) {
            return group_of(payload);
        }
        let entry = self.entry(queue, offset).ok().flatten()?;
        group_of(&self.store.read(entry.position).ok()?)
    }
}
