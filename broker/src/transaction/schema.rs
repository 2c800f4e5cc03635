//! The rows of transactions in the store: those of open halves are the store's own ([`HeldRow`], in [`Keyspace::Half`]), what else is
//! known of a transaction is in [`Keyspace::Decision`].
//!
//! ```text
//! Key:   position of the half u64, big-endian
//! Value: 0 u8 · checks u32 · next check i64                          open, and its producer was asked
//!        1, 2 or 3 u8 · time i64                                     committed, rolled back, given up
//! ```
//! Numbers in values are little-endian, times in milliseconds since 1970.

use super::{Change, Decision, Row};
use crate::store::{Batch, HeldRow, Keyspace};

/// Writes changes into a batch.
pub fn record(batch: &mut Batch, changes: &[Change]) {
    for change in changes {
        match change {
            Change::Release(row) => batch.delete(Keyspace::Half, &HeldRow::key(row.time_ms, row.position)),
            Change::Put(position, row) => batch.put(Keyspace::Decision, &position.to_be_bytes(), &value(*row)),
            Change::Forget(position) => batch.delete(Keyspace::Decision, &position.to_be_bytes()),
        }
    }
}

/// Reads a row of [`Keyspace::Decision`]; `None` if it is damaged or of a newer version.
#[must_use]
pub fn read(key: &[u8], value: &[u8]) -> Option<(u64, Row)> {
    let position = u64::from_be_bytes(key.try_into().ok()?);
    let (kind, rest) = value.split_first()?;
    let row = match kind {
        0 => {
            let (checks, next) = rest.split_first_chunk()?;
            Row::Asked { checks: u32::from_le_bytes(*checks), next_check_ms: i64::from_le_bytes(next.try_into().ok()?) }
        }
        kind => {
            let decision = match kind {
                1 => Decision::Commit,
                2 => Decision::Rollback,
                3 => Decision::GivenUp,
                _ => return None,
            };
            Row::Decided { decision, at_ms: i64::from_le_bytes(rest.try_into().ok()?) }
        }
    };
    Some((position, row))
}

/// The value of a row.
#[must_use]
pub fn value(row: Row) -> Vec<u8> {
    match row {
        Row::Asked { checks, next_check_ms } => {
            [&[0], &checks.to_le_bytes()[..], &next_check_ms.to_le_bytes()[..]].concat()
        }
        Row::Decided { decision, at_ms } => {
            let kind = match decision {
                Decision::Commit => 1,
                Decision::Rollback => 2,
                Decision::GivenUp => 3,
            };
            [&[kind], &at_ms.to_le_bytes()[..]].concat()
        }
    }
}
