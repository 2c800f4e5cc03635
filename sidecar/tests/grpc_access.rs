//! Access control: who is let in, and to what, through the real server.
#![allow(clippy::expect_used, clippy::panic, reason = "tests say what they expect")]

mod grpc_common;

use std::path::{Path, PathBuf};

use grpc_common::*;
use waybill_protocol::grpc::v2::{self, Code, ReceiveMessageRequest, Resource};
use waybill_protocol::remoting::codes::request as codes;
use waybill_sidecar::config::Config;

const USERS: &str = "\
users:
- { accessKey: root, secretKey: root-secret, superUser: true }
- accessKey: sender
  secretKey: sender-secret
  permissions: [{ topic: t, actions: [PUB] }]
- accessKey: worker
  secretKey: worker-secret
  permissions: [{ topic: t, actions: [SUB] }, { group: g }]
- accessKey: other
  secretKey: other-secret
  permissions: [{ topic: other, actions: [PUB, SUB] }, { group: other }]
";
const SENDER: (&str, &str) = ("sender", "sender-secret");
const WORKER: (&str, &str) = ("worker", "worker-secret");
const OTHER: (&str, &str) = ("other", "other-secret");

/// A sidecar that lets in who is in the file.
struct Guarded {
    world: World,
    file: PathBuf,
    _dir: tempfile::TempDir,
}

impl Guarded {
    async fn new(users: &str, authorization_enabled: bool) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("users.yaml");
        std::fs::write(&file, users).expect("written");
        let users_file_path = file.to_str().expect("text").to_owned();
        let config = Config { authentication_enabled: true, authorization_enabled, users_file_path, ..config() };
        let world = World::with(config).await;
        world.brokers.topic("other", "NORMAL", 1);
        world.brokers.group(group("other"));
        Self { world, file, _dir: dir }
    }

    async fn peer(&self, id: &str, credentials: Option<(&'static str, &'static str)>) -> Peer {
        Peer { credentials, ..self.world.peer(id).await }
    }

    /// The state of the file becomes another one; `so` tells from `/config`'s part about users when that is over.
    async fn rewrite(&self, users: &str, so: impl Fn(&serde_json::Value) -> bool) {
        replace(&self.file, users);
        self.world.until("the file is read again", || so(&self.world.access.shown())).await;
    }

    /// How often calls were refused for the reason.
    fn refused(&self, reason: &str) -> u64 {
        let mut registry = prometheus_client::registry::Registry::default();
        self.world.access.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("metrics");
        let line = format!("waybill_access_refused_total{{reason=\"{reason}\"}} ");
        text.lines().find_map(|found| found.strip_prefix(&line)).map_or(0, |count| count.parse().expect("a number"))
    }
}

fn replace(file: &Path, text: &str) {
    let new = file.with_extension("new");
    std::fs::write(&new, text).expect("written");
    std::fs::rename(new, file).expect("replaced");
}

/// Every call that names topic `t` or group `g`, and its code; telemetry by the code of the stream's end.
async fn every_call(peer: &mut Peer) -> Vec<(&'static str, Code)> {
    let (topic, group) = (Some(resource("t")), Some(resource("g")));
    let mut codes = Vec::new();
    macro_rules! call {
        ($name:literal, $method:ident, $request:expr) => {{
            let request = peer.request($request);
            codes.push(($name, code(peer.client.$method(request).await.expect("an answer").into_inner().status)));
        }};
    }
    let (endpoints, topics) = (Some(endpoints()), topic.clone());
    call!("QueryRoute", query_route, v2::QueryRouteRequest { topic: topics, endpoints: endpoints.clone() });
    call!(
        "QueryAssignment",
        query_assignment,
        v2::QueryAssignmentRequest { topic: topic.clone(), group: group.clone(), endpoints }
    );
    call!("SendMessage", send_message, v2::SendMessageRequest { messages: messages(1) });
    call!("AckMessage", ack_message, ack("t", "g", &["x".to_owned()]));
    call!("ChangeInvisibleDuration", change_invisible_duration, change("t", "g", "x", 20_000));
    call!(
        "ForwardMessageToDeadLetterQueue",
        forward_message_to_dead_letter_queue,
        v2::ForwardMessageToDeadLetterQueueRequest {
            group: group.clone(),
            topic: topic.clone(),
            receipt_handle: "x".into(),
            ..Default::default()
        }
    );
    call!(
        "EndTransaction",
        end_transaction,
        v2::EndTransactionRequest { topic: topic.clone(), transaction_id: "x".into(), ..Default::default() }
    );
    call!(
        "RecallMessage",
        recall_message,
        v2::RecallMessageRequest { topic: topic.clone(), recall_handle: "x".into() }
    );
    call!("Heartbeat", heartbeat, v2::HeartbeatRequest { group: group.clone(), client_type: 0 });
    call!(
        "NotifyClientTermination",
        notify_client_termination,
        v2::NotifyClientTerminationRequest { group: group.clone() }
    );
    call!(
        "SyncLiteSubscription",
        sync_lite_subscription,
        v2::SyncLiteSubscriptionRequest { topic, group, ..Default::default() }
    );
    codes.push(("ReceiveMessage", peer.receive(ReceiveMessageRequest { batch_size: -1, ..receive() }).await.code()));
    codes
}

fn refused(codes: &[(&'static str, Code)], with: Code) -> Vec<&'static str> {
    codes.iter().filter(|(_, code)| *code == with).map(|(name, _)| *name).collect()
}

#[tokio::test]
async fn who_is_no_user_gets_nothing_and_brokers_hear_nothing() {
    let guarded = Guarded::new(USERS, true).await;
    for (id, credentials) in [
        ("nobody", None),
        ("stranger", Some(("who", "worker-secret"))),
        ("liar", Some(("worker", "sender-secret"))),
        ("empty", Some(("", ""))),
    ] {
        let mut peer = guarded.peer(id, credentials).await;
        let codes = every_call(&mut peer).await;
        assert_eq!(refused(&codes, Code::Unauthorized).len(), 12, "{id}: {codes:?}");
        let status = peer.open(simple()).await.expect_err("no settings for it");
        assert_eq!(status.code(), tonic::Code::Unauthenticated, "{id}: {status}");
    }
    let heard = [codes::SEND_MESSAGE_V2, codes::SEND_MESSAGE, codes::POP_MESSAGE, codes::GET_ROUTEINFO_BY_TOPIC];
    assert!(heard.iter().all(|code| guarded.world.brokers.seen(*code).is_empty()));
    let counts = ["unsigned", "unknown_access_key", "wrong_signature"].map(|reason| guarded.refused(reason));
    assert_eq!(counts, [26, 13, 13]);
}

#[tokio::test]
async fn who_does_not_say_which_client_it_is_gets_nothing() {
    let guarded = Guarded::new(USERS, true).await;
    let open = World::new().await;
    for (mut peer, who) in
        [(guarded.peer("", Some(("root", "root-secret"))).await, "a super user"), (open.peer("").await, "anybody")]
    {
        let codes = every_call(&mut peer).await;
        assert_eq!(refused(&codes, Code::ClientIdRequired).len(), 12, "{who}: {codes:?}");
        let status = peer.open(simple()).await.expect_err("no settings for it");
        assert_eq!(status.code(), tonic::Code::InvalidArgument, "{who}: {status}");
    }
    for world in [&guarded.world, &open] {
        assert!(world.sessions.is_empty());
        assert!(
            world.brokers.seen(codes::SEND_MESSAGE_V2).is_empty() && world.brokers.seen(codes::POP_MESSAGE).is_empty()
        );
    }
}

#[tokio::test]
async fn a_user_may_do_what_it_is_given_and_nothing_else() {
    let guarded = Guarded::new(USERS, true).await;
    let producing = ["QueryRoute", "SendMessage", "EndTransaction", "RecallMessage"];
    for (credentials, may) in [
        (SENDER, producing.to_vec()),
        (
            WORKER,
            vec![
                "QueryRoute",
                "QueryAssignment",
                "AckMessage",
                "ChangeInvisibleDuration",
                "ForwardMessageToDeadLetterQueue",
                "Heartbeat",
                "NotifyClientTermination",
                "SyncLiteSubscription",
                "ReceiveMessage",
            ],
        ),
        (OTHER, Vec::new()),
    ] {
        let mut peer = guarded.peer(credentials.0, Some(credentials)).await;
        let codes = every_call(&mut peer).await;
        let forbidden = refused(&codes, Code::Forbidden);
        let expected: Vec<_> = codes.iter().map(|(name, _)| *name).filter(|name| !may.contains(name)).collect();
        assert_eq!(forbidden, expected, "{}: {codes:?}", credentials.0);
        assert_eq!(refused(&codes, Code::Unauthorized), Vec::<&str>::new());
    }
    let refused = guarded.peer("other-2", Some(OTHER)).await.open(simple()).await.expect_err("not its topic");
    assert_eq!(refused.code(), tonic::Code::PermissionDenied, "{refused}");
    assert!(refused.message().contains("user other may not consume topic t"), "{refused}");
    let refused = guarded.peer("worker-2", Some(WORKER)).await.open(producer(&["t"])).await.expect_err("sends nothing");
    assert!(refused.message().contains("user worker may not send to topic t"), "{refused}");
}

#[tokio::test]
async fn messages_go_from_one_user_to_another() {
    let guarded = Guarded::new(USERS, true).await;
    let mut sender = guarded.peer("s", Some(SENDER)).await;
    sender.open(producer(&["t"])).await.expect("settings");
    assert_eq!(code(sender.send(messages(2)).await.status), Code::Ok);
    let mut worker = guarded.peer("w", Some(WORKER)).await;
    worker.open(simple()).await.expect("settings");
    let received = worker.receive(receive()).await;
    assert_eq!((received.code(), received.messages.len()), (Code::Ok, 2));
    assert_eq!(code(worker.ack(&received.handles()).await.status), Code::Ok);
    assert_eq!(guarded.refused("forbidden"), 0);
}

#[tokio::test]
async fn without_permissions_every_user_may_do_everything() {
    let guarded = Guarded::new(USERS, false).await;
    let codes = every_call(&mut guarded.peer("other", Some(OTHER)).await).await;
    assert_eq!(refused(&codes, Code::Forbidden), Vec::<&str>::new(), "{codes:?}");
    let codes = every_call(&mut guarded.peer("nobody", None).await).await;
    assert_eq!(refused(&codes, Code::Unauthorized).len(), 12, "but it must be one");
}

#[tokio::test]
async fn nobody_speaks_for_a_client_of_a_group_that_is_not_its_own() {
    let guarded = Guarded::new(USERS, true).await;
    let mut worker = guarded.peer("w", Some(WORKER)).await;
    worker.open(simple()).await.expect("settings");
    let mut other = guarded.peer("w", Some(OTHER)).await;
    let request = other.request(v2::NotifyClientTerminationRequest { group: Some(resource("other")) });
    let answer = other.client.notify_client_termination(request).await.expect("an answer").into_inner();
    assert_eq!(code(answer.status), Code::Forbidden);
    let settings = consumer("other", "other", v2::ClientType::SimpleConsumer);
    assert_eq!(other.open(settings).await.expect_err("another's id").code(), tonic::Code::PermissionDenied);
    assert_eq!(worker.heartbeat().await, Code::Ok, "it is still there");
}

#[tokio::test]
async fn nobody_keeps_the_dead_client_of_another_group_alive() {
    let guarded = Guarded::new(USERS, true).await;
    let mut worker = guarded.peer("w", Some(WORKER)).await;
    worker.open(simple()).await.expect("settings");
    let mut other = guarded.peer("w", Some(OTHER)).await;
    let (commands, outgoing) = tokio::sync::mpsc::channel(4);
    let outgoing = other.request(tokio_stream::wrappers::ReceiverStream::new(outgoing));
    let mut answers = other.client.telemetry(outgoing).await.expect("a stream").into_inner();

    // The worker is silent from here on, and whatever the other may do by itself it does under the worker's name.
    guarded.world.clock.advance(119_000);
    let (topic, group) = (Some(resource("other")), Some(resource("other")));
    let request = other.request(v2::HeartbeatRequest { group: group.clone(), client_type: 0 });
    let heartbeat = other.client.heartbeat(request).await.expect("an answer").into_inner();
    let request = other.request(v2::QueryRouteRequest { topic: topic.clone(), endpoints: Some(endpoints()) });
    let route = other.client.query_route(request).await.expect("an answer").into_inner();
    let send = other.send(vec![v2::Message { topic: topic.clone(), ..message("m") }]).await;
    let queue = v2::MessageQueue { topic: topic.clone(), ..receive().message_queue.unwrap_or_default() };
    let receive = ReceiveMessageRequest { group: group.clone(), message_queue: Some(queue), ..receive() };
    let receive = other.receive(receive).await.code();
    let codes = [code(heartbeat.status), code(route.status), code(send.status), receive];
    assert_eq!(codes, [Code::Forbidden; 4]);
    commands.send(v2::TelemetryCommand::default()).await.expect("an open stream");
    let end = tokio::time::timeout(PATIENCE, answers.message()).await.expect("in time").expect_err("the end");
    assert_eq!(end.code(), tonic::Code::PermissionDenied, "{end}");

    guarded.world.clock.advance(1_000);
    guarded.world.sessions.sweep().await;
    assert!(guarded.world.sessions.is_empty(), "none of it was a sign of life of the worker");
    let request = other.request(v2::QueryRouteRequest { topic, endpoints: Some(endpoints()) });
    let route = other.client.query_route(request).await.expect("an answer").into_inner();
    assert_eq!(code(route.status), Code::Ok, "the name is free");
}

#[tokio::test]
async fn a_namespace_is_part_of_the_name() {
    let users = "users: [{ accessKey: red, secretKey: s, permissions: [{ topic: 'red%*', actions: [PUB] }] }]";
    let guarded = Guarded::new(users, true).await;
    for name in ["red%t", "blue%t"] {
        guarded.world.brokers.topic(name, "NORMAL", 1);
    }
    let mut peer = guarded.peer("c", Some(("red", "s"))).await;
    let mut send = async |resource_namespace: &str, name: &str| {
        let topic = Resource { resource_namespace: resource_namespace.into(), name: name.into() };
        code(peer.send(vec![v2::Message { topic: Some(topic), ..message("m") }]).await.status)
    };
    assert_eq!(send("red", "t").await, Code::Ok);
    assert_eq!(send("", "red%t").await, Code::Ok, "it is the same topic");
    for (namespace, name) in [("blue", "t"), ("", "t"), ("", "blue%t"), ("blue", "red%t")] {
        assert_eq!(send(namespace, name).await, Code::Forbidden, "{namespace} {name}");
    }
}

#[tokio::test]
async fn who_is_no_user_any_more_is_sent_away_at_once() {
    let guarded = Guarded::new(USERS, true).await;
    let mut worker = guarded.peer("w", Some(WORKER)).await;
    worker.open(simple()).await.expect("settings");
    let mut stays = guarded.peer("s", Some(SENDER)).await;
    stays.open(producer(&["t"])).await.expect("settings");
    guarded.world.brokers.hold_polls(true);
    let mut waiting = guarded.peer("w", Some(WORKER)).await;
    let long = ReceiveMessageRequest { long_polling_timeout: Some(duration(20_000)), ..receive() };
    let waiting = tokio::spawn(async move { waiting.receive(long).await.code() });
    guarded.world.until("it waits", || guarded.world.metric("waybill_receives_waiting") > 0.0).await;

    let without: String = USERS.replace("accessKey: worker", "accessKey: worker-2");
    guarded.rewrite(&without, |shown| shown["generation"] == 2).await;
    assert_eq!(waiting.await.expect("it ran"), Code::Unauthorized);
    let answers = &mut worker.telemetry.as_mut().expect("a stream").answers;
    let end = tokio::time::timeout(PATIENCE, answers.message()).await.expect("in time").expect_err("the end");
    assert_eq!(end.code(), tonic::Code::Unauthenticated);
    assert_eq!(worker.heartbeat().await, Code::Unauthorized);
    assert_eq!(code(stays.send(messages(1)).await.status), Code::Ok, "others notice nothing");
}

#[tokio::test]
async fn permissions_and_secrets_change_while_clients_are_there() {
    let guarded = Guarded::new(USERS, true).await;
    let mut sender = guarded.peer("s", Some(SENDER)).await;
    assert_eq!(code(sender.send(messages(1)).await.status), Code::Ok);

    // A file with a mistake changes nothing, and is told.
    guarded.rewrite("users: [{ accessKey: sender, secretKey: '' }]", |shown| !shown["error"].is_null()).await;
    let shown = guarded.world.access.shown();
    assert!(shown["error"].as_str().expect("text").contains("users[0].secretKey: it is empty"), "{shown}");
    assert_eq!((&shown["generation"], &shown["count"]), (&1.into(), &4.into()));
    assert_eq!(code(sender.send(messages(1)).await.status), Code::Ok);

    let narrower =
        format!("revision: narrower\n{}", USERS.replace("topic: t, actions: [PUB]", "topic: u, actions: [PUB]"));
    guarded.rewrite(&narrower, |shown| shown["revision"] == "narrower").await;
    assert!(guarded.world.access.shown()["error"].is_null());
    assert_eq!(code(sender.send(messages(1)).await.status), Code::Forbidden);

    let rotated = format!("revision: rotated\n{}", USERS.replace("sender-secret", "new-secret"));
    guarded.rewrite(&rotated, |shown| shown["revision"] == "rotated").await;
    assert_eq!(code(sender.send(messages(1)).await.status), Code::Unauthorized, "the old secret");
    sender.credentials = Some(("sender", "new-secret"));
    assert_eq!(code(sender.send(messages(1)).await.status), Code::Ok);
}
