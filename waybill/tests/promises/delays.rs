//! Delayed messages in real time, from a client's send to its receive.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use futures::StreamExt;
use waybill_broker::Peer;
use waybill_ops::clock::now_ms;
use waybill_protocol::grpc::v2;
use waybill_protocol::grpc::v2::Code;
use waybill_protocol::grpc::v2::receive_message_response::Content;
use waybill_protocol::remoting::codes::{request, response};
use waybill_protocol::remoting::{Command, CreateTopicRequestHeader};

use crate::rig::{BrokerRig, Sidecar};
use crate::support::PATIENCE;
use crate::support::client::{Grpc, ack, announce, resource, seconds, signed};

const DAY_MS: i64 = 24 * 3_600 * 1_000;

struct Setup {
    _broker: BrokerRig,
    sidecar: Sidecar,
    grpc: Grpc,
    _telemetry: tonic::Streaming<v2::TelemetryCommand>,
}

/// Topic `t` takes delayed messages, topic `n` does not.
async fn setup() -> Setup {
    let broker = BrokerRig::with(|config| config.timer_precision_ms = 10).await;
    for (topic, kind) in [("t", "DELAY"), ("n", "NORMAL")] {
        let header = CreateTopicRequestHeader {
            attributes: Some(format!("+message.type={kind}")),
            ..CreateTopicRequestHeader::new(topic, 4)
        };
        let command = Command::request(request::UPDATE_AND_CREATE_TOPIC).with_header(&header);
        let answer = broker.broker.handle(&Peer::local(), command).await.expect("an answer");
        assert_eq!(answer.code, response::SUCCESS, "{:?}", answer.remark);
    }
    let sidecar = broker.sidecar("delays", "").await;
    let mut grpc = Grpc::connect(sidecar.endpoint.clone()).await.expect("a connection");
    let telemetry = announce(&mut grpc, "c", "g", v2::ClientType::SimpleConsumer).await;
    Setup { _broker: broker, sidecar, grpc, _telemetry: telemetry }
}

fn timestamp(ms: i64) -> prost_types::Timestamp {
    let nanos = i32::try_from(ms.rem_euclid(1_000) * 1_000_000).expect("below a second");
    prost_types::Timestamp { seconds: ms.div_euclid(1_000), nanos }
}

fn message(topic: &str, id: &str, at_ms: i64) -> v2::Message {
    let system = v2::SystemProperties {
        message_id: id.into(),
        message_type: v2::MessageType::Delay.into(),
        delivery_timestamp: Some(timestamp(at_ms)),
        ..Default::default()
    };
    let body = b"body".to_vec().into();
    v2::Message { topic: resource(topic), system_properties: Some(system), body, ..Default::default() }
}

impl Setup {
    async fn send(&mut self, messages: Vec<v2::Message>) -> v2::SendMessageResponse {
        let request = signed("c", v2::SendMessageRequest { messages });
        self.grpc.send_message(request).await.expect("an answer").into_inner()
    }

    async fn recall(&mut self, topic: &str, handle: &str) -> (Code, String) {
        let request = v2::RecallMessageRequest { topic: resource(topic), recall_handle: handle.into() };
        let answer = self.grpc.recall_message(signed("c", request)).await.expect("an answer").into_inner();
        (answer.status.expect("a status").code(), answer.message_id)
    }

    /// One receive; each message is acknowledged. When it came, by the clock, and what it was.
    async fn receive(&mut self) -> Vec<(i64, v2::SystemProperties)> {
        let request = v2::ReceiveMessageRequest {
            group: resource("g"),
            message_queue: Some(v2::MessageQueue { topic: resource("t"), ..Default::default() }),
            batch_size: 32,
            invisible_duration: seconds(60),
            long_polling_timeout: seconds(5),
            ..Default::default()
        };
        let mut answer = self.grpc.receive_message(signed("c", request)).await.expect("a stream").into_inner();
        let mut got = Vec::new();
        while let Some(element) = answer.next().await {
            if let Some(Content::Message(message)) = element.expect("an element").content {
                got.push((now_ms(), message.system_properties.expect("system properties")));
            }
        }
        let handles: Vec<String> = got.iter().map(|(_, system)| system.receipt_handle().to_owned()).collect();
        if !handles.is_empty() {
            let answer = ack(&mut self.grpc, "c", "g", &handles).await;
            assert_eq!(answer.status.map(|status| status.code()), Some(Code::Ok));
        }
        got
    }
}

fn code(answer: &v2::SendMessageResponse) -> Code {
    answer.status.as_ref().expect("a status").code()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_comes_once_and_none_before_its_time() {
    let mut setup = setup().await;
    let began = now_ms();
    // The last is far away, so that its recall is in time however slow the machine.
    let at = |n: i64| if n == 40 { began + 3_600_000 } else { began + 700 + n * 7 % 40 * 50 };
    let sent = setup.send((0..=40).map(|n| message("t", &format!("m{n}"), at(n))).collect()).await;
    assert_eq!(code(&sent), Code::Ok);
    assert!(sent.entries.iter().all(|entry| !entry.recall_handle.is_empty()), "each can be recalled");
    let handles: HashMap<String, String> =
        sent.entries.iter().map(|entry| (entry.message_id.clone(), entry.recall_handle.clone())).collect();
    assert_eq!(setup.recall("t", &handles["m40"]).await, (Code::Ok, "m40".to_owned()));

    let mut seen: BTreeMap<String, v2::SystemProperties> = BTreeMap::new();
    let deadline = Instant::now() + PATIENCE;
    while seen.len() < 40 {
        assert!(Instant::now() < deadline, "{} of 40 came", seen.len());
        for (came, system) in setup.receive().await {
            let number: i64 = system.message_id[1..].parse().expect("ours");
            assert!(came >= at(number), "{} came {} ms early", system.message_id, at(number) - came);
            assert!(seen.insert(system.message_id.clone(), system).is_none(), "twice");
        }
    }
    for (id, system) in &seen {
        let number: i64 = id[1..].parse().expect("ours");
        assert_eq!(system.delivery_timestamp, Some(timestamp(at(number))), "it says when it was to come");
        assert_eq!((system.message_type(), system.delivery_attempt()), (v2::MessageType::Delay, 1));
    }
    assert_eq!(setup.receive().await.len(), 0, "nothing comes again");
    assert_eq!(setup.recall("t", &handles["m0"]).await.0, Code::PreconditionFailed, "too late");
    setup.sidecar.stop.cancel();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_refused_is_refused_with_its_code() {
    let mut setup = setup().await;
    let now = now_ms();
    for (what, topic, at, expected) in [
        ("a year ahead", "t", now + 365 * DAY_MS, Code::IllegalDeliveryTime),
        ("more than a day ahead", "t", now + 2 * DAY_MS, Code::IllegalDeliveryTime),
        ("another topic's type", "n", now + DAY_MS / 2, Code::MessagePropertyConflictWithType),
        ("past", "t", now - 1_000, Code::Ok),
        ("long past", "t", -5, Code::Ok),
        ("now", "t", now, Code::Ok),
    ] {
        let answer = setup.send(vec![message(topic, what, at)]).await;
        assert_eq!(code(&answer), expected, "{what}: {answer:?}");
        if topic == "n" {
            let text = answer.status.expect("a status").message;
            assert!(text.contains("NORMAL") && text.contains("DELAY"), "both types are named: {text}");
        }
    }
    let mut ids = Vec::new();
    while ids.len() < 3 {
        ids.extend(setup.receive().await.into_iter().map(|(_, system)| system.message_id));
    }
    ids.sort();
    assert_eq!(ids, ["long past", "now", "past"], "at once, and nothing of what was refused is there");

    // The broker keeps messages for three days; the sidecar allows more now.
    setup.sidecar.rewrite(&format!("maxDelayTimeMills: {}\n", 400 * DAY_MS)).await;
    let answer = setup.send(vec![message("t", "four days", now + 4 * DAY_MS)]).await;
    assert_eq!(code(&answer), Code::IllegalDeliveryTime, "{answer:?}");
    let text = answer.status.expect("a status").message;
    assert!(text.contains("timerMaxDelaySec"), "whose limit it is: {text}");
    let answer = setup.send(vec![message("t", "two days", now + 2 * DAY_MS)]).await;
    assert_eq!(code(&answer), Code::Ok, "{answer:?}");
    let handle = answer.entries[0].recall_handle.clone();
    for (topic, handle, expected) in [
        ("n", handle.as_str(), Code::MessagePropertyConflictWithType),
        ("t", "nonsense", Code::BadRequest),
        ("t", "", Code::BadRequest),
        ("t", handle.as_str(), Code::Ok),
        ("t", handle.as_str(), Code::MessageNotFound),
    ] {
        assert_eq!(setup.recall(topic, handle).await.0, expected, "{topic} {handle}");
    }
    setup.sidecar.stop.cancel();
}
