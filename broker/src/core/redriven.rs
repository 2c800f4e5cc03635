//! Which dead letters went back to where they came from. They stay in the dead-letter topic, and must not go back twice.
//!
//! A row of the keyspace `Redriven` is a block of a queue: key topic u32 · queue u32 · number of the block u64, big-endian; value a
//! bit for each offset of the block, the lowest first.

use std::collections::{BTreeMap, HashMap, HashSet};

use parking_lot::Mutex;

use crate::error::BrokerError;
use crate::store::{Batch, Keyspace, QueueKey, Store};

/// Offsets of a block.
const BLOCK: u64 = 1_024;
const BYTES: usize = BLOCK as usize / 8;

type Bits = [u8; BYTES];
/// The blocks of a topic, by queue and number.
type Blocks = BTreeMap<(u32, u64), Bits>;

/// All marks of a broker, by topic. Locked after the catalog's writer and before the counters of queues.
#[derive(Debug, Default)]
pub(super) struct Redriven(pub(super) Mutex<Marks>);

/// See [`Redriven`].
#[derive(Debug, Default)]
pub(super) struct Marks {
    topics: HashMap<u32, Blocks>,
}

impl Redriven {
    /// Reads the marks of the topics that are there, and removes the rows of those that are not.
    pub(super) fn load(store: &Store, topics: &HashSet<u32>) -> Result<Self, BrokerError> {
        let (mut marks, mut gone) = (Marks::default(), Vec::new());
        for (key, value) in store.scan(Keyspace::Redriven, &[])? {
            match (read_key(&key), Bits::try_from(value.as_ref())) {
                (Some((queue, block)), Ok(bits)) if topics.contains(&queue.topic) => {
                    marks.topics.entry(queue.topic).or_default().insert((queue.queue, block), bits);
                }
                _gone_or_damaged => gone.push(key),
            }
        }
        store.clean_up(Keyspace::Redriven, gone);
        Ok(Self(Mutex::new(marks)))
    }
}

impl Marks {
    /// Whether the letter at this offset went back.
    pub(super) fn has(&self, queue: QueueKey, offset: u64) -> bool {
        let bits = self.topics.get(&queue.topic).and_then(|blocks| blocks.get(&(queue.queue, offset / BLOCK)));
        bits.is_some_and(|bits| bits.get(byte_of(offset)).is_some_and(|byte| byte & bit_of(offset) != 0))
    }

    /// How many of the letters from `min` on went back.
    pub(super) fn count(&self, queue: QueueKey, min: u64) -> u64 {
        let Some(blocks) = self.topics.get(&queue.topic) else { return 0 };
        let all = blocks.range((queue.queue, min / BLOCK)..=(queue.queue, u64::MAX));
        let ones: u64 = all.map(|(_, bits)| bits.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>()).sum();
        let before = (min / BLOCK * BLOCK..min).filter(|offset| self.has(queue, *offset)).count();
        ones.saturating_sub(before as u64)
    }

    /// Marks letters of one queue, whose oldest is at `min`; what was marked before that is forgotten.
    pub(super) fn mark(&mut self, queue: QueueKey, min: u64, offsets: &[u64], batch: &mut Batch) {
        let blocks = self.topics.entry(queue.topic).or_default();
        let old: Vec<_> =
            blocks.range((queue.queue, 0)..(queue.queue, min / BLOCK)).map(|((_, block), _)| *block).collect();
        for block in old {
            blocks.remove(&(queue.queue, block));
            batch.delete(Keyspace::Redriven, &key(queue, block));
        }
        let mut changed = BTreeMap::new();
        for offset in offsets {
            let bits = blocks.entry((queue.queue, offset / BLOCK)).or_insert([0; BYTES]);
            if let Some(byte) = bits.get_mut(byte_of(*offset)) {
                *byte |= bit_of(*offset);
            }
            changed.insert(offset / BLOCK, *bits);
        }
        for (block, bits) in changed {
            batch.put(Keyspace::Redriven, &key(queue, block), &bits);
        }
    }

    /// Forgets a topic.
    pub(super) fn forget(&mut self, topic: u32, batch: &mut Batch) {
        for ((queue, block), _) in self.topics.remove(&topic).unwrap_or_default() {
            batch.delete(Keyspace::Redriven, &key(QueueKey { topic, queue }, block));
        }
    }
}

fn byte_of(offset: u64) -> usize {
    (offset % BLOCK / 8) as usize
}

fn bit_of(offset: u64) -> u8 {
    1 << (offset % 8)
}

fn key(queue: QueueKey, block: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..4].copy_from_slice(&queue.topic.to_be_bytes());
    key[4..8].copy_from_slice(&queue.queue.to_be_bytes());
    key[8..].copy_from_slice(&block.to_be_bytes());
    key
}

fn read_key(key: &[u8]) -> Option<(QueueKey, u64)> {
    let (topic, rest) = key.split_first_chunk()?;
    let (queue, block) = rest.split_first_chunk()?;
    let queue = QueueKey { topic: u32::from_be_bytes(*topic), queue: u32::from_be_bytes(*queue) };
    Some((queue, u64::from_be_bytes(block.try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn marks_are_a_set(offsets in proptest::collection::vec(0_u64..5_000, 0..60), min in 0_u64..5_000) {
            let queue = QueueKey { topic: 7, queue: 3 };
            let (mut marks, mut batch) = (Marks::default(), Batch::new());
            for some in offsets.chunks(5) {
                marks.mark(queue, 0, some, &mut batch);
            }
            let set: BTreeSet<u64> = offsets.iter().copied().collect();
            prop_assert!((0..5_000).all(|offset| marks.has(queue, offset) == set.contains(&offset)));
            prop_assert_eq!(marks.count(queue, min), set.range(min..).count() as u64);
            prop_assert_eq!(marks.count(QueueKey { topic: 7, queue: 2 }, 0), 0);
            prop_assert_eq!(marks.count(QueueKey { topic: 7, queue: 4 }, 0), 0);
            marks.mark(queue, min, &[], &mut batch);
            prop_assert_eq!(marks.count(queue, min), set.range(min..).count() as u64);
            prop_assert!(set.range(min..).all(|offset| marks.has(queue, *offset)));
        }

        #[test]
        fn keys_are_read_back(topic: u32, queue: u32, block: u64, other: Vec<u8>) {
            let queue = QueueKey { topic, queue };
            prop_assert_eq!(read_key(&key(queue, block)), Some((queue, block)));
            prop_assert_eq!(read_key(&other).is_some(), other.len() == 16);
        }
    }
}
