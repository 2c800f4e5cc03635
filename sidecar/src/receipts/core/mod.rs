//! The receipt manager without clock, I/O and tasks: it is given the time and an event, and answers with what is to be
//! done.
//!
//! Time is in milliseconds since any moment, never negative, never going back; leases are measured from when this
//! process saw them, so the clocks of brokers do not matter. Every operation costs O(log held), or O(what it is about),
//! never O(held): but for the first handle that comes after `max_handles` was lowered below what is held.
//!
//! ```text
//!         its time comes                an ack or change begins
//!   Idle ────────────────▶ Renewing     ───────────────────────▶ Acking (any number at once)
//!    ▲ new handle, failed     │ gone                                │ done, gone
//!    └────────────────────────┴──▶ forgotten ◀──────────────────────┤ failed: as before
//!   client gone, not written, drain: Returning ─ done, gone, expired ─▶ forgotten
//! ```
//!
//! Nothing waits for a lock. What may be late carries a generation: tickets of acks that of the entry, requests that of
//! the request as well; what does not match has no effect.

mod ack;
mod counters;
mod entry;
mod hold;
mod latest;
mod leave;
mod names;
mod overload;
mod renew;
mod timetable;

use std::{collections::VecDeque, sync::Arc};

use hashbrown::HashTable;
use waybill_protocol::handle::ReceiptHandle;

pub use self::{
    ack::{Begun, Intent},
    counters::{Counters, Dropped},
    overload::{Limit, NotKept},
    renew::{Ask, Batch, Item, Purpose, Step},
};
use self::{
    entry::{Duty, Entry, NONE, Place, Slab},
    latest::Latest,
    names::Names,
    overload::Overload,
    timetable::Timetable,
};
use super::{
    policy::Policy,
    types::{DrainPolicy, Holder, Stats},
};

/// A return is as urgent as a lease that ends so soon.
const RETURN_WITHIN_MS: i64 = 5_000;

/// Names one held handle, and no later one of the same slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Id {
    slot: u32,
    generation: u32,
}

/// Names one request about one held handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flight {
    /// The handle.
    pub id: Id,
    number: u32,
}

/// How to find a held handle.
#[derive(Clone, Copy, Debug)]
pub enum Find<'a> {
    /// By any handle of the delivery: the one the client got first, the newest, or one between.
    Handle(&'a ReceiptHandle),
    /// By message id; of several deliveries of that message the last.
    MessageId(&'a str),
}

/// All handles that clients of this sidecar hold.
pub struct Core {
    policy: Policy,
    entries: Slab,
    /// Slots by target, queue and offset: one holder per message and group.
    by_delivery: HashTable<u32>,
    /// Slots by owner and message id.
    by_message: HashTable<u32>,
    names: Names,
    timetable: Timetable,
    /// What may be shed, where a limit is near.
    latest: Latest,
    overload: Overload,
    /// When to forget which clients were gone, in order of time.
    gone: VecDeque<(i64, Arc<str>)>,
    draining: Option<DrainPolicy>,
    counters: Counters,
    by_duty: [u64; Duty::ALL],
    in_flight: u64,
}

impl Core {
    /// A manager that holds nothing.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            entries: Slab::new(),
            by_delivery: HashTable::new(),
            by_message: HashTable::new(),
            names: Names::new(),
            timetable: Timetable::new(),
            latest: Latest::default(),
            overload: Overload::default(),
            gone: VecDeque::new(),
            draining: None,
            counters: Counters::default(),
            by_duty: [0; Duty::ALL],
            in_flight: 0,
        }
    }

    /// The settings in force.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// New settings, for everything from now on. What already waits for its time keeps it.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// What was counted since the start.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What is held at this moment.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let of = |duty: Duty| self.by_duty.get(duty as usize).copied().unwrap_or(0);
        Stats {
            held: u64::from(self.entries.len()),
            kept: of(Duty::Keep),
            gave_up: of(Duty::GaveUp),
            let_go: of(Duty::LetGo),
            returning: of(Duty::Return),
            due: self.timetable.ready_len() as u64,
            in_flight: self.in_flight,
            clients: self.names.clients.len() as u64,
        }
    }

    /// The newest handle of a held message.
    #[must_use]
    pub fn newest(&self, holder: Holder<'_>, find: Find<'_>) -> Option<ReceiptHandle> {
        self.handle_of(self.find(holder, find)?)
    }

    /// How often a held message was delivered before.
    #[must_use]
    pub fn earlier_deliveries(&self, holder: Holder<'_>, find: Find<'_>) -> Option<i32> {
        Some(self.entries.get(self.find(holder, find)?)?.reconsume_times.into())
    }

    fn find(&self, holder: Holder<'_>, find: Find<'_>) -> Option<u32> {
        match find {
            Find::Handle(handle) => self.find_delivery(holder, handle),
            Find::MessageId(id) => self.find_message(holder, id),
        }
    }

    /// A handle names its delivery by itself: the client id does not matter.
    fn find_delivery(&self, holder: Holder<'_>, handle: &ReceiptHandle) -> Option<u32> {
        let target = self.names.find_target(holder.group, holder.topic, &handle.broker_name, handle.topic_type)?;
        let slot = self.slot_at(target, handle.queue_id, handle.offset)?;
        self.entries.get(slot).filter(|entry| entry.is_delivery(handle.pop_time)).map(|_| slot)
    }

    fn find_message(&self, holder: Holder<'_>, id: &str) -> Option<u32> {
        let owner = self.names.find_owner(self.names.find_client(holder.client)?, holder.group)?;
        let message = self.message_hash(id);
        self.by_message
            .iter_hash(self.names.hash((owner, message)))
            .filter_map(|&slot| {
                let entry = self.entries.get(slot)?;
                let target = self.names.targets.get(entry.target)?;
                (entry.owner == owner && entry.message == message && *target.topic == *holder.topic)
                    .then_some((entry.pop_time, slot))
            })
            .max()
            .map(|(_, slot)| slot)
    }

    fn slot_at(&self, target: u32, queue_id: i32, offset: i64) -> Option<u32> {
        let same = |&slot: &u32| {
            self.entries
                .get(slot)
                .is_some_and(|entry| (entry.target, entry.queue_id, entry.offset) == (target, queue_id, offset))
        };
        self.by_delivery.find(self.names.hash((target, queue_id, offset)), same).copied()
    }

    fn message_hash(&self, id: &str) -> u64 {
        self.names.hash(id)
    }

    fn handle_of(&self, slot: u32) -> Option<ReceiptHandle> {
        let entry = self.entries.get(slot)?;
        Some(entry.handle(self.names.targets.get(entry.target)?))
    }

    fn id_of(&self, slot: u32) -> Option<Id> {
        self.entries.get(slot).map(|entry| Id { slot, generation: entry.generation })
    }

    /// The slot of an id, if that very entry is still there.
    fn slot_of(&self, id: Id) -> Option<u32> {
        self.entries.get(id.slot).filter(|entry| entry.generation == id.generation).map(|_| id.slot)
    }

    /// Takes the entry out of the timetable: it must be scheduled anew.
    fn set_duty(&mut self, slot: u32, duty: Duty) {
        self.unplace(slot);
        let Some(entry) = self.entries.get_mut(slot) else { return };
        let before = std::mem::replace(&mut entry.duty, duty);
        self.count_duty(before, false);
        self.count_duty(duty, true);
    }

    fn count_duty(&mut self, duty: Duty, more: bool) {
        if let Some(count) = self.by_duty.get_mut(duty as usize) {
            *count = if more { *count + 1 } else { count.saturating_sub(1) };
        }
    }

    /// Takes an entry out of the timetable, and out of what may be shed.
    fn unplace(&mut self, slot: u32) {
        self.keep_from_shedding(slot);
        let Some(entry) = self.entries.get_mut(slot) else { return };
        let place = std::mem::replace(&mut entry.place, Place::Nowhere);
        let (target, at, due_by) = (entry.target, entry.at, due_by(entry));
        match place {
            Place::Waiting => {
                let lane = self.names.targets.get(target).map_or(NONE, |target| target.lane);
                self.timetable.stop_waiting(lane, at, slot);
            }
            Place::Ready => self.timetable.unready(target, (at, due_by), slot),
            Place::Vacant | Place::Nowhere => {}
        }
    }

    fn wait_until(&mut self, slot: u32, at: i64) {
        self.unplace(slot);
        let Some(entry) = self.entries.get_mut(slot) else { return };
        entry.at = at.max(0);
        entry.place = Place::Waiting;
        let lane = self.names.targets.get(entry.target).map_or(NONE, |target| target.lane);
        self.timetable.wait(lane, entry.at, slot);
        self.allow_shedding(slot);
    }

    /// The time of an entry has come: it goes with one of the next requests.
    fn make_ready(&mut self, slot: u32) {
        self.unplace(slot);
        let Some(entry) = self.entries.get_mut(slot) else { return };
        entry.place = Place::Ready;
        let (target, at, due_by) = (entry.target, entry.at, due_by(entry));
        self.timetable.make_ready(target, (at, due_by), slot);
        self.allow_shedding(slot);
    }
}

/// How urgent an entry whose time has come is. The same as long as it is in the timetable: neither its duty nor its
/// deadline changes there.
fn due_by(entry: &Entry) -> i64 {
    match entry.duty {
        Duty::Return => entry.deadline.min(entry.at.saturating_add(RETURN_WITHIN_MS)),
        Duty::Renew | Duty::Keep | Duty::GaveUp | Duty::LetGo => entry.deadline,
    }
    .max(0)
}
