//! Which request to send next: no clock, no I/O, no tasks.
//!
//! Each broker has a lane of its own, so that one that does not answer delays no other. Within a lane targets take
//! turns. Entries of a target go in the order in which they were handed over.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use super::types::{Plan, Sending, Target};

/// How much may wait, in entries. More is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For one broker.
    pub of_broker: usize,
    /// For all brokers together.
    pub of_all: usize,
}

/// One lease that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item<T> {
    /// What the caller wants to be sent.
    pub value: T,
    /// What it adds to the body of a request, in bytes; may be a little more than it does.
    pub bytes: usize,
    /// At most so many entries may be in a request with it; 1 sends it alone.
    pub most: usize,
    /// Not sent after this time, in milliseconds: nobody would wait for the answer.
    pub start_by: i64,
    /// The core counts the entries that it takes over. 0 for one that it has not seen.
    pub number: u64,
}

/// A request that is under way. When it has ended, in whatever way, [`Core::ended`] must be told, once.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Slot {
    /// The broker.
    pub broker: Arc<str>,
    /// What it is about.
    pub target: Target,
    batch: bool,
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect<T> {
    /// Send these with one request.
    Send(Slot, Vec<Item<T>>),
    /// These have waited too long: answer that they were not sent.
    Late(Vec<T>),
}

struct Queue<T> {
    items: VecDeque<Item<T>>,
    /// Requests of this target under way, those of single entries that are counted by the lane aside.
    batches: usize,
    /// It is among the targets that take turns.
    in_turn: bool,
}

impl<T> Queue<T> {
    fn new() -> Self {
        Self { items: VecDeque::new(), batches: 0, in_turn: false }
    }
}

struct Lane<T> {
    queues: HashMap<Target, Queue<T>>,
    /// Targets with something that waits and that may be sent as far as they are concerned.
    turn: VecDeque<Target>,
    waiting: usize,
    singles: usize,
    batches: usize,
}

impl<T> Lane<T> {
    fn new() -> Self {
        Self { queues: HashMap::new(), turn: VecDeque::new(), waiting: 0, singles: 0, batches: 0 }
    }

    /// Puts entries to those of a target that wait; there is one at least.
    fn put(&mut self, target: &Target, put: impl FnOnce(&mut VecDeque<Item<T>>)) {
        let queue = self.queues.entry(target.clone()).or_insert_with(Queue::new);
        put(&mut queue.items);
        if !queue.in_turn {
            queue.in_turn = true;
            self.turn.push_back(target.clone());
        }
    }

    /// A request with a batch of this target has ended.
    fn batch_ended(&mut self, target: &Target) {
        self.batches = self.batches.saturating_sub(1);
        let Some(queue) = self.queues.get_mut(target) else { return };
        queue.batches = queue.batches.saturating_sub(1);
        if queue.in_turn {
            return;
        }
        if !queue.items.is_empty() {
            queue.in_turn = true;
            self.turn.push_back(target.clone());
        } else if queue.batches == 0 {
            self.queues.remove(target);
        }
    }

    /// Nothing more may be sent in this way, whatever the target.
    fn is_full(&self, plan: &Plan, sending: Sending) -> bool {
        match sending {
            Sending::Singly => self.singles >= plan.singly.max(1),
            Sending::Batches { .. } => self.batches >= plan.batches.max(1),
        }
    }

    fn is_idle(&self) -> bool {
        self.waiting == 0 && self.singles == 0 && self.batches == 0
    }
}

/// Everything that waits.
pub struct Core<T> {
    lanes: HashMap<Arc<str>, Lane<T>>,
    waiting: usize,
    limits: Limits,
    /// [`Item::number`] of the entry that was taken over last.
    last: u64,
}

impl<T> Core<T> {
    /// Nothing waits.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { lanes: HashMap::new(), waiting: 0, limits, last: 0 }
    }

    /// Takes over entries of one target. Call [`Self::take`] afterwards.
    ///
    /// Answers those for which there is no room; the others are taken.
    #[must_use = "what is not taken must be answered"]
    pub fn push(&mut self, broker: &Arc<str>, target: &Target, items: Vec<Item<T>>) -> Vec<Item<T>> {
        if items.is_empty() {
            return items;
        }
        let lane = self.lanes.entry(Arc::clone(broker)).or_insert_with(Lane::new);
        let room = self.limits.of_broker.saturating_sub(lane.waiting);
        let room = room.min(self.limits.of_all.saturating_sub(self.waiting)).min(items.len());
        let mut taken = items;
        let left = taken.split_off(room);
        for item in &mut taken {
            self.last += 1;
            item.number = self.last;
        }
        lane.waiting += taken.len();
        self.waiting += taken.len();
        if !taken.is_empty() {
            lane.put(target, |waiting| waiting.extend(taken));
        } else if lane.is_idle() {
            self.lanes.remove(broker);
        }
        left
    }

    /// Entries of a request that was refused as a whole, to be sent before all that were handed over after them: of two such
    /// requests either may be heard of first. They are taken whatever waits: they were let in before.
    pub fn again(&mut self, broker: &Arc<str>, target: &Target, items: Vec<Item<T>>) {
        if items.is_empty() {
            return;
        }
        let lane = self.lanes.entry(Arc::clone(broker)).or_insert_with(Lane::new);
        lane.waiting += items.len();
        self.waiting += items.len();
        lane.put(target, |waiting| {
            for item in items {
                let place = waiting.partition_point(|other| other.number <= item.number);
                waiting.insert(place, item);
            }
        });
    }

    /// A request has ended. Call [`Self::take`] afterwards.
    pub fn ended(&mut self, slot: &Slot) {
        let Some(lane) = self.lanes.get_mut(&slot.broker) else { return };
        if slot.batch {
            lane.batch_ended(&slot.target);
        } else {
            lane.singles = lane.singles.saturating_sub(1);
        }
        if lane.is_idle() {
            self.lanes.remove(&slot.broker);
        }
    }

    /// All that may be sent to a broker now, and what has waited too long.
    #[must_use = "effects must be carried out"]
    pub fn take(&mut self, broker: &Arc<str>, now: i64, plan: &Plan) -> Vec<Effect<T>> {
        let mut effects = Vec::new();
        let Some(lane) = self.lanes.get_mut(broker) else { return effects };
        // Targets that must wait for others of the lane, in their order.
        let mut blocked = VecDeque::new();
        while !(lane.is_full(plan, plan.acks) && lane.is_full(plan, plan.changes)) {
            let Some(target) = lane.turn.pop_front() else { break };
            let Some(queue) = lane.queues.get_mut(&target) else { continue };
            let late = late(&mut queue.items, now);
            lane.waiting -= late.len();
            self.waiting -= late.len();
            if !late.is_empty() {
                effects.push(Effect::Late(late));
            }
            let Some(first) = queue.items.front() else {
                queue.in_turn = false;
                if queue.batches == 0 {
                    lane.queues.remove(&target);
                }
                continue;
            };
            // One that has to go alone at a broker that takes batches waits for its turn like a batch.
            let (batch, most, bytes) = match plan.sending(target.kind) {
                Sending::Singly => (false, 1, 0),
                Sending::Batches { entries, bytes } => (true, entries.min(first.most).max(1), bytes),
            };
            if batch && queue.batches >= plan.batches_of_target.max(1) {
                // It takes turns again when one of its requests ends.
                queue.in_turn = false;
                continue;
            }
            let (under_way, limit) =
                if batch { (&mut lane.batches, plan.batches) } else { (&mut lane.singles, plan.singly) };
            if *under_way >= limit.max(1) {
                blocked.push_back(target);
                continue;
            }
            *under_way += 1;
            queue.batches += usize::from(batch);
            let items = first_of(&mut queue.items, most, bytes);
            lane.waiting -= items.len();
            self.waiting -= items.len();
            if !queue.items.is_empty() {
                lane.turn.push_back(target.clone());
            } else {
                queue.in_turn = false;
                if queue.batches == 0 {
                    lane.queues.remove(&target);
                }
            }
            effects.push(Effect::Send(Slot { broker: Arc::clone(broker), target, batch }, items));
        }
        blocked.append(&mut lane.turn);
        lane.turn = blocked;
        if lane.is_idle() {
            self.lanes.remove(broker);
        }
        effects
    }

    /// Entries that wait, of all brokers.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Requests under way, to all brokers.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.lanes.values().map(|lane| lane.singles + lane.batches).sum()
    }

    /// Brokers that are remembered: those with something that waits or is under way. Handles name brokers, and clients
    /// could make names up.
    #[must_use]
    pub fn brokers(&self) -> usize {
        self.lanes.len()
    }
}

/// Takes out what has waited too long. The oldest are in front.
fn late<T>(items: &mut VecDeque<Item<T>>, now: i64) -> Vec<T> {
    let count = items.iter().take_while(|item| item.start_by < now).count();
    items.drain(..count).map(|item| item.value).collect()
}

/// Takes out what fits into one request: at least one entry.
fn first_of<T>(items: &mut VecDeque<Item<T>>, mut most: usize, bytes: usize) -> Vec<Item<T>> {
    let (mut count, mut size) = (0_usize, 0_usize);
    for item in items.iter() {
        most = most.min(item.most);
        size = size.saturating_add(item.bytes);
        if count > 0 && (count >= most || size > bytes) {
            break;
        }
        count += 1;
    }
    items.drain(..count).collect()
}
