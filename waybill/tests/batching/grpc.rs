//! A sidecar that speaks gRPC, and a client of it.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::transport::Endpoint;
use waybill_ops::clock::SystemClock;
use waybill_ops::config::Live;
use waybill_protocol::grpc::v2;
use waybill_sidecar::backend::Transport;
use waybill_sidecar::{App, Ended, Listeners, config::Config};

use crate::support::PATIENCE;
use crate::support::client;
pub(crate) use crate::support::client::{Grpc as Client, resource, seconds};

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

/// Of the one client of these tests.
pub(crate) fn signed<Q>(message: Q) -> tonic::Request<Q> {
    client::signed("c", message)
}

/// Announces a simple consumer; the stream must be kept.
pub(crate) async fn announce(grpc: &mut Client) -> tonic::Streaming<v2::TelemetryCommand> {
    client::announce(grpc, "c", "g", v2::ClientType::SimpleConsumer).await
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

pub(crate) async fn receive(grpc: &mut Client, wanted: usize) -> Vec<String> {
    let mut handles = Vec::new();
    while handles.len() < wanted {
        handles.extend(client::receive(grpc.clone(), signed(receive_request())).await);
    }
    handles
}

/// The code of the whole answer, and that of each entry.
pub(crate) async fn ack(grpc: &mut Client, handles: &[String]) -> (v2::Code, Vec<v2::Code>) {
    let answer = client::ack(grpc, "c", "g", handles).await;
    let echoed: Vec<_> = answer.entries.iter().map(|entry| entry.receipt_handle.clone()).collect();
    assert_eq!(echoed, handles, "in order");
    let code = |status: Option<v2::Status>| status.expect("a status").code();
    (code(answer.status), answer.entries.into_iter().map(|entry| code(entry.status)).collect())
}

/// Writes the configuration file of a sidecar, in one step.
pub(crate) fn write(path: &Path, namesrv: &str, batches: bool) {
    let always = format!("namesrvAddr: \"{namesrv}\"\nbackendRequestTimeoutMillis: 60000\n");
    let text = format!("{always}enableBatchChangeInvisibleTime: {batches}\nenableBatchAck: {batches}\n");
    let new = path.with_extension("new");
    std::fs::write(&new, text).expect("a file");
    std::fs::rename(&new, path).expect("in one step");
}
