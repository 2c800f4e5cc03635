//! Topics and consumer groups and their settings: in memory for reading, in the store for keeps.
//!
//! Names are for people and the wire; inside, a topic or group is a number that is never given out twice, so that what is
//! left of a deleted topic can never show up in a new one of the same name.
//!
//! Rows: keyspace Topic, Group. Key: the name, UTF-8. Value: JSON `{"id":u32,"createdMs":i64,"config":{…as on the wire}}`.
//! Keyspace Meta. Key: `next-id`. Value: u32 big-endian, the next number to give.

mod attributes;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard, RwLock};
use serde::{Deserialize, Serialize};
use waybill_protocol::remoting::{SubscriptionGroupConfig, TopicConfig};

pub use attributes::{MESSAGE_TYPE, apply_attributes, message_type};

use crate::error::BrokerError;
use crate::store::{Batch, Keyspace, Store};

const NEXT_ID: &[u8] = b"next-id";
/// Read or write queues of one topic.
pub const QUEUES_MAX: i32 = 1024;

/// A topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TopicInfo {
    /// Number of the topic.
    pub id: u32,
    /// When it was created, milliseconds since 1970.
    pub created_ms: i64,
    /// Its settings.
    pub config: TopicConfig,
}

/// A consumer group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupInfo {
    /// Number of the group.
    pub id: u32,
    /// When it was created, milliseconds since 1970.
    pub created_ms: i64,
    /// Its settings.
    pub config: SubscriptionGroupConfig,
}

/// All topics and groups.
#[derive(Debug, Default)]
pub struct Catalog {
    topics: RwLock<BTreeMap<String, Arc<TopicInfo>>>,
    groups: RwLock<BTreeMap<String, Arc<GroupInfo>>>,
    writer: Mutex<u32>,
}

/// The right to change the catalog. Held until the batch is submitted, so that changes enter the log in the order they were made.
pub struct Writer<'a> {
    catalog: &'a Catalog,
    next_id: MutexGuard<'a, u32>,
}

impl Catalog {
    /// Reads the catalog from the store.
    ///
    /// # Errors
    /// A store that cannot be read, or a row that is not understood.
    pub fn load(store: &Store) -> Result<Self, BrokerError> {
        let catalog = Self::default();
        let mut next_id = match store.get(Keyspace::Meta, NEXT_ID)? {
            None => 1,
            Some(value) => u32::from_be_bytes(
                value.as_ref().try_into().map_err(|_| BrokerError::Internal("row next-id is malformed".into()))?,
            ),
        };
        for (key, value) in store.scan(Keyspace::Topic, &[])? {
            let info: TopicInfo = parse(&key, &value)?;
            next_id = next_id.max(info.id.saturating_add(1));
            catalog.topics.write().insert(info.config.topic_name.clone(), Arc::new(info));
        }
        for (key, value) in store.scan(Keyspace::Group, &[])? {
            let info: GroupInfo = parse(&key, &value)?;
            next_id = next_id.max(info.id.saturating_add(1));
            catalog.groups.write().insert(info.config.group_name.clone(), Arc::new(info));
        }
        *catalog.writer.lock() = next_id;
        Ok(catalog)
    }

    /// A topic by its name.
    pub fn topic(&self, name: &str) -> Option<Arc<TopicInfo>> {
        self.topics.read().get(name).cloned()
    }

    /// A group by its name.
    pub fn group(&self, name: &str) -> Option<Arc<GroupInfo>> {
        self.groups.read().get(name).cloned()
    }

    /// All topics, by name.
    pub fn topics(&self) -> Vec<Arc<TopicInfo>> {
        self.topics.read().values().cloned().collect()
    }

    /// All groups, by name.
    pub fn groups(&self) -> Vec<Arc<GroupInfo>> {
        self.groups.read().values().cloned().collect()
    }

    /// Begins a change.
    pub fn writer(&self) -> Writer<'_> {
        Writer { catalog: self, next_id: self.writer.lock() }
    }
}

impl Writer<'_> {
    /// Creates a topic or replaces its settings; its rows go into `batch`.
    ///
    /// # Errors
    /// Queue counts or permissions out of range, an attribute that is unknown or has a value it cannot have.
    pub fn put_topic(
        &mut self,
        config: TopicConfig,
        now_ms: i64,
        batch: &mut Batch,
    ) -> Result<Arc<TopicInfo>, BrokerError> {
        for (key, count) in [("readQueueNums", config.read_queue_nums), ("writeQueueNums", config.write_queue_nums)] {
            if !(1..=QUEUES_MAX).contains(&count) {
                return Err(BrokerError::InvalidParameter(format!("{key} is {count}, allowed are 1 to {QUEUES_MAX}")));
            }
        }
        if config.perm & !0b1111 != 0 {
            return Err(BrokerError::InvalidParameter(format!(
                "perm is {}, allowed are sums of 8, 4 (read), 2 (write) and 1",
                config.perm
            )));
        }
        attributes::check(&config.attributes)?;
        let old = self.catalog.topic(&config.topic_name);
        if old.as_ref().is_some_and(|old| old.config == config) {
            return old.ok_or_else(|| BrokerError::Internal("a topic vanished".into()));
        }
        let (id, created_ms) = match old {
            Some(old) => (old.id, old.created_ms),
            None => (self.take_id(batch), now_ms),
        };
        let info = Arc::new(TopicInfo { id, created_ms, config });
        batch.put(Keyspace::Topic, info.config.topic_name.as_bytes(), &to_json(info.as_ref())?);
        self.catalog.topics.write().insert(info.config.topic_name.clone(), Arc::clone(&info));
        Ok(info)
    }

    /// Creates a group or replaces its settings; its rows go into `batch`.
    ///
    /// # Errors
    /// Settings out of range.
    pub fn put_group(
        &mut self,
        config: SubscriptionGroupConfig,
        now_ms: i64,
        batch: &mut Batch,
    ) -> Result<Arc<GroupInfo>, BrokerError> {
        let within = |key: &str, value: i32, low: i32, high: i32| match (low..=high).contains(&value) {
            true => Ok(()),
            false => Err(BrokerError::InvalidParameter(format!("{key} is {value}, allowed are {low} to {high}"))),
        };
        within("retryMaxTimes", config.retry_max_times, 0, 10_000)?;
        within("consumeTimeoutMinute", config.consume_timeout_minute, 1, 10_080)?;
        within("retryQueueNums", config.retry_queue_nums, 0, QUEUES_MAX)?;
        let old = self.catalog.group(&config.group_name);
        if old.as_ref().is_some_and(|old| old.config == config) {
            return old.ok_or_else(|| BrokerError::Internal("a group vanished".into()));
        }
        let (id, created_ms) = match old {
            Some(old) => (old.id, old.created_ms),
            None => (self.take_id(batch), now_ms),
        };
        let info = Arc::new(GroupInfo { id, created_ms, config });
        batch.put(Keyspace::Group, info.config.group_name.as_bytes(), &to_json(info.as_ref())?);
        self.catalog.groups.write().insert(info.config.group_name.clone(), Arc::clone(&info));
        Ok(info)
    }

    /// Takes a topic out of the catalog; its messages are the caller's to drop.
    pub fn delete_topic(&mut self, name: &str, batch: &mut Batch) -> Option<Arc<TopicInfo>> {
        let info = self.catalog.topics.write().remove(name)?;
        batch.delete(Keyspace::Topic, name.as_bytes());
        Some(info)
    }

    /// Takes a group out of the catalog; its leases and progress are the caller's to drop.
    pub fn delete_group(&mut self, name: &str, batch: &mut Batch) -> Option<Arc<GroupInfo>> {
        let info = self.catalog.groups.write().remove(name)?;
        batch.delete(Keyspace::Group, name.as_bytes());
        Some(info)
    }

    fn take_id(&mut self, batch: &mut Batch) -> u32 {
        let id = *self.next_id;
        *self.next_id = id.saturating_add(1);
        batch.put(Keyspace::Meta, NEXT_ID, &self.next_id.to_be_bytes());
        id
    }
}

fn to_json(info: &impl Serialize) -> Result<Vec<u8>, BrokerError> {
    serde_json::to_vec(info).map_err(|error| BrokerError::Internal(error.to_string()))
}

fn parse<T: for<'de> Deserialize<'de>>(key: &[u8], value: &[u8]) -> Result<T, BrokerError> {
    serde_json::from_slice(value).map_err(|error| {
        BrokerError::Internal(format!("the row of {:?} is not understood: {error}", String::from_utf8_lossy(key)))
    })
}
