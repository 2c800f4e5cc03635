//! The rows of the index.
//!
//! ```text
//! Key:   keyspace u8 (0 to 11) · key                                 what users put
//! Value: value
//! Key:   0x10 · topic u32 · queue u32                                the bounds of a queue
//! Value: min offset u64 · next offset u64
//! Key:   0x11 · topic u32 · queue u32 · first offset u64             at most 256 entries of a queue
//! Value: block, see `blocks.rs`
//! Key:   0x12 · base u64                                            the messages of the segment at this position
//! Value: first time i64 · newest time i64 · messages u64
//! Key:   0x13                                                      how many delayed messages wait; holds if the index goes to this position
//! Value: position u64, then, for each topic that has some: topic u32 · messages u64
//! Key:   0xff                                                       how much of the log is in the index
//! Value: version u8 (1) · position u64 · start of the last record u64; version 2, if the log does not start at 0: · its start u64
//! ```
//! Numbers in keys are big-endian, so that their order is that of the numbers; in values little-endian.

use std::collections::HashMap;

use super::facts::Facts;
use super::record::{u32_at, u64_at};
use super::state::Applied;
use super::types::{Keyspace, QueueKey};

const BOUNDS: u8 = 0x10;
const BLOCK: u8 = 0x11;
const SEGMENT: u8 = 0x12;
const WAITING: u8 = 0x13;
const APPLIED: u8 = 0xff;
const VERSION: u8 = 1;
const VERSION_WITH_START: u8 = 2;

/// The key of how much of the log is in the index; the last of all keys.
pub(super) const APPLIED_KEY: &[u8] = &[APPLIED];

/// The key of how many delayed messages wait.
pub(super) const WAITING_KEY: &[u8] = &[WAITING];

pub(super) fn user_key(keyspace: Keyspace, key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 + key.len());
    out.push(keyspace as u8);
    out.extend_from_slice(key);
    out
}

/// The prefix of the bounds of all queues.
pub(super) fn all_bounds() -> Vec<u8> {
    vec![BOUNDS]
}

/// The prefixes of everything about the queues of a topic.
pub(super) fn topic_prefixes(topic: u32) -> [Vec<u8>; 2] {
    [BOUNDS, BLOCK].map(|kind| [&[kind], &topic.to_be_bytes()[..]].concat())
}

fn queue_key(kind: u8, queue: QueueKey) -> Vec<u8> {
    [&[kind], &queue.topic.to_be_bytes()[..], &queue.queue.to_be_bytes()[..]].concat()
}

pub(super) fn bounds_key(queue: QueueKey) -> Vec<u8> {
    queue_key(BOUNDS, queue)
}

pub(super) fn bounds_value(min: u64, next: u64) -> Vec<u8> {
    [min.to_le_bytes(), next.to_le_bytes()].concat()
}

pub(super) fn decode_bounds(key: &[u8], value: &[u8]) -> Option<(QueueKey, u64, u64)> {
    let (topic, rest) = key.strip_prefix(&[BOUNDS])?.split_first_chunk()?;
    let queue = QueueKey { topic: u32::from_be_bytes(*topic), queue: u32::from_be_bytes(rest.try_into().ok()?) };
    Some((queue, u64_at(value, 0)?, u64_at(value, 8)?))
}

/// The prefix of the blocks of a queue.
pub(super) fn block_prefix(queue: QueueKey) -> Vec<u8> {
    queue_key(BLOCK, queue)
}

pub(super) fn block_key(queue: QueueKey, first: u64) -> Vec<u8> {
    let mut key = block_prefix(queue);
    key.extend_from_slice(&first.to_be_bytes());
    key
}

/// The first offset of a block, from its key.
pub(super) fn block_first(key: &[u8]) -> Option<u64> {
    key.last_chunk().copied().map(u64::from_be_bytes)
}

/// The prefix of the facts about all segments.
pub(super) fn all_segments() -> Vec<u8> {
    vec![SEGMENT]
}

pub(super) fn segment_key(base: u64) -> Vec<u8> {
    [&[SEGMENT], &base.to_be_bytes()[..]].concat()
}

pub(super) fn segment_value(facts: Facts) -> Vec<u8> {
    [facts.first_ms.to_le_bytes(), facts.newest_ms.to_le_bytes(), facts.messages.to_le_bytes()].concat()
}

pub(super) fn decode_segment(key: &[u8], value: &[u8]) -> Option<(u64, Facts)> {
    let base = u64::from_be_bytes(key.strip_prefix(&[SEGMENT])?.try_into().ok()?);
    let facts = Facts {
        first_ms: u64_at(value, 0)?.cast_signed(),
        newest_ms: u64_at(value, 8)?.cast_signed(),
        messages: u64_at(value, 16)?,
    };
    Some((base, facts))
}

/// `position` is how much of the log is in the index.
pub(super) fn waiting_value(position: u64, by_topic: &[(u32, u64)]) -> Vec<u8> {
    let mut value = position.to_le_bytes().to_vec();
    for (topic, messages) in by_topic {
        value.extend_from_slice(&topic.to_le_bytes());
        value.extend_from_slice(&messages.to_le_bytes());
    }
    value
}

/// How many delayed messages wait, by topic, in an index that goes to `position`. `None` if nobody wrote that, or for another
/// position: an older version did not.
pub(super) fn decode_waiting(value: &[u8], position: u64) -> Option<HashMap<u32, u64>> {
    let (written, rows) = value.split_first_chunk()?;
    let rows = rows.chunks(12).map(|row| Some((u32_at(row, 0)?, u64_at(row, 4)?)));
    (u64::from_le_bytes(*written) == position).then(|| rows.collect())?
}

/// `start` is where the log starts.
pub(super) fn applied_value(applied: Applied, start: u64) -> Vec<u8> {
    let (position, last_record) = (applied.position.to_le_bytes(), applied.last_record.to_le_bytes());
    match start {
        0 => [&[VERSION], &position[..], &last_record].concat(),
        start => [&[VERSION_WITH_START], &position[..], &last_record, &start.to_le_bytes()].concat(),
    }
}

/// How much of the log is in the index, and where the log starts.
pub(super) fn decode_applied(value: &[u8]) -> Option<(Applied, u64)> {
    let start = match *value.first()? {
        VERSION => 0,
        VERSION_WITH_START => u64_at(value, 17)?,
        _ => return None,
    };
    Some((Applied { position: u64_at(value, 1)?, last_record: u64_at(value, 9)? }, start))
}
