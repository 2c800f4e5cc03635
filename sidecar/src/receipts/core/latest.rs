//! Which of the handles that may be shed has the latest deadline: of each client, and of all.
//!
//! That order is there only where a limit is near, so that whoever is far from its limits pays nothing for them at each
//! renewal. The order of one client is made when it reaches its limit, and goes when it holds a quarter less. That of all
//! grows slot by slot, with each handle that comes once seven eighths of the limit are held, and shrinks in the same way
//! with each that goes below three quarters: a million handles are never walked at once, unless the limit was lowered.

use std::collections::BTreeSet;

use super::{
    Core,
    entry::Duty,
    timetable::{pack, slot_of},
};
use crate::receipts::MAX_HANDLES;

/// Slots that enter or leave the order of all with one handle. Eight would do to have all in it when the limit is reached,
/// if no more slots were ever used than may be held.
const SLOTS_AT_ONCE: u32 = 32;

fn is_near(held: u32, most: u32) -> bool {
    held >= most - most / 8
}

fn is_far(held: u32, most: u32) -> bool {
    held < most - most / 4
}

/// Handles of one client that may be shed, by the ends of their leases.
#[derive(Default)]
struct Order {
    handles: BTreeSet<u64>,
    /// All of them are in it; or else only those in slots that the order of all has reached.
    complete: bool,
}

/// The orders.
#[derive(Default)]
pub(super) struct Latest {
    of_client: Vec<Order>,
    /// How many of them are complete.
    complete: usize,
    /// Clients with something in their order, each under its latest end.
    clients: BTreeSet<(u64, u32)>,
    /// What is in a slot below is in the order of its client, and so in that of all.
    reached: u32,
}

impl Latest {
    pub(super) fn of(&self, client: u32) -> Option<u64> {
        self.of_client.get(client as usize)?.handles.last().copied()
    }

    pub(super) fn of_all(&self) -> Option<u64> {
        self.clients.last().map(|&(latest, _)| latest)
    }

    fn is_complete(&self, client: u32) -> bool {
        self.complete > 0 && self.of_client.get(client as usize).is_some_and(|order| order.complete)
    }

    fn set_complete(&mut self, client: u32, complete: bool) {
        let Some(order) = self.of_client.get_mut(client as usize) else { return };
        if std::mem::replace(&mut order.complete, complete) != complete {
            self.complete = if complete { self.complete + 1 } else { self.complete.saturating_sub(1) };
        }
    }

    fn change(&mut self, client: u32, change: impl FnOnce(&mut BTreeSet<u64>)) {
        let index = client as usize;
        if self.of_client.len() <= index {
            self.of_client.resize_with(index + 1, Order::default);
        }
        let Some(Order { handles, .. }) = self.of_client.get_mut(index) else { return };
        let before = handles.last().copied();
        change(handles);
        let after = handles.last().copied();
        if before != after {
            if let Some(before) = before {
                self.clients.remove(&(before, client));
            }
            if let Some(after) = after {
                self.clients.insert((after, client));
            }
        }
    }

    fn insert(&mut self, client: u32, key: u64) {
        self.change(client, |handles| {
            handles.insert(key);
        });
    }

    fn remove(&mut self, client: u32, key: u64) {
        self.change(client, |handles| {
            handles.remove(&key);
        });
    }
}

impl Core {
    /// An entry that nothing is under way about may be shed, unless it is to be returned: that makes room by itself. Its
    /// deadline must not change from now on.
    pub(super) fn allow_shedding(&mut self, slot: u32) {
        let Some(entry) = self.entries.get_mut(slot) else { return };
        if entry.duty == Duty::Return || entry.may_be_shed {
            return;
        }
        entry.may_be_shed = true;
        let (key, owner) = (pack(entry.deadline, slot), entry.owner);
        if let Some(client) = self.ordered_of(slot, owner) {
            self.latest.insert(client, key);
        }
    }

    /// The opposite of [`Self::allow_shedding`].
    pub(super) fn keep_from_shedding(&mut self, slot: u32) {
        let Some(entry) = self.entries.get_mut(slot) else { return };
        if !std::mem::take(&mut entry.may_be_shed) {
            return;
        }
        let (key, owner) = (pack(entry.deadline, slot), entry.owner);
        if let Some(client) = self.ordered_of(slot, owner) {
            self.latest.remove(client, key);
        }
    }

    /// The client in whose order a slot belongs; nothing if it is in none, which is the rule.
    fn ordered_of(&self, slot: u32, owner: u32) -> Option<u32> {
        let reached = slot < self.latest.reached;
        if !reached && self.latest.complete == 0 {
            return None;
        }
        let client = self.names.owners.get(owner)?.client;
        (reached || self.latest.is_complete(client)).then_some(client)
    }

    /// The client and the key of what is in a slot, if it may be shed.
    fn sheddable(&self, slot: u32) -> Option<(u32, u64)> {
        let entry = self.entries.get(slot).filter(|entry| entry.may_be_shed)?;
        Some((self.names.owners.get(entry.owner)?.client, pack(entry.deadline, slot)))
    }

    /// The most handles of all clients together.
    pub(super) fn most_of_all(&self) -> u32 {
        self.policy.max_handles.min(MAX_HANDLES)
    }

    /// Something comes: if the limit of all is near, its order grows.
    pub(super) fn approach_limit_of_all(&mut self) {
        if is_near(self.entries.len(), self.most_of_all()) {
            self.reach(SLOTS_AT_ONCE);
        }
    }

    fn reach(&mut self, slots: u32) {
        let from = self.latest.reached;
        let to = from.saturating_add(slots).min(self.entries.slots());
        for slot in from..to {
            if let Some((client, key)) = self.sheddable(slot) {
                self.latest.insert(client, key);
            }
        }
        self.latest.reached = to.max(from);
    }

    /// What has the latest deadline of all that may be shed.
    pub(super) fn latest_of_all(&mut self) -> Option<u64> {
        self.reach(u32::MAX);
        self.latest.of_all()
    }

    /// What has the latest deadline of a client's handles that may be shed.
    pub(super) fn latest_of(&mut self, client: u32) -> Option<u64> {
        if !self.latest.is_complete(client) {
            let owners = self.names.clients.get(client)?.owners.clone();
            let held = self.held_by(&owners).into_iter();
            let keys: BTreeSet<u64> = held.filter_map(|id| self.sheddable(id.slot)).map(|(_, key)| key).collect();
            self.latest.change(client, |handles| *handles = keys);
            self.latest.set_complete(client, true);
        }
        self.latest.of(client)
    }

    /// A client holds less: orders that are far from their limits go.
    pub(super) fn leave_limits(&mut self, client: u32) {
        let held = self.names.clients.get(client).map_or(0, |client| client.entries);
        if self.latest.is_complete(client) && is_far(held, self.policy.max_handles_per_client) {
            let reached = self.latest.reached;
            self.latest.set_complete(client, false);
            self.latest.change(client, |handles| handles.retain(|&key| slot_of(key) < reached));
        }
        if self.latest.reached > 0 && is_far(self.entries.len(), self.most_of_all()) {
            let from = self.latest.reached.saturating_sub(SLOTS_AT_ONCE);
            for slot in from..self.latest.reached {
                if let Some((client, key)) =
                    self.sheddable(slot).filter(|&(client, _)| !self.latest.is_complete(client))
                {
                    self.latest.remove(client, key);
                }
            }
            self.latest.reached = from;
        }
    }
}
