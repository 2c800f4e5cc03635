//! What the broker counts. Upstream's names where upstream has the metric.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use waybill_protocol::remoting::codes;

use crate::Broker;
use crate::lease::Counts;
use crate::retention::{By, Cause};
use crate::store::{Entry, Health};
use crate::transaction::Decision;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByTopic {
    topic: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByTopicAndGroup {
    topic: String,
    consumer_group: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByGroup {
    consumer_group: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByCode {
    request_code: i32,
    response_code: i32,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByCause {
    cause: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByPromise {
    promised: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByReason {
    reason: &'static str,
}

/// The broker's counters.
#[derive(Debug)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    requests: Family<ByCode, Counter>,
    messages_in: Family<ByTopic, Counter>,
    bytes_in: Family<ByTopic, Counter>,
    messages_out: Family<ByTopicAndGroup, Counter>,
    bytes_out: Family<ByTopicAndGroup, Counter>,
    dead_letters: Family<ByGroup, Counter>,
    redriven: Family<ByGroup, Counter>,
    acked: Counter,
    acks_refused: Counter,
    changed: Counter,
    changes_refused: Counter,
    malformed_frames: Counter,
    connections_refused: Counter,
    tls_connections: Counter,
    tls_refused: Family<ByReason, Counter>,
    damaged_messages: Counter,
    reopened: Counter,
    clients_gone: Counter,
    leases_of_gone: Counter,
    clients_not_watched: Counter,
    segments_dropped: Family<ByCause, Counter>,
    bytes_dropped: Family<ByCause, Counter>,
    messages_dropped: Family<ByCause, Counter>,
    timer_held: Family<ByTopic, Counter>,
    timer_moved: Family<ByTopic, Counter>,
    timer_recalled: Counter,
    timer_dropped: Counter,
    committed: Counter,
    rolled_back: Counter,
    given_up: Counter,
    transaction_checks: Counter,
    nobody_to_ask: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        let metrics = Self {
            registry: Arc::default(),
            requests: Family::default(),
            messages_in: Family::default(),
            bytes_in: Family::default(),
            messages_out: Family::default(),
            bytes_out: Family::default(),
            dead_letters: Family::default(),
            redriven: Family::default(),
            acked: Counter::default(),
            acks_refused: Counter::default(),
            changed: Counter::default(),
            changes_refused: Counter::default(),
            malformed_frames: Counter::default(),
            connections_refused: Counter::default(),
            tls_connections: Counter::default(),
            tls_refused: Family::default(),
            damaged_messages: Counter::default(),
            reopened: Counter::default(),
            clients_gone: Counter::default(),
            leases_of_gone: Counter::default(),
            clients_not_watched: Counter::default(),
            segments_dropped: Family::default(),
            bytes_dropped: Family::default(),
            messages_dropped: Family::default(),
            timer_held: Family::default(),
            timer_moved: Family::default(),
            timer_recalled: Counter::default(),
            timer_dropped: Counter::default(),
            committed: Counter::default(),
            rolled_back: Counter::default(),
            given_up: Counter::default(),
            transaction_checks: Counter::default(),
            nobody_to_ask: Counter::default(),
        };
        let mut registry = metrics.registry.lock();
        registry.register(
            "waybill_broker_requests",
            "Requests by request code and response code",
            metrics.requests.clone(),
        );
        registry.register("rocketmq_messages_in", "Messages stored", metrics.messages_in.clone());
        registry.register("rocketmq_throughput_in", "Bytes of messages stored", metrics.bytes_in.clone());
        registry.register("rocketmq_messages_out", "Messages delivered", metrics.messages_out.clone());
        registry.register("rocketmq_throughput_out", "Bytes of messages delivered", metrics.bytes_out.clone());
        registry.register(
            "rocketmq_send_to_dlq_messages",
            "Messages moved to a dead-letter topic",
            metrics.dead_letters.clone(),
        );
        registry.register(
            "waybill_broker_dead_letters_redriven",
            "Dead letters sent back to the topic they came from",
            metrics.redriven.clone(),
        );
        registry.register("waybill_broker_acks", "Messages acknowledged", metrics.acked.clone());
        registry.register(
            "waybill_broker_acks_without_effect",
            "Acknowledgements of a message that was done already, or with a handle that names no live delivery",
            metrics.acks_refused.clone(),
        );
        registry.register("waybill_broker_lease_changes", "Invisible durations changed", metrics.changed.clone());
        registry.register(
            "waybill_broker_lease_changes_refused",
            "Changes of an invisible duration refused",
            metrics.changes_refused.clone(),
        );
        registry.register(
            "waybill_broker_malformed_frames",
            "Connections closed for a malformed frame",
            metrics.malformed_frames.clone(),
        );
        registry.register(
            "waybill_broker_connections_refused",
            "Connections refused over the limit",
            metrics.connections_refused.clone(),
        );
        registry.register(
            "waybill_broker_tls_connections",
            "Connections that turned out to be TLS",
            metrics.tls_connections.clone(),
        );
        registry.register(
            "waybill_broker_tls_refused",
            "Connections closed because TLS did not come about, or was missing where it is enforced",
            metrics.tls_refused.clone(),
        );
        registry.register(
            "waybill_broker_damaged_messages",
            "Stored messages skipped because they are damaged",
            metrics.damaged_messages.clone(),
        );
        registry.register(
            "waybill_broker_store_reopened",
            "Times the store was opened again after a failure",
            metrics.reopened.clone(),
        );
        registry.register(
            "waybill_broker_clients_gone",
            "Clients that no sidecar vouched for any longer",
            metrics.clients_gone.clone(),
        );
        registry.register(
            "waybill_broker_leases_of_gone_clients",
            "Leases given back because nobody vouched for their holder",
            metrics.leases_of_gone.clone(),
        );
        registry.register(
            "waybill_broker_clients_not_watched",
            "Times a client was over the limit of clients whose life is watched",
            metrics.clients_not_watched.clone(),
        );
        registry.register("rocketmq_commit_messages", "Transactions committed", metrics.committed.clone());
        registry.register(
            "rocketmq_rollback_messages",
            "Transactions rolled back by producers",
            metrics.rolled_back.clone(),
        );
        registry.register(
            "waybill_broker_transactions_given_up",
            "Transactions rolled back because nobody said what became of them",
            metrics.given_up.clone(),
        );
        registry.register(
            "waybill_broker_transaction_checks",
            "Questions to producers about open transactions",
            metrics.transaction_checks.clone(),
        );
        registry.register(
            "waybill_broker_transaction_checks_unheard",
            "Times nobody could be asked about an open transaction",
            metrics.nobody_to_ask.clone(),
        );
        registry.register(
            "rocketmq_timer_enqueue",
            "Messages stored that are delivered later",
            metrics.timer_held.clone(),
        );
        registry.register(
            "rocketmq_timer_dequeue",
            "Delayed messages that went to their queues",
            metrics.timer_moved.clone(),
        );
        registry.register("waybill_timer_recalled", "Delayed messages recalled", metrics.timer_recalled.clone());
        registry.register(
            "waybill_timer_dropped",
            "Delayed messages dropped because their topic was deleted",
            metrics.timer_dropped.clone(),
        );
        for (name, help, family) in [
            (
                "waybill_retention_segments_dropped",
                "Segments of the log that retention dropped",
                &metrics.segments_dropped,
            ),
            ("waybill_retention_bytes_dropped", "Bytes of the log that retention dropped", &metrics.bytes_dropped),
            ("waybill_retention_messages_dropped", "Messages that retention dropped", &metrics.messages_dropped),
        ] {
            registry.register(name, help, family.clone());
        }
        drop(registry);
        metrics
    }
}

impl Metrics {
    /// The registry that the admin port shows.
    pub fn registry(&self) -> Arc<Mutex<Registry>> {
        Arc::clone(&self.registry)
    }

    /// Shows the counters of whatever store the broker has open at the time.
    pub(crate) fn watch_store(&self, broker: &Arc<Broker>) {
        self.registry.lock().register_collector(Box::new(StoreMetrics(Arc::downgrade(broker))));
    }

    pub(crate) fn request(&self, request_code: i32, response_code: i32) {
        // A peer may invent request codes without end; they are told apart only if they have a name.
        let known = codes::request::name(request_code).or_else(|| codes::own::name(request_code)).is_some();
        let request_code = if known { request_code } else { -1 };
        self.requests.get_or_create(&ByCode { request_code, response_code }).inc();
    }

    pub(crate) fn messages_in(&self, topic: &str, count: u64, bytes: u64) {
        let label = ByTopic { topic: topic.to_owned() };
        self.messages_in.get_or_create(&label).inc_by(count);
        self.bytes_in.get_or_create(&label).inc_by(bytes);
    }

    pub(crate) fn messages_out(&self, topic: &str, group: &str, messages: &[(Entry, Bytes)]) {
        let label = ByTopicAndGroup { topic: topic.to_owned(), consumer_group: group.to_owned() };
        self.messages_out.get_or_create(&label).inc_by(messages.len() as u64);
        self.bytes_out.get_or_create(&label).inc_by(messages.iter().map(|(_, payload)| payload.len() as u64).sum());
    }

    /// What is gone is counted no more, so that names that come and go do not fill the memory.
    pub(crate) fn topic_deleted<'a>(&self, topic: &str, groups: impl Iterator<Item = &'a str>) {
        let label = ByTopic { topic: topic.to_owned() };
        self.messages_in.remove(&label);
        self.bytes_in.remove(&label);
        self.timer_held.remove(&label);
        self.timer_moved.remove(&label);
        for group in groups {
            self.forget(topic, group);
        }
    }

    /// See [`Metrics::topic_deleted`].
    pub(crate) fn group_deleted<'a>(&self, group: &str, topics: impl Iterator<Item = &'a str>) {
        self.dead_letters.remove(&ByGroup { consumer_group: group.to_owned() });
        self.redriven.remove(&ByGroup { consumer_group: group.to_owned() });
        for topic in topics {
            self.forget(topic, group);
        }
    }

    fn forget(&self, topic: &str, group: &str) {
        let label = ByTopicAndGroup { topic: topic.to_owned(), consumer_group: group.to_owned() };
        self.messages_out.remove(&label);
        self.bytes_out.remove(&label);
    }

    pub(crate) fn dead_letters(&self, group: &str, count: u64) {
        self.dead_letters.get_or_create(&ByGroup { consumer_group: group.to_owned() }).inc_by(count);
    }

    pub(crate) fn redriven(&self, group: &str, count: u64) {
        self.redriven.get_or_create(&ByGroup { consumer_group: group.to_owned() }).inc_by(count);
    }

    pub(crate) fn acked(&self, done: u64, without_effect: u64) {
        self.acked.inc_by(done);
        self.acks_refused.inc_by(without_effect);
    }

    pub(crate) fn changed(&self, done: u64, refused: u64) {
        self.changed.inc_by(done);
        self.changes_refused.inc_by(refused);
    }

    pub(crate) fn malformed_frame(&self) {
        self.malformed_frames.inc();
    }

    pub(crate) fn connection_refused(&self) {
        self.connections_refused.inc();
    }

    pub(crate) fn tls_connection(&self) {
        self.tls_connections.inc();
    }

    pub(crate) fn tls_refused(&self, reason: &'static str) {
        self.tls_refused.get_or_create(&ByReason { reason }).inc();
    }

    pub(crate) fn damaged_message(&self) {
        self.damaged_messages.inc();
    }

    pub(crate) fn clients_gone(&self, clients: u64, leases: u64) {
        self.clients_gone.inc_by(clients);
        self.leases_of_gone.inc_by(leases);
    }

    pub(crate) fn client_not_watched(&self) {
        self.clients_not_watched.inc();
    }

    pub(crate) fn transaction_ended(&self, decision: Decision) {
        let counter = match decision {
            Decision::Commit => &self.committed,
            Decision::Rollback => &self.rolled_back,
            Decision::GivenUp => &self.given_up,
        };
        counter.inc();
    }

    pub(crate) fn transaction_checks(&self, times: u64) {
        self.transaction_checks.inc_by(times);
    }

    pub(crate) fn nobody_to_ask(&self, times: u64) {
        self.nobody_to_ask.inc_by(times);
    }

    pub(crate) fn timer_held(&self, topic: &str, count: u64) {
        self.timer_held.get_or_create(&ByTopic { topic: topic.to_owned() }).inc_by(count);
    }

    pub(crate) fn timer_moved(&self, topic: &str, count: u64) {
        self.timer_moved.get_or_create(&ByTopic { topic: topic.to_owned() }).inc_by(count);
    }

    pub(crate) fn timer_recalled(&self, count: u64) {
        self.timer_recalled.inc_by(count);
    }

    pub(crate) fn timer_dropped(&self, count: u64) {
        self.timer_dropped.inc_by(count);
    }

    /// Retention has dropped a segment.
    pub(crate) fn dropped(&self, cause: Cause, bytes: u64, messages: u64) {
        let label = ByCause {
            cause: match cause {
                Cause::Age => "age",
                Cause::Disk => "disk",
            },
        };
        self.segments_dropped.get_or_create(&label).inc();
        self.bytes_dropped.get_or_create(&label).inc_by(bytes);
        self.messages_dropped.get_or_create(&label).inc_by(messages);
    }

    /// Retention has taken messages from queues of topics with a time of their own.
    pub(crate) fn dropped_of_topics(&self, messages: u64) {
        self.messages_dropped.get_or_create(&ByCause { cause: "topic" }).inc_by(messages);
    }

    pub(crate) fn store_reopened(&self) {
        self.reopened.inc();
    }
}

/// What each consumer group has before it, counted at each scrape.
fn encode_groups(broker: &Broker, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let counts: Vec<(ByTopicAndGroup, Counts)> = broker
        .core()
        .group_counts()
        .into_iter()
        .map(|(topic, consumer_group, counts)| (ByTopicAndGroup { topic, consumer_group }, counts))
        .collect();
    type Value = fn(&Counts) -> u64;
    let gauges: [(&str, &str, Value); 5] = [
        ("rocketmq_consumer_lag_messages", "Messages not done: never delivered, or delivered and open", |c| c.lag),
        ("rocketmq_consumer_inflight_messages", "Messages that a consumer holds", |c| c.in_flight),
        ("rocketmq_consumer_ready_messages", "Messages that could be delivered now", Counts::takeable),
        ("waybill_consumer_waiting_retry_messages", "Messages given back that are delivered again later", |c| {
            c.waiting
        }),
        (
            "waybill_consumer_blocked_messages",
            "Messages that wait because somebody holds another one of their message group",
            |c| c.blocked,
        ),
    ];
    for (name, help, value) in gauges {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, counts) in &counts {
            let gauge = ConstGauge::new(i64::try_from(value(counts)).unwrap_or(i64::MAX));
            gauge.encode(family.encode_family(labels)?)?;
        }
    }
    let (name, help) = ("waybill_consumer_dead_letters", "Messages in the dead-letter topic that were not redriven");
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for group in broker.core().catalog().groups() {
        let consumer_group = group.config.group_name.clone();
        let letters = i64::try_from(broker.core().dead_letters(&consumer_group)).unwrap_or(i64::MAX);
        ConstGauge::new(letters).encode(family.encode_family(&ByGroup { consumer_group })?)?;
    }
    Ok(())
}

/// Delayed messages that wait, and how late the first of them is, at each scrape.
fn encode_delays(broker: &Broker, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let core = broker.core();
    let help = "Delayed messages that wait for their time";
    let mut family = encoder.encode_descriptor("rocketmq_timing_messages", help, None, MetricType::Gauge)?;
    for (topic, count) in core.all_delayed() {
        let gauge = ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX));
        gauge.encode(family.encode_family(&ByTopic { topic })?)?;
    }
    let overdue = i64::try_from(core.overdue_ms()).unwrap_or(i64::MAX);
    let help = "For how long the first delayed message that is not in its queue yet has been due";
    let metric = encoder.encode_descriptor("waybill_timer_overdue_milliseconds", help, None, MetricType::Gauge)?;
    ConstGauge::new(overdue).encode(metric)
}

/// How long the log is, and what keeps it from getting shorter.
fn encode_log(broker: &Broker, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let segments = broker.core().store().segments();
    let bytes: u64 = segments.iter().map(|segment| segment.end.saturating_sub(segment.base)).sum();
    let oldest = segments.iter().find_map(|segment| segment.first_ms);
    let age_ms = oldest.map_or(0, |oldest| broker.now().saturating_sub(oldest).max(0));
    for (name, help, value) in [
        ("waybill_store_segments", "Segments of the log", i64::try_from(segments.len()).unwrap_or(i64::MAX)),
        ("waybill_store_log_bytes", "Bytes of disk that the log takes", i64::try_from(bytes).unwrap_or(i64::MAX)),
        ("waybill_store_oldest_message_seconds", "Age of the oldest message in the log", age_ms / 1000),
    ] {
        ConstGauge::new(value).encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
    }
    let retained = broker.retained();
    let help = "Segments that stay only because messages in them, or before them, are promised";
    let mut family =
        encoder.encode_descriptor("waybill_retention_segments_held_back", help, None, MetricType::Gauge)?;
    for by in By::ALL {
        let held_back = if retained.held_by == Some(by) { retained.held_back } else { 0 };
        let gauge = ConstGauge::new(i64::try_from(held_back).unwrap_or(i64::MAX));
        gauge.encode(family.encode_family(&ByPromise { promised: by.word() })?)?;
    }
    Ok(())
}

/// The store's own numbers, read at each scrape.
struct StoreMetrics(Weak<Broker>);

impl fmt::Debug for StoreMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreMetrics")
    }
}

impl Collector for StoreMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let Some(broker) = self.0.upgrade() else { return Ok(()) };
        let stats = broker.core().store().stats();
        for (name, help, value) in [
            ("waybill_store_records", "Batches written to the log", stats.records),
            ("waybill_store_bytes", "Bytes written to the log", stats.bytes),
            ("waybill_store_syncs", "Syncs of the log", stats.syncs),
            ("waybill_store_groups", "Groups of batches committed together", stats.groups),
        ] {
            ConstCounter::new(value).encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)?;
        }
        let full = i64::from(broker.core().store().health() == Health::DiskFull);
        let help = "1 while messages are refused because the disk is full";
        let metric = encoder.encode_descriptor("waybill_store_disk_full", help, None, MetricType::Gauge)?;
        ConstGauge::new(full).encode(metric)?;
        let watched = i64::try_from(broker.clients_watched()).unwrap_or(i64::MAX);
        let help = "Clients whose life is watched because they come through sidecars";
        let metric = encoder.encode_descriptor("waybill_broker_clients_watched", help, None, MetricType::Gauge)?;
        ConstGauge::new(watched).encode(metric)?;
        let mut halves: HashMap<u32, i64> = HashMap::new();
        for half in broker.core().open_halves() {
            *halves.entry(half.queue.topic).or_default() += 1;
        }
        let mut family = encoder.encode_descriptor(
            "rocketmq_half_messages",
            "Messages of open transactions, by the topic they are for",
            None,
            MetricType::Gauge,
        )?;
        for topic in broker.core().catalog().topics() {
            if let Some(open) = halves.get(&topic.id) {
                let labels = ByTopic { topic: topic.config.topic_name.clone() };
                ConstGauge::new(*open).encode(family.encode_family(&labels)?)?;
            }
        }
        let mut family = encoder.encode_descriptor(
            "waybill_consumer_differing_filters",
            "Filters that members of a group use on a topic at the same time, where they are not alike",
            None,
            MetricType::Gauge,
        )?;
        for (topic, consumer_group, filters) in broker.core().differing_filters() {
            let labels = ByTopicAndGroup { topic, consumer_group };
            ConstGauge::new(i64::try_from(filters).unwrap_or(i64::MAX)).encode(family.encode_family(&labels)?)?;
        }
        let mut family = encoder.encode_descriptor(
            "waybill_consumer_differing_topics",
            "Lists of topics that members of a group subscribe to at the same time, where they are not alike",
            None,
            MetricType::Gauge,
        )?;
        for (consumer_group, lists) in broker.core().differing_topics() {
            let labels = ByGroup { consumer_group };
            ConstGauge::new(i64::try_from(lists).unwrap_or(i64::MAX)).encode(family.encode_family(&labels)?)?;
        }
        encode_log(&broker, &mut encoder)?;
        encode_groups(&broker, &mut encoder)?;
        encode_delays(&broker, &mut encoder)
    }
}
