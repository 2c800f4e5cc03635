//! The form of a record in the log: a header, and the operations of one batch.
//!
//! ```text
//! Record: header · operations · zeros up to a multiple of 8. All numbers are little-endian.
//! Header: magic u32 · body_len u32 · operations u32 · digest u32 · position u64 · durable u64 · gap u32 · crc u32
//!   digest    CRC-32C over the checksums of the operations
//!   position  where the record starts in the whole log
//!   durable   everything before this position was on the disk when the record was written
//!   gap       bytes between the end of the record before and this one: 0, or the unused rest of a segment
//!   crc       CRC-32C over the 36 bytes before, started with the segment's seed
//! Put:      checksum u32 · 1u8 · keyspace u8 · key_len u16 · value_len u32 · key · value
//! Delete:   checksum u32 · 2u8 · keyspace u8 · key_len u16 · key
//! Append:   checksum u32 · 3u8 · 0 0 0 · len u32 · tag_hash u32 · topic u32 · queue u32 · offset u64 · store_time_ms i64 · payload
//! Drop:     checksum u32 · 4u8 · 0 0 0 · topic u32
//! Hold:     checksum u32 · 5u8 · keyspace u8 · 0 0 · len u32 · tag_hash u32 · topic u32 · queue u32 · time u64 · store_time_ms i64 · payload
//! Link:     checksum u32 · 6u8 · 0 0 0 · len u32 · tag_hash u32 · topic u32 · queue u32 · offset u64 · store_time_ms i64 · position u64
//! Trim:     checksum u32 · 7u8 · 0 0 0 · topic u32 · queue u32 · min u64 · next u64
//! Start:    checksum u32 · 8u8 · 0 0 0 · position u64
//!   checksum  CRC-32C over the rest of the operation. That of an append or a hold is sealed: XORed with the CRC-32C over its position, started
//!             with the segment's seed, so that it is valid in its own place only and nobody who writes a payload can make one up.
//! ```

use super::types::{Entry, EntryMeta, Keyspace, QueueKey};

/// Bytes of a record's header.
pub(super) const HEADER: usize = 40;
/// Records start at multiples of this.
pub(super) const ALIGN: usize = 8;
/// Bytes of an append, or of a hold, before its payload.
pub(super) const APPEND_HEAD: usize = 40;
/// Bytes of a link.
pub(super) const LINK_LEN: usize = 48;

pub(super) const PUT: u8 = 1;
pub(super) const DELETE: u8 = 2;
pub(super) const APPEND: u8 = 3;
pub(super) const DROP_TOPIC: u8 = 4;
pub(super) const HOLD: u8 = 5;
pub(super) const LINK: u8 = 6;
pub(super) const TRIM: u8 = 7;
pub(super) const START: u8 = 8;

pub(super) const MAGIC: u32 = u32::from_le_bytes(*b"WBr1");

/// What a record says about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) body_len: u32,
    pub(super) operations: u32,
    pub(super) digest: u32,
    pub(super) position: u64,
    pub(super) durable: u64,
    pub(super) gap: u32,
}

impl Header {
    /// The header as it stands in the log.
    pub(super) fn encode(&self, seed: u32) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        out[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        out[4..8].copy_from_slice(&self.body_len.to_le_bytes());
        out[8..12].copy_from_slice(&self.operations.to_le_bytes());
        out[12..16].copy_from_slice(&self.digest.to_le_bytes());
        out[16..24].copy_from_slice(&self.position.to_le_bytes());
        out[24..32].copy_from_slice(&self.durable.to_le_bytes());
        out[32..36].copy_from_slice(&self.gap.to_le_bytes());
        let crc = crc32c::crc32c_append(seed, &out[..36]);
        out[36..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads a header; `None` if these bytes are none.
    pub(super) fn decode(bytes: &[u8], seed: u32) -> Option<Self> {
        let bytes = bytes.get(..HEADER)?;
        let header = Self {
            body_len: u32_at(bytes, 4)?,
            operations: u32_at(bytes, 8)?,
            digest: u32_at(bytes, 12)?,
            position: u64_at(bytes, 16)?,
            durable: u64_at(bytes, 24)?,
            gap: u32_at(bytes, 32)?,
        };
        let valid = u32_at(bytes, 0)? == MAGIC && u32_at(bytes, 36)? == crc32c::crc32c_append(seed, bytes.get(..36)?);
        valid.then_some(header)
    }

    /// Bytes of the whole record.
    pub(super) fn record_len(&self) -> u64 {
        padded(HEADER + self.body_len as usize) as u64
    }

    /// Where the record before ended.
    pub(super) fn previous_end(&self) -> Option<u64> {
        self.position.checked_sub(u64::from(self.gap))
    }
}

/// Rounds up to where the next record may start.
pub(super) fn padded(len: usize) -> usize {
    len.next_multiple_of(ALIGN)
}

/// What the checksum of an append is XORed with in its place.
pub(super) fn seal(seed: u32, position: u64) -> u32 {
    crc32c::crc32c_append(seed, &position.to_le_bytes())
}

/// One operation of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation<'a> {
    Put {
        keyspace: Keyspace,
        key: &'a [u8],
        value: &'a [u8],
    },
    Delete {
        keyspace: Keyspace,
        key: &'a [u8],
    },
    Append {
        queue: QueueKey,
        offset: u64,
        meta: EntryMeta,
        payload: &'a [u8],
    },
    DropTopic {
        topic: u32,
    },
    Hold {
        keyspace: Keyspace,
        time_ms: u64,
        queue: QueueKey,
        meta: EntryMeta,
        payload: &'a [u8],
    },
    Link {
        queue: QueueKey,
        entry: Entry,
    },
    /// A queue is there, has nothing below `min`, and its next offset is not below `next`.
    Trim {
        queue: QueueKey,
        min: u64,
        next: u64,
    },
    /// The log is complete from this position on: whatever was said before it and still holds has been said again since.
    Start {
        position: u64,
    },
}

/// An operation and what is needed to check it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Located<'a> {
    /// Where it starts within the body.
    pub(super) at: usize,
    /// The checksum as stored.
    pub(super) stored: u32,
    /// What the checksum covers.
    pub(super) covered: &'a [u8],
    pub(super) operation: Operation<'a>,
}

/// The operations of a body, in order. Ends early where the bytes are none; [`Operations::rest`] tells.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operations<'a> {
    body: &'a [u8],
    at: usize,
}

impl<'a> Operations<'a> {
    pub(super) fn new(body: &'a [u8]) -> Self {
        Self { body, at: 0 }
    }

    /// Bytes that were not understood; 0 at the end of a good body.
    pub(super) fn rest(&self) -> usize {
        self.body.len() - self.at
    }
}

impl<'a> Iterator for Operations<'a> {
    type Item = Located<'a>;

    fn next(&mut self) -> Option<Located<'a>> {
        let bytes = self.body.get(self.at..)?;
        let (operation, len) = decode(bytes)?;
        let located = Located { at: self.at, stored: u32_at(bytes, 0)?, covered: bytes.get(4..len)?, operation };
        self.at += len;
        Some(located)
    }
}

/// The operation at the start of `bytes`, and its length.
fn decode(bytes: &[u8]) -> Option<(Operation<'_>, usize)> {
    let part = |from: usize, len: usize| bytes.get(from..from.checked_add(len)?);
    match *bytes.get(4)? {
        PUT => {
            let keyspace = Keyspace::from_number(*bytes.get(5)?)?;
            let (key_len, value_len) = (usize::from(u16_at(bytes, 6)?), u32_at(bytes, 8)? as usize);
            let (key, value) = (part(12, key_len)?, part(12 + key_len, value_len)?);
            Some((Operation::Put { keyspace, key, value }, 12 + key_len + value_len))
        }
        DELETE => {
            let keyspace = Keyspace::from_number(*bytes.get(5)?)?;
            let key_len = usize::from(u16_at(bytes, 6)?);
            Some((Operation::Delete { keyspace, key: part(8, key_len)? }, 8 + key_len))
        }
        kind @ (APPEND | HOLD) => {
            let len = payload_len(bytes)? as usize;
            let queue = QueueKey { topic: u32_at(bytes, 16)?, queue: u32_at(bytes, 20)? };
            let meta = EntryMeta { tag_hash: u32_at(bytes, 12)?, store_time_ms: u64_at(bytes, 32)?.cast_signed() };
            let (number, payload) = (u64_at(bytes, 24)?, part(APPEND_HEAD, len)?);
            let operation = match kind {
                APPEND => Operation::Append { queue, offset: number, meta, payload },
                _ => {
                    let keyspace = Keyspace::from_number(*bytes.get(5)?)?;
                    Operation::Hold { keyspace, time_ms: number, queue, meta, payload }
                }
            };
            Some((operation, APPEND_HEAD + len))
        }
        LINK => {
            let entry = Entry {
                offset: u64_at(bytes, 24)?,
                position: u64_at(bytes, 40)?,
                len: u32_at(bytes, 8)?,
                tag_hash: u32_at(bytes, 12)?,
                store_time_ms: u64_at(bytes, 32)?.cast_signed(),
            };
            let queue = QueueKey { topic: u32_at(bytes, 16)?, queue: u32_at(bytes, 20)? };
            Some((Operation::Link { queue, entry }, LINK_LEN))
        }
        DROP_TOPIC => Some((Operation::DropTopic { topic: u32_at(bytes, 8)? }, 12)),
        TRIM => {
            let queue = QueueKey { topic: u32_at(bytes, 8)?, queue: u32_at(bytes, 12)? };
            Some((Operation::Trim { queue, min: u64_at(bytes, 16)?, next: u64_at(bytes, 24)? }, 32))
        }
        START => Some((Operation::Start { position: u64_at(bytes, 8)? }, 16)),
        _ => None,
    }
}

/// The length of the payload if an append or a hold starts here, by the looks of it.
pub(super) fn payload_len(bytes: &[u8]) -> Option<u32> {
    matches!(bytes.get(4..8)?, [APPEND, 0, 0, 0] | [HOLD, _, 0, 0]).then_some(u32_at(bytes, 8)?)
}

/// Checks every operation of a body, and that the header speaks of these.
pub(super) fn verify(header: &Header, body: &[u8], seed: u32) -> bool {
    let mut operations = Operations::new(body);
    let (mut count, mut digest) = (0u32, 0u32);
    for located in operations.by_ref() {
        let checksum = crc32c::crc32c(located.covered);
        let expected = match located.operation {
            Operation::Append { .. } | Operation::Hold { .. } => {
                checksum ^ seal(seed, header.position + (HEADER + located.at) as u64)
            }
            _ => checksum,
        };
        if located.stored != expected {
            return false;
        }
        digest = crc32c::crc32c_append(digest, &checksum.to_le_bytes());
        count += 1;
    }
    operations.rest() == 0 && count == header.operations && digest == header.digest
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_le_bytes)
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_le_bytes)
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().copied().map(u64::from_le_bytes)
}
