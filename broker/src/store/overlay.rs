//! Keys that were committed and are not in the index yet.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::types::Keyspace;

/// About what a key costs in memory beside its bytes.
const KEY_OVERHEAD: u64 = 64;

/// A value, or `None` for a key that was deleted.
pub(super) type Change = Option<Box<[u8]>>;

/// The changes since a checkpoint.
#[derive(Debug, Default)]
pub(super) struct Overlay {
    keyspaces: [BTreeMap<Box<[u8]>, Change>; Keyspace::NUMBERS],
    dropped_topics: BTreeSet<u32>,
    bytes: u64,
}

impl Overlay {
    pub(super) fn set(&mut self, keyspace: Keyspace, key: &[u8], value: Option<&[u8]>) {
        let Some(keys) = self.keyspaces.get_mut(keyspace as usize) else { return };
        let size = |change: &Change| change.as_ref().map_or(0, |value| value.len() as u64);
        let change = value.map(Box::from);
        self.bytes += size(&change);
        match keys.get_mut(key) {
            Some(old) => self.bytes -= size(&std::mem::replace(old, change)),
            None => {
                self.bytes += key.len() as u64 + KEY_OVERHEAD;
                keys.insert(key.into(), change);
            }
        }
    }

    /// Sets a key that was not there before.
    pub(super) fn add(&mut self, keyspace: Keyspace, key: &[u8], value: &[u8]) {
        let Some(keys) = self.keyspaces.get_mut(keyspace as usize) else { return };
        let added = |value: usize| (key.len() + value) as u64 + KEY_OVERHEAD;
        self.bytes += added(value.len());
        // Not looked for before, as `set` does: that would be to search twice.
        if let Some(old) = keys.insert(key.into(), Some(value.into())) {
            self.bytes -= added(old.map_or(0, |old| old.len()));
        }
    }

    /// `None` if nothing is known about the key here.
    pub(super) fn get(&self, keyspace: Keyspace, key: &[u8]) -> Option<&Change> {
        self.keyspaces.get(keyspace as usize)?.get(key)
    }

    /// The changes of keys that start with `prefix`, in order.
    pub(super) fn range<'a>(
        &'a self,
        keyspace: Keyspace,
        prefix: &'a [u8],
    ) -> impl Iterator<Item = (&'a [u8], &'a Change)> {
        let keys = self.keyspaces.get(keyspace as usize);
        keys.into_iter()
            .flat_map(move |keys| keys.range::<[u8], _>((Bound::Included(prefix), Bound::Unbounded)))
            .map(|(key, change)| (&**key, change))
            .take_while(move |(key, _)| key.starts_with(prefix))
    }

    /// The changes of keys from `from` on to before `to`, in order; an empty `to` is the end.
    pub(super) fn between<'a>(
        &'a self,
        keyspace: Keyspace,
        from: &'a [u8],
        to: &'a [u8],
    ) -> impl Iterator<Item = (&'a [u8], &'a Change)> {
        let until = if to.is_empty() { Bound::Unbounded } else { Bound::Excluded(to) };
        // A range that ends before it starts is none.
        let some = to.is_empty() || from < to;
        let keys = self.keyspaces.get(keyspace as usize).filter(|_| some);
        keys.into_iter()
            .flat_map(move |keys| keys.range::<[u8], _>((Bound::Included(from), until)))
            .map(|(key, change)| (&**key, change))
    }

    pub(super) fn drop_topic(&mut self, topic: u32) {
        self.dropped_topics.insert(topic);
    }

    /// Topics whose queues were forgotten.
    pub(super) fn dropped_topics(&self) -> impl Iterator<Item = u32> {
        self.dropped_topics.iter().copied()
    }

    /// About how much memory this uses.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}
