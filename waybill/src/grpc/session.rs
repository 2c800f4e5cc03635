//! What a client must do to be known: settings over a telemetry stream that stays open, and heartbeats.

use std::time::Duration;

use futures::StreamExt;
use tokio::task::JoinHandle;
use waybill_protocol::grpc::v2;

use super::{CALL_TIMEOUT, CallError, Client, proto_duration, resource};

/// How often the official clients send a heartbeat.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(10);
/// Servers keep a call with a far deadline open; the official clients use decades.
const STREAM_TIMEOUT: Duration = Duration::from_secs(30 * 24 * 3600);

/// A client that the server knows. It is forgotten when this is closed; merely dropped, when the server notices.
pub(crate) struct Session {
    client: Client,
    group: Option<v2::Resource>,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for Session {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Session {
    /// Makes `client` known as a producer to `topic`.
    pub(crate) async fn producer(client: &Client, topic: &str) -> Result<Self, CallError> {
        client.query_route(topic).await?;
        let publishing = v2::Publishing { topics: resource(topic).into_iter().collect(), ..Default::default() };
        let pub_sub = v2::settings::PubSub::Publishing(publishing);
        Self::open(client, v2::ClientType::Producer, None, pub_sub).await
    }

    /// Makes `client` known as a simple consumer of `topic` in `group`.
    pub(crate) async fn consumer(client: &Client, topic: &str, group: &str, tags: &str) -> Result<Self, CallError> {
        Self::consumer_where(client, topic, group, super::tags(tags)).await
    }

    /// The same with any filter.
    pub(crate) async fn consumer_where(
        client: &Client,
        topic: &str,
        group: &str,
        filter: v2::FilterExpression,
    ) -> Result<Self, CallError> {
        client.query_route(topic).await?;
        let expression = Some(filter);
        let subscription = v2::Subscription {
            group: resource(group),
            subscriptions: vec![v2::SubscriptionEntry { topic: resource(topic), expression }],
            ..Default::default()
        };
        let pub_sub = v2::settings::PubSub::Subscription(subscription);
        Self::open(client, v2::ClientType::SimpleConsumer, resource(group), pub_sub).await
    }

    async fn open(
        client: &Client,
        client_type: v2::ClientType,
        group: Option<v2::Resource>,
        pub_sub: v2::settings::PubSub,
    ) -> Result<Self, CallError> {
        let settings = v2::Settings {
            client_type: Some(client_type.into()),
            request_timeout: Some(proto_duration(CALL_TIMEOUT)),
            user_agent: Some(v2::Ua {
                language: v2::Language::Rust.into(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                platform: std::env::consts::OS.to_owned(),
                hostname: String::new(),
            }),
            pub_sub: Some(pub_sub),
            ..Default::default()
        };
        let telemetry = open_stream(client, settings).await?;
        let session = Self {
            client: client.clone(),
            group: group.clone(),
            tasks: [tokio::spawn(telemetry), tokio::spawn(beat(client.clone(), client_type, group))],
        };
        Ok(session)
    }

    /// Tells the server that this client is done.
    pub(crate) async fn close(self) -> Result<(), CallError> {
        // A heartbeat that arrives after the goodbye would be from a client that the server does not know.
        let [_telemetry, heartbeats] = &self.tasks;
        heartbeats.abort();
        let body = v2::NotifyClientTerminationRequest { group: self.group.clone() };
        let request = self.client.request(body, CALL_TIMEOUT);
        let answer = self.client.stub.clone().notify_client_termination(request).await?.into_inner();
        super::error::check(answer.status)
    }
}

/// Opens the stream, waits for the server's settings, and returns what keeps the stream open.
async fn open_stream(
    client: &Client,
    settings: v2::Settings,
) -> Result<impl Future<Output = ()> + Send + 'static, CallError> {
    let first =
        v2::TelemetryCommand { status: None, command: Some(v2::telemetry_command::Command::Settings(settings)) };
    let outgoing = futures::stream::once(async { first }).chain(futures::stream::pending());
    let request = client.request(outgoing, STREAM_TIMEOUT);
    let mut stub = client.stub.clone();
    let answered = async {
        let mut incoming = stub.telemetry(request).await?.into_inner();
        match incoming.next().await {
            Some(first) => super::error::check(first?.status.or(ok())).map(|()| incoming),
            None => Err(tonic::Status::unavailable("the server closed the telemetry stream").into()),
        }
    };
    let mut incoming = tokio::time::timeout(CALL_TIMEOUT, answered)
        .await
        .map_err(|_late| tonic::Status::deadline_exceeded("no settings from the server"))??;
    // Commands from the server (checks of transactions, stack traces) are for real clients; they are read and dropped.
    Ok(async move { while let Some(Ok(_command)) = incoming.next().await {} })
}

/// A command without a status is as good as one with OK.
fn ok() -> Option<v2::Status> {
    Some(v2::Status { code: v2::Code::Ok.into(), message: String::new() })
}

async fn beat(client: Client, client_type: v2::ClientType, group: Option<v2::Resource>) {
    let mut ticks = tokio::time::interval(HEARTBEAT_EVERY);
    loop {
        ticks.tick().await;
        let body = v2::HeartbeatRequest { group: group.clone(), client_type: client_type.into() };
        // A lost heartbeat is made up for by the next one; a server that is gone shows in the calls that matter.
        let _answer = client.stub.clone().heartbeat(client.request(body, CALL_TIMEOUT)).await;
    }
}
