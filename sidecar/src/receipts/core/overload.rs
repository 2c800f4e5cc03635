//! When there is no room: what is shed, and who is to be told.

use std::collections::HashMap;
use std::sync::Arc;

use super::{
    Core, Dropped,
    timetable::{at_of, slot_of},
};
use crate::receipts::types::Holder;

/// Handles shed for one that comes: more than one, so that a limit that was lowered is reached in the end.
const SHED_AT_ONCE: usize = 2;
/// Consumers that are told apart between two reports.
const NAMES_MAX: usize = 1_024;

/// Which limit was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// Of the handles of one client: `receiptHandleMaxNumPerClient`.
    OfClient,
    /// Of the handles of all clients together: `receiptHandleMaxNum`.
    OfAll,
}

impl Limit {
    /// Both.
    pub const ALL: [Self; 2] = [Self::OfClient, Self::OfAll];

    /// The configuration key.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::OfClient => "receiptHandleMaxNumPerClient",
            Self::OfAll => "receiptHandleMaxNum",
        }
    }
}

/// Handles that are not kept, or not kept any longer, because of one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotKept {
    /// Which limit.
    pub limit: Limit,
    /// All of them.
    pub handles: u64,
    /// The client and the consumer group with the most of them.
    pub client: Arc<str>,
    /// See `client`.
    pub group: Arc<str>,
    /// So many of them are theirs.
    pub of_client: u64,
}

/// Counts what is not kept until somebody asks.
#[derive(Default)]
pub(super) struct Overload {
    /// Only those that were first, if they are many; all of them are in `handles`.
    by_owner: HashMap<(Limit, Arc<str>, Arc<str>), u64>,
    handles: [u64; Limit::ALL.len()],
}

impl Overload {
    fn count(&mut self, limit: Limit, client: &str, group: &str) {
        if let Some(handles) = self.handles.get_mut(limit as usize) {
            *handles += 1;
        }
        let owner = (limit, Arc::from(client), Arc::from(group));
        if self.by_owner.len() < NAMES_MAX || self.by_owner.contains_key(&owner) {
            *self.by_owner.entry(owner).or_default() += 1;
        }
    }

    fn is_empty(&self) -> bool {
        self.by_owner.is_empty()
    }

    fn of(&self, limit: Limit) -> Option<NotKept> {
        let owners = self.by_owner.iter().filter(|((of, ..), _)| *of == limit);
        let ((_, client, group), of_client) = owners.max_by_key(|(owner, count)| (**count, &owner.1, &owner.2))?;
        let handles = self.handles.get(limit as usize).copied().unwrap_or(0);
        Some(NotKept { limit, handles, client: client.clone(), group: group.clone(), of_client: *of_client })
    }
}

impl Core {
    /// What was not kept since this was last asked: one for each limit that was reached.
    pub fn take_not_kept(&mut self) -> Vec<NotKept> {
        let overload = std::mem::take(&mut self.overload);
        Limit::ALL.into_iter().filter_map(|limit| overload.of(limit)).collect()
    }

    /// Whether [`Self::take_not_kept`] has something to tell.
    #[must_use]
    pub fn has_not_kept(&self) -> bool {
        !self.overload.is_empty()
    }

    /// Whether one more handle of this client, with a lease until `deadline`, may be held. What has the latest deadline
    /// is shed to make room: it loses nothing but being kept, and whoever has the longest time left needs that least.
    pub(super) fn make_room(&mut self, holder: Holder<'_>, deadline: i64) -> bool {
        self.approach_limit_of_all();
        [Limit::OfClient, Limit::OfAll].into_iter().all(|limit| {
            let room = self.make_room_within(limit, holder.client, deadline);
            if !room {
                self.overload.count(limit, holder.client, holder.group);
            }
            room
        })
    }

    /// What is only returned may exceed the limits that are configured: it is soon gone.
    pub(super) fn has_room_to_return(&mut self, holder: Holder<'_>) -> bool {
        let room = self.entries.has_room();
        if !room {
            self.overload.count(Limit::OfAll, holder.client, holder.group);
        }
        room
    }

    fn make_room_within(&mut self, limit: Limit, client: &str, deadline: i64) -> bool {
        for shed in 0..=SHED_AT_ONCE {
            // Shedding may take away the last that was known of the client.
            let client = self.names.find_client(client);
            let of_client = client.and_then(|client| self.names.clients.get(client)).map_or(0, |client| client.entries);
            let (held, most) = match limit {
                Limit::OfClient => (of_client, self.policy.max_handles_per_client),
                Limit::OfAll => (self.entries.len(), self.most_of_all()),
            };
            if held < most {
                return true;
            }
            let latest = match limit {
                Limit::OfClient => client.and_then(|client| self.latest_of(client)),
                Limit::OfAll => self.latest_of_all(),
            };
            match latest.filter(|&latest| at_of(latest) > deadline) {
                Some(latest) if shed < SHED_AT_ONCE => self.shed(limit, slot_of(latest)),
                // One has gone for the one that comes.
                _ => return shed > 0,
            }
        }
        true
    }

    fn shed(&mut self, limit: Limit, slot: u32) {
        let owner = self.entries.get(slot).and_then(|entry| self.names.owners.get(entry.owner));
        if let Some(owner) = owner
            && let Some(client) = self.names.clients.get(owner.client)
        {
            self.overload.count(limit, &client.id, &owner.group);
        }
        self.drop_entry(slot, Dropped::Shed);
    }
}
