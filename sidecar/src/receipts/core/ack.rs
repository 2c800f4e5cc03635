//! Acks, changes and forwards by clients: they always win over what the manager itself does.

use waybill_protocol::handle::ReceiptHandle;

use super::{Core, Dropped, Find, Id, entry::Duty, timetable::Handles};
use crate::receipts::{
    changer::ChangeError,
    types::{AckOutcome, ChangeOutcome, Holder},
};

/// What a client wants to do with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// Finish it: ack, or forward to the dead-letter topic.
    Finish,
    /// Change its invisible duration.
    Change,
}

/// An ack or a change has begun: the handle is not renewed and not returned until its end is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begun {
    /// Comes back in [`Core::end_ack`] or [`Core::end_change`], or in [`Core::resume`] or [`Core::cancel`] while it
    /// waits.
    pub id: Id,
    /// The newest handle.
    pub handle: ReceiptHandle,
    /// Something else is under way with this message whose result matters. At the end of each such thing:
    /// [`Core::resume`].
    pub wait: bool,
}

impl Core {
    /// A client wants to ack or change a message. `None` if it is not held here; the broker knows what the client's own
    /// handle is worth.
    ///
    /// Where handles stay valid an ack waits for nothing. Where they do not, whatever changes the handle goes alone: an
    /// ack with the handle before would be answered OK without effect. A change always goes alone with other changes
    /// and renewals, or not it but they could be the last word.
    pub fn begin(&mut self, holder: Holder<'_>, find: Find<'_>, intent: Intent) -> Option<Begun> {
        let slot = self.find(holder, find)?;
        let entry = self.entries.get_mut(slot)?;
        entry.operations = entry.operations.checked_add(1)?;
        self.unplace(slot);
        self.enter(slot, intent)
    }

    /// Something that an ack or change waited for has ended. `None` if the message is not held any more: then its last
    /// handle must do.
    pub fn resume(&mut self, id: Id, intent: Intent) -> Option<Begun> {
        let slot = self.slot_of(id)?;
        self.enter(slot, intent)
    }

    fn enter(&mut self, slot: u32, intent: Intent) -> Option<Begun> {
        let (id, handle) = (self.id_of(slot)?, self.handle_of(slot)?);
        let entry = self.entries.get_mut(slot)?;
        let lane = self.names.targets.get(entry.target)?.lane;
        let stable = entry.is_ordered() || self.timetable.handles(lane) == Handles::Stable;
        let changing = entry.in_flight || entry.changing;
        let wait = match intent {
            Intent::Finish => changing && !stable,
            Intent::Change => changing || (entry.finishing > 0 && !stable),
        };
        match intent {
            _ if wait => {}
            Intent::Finish => entry.finishing += 1,
            Intent::Change => entry.changing = true,
        }
        Some(Begun { id, handle, wait })
    }

    /// An ack or change that still waits is given up.
    pub fn cancel(&mut self, now: i64, id: Id) {
        if let Some(slot) = self.slot_of(id) {
            self.end_operation(now, slot);
        }
    }

    /// An ack (or forward) has ended.
    pub fn end_ack(&mut self, now: i64, id: Id, outcome: AckOutcome) {
        let Some(slot) = self.slot_of(id) else { return };
        if let Some(entry) = self.entries.get_mut(slot) {
            entry.finishing = entry.finishing.saturating_sub(1);
        }
        match outcome {
            AckOutcome::Done => self.drop_entry(slot, Dropped::Done),
            AckOutcome::Gone => self.drop_entry(slot, Dropped::Gone),
            AckOutcome::Failed => self.end_operation(now, slot),
        }
    }

    /// A change that asked for `invisible_ms` at `sent_at` has ended.
    pub fn end_change(&mut self, now: i64, id: Id, (sent_at, invisible_ms): (i64, i64), outcome: ChangeOutcome) {
        let Some(slot) = self.slot_of(id) else { return };
        if let Some(entry) = self.entries.get_mut(slot) {
            entry.changing = false;
        }
        let (handle, let_go) = match outcome {
            ChangeOutcome::Extended(handle) => (handle, false),
            ChangeOutcome::LetGo(handle) => (handle, true),
            ChangeOutcome::Gone => return self.drop_entry(slot, Dropped::Gone),
            ChangeOutcome::Failed => return self.end_operation(now, slot),
        };
        match self.check(slot, handle) {
            Ok(handle) => {
                // Whatever is still under way began before: its result must not overwrite this one.
                self.land(slot);
                self.adopt(slot, &handle, sent_at.saturating_add(invisible_ms));
                let returning = self.entries.get(slot).is_some_and(|entry| entry.duty == Duty::Return);
                match (let_go, returning) {
                    // The client left meanwhile; what it gave back keeps its back-off.
                    (true, true) => return self.drop_entry(slot, Dropped::LetGo),
                    (true, false) => self.set_duty(slot, Duty::LetGo),
                    (false, _) => self.revive(slot),
                }
                self.end_operation(now, slot);
            }
            Err(ChangeError::Gone) => self.drop_entry(slot, Dropped::Gone),
            Err(_) => self.end_operation(now, slot),
        }
    }

    /// A client that extends what was given up, or let go, holds it again.
    fn revive(&mut self, slot: u32) {
        let Some(entry) = self.entries.get(slot) else { return };
        if matches!(entry.duty, Duty::GaveUp | Duty::LetGo) {
            let duty = Duty::of(entry.mode);
            self.set_duty(slot, duty);
        }
    }

    fn end_operation(&mut self, now: i64, slot: u32) {
        if let Some(entry) = self.entries.get_mut(slot) {
            entry.operations = entry.operations.saturating_sub(1);
        }
        self.schedule(now, slot);
    }
}
