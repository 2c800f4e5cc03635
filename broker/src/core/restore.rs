//! Building the core from what the store holds.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use parking_lot::{Mutex, RwLock};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use waybill_ops::address::without_brackets;
use waybill_ops::clock::Clock;

use super::delay::Delays;
use super::holders::Holders;
use super::left_behind::LeftBehind;
use super::redriven::Redriven;
use super::{Core, GroupTopic};
use crate::catalog::Catalog;
use crate::config::{BrokerConfig, FlushDiskType, InForce};
use crate::error::BrokerError;
use crate::lease::{Lease, Ledger, Progress, schema};
use crate::metrics::Metrics;
use crate::store::{Flush, Keyspace, Options, Store};

#[derive(Default)]
struct Rows {
    progress: Vec<(u32, Progress)>,
    leases: Vec<(u32, u64, Lease)>,
    /// Queues whose reset was not ended …
    being_reset: Vec<(u32, Progress)>,
    /// … and what is left of their leases of before.
    void: Vec<(u32, u64)>,
}

impl Core {
    /// Opens the store and builds everything from it. `port` is the one that message ids carry.
    ///
    /// # Errors
    /// A store that is in use, damaged or unreadable; rows of a newer version.
    pub fn open(
        in_force: InForce,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
        port: u16,
        options: Options,
    ) -> Result<Self, BrokerError> {
        let config = in_force.load_full();
        let store = Store::open(options)?;
        let catalog = Catalog::load(&store)?;
        let mut rows: HashMap<(u32, u32), Rows> = HashMap::new();
        for (key, value) in store.scan(Keyspace::Progress, &[])? {
            let row = schema::read_progress(&key, &value).map_err(|error| BrokerError::Internal(error.to_string()))?;
            let of_ledger = rows.entry((row.group, row.topic)).or_default();
            of_ledger.progress.push((row.queue, row.progress));
            if row.being_reset {
                of_ledger.being_reset.push((row.queue, row.progress));
            }
        }
        let mut holders = HashSet::new();
        for (key, value) in store.scan(Keyspace::Lease, &[])? {
            let row = schema::read_lease(&key, &value).map_err(|error| BrokerError::Internal(error.to_string()))?;
            let of_ledger = rows.entry((row.group, row.topic)).or_default();
            if of_ledger.being_reset.iter().any(|(queue, _)| *queue == row.queue) {
                of_ledger.void.push((row.queue, row.offset));
                continue;
            }
            holders.insert(row.lease.holder);
            of_ledger.leases.push((row.queue, row.offset, row.lease));
        }
        let holders = Holders::load(&store, &holders)?;
        let delays = Delays::new(config.timer_precision_ms);
        let redriven = Redriven::load(&store, &catalog.topics().iter().map(|topic| topic.id).collect())?;
        let transactions = Mutex::new(super::transaction::restore(&config, &store)?);
        let core = Self {
            store_host: SocketAddr::new(
                without_brackets(&config.broker_host).parse().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)),
                port,
            ),
            config: in_force,
            clock,
            metrics,
            store,
            catalog,
            topics: RwLock::default(),
            ledgers: RwLock::default(),
            subscribed: Mutex::default(),
            holders,
            delays,
            redriven,
            left_behind: LeftBehind::default(),
            transactions,
            polls: Arc::new(AtomicUsize::new(0)),
            stop: CancellationToken::new(),
        };
        core.adopt(rows);
        Ok(core)
    }

    fn adopt(&self, rows: HashMap<(u32, u32), Rows>) {
        let ordered: HashMap<u32, bool> =
            self.catalog.groups().iter().map(|group| (group.id, group.config.consume_message_orderly)).collect();
        let topics: HashSet<u32> = self.catalog.topics().iter().map(|topic| topic.id).collect();
        let (mut ledgers, mut leases) = (0, 0);
        for ((group, topic), rows) in rows {
            let (Some(ordered), true) = (ordered.get(&group), topics.contains(&topic)) else {
                self.sweep(group, topic, &rows);
                continue;
            };
            ledgers += 1;
            leases += rows.leases.len();
            if !rows.being_reset.is_empty() {
                info!(group, topic, leases = rows.void.len(), "a reset that was not ended is ended");
                // Nothing is written of this ledger before it.
                drop(self.end_reset(group, topic, rows.void.into_iter(), &rows.being_reset));
            }
            let ledger = Ledger::restore(*ordered, rows.progress, rows.leases);
            let consumer = Arc::new(GroupTopic::new(group, topic, ledger, self.subscribed_by(group)));
            self.topic_queues(topic).add_consumer(Arc::clone(&consumer));
            self.ledgers.write().insert((group, topic), consumer);
        }
        info!(topics = topics.len(), groups = ordered.len(), ledgers, leases, "state restored");
    }
}

impl Core {
    /// A pop that met the deletion of its topic or group may have written these rows after it; numbers are never reused.
    fn sweep(&self, group: u32, topic: u32, rows: &Rows) {
        let progress = rows.progress.iter().map(|(queue, _)| schema::progress_key(group, topic, *queue));
        let leases = rows.leases.iter().map(|(queue, offset, _)| (*queue, *offset)).chain(rows.void.iter().copied());
        let leases: Vec<_> = leases.map(|(queue, offset)| schema::lease_key(group, topic, queue, offset)).collect();
        warn!(group, topic, leases = leases.len(), "rows of a deleted group or topic are removed");
        self.store.clean_up(Keyspace::Progress, progress);
        self.store.clean_up(Keyspace::Lease, leases);
    }
}

/// How the store of a broker with this configuration is opened.
pub(crate) fn store_options(config: &BrokerConfig) -> Options {
    Options {
        flush: match config.flush_disk_type {
            FlushDiskType::Sync => Flush::Sync,
            FlushDiskType::Async => Flush::Async,
        },
        segment_bytes: config.mapped_file_size_commit_log,
        index_checkpoint_bytes: config.index_checkpoint_bytes,
        refused_is_fatal: true,
        ..Options::new(&config.store_path_root_dir)
    }
}
