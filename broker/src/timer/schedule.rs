//! When the messages that wait are looked at, and who may take one.

use std::collections::HashSet;

use crate::store::HeldRow;

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Nothing is due before this time, milliseconds since 1970; `None`: nothing waits.
    Wait(Option<u64>),
    /// Rows from this time and position on are due, and those before `until_ms`. Read some, and tell [`Timer::found`].
    Rows {
        /// The key to start from.
        from: (u64, u64),
        /// The first time that is not due yet, milliseconds since 1970.
        until_ms: u64,
        /// There may be a backlog. If the rows that were read fill a batch and end before this key, read a few from it on, too, and
        /// tell [`Timer::found_fresh`].
        fresh: Option<(u64, u64)>,
    },
}

/// Why a message cannot be recalled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It is on its way to its queue.
    TooLate,
    /// Somebody is recalling it just now.
    Recalled,
}

/// The order in which delayed messages go to their queues: by the time they are due, in batches, and none twice.
///
/// Time is looked at in steps of `precision_ms`: at each step everything is due whose time has come by then, so nothing is early and
/// nothing later than a step and the work before it. The rows are in the store, in the order of (due time, position in the log); this
/// keeps only up to where they are done, and the time of the first that is left. A row that is committed late, behind that place, is
/// told with [`Timer::held`] and looked at again.
///
/// While older ones wait in a long line, a part of each batch is for those of the last step: a million messages of one second, or of
/// an hour without a broker, do not make late what is due now.
#[derive(Debug)]
pub struct Timer {
    precision_ms: u64,
    /// Rows before this key are done.
    from: (u64, u64),
    /// So are those of the last step before this key.
    fresh: (u64, u64),
    /// No row is due before this time; `u64::MAX` if none is known.
    earliest_ms: u64,
    /// Positions of messages in the batch that is being written.
    moving: HashSet<u64>,
    /// Positions of messages whose recall is being written.
    recalling: HashSet<u64>,
}

impl Timer {
    /// One that has looked at nothing yet. `precision_ms` 0 is taken for 1.
    #[must_use]
    pub fn new(precision_ms: u64) -> Self {
        Self {
            precision_ms: precision_ms.max(1),
            from: (0, 0),
            fresh: (0, 0),
            earliest_ms: 0,
            moving: HashSet::new(),
            recalling: HashSet::new(),
        }
    }

    /// A row with this due time is in the store. True if that is sooner than anything before: whoever waits looks again.
    pub fn held(&mut self, due_ms: u64) -> bool {
        self.from = self.from.min((due_ms, 0));
        self.fresh = self.fresh.min((due_ms, 0));
        let sooner = due_ms < self.earliest_ms;
        self.earliest_ms = self.earliest_ms.min(due_ms);
        sooner
    }

    /// What to do at this time.
    #[must_use]
    pub fn look(&self, now_ms: u64) -> Look {
        let step = now_ms - now_ms % self.precision_ms;
        if self.earliest_ms <= step {
            let until_ms = step.saturating_add(1);
            let last_step = until_ms.saturating_sub(self.precision_ms);
            let fresh = self.fresh.max((last_step, 0));
            let fresh = (self.earliest_ms < last_step && fresh < (until_ms, 0)).then_some(fresh);
            return Look::Rows { from: self.from, until_ms, fresh };
        }
        let at = self.earliest_ms.div_ceil(self.precision_ms).saturating_mul(self.precision_ms);
        Look::Wait((self.earliest_ms != u64::MAX).then_some(at))
    }

    /// These rows are there, in order, from the key on that [`Look::Rows`] named. `done_until_ms`: there are no more before this time.
    /// Answers which of them to move, in one batch; then comes [`Timer::moved`] or [`Timer::failed`].
    pub fn found(&mut self, rows: &[HeldRow], done_until_ms: Option<u64>) -> Vec<HeldRow> {
        if let Some(last) = rows.last() {
            self.from = (last.time_ms, last.position.saturating_add(1));
            self.earliest_ms = last.time_ms;
        }
        if let Some(until) = done_until_ms {
            self.from = (until, 0);
            self.earliest_ms = until;
        }
        self.free(rows)
    }

    /// These rows are there, in order, from the key on that [`Look::Rows`] named for the last step. `done_until_ms`: there are no more
    /// before this time. Answers which of them to move, in the batch of [`Timer::found`].
    pub fn found_fresh(&mut self, rows: &[HeldRow], done_until_ms: Option<u64>) -> Vec<HeldRow> {
        if let Some(last) = rows.last() {
            self.fresh = (last.time_ms, last.position.saturating_add(1));
        }
        if let Some(until) = done_until_ms {
            self.fresh = (until, 0);
        }
        self.free(rows)
    }

    /// Those that are nobody else's are being moved from now on.
    fn free(&mut self, rows: &[HeldRow]) -> Vec<HeldRow> {
        let free: Vec<_> = rows.iter().filter(|row| !self.recalling.contains(&row.position)).copied().collect();
        self.moving.extend(free.iter().map(|row| row.position));
        free
    }

    /// The time of the first row that is left, if there is one; asked for when everything that was due is done.
    pub fn next_is(&mut self, due_ms: Option<u64>) {
        self.earliest_ms = due_ms.unwrap_or(u64::MAX);
    }

    /// The batch is written.
    pub fn moved(&mut self) {
        self.moving.clear();
    }

    /// The batch could not be written: everything is looked at again.
    pub fn failed(&mut self) {
        self.moving.clear();
        (self.from, self.fresh, self.earliest_ms) = ((0, 0), (0, 0), 0);
    }

    /// Takes a message, which is in the store, out of the timer's hands. Then comes [`Timer::recalled`], however that ended.
    ///
    /// # Errors
    /// It is in other hands.
    pub fn recall(&mut self, position: u64) -> Result<(), Refusal> {
        if self.moving.contains(&position) {
            return Err(Refusal::TooLate);
        }
        if self.recalling.insert(position) { Ok(()) } else { Err(Refusal::Recalled) }
    }

    /// The recall has ended: the row is gone from the store, or, with `still_due_ms`, it stays after all.
    pub fn recalled(&mut self, position: u64, still_due_ms: Option<u64>) {
        self.recalling.remove(&position);
        if let Some(due_ms) = still_due_ms {
            self.held(due_ms);
        }
    }

    /// For how long, in milliseconds, the first message that is left has been due.
    #[must_use]
    pub fn overdue_ms(&self, now_ms: u64) -> u64 {
        // 0 is not a time but: nothing was looked at yet.
        if self.earliest_ms == 0 { 0 } else { now_ms.saturating_sub(self.earliest_ms) }
    }
}
