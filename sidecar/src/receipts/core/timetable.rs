//! When each handle is due, and which due handle goes first. One lane per broker, so that a broker that does not answer
//! delays no other.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

const SLOT_BITS: u32 = 24;
const SLOT_MASK: u64 = (1 << SLOT_BITS) - 1;

/// A time and a slot in one number: ordered by time, half the memory of a pair.
pub(super) fn pack(at: i64, slot: u32) -> u64 {
    let at = u64::try_from(at).unwrap_or(0).min(u64::MAX >> SLOT_BITS);
    (at << SLOT_BITS) | u64::from(slot)
}

pub(super) fn at_of(key: u64) -> i64 {
    i64::try_from(key >> SLOT_BITS).unwrap_or(i64::MAX)
}

pub(super) fn slot_of(key: u64) -> u32 {
    (key & SLOT_MASK) as u32
}

/// What the answers of a broker say about its handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handles {
    /// No renewal was answered yet.
    Unknown,
    /// A renewal keeps the pop time: every handle of a delivery stays valid.
    Stable,
    /// A renewal makes a new handle and the old one is dead.
    Moving,
}

struct Lane {
    broker: Arc<str>,
    waiting: BTreeSet<u64>,
    /// Targets with something ready, each under its earliest time.
    ready: BTreeSet<(i64, u32)>,
    requests: usize,
    handles: Handles,
}

#[derive(Default)]
struct ReadySet {
    lane: u32,
    set: BTreeSet<u64>,
}

/// All queues. Times are not negative.
pub(super) struct Timetable {
    lanes: Vec<Lane>,
    /// Due entries, by target.
    ready: Vec<ReadySet>,
    ready_len: usize,
    /// How many of them are due since when.
    due_since: BTreeMap<i64, usize>,
}

impl Timetable {
    pub(super) fn new() -> Self {
        Self { lanes: Vec::new(), ready: Vec::new(), ready_len: 0, due_since: BTreeMap::new() }
    }

    /// The lane of a broker. Lanes stay for ever; brokers are few.
    pub(super) fn lane(&mut self, broker: &str) -> u32 {
        let position = self.lanes.iter().position(|lane| *lane.broker == *broker).unwrap_or_else(|| {
            self.lanes.push(Lane {
                broker: broker.into(),
                waiting: BTreeSet::new(),
                ready: BTreeSet::new(),
                requests: 0,
                handles: Handles::Unknown,
            });
            self.lanes.len() - 1
        });
        u32::try_from(position).unwrap_or(u32::MAX)
    }

    pub(super) fn lanes(&self) -> u32 {
        u32::try_from(self.lanes.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn ready_len(&self) -> usize {
        self.ready_len
    }

    pub(super) fn handles(&self, lane: u32) -> Handles {
        self.lanes.get(lane as usize).map_or(Handles::Unknown, |lane| lane.handles)
    }

    pub(super) fn learn(&mut self, lane: u32, handles: Handles) {
        if let Some(lane) = self.lanes.get_mut(lane as usize) {
            lane.handles = handles;
        }
    }

    /// Makes room for a target.
    pub(super) fn open(&mut self, target: u32, lane: u32) {
        let target = target as usize;
        if self.ready.len() <= target {
            self.ready.resize_with(target + 1, ReadySet::default);
        }
        if let Some(ready) = self.ready.get_mut(target) {
            ready.lane = lane;
        }
    }

    pub(super) fn wait(&mut self, lane: u32, at: i64, slot: u32) {
        if let Some(lane) = self.lanes.get_mut(lane as usize) {
            lane.waiting.insert(pack(at, slot));
        }
    }

    pub(super) fn stop_waiting(&mut self, lane: u32, at: i64, slot: u32) {
        if let Some(lane) = self.lanes.get_mut(lane as usize) {
            lane.waiting.remove(&pack(at, slot));
        }
    }

    /// An entry that is due since `since`, and urgent by `due_by`.
    pub(super) fn make_ready(&mut self, target: u32, (since, due_by): (i64, i64), slot: u32) {
        if self.change_ready(target, |set| set.insert(pack(due_by, slot))) {
            *self.due_since.entry(since).or_default() += 1;
        }
    }

    pub(super) fn unready(&mut self, target: u32, (since, due_by): (i64, i64), slot: u32) {
        if self.change_ready(target, |set| set.remove(&pack(due_by, slot))) {
            self.no_longer_due(since);
        }
    }

    /// Takes the first entry whose time has come out of a lane.
    pub(super) fn pop_due(&mut self, lane: u32, now: i64) -> Option<u32> {
        let waiting = &mut self.lanes.get_mut(lane as usize)?.waiting;
        let first = *waiting.first()?;
        (at_of(first) <= now).then(|| {
            waiting.pop_first();
            slot_of(first)
        })
    }

    /// The target of a lane whose ready entry is the most urgent.
    pub(super) fn most_urgent(&self, lane: u32) -> Option<u32> {
        self.lanes.get(lane as usize)?.ready.first().map(|&(_, target)| target)
    }

    /// Ready entries of a target.
    pub(super) fn ready_of(&self, target: u32) -> usize {
        self.ready.get(target as usize).map_or(0, |ready| ready.set.len())
    }

    /// Takes the most urgent ready entry of a target; [`Self::no_longer_due`] must follow.
    pub(super) fn pop_ready(&mut self, target: u32) -> Option<u32> {
        let mut first = None;
        self.change_ready(target, |set| {
            first = set.pop_first();
            first.is_some()
        });
        first.map(slot_of)
    }

    /// One of those that are due since `since` was taken.
    pub(super) fn no_longer_due(&mut self, since: i64) {
        if let Some(count) = self.due_since.get_mut(&since) {
            *count -= 1;
            if *count == 0 {
                self.due_since.remove(&since);
            }
        }
    }

    /// The earliest time of all that is not taken yet, whether anything could be sent or not.
    pub(super) fn oldest(&self) -> Option<i64> {
        let waiting = self.lanes.iter().filter_map(|lane| lane.waiting.first()).map(|&first| at_of(first));
        waiting.chain(self.due_since.keys().next().copied()).min()
    }

    /// Whether one more request may be sent to the broker of a lane.
    pub(super) fn has_capacity(&self, lane: u32, most: usize) -> bool {
        self.lanes.get(lane as usize).is_some_and(|lane| lane.requests < most.max(1))
    }

    pub(super) fn request_began(&mut self, lane: u32) {
        if let Some(lane) = self.lanes.get_mut(lane as usize) {
            lane.requests += 1;
        }
    }

    pub(super) fn request_ended(&mut self, lane: u32) {
        if let Some(lane) = self.lanes.get_mut(lane as usize) {
            lane.requests = lane.requests.saturating_sub(1);
        }
    }

    pub(super) fn requests(&self) -> usize {
        self.lanes.iter().map(|lane| lane.requests).sum()
    }

    /// When there is something to do: the first time anyone waits for, or `now` if a ready entry could be sent.
    pub(super) fn next(&self, now: i64, most: usize) -> Option<i64> {
        let of_lane = |lane: &Lane| {
            if !lane.ready.is_empty() && lane.requests < most.max(1) {
                return Some(now);
            }
            lane.waiting.first().map(|&first| at_of(first))
        };
        self.lanes.iter().filter_map(of_lane).min()
    }

    /// Changes the ready set of a target and keeps the lane's order of targets true. `change` tells whether it did
    /// anything.
    fn change_ready(&mut self, target: u32, change: impl FnOnce(&mut BTreeSet<u64>) -> bool) -> bool {
        let Some(ready) = self.ready.get_mut(target as usize) else { return false };
        let Some(lane) = self.lanes.get_mut(ready.lane as usize) else { return false };
        let (before, length) = (ready.set.first().copied(), ready.set.len());
        if !change(&mut ready.set) {
            return false;
        }
        let after = ready.set.first().copied();
        self.ready_len = self.ready_len + ready.set.len() - length;
        if before != after {
            if let Some(before) = before {
                lane.ready.remove(&(at_of(before), target));
            }
            if let Some(after) = after {
                lane.ready.insert((at_of(after), target));
            }
        }
        true
    }
}
