//! The switch in the configuration file, flipped in both directions while changes are under way.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::{StreamExt, stream};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;
use waybill_ops::clock::SystemClock;
use waybill_ops::config::Live;
use waybill_protocol::grpc::v2;
use waybill_protocol::grpc::v2::messaging_service_client::MessagingServiceClient;
use waybill_protocol::grpc::v2::receive_message_response::Content;
use waybill_sidecar::{App, Ended, Listeners, config::Config};

use crate::rig::{BrokerRig, send, take, until};

const WORKERS: usize = 32;

type Client = MessagingServiceClient<Channel>;

fn signed<Q>(message: Q) -> tonic::Request<Q> {
    let mut request = tonic::Request::new(message);
    for (name, value) in [("x-mq-client-id", "c"), ("x-mq-client-version", "5.0.7"), ("grpc-timeout", "60S")] {
        request.metadata_mut().insert(name, value.parse().expect("a header value"));
    }
    request
}

fn resource(name: &str) -> Option<v2::Resource> {
    Some(v2::Resource { resource_namespace: String::new(), name: name.into() })
}

fn seconds(seconds: i64) -> Option<prost_types::Duration> {
    Some(prost_types::Duration { seconds, nanos: 0 })
}

fn write(path: &Path, namesrv: &str, on: bool) {
    let text = format!("namesrvAddr: \"{namesrv}\"\nenableBatchChangeInvisibleTime: {on}\nenableBatchAck: {on}\n");
    let new = path.with_extension("new");
    std::fs::write(&new, text).expect("a file");
    std::fs::rename(&new, path).expect("in one step");
}

/// Announces a simple consumer; the stream must be kept.
async fn announce(client: &mut Client) -> tonic::Streaming<v2::TelemetryCommand> {
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

async fn receive(client: &mut Client, wanted: usize) -> Vec<String> {
    let mut handles = Vec::new();
    while handles.len() < wanted {
        let request = v2::ReceiveMessageRequest {
            group: resource("g"),
            message_queue: Some(v2::MessageQueue { topic: resource("t"), ..Default::default() }),
            batch_size: 32,
            invisible_duration: seconds(600),
            long_polling_timeout: seconds(5),
            ..Default::default()
        };
        let mut answer = client.receive_message(signed(request)).await.expect("a stream").into_inner();
        while let Some(element) = answer.message().await.expect("an element") {
            if let Some(Content::Message(message)) = element.content {
                handles.push(message.system_properties.expect("properties").receipt_handle().to_owned());
            }
        }
    }
    handles
}

/// Changes the duration of one message over and over, and acknowledges it in the end. Every answer must be OK.
async fn work(mut client: Client, mut handle: String, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        let request = v2::ChangeInvisibleDurationRequest {
            group: resource("g"),
            topic: resource("t"),
            receipt_handle: handle,
            invisible_duration: seconds(600),
            ..Default::default()
        };
        let answer = client.change_invisible_duration(signed(request)).await.expect("an answer").into_inner();
        assert_eq!(answer.status.map(|status| status.code()), Some(v2::Code::Ok));
        handle = answer.receipt_handle;
    }
    let entry = v2::AckMessageEntry { message_id: "id".into(), receipt_handle: handle, ..Default::default() };
    let request = v2::AckMessageRequest { group: resource("g"), topic: resource("t"), entries: vec![entry] };
    let answer = client.ack_message(signed(request)).await.expect("an answer").into_inner();
    assert_eq!(answer.status.map(|status| status.code()), Some(v2::Code::Ok));
}

#[tokio::test(flavor = "multi_thread")]
async fn flipping_the_switch_in_the_file_takes_effect_with_changes_under_way() {
    let rig = BrokerRig::start().await;
    let file = rig.dir.path().join("sidecar.yaml");
    write(&file, &rig.address, false);
    let live: Arc<Live<Config>> = Arc::new(Live::load(&file).expect("a configuration"));
    let listeners = Listeners { grpc: TcpListener::bind("127.0.0.1:0").await.expect("a port"), admin: None };
    let app = App::build(live, rig.remote(), Arc::new(SystemClock::new()), listeners).await.expect("a sidecar");
    let endpoint = format!("http://{}", app.grpc_address());
    let stop_app = CancellationToken::new();
    let running = tokio::spawn(app.run(stop_app.clone()));

    let direct = rig.service(rig.remote(), |_| {});
    send(&direct, 1).await;
    let early = take(&direct, "x", 1, 600_000).await.remove(0);
    let lease = waybill_sidecar::backend::LeaseRef { group: "g".into(), topic: "t".into(), handle: early.handle };
    assert_eq!(direct.ack(vec![lease]).await, [Ok(())]);
    send(&direct, WORKERS).await;

    let mut client = Client::connect(endpoint).await.expect("a connection");
    let _telemetry = announce(&mut client).await;
    let stop = Arc::new(AtomicBool::new(false));
    let handles = receive(&mut client, WORKERS).await;
    let workers: Vec<_> =
        handles.into_iter().map(|handle| tokio::spawn(work(client.clone(), handle, Arc::clone(&stop)))).collect();

    until("changes go one by one", || rig.changes().0 > 200).await;
    assert_eq!(rig.changes().1, 0, "off");
    for _ in 0..2 {
        write(&file, &rig.address, true);
        let before = rig.changes().1;
        until("changes go in batches", || rig.changes().1 > before + 100).await;
        write(&file, &rig.address, false);
        // Off at last: many single changes without a batch among them.
        let mut seen = rig.changes();
        until("changes go one by one again", || {
            let now = rig.changes();
            if now.1 > seen.1 {
                seen = now;
            }
            now.0 > seen.0 + 500
        })
        .await;
    }
    stop.store(true, Ordering::Relaxed);
    for worker in workers {
        worker.await.expect("every answer was OK");
    }
    stop_app.cancel();
    assert_eq!(running.await.expect("no panic"), Ended::Clean);
}
