//! The open rows of one queue: by offset, and by deadline.

use super::order::Order;
use super::types::{Lease, Progress};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

#[derive(Clone, Debug)]
pub(super) struct Queue {
    pub(super) progress: Progress,
    /// `progress` is to be written.
    pub(super) dirty: bool,
    /// One past the largest readable offset, as the latest pop saw it.
    pub(super) end: u64,
    /// A pop stopped at the in-flight limit since the latest ack.
    pub(super) limited: bool,
    /// Latest pop time given in this queue.
    pub(super) last_pop_ms: i64,
    open: BTreeMap<u64, Lease>,
    due: BTreeSet<(i64, u64)>,
    /// Open rows by the name of the receive that took them, those without left out.
    named: BTreeSet<(u32, u64)>,
    /// How many rows of `due` have a deadline not later than `clock_ms`. The rest is live.
    expired: usize,
    clock_ms: i64,
    order: Option<Order>,
}

impl Queue {
    pub(super) fn new(progress: Progress, ordered: bool) -> Self {
        Self {
            progress,
            dirty: false,
            end: progress.next,
            limited: false,
            last_pop_ms: 0,
            open: BTreeMap::new(),
            due: BTreeSet::new(),
            named: BTreeSet::new(),
            expired: 0,
            clock_ms: 0,
            order: ordered.then(Order::default),
        }
    }

    /// Lets time go on to `now_ms`: what is due by then counts as expired. Costs what became due.
    pub(super) fn advance(&mut self, now_ms: i64) {
        if now_ms <= self.clock_ms {
            return;
        }
        let newly = (Bound::Excluded((self.clock_ms, u64::MAX)), Bound::Included((now_ms, u64::MAX)));
        for &(deadline, offset) in self.due.range(newly) {
            self.expired += 1;
            if let Some(order) = &mut self.order
                && let Some(group) = self.open.get(&offset).and_then(|lease| lease.order_group)
            {
                order.expire(group, deadline);
            }
        }
        self.clock_ms = now_ms;
    }

    pub(super) fn get(&self, offset: u64) -> Option<&Lease> {
        self.open.get(&offset)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Lease)> {
        self.open.iter().map(|(offset, lease)| (*offset, lease))
    }

    /// The offsets of the live rows, in order.
    pub(super) fn live(&self, now_ms: i64) -> impl Iterator<Item = u64> {
        self.iter().filter(move |(_, lease)| lease.is_live(now_ms)).map(|(offset, _)| offset)
    }

    pub(super) fn open_len(&self) -> usize {
        self.open.len()
    }

    pub(super) fn in_flight(&self) -> usize {
        self.open.len() - self.expired
    }

    pub(super) fn expired(&self) -> usize {
        self.expired
    }

    /// Rows that could be taken again now, but for the in-flight limit.
    pub(super) fn available_rows(&self) -> usize {
        self.order.as_ref().map_or(self.expired, Order::available_rows)
    }

    /// Rows that nobody holds, and that cannot be taken because somebody holds another one of their group. Costs a look at every row.
    pub(super) fn blocked_rows(&self) -> usize {
        let Some(order) = &self.order else { return 0 };
        // A row without a group was taken while consumption was not ordered.
        let waits = |lease: &&Lease| !lease.is_live(self.clock_ms) && lease.order_group.is_some();
        self.open.values().filter(waits).count().saturating_sub(order.available_rows())
    }

    pub(super) fn order(&self) -> Option<&Order> {
        self.order.as_ref()
    }

    pub(super) fn order_mut(&mut self) -> Option<&mut Order> {
        self.order.as_mut()
    }

    /// Adds or replaces a row. Of a replaced row the order group must be the same. Answers whether a group became available.
    pub(super) fn put(&mut self, offset: u64, lease: Lease) -> bool {
        let deadline = lease.deadline_ms();
        let live = deadline > self.clock_ms;
        let mut was_live = false;
        let old = self.open.insert(offset, lease);
        self.rename(offset, old.map_or(0, |old| old.attempt), lease.attempt);
        match old.map(|old| old.deadline_ms()) {
            Some(old) => {
                was_live = old > self.clock_ms;
                self.expired -= usize::from(!was_live);
                if old != deadline {
                    self.due.remove(&(old, offset));
                    self.due.insert((deadline, offset));
                }
            }
            None => {
                self.due.insert((deadline, offset));
            }
        }
        self.expired += usize::from(!live);
        match (&mut self.order, lease.order_group) {
            (Some(order), Some(group)) => order.put(group, offset, was_live, live, self.clock_ms),
            _ => false,
        }
    }

    /// Removes a row; answers it and whether its group became available by that.
    pub(super) fn remove(&mut self, offset: u64) -> Option<(Lease, bool)> {
        let lease = self.open.remove(&offset)?;
        let deadline = lease.deadline_ms();
        let was_live = deadline > self.clock_ms;
        self.due.remove(&(deadline, offset));
        self.rename(offset, lease.attempt, 0);
        self.expired -= usize::from(!was_live);
        let available = match (&mut self.order, lease.order_group) {
            (Some(order), Some(group)) => order.remove(group, offset, was_live, self.clock_ms),
            _ => false,
        };
        Some((lease, available))
    }

    fn rename(&mut self, offset: u64, old: u32, new: u32) {
        if old == new {
            return;
        }
        if old != 0 {
            self.named.remove(&(old, offset));
        }
        if new != 0 {
            self.named.insert((new, offset));
        }
    }

    /// Open rows that a receive of this name took, in order.
    pub(super) fn named(&self, attempt: u32) -> impl Iterator<Item = (u64, &Lease)> {
        let rows = self.named.range((attempt, 0)..=(attempt, u64::MAX));
        rows.filter_map(|(_, offset)| Some((*offset, self.open.get(offset)?)))
    }

    /// The expired row that comes after `cursor`, the oldest deadline first.
    pub(super) fn next_expired(&self, cursor: Option<(i64, u64)>) -> Option<(i64, u64)> {
        let from = cursor.map_or(Bound::Unbounded, Bound::Excluded);
        self.due.range((from, Bound::Unbounded)).next().copied().filter(|(deadline, _)| *deadline <= self.clock_ms)
    }

    /// The earliest deadline later than `after_ms`.
    pub(super) fn next_deadline(&self, after_ms: i64) -> Option<i64> {
        self.due.range((Bound::Excluded((after_ms, u64::MAX)), Bound::Unbounded)).next().map(|(deadline, _)| *deadline)
    }
}
