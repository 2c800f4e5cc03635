//! What must be true of each delivery, kept in the plainest way.

use waybill_protocol::handle::ReceiptHandle;
use waybill_sidecar::receipts::{Mode, core::Purpose};

/// One delivery that was registered.
pub struct Delivery {
    pub client: usize,
    pub place: usize,
    pub mode: Mode,
    /// Which way the switch was.
    pub popped_in_renewal: bool,
    /// What the client got, and what it got from changes.
    pub known: Vec<ReceiptHandle>,
    /// What the manager must hold as the newest handle; nothing if it must not hold the delivery.
    pub newest: Option<ReceiptHandle>,
    /// Why it must not be held any more; for the message of a failed check.
    pub forgotten: &'static str,
    pub held_since: i64,
    /// When the manager must think that the lease ends.
    pub deadline: i64,
    pub operations: u32,
    /// What the request under way is for.
    pub flight: Option<Purpose>,
    pub returning: bool,
    pub undelivered: bool,
    pub let_go: bool,
    /// Renewal failed for good.
    pub gave_up: bool,
    pub renewals: usize,
    /// Failed renewals in a row.
    pub failures: u32,
    /// The broker did something and the manager was never told: its handle and its deadline may be wrong.
    pub answer_lost: bool,
}

impl Delivery {
    pub fn first(&self) -> &ReceiptHandle {
        &self.known[0]
    }

    /// Whether the manager may have forgotten it by itself.
    pub fn is_over(&self, now: i64) -> bool {
        self.deadline <= now
    }

    /// Whether the broker may think otherwise of the lease than the manager: it was over, or the answer that tells it
    /// was lost or is on its way.
    pub fn is_doubtful(&self, now: i64) -> bool {
        let ending = matches!(self.flight, Some(Purpose::Return | Purpose::LetGo));
        self.newest.is_none() || self.is_over(now) || self.answer_lost || ending
    }

    /// Whether it must have forgotten it, after it was given the chance at `now`: timers are rounded.
    pub fn must_be_forgotten(&self, now: i64) -> bool {
        self.deadline + 100 <= now && self.operations == 0 && self.flight.is_none()
    }

    pub fn forget(&mut self, why: &'static str) {
        self.newest = None;
        self.forgotten = why;
    }

    /// Its client is gone, or never got it.
    pub fn go_back(&mut self) {
        if !self.let_go && !self.returning {
            self.returning = true;
            self.gave_up = false;
            self.failures = 0;
        }
    }
}
