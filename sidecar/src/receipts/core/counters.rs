//! What the core counts. Plain numbers; the metrics read them.

use crate::receipts::changer::ChangeError;

/// Why a handle is not held any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// Acked, or forwarded to the dead-letter topic.
    Done,
    /// The broker said that the handle is dead.
    Gone,
    /// Returned to the broker.
    Returned,
    /// Let go (negative ack, or held longer than `renewMaxTimeMillis`), and the time it was let go for is over.
    LetGo,
    /// Not to be renewed, and the lease is over.
    Expired,
    /// To be renewed, but the lease was over first: the message is probably delivered to another.
    Late,
    /// Renewal failed too often or was refused, and the lease is over.
    GaveUp,
    /// To be returned, but the lease was over first.
    ReturnExpired,
    /// The broker refuses that the message is returned.
    ReturnRefused,
    /// A limit was reached.
    Shed,
    /// The same message was delivered again.
    Replaced,
}

impl Dropped {
    /// All of them, in the order of their values.
    pub const ALL: [Self; 11] = [
        Self::Done,
        Self::Gone,
        Self::Returned,
        Self::LetGo,
        Self::Expired,
        Self::Late,
        Self::GaveUp,
        Self::ReturnExpired,
        Self::ReturnRefused,
        Self::Shed,
        Self::Replaced,
    ];

    /// The name in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Gone => "gone",
            Self::Returned => "returned",
            Self::LetGo => "let_go",
            Self::Expired => "expired",
            Self::Late => "late",
            Self::GaveUp => "gave_up",
            Self::ReturnExpired => "return_expired",
            Self::ReturnRefused => "return_refused",
            Self::Shed => "shed",
            Self::Replaced => "replaced",
        }
    }
}

/// Counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Handles taken over.
    pub registered: u64,
    /// Handles not taken over because a limit was reached.
    pub refused: u64,
    /// Leases extended.
    pub renewed: u64,
    /// Leases let go because they were held longer than `renewMaxTimeMillis`.
    pub outlived: u64,
    /// Results that came too late to matter.
    pub stale: u64,
    pub(super) failed: [u64; ChangeError::ALL.len()],
    pub(super) dropped: [u64; Dropped::ALL.len()],
}

impl Counters {
    /// Requests about one handle that failed with this error.
    #[must_use]
    pub fn failed(&self, error: ChangeError) -> u64 {
        self.failed.get(error as usize).copied().unwrap_or(0)
    }

    /// Handles not held any more for this reason.
    #[must_use]
    pub fn dropped(&self, why: Dropped) -> u64 {
        self.dropped.get(why as usize).copied().unwrap_or(0)
    }

    pub(super) fn count_failed(&mut self, error: ChangeError) {
        if let Some(count) = self.failed.get_mut(error as usize) {
            *count += 1;
        }
    }

    pub(super) fn count_dropped(&mut self, why: Dropped) {
        if let Some(count) = self.dropped.get_mut(why as usize) {
            *count += 1;
        }
    }
}
