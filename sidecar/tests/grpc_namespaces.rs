//! Namespaces: the same names in two of them are two topics and two groups, in every call, and clients see the names they know.
#![allow(clippy::expect_used, clippy::panic, reason = "tests say what they expect")]

mod grpc_common;

use grpc_common::*;
use waybill_protocol::grpc::v2::{
    self, ClientType, Code, Message, ReceiveMessageRequest, Resource, Settings, settings::PubSub,
};

fn named(namespace: &str, name: &str) -> Resource {
    Resource { resource_namespace: namespace.into(), name: name.into() }
}

fn message_in(namespace: &str, id: &str) -> Message {
    Message { topic: Some(named(namespace, "t")), ..message(id) }
}

fn receive_in(namespace: &str, topic: &str) -> ReceiveMessageRequest {
    let queue = v2::MessageQueue { topic: Some(named(namespace, topic)), ..Default::default() };
    ReceiveMessageRequest { group: Some(named(namespace, "g")), message_queue: Some(queue), ..receive() }
}

/// Settings of a consumer whose names are in a namespace.
fn consumer_in(namespace: &str) -> Settings {
    let mut settings = consumer("g", "t", ClientType::SimpleConsumer);
    let Some(PubSub::Subscription(subscription)) = &mut settings.pub_sub else { panic!("no subscription") };
    subscription.group = Some(named(namespace, "g"));
    for entry in &mut subscription.subscriptions {
        entry.topic = Some(named(namespace, "t"));
    }
    settings
}

async fn world() -> World {
    let world = World::new().await;
    for namespace in ["red%", "blue%"] {
        world.brokers.topic(&format!("{namespace}t"), "NORMAL", 1);
        world.brokers.group(group(&format!("{namespace}g")));
    }
    world
}

fn ids(received: &Received) -> Vec<String> {
    let id = |message: &Message| message.system_properties.clone().unwrap_or_default().message_id;
    received.messages.iter().map(id).collect()
}

#[tokio::test]
async fn each_namespace_sees_its_own_and_by_its_own_names() {
    let world = world().await;
    let mut peers = Vec::new();
    for namespace in ["red", "blue", ""] {
        peers.push((namespace, world.client(&format!("c-{namespace}"), consumer_in(namespace)).await));
    }
    for (namespace, peer) in &mut peers {
        let sent = peer.send(vec![message_in(namespace, &format!("of-{namespace}"))]).await;
        assert_eq!(code(sent.status), Code::Ok);
    }
    for (namespace, peer) in &mut peers {
        let received = peer.receive(receive_in(namespace, "t")).await;
        assert_eq!(ids(&received), [format!("of-{namespace}")]);
        assert_eq!(received.messages[0].topic, Some(named(namespace, "t")));
        let handle = received.handles().remove(0);

        let foreign = if *namespace == "red" { "blue" } else { "red" };
        for (of, wanted) in [(foreign, Code::InvalidReceiptHandle), (*namespace, Code::Ok)] {
            let mut change = change("t", "g", &handle, 60_000);
            (change.topic, change.group) = (Some(named(of, "t")), Some(named(of, "g")));
            let changed = peer.client.change_invisible_duration(peer.request(change)).await.expect("an answer");
            assert_eq!(code(changed.into_inner().status), wanted, "change in {of:?} by one of {namespace:?}");
        }
        let mut ack = ack("t", "g", &[handle]);
        (ack.topic, ack.group) = (Some(named(namespace, "t")), Some(named(namespace, "g")));
        let acked = peer.client.ack_message(peer.request(ack)).await.expect("an answer").into_inner();
        assert_eq!(code(acked.status), Code::Ok);
    }
}

#[tokio::test]
async fn settings_heartbeats_routes_and_assignments() {
    let world = world().await;
    world
        .brokers
        .group(waybill_protocol::remoting::SubscriptionGroupConfig { consume_message_orderly: true, ..group("red%g") });
    for (namespace, orderly) in [("red", true), ("blue", false), ("", false)] {
        let mut peer = world.peer(&format!("c-{namespace}")).await;
        let told = match peer.open(consumer_in(namespace)).await.expect("settings").command {
            Some(v2::telemetry_command::Command::Settings(told)) => told,
            other => panic!("{other:?}"),
        };
        let Some(PubSub::Subscription(subscription)) = told.pub_sub else { panic!("no subscription") };
        assert_eq!(subscription.fifo, Some(orderly), "the group is that of {namespace:?}");
        assert_eq!(subscription.group, Some(named(namespace, "g")));
        assert_eq!(subscription.subscriptions[0].topic, Some(named(namespace, "t")));

        let heartbeat = v2::HeartbeatRequest { group: Some(named(namespace, "g")), client_type: 0 };
        let heard = peer.client.heartbeat(peer.request(heartbeat)).await.expect("an answer").into_inner();
        assert_eq!(code(heard.status), Code::Ok);

        let (topic, endpoints) = (Some(named(namespace, "t")), Some(endpoints()));
        let route = v2::QueryRouteRequest { topic: topic.clone(), endpoints: endpoints.clone() };
        let route = peer.client.query_route(peer.request(route)).await.expect("an answer").into_inner();
        assert_eq!(code(route.status), Code::Ok);
        assert!(!route.message_queues.is_empty() && route.message_queues.iter().all(|queue| queue.topic == topic));

        let group = Some(named(namespace, "g"));
        let request = v2::QueryAssignmentRequest { topic: topic.clone(), group, endpoints };
        let answer = peer.client.query_assignment(peer.request(request)).await.expect("an answer").into_inner();
        let queues: Vec<_> = answer.assignments.into_iter().filter_map(|assignment| assignment.message_queue).collect();
        assert!(!queues.is_empty() && queues.iter().all(|queue| queue.topic == topic));
        assert_eq!(queues.iter().all(|queue| queue.id == -1), !orderly, "the group is that of {namespace:?}");

        let goodbye = v2::NotifyClientTerminationRequest { group: Some(named(namespace, "g")) };
        let answer = peer.client.notify_client_termination(peer.request(goodbye)).await.expect("an answer");
        assert_eq!(code(answer.into_inner().status), Code::Ok);
    }
}

#[tokio::test]
async fn dead_letters_are_those_of_the_namespace() {
    let world = world().await;
    let mut peer = world.client("c", consumer_in("red")).await;
    peer.send(vec![message_in("red", "ID")]).await;
    let handle = peer.receive(receive_in("red", "t")).await.handles().remove(0);
    let forward = v2::ForwardMessageToDeadLetterQueueRequest {
        group: Some(named("red", "g")),
        topic: Some(named("red", "t")),
        receipt_handle: handle,
        message_id: "ID".into(),
        ..Default::default()
    };
    let forwarded = peer.client.forward_message_to_dead_letter_queue(peer.request(forward)).await.expect("an answer");
    assert_eq!(code(forwarded.into_inner().status), Code::Ok);
    let dead = peer.receive(receive_in("red", "%DLQ%g")).await;
    assert_eq!((ids(&dead), dead.messages[0].topic.clone()), (vec!["ID".into()], Some(named("red", "%DLQ%g"))));
    world.brokers.group(group("g"));
    let mut outside = world.client("outside", consumer_in("")).await;
    assert_eq!(outside.receive(receive_in("", "%DLQ%g")).await.code(), Code::TopicNotFound);
}

#[tokio::test]
async fn a_namespace_that_cannot_be_one_is_refused_and_nothing_is_taken() {
    let world = world().await;
    let mut peer = world.client("c", consumer_in("red")).await;
    for namespace in ["red%t", "a b", "größe", "a|b", &"n".repeat(121)] {
        let sent = peer.send(vec![message_in(namespace, "ID")]).await.status;
        assert_eq!(code(sent.clone()), Code::IllegalTopic, "{namespace}");
        let words = sent.map(|status| status.message).unwrap_or_default();
        assert!(words.starts_with(&format!("the namespace[{namespace}] of the topic ")), "{words}");
        assert_eq!(peer.receive(receive_in(namespace, "t")).await.code(), Code::IllegalTopic, "{namespace}");
        let heartbeat = v2::HeartbeatRequest { group: Some(named(namespace, "g")), client_type: 0 };
        let heard = peer.client.heartbeat(peer.request(heartbeat)).await.expect("an answer").into_inner();
        assert_eq!(code(heard.status), Code::IllegalConsumerGroup, "{namespace}");
    }
    let long = named("red", &"t".repeat(126));
    let request = v2::QueryRouteRequest { topic: Some(long), endpoints: Some(endpoints()) };
    let route = peer.client.query_route(peer.request(request)).await.expect("an answer").into_inner();
    assert_eq!(code(route.status), Code::IllegalTopic, "too long together");
    for blank in ["", "  "] {
        let request = v2::QueryRouteRequest { topic: Some(named("red", blank)), endpoints: Some(endpoints()) };
        let route = peer.client.query_route(peer.request(request)).await.expect("an answer").into_inner();
        assert_eq!(code(route.status), Code::IllegalTopic, "{blank:?}");
    }
}

/// The published Node client says its namespace in the header of every call, but not of what it receives from.
#[tokio::test]
async fn a_namespace_in_the_header_is_that_of_all_that_says_none() {
    fn within<Q>(peer: &Peer, namespace: &str, message: Q) -> tonic::Request<Q> {
        let mut request = peer.request(message);
        request.metadata_mut().insert("x-mq-namespace", namespace.parse().expect("a header value"));
        request
    }
    let world = world().await;
    let mut peer = world.client("c", consumer_in("")).await;
    let plain = within(&peer, "red", v2::SendMessageRequest { messages: vec![message_in("", "1")] });
    let said = within(&peer, "blue", v2::SendMessageRequest { messages: vec![message_in("red", "2")] });
    for request in [plain, said] {
        assert_eq!(code(peer.client.send_message(request).await.expect("an answer").into_inner().status), Code::Ok);
    }
    assert_eq!(peer.receive(receive_in("", "t")).await.code(), Code::MessageNotFound);
    let request = within(&peer, "red", receive_in("", "t"));
    let stream = peer.client.receive_message(request).await.expect("a stream").into_inner();
    let received = Received::read(stream).await;
    assert_eq!(ids(&received), ["1", "2"]);
    assert_eq!(received.messages[0].topic.clone().map(|topic| topic.name).as_deref(), Some("t"));

    let (outgoing, answers) = tokio::sync::mpsc::channel(1);
    outgoing.send(command(consumer_in(""))).await.expect("a channel");
    let stream = within(&peer, "red", tokio_stream::wrappers::ReceiverStream::new(answers));
    let mut told = peer.client.telemetry(stream).await.expect("a stream").into_inner();
    let answer = told.message().await.expect("an answer").expect("settings");
    let Some(v2::telemetry_command::Command::Settings(told)) = answer.command else { panic!("no settings") };
    let Some(PubSub::Subscription(subscription)) = told.pub_sub else { panic!("no subscription") };
    assert_eq!(subscription.group.map(|group| group.name).as_deref(), Some("g"), "as the client calls it");
    assert_eq!(world.sessions.profile("c").and_then(|profile| profile.group).as_deref(), Some("red%g"));
}
