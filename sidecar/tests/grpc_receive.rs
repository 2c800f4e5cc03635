//! Receives over the real gRPC server: what comes, how it is leased, and that nothing is lost when the client is not
//! there to take it.
#![allow(clippy::expect_used, clippy::panic, reason = "tests say what they expect")]

mod grpc_common;

use grpc_common::broker::Fault;
use grpc_common::*;
use waybill_protocol::grpc::v2::{self, Code, FilterExpression, FilterType, ReceiveMessageRequest, settings::PubSub};
use waybill_protocol::remoting::{
    ChangeInvisibleTimeRequestHeader, PopMessageRequestHeader, SubscriptionGroupConfig,
    codes::{request, response},
};
use waybill_sidecar::config::Config;

fn auto_renew() -> ReceiveMessageRequest {
    ReceiveMessageRequest { auto_renew: true, invisible_duration: None, ..receive() }
}

fn last_pop(world: &World) -> PopMessageRequestHeader {
    world.brokers.seen(request::POP_MESSAGE).last().expect("a pop").header().expect("a pop header")
}

#[tokio::test]
async fn the_status_comes_first_and_the_time_last() {
    let world = World::new().await;
    let mut peer = world.client("c", simple()).await;
    peer.send(messages(3)).await;
    let received = peer.receive(receive()).await;
    assert_eq!(received.code(), Code::Ok);
    assert_eq!(received.order, ["status", "message", "delivery_timestamp"]);
    let ids = received.messages.iter().filter_map(|m| m.system_properties.as_ref()).map(|s| s.message_id.as_str());
    assert_eq!(ids.collect::<Vec<_>>(), ["M0", "M1", "M2"]);
    assert!(received.messages.iter().all(|m| m.topic.as_ref().is_some_and(|topic| topic.name == "t")));
    let pop = last_pop(&world);
    assert_eq!((pop.consumer_group.as_str(), pop.topic.as_str(), pop.queue_id), ("g", "t", -1));
    assert_eq!((pop.max_msg_nums, pop.invisible_time, pop.poll_time), (32, 30_000, 5_000));
    assert_eq!((pop.client_id.as_deref(), pop.order), (Some("c"), Some(false)));
    assert_eq!(world.receipts.stats().held, 0, "the client keeps its leases itself");
}

#[tokio::test]
async fn a_push_consumer_gets_the_servers_lease_and_it_is_kept() {
    let world = World::new().await;
    let mut peer = world.client("c", push()).await;
    peer.send(messages(5)).await;
    let nonsense = ReceiveMessageRequest { invisible_duration: Some(duration(1)), ..auto_renew() };
    let received = peer.receive(nonsense).await;
    assert_eq!((received.code(), received.messages.len()), (Code::Ok, 5));
    assert_eq!(last_pop(&world).invisible_time, 60_000);
    assert_eq!(world.receipts.stats().held, 5);
    assert_eq!(code(peer.ack(&received.handles()).await.status), Code::Ok);
    assert_eq!((world.receipts.stats().held, world.brokers.acked("g")), (0, 5));
}

#[tokio::test]
async fn with_renewal_switched_off_the_lease_is_the_groups() {
    let off = Config { enable_grpc_channel_receipt_handle_renew: false, ..config() };
    let world = World::with(off).await;
    let mut peer = world.client("c", push()).await;
    peer.send(messages(1)).await;
    peer.receive(auto_renew()).await;
    assert_eq!(last_pop(&world).invisible_time, 15 * 60_000);
    assert_eq!(world.receipts.stats().kept, 1);

    let none = Config { enable_proxy_auto_renew: false, ..config() };
    let world = World::with(none).await;
    let mut peer = world.client("c", push()).await;
    peer.send(messages(1)).await;
    peer.receive(auto_renew()).await;
    assert_eq!(last_pop(&world).invisible_time, 15 * 60_000);
    assert_eq!(world.receipts.stats().held, 0);
    let asked = ReceiveMessageRequest { invisible_duration: Some(duration(1)), ..auto_renew() };
    assert_eq!(peer.receive(asked).await.code(), Code::IllegalInvisibleTime);
}

/// C05: nothing is taken when the request is not in order.
#[tokio::test]
async fn a_bad_duration_takes_no_message() {
    let world = World::new().await;
    let mut peer = world.client("c", simple()).await;
    peer.send(messages(1)).await;
    for duration in [None, Some(duration(0)), Some(duration(1)), Some(duration(13 * 3_600_000))] {
        let received = peer.receive(ReceiveMessageRequest { invisible_duration: duration, ..receive() }).await;
        assert_eq!(received.code(), Code::IllegalInvisibleTime);
    }
    assert_eq!(world.brokers.seen(request::POP_MESSAGE).len(), 0);
}

/// C10: a client without settings is told to send them, and no message is taken.
#[tokio::test]
async fn a_client_without_settings_takes_no_message() {
    let world = World::new().await;
    let mut stranger = world.peer("stranger").await;
    stranger.send(messages(1)).await;
    let received = stranger.receive(receive()).await;
    assert_eq!(received.code(), Code::UnrecognizedClientType);
    assert_eq!(received.order, ["status", "delivery_timestamp"]);
    assert_eq!(stranger.heartbeat().await, Code::UnrecognizedClientType);
    assert_eq!(world.brokers.seen(request::POP_MESSAGE).len(), 0);
    let nameless = stranger.client.receive_message(receive()).await.expect("a stream").into_inner();
    assert_eq!(Received::read(nameless).await.code(), Code::ClientIdRequired);
}

#[tokio::test]
async fn how_a_brokers_answer_to_a_pop_reaches_the_client() {
    let world = World::new().await;
    let mut peer = world.client("c", simple()).await;
    for (answer, wanted) in [
        (response::POLLING_FULL, Code::TooManyRequests),
        (response::POLLING_TIMEOUT, Code::MessageNotFound),
        (response::SYSTEM_BUSY, Code::TooManyRequests),
        (response::TOPIC_NOT_EXIST, Code::TopicNotFound),
        (response::SUBSCRIPTION_GROUP_NOT_EXIST, Code::ConsumerGroupNotFound),
        (response::SUBSCRIPTION_PARSE_FAILED, Code::IllegalFilterExpression),
        (response::NO_PERMISSION, Code::Forbidden),
        (response::SYSTEM_ERROR, Code::InternalServerError),
    ] {
        world.brokers.fail(request::POP_MESSAGE, Fault::Code(answer));
        let received = peer.receive(receive()).await;
        assert_eq!((received.code(), received.order), (wanted, vec!["status", "delivery_timestamp"]), "{answer}");
    }
    world.brokers.fail(request::POP_MESSAGE, Fault::Timeout);
    assert_eq!(peer.receive(receive()).await.code(), Code::ProxyTimeout);
    let nowhere = ReceiveMessageRequest { group: Some(resource("nosuch")), ..receive() };
    assert_eq!(peer.receive(nowhere).await.code(), Code::ConsumerGroupNotFound);
}

#[tokio::test]
async fn tags_with_equal_hashes_are_told_apart() {
    let world = World::new().await;
    let mut peer = world.client("c", simple()).await;
    for (id, tag) in [("A", "AaAa"), ("B", "BBBB")] {
        let mut message = message(id);
        message.system_properties.as_mut().expect("system properties").tag = Some(tag.into());
        peer.send(vec![message]).await;
    }
    let expression = FilterExpression { r#type: FilterType::Tag.into(), expression: "AaAa".into() };
    let only = ReceiveMessageRequest { filter_expression: Some(expression), ..receive() };
    let received = peer.receive(only.clone()).await;
    let ids = received.messages.iter().filter_map(|m| m.system_properties.as_ref()).map(|s| s.message_id.as_str());
    assert_eq!(ids.collect::<Vec<_>>(), ["A"]);
    world.until("the other is done with", || world.brokers.acked("g") == 1).await;
    assert_eq!(world.brokers.leased("g"), 1);

    let mut message = message("C");
    message.system_properties.as_mut().expect("system properties").tag = Some("BBBB".into());
    peer.send(vec![message]).await;
    let received = peer.receive(only).await;
    assert_eq!((received.code(), received.status.message.as_str()), (Code::MessageNotFound, "no match message"));
}

#[tokio::test]
async fn a_message_tried_too_often_is_buried() {
    let world = World::new().await;
    world.brokers.group(SubscriptionGroupConfig { retry_max_times: 1, ..group("g") });
    let mut peer = world.client("c", simple()).await;
    peer.send(messages(1)).await;
    for attempt in 1..=2 {
        let received = peer.receive(receive()).await;
        let system = received.messages[0].system_properties.clone().expect("system properties");
        assert_eq!(system.delivery_attempt(), attempt);
        world.clock.advance(31_000);
    }
    assert_eq!(peer.receive(receive()).await.code(), Code::MessageNotFound);
    world.until("it is in the dead-letter topic", || world.brokers.stored("%DLQ%g").len() == 1).await;
    assert_eq!(world.brokers.stored("%DLQ%g")[0].body, "body of M0");
}

#[tokio::test]
async fn an_ordered_group_is_popped_in_order() {
    let world = World::new().await;
    world.brokers.group(SubscriptionGroupConfig { consume_message_orderly: true, ..group("ordered") });
    let mut peer = world.client("c", consumer("ordered", "t", v2::ClientType::PushConsumer)).await;
    let group = Some(resource("ordered"));
    let attempt_id = Some("attempt-1".to_owned());
    peer.receive(ReceiveMessageRequest { group, attempt_id, ..auto_renew() }).await;
    let pop = last_pop(&world);
    assert_eq!((pop.order, pop.attempt_id.as_deref()), (Some(true), Some("attempt-1")));
}

/// So that the broker can tell members of a group that subscribe to different topics. What a client's settings do not say is not known.
#[tokio::test]
async fn all_topics_that_a_client_subscribes_to_are_told_to_the_broker() {
    let world = World::new().await;
    let mut settings = simple();
    if let Some(PubSub::Subscription(subscription)) = &mut settings.pub_sub {
        for topic in ["two", "one", "one"] {
            let entry = v2::SubscriptionEntry { topic: Some(resource(topic)), ..Default::default() };
            subscription.subscriptions.push(entry);
        }
    }
    let mut many = world.client("many", settings).await;
    let mut odd = world.client("odd", consumer("g", "other", v2::ClientType::SimpleConsumer)).await;
    many.receive(receive()).await;
    odd.receive(receive()).await;
    let pops = world.brokers.seen(request::POP_MESSAGE);
    let told: Vec<_> = pops.iter().map(|pop| pop.ext.get("subscribedTopics")).collect();
    assert_eq!(told, [Some("one,t,two"), None]);
}

#[tokio::test]
async fn the_broker_that_is_asked_for_is_asked() {
    let world = World::new().await;
    world.brokers.topic("two", "NORMAL", 2);
    let mut peer = world.client("c", simple()).await;
    for n in 0..8 {
        peer.send(vec![v2::Message { topic: Some(resource("two")), ..message(&format!("M{n}")) }]).await;
    }
    let broker = v2::Broker { name: "broker-b".into(), ..Default::default() };
    let queue = v2::MessageQueue { topic: Some(resource("two")), broker: Some(broker), ..Default::default() };
    let received = peer.receive(ReceiveMessageRequest { message_queue: Some(queue), ..receive() }).await;
    assert!(!received.messages.is_empty());
    assert!(received.handles().iter().all(|handle| handle.contains("broker-b")));
}

/// C09: the connection breaks while the client waits; what the broker gives out afterwards is not hidden for a whole
/// lease.
#[tokio::test]
async fn messages_popped_for_a_client_that_went_away_are_given_back() {
    for request in [receive(), auto_renew()] {
        let world = World::new().await;
        let mut gone = world.client("gone", simple()).await;
        let mut other = world.client("other", simple()).await;
        world.brokers.hold_polls(true);
        let waiting = tokio::spawn(async move { gone.receive(request).await.messages.len() });
        world.until("the poll waits", || world.brokers.seen(request::POP_MESSAGE).len() == 1).await;
        waiting.abort();
        assert!(waiting.await.is_err());
        // Until the server has seen it, a message would rightly go to the first client.
        world.until("the server notices", || world.metric("waybill_receives_waiting") == 0.0).await;
        other.send(messages(1)).await;
        world.until("it is given back", || !world.brokers.seen(request::CHANGE_MESSAGE_INVISIBLETIME).is_empty()).await;
        world.brokers.hold_polls(false);
        let change: ChangeInvisibleTimeRequestHeader =
            world.brokers.seen(request::CHANGE_MESSAGE_INVISIBLETIME)[0].header().expect("a change header");
        assert!(change.invisible_time <= 1_000, "{}", change.invisible_time);
        assert_eq!(change.suspend, Some(true), "nobody has tried it");
        world.clock.advance(1_001);
        let received = other.receive(receive()).await;
        let attempt = received.messages[0].system_properties.as_ref().map(|s| s.delivery_attempt());
        assert_eq!((received.messages.len(), attempt), (1, Some(1)));
    }
}

/// C09: the client resets the stream before it has read the answer to its end.
#[tokio::test]
async fn messages_of_an_answer_that_is_not_read_are_given_back() {
    for request in [receive(), auto_renew()] {
        let world = World::new().await;
        let mut peer = world.client("c", simple()).await;
        // More than the windows of the connection take, so that the answer cannot have been written whole.
        let large = |n: usize| v2::Message { body: vec![1; 1024 * 1024].into(), ..message(&format!("M{n}")) };
        for n in 0..16 {
            peer.send(vec![large(n)]).await;
        }
        let mut lazy = world.client("lazy", simple()).await;
        let stream = lazy.client.receive_message(lazy.request(request)).await.expect("a stream").into_inner();
        world.until("the messages are leased", || world.brokers.leased("g") == 16).await;
        drop(stream);
        let given_back = || world.brokers.seen(request::CHANGE_MESSAGE_INVISIBLETIME).len() == 16;
        world.until("all are given back", given_back).await;
        world.until("nothing is kept", || world.receipts.stats().held == 0).await;
        world.clock.advance(1_001);
        assert_eq!(peer.receive(receive()).await.messages.len(), 16);
    }
}

#[tokio::test]
async fn a_stop_ends_polls_at_once() {
    let world = World::new().await;
    let mut peer = world.client("c", simple()).await;
    world.brokers.hold_polls(true);
    let waiting = tokio::spawn(async move { peer.receive(receive()).await });
    world.until("the poll waits", || world.brokers.seen(request::POP_MESSAGE).len() == 1).await;
    world.stop.cancel();
    let received = tokio::time::timeout(PATIENCE, waiting).await.expect("it ends").expect("a receive");
    assert_eq!((received.code(), received.order), (Code::MessageNotFound, vec!["status", "delivery_timestamp"]));
}

#[tokio::test]
async fn a_poll_that_waits_ends_when_its_messages_are_to_be_leased_in_another_way() {
    let world = World::with(Config { subscription_group_config_cache_refresh_seconds: 1, ..config() }).await;
    let mut peer = world.client("c", push()).await;
    world.brokers.hold_polls(true);
    let long = Some(duration(20_000));
    let promised = ReceiveMessageRequest { long_polling_timeout: long, ..auto_renew() };
    let own = ReceiveMessageRequest { long_polling_timeout: long, ..receive() };
    let mut other = world.client("other", simple()).await;
    let own = tokio::spawn(async move { other.receive(own).await });
    let again = promised.clone();
    let waiting = tokio::spawn(async move { (peer.receive(promised).await.code(), peer) });
    world.until("both wait", || world.brokers.seen(request::POP_MESSAGE).len() == 2).await;
    let attributes = [("waybill.renew".to_owned(), "false".to_owned())].into();
    world.brokers.group(SubscriptionGroupConfig { consume_timeout_minute: 7, attributes, ..group("g") });
    let ended = tokio::time::timeout(PATIENCE, waiting).await.expect("long before its time is over");
    let (code, mut peer) = ended.expect("a receive");
    assert_eq!(code, Code::MessageNotFound);
    world.brokers.hold_polls(false);
    peer.send(messages(1)).await;
    peer.receive(again).await;
    assert_eq!(last_pop(&world).invisible_time, 7 * 60_000);
    assert!(!own.is_finished() || own.await.is_ok(), "a duration that the client chose stays");
}

#[tokio::test]
async fn a_message_comes_as_it_was_sent() {
    let world = World::new().await;
    let mut peer = world.client("c", simple()).await;
    let mut sent = message("ID");
    sent.user_properties = [("größe", "中 文"), ("a/b", "007")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    sent.body = vec![0, 1, 2, 255].into();
    let system = sent.system_properties.as_mut().expect("system properties");
    system.tag = Some("T".into());
    system.keys = vec!["k1".into(), "k2".into()];
    peer.send(vec![sent.clone()]).await;
    let got = peer.receive(receive()).await.messages.remove(0);
    assert_eq!((&got.user_properties, &got.body), (&sent.user_properties, &sent.body));
    let system = got.system_properties.expect("system properties");
    assert_eq!((system.tag(), system.keys.as_slice()), ("T", &["k1".to_owned(), "k2".to_owned()][..]));
    assert_eq!((system.message_id.as_str(), system.born_host.as_str()), ("ID", "rawhost"));
    assert_eq!(system.delivery_attempt(), 1);
    assert_eq!(system.body_digest.map(|digest| digest.checksum), Some("0416DAB819887333AF831F8C765AC2AE".into()));
}
