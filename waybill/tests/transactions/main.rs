//! Transactions of gRPC clients over a real sidecar and a real broker, over TCP and within one process, in real time with short settings.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, reason = "tests say what they expect")]

#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt, stream};
use support::PATIENCE;
use support::broker::BrokerRig;
use support::client::{Grpc, announce, resource, seconds, signed};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use waybill_broker::{Channel, Peer};
use waybill_ops::clock::SystemClock;
use waybill_ops::config::Live;
use waybill_protocol::grpc::v2::{
    self, Code, MessageType, RecoverOrphanedTransactionCommand, TransactionResolution, TransactionSource,
    receive_message_response::Content, telemetry_command,
};
use waybill_protocol::remoting::{Command, codes::response};
use waybill_sidecar::backend::{FromBrokers, LocalTransport, RemoteOptions, RemoteTransport, Transport};
use waybill_sidecar::{App, Ended, Listeners, config::Config};

/// Long enough that no check comes by itself, where none is wanted.
const NEVER_MS: u64 = 3_600_000;

async fn broker(first_check_ms: u64) -> BrokerRig {
    BrokerRig::with(|config| {
        config.auto_create_topic_message_type = "TRANSACTION".into();
        config.transaction_time_out = first_check_ms;
        config.transaction_check_interval = 1_000;
        config.transaction_check_max = 1_000;
    })
    .await
}

struct Sidecar {
    endpoint: String,
    stop: CancellationToken,
    running: tokio::task::JoinHandle<Ended>,
}

impl Sidecar {
    async fn over(transport: Arc<dyn Transport>, broker: &BrokerRig) -> Self {
        let mut config = Config::default();
        config.namesrv_addr.clone_from(&broker.address);
        let grpc = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let listeners = Listeners { grpc, admin: None };
        let clock = Arc::new(SystemClock::new());
        let app = App::build(Arc::new(Live::fixed(config)), transport, clock, listeners).await.expect("a sidecar");
        let endpoint = format!("http://{}", app.grpc_address());
        let stop = CancellationToken::new();
        let running = tokio::spawn(app.run(stop.clone()));
        Self { endpoint, stop, running }
    }

    async fn remote(broker: &BrokerRig) -> Self {
        Self::over(Arc::new(RemoteTransport::new(RemoteOptions::of(&Config::default()))), broker).await
    }

    /// Within this process, as `waybill standalone` does it.
    async fn local(rig: &BrokerRig) -> Self {
        let from_broker = FromBrokers::default();
        let way_back = from_broker.clone();
        let peer = Peer::local_with(Channel::new(move |request| way_back.give("", request)));
        let broker = Arc::clone(&rig.broker);
        let transport = LocalTransport::new(move |request| {
            let (broker, peer) = (Arc::clone(&broker), peer.clone());
            async move {
                broker.handle(&peer, request).await.unwrap_or_else(|| Command::response(response::SUCCESS, ""))
            }
            .boxed()
        })
        .with_requests(from_broker);
        Self::over(Arc::new(transport), rig).await
    }

    async fn client(&self) -> Grpc {
        Grpc::connect(self.endpoint.clone()).await.expect("a connection")
    }

    async fn stop(self) {
        self.stop.cancel();
        assert_eq!(self.running.await.expect("no panic"), Ended::Clean);
    }
}

fn half(id: &str) -> v2::Message {
    let mut system = v2::SystemProperties {
        message_id: id.into(),
        born_host: "host".into(),
        body_encoding: v2::Encoding::Identity.into(),
        ..Default::default()
    };
    system.set_message_type(MessageType::Transaction);
    v2::Message {
        topic: resource("t"),
        user_properties: [("colour".into(), "blue".into())].into(),
        system_properties: Some(system),
        body: format!("body of {id}").into(),
    }
}

async fn send(grpc: &mut Grpc, message: v2::Message) -> String {
    let request = v2::SendMessageRequest { messages: vec![message] };
    let mut answer = grpc.send_message(signed("p", request)).await.expect("an answer").into_inner();
    assert_eq!(answer.status.expect("a status").code(), Code::Ok);
    answer.entries.remove(0).transaction_id
}

async fn end(grpc: &mut Grpc, message_id: &str, transaction_id: &str, resolution: TransactionResolution) -> Code {
    let request = v2::EndTransactionRequest {
        topic: resource("t"),
        message_id: message_id.into(),
        transaction_id: transaction_id.into(),
        resolution: resolution.into(),
        source: TransactionSource::SourceClient.into(),
        ..Default::default()
    };
    let answer = grpc.end_transaction(signed("p", request)).await.expect("an answer").into_inner();
    answer.status.expect("a status").code()
}

/// Announces client `id`, a producer of topic "t". The stream must be kept, and brings what the client is asked.
async fn produce(grpc: &mut Grpc, id: &str) -> tonic::Streaming<v2::TelemetryCommand> {
    let publishing = v2::Publishing { topics: resource("t").into_iter().collect(), ..Default::default() };
    let settings = v2::Settings {
        client_type: Some(v2::ClientType::Producer.into()),
        request_timeout: seconds(3),
        pub_sub: Some(v2::settings::PubSub::Publishing(publishing)),
        ..Default::default()
    };
    let command = v2::TelemetryCommand { status: None, command: Some(telemetry_command::Command::Settings(settings)) };
    let outgoing = stream::once(std::future::ready(command)).chain(stream::pending());
    let mut answers = grpc.telemetry(signed(id, outgoing)).await.expect("a stream").into_inner();
    answers.message().await.expect("an answer").expect("settings");
    answers
}

async fn asked(stream: &mut tonic::Streaming<v2::TelemetryCommand>) -> RecoverOrphanedTransactionCommand {
    let question = async {
        loop {
            let command = stream.message().await.expect("a stream").expect("it is open").command;
            if let Some(telemetry_command::Command::RecoverOrphanedTransactionCommand(question)) = command {
                return question;
            }
        }
    };
    tokio::time::timeout(PATIENCE, question).await.expect("a question")
}

/// One receive of group "g", of what is there.
async fn receive(grpc: &mut Grpc) -> Vec<v2::Message> {
    let request = v2::ReceiveMessageRequest {
        group: resource("g"),
        message_queue: Some(v2::MessageQueue { topic: resource("t"), ..Default::default() }),
        batch_size: 32,
        invisible_duration: seconds(600),
        long_polling_timeout: seconds(5),
        ..Default::default()
    };
    let mut answer = grpc.receive_message(signed("c", request)).await.expect("a stream").into_inner();
    let mut messages = Vec::new();
    while let Some(element) = answer.message().await.expect("an element") {
        if let Some(Content::Message(message)) = element.content {
            messages.push(message);
        }
    }
    messages
}

fn id_of(message: &v2::Message) -> &str {
    &message.system_properties.as_ref().expect("properties").message_id
}

#[tokio::test]
async fn what_one_sidecar_sent_another_one_ends() {
    let rig = broker(NEVER_MS).await;
    let (first, second) = (Sidecar::remote(&rig).await, Sidecar::remote(&rig).await);
    let mut grpc = first.client().await;
    let mut wanted = half("committed");
    wanted.system_properties.as_mut().unwrap().orphaned_transaction_recovery_duration = seconds(3_600);
    let committed = send(&mut grpc, wanted).await;
    let rolled_back = send(&mut grpc, half("rolled back")).await;
    drop(grpc);
    first.stop().await;

    let mut grpc = second.client().await;
    let _consumer = announce(&mut grpc, "c", "g", v2::ClientType::SimpleConsumer).await;
    use TransactionResolution::{Commit, Rollback};
    assert_eq!(end(&mut grpc, "rolled back", &rolled_back, Rollback).await, Code::Ok);
    assert_eq!(end(&mut grpc, "rolled back", &rolled_back, Commit).await, Code::PreconditionFailed);
    assert_eq!(end(&mut grpc, "another", &committed, Commit).await, Code::InvalidTransactionId);
    for _ in 0..2 {
        assert_eq!(end(&mut grpc, "committed", &committed, Commit).await, Code::Ok);
    }
    assert_eq!(end(&mut grpc, "committed", &committed, Rollback).await, Code::PreconditionFailed);
    let got = receive(&mut grpc).await;
    assert_eq!(got.iter().map(id_of).collect::<Vec<_>>(), ["committed"]);
    let message = &got[0];
    assert_eq!(message.body, "body of committed");
    assert_eq!(
        message.user_properties,
        [("colour".to_owned(), "blue".to_owned())].into(),
        "the user's own and no other"
    );
    assert_eq!(message.system_properties.as_ref().unwrap().message_type(), MessageType::Transaction);
    assert!(receive(&mut grpc).await.is_empty(), "once");
    second.stop().await;
}

/// The producer that sent the half is gone; another one of the topic, at another sidecar, is asked and decides.
async fn another_producer_decides(rig: &BrokerRig, first: Sidecar, second: Sidecar) {
    let mut grpc = first.client().await;
    for id in ["yes", "no"] {
        send(&mut grpc, half(id)).await;
    }
    drop(grpc);
    first.stop().await;

    let mut grpc = second.client().await;
    let mut stream = produce(&mut grpc, "another").await;
    let _consumer = announce(&mut grpc, "c", "g", v2::ClientType::SimpleConsumer).await;
    let mut open: Vec<&str> = vec!["yes", "no"];
    while !open.is_empty() {
        let question = asked(&mut stream).await;
        let message = question.message.expect("the message");
        let id = id_of(&message).to_owned();
        let system = message.system_properties.as_ref().expect("properties");
        assert_eq!(message.topic, resource("t"));
        assert_eq!(message.body, format!("body of {id}"));
        assert_eq!(message.user_properties, [("colour".to_owned(), "blue".to_owned())].into());
        assert_eq!(system.message_type(), MessageType::Transaction);
        assert!(system.body_digest.is_some() && system.receipt_handle.is_none());
        if !open.contains(&id.as_str()) {
            // Asked while the decision was on its way.
            continue;
        }
        let (resolution, expected) = match id.as_str() {
            "yes" => (TransactionResolution::Commit, Code::Ok),
            _ => (TransactionResolution::Rollback, Code::Ok),
        };
        assert_eq!(end(&mut grpc, &id, &question.transaction_id, resolution).await, expected);
        open.retain(|other| *other != id);
    }
    let got = receive(&mut grpc).await;
    assert_eq!(got.iter().map(id_of).collect::<Vec<_>>(), ["yes"]);
    assert!(rig.broker.core().open_halves().is_empty());
    second.stop().await;
}

#[tokio::test]
async fn another_producer_is_asked_over_tcp() {
    let rig = broker(100).await;
    let (first, second) = (Sidecar::remote(&rig).await, Sidecar::remote(&rig).await);
    another_producer_decides(&rig, first, second).await;
}

#[tokio::test]
async fn another_producer_is_asked_within_one_process() {
    let rig = broker(100).await;
    let (first, second) = (Sidecar::local(&rig).await, Sidecar::local(&rig).await);
    another_producer_decides(&rig, first, second).await;
}

/// All at once, as after an outage. What is lost of them is asked for again much later, and not for ever.
#[tokio::test]
async fn a_producer_is_asked_about_each_of_many_open_transactions() {
    const HALVES: usize = 200;
    let rig = BrokerRig::with(|config| {
        config.auto_create_topic_message_type = "TRANSACTION".into();
        config.transaction_time_out = 3_000;
        config.transaction_check_interval = NEVER_MS;
    })
    .await;
    let sidecar = Sidecar::remote(&rig).await;
    let mut grpc = sidecar.client().await;
    let mut stream = produce(&mut grpc, "p").await;
    for n in 0..HALVES {
        send(&mut grpc, half(&format!("m{n}"))).await;
    }
    let mut heard = BTreeSet::new();
    while heard.len() < HALVES {
        heard.insert(id_of(&asked(&mut stream).await.message.expect("the message")).to_owned());
    }
    drop((stream, grpc));
    sidecar.stop().await;
}

/// The message's own wish counts, and a producer that has left is not asked.
#[tokio::test]
async fn the_one_that_is_here_is_asked_when_the_message_says() {
    let rig = broker(NEVER_MS).await;
    let sidecar = Sidecar::remote(&rig).await;
    let mut grpc = sidecar.client().await;
    let gone = produce(&mut grpc, "gone").await;
    let mut here = produce(&mut grpc, "here").await;
    let goodbye = v2::NotifyClientTerminationRequest::default();
    let answer = grpc.notify_client_termination(signed("gone", goodbye)).await.expect("an answer").into_inner();
    assert_eq!(answer.status.expect("a status").code(), Code::Ok);
    let mut message = half("m");
    message.system_properties.as_mut().unwrap().orphaned_transaction_recovery_duration = seconds(1);
    send(&mut grpc, message).await;
    let question = asked(&mut here).await;
    assert_eq!(end(&mut grpc, "m", &question.transaction_id, TransactionResolution::Commit).await, Code::Ok);
    drop((gone, here, grpc));
    tokio::time::timeout(Duration::from_secs(30), sidecar.stop()).await.expect("it stops");
}
