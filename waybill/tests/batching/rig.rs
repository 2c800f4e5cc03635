//! A broker on loopback, and the sidecar's ways to it.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use waybill_ops::clock::SystemClock;
use waybill_ops::config::Live;
use waybill_protocol::message::properties;
use waybill_protocol::remoting::codes::request;
use waybill_sidecar::backend::{
    BackendMetrics, ChangeEntry, Filter, FilterKind, LeaseRef, MessageService, OutgoingMessage, PopRequest,
    PoppedMessage, RemoteOptions, RemoteTransport, SendRequest, Transport,
};
use waybill_sidecar::config::Config;

pub(crate) use crate::support::PATIENCE;
pub(crate) use crate::support::broker::BrokerRig;

impl BrokerRig {
    /// How many requests of a kind the broker has answered.
    pub(crate) fn requests(&self, code: i32) -> u64 {
        let registry = self.broker.metrics().registry();
        let mut text = String::new();
        encode(&mut text, &registry.lock()).expect("metrics");
        let label = format!("request_code=\"{code}\"");
        let lines = text.lines().filter(|line| line.starts_with("waybill_broker_requests_total{"));
        let values = lines.filter(|line| line.contains(&label)).filter_map(|line| line.rsplit(' ').next());
        values.map(|value| value.parse::<u64>().expect("a number")).sum()
    }

    /// Single changes and batches of changes.
    pub(crate) fn changes(&self) -> (u64, u64) {
        (
            self.requests(request::CHANGE_MESSAGE_INVISIBLETIME),
            self.requests(request::BATCH_CHANGE_MESSAGE_INVISIBLETIME),
        )
    }

    /// Single acks and batches of acks.
    pub(crate) fn acks(&self) -> (u64, u64) {
        (self.requests(request::ACK_MESSAGE), self.requests(request::BATCH_ACK_MESSAGE))
    }

    pub(crate) fn config(&self) -> Config {
        // A machine that stands still for some seconds is no fault.
        let backend_request_timeout_ms = 60_000;
        Config { namesrv_addr: self.address.clone(), backend_request_timeout_ms, ..Config::default() }
    }

    pub(crate) fn remote(&self) -> Arc<dyn Transport> {
        Arc::new(RemoteTransport::new(RemoteOptions::of(&self.config())))
    }

    pub(crate) fn service(&self, transport: Arc<dyn Transport>, change: impl FnOnce(&mut Config)) -> MessageService {
        self.counted_service(transport, change).0
    }

    /// A service, and what it counts.
    pub(crate) fn counted_service(
        &self,
        transport: Arc<dyn Transport>,
        change: impl FnOnce(&mut Config),
    ) -> (MessageService, BackendMetrics) {
        let mut config = self.config();
        change(&mut config);
        let (live, metrics) = (Arc::new(Live::fixed(config)), BackendMetrics::default());
        (MessageService::new(transport, live, Arc::new(SystemClock::new()), metrics.clone()), metrics)
    }
}

/// Leases that wait in the sidecar to be changed.
pub(crate) fn waiting(metrics: &BackendMetrics) -> usize {
    let mut registry = Registry::default();
    metrics.register(&mut registry);
    let mut text = String::new();
    encode(&mut text, &registry).expect("metrics");
    let value = text.lines().find_map(|line| line.strip_prefix("waybill_sidecar_leases_waiting "));
    value.and_then(|value| value.parse().ok()).expect("the number of leases that wait")
}

/// Waits until something is so.
pub(crate) async fn until(what: &str, mut so: impl FnMut() -> bool) {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !so() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    assert!(waited.await.is_ok(), "never: {what}");
}

pub(crate) fn pop_request(client: &str, invisible_ms: i64) -> PopRequest {
    pop_of(client, ("g", "t"), invisible_ms)
}

/// A pop of a group on a topic.
pub(crate) fn pop_of(client: &str, (group, topic): (&str, &str), invisible_ms: i64) -> PopRequest {
    PopRequest {
        client_id: client.into(),
        group: group.into(),
        topic: topic.into(),
        broker_name: None,
        max_messages: 32,
        invisible_ms,
        poll_ms: 3_000,
        filter: Filter { kind: FilterKind::Tag, expression: "*".into() },
        fifo: false,
        attempt_id: None,
        subscribed_topics: None,
    }
}

/// Makes groups known on a new topic: they get what is sent from now on.
pub(crate) async fn introduce(service: &MessageService, groups: &[&str], topic: &str) {
    send_to(service, topic, 1, "body").await;
    for group in groups {
        let taken = take_of(service, pop_of("x", (group, topic), 600_000), 1).await;
        let lease =
            |message: PoppedMessage| LeaseRef { group: (*group).into(), topic: topic.into(), handle: message.handle };
        assert_eq!(service.ack(taken.into_iter().map(lease).collect()).await, [Ok(())]);
    }
}

/// Gives back those of group `g` on topic `t` that are still leased, and says how many those are.
pub(crate) async fn give_back(service: &MessageService, handles: &[String]) -> usize {
    let entry = |handle: &String| ChangeEntry {
        lease: LeaseRef { group: "g".into(), topic: "t".into(), handle: handle.parse().expect("a handle") },
        invisible_ms: 0,
        suspend: false,
    };
    let results = service.change_invisible(handles.iter().map(entry).collect()).await;
    results.iter().filter(|result| result.is_ok()).count()
}

/// Handles that are not valid any more, though their time is not over: somebody else got the messages.
pub(crate) async fn stale(service: &MessageService, count: usize) -> Vec<String> {
    let old: Vec<_> = handles(&take(service, "x", count, 600_000).await);
    assert_eq!(give_back(service, &old).await, count);
    take(service, "y", count, 600_000).await;
    old
}

pub(crate) fn handles(messages: &[PoppedMessage]) -> Vec<String> {
    messages.iter().map(|message| message.handle.to_string()).collect()
}

/// Stores messages in one queue.
pub(crate) async fn send(service: &MessageService, count: usize) {
    send_to(service, "t", count, "body").await;
}

/// Stores messages in one queue of a topic.
pub(crate) async fn send_to(service: &MessageService, topic: &str, count: usize, body: &'static str) {
    let messages = (0..count).map(|n| {
        let properties = properties::encode([(properties::UNIQ_KEY, format!("M{n}").as_str())]).expect("properties");
        OutgoingMessage { body: body.into(), properties }
    });
    let request = SendRequest {
        topic: topic.into(),
        messages: messages.collect(),
        sys_flag: 0,
        born_timestamp: 1,
        message_group: None,
        timeout: PATIENCE,
    };
    service.send(request).await.expect("stored");
}

/// Takes exactly so many messages.
pub(crate) async fn take(
    service: &MessageService,
    client: &str,
    count: usize,
    invisible_ms: i64,
) -> Vec<PoppedMessage> {
    take_of(service, pop_request(client, invisible_ms), count).await
}

/// Takes exactly so many messages of a group on a topic.
pub(crate) async fn take_of(service: &MessageService, pop: PopRequest, count: usize) -> Vec<PoppedMessage> {
    let mut taken = Vec::new();
    let all = async {
        while taken.len() < count {
            taken.extend(service.pop(pop.clone()).await.expect("a pop").messages);
        }
    };
    assert!(tokio::time::timeout(PATIENCE, all).await.is_ok(), "not all messages came");
    assert_eq!(taken.len(), count);
    taken
}
