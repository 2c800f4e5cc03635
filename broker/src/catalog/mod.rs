//! Topics and consumer groups and their settings: in memory for reading, in the store for keeps.
//!
//! Names are for people and the wire; inside, a topic or group is a number that is never given out twice, so that what is
//! left of a deleted topic can never show up in a new one of the same name.
//!
//! Rows: keyspace Topic, Group. Key: the name, UTF-8. Value: JSON `{"id":u32,"createdMs":i64,"config":{…as on the wire}}`.
//! Keyspace Meta. Key: `next-id`. Value: u32 big-endian, the next number to give.

mod attributes;
#[cfg(test)]
mod tests;
mod validate;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard, RwLock};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use waybill_protocol::names::DLQ_PREFIX;
use waybill_protocol::remoting::{SubscriptionGroupConfig, TopicConfig};

pub use attributes::{MESSAGE_TYPE, apply_attributes, message_type, reserved_hours};

use crate::error::BrokerError;
use crate::store::{Batch, Keyspace, Store};

const NEXT_ID: &[u8] = b"next-id";
/// Read or write queues of one topic.
pub const QUEUES_MAX: i32 = 1024;
/// Topics of a broker, dead-letter topics not counted before they are there.
pub const TOPICS_MAX: usize = 100_000;
/// Consumer groups of a broker.
pub const GROUPS_MAX: usize = 100_000;
/// Bytes of a row: of all settings of a topic or group.
const ROW_BYTES_MAX: usize = 64 * 1024;

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
#[derive(Debug)]
pub struct Catalog {
    topics: RwLock<BTreeMap<String, Arc<TopicInfo>>>,
    /// The name of the topic with a number.
    topic_names: RwLock<HashMap<u32, String>>,
    groups: RwLock<BTreeMap<String, Arc<GroupInfo>>>,
    writer: Mutex<u32>,
}

/// The right to change the catalog. Held until the batch is submitted, so that changes enter the log in the order they were made.
pub struct Writer<'a> {
    catalog: &'a Catalog,
    next_id: MutexGuard<'a, u32>,
}

impl Catalog {
    fn new() -> Self {
        // 0 stands for no topic and no group.
        Self {
            topics: RwLock::default(),
            topic_names: RwLock::default(),
            groups: RwLock::default(),
            writer: Mutex::new(1),
        }
    }

    /// Reads the catalog from the store.
    ///
    /// # Errors
    /// A store that cannot be read, or a row that is not understood.
    pub fn load(store: &Store) -> Result<Self, BrokerError> {
        let catalog = Self::new();
        let mut next_id = match store.get(Keyspace::Meta, NEXT_ID)? {
            None => 1,
            Some(value) => u32::from_be_bytes(
                value.as_ref().try_into().map_err(|_| BrokerError::Internal("row next-id is malformed".into()))?,
            ),
        };
        for (key, value) in store.scan(Keyspace::Topic, &[])? {
            let info: TopicInfo = parse(&key, &value, |info: &TopicInfo| info.config.topic_name.as_str())?;
            next_id = next_id.max(info.id.saturating_add(1));
            catalog.topic_names.write().insert(info.id, info.config.topic_name.clone());
            catalog.topics.write().insert(info.config.topic_name.clone(), Arc::new(info));
        }
        for (key, value) in store.scan(Keyspace::Group, &[])? {
            let info: GroupInfo = parse(&key, &value, |info: &GroupInfo| info.config.group_name.as_str())?;
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

    /// A topic by its number.
    pub fn topic_by_id(&self, id: u32) -> Option<Arc<TopicInfo>> {
        let name = self.topic_names.read().get(&id).cloned()?;
        self.topic(&name).filter(|topic| topic.id == id)
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
    /// Creates a topic or replaces its settings; its rows go into `batch`, nothing if it has these settings already.
    ///
    /// # Errors
    /// Settings out of range, an attribute that is unknown or has a value it cannot have, too many topics.
    pub fn put_topic(
        &mut self,
        config: TopicConfig,
        now_ms: i64,
        batch: &mut Batch,
    ) -> Result<Arc<TopicInfo>, BrokerError> {
        validate::topic(&config)?;
        let info = match self.catalog.topic(&config.topic_name) {
            Some(old) if old.config == config => return Ok(old),
            Some(old) => TopicInfo { id: old.id, created_ms: old.created_ms, config },
            None => {
                // What uses up its attempts is never lost for want of a topic.
                if !config.topic_name.starts_with(DLQ_PREFIX) {
                    validate::count("topics", self.catalog.topics.read().len(), TOPICS_MAX)?;
                }
                TopicInfo { id: self.free_id()?, created_ms: now_ms, config }
            }
        };
        let row = to_row(&info)?;
        self.take_id(info.id, batch);
        batch.put(Keyspace::Topic, info.config.topic_name.as_bytes(), &row);
        let info = Arc::new(info);
        self.catalog.topic_names.write().insert(info.id, info.config.topic_name.clone());
        self.catalog.topics.write().insert(info.config.topic_name.clone(), Arc::clone(&info));
        Ok(info)
    }

    /// Creates a group or replaces its settings; its rows go into `batch`, nothing if it has these settings already.
    ///
    /// # Errors
    /// Settings out of range, too many groups.
    pub fn put_group(
        &mut self,
        config: SubscriptionGroupConfig,
        now_ms: i64,
        batch: &mut Batch,
    ) -> Result<Arc<GroupInfo>, BrokerError> {
        validate::group(&config)?;
        let info = match self.catalog.group(&config.group_name) {
            Some(old) if old.config == config => return Ok(old),
            Some(old) => GroupInfo { id: old.id, created_ms: old.created_ms, config },
            None => {
                validate::count("consumer groups", self.catalog.groups.read().len(), GROUPS_MAX)?;
                GroupInfo { id: self.free_id()?, created_ms: now_ms, config }
            }
        };
        let row = to_row(&info)?;
        self.take_id(info.id, batch);
        batch.put(Keyspace::Group, info.config.group_name.as_bytes(), &row);
        let info = Arc::new(info);
        self.catalog.groups.write().insert(info.config.group_name.clone(), Arc::clone(&info));
        Ok(info)
    }

    /// Takes a topic out of the catalog; its messages are the caller's to drop.
    pub fn delete_topic(&mut self, name: &str, batch: &mut Batch) -> Option<Arc<TopicInfo>> {
        let info = self.catalog.topics.write().remove(name)?;
        self.catalog.topic_names.write().remove(&info.id);
        batch.delete(Keyspace::Topic, name.as_bytes());
        Some(info)
    }

    /// Takes a group out of the catalog; its leases and progress are the caller's to drop.
    pub fn delete_group(&mut self, name: &str, batch: &mut Batch) -> Option<Arc<GroupInfo>> {
        let info = self.catalog.groups.write().remove(name)?;
        batch.delete(Keyspace::Group, name.as_bytes());
        Some(info)
    }

    fn free_id(&self) -> Result<u32, BrokerError> {
        match *self.next_id {
            u32::MAX => Err(BrokerError::Internal("all numbers for topics and groups are used up".into())),
            id => Ok(id),
        }
    }

    /// Notes in the same batch that a number is used, so that it is not given out again after a deletion.
    fn take_id(&mut self, id: u32, batch: &mut Batch) {
        if id == *self.next_id {
            *self.next_id += 1;
            batch.put(Keyspace::Meta, NEXT_ID, &self.next_id.to_be_bytes());
        }
    }
}

fn to_row(info: &impl Serialize) -> Result<Vec<u8>, BrokerError> {
    let row = serde_json::to_vec(info).map_err(|error| BrokerError::Internal(error.to_string()))?;
    if row.len() > ROW_BYTES_MAX {
        let size = row.len();
        return Err(BrokerError::InvalidParameter(format!("the settings have {size} bytes, limit {ROW_BYTES_MAX}")));
    }
    Ok(row)
}

fn parse<T: DeserializeOwned>(key: &[u8], value: &[u8], name: impl Fn(&T) -> &str) -> Result<T, BrokerError> {
    let damaged = |why: String| {
        BrokerError::Internal(format!("the row of {:?} is not understood: {why}", String::from_utf8_lossy(key)))
    };
    let info = serde_json::from_slice(value).map_err(|error| damaged(error.to_string()))?;
    match name(&info) {
        name if name.as_bytes() == key => Ok(info),
        other => Err(damaged(format!("it is about {other:?}"))),
    }
}
