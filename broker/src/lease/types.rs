//! The words of the lease room. Times are milliseconds since 1970, durations milliseconds.

use std::ops::Range;

pub use waybill_protocol::remoting::ChangedBy;

/// Longest time or duration that is told apart from longer ones (about 8,900 years); what is longer counts as this.
pub const MAX_MS: i64 = 1 << 48;
/// Counters of attempts and changes stop here.
pub const MAX_COUNT: u32 = (1 << 28) - 1;
/// The order group of messages that have no message group.
pub const NO_GROUP: u32 = 0;

/// One open row: the latest delivery of a message that is not done, or a message that waits for its predecessors (`attempts` 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// When it was given out; with queue and offset the identity of the delivery. Kept by changes of the invisible duration.
    pub pop_time_ms: i64,
    /// Deadline − pop time. Can be negative, when the pop time had to be put later than the clock.
    pub invisible_ms: i64,
    /// When the message was first given out.
    pub first_pop_ms: i64,
    /// Deliveries so far, this one included; 0 = not yet given out (deferred).
    pub attempts: u32,
    /// Changes of the invisible duration of this delivery.
    pub changes: u32,
    /// So many of them were renewals by a sidecar that said so; 255 = 255 or more.
    pub renewals: u8,
    /// Who made the last change.
    pub changed_by: ChangedBy,
    /// Number of the client that holds it, 0 = unknown.
    pub holder: u32,
    /// Hash of the message group; `None` = taken while consumption was not ordered.
    pub order_group: Option<u32>,
    /// This delivery is not to be counted once the message is taken again (`suspend`).
    pub uncounted: bool,
    /// Names the receive that took it; 0 = it had no name.
    pub attempt: u32,
}

impl Lease {
    /// The instant from which the message can be taken again.
    #[must_use]
    pub fn deadline_ms(&self) -> i64 {
        self.pop_time_ms.saturating_add(self.invisible_ms)
    }

    /// Whether somebody holds the message at `now_ms`.
    #[must_use]
    pub fn is_live(&self, now_ms: i64) -> bool {
        self.deadline_ms() > now_ms
    }

    /// Whether the end of the lease was set by whoever gave the message back, so that nobody works on it until then.
    #[must_use]
    pub fn is_given_back(&self) -> bool {
        matches!(self.changed_by, ChangedBy::Client | ChangedBy::Return | ChangedBy::Broker)
    }

    /// Whether the message waits for its predecessors and was not given out yet.
    #[must_use]
    pub fn is_deferred(&self) -> bool {
        self.attempts == 0
    }

    /// Deliveries that count against the limit of attempts.
    #[must_use]
    pub fn counted(&self) -> u32 {
        self.attempts.saturating_sub(u32::from(self.uncounted))
    }
}

/// How far a group has come in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// First offset never considered.
    pub next: u64,
    /// Pop times in this queue are later than this (set by a reset, so that handles from before it name nothing).
    pub pop_floor_ms: i64,
}

/// One row to write; all of one call belong into one batch, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Write the row of queue and offset.
    Put(u32, u64, Lease),
    /// Remove the row of queue and offset: done.
    Delete(u32, u64),
    /// Write the progress of the queue.
    Progress(u32, Progress),
}

/// Names one delivery of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseRef {
    /// Queue id.
    pub queue: u32,
    /// Offset in the queue.
    pub offset: u64,
    /// Pop time of the delivery.
    pub pop_time_ms: i64,
}

/// What an acknowledgement came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckOutcome {
    /// Done now. `wake`: a message may have become takeable by it (a successor in its group, or room under the in-flight limit).
    Acked {
        /// Look at the waiting polls again.
        wake: bool,
    },
    /// It was done before; a repetition is harmless.
    AlreadyDone,
    /// The message was given out again since, or never in this form: the handle is invalid.
    Stale,
    /// The queue or the offset was never given out.
    Unknown,
}

/// What a change of the invisible duration came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeOutcome {
    /// Changed; deadline = pop time + invisible duration.
    Changed {
        /// Unchanged pop time of the delivery.
        pop_time_ms: i64,
        /// New invisible duration, counted from the pop time.
        invisible_ms: i64,
    },
    /// The lease ran out before.
    Expired,
    /// The message was given out again since, or never in this form.
    Stale,
    /// The message is done.
    AlreadyDone,
    /// The queue or the offset was never given out.
    Unknown,
}

/// A change of one lease's invisible duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeArgs {
    /// Which delivery.
    pub lease: LeaseRef,
    /// New duration from now, 0..=[`MAX_MS`]; outside counts as the nearer end. 0 = visible at once.
    pub invisible_ms: i64,
    /// `false`: the next delivery is to have the same attempt number as this one (`suspend`).
    pub count: bool,
    /// On whose behalf.
    pub by: ChangedBy,
}

/// What is to be done with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Give it out.
    Deliver,
    /// The subscription does not want it: done, never given out.
    Filtered,
    /// Its body is gone (retention): done.
    Gone,
    /// End this pop before this message and leave it as it is: the answer is full, or the store cannot tell now.
    Stop,
}

/// What the ledger has to know about messages.
pub trait Source {
    /// (smallest, one past the largest) readable offset of the queue.
    fn bounds(&self, queue: u32) -> (u64, u64);
    /// Where a group begins that never read this queue.
    fn start(&mut self, queue: u32) -> u64;
    /// Asked in a pop for each message that could be given out; twice if it is passed over first and its turn comes in the same pop.
    fn examine(&mut self, queue: u32, offset: u64) -> Verdict;
    /// Hash of the message group; asked only if consumption is ordered. `None` = no group.
    fn message_group(&mut self, _queue: u32, _offset: u64) -> Option<u32> {
        None
    }
}

/// A request for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PopArgs {
    /// The time.
    pub now_ms: i64,
    /// Queue ids to look at.
    pub queues: Range<u32>,
    /// Most messages to give out and dead letters to report, together.
    pub max: usize,
    /// Duration of the leases from now, 1..=[`MAX_MS`]; outside counts as the nearer end.
    pub invisible_ms: i64,
    /// Number of the client that takes them, 0 = unknown.
    pub holder: u32,
    /// Names this receive, 0 = it has no name. The same name again by the same client: the answer was lost, and is given again.
    pub attempt: u32,
    /// Deliveries a message gets (at least 1); then it is a dead letter.
    pub max_attempts: u32,
    /// Most live leases per queue; also the most open rows per queue up to which new offsets are considered.
    pub in_flight_max: usize,
    /// Most messages to examine in this pop.
    pub scan_max: usize,
    /// `false`: leave messages without attempts left where they are, because there is no room for dead letters now.
    pub dead_letter: bool,
}

/// A message of a [`Popped`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Queue id.
    pub queue: u32,
    /// Offset in the queue.
    pub offset: u64,
    /// Which delivery this is, from 1; for a dead letter how many there were.
    pub attempts: u32,
    /// When the message was first given out.
    pub first_pop_ms: i64,
}

/// The answer to a pop.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Popped {
    /// Pop time of all messages.
    pub pop_time_ms: i64,
    /// Invisible duration of all messages, counted from the pop time.
    pub invisible_ms: i64,
    /// What is given out, messages of one group in order.
    pub messages: Vec<Taken>,
    /// Messages without attempts left; their rows are among the deletions, so they go to the dead-letter topic in the same batch.
    pub dead: Vec<Taken>,
    /// How much could still be taken now, at most.
    pub rest: u64,
    /// `scan_max` ended the search: pop again, even if nothing was found.
    pub more: bool,
}

/// How many messages are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Given out, and the lease ran out (or was given back): can be taken again, if ordered consumption does not hold it back.
    pub ready: u64,
    /// Held by somebody.
    pub in_flight: u64,
    /// Given back, to be delivered again later: nobody works on them.
    pub waiting: u64,
    /// Passed by the scan or expired, and somebody holds a message of their group.
    pub blocked: u64,
    /// Not done: never considered, or open.
    pub lag: u64,
}

impl Counts {
    /// Messages that a pop could take now, if ordered consumption does not hold them back: never given out, or ready again.
    #[must_use]
    pub fn takeable(&self) -> u64 {
        self.lag.saturating_sub(self.in_flight).saturating_sub(self.waiting).saturating_sub(self.blocked)
    }
}
