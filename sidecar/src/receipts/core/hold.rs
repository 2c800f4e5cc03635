//! Taking over what was popped, and forgetting it.

use waybill_protocol::handle::ReceiptHandle;

use super::{
    Core, Dropped,
    entry::{Duty, Entry, NONE},
    names::Target,
};
use crate::receipts::types::{ChannelKind, DrainPolicy, Holder, Mode, Received, Registered};

impl Core {
    /// Takes over messages that were popped for a client, in order.
    ///
    /// A delivery that is held already stays as it is; a newer delivery of a held message replaces it, whoever held it:
    /// that lease is over. If the client is gone, or the sidecar is about to release everything, the messages are taken
    /// over only to be returned.
    pub fn register(&mut self, now: i64, holder: Holder<'_>, kind: ChannelKind, received: &[Received]) -> Registered {
        self.forget_gone_clients(now);
        let gone = self.names.find_client(holder.client).and_then(|client| self.names.clients.get(client));
        let gone = gone.is_some_and(|client| client.is_gone_from(holder.group));
        let returned = gone || self.draining == Some(DrainPolicy::Release);
        let mut outcome = Registered { client_gone: returned, ..Registered::default() };
        for (position, item) in received.iter().enumerate() {
            if let Err(held) = self.supersede(holder, &item.handle) {
                if !returned {
                    self.receive_again(now, held, &item.handle, mode_of(kind, item));
                }
                outcome.held += 1;
                continue;
            }
            let deadline = now.saturating_add(item.handle.invisible_time.max(0));
            if !(if returned { self.has_room_to_return(holder) } else { self.make_room(holder, deadline) }) {
                self.counters.refused += 1;
                outcome.refused.push(position);
                continue;
            }
            let slot = self.take_over(now, holder, kind, item, returned);
            self.schedule(now, slot);
            outcome.held += 1;
        }
        outcome
    }

    /// Adds an entry; not yet to the timetable. Nothing may be dropped between its names being numbered and its being
    /// added.
    pub(super) fn take_over(
        &mut self,
        now: i64,
        holder: Holder<'_>,
        kind: ChannelKind,
        item: &Received,
        returned: bool,
    ) -> u32 {
        let client = self.names.client(holder.client);
        let owner = self.names.owner(client, holder.group);
        let target = self.target(holder, &item.handle);
        let mut entry = Entry::new(now, owner, target, &item.handle, mode_of(kind, item));
        entry.message = self.message_hash(&item.message_id);
        entry.reconsume_times = i16::try_from(item.reconsume_times).unwrap_or(i16::MAX);
        if returned {
            entry.duty = Duty::Return;
            entry.undelivered = true;
        }
        self.insert(entry)
    }

    /// The number of what a request about this handle would be about.
    fn target(&mut self, holder: Holder<'_>, handle: &ReceiptHandle) -> u32 {
        let found = self.names.find_target(holder.group, holder.topic, &handle.broker_name, handle.topic_type);
        if let Some(found) = found {
            return found;
        }
        let lane = self.timetable.lane(&handle.broker_name);
        let target = self.names.insert_target(Target {
            group: holder.group.into(),
            topic: holder.topic.into(),
            broker: handle.broker_name.as_str().into(),
            topic_type: handle.topic_type,
            lane,
            entries: 0,
        });
        self.timetable.open(target, lane);
        target
    }

    /// Makes way for a delivery, unless it, or a later one of the same message, is held already: then answers where.
    pub(super) fn supersede(&mut self, holder: Holder<'_>, handle: &ReceiptHandle) -> Result<(), u32> {
        let held = self
            .names
            .find_target(holder.group, holder.topic, &handle.broker_name, handle.topic_type)
            .and_then(|target| self.slot_at(target, handle.queue_id, handle.offset));
        let Some(slot) = held else { return Ok(()) };
        if self.entries.get(slot).is_some_and(|entry| entry.pop_time >= handle.pop_time) {
            return Err(slot);
        }
        self.drop_entry(slot, Dropped::Replaced);
        Ok(())
    }

    /// A client gets the very delivery that could not be written to it before (an ordered receive that was repeated):
    /// it is not to be returned any more.
    fn receive_again(&mut self, now: i64, slot: u32, handle: &ReceiptHandle, mode: Mode) {
        let Some(entry) = self.entries.get_mut(slot) else { return };
        if entry.is_delivery(handle.pop_time) && entry.duty == Duty::Return {
            entry.undelivered = false;
            entry.retries = 0;
            entry.mode = mode;
            self.set_duty(slot, Duty::of(mode));
            self.schedule(now, slot);
        }
    }

    /// Adds an entry to all lists and indexes, but not to the timetable.
    fn insert(&mut self, mut entry: Entry) -> u32 {
        let (target, owner, duty) = (entry.target, entry.owner, entry.duty);
        let delivery = self.names.hash((target, entry.queue_id, entry.offset));
        let message = self.names.hash((owner, entry.message));
        let head = self.names.owners.get(owner).map_or(NONE, |owner| owner.head);
        entry.next = head;
        let slot = self.entries.insert(entry);
        if let Some(next) = self.entries.get_mut(head) {
            next.prev = slot;
        }
        if let Some(owner) = self.names.owners.get_mut(owner) {
            owner.head = slot;
            owner.entries += 1;
            let client = owner.client;
            if let Some(client) = self.names.clients.get_mut(client) {
                client.entries += 1;
            }
        }
        if let Some(target) = self.names.targets.get_mut(target) {
            target.entries += 1;
        }
        let (entries, names) = (&self.entries, &self.names);
        self.by_delivery.insert_unique(delivery, slot, |&slot| {
            entries.get(slot).map_or(0, |entry| names.hash((entry.target, entry.queue_id, entry.offset)))
        });
        self.by_message.insert_unique(message, slot, |&slot| {
            entries.get(slot).map_or(0, |entry| names.hash((entry.owner, entry.message)))
        });
        self.count_duty(duty, true);
        self.counters.registered += 1;
        slot
    }

    /// Forgets an entry: tickets and requests for it have no effect any more.
    pub(super) fn drop_entry(&mut self, slot: u32, why: Dropped) {
        self.unplace(slot);
        let Some(entry) = self.entries.get(slot) else { return };
        let (target, owner, duty) = (entry.target, entry.owner, entry.duty);
        let (prev, next) = (entry.prev, entry.next);
        let delivery = self.names.hash((target, entry.queue_id, entry.offset));
        let message = self.names.hash((owner, entry.message));
        if entry.in_flight {
            self.in_flight = self.in_flight.saturating_sub(1);
        }
        for (table, hash) in [(&mut self.by_delivery, delivery), (&mut self.by_message, message)] {
            if let Ok(occupied) = table.find_entry(hash, |&other| other == slot) {
                occupied.remove();
            }
        }
        if let Some(next) = self.entries.get_mut(next) {
            next.prev = prev;
        }
        if let Some(prev) = self.entries.get_mut(prev) {
            prev.next = next;
        }
        self.entries.remove(slot);
        self.count_duty(duty, false);
        self.counters.count_dropped(why);
        if let Some(found) = self.names.targets.get_mut(target) {
            found.entries = found.entries.saturating_sub(1);
        }
        if self.names.targets.get(target).is_some_and(|target| target.entries == 0) {
            self.names.targets.remove(target);
        }
        if let Some(found) = self.names.owners.get_mut(owner) {
            found.entries = found.entries.saturating_sub(1);
            if found.head == slot {
                found.head = next;
            }
            let client = found.client;
            if let Some(client) = self.names.clients.get_mut(client) {
                client.entries = client.entries.saturating_sub(1);
            }
            self.leave_limits(client);
        }
        self.names.release_owner(owner);
    }
}

/// The switch is for gRPC clients only: others are renewed whatever it says.
fn mode_of(kind: ChannelKind, item: &Received) -> Mode {
    match kind {
        ChannelKind::Grpc => item.mode,
        ChannelKind::Remoting => Mode::Renew,
    }
}
