//! A broker and sidecars on loopback.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use waybill_broker::Peer;
use waybill_ops::clock::SystemClock;
use waybill_ops::config::Live;
use waybill_ops::listen::listen;
use waybill_protocol::remoting::codes::{own, request, response};
use waybill_protocol::remoting::{BatchAckBody, Command, JsonBody, SubscriptionGroupConfig, VouchBody};
use waybill_sidecar::backend::{RemoteOptions, RemoteTransport, Transport, TransportError};
use waybill_sidecar::{App, Ended, Listeners, config::Config};

use crate::support::PATIENCE;
pub(crate) use crate::support::broker::BrokerRig;

impl BrokerRig {
    pub(crate) async fn group(&self, name: &str, change: impl FnOnce(&mut SubscriptionGroupConfig)) {
        let mut config = SubscriptionGroupConfig { group_name: name.into(), ..Default::default() };
        change(&mut config);
        let command = Command::request(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP).with_json(&config);
        let answer = self.broker.handle(&Peer::local(), command).await.expect("an answer");
        assert_eq!(answer.code, response::SUCCESS, "{:?}", answer.remark);
    }

    /// The open leases of a group, as the broker lists them.
    pub(crate) async fn leases(&self, group: &str) -> Vec<Value> {
        let mut command = Command::request(own::LIST_LEASES);
        command.ext.set("consumerGroup", group);
        let answer = self.broker.handle(&Peer::local(), command).await.expect("an answer");
        let listed: Value = serde_json::from_slice(&answer.body).expect("JSON");
        listed["leases"].as_array().expect("a list").clone()
    }

    /// A sidecar whose file holds these lines.
    pub(crate) async fn sidecar(&self, name: &str, lines: &str) -> Sidecar {
        self.sidecar_at("127.0.0.1:0", name, lines).await
    }

    /// One that listens there.
    pub(crate) async fn sidecar_at(&self, address: &str, name: &str, lines: &str) -> Sidecar {
        let file = self.dir.path().join(format!("{name}.yaml"));
        // A machine that stands still for some seconds is no fault.
        let always = "useEndpointPortFromRequest: true\nbackendRequestTimeoutMillis: 60000\n";
        let header = format!("namesrvAddr: \"{}\"\n{always}", self.address);
        std::fs::write(&file, format!("{header}{lines}")).expect("a file");
        let live: Arc<Live<Config>> = Arc::new(Live::load(&file).expect("a configuration"));
        let said = Arc::new(Said {
            inner: RemoteTransport::new(RemoteOptions::of(&live.get())),
            vouches: Mutex::default(),
            acks_of_batches: Mutex::default(),
        });
        let address = address.parse().expect("an address");
        let bind = || listen(address).expect("a port");
        let listeners = Listeners { grpc: bind(), admin: Some(bind()) };
        let app = App::build(live, said.clone(), Arc::new(SystemClock::new()), listeners).await.expect("a sidecar");
        let endpoint = format!("http://{}", app.grpc_address());
        let admin = app.admin_address().expect("an admin port").to_string();
        let stop = CancellationToken::new();
        let running = tokio::spawn(app.run(stop.clone()));
        Sidecar { endpoint, admin, stop, running, said, file, header }
    }
}

pub(crate) struct Sidecar {
    pub(crate) endpoint: String,
    admin: String,
    pub(crate) stop: CancellationToken,
    running: JoinHandle<Ended>,
    said: Arc<Said>,
    file: PathBuf,
    header: String,
}

impl Sidecar {
    /// Replaces the lines of its file, and waits until they are in force.
    pub(crate) async fn rewrite(&self, lines: &str) {
        let generation = self.config().await["file"]["generation"].as_u64();
        let new = self.file.with_extension("new");
        std::fs::write(&new, format!("{}{lines}", self.header)).expect("a file");
        std::fs::rename(&new, &self.file).expect("in one step");
        until("the file is in force", async || self.config().await["file"]["generation"].as_u64() > generation).await;
    }

    /// What `/config` shows.
    pub(crate) async fn config(&self) -> Value {
        let answer = self.get("/config").await;
        let (_head, body) = answer.split_once("\r\n\r\n").expect("an HTTP answer");
        serde_json::from_str(body).expect("JSON")
    }

    pub(crate) async fn metrics(&self) -> String {
        self.get("/metrics").await
    }

    pub(crate) async fn is_ready(&self) -> bool {
        self.get("/readyz").await.starts_with("HTTP/1.1 200")
    }

    async fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.admin).await.expect("connect");
        let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("write");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("read");
        answer
    }

    /// What it tells brokers of clients, also after it has ended.
    pub(crate) fn said(&self) -> Arc<Said> {
        Arc::clone(&self.said)
    }

    pub(crate) async fn ended(self) -> Ended {
        tokio::time::timeout(PATIENCE, self.running).await.expect("in time").expect("no panic")
    }
}

/// A way to brokers that remembers what they were told of clients.
pub(crate) struct Said {
    inner: RemoteTransport,
    vouches: Mutex<Vec<VouchBody>>,
    acks_of_batches: Mutex<Vec<usize>>,
}

impl Said {
    /// All that was said of clients, besides that they are alive.
    pub(crate) fn departures(&self) -> Vec<VouchBody> {
        let vouches = self.vouches.lock();
        vouches.iter().filter(|said| !said.gone.is_empty() || !said.left.is_empty()).cloned().collect()
    }
}

impl Said {
    /// How many messages each batch of acks was about.
    pub(crate) fn acks_of_batches(&self) -> Vec<usize> {
        self.acks_of_batches.lock().clone()
    }
}

#[async_trait]
impl Transport for Said {
    async fn call(&self, address: &str, command: Command, timeout: Duration) -> Result<Command, TransportError> {
        if command.code == own::VOUCH_FOR_CLIENTS {
            self.vouches.lock().push(VouchBody::from_json(&command.body).expect("a body"));
        }
        if command.code == request::BATCH_ACK_MESSAGE {
            let body = BatchAckBody::from_json(&command.body).expect("a body");
            self.acks_of_batches.lock().push(body.acks.iter().map(|ack| ack.offsets().count()).sum());
        }
        self.inner.call(address, command, timeout).await
    }

    async fn oneway(&self, address: &str, command: Command, timeout: Duration) -> Result<(), TransportError> {
        self.inner.oneway(address, command, timeout).await
    }

    fn connection(&self, address: &str) -> u64 {
        self.inner.connection(address)
    }
}

/// Waits until something is so.
pub(crate) async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(waited.await.is_ok(), "never: {what}");
}
