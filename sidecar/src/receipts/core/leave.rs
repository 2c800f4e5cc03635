//! Messages that go back: of clients that left, that could not be written, and of a sidecar that stops.

use std::sync::Arc;

use waybill_protocol::handle::ReceiptHandle;

use super::{
    Core, Id,
    entry::{Duty, NONE},
};
use crate::receipts::types::{ChannelKind, DrainPolicy, Holder, Mode, Received};

impl Core {
    /// A client is gone, from one group or altogether. All it holds is returned; what it let go keeps its back-off.
    pub fn client_gone(&mut self, now: i64, client: &str, group: Option<&str>) {
        self.client_gone_but_from(now, client, group, &[]);
    }

    /// The same, but for what it holds from these brokers, which have not said yet whether it is somewhere else. Answers how many
    /// messages that are.
    pub fn client_gone_but_from(&mut self, now: i64, client: &str, group: Option<&str>, brokers: &[Arc<str>]) -> usize {
        self.forget_gone_clients(now);
        let number = self.names.client(client);
        let Some(found) = self.names.clients.get_mut(number) else { return 0 };
        match group {
            None => found.gone = true,
            Some(group) if !found.is_gone_from(group) => found.gone_from.push(group.into()),
            Some(_) => {}
        }
        found.gone_until = now.saturating_add(self.policy.remember_gone_ms);
        self.gone.push_back((found.gone_until, found.id.clone()));
        let mut owners = found.owners.clone();
        owners.retain(|&owner| {
            self.names.owners.get(owner).is_some_and(|owner| group.is_none_or(|group| *owner.group == *group))
        });
        let mut left = 0;
        for id in self.held_by(&owners) {
            if self.is_from(id, brokers) {
                left += 1;
            } else {
                self.give_up(now, id, false);
            }
        }
        left
    }

    fn is_from(&self, id: Id, brokers: &[Arc<str>]) -> bool {
        let target = || self.names.targets.get(self.entries.get(self.slot_of(id)?)?.target);
        !brokers.is_empty() && target().is_some_and(|target| brokers.contains(&target.broker))
    }

    /// A client is here (again): later messages are its own, and what was not returned yet stays with it.
    pub fn client_back(&mut self, now: i64, client: &str) {
        self.forget_gone_clients(now);
        let Some(number) = self.names.find_client(client) else { return };
        let Some(found) = self.names.clients.get_mut(number) else { return };
        found.gone = false;
        found.gone_from.clear();
        let owners = found.owners.clone();
        self.names.release_client(number);
        if self.draining == Some(DrainPolicy::Release) {
            return;
        }
        for id in self.held_by(&owners) {
            let Some(slot) = self.slot_of(id) else { continue };
            let Some(entry) = self.entries.get_mut(slot) else { continue };
            if entry.duty == Duty::Return && !entry.undelivered {
                entry.retries = 0;
                let duty = Duty::of(entry.mode);
                self.set_duty(slot, duty);
                self.schedule(now, slot);
            }
        }
    }

    /// Messages that could not be written to the client. Those that are not held are taken over to be returned.
    pub fn give_back(&mut self, now: i64, holder: Holder<'_>, kind: ChannelKind, handles: Vec<ReceiptHandle>) {
        for handle in handles {
            if let Some(id) = self.find_delivery(holder, &handle).and_then(|slot| self.id_of(slot)) {
                self.give_up(now, id, true);
            } else if self.supersede(holder, &handle).is_err() {
                // It, or a later delivery, is held already.
            } else if !self.has_room_to_return(holder) {
                self.counters.refused += 1;
            } else {
                let item = Received { handle, message_id: String::new(), reconsume_times: 0, mode: Mode::Keep };
                let slot = self.take_over(now, holder, kind, &item, true);
                self.schedule(now, slot);
            }
        }
    }

    /// The sidecar stops. With [`DrainPolicy::Release`], call [`Core::release`] until it is done.
    pub fn drain(&mut self, policy: DrainPolicy) {
        self.draining = Some(policy);
    }

    /// Begins to return what is in the next `count` slots from `from`. Answers where to go on, nothing at the end.
    pub fn release(&mut self, now: i64, from: u32, count: u32) -> Option<u32> {
        let end = self.entries.slots().min(from.saturating_add(count));
        for slot in from..end {
            if let Some(id) = self.id_of(slot) {
                self.give_up(now, id, false);
            }
        }
        (end < self.entries.slots()).then_some(end)
    }

    /// One message goes back as soon as nothing else is under way with it.
    fn give_up(&mut self, now: i64, id: Id, undelivered: bool) {
        let Some(slot) = self.slot_of(id) else { return };
        let Some(entry) = self.entries.get_mut(slot) else { return };
        entry.undelivered |= undelivered;
        match entry.duty {
            // Already on its way, by itself or with the client's own back-off.
            Duty::Return | Duty::LetGo => return,
            Duty::Renew | Duty::Keep | Duty::GaveUp => entry.retries = 0,
        }
        self.set_duty(slot, Duty::Return);
        self.schedule(now, slot);
    }

    pub(super) fn held_by(&self, owners: &[u32]) -> Vec<Id> {
        let mut held = Vec::new();
        for &owner in owners {
            let mut slot = self.names.owners.get(owner).map_or(NONE, |owner| owner.head);
            while let Some(entry) = self.entries.get(slot) {
                held.extend(self.id_of(slot));
                slot = entry.next;
            }
        }
        held
    }

    pub(super) fn forget_gone_clients(&mut self, now: i64) {
        while self.gone.front().is_some_and(|(until, _)| *until <= now) {
            let Some((_, id)) = self.gone.pop_front() else { return };
            let Some(number) = self.names.find_client(&id) else { continue };
            let Some(client) = self.names.clients.get_mut(number) else { continue };
            if client.gone_until <= now {
                client.gone = false;
                client.gone_from.clear();
                self.names.release_client(number);
            }
        }
    }
}
