//! What is counted about brokers.

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue},
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};
use waybill_protocol::remoting::codes::{request, response};

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

/// Counters of requests to brokers. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct BackendMetrics {
    requests: Family<Labels, Counter>,
    fallbacks: Counter,
    given_back: Counter,
    lost_handles: Counter,
    namesakes: Counter,
    surplus_queues: Counter,
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
            "waybill_sidecar_batch_fallbacks",
            "Batches that were sent one by one because the broker could not take them whole",
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

    pub(crate) fn fell_back(&self) {
        self.fallbacks.inc();
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
