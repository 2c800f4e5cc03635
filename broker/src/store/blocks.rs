//! Many entries of a queue in few bytes.
//!
//! ```text
//! Block: per entry, varints: offset − (last offset + 1) · position − (last position + last len) · len · time − last time (zigzag) ·
//!        then tag_hash u32 if it is not 0; the lowest bit of the length's varint says so
//! ```
//! "Last" starts at the block's first offset minus 1, and at 0 otherwise.

use super::record::u32_at;
use super::types::Entry;

/// Entries in a block, at most.
pub(super) const BLOCK_ENTRIES: usize = 256;

/// Packs entries, which are in order.
pub(super) fn encode(entries: &[Entry]) -> Vec<u8> {
    let mut out = Vec::with_capacity(entries.len() * 12);
    let mut last = Last::new(entries.first().map_or(0, |entry| entry.offset));
    for entry in entries {
        put(&mut out, entry.offset.wrapping_sub(last.offset));
        put(&mut out, entry.position.wrapping_sub(last.position));
        put(&mut out, (u64::from(entry.len) << 1) | u64::from(entry.tag_hash != 0));
        put(&mut out, zigzag(entry.store_time_ms.wrapping_sub(last.time)));
        if entry.tag_hash != 0 {
            out.extend_from_slice(&entry.tag_hash.to_le_bytes());
        }
        last.follow(entry);
    }
    out
}

/// Unpacks a block whose key says `first`; `None` if it is damaged.
pub(super) fn decode(first: u64, mut block: &[u8]) -> Option<Vec<Entry>> {
    let mut entries = Vec::new();
    let mut last = Last::new(first);
    while !block.is_empty() {
        let offset = last.offset.wrapping_add(take(&mut block)?);
        let position = last.position.wrapping_add(take(&mut block)?);
        let len = take(&mut block)?;
        let store_time_ms = last.time.wrapping_add(unzigzag(take(&mut block)?));
        let mut tag_hash = 0;
        if len & 1 == 1 {
            tag_hash = u32_at(block, 0)?;
            block = block.get(4..)?;
        }
        let entry = Entry { offset, position, len: u32::try_from(len >> 1).ok()?, tag_hash, store_time_ms };
        last.follow(&entry);
        entries.push(entry);
    }
    Some(entries)
}

/// What the next entry is told relative to.
struct Last {
    offset: u64,
    position: u64,
    time: i64,
}

impl Last {
    fn new(first: u64) -> Self {
        Self { offset: first, position: 0, time: 0 }
    }

    fn follow(&mut self, entry: &Entry) {
        self.offset = entry.offset.wrapping_add(1);
        self.position = entry.position.wrapping_add(u64::from(entry.len));
        self.time = entry.store_time_ms;
    }
}

fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn take(block: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = block.split_first()?;
        *block = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_packed_is_unpacked(
            first in 0..u64::MAX / 2,
            entries in prop::collection::vec((0..3u64, any::<u64>(), any::<u32>(), any::<u32>(), any::<i64>(), any::<bool>()), 1..BLOCK_ENTRIES),
        ) {
            let mut offset = first;
            let entries: Vec<_> = entries
                .into_iter()
                .enumerate()
                .map(|(at, (skip, position, len, tag_hash, store_time_ms, tag))| {
                    offset += if at == 0 { 0 } else { 1 + skip };
                    Entry { offset, position, len, tag_hash: if tag { tag_hash } else { 0 }, store_time_ms }
                })
                .collect();
            prop_assert_eq!(decode(first, &encode(&entries)), Some(entries));
        }

        #[test]
        fn any_bytes_are_survived(first: u64, block in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(first, &block);
        }
    }

    #[test]
    fn an_entry_of_a_steady_queue_takes_few_bytes() {
        let entries: Vec<_> = (0..256)
            .map(|at| Entry {
                offset: at,
                position: at * 1104,
                len: 1024,
                tag_hash: 0,
                store_time_ms: 1_700_000_000_000 + at as i64,
            })
            .collect();
        assert!(encode(&entries).len() < 256 * 6 + 16);
    }
}
