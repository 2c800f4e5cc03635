//! The questions that real Apache RocketMQ 5.5 was asked (`data/apache-answers.tsv`), asked here. The codes must be the
//! same, and for what a client did wrong the words too, but for [`DIFFERENT`].
#![allow(clippy::expect_used, clippy::panic, reason = "tests say what they expect")]

mod grpc_common;

use std::collections::BTreeMap;

use grpc_common::broker::Fault;
use grpc_common::*;
use waybill_protocol::grpc::v2::{
    self, Code, FilterExpression, FilterType, Message, MessageType, ReceiveMessageRequest, Status, SystemProperties,
};
use waybill_protocol::remoting::codes::{request, response};

/// Where ours answers otherwise, and why.
const DIFFERENT: [(&str, Code, &str); 16] = [
    ("tx.end.garbage_id", Code::InvalidTransactionId, "the precise code"),
    ("recall.garbage", Code::BadRequest, "the precise code"),
    ("sync_lite", Code::NotImplemented, "lite topics come later"),
    ("receive.bad_sql", Code::IllegalFilterExpression, "the precise code"),
    ("receive.no_telemetry", Code::UnrecognizedClientType, "the precise code"),
    ("ack.garbage_handle", Code::InvalidReceiptHandle, "the precise code"),
    ("ack.empty_handle", Code::InvalidReceiptHandle, "the precise code"),
    ("ack.no_entries", Code::BadRequest, "the precise code"),
    ("ack.missing_topic", Code::TopicNotFound, "the precise code"),
    ("cid.garbage", Code::InvalidReceiptHandle, "the precise code"),
    ("cid.missing_topic", Code::TopicNotFound, "the precise code"),
    ("send.missing_topic", Code::TopicNotFound, "what is missing is named, not taken for a conflict"),
    ("cid.after_ack", Code::InvalidReceiptHandle, "no OK without effect"),
    ("cid.missing_group", Code::InvalidReceiptHandle, "no OK without effect"),
    ("dlq.forward_garbage", Code::InvalidReceiptHandle, "the precise code"),
    ("ack.wrong_group", Code::InvalidReceiptHandle, "no OK without effect"),
];

/// Whose words are other than Apache's: a broker's text, or better ones.
const OWN_WORDS: [&str; 10] = [
    "route.missing",
    "route.dlq_absent",
    "assignment.missing_topic",
    "receive.missing_topic",
    "ack.expired_handle(13s after 10s)",
    "cid.expired_handle",
    "send.none",
    "send.delay_25h",
    "dlq.forward",
    "dlq.forward_twice",
];

/// Code and words, by question.
type Answers = BTreeMap<String, (Code, String)>;

fn apache() -> Answers {
    let mut answers = Answers::new();
    for line in include_str!("data/apache-answers.tsv").lines() {
        let Some((question, answer)) = line.split_once('\t') else { continue };
        let Some(code) =
            answer.get(..5).and_then(|digits| digits.parse::<i32>().ok()).and_then(|c| Code::try_from(c).ok())
        else {
            continue;
        };
        let words = answer.split_once('\'').and_then(|(_, rest)| rest.rsplit_once('\'')).map_or("", |(words, _)| words);
        let words = words.split_once("' entry[").map_or(words, |(words, _)| words);
        let words = words.trim_start_matches("org.apache.rocketmq.proxy.common.ProxyException: ");
        answers.insert(question.to_owned(), (code, words.to_owned()));
    }
    assert!(answers.len() > 120, "only {} answers could be read", answers.len());
    answers
}

struct Asker {
    world: World,
    peer: Peer,
    answers: Answers,
}

impl Asker {
    fn note(&mut self, question: &str, status: Option<Status>) {
        let status = status.expect("a status");
        self.answers.insert(question.to_owned(), (status.code(), status.message));
    }

    async fn route(&mut self, question: &str, topic: &str) {
        let request = v2::QueryRouteRequest { topic: Some(resource(topic)), endpoints: Some(endpoints()) };
        let answer = self.peer.client.query_route(self.peer.request(request)).await.expect("an answer");
        self.note(question, answer.into_inner().status);
    }

    async fn assignment(&mut self, question: &str, topic: &str, group: &str) {
        let (topic, group, endpoints) = (Some(resource(topic)), Some(resource(group)), Some(endpoints()));
        let request = v2::QueryAssignmentRequest { topic, group, endpoints };
        let answer = self.peer.client.query_assignment(self.peer.request(request)).await.expect("an answer");
        self.note(question, answer.into_inner().status);
    }

    async fn send(&mut self, question: &str, change: impl FnOnce(&mut Message, &mut SystemProperties)) {
        let mut message = message("ID");
        let mut system = message.system_properties.take().expect("system properties");
        change(&mut message, &mut system);
        message.system_properties = Some(system);
        let answer = self.peer.send(vec![message]).await;
        self.note(question, answer.status);
    }

    async fn receive(&mut self, question: &str, change: impl FnOnce(&mut ReceiveMessageRequest)) {
        let mut request = receive();
        change(&mut request);
        let received = self.peer.receive(request).await;
        if received.messages.is_empty() {
            assert_eq!(received.order, ["status", "delivery_timestamp"], "{question}");
        }
        self.note(question, Some(received.status));
    }

    async fn ack(&mut self, question: &str, topic: &str, group: &str, handles: &[&str]) {
        let handles = handles.iter().map(|handle| handle.to_string()).collect::<Vec<_>>();
        let request = self.peer.request(ack(topic, group, &handles));
        let answer = self.peer.client.ack_message(request).await.expect("an answer").into_inner();
        let entries = answer.entries.iter().map(|entry| entry.receipt_handle.clone()).collect::<Vec<_>>();
        assert!(entries == handles, "{question}: {entries:?}");
        self.note(question, answer.status);
    }

    async fn change(&mut self, question: &str, topic: &str, group: &str, handle: &str, ms: i64) -> String {
        let request = self.peer.request(change(topic, group, handle, ms));
        let answer = self.peer.client.change_invisible_duration(request).await.expect("an answer").into_inner();
        self.note(question, answer.status);
        answer.receipt_handle
    }

    async fn forward(&mut self, question: &str, handle: &str) {
        let request = v2::ForwardMessageToDeadLetterQueueRequest {
            group: Some(resource("g")),
            topic: Some(resource("t")),
            receipt_handle: handle.into(),
            message_id: "ID".into(),
            ..Default::default()
        };
        let request = self.peer.request(request);
        let answer = self.peer.client.forward_message_to_dead_letter_queue(request).await.expect("an answer");
        self.note(question, answer.into_inner().status);
    }

    async fn one_message(&mut self) -> String {
        let sent = self.peer.send(vec![message("ID")]).await;
        assert_eq!(code(sent.status), Code::Ok);
        let received = self.peer.receive(receive()).await;
        received.handles().pop().expect("a message")
    }
}

#[tokio::test]
async fn the_same_questions_get_the_same_answers() {
    let world = World::new().await;
    for (topic, kind) in [("fifo", "FIFO"), ("delay", "DELAY"), ("trans", "TRANSACTION"), ("other", "NORMAL")] {
        world.brokers.topic(topic, kind, 1);
    }
    let peer = world.client("asker", simple()).await;
    let mut asker = Asker { world, peer, answers: Answers::new() };

    ask_routes(&mut asker).await;
    ask_sends(&mut asker).await;
    ask_types(&mut asker).await;
    ask_receives(&mut asker).await;
    ask_deliveries(&mut asker).await;
    ask_the_rest(&mut asker).await;

    let apache = apache();
    let mut wrong = Vec::new();
    for (question, (code, words)) in &asker.answers {
        let Some((apache_code, apache_words)) = apache.get(question) else { panic!("Apache was not asked {question}") };
        let different = DIFFERENT.iter().find(|(name, ..)| name == question);
        let wanted = different.map_or(*apache_code, |(_, code, _)| *code);
        let same_words = words == apache_words || different.is_some() || OWN_WORDS.contains(&question.as_str());
        if *code != wanted || !same_words {
            wrong.push(format!("{question}: {code:?} '{words}', wanted {wanted:?} '{apache_words}'"));
        }
        if different.is_some() && wanted == *apache_code {
            wrong.push(format!("{question} is no different from Apache's answer"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for (question, ..) in DIFFERENT {
        assert!(asker.answers.contains_key(question), "{question} was not asked");
    }
    assert!(asker.answers.len() >= 110, "only {} questions were asked", asker.answers.len());
}

async fn ask_routes(asker: &mut Asker) {
    asker.route("route.ok", "t").await;
    asker.route("route.missing", "nosuch").await;
    asker.route("route.empty", "").await;
    asker.route("route.illegal_char", "bad topic!").await;
    asker.route("route.long_200", &"x".repeat(200)).await;
    asker.route("route.system_topic", "TBW102").await;
    asker.route("route.system_topic2", "rmq_sys_x").await;
    asker.route("route.dlq_absent", "%DLQ%nosuch").await;
    let request = v2::QueryRouteRequest { topic: Some(resource("t")), endpoints: None };
    let answer = asker.peer.client.query_route(asker.peer.request(request.clone())).await.expect("an answer");
    asker.note("route.no_endpoints", answer.into_inner().status);
    let nameless = asker.peer.client.query_route(request).await.expect("an answer").into_inner();
    asker.note("meta.no_client_id.route", nameless.status);
    let nameless = asker.peer.client.heartbeat(v2::HeartbeatRequest::default()).await.expect("an answer").into_inner();
    asker.note("meta.no_client_id.heartbeat", nameless.status);
    asker.assignment("assignment.ok", "t", "g").await;
    asker.assignment("assignment.missing_topic", "nosuch", "g").await;
    asker.assignment("assignment.missing_group", "t", "nosuch").await;
}

async fn ask_sends(asker: &mut Asker) {
    let two = asker.peer.send(messages(2)).await;
    asker.note("send.two", two.status);
    let other = Message { topic: Some(resource("other")), ..message("B") };
    let two_topics = asker.peer.send(vec![message("A"), other]).await;
    asker.note("send.two_topics", two_topics.status);
    let none = asker.peer.send(Vec::new()).await;
    asker.note("send.none", none.status);

    let topic = |name: &str| {
        let name = name.to_owned();
        move |message: &mut Message, _: &mut SystemProperties| message.topic = Some(resource(&name))
    };
    asker.send("send.ok", |_, _| ()).await;
    asker.send("send.missing_topic", topic("nosuch")).await;
    asker.send("send.illegal_topic", topic("bad topic!")).await;
    asker.send("send.empty_topic", topic("")).await;
    asker.send("send.system_topic", topic("TBW102")).await;
    asker.send("send.topic_128", topic(&"x".repeat(128))).await;

    const MIB4: usize = 4 * 1024 * 1024;
    asker.send("send.body_4M", |m, _| m.body = vec![7; MIB4].into()).await;
    asker.send("send.body_4M+1", |m, _| m.body = vec![7; MIB4 + 1].into()).await;
    let properties = (0..10).map(|n| (format!("k{n}"), "v".repeat(100))).collect();
    asker.send("send.body_4M-props", |m, _| (m.body, m.user_properties) = (vec![7; MIB4].into(), properties)).await;
    asker.send("send.body_empty", |m, _| m.body = Default::default()).await;
    let crc = v2::Digest { r#type: v2::DigestType::Crc32.into(), checksum: "0".into() };
    asker.send("send.bad_crc", |_, s| s.body_digest = Some(crc)).await;
    asker.send("send.no_message_id", |_, s| s.message_id.clear()).await;
    asker.send("send.tag_blank", |_, s| s.tag = Some("  ".into())).await;
    asker.send("send.tag_pipe", |_, s| s.tag = Some("a|b".into())).await;
    asker.send("send.key_blank", |_, s| s.keys = vec![" ".into()]).await;
    asker.send("send.key_with_space", |_, s| s.keys = vec!["a b".into()]).await;

    let user = |pairs: Vec<(String, String)>| {
        move |message: &mut Message, _: &mut SystemProperties| message.user_properties = pairs.into_iter().collect()
    };
    let many = (0..129).map(|n| (format!("k{n}"), String::new())).collect();
    asker.send("send.prop_reserved", user(vec![("TAGS".into(), "x".into())])).await;
    asker.send("send.prop_count_129", user(many)).await;
    asker.send("send.prop_size_16385", user(vec![("k".into(), "v".repeat(16_384))])).await;
    asker.send("send.prop_ctrl_char", user(vec![("a\u{1}".into(), "x".into())])).await;
    asker.send("send.prop_empty_key", user(vec![(String::new(), "x".into())])).await;
    asker.send("send.group_65", |_, s| s.message_group = Some("g".repeat(65))).await;
    asker.send("send.group_blank", |_, s| s.message_group = Some("  ".into())).await;

    let mut stranger = asker.world.peer("stranger").await;
    let answer = stranger.send(vec![message("ID")]).await;
    asker.note("send.no_telemetry", answer.status);
}

async fn ask_types(asker: &mut Asker) {
    let later = |seconds: i64| Some(prost_types::Timestamp { seconds: START / 1_000 + seconds, nanos: 0 });
    for (label, topic) in [("err", "t"), ("fifo", "fifo"), ("delay", "delay"), ("trans", "trans")] {
        for kind in ["NORMAL", "FIFO", "DELAY", "TRANSACTION", "UNSPECIFIED"] {
            let question = format!("send.type.{kind}->{label}");
            asker
                .send(&question, |message, system| {
                    message.topic = Some(resource(topic));
                    let kind = MessageType::from_str_name(kind).unwrap_or(MessageType::Unspecified);
                    system.set_message_type(kind);
                    system.message_group = (kind == MessageType::Fifo).then(|| "mg".to_owned());
                    system.delivery_timestamp = (kind == MessageType::Delay).then(|| later(10)).flatten();
                })
                .await;
        }
    }
    asker.send("send.fifo_no_group", |m, _| m.topic = Some(resource("fifo"))).await;
    asker.send("send.delay_type_conflict(NORMAL+delivery ts)->err", |_, s| s.delivery_timestamp = later(10)).await;
    let on_delay = |seconds: Option<i64>, group: Option<&'static str>| {
        move |message: &mut Message, system: &mut SystemProperties| {
            message.topic = Some(resource("delay"));
            system.delivery_timestamp = seconds.and_then(later);
            system.message_group = group.map(str::to_owned);
        }
    };
    asker.send("send.delay_past", on_delay(Some(-5), None)).await;
    asker.send("send.delay_23h", on_delay(Some(23 * 3_600), None)).await;
    asker.send("send.delay_25h", on_delay(Some(25 * 3_600), None)).await;
    asker.send("send.delay_no_ts", on_delay(None, None)).await;
    asker.send("send.delay_and_group", on_delay(Some(10), Some("mg"))).await;
    asker.send("send.lite_topic->NORMAL", |_, s| s.lite_topic = Some("l".into())).await;
    asker.send("send.priority->NORMAL", |_, s| s.priority = Some(3)).await;
}

async fn ask_receives(asker: &mut Asker) {
    // A topic without messages: what is asked is how the poll ends.
    let other = |request: &mut ReceiveMessageRequest| {
        request.message_queue = Some(v2::MessageQueue { topic: Some(resource("other")), ..Default::default() });
    };
    for (question, ms) in [
        ("receive.inv_5s", 5_000),
        ("receive.inv_9.999s", 9_999),
        ("receive.inv_10s", 10_000),
        ("receive.inv_0", 0),
        ("receive.inv_12h", 43_200_000),
        ("receive.inv_12h+1", 43_200_001),
    ] {
        asker.receive(question, |r| (other(r), r.invisible_duration = Some(duration(ms))).0).await;
    }
    for (question, size) in [("receive.batch_0", 0), ("receive.batch_33", 33), ("receive.batch_1000", 1_000)] {
        asker.receive(question, |r| (other(r), r.batch_size = size).0).await;
    }
    for (question, ms) in [("receive.lp_none", None), ("receive.lp_0", Some(0)), ("receive.lp_1s", Some(1_000))] {
        asker.receive(question, |r| (other(r), r.long_polling_timeout = ms.map(duration)).0).await;
    }
    for (question, id) in [("receive.queue_1", 1), ("receive.queue_99", 99)] {
        let set = |queue: &mut v2::MessageQueue| queue.id = id;
        asker.receive(question, |r| (other(r), r.message_queue.as_mut().map(set)).0).await;
    }
    let expression = |kind: FilterType, text: &str| FilterExpression { r#type: kind.into(), expression: text.into() };
    let sql = expression(FilterType::Sql, "a >>> 5");
    asker.receive("receive.bad_sql", |r| (other(r), r.filter_expression = Some(sql)).0).await;
    let empty = expression(FilterType::Tag, "");
    asker.receive("receive.empty_tag_expr", |r| (other(r), r.filter_expression = Some(empty)).0).await;
    let topic = |name: &str| {
        let queue = v2::MessageQueue { topic: Some(resource(name)), ..Default::default() };
        move |request: &mut ReceiveMessageRequest| request.message_queue = Some(queue)
    };
    asker.receive("receive.missing_topic", topic("nosuch")).await;
    asker.receive("receive.illegal_topic", topic("bad topic!")).await;
    asker.receive("receive.illegal_group", |r| r.group = Some(resource("bad group!"))).await;
    asker.receive("receive.status_ok", |_| ()).await;

    let mut request = asker.peer.request(receive());
    request.metadata_mut().insert("grpc-timeout", "3S".parse().expect("a header value"));
    let stream = asker.peer.client.receive_message(request).await.expect("a stream").into_inner();
    asker.note("receive.lp_5s_deadline_3", Some(Received::read(stream).await.status));

    let mut stranger = asker.world.peer("stranger").await;
    let received = stranger.receive(receive()).await;
    asker.note("receive.no_telemetry", Some(received.status));
}

async fn ask_deliveries(asker: &mut Asker) {
    asker.ack("ack.garbage_handle", "t", "g", &["garbage"]).await;
    asker.ack("ack.empty_handle", "t", "g", &[""]).await;
    asker.ack("ack.no_entries", "t", "g", &[]).await;
    asker.change("cid.garbage", "t", "g", "garbage", 30_000).await;
    asker.forward("dlq.forward_garbage", "garbage").await;

    let handle = asker.one_message().await;
    asker.ack("ack.wrong_group", "t", "h", &[&handle]).await;
    asker.ack("ack.missing_topic", "nosuch", "g", &[&handle]).await;
    asker.change("cid.missing_topic", "nosuch", "g", &handle, 30_000).await;
    asker.change("cid.missing_group", "t", "nosuch", &handle, 30_000).await;
    asker.change("cid.12h+1", "t", "g", &handle, 43_200_001).await;
    asker.change("cid.negative", "t", "g", &handle, -1).await;
    let second = asker.change("cid.ok", "t", "g", &handle, 40_000).await;
    asker.answers.remove("cid.ok"); // Apache's line holds no status
    assert_ne!(second, handle);
    asker.change("cid.again_with_old_handle", "t", "g", &handle, 50_000).await;
    asker.ack("ack.old_handle", "t", "g", &[&handle]).await;
    asker.ack("ack.new_handle", "t", "g", &[&second]).await;
    asker.ack("ack.twice", "t", "g", &[&second]).await;
    asker.change("cid.after_ack", "t", "g", &handle, 30_000).await;

    let handle = asker.one_message().await;
    asker.ack("ack.batch_one_bad", "t", "g", &[&handle, "garbage"]).await;
    asker.ack("ack.batch_ok", "t", "g", &[&handle, &handle]).await;

    let handle = asker.one_message().await;
    asker.world.clock.advance(31_000);
    asker.ack("ack.expired_handle(13s after 10s)", "t", "g", &[&handle]).await;
    asker.change("cid.expired_handle", "t", "g", &handle, 30_000).await;
    let handle = asker.peer.receive(receive()).await.handles().pop().expect("it is back");
    asker.forward("dlq.forward", &handle).await;
    asker.forward("dlq.forward_twice", &handle).await;
    assert_eq!(asker.world.brokers.stored("%DLQ%g").len(), 1);
}

async fn ask_the_rest(asker: &mut Asker) {
    let heartbeat = |group: &str, kind: v2::ClientType| v2::HeartbeatRequest {
        group: Some(resource(group)),
        client_type: kind.into(),
    };
    for (question, request) in [
        ("heartbeat.consumer", heartbeat("g", v2::ClientType::SimpleConsumer)),
        ("heartbeat.unspecified_type", heartbeat("g", v2::ClientType::Unspecified)),
        ("heartbeat.illegal_group", heartbeat("bad group!", v2::ClientType::SimpleConsumer)),
    ] {
        let answer = asker.peer.client.heartbeat(asker.peer.request(request)).await.expect("an answer").into_inner();
        asker.note(question, answer.status);
    }
    let mut producer = asker.world.client("producer", producer(&["t", "nosuch"])).await;
    let request = producer.request(heartbeat("", v2::ClientType::Producer));
    let answer = producer.client.heartbeat(request).await.expect("an answer").into_inner();
    asker.note("heartbeat.producer", answer.status);
    let request = request_of("stranger", heartbeat("g", v2::ClientType::SimpleConsumer));
    let answer = asker.peer.client.heartbeat(request).await.expect("an answer").into_inner();
    asker.note("heartbeat.no_telemetry", answer.status);

    let mut half = message("ID");
    half.topic = Some(resource("trans"));
    half.system_properties.as_mut().expect("system properties").set_message_type(MessageType::Transaction);
    let sent = asker.peer.send(vec![half]).await.entries.remove(0).transaction_id;
    asker.world.brokers.fail(request::END_TRANSACTION, Fault::Code(response::SUCCESS));
    for (question, transaction_id) in [("tx.end.commit", &*sent), ("tx.end.garbage_id", "x"), ("tx.end.empty_id", " ")]
    {
        let (topic, message_id, transaction_id) = (Some(resource("trans")), "ID".into(), transaction_id.into());
        let resolution = v2::TransactionResolution::Commit.into();
        let request = v2::EndTransactionRequest { topic, message_id, transaction_id, resolution, ..Default::default() };
        let answer = asker.peer.client.end_transaction(asker.peer.request(request)).await.expect("an answer");
        asker.note(question, answer.into_inner().status);
    }
    let request = v2::RecallMessageRequest { topic: Some(resource("delay")), recall_handle: "garbage".into() };
    let answer = asker.peer.client.recall_message(asker.peer.request(request)).await.expect("an answer").into_inner();
    asker.note("recall.garbage", answer.status);
    let request = v2::RecallMessageRequest { topic: Some(resource("other")), recall_handle: "of another topic".into() };
    let answer = asker.peer.client.recall_message(asker.peer.request(request)).await.expect("an answer").into_inner();
    asker.note("recall.wrong_topic", answer.status);
    let (topic, group) = (Some(resource("t")), Some(resource("g")));
    let request = v2::SyncLiteSubscriptionRequest { topic, group, ..Default::default() };
    let answer = asker.peer.client.sync_lite_subscription(asker.peer.request(request)).await.expect("an answer");
    asker.note("sync_lite", answer.into_inner().status);

    let goodbye = v2::NotifyClientTerminationRequest { group: Some(resource("g")) };
    for (question, id) in [("terminate", "asker"), ("terminate.unknown", "asker")] {
        let request = request_of(id, goodbye.clone());
        let answer = asker.peer.client.notify_client_termination(request).await.expect("an answer").into_inner();
        asker.note(question, answer.status);
    }
}
