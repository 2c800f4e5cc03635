//! Rows between two keys: what the index has, with what was committed since.

use bytes::Bytes;

use super::index::{Index, IndexError};
use super::schema;
use super::state::State;
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
            // The least key that is greater.
            self.next = rows.last().filter(|_| rows.len() == self.size).map(|(key, _)| [&key[..], &[0]].concat());
            self.chunk = rows.into_iter();
        }
        Ok(self.chunk.next().map(|(key, value)| (key.slice(1..), value)))
    }
}

/// At most `max` rows from `from` on to before `to`.
pub(super) fn read(
    state: &State,
    index: &Index,
    keyspace: Keyspace,
    (from, to): (&[u8], &[u8]),
    max: usize,
) -> Result<Vec<(Bytes, Bytes)>, IndexError> {
    let end = if to.is_empty() { vec![keyspace as u8 + 1] } else { schema::user_key(keyspace, to) };
    let mut indexed = Indexed {
        index,
        to: end,
        chunk: Vec::new().into_iter(),
        next: Some(schema::user_key(keyspace, from)),
        size: max.max(CHUNK),
    };
    let [frozen, active] = state.changes_between(keyspace, (from, to));
    let (mut frozen, mut active) = (frozen.peekable(), active.peekable());
    let mut row = indexed.next()?;
    let mut rows = Vec::new();
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
        for changes in [&mut frozen, &mut active] {
            if let Some((_, change)) = changes.next_if(|(head, _)| *head == key) {
                value = change.as_deref().map(Bytes::copy_from_slice);
            }
        }
        rows.extend(value.map(|value| (key, value)));
    }
    Ok(rows)
}
