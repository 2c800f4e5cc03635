//! Routes, sends, acks, changes and forwards over the real gRPC server.
#![allow(clippy::expect_used, clippy::panic, reason = "tests say what they expect")]

mod grpc_common;

use grpc_common::broker::{BROKERS, Fault};
use grpc_common::*;
use waybill_protocol::grpc::v2::{self, Code, MessageType, Permission};
use waybill_protocol::message::properties;
use waybill_protocol::remoting::{
    AckMessageRequestHeader, ChangeInvisibleTimeRequestHeader, SendMessageRequestHeader,
    codes::{request, response},
};
use waybill_sidecar::config::Config;

async fn route(peer: &mut Peer, topic: &str) -> v2::QueryRouteResponse {
    let request = v2::QueryRouteRequest { topic: Some(resource(topic)), endpoints: Some(endpoints()) };
    peer.client.query_route(peer.request(request)).await.expect("an answer").into_inner()
}

#[tokio::test]
async fn a_route_names_the_queues_the_types_and_the_way_the_client_came() {
    let world = World::new().await;
    world.brokers.topic("two", "MIXED", 2);
    world.brokers.topic("untyped", "", 1);
    let mut peer = world.peer("c").await;
    let answer = route(&mut peer, "two").await;
    assert_eq!(answer.message_queues.len(), 8);
    for (n, queue) in answer.message_queues.iter().enumerate() {
        let broker = queue.broker.as_ref().expect("a broker");
        assert_eq!(queue.topic.as_ref().map(|topic| topic.name.as_str()), Some("two"));
        assert_eq!((queue.id, queue.permission()), (n as i32 % 4, Permission::ReadWrite));
        assert_eq!((broker.name.as_str(), broker.id), (BROKERS[n / 4], 0));
        assert_eq!(broker.endpoints, Some(endpoints()));
        let types = queue.accept_message_types().collect::<Vec<_>>();
        assert_eq!(types, [MessageType::Normal, MessageType::Fifo, MessageType::Delay, MessageType::Transaction]);
    }
    let untyped = route(&mut peer, "untyped").await;
    assert_eq!(untyped.message_queues[0].accept_message_types().collect::<Vec<_>>(), [MessageType::Normal]);
}

#[tokio::test]
async fn assignments_are_brokers_or_for_ordered_groups_queues() {
    let world = World::new().await;
    world.brokers.topic("two", "NORMAL", 2);
    world.brokers.group(waybill_protocol::remoting::SubscriptionGroupConfig {
        consume_message_orderly: true,
        ..group("ordered")
    });
    let mut peer = world.peer("c").await;
    for (group, wanted) in [
        ("g", vec![("broker-a", -1), ("broker-b", -1)]),
        ("ordered", (0..8).map(|n| (BROKERS[n / 4], n as i32 % 4)).collect()),
    ] {
        let (topic, group, endpoints) = (Some(resource("two")), Some(resource(group)), Some(endpoints()));
        let request = v2::QueryAssignmentRequest { topic, group, endpoints };
        let answer = peer.client.query_assignment(peer.request(request)).await.expect("an answer").into_inner();
        let found = answer.assignments.iter().filter_map(|a| a.message_queue.as_ref()).collect::<Vec<_>>();
        let show = |queue: &&v2::MessageQueue| (queue.broker.as_ref().map_or("", |b| &b.name).to_owned(), queue.id);
        let wanted = wanted.into_iter().map(|(name, id)| (name.to_owned(), id)).collect::<Vec<_>>();
        assert_eq!(found.iter().map(show).collect::<Vec<_>>(), wanted);
        assert!(found.iter().all(|queue| queue.accept_message_types.is_empty()));
    }
}

#[tokio::test]
async fn each_message_of_a_send_has_its_own_entry() {
    let world = World::new().await;
    let mut peer = world.peer("c").await;
    let answer = peer.send(messages(3)).await;
    assert_eq!(code(answer.status), Code::Ok);
    let ids = answer.entries.iter().map(|entry| entry.message_id.as_str()).collect::<Vec<_>>();
    assert_eq!(ids, ["M0", "M1", "M2"]);
    let offsets = answer.entries.iter().map(|entry| entry.offset).collect::<Vec<_>>();
    assert_eq!(offsets, [0, 1, 2]);
    assert!(answer.entries.iter().all(|e| e.transaction_id == e.message_id && code(e.status.clone()) == Code::Ok));
    assert_eq!(world.brokers.seen(request::SEND_BATCH_MESSAGE).len(), 1, "stored together");
    assert!(world.brokers.stored("t").iter().all(|message| message.queue_id == world.brokers.stored("t")[0].queue_id));
}

#[tokio::test]
async fn what_is_stored_with_a_message() {
    let world = World::new().await;
    let mut peer = world.peer("c").await;
    let mut sent = message("ID");
    sent.user_properties.insert("größe".into(), "中".into());
    let system = sent.system_properties.as_mut().expect("system properties");
    system.tag = Some("T".into());
    system.keys = vec!["k1".into(), "k2".into()];
    system.born_timestamp = Some(prost_types::Timestamp { seconds: 1_700_000_000, nanos: 5_000_000 });
    system.body_encoding = v2::Encoding::Gzip.into();
    assert_eq!(code(peer.send(vec![sent]).await.status), Code::Ok);
    let stored = world.brokers.stored("t").pop().expect("a message");
    let property = |name: &str| properties::get(&stored.properties, name);
    assert_eq!(property("größe"), Some("中"));
    assert_eq!(property("TAGS"), Some("T"));
    assert_eq!(property("KEYS"), Some("k1 k2"));
    assert_eq!(property("UNIQ_KEY"), Some("ID"));
    assert_eq!(property("__BORNHOST"), Some("rawhost"));
    assert_eq!(property("DELAY"), None);
    assert_eq!(stored.born_timestamp, 1_700_000_000_005);
    assert_eq!(stored.sys_flag & 0x1, 1);
    let header: SendMessageRequestHeader =
        world.brokers.seen(request::SEND_MESSAGE_V2)[0].header().expect("a send header");
    assert_eq!((header.producer_group.as_str(), header.default_topic.as_str()), ("t", "TBW102"));

    let nameless = v2::Message {
        system_properties: Some(v2::SystemProperties { message_id: "ID2".into(), ..Default::default() }),
        ..message("ID2")
    };
    assert_eq!(code(peer.send(vec![nameless]).await.status), Code::Ok);
    let stored = world.brokers.stored("t").pop().expect("a message");
    assert_eq!(properties::get(&stored.properties, "__BORNHOST"), Some("127.0.0.1"), "where the client is");
    assert_eq!(stored.born_timestamp, START);
}

#[tokio::test]
async fn messages_of_a_group_go_to_one_queue_in_their_order() {
    let world = World::new().await;
    world.brokers.topic("fifo", "FIFO", 2);
    let mut peer = world.peer("c").await;
    let fifo = |id: &str, group: &str| {
        let mut message = message(id);
        message.topic = Some(resource("fifo"));
        message.system_properties.as_mut().expect("system properties").message_group = Some(group.into());
        message
    };
    let batch = (0..10).map(|n| fifo(&format!("M{n}"), if n % 2 == 0 { "even" } else { "odd" })).collect();
    let answer = peer.send(batch).await;
    assert_eq!(code(answer.status), Code::Ok);
    assert_eq!(answer.entries.len(), 10);
    for single in 10..20 {
        let group = if single % 2 == 0 { "even" } else { "odd" };
        assert_eq!(code(peer.send(vec![fifo(&format!("M{single}"), group)]).await.status), Code::Ok);
    }
    for group in ["even", "odd"] {
        let of_group = world.brokers.stored("fifo").into_iter();
        let of_group = of_group.filter(|m| properties::get(&m.properties, "__SHARDINGKEY") == Some(group));
        let places = of_group.map(|m| (m.queue_id, m.queue_offset)).collect::<Vec<_>>();
        assert_eq!(places.len(), 10);
        assert!(places.windows(2).all(|two| two[0].0 == two[1].0 && two[0].1 < two[1].1), "{group}: {places:?}");
    }
}

#[tokio::test]
async fn ungrouped_messages_take_turns_over_all_queues() {
    let world = World::new().await;
    world.brokers.topic("two", "NORMAL", 2);
    let mut peer = world.peer("c").await;
    for n in 0..16 {
        let message = v2::Message { topic: Some(resource("two")), ..message(&format!("M{n}")) };
        assert_eq!(code(peer.send(vec![message]).await.status), Code::Ok);
    }
    let mut queues = [0; 4];
    for message in world.brokers.stored("two") {
        queues[message.queue_id as usize] += 1;
    }
    assert_eq!(queues, [4; 4]);
}

#[tokio::test]
async fn how_a_brokers_answer_to_a_send_reaches_the_client() {
    let world = World::new().await;
    let mut peer = world.peer("c").await;
    for (answer, wanted) in [
        (response::SYSTEM_BUSY, Code::TooManyRequests),
        (response::TOPIC_NOT_EXIST, Code::TopicNotFound),
        (response::NO_PERMISSION, Code::Forbidden),
        (response::MESSAGE_ILLEGAL, Code::BadRequest),
        (response::SYSTEM_ERROR, Code::InternalServerError),
        (response::SERVICE_NOT_AVAILABLE, Code::InternalServerError),
        (response::REQUEST_CODE_NOT_SUPPORTED, Code::NotImplemented),
    ] {
        world.brokers.fail(request::SEND_MESSAGE_V2, Fault::Code(answer));
        let reply = peer.send(messages(1)).await;
        assert_eq!((code(reply.status), reply.entries.len()), (wanted, 0), "{answer}");
    }
    world.brokers.fail(request::SEND_MESSAGE_V2, Fault::Timeout);
    assert_eq!(code(peer.send(messages(1)).await.status), Code::ProxyTimeout);
    assert_eq!(world.brokers.stored("t").len(), 0);
}

#[tokio::test]
async fn a_send_that_succeeds_in_part_says_which() {
    let world = World::new().await;
    world.brokers.topic("fifo", "FIFO", 1);
    let mut peer = world.peer("c").await;
    let fifo = |id: &str| {
        let mut message = message(id);
        message.topic = Some(resource("fifo"));
        message.system_properties.as_mut().expect("system properties").message_group = Some("mg".into());
        message
    };
    world.brokers.fail(request::SEND_MESSAGE_V2, Fault::Code(response::SYSTEM_BUSY));
    let answer = peer.send(vec![fifo("A"), fifo("B")]).await;
    assert_eq!(code(answer.status), Code::MultipleResults);
    let codes = answer.entries.into_iter().map(|entry| code(entry.status)).collect::<Vec<_>>();
    assert_eq!(codes, [Code::TooManyRequests, Code::Ok]);
}

#[tokio::test]
async fn with_the_type_check_off_any_type_may_go_anywhere() {
    let world = World::with(Config { enable_topic_message_type_check: false, ..config() }).await;
    let mut peer = world.peer("c").await;
    let mut grouped = message("ID");
    grouped.system_properties.as_mut().expect("system properties").message_group = Some("mg".into());
    assert_eq!(code(peer.send(vec![grouped]).await.status), Code::Ok);
}

/// C34: the words name both types.
#[tokio::test]
async fn a_wrong_type_is_named() {
    let world = World::new().await;
    let mut peer = world.peer("c").await;
    let mut grouped = message("ID");
    grouped.system_properties.as_mut().expect("system properties").message_group = Some("mg".into());
    let status = peer.send(vec![message("A"), grouped]).await.status.expect("a status");
    assert_eq!(status.code(), Code::MessagePropertyConflictWithType);
    assert!(status.message.contains("NORMAL") && status.message.contains("FIFO"), "{}", status.message);
    assert_eq!(world.brokers.stored("t").len(), 0, "nothing of it is stored");
}

/// C08.
#[tokio::test]
async fn entries_of_an_ack_are_judged_one_by_one_and_in_order() {
    let world = World::new().await;
    world.brokers.topic("two", "NORMAL", 2);
    let mut a = world.client("a", consumer("g", "two", v2::ClientType::SimpleConsumer)).await;
    for n in 0..8 {
        let message = v2::Message { topic: Some(resource("two")), ..message(&format!("M{n}")) };
        assert_eq!(code(a.send(vec![message]).await.status), Code::Ok);
    }
    let request = v2::ReceiveMessageRequest {
        message_queue: Some(v2::MessageQueue { topic: Some(resource("two")), ..Default::default() }),
        ..receive()
    };
    let mut handles = Vec::new();
    for _ in 0..2 {
        handles.extend(a.receive(request.clone()).await.handles());
    }
    assert_eq!(handles.len(), 8);
    assert!(BROKERS.iter().all(|broker| handles.iter().any(|handle| handle.contains(broker))));

    // The seventh is leased to somebody else meanwhile, the eighth is nobody's: six good ones, garbage, stale, and a
    // copy of a good one.
    let stale = handles[6].clone();
    let mut entries = handles[..6].to_vec();
    entries.insert(2, "garbage".into());
    entries.insert(4, stale);
    entries.push(handles[0].clone());
    world.brokers.group(group("g"));
    let keep = handles[..6].to_vec();
    for handle in &keep {
        let answer = a.client.change_invisible_duration(request_of("a", change("two", "g", handle, 60_000))).await;
        assert_eq!(code(answer.expect("an answer").into_inner().status), Code::Ok);
    }
    world.clock.advance(31_000);
    let mut again = 0;
    for _ in 0..2 {
        again += a.receive(request.clone()).await.messages.len();
    }
    assert_eq!(again, 2);

    let answer =
        a.client.ack_message(request_of("a", ack("two", "g", &entries))).await.expect("an answer").into_inner();
    assert_eq!(code(answer.status), Code::MultipleResults);
    let echoed = answer.entries.iter().map(|entry| entry.receipt_handle.clone()).collect::<Vec<_>>();
    assert_eq!(echoed, entries);
    let ids = answer.entries.iter().map(|entry| entry.message_id.clone()).collect::<Vec<_>>();
    assert_eq!(ids, (0..9).map(|n| format!("id{n}")).collect::<Vec<_>>());
    let codes = answer.entries.into_iter().map(|entry| code(entry.status)).collect::<Vec<_>>();
    let (ok, bad) = (Code::Ok, Code::InvalidReceiptHandle);
    assert_eq!(codes, [ok, ok, bad, ok, bad, ok, ok, ok, ok]);
    assert_eq!(world.brokers.acked("g"), 6);

    world.clock.advance(600_000);
    let mut left = 0;
    for _ in 0..2 {
        left += a.receive(request.clone()).await.messages.len();
    }
    assert_eq!(left, 2, "only what was not acknowledged comes back");
}

/// C10: a handle is enough.
#[tokio::test]
async fn an_ack_needs_no_settings() {
    let world = World::new().await;
    let mut known = world.client("known", simple()).await;
    known.send(messages(1)).await;
    let handles = known.receive(receive()).await.handles();
    let mut stranger = world.peer("stranger").await;
    assert_eq!(code(stranger.ack(&handles).await.status), Code::Ok);
    assert_eq!(world.brokers.acked("g"), 1);
}

#[tokio::test]
async fn a_broker_that_is_busy_makes_an_ack_retryable() {
    let world = World::new().await;
    let mut peer = world.client("c", push()).await;
    peer.send(messages(1)).await;
    let handles = peer.receive(v2::ReceiveMessageRequest { auto_renew: true, ..receive() }).await.handles();
    for (fault, wanted) in [
        (Fault::Code(response::SYSTEM_BUSY), Code::TooManyRequests),
        (Fault::Timeout, Code::ProxyTimeout),
        (Fault::Code(response::SYSTEM_ERROR), Code::InternalServerError),
    ] {
        world.brokers.fail(request::ACK_MESSAGE, fault);
        assert_eq!(code(peer.ack(&handles).await.status), wanted);
        assert_eq!(world.receipts.stats().held, 1, "the lease is still kept for the client");
    }
    assert_eq!(code(peer.ack(&handles).await.status), Code::Ok);
    assert_eq!(world.receipts.stats().held, 0);
    assert_eq!(code(peer.ack(&handles).await.status), Code::Ok, "again is harmless");
}

/// C01.
#[tokio::test]
async fn an_extended_message_is_acked_with_the_new_or_the_old_handle() {
    let world = World::new().await;
    for auto_renew in [false, true] {
        for use_new in [true, false] {
            let mut peer = world.client(&format!("c-{auto_renew}-{use_new}"), simple()).await;
            peer.send(messages(1)).await;
            let old = peer.receive(v2::ReceiveMessageRequest { auto_renew, ..receive() }).await.handles();
            let answer = peer.change(&old[0], 10_000).await;
            assert_eq!(code(answer.status), Code::Ok);
            let handle = if use_new { answer.receipt_handle } else { old[0].clone() };
            let acked = world.brokers.acked("g");
            assert_eq!(code(peer.ack(&[handle]).await.status), Code::Ok);
            assert_eq!(world.brokers.acked("g"), acked + 1, "an OK has an effect");
            world.clock.advance(61_000);
            assert_eq!(peer.receive(receive()).await.messages.len(), 0, "and it never comes back");
        }
    }
}

#[tokio::test]
async fn a_change_to_zero_makes_the_message_visible_and_suspend_does_not_count() {
    let world = World::new().await;
    let mut peer = world.client("c", simple()).await;
    peer.send(messages(1)).await;
    let attempt =
        |received: &Received| received.messages[0].system_properties.as_ref().map(|system| system.delivery_attempt());
    let first = peer.receive(receive()).await;
    assert_eq!(attempt(&first), Some(1));
    assert_eq!(code(peer.change(&first.handles()[0], 0).await.status), Code::Ok);
    let second = peer.receive(receive()).await;
    assert_eq!(attempt(&second), Some(2));
    let mut request = change("t", "g", &second.handles()[0], 0);
    request.suspend = Some(true);
    let answer = peer.client.change_invisible_duration(request_of("c", request)).await.expect("an answer");
    assert_eq!(code(answer.into_inner().status), Code::Ok);
    assert_eq!(attempt(&peer.receive(receive()).await), Some(2));
}

#[tokio::test]
async fn a_change_under_load_keeps_the_clients_handle() {
    let world = World::new().await;
    let mut peer = world.client("c", simple()).await;
    peer.send(messages(1)).await;
    let handle = peer.receive(receive()).await.handles().remove(0);
    world.brokers.fail(request::CHANGE_MESSAGE_INVISIBLETIME, Fault::Code(response::SYSTEM_BUSY));
    let answer = peer.change(&handle, 20_000).await;
    assert_eq!((code(answer.status), answer.receipt_handle), (Code::TooManyRequests, handle.clone()));
    world.brokers.fail(request::CHANGE_MESSAGE_INVISIBLETIME, Fault::Timeout);
    let answer = peer.change(&handle, 20_000).await;
    assert_eq!((code(answer.status), answer.receipt_handle.as_str()), (Code::ProxyTimeout, ""));
}

#[tokio::test]
async fn a_forwarded_message_is_dead_once() {
    let world = World::new().await;
    let mut peer = world.client("c", push()).await;
    peer.send(messages(1)).await;
    let handle = peer.receive(v2::ReceiveMessageRequest { auto_renew: true, ..receive() }).await.handles().remove(0);
    assert_eq!(world.receipts.stats().held, 1);
    let forward = v2::ForwardMessageToDeadLetterQueueRequest {
        group: Some(resource("g")),
        topic: Some(resource("t")),
        receipt_handle: handle,
        message_id: "M0".into(),
        ..Default::default()
    };
    for _ in 0..2 {
        let answer = peer.client.forward_message_to_dead_letter_queue(request_of("c", forward.clone())).await;
        assert_eq!(code(answer.expect("an answer").into_inner().status), Code::Ok);
    }
    let dead = world.brokers.stored("%DLQ%g");
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].body, "body of M0");
    assert_eq!((world.receipts.stats().held, world.brokers.leased("g")), (0, 0));
}

#[tokio::test]
async fn requests_name_the_group_the_topic_and_the_lease() {
    let world = World::new().await;
    let mut peer = world.client("c", simple()).await;
    peer.send(messages(1)).await;
    let handle = peer.receive(receive()).await.handles().remove(0);
    peer.change(&handle, 15_000).await;
    peer.ack(std::slice::from_ref(&handle)).await;
    let change: ChangeInvisibleTimeRequestHeader =
        world.brokers.seen(request::CHANGE_MESSAGE_INVISIBLETIME)[0].header().expect("a change header");
    assert_eq!((change.consumer_group.as_str(), change.topic.as_str()), ("g", "t"));
    assert_eq!((change.extra_info.as_str(), change.invisible_time), (handle.as_str(), 15_000));
    let ack: AckMessageRequestHeader = world.brokers.seen(request::ACK_MESSAGE)[0].header().expect("an ack header");
    assert_eq!((ack.consumer_group.as_str(), ack.topic.as_str()), ("g", "t"));
}

#[tokio::test]
async fn calls_that_are_not_built_say_so() {
    let world = World::new().await;
    let mut peer = world.peer("c").await;
    let pull = peer.client.pull_message(request_of("c", v2::PullMessageRequest::default())).await.err();
    let update = peer.client.update_offset(request_of("c", v2::UpdateOffsetRequest::default())).await.err();
    let get = peer.client.get_offset(request_of("c", v2::GetOffsetRequest::default())).await.err();
    let query = peer.client.query_offset(request_of("c", v2::QueryOffsetRequest::default())).await.err();
    for (name, status) in [("PullMessage", pull), ("UpdateOffset", update), ("GetOffset", get), ("QueryOffset", query)]
    {
        let status = status.expect("an error");
        assert_eq!(status.code(), tonic::Code::Unimplemented);
        assert_eq!(status.message(), format!("Method apache.rocketmq.v2.MessagingService/{name} is unimplemented"));
    }
}

#[tokio::test]
async fn health_and_reflection_are_served() {
    use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};
    use tonic_reflection::pb::v1::{
        ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
        server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
    };
    let world = World::new().await;
    let mut health = HealthClient::new(world.channel().await);
    for service in ["", waybill_sidecar::grpc::SERVICE] {
        let answer = health.check(HealthCheckRequest { service: service.into() }).await.expect("an answer");
        assert_eq!(answer.into_inner().status(), ServingStatus::Serving);
    }
    let mut reflection = ServerReflectionClient::new(world.channel().await);
    let list = MessageRequest::ListServices(String::new());
    let request = ServerReflectionRequest { host: String::new(), message_request: Some(list) };
    let answers = reflection.server_reflection_info(tokio_stream::once(request)).await.expect("a stream");
    let answer = answers.into_inner().message().await.expect("an element").expect("an answer");
    let Some(MessageResponse::ListServicesResponse(services)) = answer.message_response else { panic!("no services") };
    let names = services.service.into_iter().map(|service| service.name).collect::<Vec<_>>();
    assert!(names.contains(&"apache.rocketmq.v2.MessagingService".to_owned()), "{names:?}");
    assert!(names.contains(&"grpc.health.v1.Health".to_owned()), "{names:?}");
}

/// C29: whatever a client leaves out or overdoes, it gets an answer.
#[tokio::test]
async fn bad_input_is_answered() {
    let world = World::new().await;
    let mut peer = world.client("c", simple()).await;
    let mut good = world.client("good", simple()).await;
    let extreme = prost_types::Duration { seconds: i64::MIN, nanos: i32::MIN };
    let huge = prost_types::Duration { seconds: i64::MAX, nanos: i32::MAX };

    let empty = v2::SendMessageRequest { messages: vec![v2::Message::default()] };
    let answer = peer.client.send_message(request_of("c", empty)).await.expect("an answer").into_inner();
    assert_eq!(code(answer.status), Code::IllegalTopic);
    let bare = v2::Message { system_properties: None, ..message("ID") };
    assert_eq!(code(peer.send(vec![bare]).await.status), Code::BadRequest);
    assert_eq!(code(peer.send(messages(1_025)).await.status), Code::BadRequest);
    let blown_up = (0..5).map(|_| v2::Message { body: vec![0; 1024 * 1024].into(), ..message("ID") }).collect();
    assert_eq!(code(peer.send(blown_up).await.status), Code::PayloadTooLarge);
    let far = |at: prost_types::Timestamp| {
        let mut message = message("ID");
        message.system_properties.as_mut().expect("system properties").delivery_timestamp = Some(at);
        message
    };
    let never = prost_types::Timestamp { seconds: i64::MAX, nanos: i32::MAX };
    assert_eq!(code(peer.send(vec![far(never)]).await.status), Code::IllegalDeliveryTime);
    let longest_ago = prost_types::Timestamp { seconds: i64::MIN, nanos: i32::MIN };
    let answer = peer.send(vec![far(longest_ago)]).await;
    assert_eq!(code(answer.status), Code::MessagePropertyConflictWithType, "a past time is still a delay");

    let nothing = v2::ReceiveMessageRequest::default();
    assert_eq!(peer.receive(nothing).await.code(), Code::IllegalTopic);
    for duration in [extreme, huge] {
        let request = v2::ReceiveMessageRequest { invisible_duration: Some(duration), ..receive() };
        assert_eq!(peer.receive(request).await.code(), Code::IllegalInvisibleTime);
        let request = v2::ReceiveMessageRequest { long_polling_timeout: Some(duration), ..receive() };
        assert_eq!(peer.receive(request).await.code(), Code::MessageNotFound);
        let mut request = change("t", "g", "x", 0);
        request.invisible_duration = Some(duration);
        let answer = peer.client.change_invisible_duration(request_of("c", request)).await.expect("an answer");
        assert_eq!(code(answer.into_inner().status), Code::IllegalInvisibleTime);
    }
    let request = v2::ReceiveMessageRequest { batch_size: i32::MIN, ..receive() };
    assert_eq!(peer.receive(request).await.code(), Code::MessageNotFound);
    let long = v2::ReceiveMessageRequest { attempt_id: Some("x".repeat(10_000)), ..receive() };
    assert_eq!(peer.receive(long).await.code(), Code::BadRequest);

    let many = vec![String::from("garbage"); 4_097];
    assert_eq!(code(peer.ack(&many).await.status), Code::BadRequest);
    let answer = peer.ack(&many[1..]).await;
    assert_eq!((code(answer.status), answer.entries.len()), (Code::InvalidReceiptHandle, 4_096));
    let overflow = format!("{0} {0} {0} 0 0 broker-a 0 {0}", i64::MAX);
    assert_eq!(code(peer.ack(&[overflow]).await.status), Code::InvalidReceiptHandle);
    let nobody = format!("0 {START} 60000 0 0 broker-x 0 0");
    assert_eq!(code(peer.ack(&[nobody]).await.status), Code::InvalidReceiptHandle);

    let addresses = vec![v2::Address { host: "h".into(), port: 1 }; 33];
    let endpoints = v2::Endpoints { scheme: 7, addresses };
    let request = v2::QueryRouteRequest { topic: Some(resource("t")), endpoints: Some(endpoints) };
    let answer = peer.client.query_route(request_of("c", request)).await.expect("an answer").into_inner();
    assert_eq!(code(answer.status), Code::IllegalAccessPoint);
    for (id, wanted) in
        [("", Code::ClientIdRequired), (" ", Code::ClientIdRequired), (&"x".repeat(513), Code::ClientIdRequired)]
    {
        let answer = peer.client.heartbeat(request_of(id, v2::HeartbeatRequest::default())).await.expect("an answer");
        assert_eq!(code(answer.into_inner().status), wanted);
    }

    assert_eq!(code(good.send(messages(1)).await.status), Code::Ok, "others do not notice");
    assert_eq!(good.receive(receive()).await.messages.len(), 1);
}
