//! Ordered consumption in one queue: the open rows of each message group, and which groups may be given out.
//!
//! A group may be given out while none of its rows is live. Those that may are kept by the time since when, the longest waiting first.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;

#[derive(Clone, Debug, Default)]
struct Group {
    rows: BTreeSet<u64>,
    live: usize,
    since_ms: i64,
    /// Number of the latest pop that took rows of this group, and how many.
    pop: u64,
    taken: usize,
}

impl Group {
    fn is_available(&self) -> bool {
        self.live == 0 && !self.rows.is_empty()
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Order {
    groups: HashMap<u32, Group>,
    available: BTreeSet<(i64, u32)>,
    available_rows: usize,
}

impl Order {
    /// Adds a row, or notes that a row changed from `was_live` to `live`.
    pub(super) fn put(&mut self, group: u32, offset: u64, was_live: bool, live: bool, now_ms: i64) -> bool {
        self.update(group, now_ms, |g| {
            g.rows.insert(offset);
            g.live = g.live.saturating_sub(usize::from(was_live)) + usize::from(live);
        })
    }

    pub(super) fn remove(&mut self, group: u32, offset: u64, was_live: bool, now_ms: i64) -> bool {
        self.update(group, now_ms, |g| {
            g.rows.remove(&offset);
            g.live = g.live.saturating_sub(usize::from(was_live));
        })
    }

    /// A live row of the group ran out at `deadline_ms`.
    pub(super) fn expire(&mut self, group: u32, deadline_ms: i64) {
        self.update(group, deadline_ms, |g| g.live = g.live.saturating_sub(1));
    }

    /// Notes that pop number `pop` took one row of the group.
    pub(super) fn mark_taken(&mut self, group: u32, pop: u64) {
        if let Some(g) = self.groups.get_mut(&group) {
            g.taken = if g.pop == pop { g.taken + 1 } else { 1 };
            g.pop = pop;
        }
    }

    /// Whether a further message of the group has to wait: there is an open predecessor that pop number `pop` did not take itself.
    pub(super) fn blocks(&self, group: u32, pop: u64) -> bool {
        self.groups.get(&group).is_some_and(|g| g.pop != pop || g.taken < g.rows.len())
    }

    /// Whether there is an open row of the group before `offset` that pop number `pop` did not take itself.
    pub(super) fn blocks_row(&self, group: u32, pop: u64, offset: u64) -> bool {
        self.groups.get(&group).is_some_and(|g| {
            let taken = if g.pop == pop { g.taken } else { 0 };
            g.rows.range(..offset).nth(taken).is_some()
        })
    }

    /// The group that may be given out and comes after `cursor`, the longest waiting first.
    pub(super) fn next_available(&self, cursor: Option<(i64, u32)>) -> Option<(i64, u32)> {
        let from = cursor.map_or(Bound::Unbounded, Bound::Excluded);
        self.available.range((from, Bound::Unbounded)).next().copied()
    }

    /// The smallest open offset of the group after `cursor`.
    pub(super) fn next_row(&self, group: u32, cursor: Option<u64>) -> Option<u64> {
        let from = cursor.map_or(Bound::Unbounded, Bound::Excluded);
        self.groups.get(&group)?.rows.range((from, Bound::Unbounded)).next().copied()
    }

    /// Open rows of all groups that may be given out.
    pub(super) fn available_rows(&self) -> usize {
        self.available_rows
    }

    /// Applies `f` to the group and keeps the books; answers whether the group became available by it.
    fn update(&mut self, group: u32, now_ms: i64, f: impl FnOnce(&mut Group)) -> bool {
        let g = self.groups.entry(group).or_default();
        let was = g.is_available();
        if was {
            self.available_rows -= g.rows.len();
        }
        f(g);
        let is = g.is_available();
        if is {
            self.available_rows += g.rows.len();
        }
        if was && !is {
            self.available.remove(&(g.since_ms, group));
        } else if is && !was {
            g.since_ms = now_ms;
            self.available.insert((now_ms, group));
        }
        if g.rows.is_empty() {
            self.groups.remove(&group);
        }
        is && !was
    }
}
