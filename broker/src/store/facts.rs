//! What is known about the messages of each segment without reading it: what retention goes by.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// The messages whose payloads lie in one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Facts {
    /// When the first of them was taken, milliseconds since 1970; the times mean nothing where there are no messages.
    pub(super) first_ms: i64,
    /// When the newest of them was taken, or came into its queue, milliseconds since 1970.
    pub(super) newest_ms: i64,
    pub(super) messages: u64,
}

/// The facts by the first position of the segment.
#[derive(Debug, Default)]
pub(super) struct AllFacts {
    by_base: BTreeMap<u64, Facts>,
    /// What the index does not have yet.
    changed: BTreeSet<u64>,
}

impl AllFacts {
    /// What the index has.
    pub(super) fn restore(&mut self, base: u64, facts: Facts) {
        self.by_base.insert(base, facts);
    }

    pub(super) fn get(&self, base: u64) -> Option<Facts> {
        self.by_base.get(&base).copied()
    }

    /// Something was written into the segment at `base`.
    pub(super) fn begun(&mut self, base: u64) {
        if let Entry::Vacant(unknown) = self.by_base.entry(base) {
            unknown.insert(Facts::default());
            self.changed.insert(base);
        }
    }

    /// A message was written into the segment at `base`.
    pub(super) fn written(&mut self, base: u64, time_ms: i64) {
        let facts = self.by_base.entry(base).or_default();
        if facts.messages == 0 {
            (facts.first_ms, facts.newest_ms) = (time_ms, time_ms);
        }
        facts.newest_ms = facts.newest_ms.max(time_ms);
        facts.messages += 1;
        self.changed.insert(base);
    }

    /// A message that lies at `position` came into a queue: it is as new as others that did.
    pub(super) fn linked(&mut self, position: u64, time_ms: i64) {
        let Some((base, facts)) = self.by_base.range_mut(..=position).next_back() else { return };
        if facts.newest_ms < time_ms {
            facts.newest_ms = time_ms;
            self.changed.insert(*base);
        }
    }

    /// Forgets the segments before this position.
    pub(super) fn forget_before(&mut self, position: u64) {
        self.by_base = self.by_base.split_off(&position);
        self.changed = self.changed.split_off(&position);
    }

    /// What a checkpoint has to write. It is not told again.
    pub(super) fn take_changes(&mut self) -> Vec<(u64, Facts)> {
        let changed = std::mem::take(&mut self.changed);
        changed.into_iter().filter_map(|base| Some((base, self.get(base)?))).collect()
    }
}
