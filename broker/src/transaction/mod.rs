//! Transactions: which first halves wait for a decision, when their producers are to be asked, and what was decided. Pure: it is given
//! the time, and says what is to be written.
//!
//! The first decision is final. It is remembered for a while, so that whoever decides again hears what holds; afterwards, and
//! whatever happens, a half that was decided is not open, so no second decision can have an effect.

pub mod schema;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use crate::store::HeldRow;

/// When producers are asked, and how much is remembered. Times are in milliseconds.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// How old a half is when its producer is first asked, unless the message says otherwise.
    pub timeout_ms: i64,
    /// From one question to the next.
    pub interval_ms: i64,
    /// Questions about one half; with none answered it is given up.
    pub checks_max: u32,
    /// A half of this age is given up though nobody could be asked.
    pub give_up_ms: i64,
    /// Halves that may be open at once.
    pub open_max: usize,
    /// Decisions that are remembered, the newest …
    pub decisions_max: usize,
    /// … and for how long.
    pub remember_ms: i64,
}

impl Rules {
    /// When the producer of a half that is taken now is first asked. `immunity_s`: what the message says, in seconds.
    #[must_use]
    pub fn first_check_ms(&self, now_ms: i64, immunity_s: Option<i64>) -> i64 {
        let wait = match immunity_s {
            Some(seconds @ 0..) => seconds.saturating_mul(1_000).min(self.give_up_ms),
            _ => self.timeout_ms,
        };
        now_ms.saturating_add(wait)
    }
}

/// What became of a half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The message goes to its queue.
    Commit,
    /// It never does, says its producer.
    Rollback,
    /// It never does, for its producer did not say.
    GivenUp,
}

/// What is written about a transaction, under the position of its half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Row {
    /// It is open, and its producer was asked.
    Asked {
        /// How often.
        checks: u32,
        /// When it is asked next.
        next_check_ms: i64,
    },
    /// It is decided.
    Decided {
        /// How.
        decision: Decision,
        /// When.
        at_ms: i64,
    },
}

/// What is to be written, in one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The half is open no more.
    Release(HeldRow),
    /// The row of this position.
    Put(u64, Row),
    /// It is remembered no more.
    Forget(u64),
}

/// What came of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It is the first, and holds.
    Now(HeldRow),
    /// This one was first, at that time.
    Before(Decision, i64),
    /// There is no open half, and nothing is remembered: it was decided long ago, or never was.
    Unknown,
}

/// What is to be done about a half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Its producer is to be asked. So often it was before.
    Ask(HeldRow, u32),
    /// It was asked as often as allowed, or it is too old.
    GiveUp(HeldRow, u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Half {
    row: HeldRow,
    checks: u32,
    next_check_ms: i64,
}

/// All transactions of a broker.
#[derive(Debug)]
pub struct Transactions {
    rules: Rules,
    /// By position.
    open: BTreeMap<u64, Half>,
    /// Next check and position of each open half.
    due: BTreeSet<(i64, u64)>,
    decided: HashMap<u64, (Decision, i64)>,
    /// Positions of `decided`, the oldest decision first.
    in_order: VecDeque<u64>,
}

impl Transactions {
    /// From what is written: the rows of open halves, and those of [`Row`].
    #[must_use]
    pub fn restore(
        rules: Rules,
        halves: impl IntoIterator<Item = HeldRow>,
        rows: impl IntoIterator<Item = (u64, Row)>,
    ) -> Self {
        let (open, due, decided) = (BTreeMap::new(), BTreeSet::new(), HashMap::new());
        let mut this = Self { rules, open, due, decided, in_order: VecDeque::new() };
        for row in halves {
            this.accept(row);
        }
        let mut in_order = Vec::new();
        for (position, row) in rows {
            match row {
                Row::Asked { checks, next_check_ms } => this.set(position, checks, next_check_ms),
                Row::Decided { decision, at_ms } => {
                    this.decided.insert(position, (decision, at_ms));
                    in_order.push((at_ms, position));
                }
            }
        }
        in_order.sort_unstable();
        this.in_order = in_order.into_iter().map(|(_, position)| position).collect();
        this
    }

    /// The rules.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Whether another half may be taken.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.open.len() < self.rules.open_max
    }

    /// A half is written. The time of its row is that of the first check.
    pub fn accept(&mut self, row: HeldRow) {
        let next_check_ms = i64::try_from(row.time_ms).unwrap_or(i64::MAX);
        self.open.insert(row.position, Half { row, checks: 0, next_check_ms });
        self.due.insert((next_check_ms, row.position));
    }

    /// The open half at this position.
    #[must_use]
    pub fn open(&self, position: u64) -> Option<HeldRow> {
        self.open.get(&position).map(|half| half.row)
    }

    /// Every open half, by position.
    pub fn iter(&self) -> impl Iterator<Item = &HeldRow> {
        self.open.values().map(|half| &half.row)
    }

    /// What was decided about the half at this position, and when, if that is remembered.
    #[must_use]
    pub fn decided(&self, position: u64) -> Option<(Decision, i64)> {
        self.decided.get(&position).copied()
    }

    /// Somebody decides about the half at this position.
    pub fn end(&mut self, now_ms: i64, position: u64, decision: Decision, changes: &mut Vec<Change>) -> Ended {
        let Some(half) = self.open.remove(&position) else {
            let before = self.decided(position);
            return before.map_or(Ended::Unknown, |(decision, at_ms)| Ended::Before(decision, at_ms));
        };
        self.due.remove(&(half.next_check_ms, position));
        self.decided.insert(position, (decision, now_ms));
        self.in_order.push_back(position);
        changes.push(Change::Release(half.row));
        changes.push(Change::Put(position, Row::Decided { decision, at_ms: now_ms }));
        self.forget(now_ms, changes);
        Ended::Now(half.row)
    }

    /// At most `max` halves about which something is to be done now, the longest due first.
    #[must_use]
    pub fn due(&self, now_ms: i64, max: usize) -> Vec<Due> {
        let due = self.due.range(..=(now_ms, u64::MAX)).take(max);
        let halves = due.filter_map(|(_, position)| self.open.get(position));
        halves
            .map(|half| {
                let age_ms = now_ms.saturating_sub(half.row.store_time_ms);
                if half.checks >= self.rules.checks_max || age_ms >= self.rules.give_up_ms {
                    Due::GiveUp(half.row, half.checks)
                } else {
                    Due::Ask(half.row, half.checks)
                }
            })
            .collect()
    }

    /// The producer is about to be asked. False if there is no need any more.
    pub fn asked(&mut self, now_ms: i64, position: u64, changes: &mut Vec<Change>) -> bool {
        let Some(half) = self.open.get(&position) else { return false };
        let (checks, next_check_ms) = (half.checks.saturating_add(1), now_ms.saturating_add(self.rules.interval_ms));
        self.set(position, checks, next_check_ms);
        changes.push(Change::Put(position, Row::Asked { checks, next_check_ms }));
        true
    }

    /// Nobody can be asked now. It is tried again after the interval; that does not count as a question.
    pub fn postpone(&mut self, now_ms: i64, position: u64) {
        let Some(half) = self.open.get(&position) else { return };
        self.set(position, half.checks, now_ms.saturating_add(self.rules.interval_ms));
    }

    fn set(&mut self, position: u64, checks: u32, next_check_ms: i64) {
        let Some(half) = self.open.get_mut(&position) else { return };
        self.due.remove(&(half.next_check_ms, position));
        (half.checks, half.next_check_ms) = (checks, next_check_ms);
        self.due.insert((next_check_ms, position));
    }

    fn forget(&mut self, now_ms: i64, changes: &mut Vec<Change>) {
        let oldest_ms = now_ms.saturating_sub(self.rules.remember_ms);
        while let Some(position) = self.in_order.front().copied() {
            let old = self.decided.get(&position).is_none_or(|(_, at_ms)| *at_ms < oldest_ms);
            if !old && self.in_order.len() <= self.rules.decisions_max {
                return;
            }
            self.in_order.pop_front();
            self.decided.remove(&position);
            changes.push(Change::Forget(position));
        }
    }
}
