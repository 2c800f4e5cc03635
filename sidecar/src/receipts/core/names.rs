//! Names are kept once and numbered; entries hold the numbers.

use std::{
    hash::{BuildHasher, Hash, RandomState},
    sync::Arc,
};

use hashbrown::HashTable;
use waybill_protocol::handle::TopicType;

use super::entry::NONE;

/// What one request to a broker can be about: one group on one real topic at one broker.
pub(super) struct Target {
    pub(super) group: Arc<str>,
    pub(super) topic: Arc<str>,
    pub(super) broker: Arc<str>,
    pub(super) topic_type: TopicType,
    /// The broker's lane in the timetable.
    pub(super) lane: u32,
    /// Entries that name it.
    pub(super) entries: u32,
}

/// A client in one group.
pub(super) struct Owner {
    pub(super) client: u32,
    pub(super) group: Arc<str>,
    /// First entry of its list.
    pub(super) head: u32,
    pub(super) entries: u32,
}

impl Owner {
    pub(super) fn new(client: u32, group: &str) -> Self {
        Self { client, group: group.into(), head: NONE, entries: 0 }
    }
}

/// A client.
pub(super) struct Client {
    pub(super) id: Arc<str>,
    pub(super) entries: u32,
    /// Its owners: one for each group in which it holds something.
    pub(super) owners: Vec<u32>,
    /// Gone altogether.
    pub(super) gone: bool,
    /// Gone from these groups.
    pub(super) gone_from: Vec<Arc<str>>,
    /// Until when that is remembered.
    pub(super) gone_until: i64,
}

impl Client {
    pub(super) fn new(id: &str) -> Self {
        Self { id: id.into(), entries: 0, owners: Vec::new(), gone: false, gone_from: Vec::new(), gone_until: i64::MIN }
    }

    pub(super) fn is_gone_from(&self, group: &str) -> bool {
        self.gone || self.gone_from.iter().any(|gone| **gone == *group)
    }

    pub(super) fn is_marked(&self) -> bool {
        self.gone || !self.gone_from.is_empty()
    }
}

/// Things found by name, each with a small number that is reused after removal.
pub(super) struct Interner<T> {
    table: HashTable<u32>,
    slots: Vec<Option<(u64, T)>>,
    free: Vec<u32>,
}

impl<T> Interner<T> {
    pub(super) fn new() -> Self {
        Self { table: HashTable::new(), slots: Vec::new(), free: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    pub(super) fn get(&self, number: u32) -> Option<&T> {
        self.slots.get(number as usize)?.as_ref().map(|(_, value)| value)
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.slots.get_mut(number as usize)?.as_mut().map(|(_, value)| value)
    }

    pub(super) fn find(&self, hash: u64, is: impl Fn(&T) -> bool) -> Option<u32> {
        self.table.find(hash, |&number| self.get(number).is_some_and(&is)).copied()
    }

    pub(super) fn insert(&mut self, hash: u64, value: T) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).unwrap_or(NONE)
        });
        if let Some(slot) = self.slots.get_mut(number as usize) {
            *slot = Some((hash, value));
        }
        let slots = &self.slots;
        let rehash = |&number: &u32| slots.get(number as usize).and_then(Option::as_ref).map_or(0, |(hash, _)| *hash);
        self.table.insert_unique(hash, number, rehash);
        number
    }

    pub(super) fn remove(&mut self, number: u32) {
        let Some((hash, _)) = self.slots.get_mut(number as usize).and_then(Option::take) else { return };
        if let Ok(occupied) = self.table.find_entry(hash, |&other| other == number) {
            occupied.remove();
        }
        self.free.push(number);
    }
}

/// All names.
pub(super) struct Names {
    hashing: RandomState,
    pub(super) targets: Interner<Target>,
    pub(super) owners: Interner<Owner>,
    pub(super) clients: Interner<Client>,
}

impl Names {
    pub(super) fn new() -> Self {
        Self {
            hashing: RandomState::new(),
            targets: Interner::new(),
            owners: Interner::new(),
            clients: Interner::new(),
        }
    }

    pub(super) fn hash(&self, value: impl Hash) -> u64 {
        self.hashing.hash_one(value)
    }

    pub(super) fn find_client(&self, id: &str) -> Option<u32> {
        self.clients.find(self.hashing.hash_one(id), |client| *client.id == *id)
    }

    /// The client's number, a new one if it has none.
    pub(super) fn client(&mut self, id: &str) -> u32 {
        match self.find_client(id) {
            Some(number) => number,
            None => self.clients.insert(self.hashing.hash_one(id), Client::new(id)),
        }
    }

    pub(super) fn find_owner(&self, client: u32, group: &str) -> Option<u32> {
        self.owners.find(self.hashing.hash_one((client, group)), |o| o.client == client && *o.group == *group)
    }

    /// The number of a client in a group, a new one if it has none.
    pub(super) fn owner(&mut self, client: u32, group: &str) -> u32 {
        if let Some(number) = self.find_owner(client, group) {
            return number;
        }
        let number = self.owners.insert(self.hashing.hash_one((client, group)), Owner::new(client, group));
        if let Some(client) = self.clients.get_mut(client) {
            client.owners.push(number);
        }
        number
    }

    /// Forgets an owner that holds nothing, and its client if nothing else is known of it.
    pub(super) fn release_owner(&mut self, number: u32) {
        let Some(owner) = self.owners.get(number).filter(|owner| owner.entries == 0) else { return };
        let client = owner.client;
        self.owners.remove(number);
        if let Some(client) = self.clients.get_mut(client) {
            client.owners.retain(|&other| other != number);
        }
        self.release_client(client);
    }

    /// Forgets a client that holds nothing and is not marked as gone.
    pub(super) fn release_client(&mut self, number: u32) {
        if self.clients.get(number).is_some_and(|client| client.owners.is_empty() && !client.is_marked()) {
            self.clients.remove(number);
        }
    }

    pub(super) fn find_target(&self, group: &str, topic: &str, broker: &str, topic_type: TopicType) -> Option<u32> {
        self.targets.find(self.target_hash(group, topic, broker, topic_type), |target| {
            *target.group == *group
                && *target.topic == *topic
                && *target.broker == *broker
                && target.topic_type == topic_type
        })
    }

    pub(super) fn insert_target(&mut self, target: Target) -> u32 {
        let hash = self.target_hash(&target.group, &target.topic, &target.broker, target.topic_type);
        self.targets.insert(hash, target)
    }

    fn target_hash(&self, group: &str, topic: &str, broker: &str, topic_type: TopicType) -> u64 {
        self.hashing.hash_one((group, topic, broker, topic_type as u8))
    }
}
