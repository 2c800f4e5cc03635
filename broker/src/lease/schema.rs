//! How leases and progress look in the store.
//!
//! Keyspace `Lease`, one row per open message:
//! - Key: consumer group u32, topic u32, queue u32, offset u64, each big-endian: 20 bytes.
//! - Value: 1 byte version (upper half, 1) and flags (lower half: 1 = uncounted, 2 = has an order group, 4 = it is known who changed
//!   it, 8 = the receive had a name); then as varints (7 bits a byte,
//!   lowest first, no longer than needed) pop time, invisible duration (zigzag), pop time − first pop time, attempts, changes, holder;
//!   then the order group, u32 big-endian, if there is one; then, if it is known, who changed it last (1 byte) and how many changes were
//!   renewals (1 byte); then the name of the receive, u32 big-endian, if it had one. At most [`LEASE_VALUE_MAX`] bytes, commonly 14 to 24.
//!
//! Keyspace `Progress`, one row per queue a group has read:
//! - Key: consumer group u32, topic u32, queue u32, each big-endian: 12 bytes.
//! - Value: 1 byte version (upper half, 1) and flags (lower half: 1 = a reset to here has begun, and is not done: all leases of the queue are
//!   void); as varints `next` and the pop floor. At most 18 bytes.
//!
//! Group and topic are the catalog's numbers, so all rows of a group on a topic have one prefix. What does not fit exactly is refused.

use super::types::{Change, ChangedBy, Lease, MAX_COUNT, MAX_MS, Progress};
use crate::store::{Batch, Keyspace};
use thiserror::Error;

/// Most bytes of a lease's value.
pub const LEASE_VALUE_MAX: usize = 46;
/// Most bytes that one change makes of a batch, all told.
pub const CHANGE_BYTES_MAX: u64 = 96;

const VERSION: u8 = 1 << 4;
const UNCOUNTED: u8 = 1;
const GROUPED: u8 = 2;
const CHANGED: u8 = 4;
const NAMED: u8 = 8;
const BEING_RESET: u8 = 1;
/// Their numbers in the store.
const CHANGED_BY: [ChangedBy; 7] = [
    ChangedBy::Unknown,
    ChangedBy::Renewal,
    ChangedBy::Client,
    ChangedBy::Return,
    ChangedBy::Operator,
    ChangedBy::Broker,
    ChangedBy::Extension,
];
/// Pop times can be later than the clock by some milliseconds, and the clock is at most [`MAX_MS`].
const MAX_POP_MS: u64 = (MAX_MS as u64) * 2 - 1;

/// Why a row cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RowError {
    /// The key has another size than keys of its keyspace have.
    #[error("a key of {0} bytes has the wrong size")]
    Key(usize),
    /// Written by another version of this program.
    #[error("unknown version or flags {0:#04x}")]
    Version(u8),
    /// The value ends early, goes on too long or holds a number out of range.
    #[error("the value is damaged")]
    Value,
}

/// A row of keyspace `Lease`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseRow {
    /// The group's number in the catalog.
    pub group: u32,
    /// The topic's number in the catalog.
    pub topic: u32,
    /// Queue id.
    pub queue: u32,
    /// Offset in the queue.
    pub offset: u64,
    /// The lease.
    pub lease: Lease,
}

/// A row of keyspace `Progress`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgressRow {
    /// The group's number in the catalog.
    pub group: u32,
    /// The topic's number in the catalog.
    pub topic: u32,
    /// Queue id.
    pub queue: u32,
    /// How far the group has come.
    pub progress: Progress,
    /// A reset to here has begun and was not ended: all leases of the queue are void.
    pub being_reset: bool,
}

/// Adds the changes of a group's ledger on a topic to a batch, in order.
pub fn record(batch: &mut Batch, group: u32, topic: u32, changes: &[Change]) {
    let mut value = Vec::with_capacity(LEASE_VALUE_MAX);
    for change in changes {
        value.clear();
        match change {
            Change::Put(queue, offset, lease) => {
                write_lease(lease, &mut value);
                batch.put(Keyspace::Lease, &lease_key(group, topic, *queue, *offset), &value);
            }
            Change::Delete(queue, offset) => batch.delete(Keyspace::Lease, &lease_key(group, topic, *queue, *offset)),
            Change::Progress(queue, progress) => {
                write_progress(progress, &mut value);
                batch.put(Keyspace::Progress, &progress_key(group, topic, *queue), &value);
            }
        }
    }
}

/// Adds to a batch that a reset of the queue to this place has begun. What [`record`] writes of the queue's progress ends it.
pub fn record_reset(batch: &mut Batch, group: u32, topic: u32, queue: u32, progress: &Progress) {
    let mut value = Vec::new();
    write_progress(progress, &mut value);
    if let Some(head) = value.first_mut() {
        *head |= BEING_RESET;
    }
    batch.put(Keyspace::Progress, &progress_key(group, topic, queue), &value);
}

/// What the keys of a group on a topic begin with, in both keyspaces.
#[must_use]
pub fn prefix(group: u32, topic: u32) -> [u8; 8] {
    (u64::from(group) << 32 | u64::from(topic)).to_be_bytes()
}

/// Key of a lease.
#[must_use]
pub fn lease_key(group: u32, topic: u32, queue: u32, offset: u64) -> [u8; 20] {
    let mut key = [0; 20];
    key[..12].copy_from_slice(&progress_key(group, topic, queue));
    key[12..].copy_from_slice(&offset.to_be_bytes());
    key
}

/// Key of a queue's progress.
#[must_use]
pub fn progress_key(group: u32, topic: u32, queue: u32) -> [u8; 12] {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&prefix(group, topic));
    key[8..].copy_from_slice(&queue.to_be_bytes());
    key
}

/// Reads a row of keyspace `Lease`.
///
/// # Errors
/// [`RowError`] for whatever [`record`] would not have written.
pub fn read_lease(key: &[u8], value: &[u8]) -> Result<LeaseRow, RowError> {
    let mut key = Reader(exactly(key, 20)?);
    let (group, topic, queue, offset) =
        (key.u32()?, key.u32()?, key.u32()?, u64::from(key.u32()?) << 32 | u64::from(key.u32()?));
    let mut value = Reader(value);
    let head = value.u8()?;
    if head & !(UNCOUNTED | GROUPED | CHANGED | NAMED) != VERSION {
        return Err(RowError::Version(head));
    }
    let pop_time = value.varint(MAX_POP_MS)?;
    let invisible = value.varint(4 * MAX_POP_MS)?;
    let since_first = value.varint(pop_time)?;
    let mut lease = Lease {
        pop_time_ms: pop_time.cast_signed(),
        invisible_ms: (invisible >> 1).cast_signed() ^ -(invisible & 1).cast_signed(),
        first_pop_ms: (pop_time - since_first).cast_signed(),
        attempts: value.small(MAX_COUNT)?,
        changes: value.small(MAX_COUNT)?,
        renewals: 0,
        changed_by: ChangedBy::Unknown,
        holder: value.small(u32::MAX)?,
        order_group: if head & GROUPED != 0 { Some(value.u32()?) } else { None },
        uncounted: head & UNCOUNTED != 0,
        attempt: 0,
    };
    if head & CHANGED != 0 {
        lease.changed_by = *CHANGED_BY.get(usize::from(value.u8()?)).ok_or(RowError::Value)?;
        lease.renewals = value.u8()?;
        if !is_change_known(&lease) {
            return Err(RowError::Value);
        }
    }
    if head & NAMED != 0 {
        lease.attempt = value.u32()?;
        if lease.attempt == 0 {
            return Err(RowError::Value);
        }
    }
    value.end()?;
    Ok(LeaseRow { group, topic, queue, offset, lease })
}

/// Reads a row of keyspace `Progress`.
///
/// # Errors
/// [`RowError`] for whatever [`record`] and [`record_reset`] would not have written.
pub fn read_progress(key: &[u8], value: &[u8]) -> Result<ProgressRow, RowError> {
    let mut key = Reader(exactly(key, 12)?);
    let (group, topic, queue) = (key.u32()?, key.u32()?, key.u32()?);
    let mut value = Reader(value);
    let head = value.u8()?;
    if head & !BEING_RESET != VERSION {
        return Err(RowError::Version(head));
    }
    let progress = Progress { next: value.varint(u64::MAX)?, pop_floor_ms: value.varint(MAX_POP_MS)?.cast_signed() };
    value.end()?;
    Ok(ProgressRow { group, topic, queue, progress, being_reset: head & BEING_RESET != 0 })
}

/// Writes a lease's value behind what is in `out`.
pub fn write_lease(lease: &Lease, out: &mut Vec<u8>) {
    let flag = |set, flag| if set { flag } else { 0 };
    let known = is_change_known(lease);
    let flags = flag(lease.uncounted, UNCOUNTED) | flag(lease.order_group.is_some(), GROUPED) | flag(known, CHANGED);
    out.push(VERSION | flags | flag(lease.attempt != 0, NAMED));
    varint(lease.pop_time_ms.cast_unsigned(), out);
    varint(((lease.invisible_ms << 1) ^ (lease.invisible_ms >> 63)).cast_unsigned(), out);
    varint((lease.pop_time_ms - lease.first_pop_ms).cast_unsigned(), out);
    varint(u64::from(lease.attempts), out);
    varint(u64::from(lease.changes), out);
    varint(u64::from(lease.holder), out);
    if let Some(group) = lease.order_group {
        out.extend_from_slice(&group.to_be_bytes());
    }
    if known {
        let number = CHANGED_BY.iter().position(|by| *by == lease.changed_by).unwrap_or(0);
        out.extend_from_slice(&[u8::try_from(number).unwrap_or(0), lease.renewals]);
    }
    if lease.attempt != 0 {
        out.extend_from_slice(&lease.attempt.to_be_bytes());
    }
}

fn is_change_known(lease: &Lease) -> bool {
    lease.changed_by != ChangedBy::Unknown || lease.renewals > 0
}

/// Writes a progress value behind what is in `out`.
pub fn write_progress(progress: &Progress, out: &mut Vec<u8>) {
    out.push(VERSION);
    varint(progress.next, out);
    varint(progress.pop_floor_ms.cast_unsigned(), out);
}

fn varint(mut n: u64, out: &mut Vec<u8>) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn exactly(key: &[u8], size: usize) -> Result<&[u8], RowError> {
    if key.len() == size { Ok(key) } else { Err(RowError::Key(key.len())) }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn u8(&mut self) -> Result<u8, RowError> {
        let (first, rest) = self.0.split_first().ok_or(RowError::Value)?;
        self.0 = rest;
        Ok(*first)
    }

    fn u32(&mut self) -> Result<u32, RowError> {
        let (first, rest) = self.0.split_first_chunk::<4>().ok_or(RowError::Value)?;
        self.0 = rest;
        Ok(u32::from_be_bytes(*first))
    }

    fn varint(&mut self, max: u64) -> Result<u64, RowError> {
        let mut n = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            n |= bits << shift;
            if byte < 0x80 {
                // A zero at the end would be a longer form of a shorter number.
                return if n <= max && (byte != 0 || shift == 0) { Ok(n) } else { Err(RowError::Value) };
            }
        }
        Err(RowError::Value)
    }

    fn small(&mut self, max: u32) -> Result<u32, RowError> {
        u32::try_from(self.varint(u64::from(max))?).map_err(|_| RowError::Value)
    }

    fn end(&self) -> Result<(), RowError> {
        if self.0.is_empty() { Ok(()) } else { Err(RowError::Value) }
    }
}
