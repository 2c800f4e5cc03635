//! What is counted about calls of clients.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::errors;

/// Upper bounds of the latency buckets, in milliseconds.
const LATENCY_MS: [f64; 12] = [0.5, 1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 500.0, 1_000.0, 5_000.0, 20_000.0];

/// A call and how it ended. Both come from fixed sets, so the number of series is bounded.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RpcLabels {
    protocol_type: &'static str,
    request_code: &'static str,
    response_code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MethodLabels {
    protocol_type: &'static str,
    request_code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

/// Counters of the gRPC room. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Metrics {
    calls: Family<RpcLabels, Counter>,
    latency: Family<MethodLabels, Histogram, fn() -> Histogram>,
    messages_in: Counter,
    bytes_in: Counter,
    messages_out: Counter,
    bytes_out: Counter,
    undelivered: Counter,
    waiting: Gauge,
    questions: Family<OutcomeLabels, Counter>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            calls: Family::default(),
            latency: Family::new_with_constructor(|| Histogram::new(LATENCY_MS)),
            messages_in: Counter::default(),
            bytes_in: Counter::default(),
            messages_out: Counter::default(),
            bytes_out: Counter::default(),
            undelivered: Counter::default(),
            waiting: Gauge::default(),
            questions: Family::default(),
        }
    }
}

impl Metrics {
    /// Adds everything to `registry`, under upstream's names where upstream has the metric.
    pub fn register(&self, registry: &mut Registry) {
        let Self { calls, latency, messages_in, bytes_in, messages_out, bytes_out, undelivered, waiting, questions } =
            self.clone();
        registry.register("waybill_rpc_calls", "Calls of clients, by method and code of the answer", calls);
        registry.register("rocketmq_rpc_latency", "Time until a call was answered, in milliseconds", latency);
        registry.register("waybill_sidecar_messages_in", "Messages stored for clients", messages_in);
        registry.register(
            "waybill_sidecar_body_bytes_in",
            "Bytes of the bodies of messages stored for clients",
            bytes_in,
        );
        registry.register("waybill_sidecar_messages_out", "Messages given to clients", messages_out);
        registry.register(
            "waybill_sidecar_body_bytes_out",
            "Bytes of the bodies of messages given to clients",
            bytes_out,
        );
        let help = "Messages returned to brokers because the client had gone before it had read the answer";
        registry.register("waybill_messages_undelivered", help, undelivered);
        let help = "Questions of brokers about open transactions, by whether a producer could be asked";
        registry.register("waybill_sidecar_transaction_questions", help, questions);
        registry.register("waybill_receives_waiting", "Receives of clients that wait for messages", waiting);
    }

    /// A call was answered with that code.
    pub(super) fn call(&self, method: &'static str, code: i32, took: Duration) {
        let (protocol_type, request_code) = ("grpc", method);
        let labels = RpcLabels { protocol_type, request_code, response_code: errors::name(code) };
        self.calls.get_or_create(&labels).inc();
        let labels = MethodLabels { protocol_type, request_code };
        self.latency.get_or_create(&labels).observe(took.as_secs_f64() * 1_000.0);
    }

    /// Messages were stored.
    pub(super) fn stored(&self, messages: usize, bytes: usize) {
        self.messages_in.inc_by(messages as u64);
        self.bytes_in.inc_by(bytes as u64);
    }

    /// Messages were handed to a client.
    pub(super) fn delivered(&self, messages: usize, bytes: usize) {
        self.messages_out.inc_by(messages as u64);
        self.bytes_out.inc_by(bytes as u64);
    }

    /// Messages could not be handed to a client.
    pub(super) fn undelivered(&self, messages: usize) {
        self.undelivered.inc_by(messages as u64);
    }

    /// A broker asked about a transaction, and a producer was asked, or could not be.
    pub(super) fn question(&self, told: bool) {
        let outcome = if told { "told" } else { "nobody" };
        self.questions.get_or_create(&OutcomeLabels { outcome }).inc();
    }

    /// A receive waits until what this gives is dropped.
    #[must_use]
    pub(super) fn waits(&self) -> Waits {
        self.waiting.inc();
        Waits(self.waiting.clone())
    }
}

/// One waiting receive.
pub(super) struct Waits(Gauge);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.dec();
    }
}
