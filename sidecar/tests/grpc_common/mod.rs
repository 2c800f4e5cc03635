//! The real gRPC server on loopback, in front of brokers in memory.

#![allow(dead_code, reason = "each test binary uses its own part")]

pub(crate) mod broker;

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::transport::Channel;
use tonic::{Request, Streaming};
use waybill_ops::{clock::ManualClock, config::Live};
use waybill_protocol::grpc::v2::{
    self, Code, Message, ReceiveMessageRequest, ReceiveMessageResponse, Resource, Settings, Status, TelemetryCommand,
    messaging_service_client::MessagingServiceClient, receive_message_response::Content, settings::PubSub,
    telemetry_command::Command,
};
use waybill_protocol::remoting::SubscriptionGroupConfig;
use waybill_sidecar::access::Access;
use waybill_sidecar::backend::{BackendMetrics, MessageService, Voucher};
use waybill_sidecar::config::Config;
use waybill_sidecar::grpc::{Messaging, Metrics, Parts, router};
use waybill_sidecar::receipts::{Policy, Receipts};
use waybill_sidecar::session::Sessions;

use broker::FakeBrokers;

/// When every test begins, in milliseconds.
pub(crate) const START: i64 = 1_800_000_000_000;
/// No test waits longer for something that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) type Client = MessagingServiceClient<Channel>;

pub(crate) struct World {
    pub(crate) brokers: Arc<FakeBrokers>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) sessions: Sessions,
    pub(crate) receipts: Receipts,
    pub(crate) access: Access,
    pub(crate) metrics: Metrics,
    pub(crate) address: String,
    pub(crate) stop: CancellationToken,
    _ends: DropGuard,
}

/// Settings for tests: routes from the first broker, nothing remembered for long.
pub(crate) fn config() -> Config {
    Config { namesrv_addr: "broker-a:10911".into(), ..Config::default() }
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(config()).await
    }

    pub(crate) async fn with(config: Config) -> Self {
        let clock = Arc::new(ManualClock::new(START));
        let brokers = FakeBrokers::new(clock.clone());
        let config = Arc::new(Live::fixed(config));
        let stop = CancellationToken::new();
        let messages = MessageService::new(brokers.clone(), config.clone(), clock.clone(), BackendMetrics::default());
        let receipts = Receipts::start(Policy::default(), Arc::new(messages.clone()), stop.clone());
        let voucher = Arc::new(Voucher::new(messages.clone()));
        let sessions = Sessions::new(receipts.clone(), voucher, config.clone(), clock.clone());
        let metrics = Metrics::default();
        let access = Access::new(config.clone()).expect("users");
        tokio::spawn(access.clone().watch(stop.clone()));
        let parts = Parts {
            messages,
            receipts: receipts.clone(),
            sessions: sessions.clone(),
            access: access.clone(),
            config: config.clone(),
            clock: clock.clone(),
            metrics: metrics.clone(),
            draining: stop.clone(),
            stop: stop.clone(),
        };
        let served = router(Messaging::new(parts), &config.get()).await.expect("services");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let shutdown = stop.clone().cancelled_owned();
        tokio::spawn(served.router.serve_with_incoming_shutdown(TcpListenerStream::new(listener), shutdown));
        let world = Self {
            brokers,
            clock,
            sessions,
            receipts,
            access,
            metrics,
            address,
            _ends: stop.clone().drop_guard(),
            stop,
        };
        world.brokers.topic("t", "NORMAL", 1);
        world.brokers.group(group("g"));
        world
    }

    /// A connection of its own.
    pub(crate) async fn channel(&self) -> Channel {
        let address = tonic::transport::Endpoint::from_shared(self.address.clone()).expect("an address");
        address.connect().await.expect("a connection")
    }

    pub(crate) async fn connect(&self) -> Client {
        let client = MessagingServiceClient::new(self.channel().await);
        client.max_decoding_message_size(256 * 1024 * 1024).max_encoding_message_size(256 * 1024 * 1024)
    }

    /// A client that has opened its telemetry stream.
    pub(crate) async fn client(&self, id: &str, settings: Settings) -> Peer {
        let mut peer = self.peer(id).await;
        let answer = peer.open(settings).await.expect("settings");
        assert_eq!(answer.status.map(|status| status.code()), Some(Code::Ok));
        peer
    }

    /// A client that has not said anything yet.
    pub(crate) async fn peer(&self, id: &str) -> Peer {
        Peer { client: self.connect().await, id: id.into(), credentials: None, telemetry: None }
    }

    /// The value of a metric without labels.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let mut registry = prometheus_client::registry::Registry::default();
        self.metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("metrics");
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {text}"))
    }

    /// Waits until something is so.
    pub(crate) async fn until(&self, what: &str, mut so: impl FnMut() -> bool) {
        let waited = tokio::time::timeout(PATIENCE, async {
            while !so() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
        assert!(waited.await.is_ok(), "never: {what}");
    }
}

/// One client id on one connection.
pub(crate) struct Peer {
    pub(crate) client: Client,
    pub(crate) id: String,
    /// Access key and secret key.
    pub(crate) credentials: Option<(&'static str, &'static str)>,
    pub(crate) telemetry: Option<Telemetry>,
}

pub(crate) struct Telemetry {
    pub(crate) commands: tokio::sync::mpsc::Sender<TelemetryCommand>,
    pub(crate) answers: Streaming<TelemetryCommand>,
}

impl Peer {
    pub(crate) fn request<Q>(&self, message: Q) -> Request<Q> {
        let mut request = request_of(&self.id, message);
        if let Some((access_key, secret_key)) = self.credentials {
            sign(&mut request, access_key, secret_key);
        }
        request
    }

    /// Opens the telemetry stream with these settings; the first answer.
    pub(crate) async fn open(&mut self, settings: Settings) -> Result<TelemetryCommand, tonic::Status> {
        let (commands, outgoing) = tokio::sync::mpsc::channel(4);
        let outgoing = tokio_stream::wrappers::ReceiverStream::new(outgoing);
        let mut answers = self.client.telemetry(self.request(outgoing)).await?.into_inner();
        commands.send(command(settings)).await.expect("an open stream");
        let answer = tokio::time::timeout(PATIENCE, answers.message()).await.expect("an answer in time")?;
        self.telemetry = Some(Telemetry { commands, answers });
        Ok(answer.expect("an answer"))
    }

    pub(crate) async fn send(&mut self, messages: Vec<Message>) -> v2::SendMessageResponse {
        let request = self.request(v2::SendMessageRequest { messages });
        self.client.send_message(request).await.expect("an answer").into_inner()
    }

    pub(crate) async fn receive(&mut self, request: ReceiveMessageRequest) -> Received {
        let request = self.request(request);
        let stream = self.client.receive_message(request).await.expect("a stream").into_inner();
        Received::read(stream).await
    }

    pub(crate) async fn ack(&mut self, handles: &[String]) -> v2::AckMessageResponse {
        let request = self.request(ack("t", "g", handles));
        self.client.ack_message(request).await.expect("an answer").into_inner()
    }

    pub(crate) async fn change(&mut self, handle: &str, ms: i64) -> v2::ChangeInvisibleDurationResponse {
        let request = self.request(change("t", "g", handle, ms));
        self.client.change_invisible_duration(request).await.expect("an answer").into_inner()
    }

    pub(crate) async fn heartbeat(&mut self) -> Code {
        let request = self.request(v2::HeartbeatRequest { group: Some(resource("g")), client_type: 0 });
        code(self.client.heartbeat(request).await.expect("an answer").into_inner().status)
    }
}

/// What came out of a receive, element by element.
pub(crate) struct Received {
    pub(crate) status: Status,
    pub(crate) messages: Vec<Message>,
    /// Kinds of the elements, repetitions left out.
    pub(crate) order: Vec<&'static str>,
}

impl Received {
    pub(crate) async fn read(mut stream: Streaming<ReceiveMessageResponse>) -> Self {
        let mut received = Self { status: Status::default(), messages: Vec::new(), order: Vec::new() };
        while let Some(element) = stream.message().await.expect("an element") {
            let kind = match element.content.expect("a content") {
                Content::Status(status) => {
                    received.status = status;
                    "status"
                }
                Content::Message(message) => {
                    received.messages.push(message);
                    "message"
                }
                Content::DeliveryTimestamp(_) => "delivery_timestamp",
            };
            if received.order.last() != Some(&kind) {
                received.order.push(kind);
            }
        }
        received
    }

    pub(crate) fn code(&self) -> Code {
        self.status.code()
    }

    pub(crate) fn handles(&self) -> Vec<String> {
        self.messages.iter().map(handle_of).collect()
    }
}

pub(crate) fn handle_of(message: &Message) -> String {
    message.system_properties.as_ref().expect("system properties").receipt_handle().to_owned()
}

pub(crate) fn request_of<Q>(id: &str, message: Q) -> Request<Q> {
    let mut request = Request::new(message);
    let metadata = request.metadata_mut();
    metadata.insert("x-mq-client-id", id.parse().expect("a header value"));
    metadata.insert("x-mq-client-version", "5.0.7".parse().expect("a header value"));
    metadata.insert("grpc-timeout", "60S".parse().expect("a header value"));
    request
}

/// As the published clients do it.
pub(crate) fn sign<Q>(request: &mut Request<Q>, access_key: &str, secret_key: &str) {
    let date_time = "20270115T080000Z";
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret_key.as_bytes());
    let signature = hex::encode_upper(ring::hmac::sign(&key, date_time.as_bytes()));
    let header = format!("MQv2-HMAC-SHA1 Credential={access_key}, SignedHeaders=x-mq-date-time, Signature={signature}");
    request.metadata_mut().insert("authorization", header.parse().expect("a header value"));
    request.metadata_mut().insert("x-mq-date-time", date_time.parse().expect("a header value"));
}

pub(crate) fn code(status: Option<Status>) -> Code {
    status.expect("a status").code()
}

pub(crate) fn resource(name: &str) -> Resource {
    Resource { resource_namespace: String::new(), name: name.to_owned() }
}

pub(crate) fn group(name: &str) -> SubscriptionGroupConfig {
    SubscriptionGroupConfig { group_name: name.into(), ..Default::default() }
}

pub(crate) fn duration(ms: i64) -> prost_types::Duration {
    prost_types::Duration { seconds: ms / 1_000, nanos: (ms % 1_000 * 1_000_000) as i32 }
}

pub(crate) fn command(settings: Settings) -> TelemetryCommand {
    TelemetryCommand { status: None, command: Some(Command::Settings(settings)) }
}

pub(crate) fn producer(topics: &[&str]) -> Settings {
    let topics = topics.iter().map(|topic| resource(topic)).collect();
    let publishing = v2::Publishing { topics, ..Default::default() };
    let pub_sub = Some(PubSub::Publishing(publishing));
    Settings { client_type: Some(v2::ClientType::Producer.into()), pub_sub, ..common() }
}

pub(crate) fn consumer(group: &str, topic: &str, kind: v2::ClientType) -> Settings {
    let expression = v2::FilterExpression { r#type: v2::FilterType::Tag.into(), expression: "*".into() };
    let entry = v2::SubscriptionEntry { topic: Some(resource(topic)), expression: Some(expression) };
    let subscription =
        v2::Subscription { group: Some(resource(group)), subscriptions: vec![entry], ..Default::default() };
    let pub_sub = Some(PubSub::Subscription(subscription));
    Settings { client_type: Some(kind.into()), pub_sub, ..common() }
}

pub(crate) fn simple() -> Settings {
    consumer("g", "t", v2::ClientType::SimpleConsumer)
}

pub(crate) fn push() -> Settings {
    consumer("g", "t", v2::ClientType::PushConsumer)
}

fn common() -> Settings {
    Settings { access_point: Some(endpoints()), request_timeout: Some(duration(3_000)), ..Default::default() }
}

pub(crate) fn endpoints() -> v2::Endpoints {
    let address = v2::Address { host: "127.0.0.1".into(), port: 8081 };
    v2::Endpoints { scheme: v2::AddressScheme::IPv4.into(), addresses: vec![address] }
}

/// A message that may be sent to topic `t`.
pub(crate) fn message(id: &str) -> Message {
    let system = v2::SystemProperties {
        message_id: id.into(),
        message_type: v2::MessageType::Normal.into(),
        body_encoding: v2::Encoding::Identity.into(),
        born_host: "rawhost".into(),
        ..Default::default()
    };
    Message {
        topic: Some(resource("t")),
        user_properties: Default::default(),
        system_properties: Some(system),
        body: format!("body of {id}").into(),
    }
}

pub(crate) fn messages(count: usize) -> Vec<Message> {
    (0..count).map(|n| message(&format!("M{n}"))).collect()
}

/// A receive of group `g` from topic `t` that keeps its leases itself.
pub(crate) fn receive() -> ReceiveMessageRequest {
    let queue = v2::MessageQueue { topic: Some(resource("t")), ..Default::default() };
    ReceiveMessageRequest {
        group: Some(resource("g")),
        message_queue: Some(queue),
        filter_expression: None,
        batch_size: 32,
        invisible_duration: Some(duration(30_000)),
        auto_renew: false,
        long_polling_timeout: Some(duration(5_000)),
        attempt_id: None,
    }
}

pub(crate) fn ack(topic: &str, group: &str, handles: &[String]) -> v2::AckMessageRequest {
    let entry = |(n, handle): (usize, &String)| v2::AckMessageEntry {
        message_id: format!("id{n}"),
        receipt_handle: handle.clone(),
        lite_topic: None,
    };
    let entries = handles.iter().enumerate().map(entry).collect();
    v2::AckMessageRequest { group: Some(resource(group)), topic: Some(resource(topic)), entries }
}

pub(crate) fn change(topic: &str, group: &str, handle: &str, ms: i64) -> v2::ChangeInvisibleDurationRequest {
    v2::ChangeInvisibleDurationRequest {
        group: Some(resource(group)),
        topic: Some(resource(topic)),
        receipt_handle: handle.into(),
        invisible_duration: Some(duration(ms)),
        message_id: "id".into(),
        lite_topic: None,
        suspend: None,
    }
}
