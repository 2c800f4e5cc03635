//! The right to do something with one message, and the duty to tell how it ended.

use std::sync::Arc;

use waybill_protocol::handle::ReceiptHandle;

use super::{
    core::{Begun, Id, Intent},
    shared::Shared,
    types::{AckOutcome, ChangeOutcome},
};

/// How far an ack or change is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// It waits for something else under way with the message.
    Waiting,
    /// It is on its way to the broker.
    Entered(Intent),
}

/// Keeps a handle from being renewed and returned until its end is told.
pub(super) struct Ticket {
    /// Nothing if the handle is not held here, or once the end was told.
    held: Option<(Arc<Shared>, Id)>,
    stage: Stage,
    pub(super) handle: ReceiptHandle,
}

impl Ticket {
    pub(super) fn waiting(shared: Arc<Shared>, begun: Begun) -> Self {
        Self { held: Some((shared, begun.id)), stage: Stage::Waiting, handle: begun.handle }
    }

    pub(super) fn of_unknown(handle: ReceiptHandle) -> Self {
        Self { held: None, stage: Stage::Waiting, handle }
    }

    /// It may go now, with this handle.
    pub(super) fn enter(&mut self, intent: Intent, handle: ReceiptHandle) {
        self.stage = Stage::Entered(intent);
        self.handle = handle;
    }

    /// The message is not held any more.
    pub(super) fn release(&mut self) {
        self.held = None;
    }
}

/// A call that was cancelled, or panicked, in the middle: nobody knows how it ended, so the handle stays.
impl Drop for Ticket {
    fn drop(&mut self) {
        let Some((shared, id)) = self.held.take() else { return };
        match self.stage {
            Stage::Waiting => shared.end(id, |core, now| core.cancel(now, id)),
            Stage::Entered(Intent::Finish) => shared.end(id, |core, now| core.end_ack(now, id, AckOutcome::Failed)),
            Stage::Entered(Intent::Change) => {
                shared.end(id, |core, now| core.end_change(now, id, (now, 0), ChangeOutcome::Failed));
            }
        }
    }
}

/// The right to ack (or to forward to the dead-letter topic) one message.
///
/// Dropped without [`AckTicket::done`] (the call was cancelled) it counts as [`AckOutcome::Failed`].
pub struct AckTicket(Ticket);

impl AckTicket {
    pub(super) fn new(ticket: Ticket) -> Self {
        Self(ticket)
    }

    /// What to send to the broker.
    #[must_use]
    pub fn handle(&self) -> &ReceiptHandle {
        &self.0.handle
    }

    /// Whether the handle is held here.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.0.held.is_some()
    }

    /// Tells how it ended.
    pub fn done(mut self, outcome: AckOutcome) {
        if let Some((shared, id)) = self.0.held.take() {
            shared.end(id, |core, now| core.end_ack(now, id, outcome));
        }
    }
}

/// The right to change the invisible duration of one message. Dropped without [`ChangeTicket::done`] it counts as
/// [`ChangeOutcome::Failed`].
pub struct ChangeTicket {
    ticket: Ticket,
    sent_at: i64,
    invisible_ms: i64,
}

impl ChangeTicket {
    pub(super) fn new(ticket: Ticket, sent_at: i64, invisible_ms: i64) -> Self {
        Self { ticket, sent_at, invisible_ms }
    }

    /// What to send to the broker.
    #[must_use]
    pub fn handle(&self) -> &ReceiptHandle {
        &self.ticket.handle
    }

    /// Whether the handle is held here.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.ticket.held.is_some()
    }

    /// Tells how it ended.
    pub fn done(mut self, outcome: ChangeOutcome) {
        if let Some((shared, id)) = self.ticket.held.take() {
            shared.end(id, |core, now| core.end_change(now, id, (self.sent_at, self.invisible_ms), outcome));
        }
    }
}
