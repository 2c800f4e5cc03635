//! Clients: they speak gRPC with sidecars over connections in memory.

mod consumer;
mod producer;
mod wire;

pub use consumer::{Kind, consume};
pub use producer::produce;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Request;
use tonic::transport::Channel;
use waybill_protocol::grpc::v2::{
    self, Code, Settings, messaging_service_client::MessagingServiceClient, settings::PubSub, telemetry_command,
};

use crate::net::Net;
use crate::sidecar::SidecarNode;
use crate::sim::Sim;

type Rpc = MessagingServiceClient<Channel>;

/// How long a client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(4);

/// What a client is made of.
#[derive(Clone)]
pub struct Client {
    sim: Arc<Sim>,
    net: Arc<Net>,
    sidecars: Vec<Arc<SidecarNode>>,
    /// The client id.
    pub id: String,
    /// The sidecar it speaks through, and the connection.
    at: Arc<Mutex<(usize, Option<Rpc>)>>,
}

impl Client {
    /// A client that speaks through one of the sidecars, first through number `first`.
    #[must_use]
    pub fn new(sim: &Arc<Sim>, net: &Arc<Net>, sidecars: &[Arc<SidecarNode>], id: &str, first: usize) -> Self {
        let (sim, net, sidecars) = (sim.clone(), net.clone(), sidecars.to_vec());
        let at = Arc::new(Mutex::new((first % sidecars.len().max(1), None)));
        Self { sim, net, sidecars, id: id.to_owned(), at }
    }

    /// The sidecar it speaks through.
    #[must_use]
    pub fn sidecar(&self) -> String {
        self.sidecars[self.at.lock().0].name.clone()
    }

    /// Speaks through the next sidecar that is up; all calls from now on.
    fn move_on(&self) {
        let mut at = self.at.lock();
        for step in 1..=self.sidecars.len() {
            let next = (at.0 + step) % self.sidecars.len();
            if self.sidecars[next].is_up() {
                *at = (next, None);
                break;
            }
        }
        let name = self.sidecars[at.0].name.clone();
        drop(at);
        self.sim.audit().moved(&self.id, &name);
        self.sim.say(&self.id, format_args!("speaks through {name}"));
    }

    fn rpc(&self) -> Rpc {
        let mut at = self.at.lock();
        let (number, rpc) = &mut *at;
        let sidecar = &self.sidecars[*number];
        rpc.get_or_insert_with(|| MessagingServiceClient::new(wire::channel(&self.sim, &self.net, sidecar, &self.id)))
            .clone()
    }

    fn request<Q>(&self, message: Q) -> Request<Q> {
        let mut request = Request::new(message);
        let metadata = request.metadata_mut();
        metadata.insert("x-mq-client-id", self.id.parse().expect("a header value"));
        metadata.insert("x-mq-client-version", "5.0.7".parse().expect("a header value"));
        request
    }

    /// Opens a telemetry stream and says who the client is. The stream is open as long as what is answered lives.
    async fn open(&self, settings: Settings) -> Option<tokio::task::JoinSet<()>> {
        let (commands, outgoing) = tokio::sync::mpsc::channel(4);
        let command =
            v2::TelemetryCommand { status: None, command: Some(telemetry_command::Command::Settings(settings)) };
        commands.send(command).await.ok()?;
        let request = self.request(ReceiverStream::new(outgoing));
        let mut rpc = self.rpc();
        let opening = async {
            let mut answers = rpc.telemetry(request).await.ok()?.into_inner();
            let first = answers.message().await.ok()??;
            matches!(first.command, Some(telemetry_command::Command::Settings(_))).then_some(answers)
        };
        let mut answers = tokio::time::timeout(PATIENCE, opening).await.ok()??;
        let mut open = tokio::task::JoinSet::new();
        open.spawn(async move {
            let _open = commands;
            while let Ok(Some(_)) = answers.message().await {}
        });
        Some(open)
    }
}

fn resource(name: &str) -> v2::Resource {
    v2::Resource { resource_namespace: String::new(), name: name.to_owned() }
}

fn duration(ms: i64) -> prost_types::Duration {
    let nanos = i32::try_from(ms % 1_000).unwrap_or(0) * 1_000_000;
    prost_types::Duration { seconds: ms / 1_000, nanos }
}

fn settings(group: &str, topic: &str, kind: v2::ClientType) -> Settings {
    let expression = v2::FilterExpression { r#type: v2::FilterType::Tag.into(), expression: "*".into() };
    let entry = v2::SubscriptionEntry { topic: Some(resource(topic)), expression: Some(expression) };
    let subscription =
        v2::Subscription { group: Some(resource(group)), subscriptions: vec![entry], ..Default::default() };
    let address = v2::Address { host: "127.0.0.1".into(), port: 8081 };
    Settings {
        client_type: Some(kind.into()),
        access_point: Some(v2::Endpoints { scheme: v2::AddressScheme::IPv4.into(), addresses: vec![address] }),
        request_timeout: Some(duration(3_000)),
        pub_sub: Some(PubSub::Subscription(subscription)),
        ..Default::default()
    }
}

fn code(status: Option<&v2::Status>) -> i32 {
    status.map_or(Code::Unspecified.into(), |status| status.code)
}
