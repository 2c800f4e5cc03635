//! A sidecar that speaks gRPC, and a client of it.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};
use waybill_ops::clock::SystemClock;
use waybill_ops::config::Live;
use waybill_protocol::grpc::v2;
use waybill_protocol::grpc::v2::messaging_service_client::MessagingServiceClient;
use waybill_protocol::grpc::v2::receive_message_response::Content;
use waybill_sidecar::backend::Transport;
use waybill_sidecar::{App, Ended, Listeners, config::Config};

use crate::rig::PATIENCE;

pub(crate) type Client = MessagingServiceClient<Channel>;

pub(crate) struct Sidecar {
    pub(crate) endpoint: Endpoint,
    admin: SocketAddr,
    stop: CancellationToken,
    running: JoinHandle<Ended>,
}

impl Sidecar {
    pub(crate) async fn start(live: Live<Config>, transport: Arc<dyn Transport>) -> Self {
        let grpc = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let admin = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let listeners = Listeners { grpc, admin: Some(admin) };
        let clock = Arc::new(SystemClock::new());
        let app = App::build(Arc::new(live), transport, clock, listeners).await.expect("a sidecar");
        let endpoint = Endpoint::from_shared(format!("http://{}", app.grpc_address())).expect("an address");
        let admin = app.admin_address().expect("an address");
        let stop = CancellationToken::new();
        let running = tokio::spawn(app.run(stop.clone()));
        Self { endpoint, admin, stop, running }
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(self.endpoint.clone()).await.expect("a connection")
    }

    /// The value of a metric without labels.
    pub(crate) async fn metric(&self, name: &str) -> u64 {
        let mut socket = TcpStream::connect(self.admin).await.expect("a connection");
        let request = b"GET /metrics HTTP/1.1\r\nHost: sidecar\r\nConnection: close\r\n\r\n";
        socket.write_all(request).await.expect("written");
        let mut text = String::new();
        socket.read_to_string(&mut text).await.expect("an answer");
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.and_then(|value| value.trim().parse().ok()).expect("a number")
    }

    /// Waits until a metric is at least so high.
    pub(crate) async fn until(&self, name: &str, value: u64) {
        let reached = async {
            while self.metric(name).await < value {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        assert!(tokio::time::timeout(PATIENCE, reached).await.is_ok(), "{name} never is {value}");
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        assert_eq!(self.running.await.expect("no panic"), Ended::Clean);
    }
}

pub(crate) fn signed<Q>(message: Q) -> tonic::Request<Q> {
    let mut request = tonic::Request::new(message);
    for (name, value) in [("x-mq-client-id", "c"), ("x-mq-client-version", "5.0.7"), ("grpc-timeout", "60S")] {
        request.metadata_mut().insert(name, value.parse().expect("a header value"));
    }
    request
}

pub(crate) fn resource(name: &str) -> Option<v2::Resource> {
    Some(v2::Resource { resource_namespace: String::new(), name: name.into() })
}

pub(crate) fn seconds(seconds: i64) -> Option<prost_types::Duration> {
    Some(prost_types::Duration { seconds, nanos: 0 })
}

/// Announces a simple consumer; the stream must be kept.
pub(crate) async fn announce(client: &mut Client) -> tonic::Streaming<v2::TelemetryCommand> {
    let expression = v2::FilterExpression { r#type: v2::FilterType::Tag.into(), expression: "*".into() };
    let entry = v2::SubscriptionEntry { topic: resource("t"), expression: Some(expression) };
    let subscription = v2::Subscription { group: resource("g"), subscriptions: vec![entry], ..Default::default() };
    let settings = v2::Settings {
        client_type: Some(v2::ClientType::SimpleConsumer.into()),
        request_timeout: seconds(3),
        pub_sub: Some(v2::settings::PubSub::Subscription(subscription)),
        ..Default::default()
    };
    let command =
        v2::TelemetryCommand { status: None, command: Some(v2::telemetry_command::Command::Settings(settings)) };
    let outgoing = stream::once(std::future::ready(command)).chain(stream::pending());
    let mut answers = client.telemetry(signed(outgoing)).await.expect("a stream").into_inner();
    answers.message().await.expect("an answer").expect("settings");
    answers
}

/// Up to 32 messages, hidden for ten minutes.
pub(crate) fn receive_request() -> v2::ReceiveMessageRequest {
    v2::ReceiveMessageRequest {
        group: resource("g"),
        message_queue: Some(v2::MessageQueue { topic: resource("t"), ..Default::default() }),
        batch_size: 32,
        invisible_duration: seconds(600),
        long_polling_timeout: seconds(5),
        ..Default::default()
    }
}

pub(crate) async fn receive(client: &mut Client, wanted: usize) -> Vec<String> {
    let mut handles = Vec::new();
    while handles.len() < wanted {
        let mut answer = client.receive_message(signed(receive_request())).await.expect("a stream").into_inner();
        while let Some(element) = answer.message().await.expect("an element") {
            if let Some(Content::Message(message)) = element.content {
                handles.push(message.system_properties.expect("properties").receipt_handle().to_owned());
            }
        }
    }
    handles
}

/// The code of the whole answer, and that of each entry.
pub(crate) async fn ack(client: &mut Client, handles: &[String]) -> (v2::Code, Vec<v2::Code>) {
    let entry = |handle: &String| v2::AckMessageEntry {
        message_id: "id".into(),
        receipt_handle: handle.clone(),
        ..Default::default()
    };
    let entries = handles.iter().map(entry).collect();
    let request = v2::AckMessageRequest { group: resource("g"), topic: resource("t"), entries };
    let answer = client.ack_message(signed(request)).await.expect("an answer").into_inner();
    let echoed: Vec<_> = answer.entries.iter().map(|entry| entry.receipt_handle.clone()).collect();
    assert_eq!(echoed, handles, "in order");
    let code = |status: Option<v2::Status>| status.expect("a status").code();
    (code(answer.status), answer.entries.into_iter().map(|entry| code(entry.status)).collect())
}

/// Writes the configuration file of a sidecar, in one step.
pub(crate) fn write(path: &Path, namesrv: &str, batches: bool) {
    let text =
        format!("namesrvAddr: \"{namesrv}\"\nenableBatchChangeInvisibleTime: {batches}\nenableBatchAck: {batches}\n");
    let new = path.with_extension("new");
    std::fs::write(&new, text).expect("a file");
    std::fs::rename(&new, path).expect("in one step");
}
