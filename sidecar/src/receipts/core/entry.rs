//! One held handle, and the slab that holds all of them.

use waybill_protocol::handle::ReceiptHandle;

use super::names::Target;
use crate::receipts::types::Mode;

/// No slot: the end of a list.
pub(super) const NONE: u32 = u32::MAX;

/// A handle without a commit log offset.
const NO_COMMIT_LOG_OFFSET: i64 = i64::MIN;

/// Ordered pops carry this instead of a revive queue; their pop time never changes, at any broker.
const ORDERED_REVIVE_QUEUE: i32 = 999;

/// What is to be done about a handle when its time comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Duty {
    /// Extend the lease.
    Renew,
    /// Nothing; return it if the client leaves.
    Keep,
    /// Renewal failed for good: as `Keep`, but the message will be lost to the client at the deadline.
    GaveUp,
    /// The client gave the message back, or held it too long: only late acks still need the handle.
    LetGo,
    /// Give it back to the broker as soon as possible.
    Return,
}

impl Duty {
    pub(super) const ALL: usize = 5;

    /// The duty that goes with a promise.
    pub(super) fn of(mode: Mode) -> Self {
        match mode {
            Mode::Renew => Self::Renew,
            Mode::Keep => Self::Keep,
        }
    }
}

/// In which queue of the timetable an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The slot is free.
    Vacant,
    /// In none: part of a request, or an ack is under way.
    Nowhere,
    /// Waiting for its time.
    Waiting,
    /// Due, waiting for a free request to its broker.
    Ready,
}

/// One held handle. Numbers only: names are interned, so that a million of these stay small.
pub(super) struct Entry {
    // The newest handle, and with `queue_id`, `revive_queue_id` and `target` all that it says.
    pub(super) offset: i64,
    start_offset: i64,
    pub(super) pop_time: i64,
    invisible_time: i64,
    commit_log_offset: i64,
    /// Pop time of the handle that the client got first.
    first_pop_time: i64,
    /// Hash of the message id.
    pub(super) message: u64,
    /// When the handle was registered.
    pub(super) held_since: i64,
    /// When the lease ends, by this process's clock.
    pub(super) deadline: i64,
    /// The time under which the entry is in its `place`.
    pub(super) at: i64,
    pub(super) target: u32,
    pub(super) owner: u32,
    pub(super) queue_id: i32,
    revive_queue_id: i32,
    pub(super) reconsume_times: i16,
    /// Tells this entry from earlier ones of the same slot.
    pub(super) generation: u32,
    /// Tells the request under way from earlier ones.
    pub(super) flight: u32,
    /// Neighbours in the owner's list; `next` also chains free slots.
    pub(super) prev: u32,
    pub(super) next: u32,
    /// Acks and changes that have begun, those that wait included.
    pub(super) operations: u16,
    /// Acks on their way to the broker.
    pub(super) finishing: u16,
    /// A change is on its way to the broker.
    pub(super) changing: bool,
    /// Failures in a row, 255 for more.
    pub(super) retries: u8,
    /// Renewals so far.
    pub(super) renewals: u8,
    pub(super) mode: Mode,
    pub(super) duty: Duty,
    pub(super) place: Place,
    pub(super) in_flight: bool,
    /// The client never got the message.
    pub(super) undelivered: bool,
    /// Among those that may be shed.
    pub(super) may_be_shed: bool,
}

impl Entry {
    /// An entry for a handle just received, in no list and no queue.
    pub(super) fn new(now: i64, owner: u32, target: u32, handle: &ReceiptHandle, mode: Mode) -> Self {
        let mut entry = Self {
            offset: handle.offset,
            start_offset: 0,
            pop_time: 0,
            invisible_time: 0,
            commit_log_offset: 0,
            first_pop_time: handle.pop_time,
            message: 0,
            held_since: now,
            deadline: now.saturating_add(handle.invisible_time.max(0)),
            at: 0,
            target,
            owner,
            queue_id: handle.queue_id,
            revive_queue_id: 0,
            reconsume_times: 0,
            generation: 0,
            flight: 0,
            prev: NONE,
            next: NONE,
            operations: 0,
            finishing: 0,
            changing: false,
            retries: 0,
            renewals: 0,
            mode,
            duty: Duty::of(mode),
            place: Place::Nowhere,
            in_flight: false,
            undelivered: false,
            may_be_shed: false,
        };
        entry.set_handle(handle);
        entry
    }

    /// Reads something of each of its cache lines, so that they come together and not one after the other.
    pub(super) fn fetch(&self) {
        std::hint::black_box((self.offset, self.first_pop_time, self.held_since, self.owner, self.flight));
    }

    /// Takes over the parts of a newer handle of the same delivery.
    pub(super) fn set_handle(&mut self, handle: &ReceiptHandle) {
        self.start_offset = handle.start_offset;
        self.pop_time = handle.pop_time;
        self.invisible_time = handle.invisible_time;
        self.revive_queue_id = handle.revive_queue_id;
        self.commit_log_offset = handle.commit_log_offset.unwrap_or(NO_COMMIT_LOG_OFFSET);
    }

    /// The newest handle.
    pub(super) fn handle(&self, target: &Target) -> ReceiptHandle {
        ReceiptHandle {
            start_offset: self.start_offset,
            pop_time: self.pop_time,
            invisible_time: self.invisible_time,
            revive_queue_id: self.revive_queue_id,
            topic_type: target.topic_type,
            broker_name: target.broker.to_string(),
            queue_id: self.queue_id,
            offset: self.offset,
            commit_log_offset: (self.commit_log_offset != NO_COMMIT_LOG_OFFSET).then_some(self.commit_log_offset),
        }
    }

    /// Whether a handle with this pop time, of the same queue and offset, names this very delivery: the first handle,
    /// the newest, or one between.
    pub(super) fn is_delivery(&self, pop_time: i64) -> bool {
        pop_time == self.first_pop_time || (self.first_pop_time..=self.pop_time).contains(&pop_time)
    }

    /// Whether `handle` can be a newer handle of this delivery.
    pub(super) fn is_succeeded_by(&self, handle: &ReceiptHandle, target: &Target) -> bool {
        handle.queue_id == self.queue_id
            && handle.offset == self.offset
            && handle.topic_type == target.topic_type
            && *handle.broker_name == *target.broker
    }

    /// Ordered pops keep their pop time at every broker, so their old handles stay valid.
    pub(super) fn is_ordered(&self) -> bool {
        self.revive_queue_id == ORDERED_REVIVE_QUEUE
    }
}

const CHUNK: usize = 1_024;

/// All entries, in chunks that never move: growing costs one allocation and no copy.
pub(super) struct Slab {
    chunks: Vec<Vec<Entry>>,
    free: u32,
    len: u32,
}

impl Slab {
    pub(super) fn new() -> Self {
        Self { chunks: Vec::new(), free: NONE, len: 0 }
    }

    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// Slots ever used; every live entry is below.
    pub(super) fn slots(&self) -> u32 {
        let full = self.chunks.len().saturating_sub(1) * CHUNK;
        u32::try_from(full + self.chunks.last().map_or(0, Vec::len)).unwrap_or(NONE)
    }

    /// Whether one more entry can be addressed.
    pub(super) fn has_room(&self) -> bool {
        self.len < crate::receipts::MAX_HANDLES
    }

    pub(super) fn insert(&mut self, mut entry: Entry) -> u32 {
        self.len += 1;
        let slot = self.free;
        if let Some(vacant) = self.slot_mut(slot) {
            let next = vacant.next;
            // The generation was moved on when the slot became free.
            entry.generation = vacant.generation;
            *vacant = entry;
            self.free = next;
            return slot;
        }
        let slot = self.slots();
        match self.chunks.last_mut() {
            Some(last) if last.len() < CHUNK => last.push(entry),
            _ => {
                let mut chunk = Vec::with_capacity(CHUNK);
                chunk.push(entry);
                self.chunks.push(chunk);
            }
        }
        slot
    }

    /// Frees a slot; tickets for it are stale from now on.
    pub(super) fn remove(&mut self, slot: u32) {
        let free = self.free;
        let Some(entry) = self.get_mut(slot) else { return };
        entry.place = Place::Vacant;
        entry.generation = entry.generation.wrapping_add(1);
        entry.next = free;
        self.free = slot;
        self.len -= 1;
    }

    pub(super) fn get(&self, slot: u32) -> Option<&Entry> {
        let slot = slot as usize;
        self.chunks.get(slot / CHUNK)?.get(slot % CHUNK).filter(|entry| entry.place != Place::Vacant)
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut Entry> {
        self.slot_mut(slot).filter(|entry| entry.place != Place::Vacant)
    }

    fn slot_mut(&mut self, slot: u32) -> Option<&mut Entry> {
        let slot = slot as usize;
        self.chunks.get_mut(slot / CHUNK)?.get_mut(slot % CHUNK)
    }
}
