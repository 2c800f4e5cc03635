//! The core: store, catalog and ledgers put together. It knows messages, topics, groups and leases, and nothing of sockets.
//!
//! Memory is changed first, under the lock of what is changed, and the batch is submitted under that same lock; so the order
//! in the log is the order of the changes. An answer waits for its batch. If a batch fails, the whole core is thrown away and
//! built again from the store (see [`crate::Broker`]), so nothing ever has to be undone.

mod ack;
mod by_time;
mod counts;
mod dead_letters;
mod delay;
mod describe;
mod filter;
mod gone;
mod holders;
mod inspect;
mod left;
mod left_behind;
mod manage;
mod pop;
mod query;
mod queues;
mod recall;
mod redrive;
mod redriven;
mod reset;
mod restore;
mod retain;
mod send;
mod send_back;
mod shrink;
mod source;
mod subscriptions;
mod transaction;
mod wake;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize};

use parking_lot::{MappedMutexGuard, Mutex, MutexGuard, RwLock};
use tokio_util::sync::CancellationToken;
use waybill_ops::clock::Clock;

pub use ack::{ChangeEntry, HandleRef};
pub use counts::{GroupCounts, QueueStats, TopicCounts};
pub use dead_letters::Forward;
pub use delay::Step;
pub use describe::{DescribeAnswer, Described, GroupState};
pub use inspect::{LeaseQuery, LeaseView};
pub use pop::{Delivered, Notice, Pop, PopAnswer};
pub use query::{Match, Query, QueryAnswer, Wanted};
pub use redrive::{Letter, Redrive, RedriveAnswer};
pub use reset::{Reset, ResetTo};
pub(crate) use restore::store_options;
pub use send::{OutgoingMessage, Send, Sent};
pub use send_back::SendBack;
pub use transaction::{End, Question};

use crate::catalog::{Catalog, GroupInfo, TopicInfo};
use crate::config::InForce;
use crate::error::BrokerError;
use crate::lease::{Ledger, schema::CHANGE_BYTES_MAX};
use crate::metrics::Metrics;
use crate::store::Store;
use crate::transaction::Transactions;
use delay::Delays;
use holders::Holders;
use left_behind::LeftBehind;
use queues::TopicQueues;
use redriven::Redriven;
use subscriptions::Subscriptions;
use wake::Waiters;

/// A ledger, unless its topic or group was deleted: then nothing may be written for it any more.
#[derive(Debug)]
struct Slot {
    ledger: Ledger,
    closed: bool,
}

/// One consumer group on one topic: its leases and the polls that wait.
///
/// Order of locks: ledgers (by group and topic, if several), then the catalog's writer, then what was redriven, then the counters of
/// queues (by topic and queue, if several).
#[derive(Debug)]
pub(crate) struct GroupTopic {
    pub(crate) group: u32,
    pub(crate) topic: u32,
    ledger: Mutex<Slot>,
    pub(crate) waiters: Arc<Waiters>,
    /// The earliest lease deadline for which a waiting poll has set its timer, milliseconds since 1970.
    armed_ms: AtomicI64,
    /// The filters that members of the group use on the topic.
    filters: Subscriptions,
    /// The topics that members of the group subscribe to; one for the group.
    topics: Arc<Subscriptions>,
}

impl GroupTopic {
    fn new(group: u32, topic: u32, ledger: Ledger, topics: Arc<Subscriptions>) -> Self {
        let slot = Slot { ledger, closed: false };
        Self {
            group,
            topic,
            ledger: Mutex::new(slot),
            waiters: Arc::default(),
            armed_ms: AtomicI64::new(i64::MAX),
            filters: Subscriptions::default(),
            topics,
        }
    }
}

impl GroupTopic {
    /// The ledger; `None` if its topic or group is gone.
    fn open_ledger(&self) -> Option<MappedMutexGuard<'_, Ledger>> {
        MutexGuard::try_map(self.ledger.lock(), |slot| (!slot.closed).then_some(&mut slot.ledger)).ok()
    }
}

/// Everything a broker knows, in memory and on disk.
pub struct Core {
    config: InForce,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    store: Store,
    catalog: Catalog,
    topics: RwLock<HashMap<u32, Arc<TopicQueues>>>,
    ledgers: RwLock<HashMap<(u32, u32), Arc<GroupTopic>>>,
    /// By group; locked within `ledgers`.
    subscribed: Mutex<HashMap<u32, Arc<Subscriptions>>>,
    holders: Holders,
    delays: Delays,
    redriven: Redriven,
    left_behind: LeftBehind,
    /// Locked before the counters of queues and after the catalog's writer.
    transactions: Mutex<Transactions>,
    polls: Arc<AtomicUsize>,
    store_host: SocketAddr,
    stop: CancellationToken,
}

impl Core {
    /// The store below.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The topics and groups.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// The address inside message ids.
    pub(crate) fn store_host(&self) -> SocketAddr {
        self.store_host
    }

    fn now(&self) -> i64 {
        self.clock.now_ms()
    }

    /// Rows of leases that one batch may change, where it has to be one.
    fn rows_max(&self) -> usize {
        usize::try_from(self.store.batch_bytes_max() / 2 / CHANGE_BYTES_MAX).unwrap_or(usize::MAX)
    }

    /// Rows of leases that go into one batch, where they need not be one: so many have room on a full disk, too.
    fn rows_at_once(&self) -> usize {
        let fit = self.store.batch_bytes_max() / 32 / CHANGE_BYTES_MAX;
        usize::try_from(fit).unwrap_or(usize::MAX).max(1)
    }

    /// Bytes of messages that one batch may have, which leaves room for what is said of them.
    fn payload_bytes_max(&self) -> usize {
        usize::try_from(self.store.batch_bytes_max() / 8 * 7).unwrap_or(usize::MAX)
    }

    /// Ends every waiting poll; later ones end at once.
    pub(crate) fn stop_polls(&self) {
        self.stop.cancel();
    }

    fn topic(&self, name: &str) -> Result<Arc<TopicInfo>, BrokerError> {
        self.catalog.topic(name).ok_or_else(|| BrokerError::TopicNotFound(name.to_owned()))
    }

    fn group(&self, name: &str) -> Result<Arc<GroupInfo>, BrokerError> {
        self.catalog.group(name).ok_or_else(|| BrokerError::GroupNotFound(name.to_owned()))
    }

    fn topic_queues(&self, id: u32) -> Arc<TopicQueues> {
        if let Some(queues) = self.topics.read().get(&id) {
            return Arc::clone(queues);
        }
        Arc::clone(self.topics.write().entry(id).or_insert_with(|| Arc::new(TopicQueues::new(id))))
    }

    /// The ledger of a group on a topic, if that group ever read it.
    fn existing_ledger(&self, group: u32, topic: u32) -> Option<Arc<GroupTopic>> {
        self.ledgers.read().get(&(group, topic)).cloned()
    }

    fn ledger(&self, group: &GroupInfo, topic: &TopicInfo) -> Result<Arc<GroupTopic>, BrokerError> {
        if let Some(ledger) = self.existing_ledger(group.id, topic.id) {
            return Ok(ledger);
        }
        let mut ledgers = self.ledgers.write();
        if let Some(ledger) = ledgers.get(&(group.id, topic.id)) {
            return Ok(Arc::clone(ledger));
        }
        if ledgers.len() >= crate::limits::LEDGERS_MAX {
            return Err(BrokerError::Busy(format!(
                "{} groups on topics are open, no more are taken",
                crate::limits::LEDGERS_MAX
            )));
        }
        let ordered = group.config.consume_message_orderly;
        let subscribed = self.subscribed_by(group.id);
        let fresh = Arc::new(GroupTopic::new(group.id, topic.id, Ledger::new(ordered), subscribed));
        ledgers.insert((group.id, topic.id), Arc::clone(&fresh));
        self.topic_queues(topic.id).add_consumer(Arc::clone(&fresh));
        Ok(fresh)
    }
}
