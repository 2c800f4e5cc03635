//! What is due, what goes to the broker, and what its answers mean.

use std::sync::Arc;

use waybill_protocol::handle::ReceiptHandle;

use super::{
    Core, Dropped, Flight,
    entry::{Duty, Place},
    timetable::Handles,
};
use crate::receipts::{changer::ChangeError, types::DrainPolicy};

/// Times are rounded to this, so that what is due at almost the same moment shares a request. Renewals are rounded
/// down, ends of leases up.
const TICK_MS: i64 = 100;
const RETURN_RETRY_FIRST_MS: i64 = 500;
const RETURN_RETRY_LAST_MS: i64 = 5_000;
/// The last retry of a renewal leaves so much of the lease for the request itself.
const LAST_CALL_MS: i64 = 1_000;
const RETRY_FIRST_MS: i64 = 100;
const DEFAULT_STEP_MS: i64 = 60_000;
/// Entries looked at in one go (or those of one request, if that may have more), so that acks never wait long.
const LOOK_AT: usize = 1_024;

/// What a request wants for one handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Extend the lease.
    Renew,
    /// Held for longer than `renewMaxTimeMillis`: end it with the group's back-off.
    LetGo,
    /// Give the message back.
    Return,
}

/// How long the message is to stay invisible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// So many milliseconds.
    For(i64),
    /// As the group's retry policy says after so many earlier deliveries.
    Backoff(i32),
}

/// One handle's part of a request.
#[derive(Clone, Debug)]
pub struct Item {
    /// Comes back with the result.
    pub flight: Flight,
    /// The newest handle.
    pub handle: ReceiptHandle,
    /// What it is for.
    pub purpose: Purpose,
    /// The new invisible duration.
    pub ask: Ask,
    /// The client never got the message: do not count the delivery.
    pub suspend: bool,
}

/// One request to one broker. When it has ended, in whatever way, each item must be settled and the lane freed.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Comes back in [`Core::end_request`].
    pub lane: u32,
    /// The consumer group.
    pub group: Arc<str>,
    /// The topic, never a retry topic.
    pub topic: Arc<str>,
    /// The broker.
    pub broker: Arc<str>,
    /// When it was made; leases are counted from here.
    pub sent_at: i64,
    /// At least one, the most urgent first.
    pub items: Vec<Item>,
}

/// What [`Core::step`] found.
#[derive(Debug)]
pub enum Step {
    /// A request to be sent. Ask again.
    Send(Batch),
    /// There may be more to do. Ask again.
    Again,
    /// Nothing, until something happens or [`Core::next_wake`].
    Rest,
}

impl Core {
    /// The next request that may be sent now, if any. Ask until there is none.
    pub fn next_batch(&mut self, now: i64) -> Option<Batch> {
        loop {
            match self.step(now, &|_| usize::MAX) {
                Step::Send(batch) => return Some(batch),
                Step::Again => {}
                Step::Rest => return None,
            }
        }
    }

    /// [`Self::next_batch`] in short steps, so that the lock may be given up in between. `limit` says how many leases a
    /// request to a broker may be about, if that is less than the settings allow.
    ///
    /// A request that could hold more waits until all that is due was looked at: what a client held of several topics
    /// lies mixed.
    pub fn step(&mut self, now: i64, limit: &dyn Fn(&str) -> usize) -> Step {
        self.forget_gone_clients(now);
        let mut again = false;
        for lane in 0..self.timetable.lanes() {
            let more = self.move_due(now, lane);
            while self.timetable.has_capacity(lane, self.policy.max_requests_per_broker) {
                let Some(target) = self.timetable.most_urgent(lane) else { break };
                let most = self.most_of(target, limit);
                if more && self.timetable.ready_of(target) < most {
                    break;
                }
                if let Some(batch) = self.batch(now, lane, target, most) {
                    return Step::Send(batch);
                }
            }
            again |= more && self.timetable.has_capacity(lane, self.policy.max_requests_per_broker);
        }
        if again { Step::Again } else { Step::Rest }
    }

    /// The most entries that a request about a target may have.
    fn most_of(&self, target: u32, limit: &dyn Fn(&str) -> usize) -> usize {
        let limit = self.names.targets.get(target).map_or(1, |target| limit(&target.broker));
        self.policy.max_batch.min(limit).max(1)
    }

    /// When [`Core::next_batch`] has something to do next, if nothing happens before. May be in the past.
    #[must_use]
    pub fn next_wake(&self, now: i64) -> Option<i64> {
        self.timetable.next(now, self.policy.max_requests_per_broker)
    }

    /// For how long the handle that is due for the longest has waited for a request, in milliseconds.
    #[must_use]
    pub fn lag(&self, now: i64) -> i64 {
        self.timetable.oldest().map_or(0, |at| now.saturating_sub(at).max(0))
    }

    /// Requests under way.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.timetable.requests()
    }

    /// A request has ended: another may be sent to that broker.
    pub fn end_request(&mut self, lane: u32) {
        self.timetable.request_ended(lane);
    }

    /// The result for one item of a batch that was sent at `sent_at` asking for `invisible_ms`.
    ///
    /// Answers the newest handle if acks or changes of this message are under way; those that wait may try again.
    pub fn settle(
        &mut self,
        now: i64,
        flight: Flight,
        purpose: Purpose,
        (sent_at, invisible_ms): (i64, i64),
        result: Result<ReceiptHandle, ChangeError>,
    ) -> Option<ReceiptHandle> {
        let slot = self.slot_of(flight.id);
        let current =
            |slot: &u32| self.entries.get(*slot).is_some_and(|entry| entry.in_flight && entry.flight == flight.number);
        let Some(slot) = slot.filter(current) else {
            self.counters.stale += 1;
            return None;
        };
        self.land(slot);
        let awaited = self.entries.get(slot).is_some_and(|entry| entry.operations > 0);
        match result.and_then(|handle| self.check(slot, handle)) {
            Ok(handle) => {
                self.adopt(slot, &handle, sent_at.saturating_add(invisible_ms));
                self.changed(now, slot, purpose);
                awaited.then_some(handle)
            }
            Err(error) => {
                self.counters.count_failed(error);
                let newest = awaited.then(|| self.handle_of(slot)).flatten();
                self.failed(now, slot, purpose, error);
                newest
            }
        }
    }

    /// A new handle from the broker is worth something only if it is of the same message and alive.
    pub(super) fn check(&self, slot: u32, handle: ReceiptHandle) -> Result<ReceiptHandle, ChangeError> {
        // Apache's answer for an ordered message that was acked meanwhile: success, with all numbers zero.
        if handle.pop_time <= 0 {
            return Err(ChangeError::Gone);
        }
        let entry = self.entries.get(slot).ok_or(ChangeError::Gone)?;
        let target = self.names.targets.get(entry.target).ok_or(ChangeError::Gone)?;
        if entry.is_succeeded_by(&handle, target) { Ok(handle) } else { Err(ChangeError::Other) }
    }

    /// Takes over a checked handle, and learns from it how this broker's handles behave.
    pub(super) fn adopt(&mut self, slot: u32, handle: &ReceiptHandle, deadline: i64) {
        let Some(entry) = self.entries.get_mut(slot) else { return };
        let handles = if entry.pop_time == handle.pop_time { Handles::Stable } else { Handles::Moving };
        let target = entry.target;
        let ordered = entry.is_ordered();
        entry.set_handle(handle);
        entry.deadline = deadline;
        entry.retries = 0;
        if let (false, Some(target)) = (ordered, self.names.targets.get(target)) {
            self.timetable.learn(target.lane, handles);
        }
    }

    /// The request about an entry is over.
    pub(super) fn land(&mut self, slot: u32) {
        let Some(entry) = self.entries.get_mut(slot) else { return };
        if std::mem::replace(&mut entry.in_flight, false) {
            self.in_flight = self.in_flight.saturating_sub(1);
        }
        entry.flight = entry.flight.wrapping_add(1);
    }

    fn changed(&mut self, now: i64, slot: u32, purpose: Purpose) {
        let returning = self.entries.get(slot).is_some_and(|entry| entry.duty == Duty::Return);
        match purpose {
            // Whatever has happened to the client meanwhile: the message is not its own any more.
            Purpose::Return => return self.drop_entry(slot, Dropped::Returned),
            Purpose::LetGo => {
                self.counters.outlived += 1;
                if returning {
                    return self.drop_entry(slot, Dropped::LetGo);
                }
                self.set_duty(slot, Duty::LetGo);
            }
            Purpose::Renew => {
                self.counters.renewed += 1;
                if let Some(entry) = self.entries.get_mut(slot) {
                    entry.renewals = entry.renewals.saturating_add(1);
                }
            }
        }
        self.schedule(now, slot);
    }

    fn failed(&mut self, now: i64, slot: u32, purpose: Purpose, error: ChangeError) {
        let most = self.policy.max_renew_retry_times;
        let Some(entry) = self.entries.get_mut(slot) else { return };
        // The client left, or came back, meanwhile: what failed is not what is to be done now.
        if error != ChangeError::Gone && (purpose == Purpose::Return) != (entry.duty == Duty::Return) {
            return self.schedule(now, slot);
        }
        entry.retries = entry.retries.saturating_add(1);
        let (duty, retries, left) = (entry.duty, u32::from(entry.retries), entry.deadline.saturating_sub(now));
        match (error, duty) {
            (ChangeError::Gone, _) => return self.drop_entry(slot, Dropped::Gone),
            (ChangeError::Refused, Duty::Return) => return self.drop_entry(slot, Dropped::ReturnRefused),
            (_, Duty::Return) => {
                let delay = RETURN_RETRY_FIRST_MS << (retries - 1).min(8);
                return self.retry_at(now, slot, now.saturating_add(delay.min(RETURN_RETRY_LAST_MS)));
            }
            (ChangeError::Refused, _) => {}
            (_, Duty::Renew) if retries <= most => {
                return self.retry_at(now, slot, now.saturating_add(retry_delay(left, most - retries)));
            }
            _ => {}
        }
        if duty == Duty::Renew {
            self.set_duty(slot, Duty::GaveUp);
        }
        self.schedule(now, slot);
    }

    /// Not after the lease, and rounded down, so that what failed together is tried again together.
    fn retry_at(&mut self, now: i64, slot: u32, at: i64) {
        let Some(entry) = self.entries.get(slot) else { return };
        let at = round_down(at).max(now.saturating_add(1)).min(entry.deadline);
        if entry.operations == 0 {
            self.wait_until(slot, at);
        }
    }

    /// When an entry with this duty has to be looked at.
    pub(super) fn due_at(&self, now: i64, duty: Duty, deadline: i64) -> i64 {
        match duty {
            Duty::Return => now,
            // Half of what is left, for leases shorter than the lead.
            Duty::Renew => {
                let ahead = self.policy.renew_ahead_ms.min(deadline.saturating_sub(now) / 2).max(0);
                round_down(deadline.saturating_sub(ahead))
            }
            Duty::Keep | Duty::GaveUp | Duty::LetGo => round_up(deadline),
        }
    }

    /// Puts an entry into the timetable, unless a request or an ack is under way: the end of that will.
    pub(super) fn schedule(&mut self, now: i64, slot: u32) {
        let Some(entry) = self.entries.get(slot) else { return };
        if entry.in_flight || entry.operations > 0 {
            return self.unplace(slot);
        }
        let (duty, deadline) = (entry.duty, entry.deadline);
        self.wait_until(slot, self.due_at(now, duty, deadline));
    }

    /// What of a lane is due becomes ready, or ends: so much at most that it takes little time. Answers whether there may
    /// be more.
    fn move_due(&mut self, now: i64, lane: u32) -> bool {
        // First all reads that miss the cache, which the processor can do at the same time, then the work.
        let most = LOOK_AT.max(self.policy.max_batch);
        let due = std::iter::from_fn(|| self.timetable.pop_due(lane, now)).take(most);
        let entries = &self.entries;
        let due = due.filter_map(|slot| {
            let entry = entries.get(slot)?;
            entry.fetch();
            Some((slot, entry.deadline, entry.duty))
        });
        let due: Vec<_> = due.collect();
        let more = due.len() >= most;
        for (slot, deadline, duty) in due {
            if let Some(entry) = self.entries.get_mut(slot) {
                entry.place = Place::Nowhere;
            }
            match self.duty_now(now, slot, deadline, duty) {
                None => {}
                Some(Duty::Renew | Duty::Return) => self.make_ready(slot),
                Some(Duty::Keep | Duty::GaveUp | Duty::LetGo) => self.wait_until(slot, round_up(deadline)),
            }
        }
        more
    }

    /// What is to be done about an entry whose time has come; nothing if its lease is over, then it is forgotten.
    fn duty_now(&mut self, now: i64, slot: u32, deadline: i64, duty: Duty) -> Option<Duty> {
        if deadline <= now {
            let why = match duty {
                Duty::Renew => Dropped::Late,
                Duty::Keep => Dropped::Expired,
                Duty::GaveUp => Dropped::GaveUp,
                Duty::LetGo => Dropped::LetGo,
                Duty::Return => Dropped::ReturnExpired,
            };
            self.drop_entry(slot, why);
            return None;
        }
        if duty == Duty::Renew && self.draining == Some(DrainPolicy::LeaveToLease) {
            self.set_duty(slot, Duty::GaveUp);
            return Some(Duty::GaveUp);
        }
        Some(duty)
    }

    fn batch(&mut self, now: i64, lane: u32, target: u32, most: usize) -> Option<Batch> {
        let found = self.names.targets.get(target)?;
        let (group, topic, broker) = (found.group.clone(), found.topic.clone(), found.broker.clone());
        let mut items = Vec::new();
        while items.len() < most {
            let Some(slot) = self.timetable.pop_ready(target) else { break };
            let Some(entry) = self.entries.get_mut(slot) else { continue };
            entry.place = Place::Nowhere;
            let (deadline, duty, at) = (entry.deadline, entry.duty, entry.at);
            self.timetable.no_longer_due(at);
            match self.duty_now(now, slot, deadline, duty) {
                Some(duty @ (Duty::Renew | Duty::Return)) => items.extend(self.item(now, slot, duty)),
                Some(_) => self.schedule(now, slot),
                None => {}
            }
        }
        if items.is_empty() {
            return None;
        }
        self.timetable.request_began(lane);
        Some(Batch { lane, group, topic, broker, sent_at: now, items })
    }

    fn item(&mut self, now: i64, slot: u32, duty: Duty) -> Option<Item> {
        self.keep_from_shedding(slot);
        let (id, handle) = (self.id_of(slot)?, self.handle_of(slot)?);
        let entry = self.entries.get_mut(slot)?;
        entry.in_flight = true;
        self.in_flight += 1;
        let (purpose, ask) = if duty == Duty::Return {
            (Purpose::Return, Ask::For(self.policy.clear_invisible_ms.max(0)))
        } else if now.saturating_sub(entry.held_since) >= self.policy.renew_max_time_ms {
            (Purpose::LetGo, Ask::Backoff(entry.reconsume_times.into()))
        } else {
            let steps = &self.policy.renew_steps_ms;
            let step = steps.get(usize::from(entry.renewals)).or(steps.last());
            (Purpose::Renew, Ask::For(step.copied().unwrap_or(DEFAULT_STEP_MS).max(1)))
        };
        let suspend = duty == Duty::Return && entry.undelivered;
        Some(Item { flight: Flight { id, number: entry.flight }, handle, purpose, ask, suspend })
    }
}

/// How long after a failure a renewal is tried again, with `left` of the lease left and `more` retries to follow.
///
/// The pauses double, and the last retry is shortly before the lease ends: what hinders it may be over by then, and
/// nothing is lost before.
fn retry_delay(left: i64, more: u32) -> i64 {
    let last = left.saturating_sub(LAST_CALL_MS.min(left / 4));
    let delay = if more == 0 { last } else { left >> (more + 1).min(62) };
    delay.max(RETRY_FIRST_MS).min(last).max(0)
}

fn round_down(at: i64) -> i64 {
    at.saturating_sub(at.rem_euclid(TICK_MS))
}

fn round_up(at: i64) -> i64 {
    round_down(at.saturating_add(TICK_MS - 1))
}
