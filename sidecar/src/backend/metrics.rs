//! What is counted about brokers.

use std::time::Duration;

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};
use waybill_protocol::remoting::codes::{request, response};

use crate::batching::{Caller, Kind};

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum Outcome {
    /// Answered with success.
    Ok,
    /// Answered with "there is nothing", which is how most long polls end.
    Nothing,
    /// Answered with another code.
    Refused,
    /// Sent, and the answer did not come.
    NoAnswer,
    /// Not sent: the broker's address is not known.
    NotSent,
}

impl Outcome {
    pub(crate) fn of(code: i32) -> Self {
        match code {
            response::SUCCESS => Self::Ok,
            response::POLLING_TIMEOUT | response::PULL_NOT_FOUND => Self::Nothing,
            _ => Self::Refused,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    request: &'static str,
    outcome: Outcome,
}

/// What became of a lease that was to be changed or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum LeaseOutcome {
    /// The broker did it.
    Ok,
    /// The broker refused it, or did not answer.
    Failed,
    /// Not sent: no broker can know the handle, or it is over.
    RefusedHere,
    /// Not sent: too much waited.
    Full,
    /// Not sent: it has waited too long.
    Late,
}

/// Why what could have been one request had to be several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum Fallback {
    /// The broker does not know such requests.
    NotSupported,
    /// The broker did not take it as a whole.
    TooLarge,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LeaseLabels {
    kind: Kind,
    caller: Caller,
    outcome: LeaseOutcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SizeLabels {
    kind: Kind,
    caller: Caller,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FallbackLabels {
    kind: Kind,
    why: Fallback,
}

/// 1 to 16,384 entries.
fn sizes() -> Histogram {
    Histogram::new(exponential_buckets(1.0, 2.0, 15))
}

/// Counters of requests to brokers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct BackendMetrics {
    requests: Family<Labels, Counter>,
    leases: Family<LeaseLabels, Counter>,
    sizes: Family<SizeLabels, Histogram, fn() -> Histogram>,
    wait: Histogram,
    waiting: Gauge,
    fallbacks: Family<FallbackLabels, Counter>,
    given_back: Counter,
    lost_handles: Counter,
    namesakes: Counter,
    surplus_queues: Counter,
}

impl Default for BackendMetrics {
    fn default() -> Self {
        Self {
            requests: Family::default(),
            leases: Family::default(),
            sizes: Family::new_with_constructor(sizes),
            wait: Histogram::new(exponential_buckets(0.000_1, 4.0, 9)),
            waiting: Gauge::default(),
            fallbacks: Family::default(),
            given_back: Counter::default(),
            lost_handles: Counter::default(),
            namesakes: Counter::default(),
            surplus_queues: Counter::default(),
        }
    }
}

impl BackendMetrics {
    /// Adds the counters to `registry`.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "waybill_sidecar_broker_requests",
            "Requests to brokers, by kind and by how they ended",
            self.requests.clone(),
        );
        registry.register(
            "waybill_sidecar_lease_entries",
            "Leases to be ended or changed at brokers, by on whose behalf and by what became of it",
            self.leases.clone(),
        );
        registry.register(
            "waybill_sidecar_lease_request_entries",
            "Leases in one request to a broker; counted once for each caller that has some in it",
            self.sizes.clone(),
        );
        registry.register_with_unit(
            "waybill_sidecar_lease_wait",
            "How long the oldest lease of a request had waited for it to be sent",
            Unit::Seconds,
            self.wait.clone(),
        );
        registry.register(
            "waybill_sidecar_leases_waiting",
            "Leases that wait to be ended or changed",
            self.waiting.clone(),
        );
        registry.register(
            "waybill_sidecar_batch_fallbacks",
            "Batches that a broker did not take as a whole and that were sent in parts or one by one",
            self.fallbacks.clone(),
        );
        registry.register(
            "waybill_sidecar_unwanted_messages",
            "Messages that were given back at once because the client had gone before they came",
            self.given_back.clone(),
        );
        registry.register(
            "waybill_sidecar_messages_without_handle",
            "Messages of a broker's answer that could not be delivered because the answer does not say what their handle is",
            self.lost_handles.clone(),
        );
        registry.register(
            "waybill_sidecar_broker_name_conflicts",
            "Answers about brokers in which one brokerName stood for two masters, of which one is not used",
            self.namesakes.clone(),
        );
        registry.register(
            "waybill_sidecar_route_queues_left_out",
            "Queues of routes that are not used because a broker claims more than a sidecar uses",
            self.surplus_queues.clone(),
        );
    }

    pub(crate) fn count(&self, code: i32, outcome: Outcome) {
        let labels = Labels { request: request::name(code).unwrap_or("OTHER"), outcome };
        self.requests.get_or_create(&labels).inc();
    }

    pub(crate) fn lease(&self, kind: Kind, caller: Caller, outcome: LeaseOutcome) {
        self.leases.get_or_create(&LeaseLabels { kind, caller, outcome }).inc();
    }

    pub(crate) fn leases_wait(&self, entries: usize) {
        self.waiting.set(i64::try_from(entries).unwrap_or(i64::MAX));
    }

    /// A request with `entries` leases of these callers is sent; the oldest has waited for `waited`.
    pub(crate) fn lease_request(
        &self,
        kind: Kind,
        entries: usize,
        callers: impl Iterator<Item = Caller>,
        waited: Duration,
    ) {
        for caller in callers {
            self.sizes.get_or_create(&SizeLabels { kind, caller }).observe(entries as f64);
        }
        self.wait.observe(waited.as_secs_f64());
    }

    pub(crate) fn fell_back(&self, kind: Kind, why: Fallback) {
        self.fallbacks.get_or_create(&FallbackLabels { kind, why }).inc();
    }

    pub(crate) fn gave_back(&self, messages: usize) {
        self.given_back.inc_by(messages as u64);
    }

    pub(crate) fn lost_handle(&self) {
        self.lost_handles.inc();
    }

    pub(crate) fn namesake(&self) {
        self.namesakes.inc();
    }

    pub(crate) fn left_out(&self, queues: u64) {
        self.surplus_queues.inc_by(queues);
    }
}
