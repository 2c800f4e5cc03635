//! Rows between two keys: what the index has, with what was committed since.

use bytes::Bytes;
use parking_lot::RwLock;

use super::index::{Index, IndexError};
use super::schema;
use super::state::{Changes, State, after};
use super::types::Keyspace;

/// Rows that are read from the index at a time, at least.
const CHUNK: usize = 16;

/// The rows of the index in a range, read as they are wanted.
struct Indexed<'a> {
    index: &'a Index,
    to: Vec<u8>,
    chunk: std::vec::IntoIter<(Bytes, Bytes)>,
    /// Where the next chunk starts; `None` after the last one.
    next: Option<Vec<u8>>,
    size: usize,
}

impl Indexed<'_> {
    /// The key, without its keyspace, and the value.
    fn next(&mut self) -> Result<Option<(Bytes, Bytes)>, IndexError> {
        if self.chunk.as_slice().is_empty()
            && let Some(from) = self.next.take()
        {
            let rows = self.index.between(&from, &self.to, self.size)?;
            self.next = rows.last().filter(|_| rows.len() == self.size).map(|(key, _)| after(key));
            self.chunk = rows.into_iter();
        }
        Ok(self.chunk.next().map(|(key, value)| (key.slice(1..), value)))
    }
}

/// At most `max` rows from `from` on to before `to`. Each is one that was there at some time while this was running.
pub(super) fn read(
    state: &RwLock<State>,
    index: &Index,
    keyspace: Keyspace,
    (from, to): (&[u8], &[u8]),
    max: usize,
) -> Result<Vec<(Bytes, Bytes)>, IndexError> {
    let mut from = from.to_vec();
    let mut rows = Vec::new();
    while rows.len() < max {
        // The index is read without the lock: a reader must not hold up the committer. It comes last, so that what a checkpoint moves into
        // it meanwhile is seen in one place or in both.
        let changes = state.read().changes_between(keyspace, (&from, to), max.max(CHUNK));
        let end = changes.end.as_deref().unwrap_or(to);
        merge(index, keyspace, (&from, end), &changes, max, &mut rows)?;
        match changes.end {
            Some(end) => from = end,
            None => break,
        }
    }
    Ok(rows)
}

/// Adds rows until there are `max`.
fn merge(
    index: &Index,
    keyspace: Keyspace,
    (from, to): (&[u8], &[u8]),
    changes: &Changes,
    max: usize,
    rows: &mut Vec<(Bytes, Bytes)>,
) -> Result<(), IndexError> {
    let end = if to.is_empty() { vec![keyspace as u8 + 1] } else { schema::user_key(keyspace, to) };
    let mut indexed = Indexed {
        index,
        to: end,
        chunk: Vec::new().into_iter(),
        next: Some(schema::user_key(keyspace, from)),
        size: (max - rows.len()).max(CHUNK),
    };
    let frozen = changes.frozen.iter().flat_map(|frozen| frozen.between(keyspace, from, to));
    let mut frozen = frozen.map(|(key, change)| (key, change.as_deref())).peekable();
    let mut active = changes.active.iter().map(|(key, change)| (&**key, change.as_deref())).peekable();
    let mut row = indexed.next()?;
    while rows.len() < max {
        let heads = [
            row.as_ref().map(|(key, _)| &key[..]),
            frozen.peek().map(|(key, _)| *key),
            active.peek().map(|(key, _)| *key),
        ];
        let Some(key) = heads.into_iter().flatten().min().map(Bytes::copy_from_slice) else { break };
        // The newest that is known of a key holds.
        let mut value = None;
        if row.as_ref().is_some_and(|(head, _)| *head == key) {
            value = row.take().map(|(_, value)| value);
            row = indexed.next()?;
        }
        let changes = [frozen.next_if(|(head, _)| *head == key), active.next_if(|(head, _)| *head == key)];
        for (_, change) in changes.into_iter().flatten() {
            value = change.map(Bytes::copy_from_slice);
        }
        rows.extend(value.map(|value| (key, value)));
    }
    Ok(())
}
