//! Telemetry, heartbeats and departures over the real gRPC server.
#![allow(clippy::expect_used, clippy::panic, reason = "tests say what they expect")]

mod grpc_common;

use grpc_common::broker::Fault;
use grpc_common::*;
use waybill_protocol::grpc::v2::{self, Code, Settings, settings::PubSub, telemetry_command::Command};
use waybill_protocol::remoting::{
    SubscriptionGroupConfig, VouchBody,
    codes::{own, request, response},
};
use waybill_sidecar::config::Config;

fn settings_of(answer: v2::TelemetryCommand) -> Settings {
    match answer.command {
        Some(Command::Settings(settings)) => settings,
        other => panic!("no settings but {other:?}"),
    }
}

fn fifo(settings: &Settings) -> Option<bool> {
    match &settings.pub_sub {
        Some(PubSub::Subscription(subscription)) => subscription.fifo,
        _ => None,
    }
}

async fn refused(world: &World, settings: Settings) -> tonic::Status {
    let mut peer = world.peer("c").await;
    peer.open(settings).await.expect_err("refused")
}

/// C17: the first answer tells whether the group is ordered.
#[tokio::test]
async fn the_first_answer_is_true() {
    let world = World::new().await;
    world.brokers.group(SubscriptionGroupConfig {
        consume_message_orderly: true,
        retry_max_times: 3,
        ..group("ordered")
    });
    for n in 0..20 {
        let mut peer = world.peer(&format!("c{n}")).await;
        let own = consumer("ordered", "t", v2::ClientType::PushConsumer);
        let answer = peer.open(own.clone()).await.expect("settings");
        assert_eq!(
            answer.status.as_ref().map(|status| (status.code(), status.message.as_str())),
            Some((Code::Ok, "OK"))
        );
        let settings = settings_of(answer);
        assert_eq!(fifo(&settings), Some(true));
        assert_eq!(settings.backoff_policy.as_ref().map(|policy| policy.max_attempts), Some(4));
        assert_eq!((settings.client_type, settings.access_point), (own.client_type, own.access_point));
        assert_eq!(settings.request_timeout, own.request_timeout);
    }
}

#[tokio::test]
async fn a_producer_may_name_topics_that_do_not_exist() {
    let world = World::new().await;
    let mut peer = world.peer("p").await;
    let settings = settings_of(peer.open(producer(&["nosuch"])).await.expect("settings"));
    let Some(PubSub::Publishing(publishing)) = settings.pub_sub else { panic!("no publishing") };
    assert_eq!((publishing.max_body_size, publishing.validate_message_type), (4_194_304, true));
    assert_eq!(publishing.topics, [resource("nosuch")]);
}

#[tokio::test]
async fn settings_that_are_refused_end_the_stream() {
    let world = World::new().await;
    let nothing = refused(&world, Settings::default()).await;
    assert_eq!(nothing.code(), tonic::Code::InvalidArgument);
    assert_eq!(nothing.message(), "there is no publishing or subscription data in settings");
    let group = refused(&world, consumer("bad group!", "t", v2::ClientType::SimpleConsumer)).await;
    assert_eq!(group.code(), tonic::Code::InvalidArgument);
    let words = "process client telemetryCommand failed. the specified group[bad group!] contains illegal characters, \
                 allowing only ^[%|a-zA-Z0-9_-]+$";
    assert_eq!(group.message(), words);
    for settings in [
        producer(&["bad topic!"]),
        consumer("g", "bad topic!", v2::ClientType::SimpleConsumer),
        Settings { client_properties: [("k".to_owned(), "v".repeat(200_000))].into(), ..simple() },
    ] {
        assert_eq!(refused(&world, settings).await.code(), tonic::Code::InvalidArgument);
    }
    assert_eq!(world.sessions.len(), 0);
    let nameless = tokio_stream::iter([command(simple())]);
    let status = world.connect().await.telemetry(nameless).await.expect_err("refused");
    assert_eq!((status.code(), status.message()), (tonic::Code::InvalidArgument, "client id cannot be empty"));
}

#[tokio::test]
async fn a_client_of_a_missing_group_is_told_when_it_receives_and_when_the_group_comes() {
    let world = World::with(forgetful()).await;
    let mut peer = world.client("c", consumer("late", "t", v2::ClientType::SimpleConsumer)).await;
    let request = v2::ReceiveMessageRequest { group: Some(resource("late")), ..receive() };
    assert_eq!(peer.receive(request.clone()).await.code(), Code::ConsumerGroupNotFound);
    assert_eq!(world.brokers.seen(request::POP_MESSAGE).len(), 0);
    world.brokers.group(SubscriptionGroupConfig { consume_message_orderly: true, ..group("late") });
    assert_eq!(fifo(&told_at_a_heartbeat(&mut peer).await), Some(true));
    assert_eq!(peer.receive(request).await.code(), Code::MessageNotFound);
}

/// What is known of groups is forgotten after a second.
fn forgetful() -> Config {
    Config {
        subscription_group_config_cache_expired_seconds: 1,
        subscription_group_config_cache_refresh_seconds: 1,
        ..config()
    }
}

async fn told_at_a_heartbeat(peer: &mut Peer) -> Settings {
    let mut telemetry = peer.telemetry.take().expect("a stream");
    let told = tokio::time::timeout(PATIENCE, async {
        loop {
            assert_eq!(peer.heartbeat().await, Code::Ok);
            // What is known of a group is remembered for a second.
            let told = tokio::time::timeout(std::time::Duration::from_millis(100), telemetry.answers.message()).await;
            if let Ok(told) = told {
                break told.expect("an element").expect("a command");
            }
        }
    });
    let told = settings_of(told.await.expect("told in time"));
    peer.telemetry = Some(telemetry);
    told
}

#[tokio::test]
async fn a_group_that_cannot_be_asked_for_is_not_guessed() {
    let world = World::with(forgetful()).await;
    world.brokers.group(SubscriptionGroupConfig { consume_message_orderly: true, ..group("ordered") });
    let own = consumer("ordered", "t", v2::ClientType::PushConsumer);
    world.brokers.fail(request::GET_SUBSCRIPTIONGROUP_CONFIG, Fault::Timeout);
    assert_eq!(refused(&world, own.clone()).await.code(), tonic::Code::Unavailable);
    let mut peer = world.client("c", own.clone()).await;
    assert_eq!(fifo(&settings_of(peer.open(own).await.expect("settings"))), Some(true));
}

#[tokio::test]
async fn headers_come_before_the_client_has_said_anything() {
    let world = World::new().await;
    let mut client = world.connect().await;
    let (_commands, silent) = tokio::sync::mpsc::channel::<v2::TelemetryCommand>(1);
    let silent = tokio_stream::wrappers::ReceiverStream::new(silent);
    let mut request = request_of("c", silent);
    // As Java does it: sixty years.
    request.metadata_mut().insert("grpc-timeout", "525600H".parse().expect("a header value"));
    let opened = tokio::time::timeout(PATIENCE, client.telemetry(request)).await;
    assert!(opened.expect("headers in time").is_ok());
}

#[tokio::test]
async fn a_client_that_does_not_read_hinders_nobody() {
    let world = World::new().await;
    let mut deaf = world.client("deaf", simple()).await;
    let telemetry = deaf.telemetry.take().expect("a stream");
    let flood = telemetry.commands.clone();
    let flooding = tokio::spawn(async move { while flood.send(command(simple())).await.is_ok() {} });
    for n in 0..50 {
        world.client(&format!("c{n}"), simple()).await;
    }
    flooding.abort();
    drop(telemetry);
}

#[tokio::test]
async fn answers_to_commands_that_were_not_sent_are_ignored() {
    let world = World::new().await;
    let mut peer = world.client("c", simple()).await;
    let telemetry = peer.telemetry.as_mut().expect("a stream");
    let odd = [
        None,
        Some(Command::ThreadStackTrace(v2::ThreadStackTrace { nonce: "1".into(), thread_stack_trace: None })),
        Some(Command::VerifyMessageResult(v2::VerifyMessageResult { nonce: "1".into() })),
        Some(Command::ReconnectEndpointsCommand(v2::ReconnectEndpointsCommand { nonce: "1".into() })),
    ];
    for command in odd {
        telemetry.commands.send(v2::TelemetryCommand { status: None, command }).await.expect("an open stream");
    }
    telemetry.commands.send(command(simple())).await.expect("an open stream");
    let answer = telemetry.answers.message().await.expect("an element").expect("an answer");
    assert_eq!(fifo(&settings_of(answer)), Some(false));
}

#[tokio::test]
async fn the_end_of_the_client_ends_the_stream() {
    let world = World::new().await;
    let mut peer = world.client("c", simple()).await;
    let mut telemetry = peer.telemetry.take().expect("a stream");
    drop(telemetry.commands);
    let ended = tokio::time::timeout(PATIENCE, telemetry.answers.message()).await.expect("it ends");
    assert_eq!(ended.expect("a good end"), None);
    assert_eq!(world.sessions.len(), 1, "the client is still known");
    assert_eq!(peer.heartbeat().await, Code::Ok);
}

#[tokio::test]
async fn a_stop_ends_telemetry() {
    let world = World::new().await;
    let mut peer = world.client("c", simple()).await;
    let mut telemetry = peer.telemetry.take().expect("a stream");
    world.stop.cancel();
    let ended = tokio::time::timeout(PATIENCE, telemetry.answers.message()).await.expect("it ends");
    assert_eq!(ended.expect("a good end"), None);
}

#[tokio::test]
async fn heartbeats_are_for_producers_and_consumers() {
    let world = World::new().await;
    for (kind, wanted) in [
        (v2::ClientType::SimpleConsumer, Code::Ok),
        (v2::ClientType::PushConsumer, Code::Ok),
        (v2::ClientType::LitePushConsumer, Code::Ok),
        (v2::ClientType::Unspecified, Code::Ok),
        (v2::ClientType::PullConsumer, Code::UnrecognizedClientType),
    ] {
        let mut peer = world.client(&format!("{kind:?}"), consumer("g", "t", kind)).await;
        assert_eq!(peer.heartbeat().await, wanted, "{kind:?}");
    }
    assert_eq!(world.client("p", producer(&["t"])).await.heartbeat().await, Code::Ok);
    let mut peer = world.client("c", simple()).await;
    let groupless = v2::HeartbeatRequest { group: None, client_type: 0 };
    let answer = peer.client.heartbeat(request_of("c", groupless)).await.expect("an answer").into_inner();
    assert_eq!(code(answer.status), Code::IllegalConsumerGroup);
}

#[tokio::test]
async fn a_change_of_the_group_is_told_at_the_next_heartbeat() {
    let world = World::with(forgetful()).await;
    let mut peer = world.client("c", simple()).await;
    world.brokers.group(SubscriptionGroupConfig { consume_message_orderly: true, retry_max_times: 2, ..group("g") });
    let settings = told_at_a_heartbeat(&mut peer).await;
    assert_eq!(fifo(&settings), Some(true));
    assert_eq!(settings.backoff_policy.map(|policy| policy.max_attempts), Some(3));
}

async fn hold(world: &World, peer: &mut Peer, count: usize) {
    peer.send(messages(count)).await;
    let request = v2::ReceiveMessageRequest { auto_renew: true, invisible_duration: None, ..receive() };
    assert_eq!(peer.receive(request).await.messages.len(), count);
    assert_eq!(world.brokers.leased("g"), count);
}

/// C09, first way out.
#[tokio::test]
async fn a_client_that_says_goodbye_gives_back_what_it_holds() {
    let world = World::new().await;
    let mut a = world.client("a", push()).await;
    hold(&world, &mut a, 10).await;
    let goodbye = v2::NotifyClientTerminationRequest { group: Some(resource("g")) };
    let answer = a.client.notify_client_termination(request_of("a", goodbye.clone())).await.expect("an answer");
    assert_eq!(code(answer.into_inner().status), Code::Ok);
    let answer = a.client.notify_client_termination(request_of("a", goodbye)).await.expect("an answer");
    assert_eq!(code(answer.into_inner().status), Code::UnrecognizedClientType);
    others_get_it(&world, 10).await;
}

async fn others_get_it(world: &World, count: usize) {
    let returned = || world.brokers.seen(request::CHANGE_MESSAGE_INVISIBLETIME).len() == count;
    world.until("all is returned", returned).await;
    world.clock.advance(1_001);
    let mut b = world.client("b", push()).await;
    let request = v2::ReceiveMessageRequest { auto_renew: true, invisible_duration: None, ..receive() };
    assert_eq!(b.receive(request).await.messages.len(), count);
}

/// C09, second: the process dies, and with it its connection.
#[tokio::test]
async fn a_client_whose_connection_broke_is_gone_after_a_grace() {
    let world = World::new().await;
    let mut a = world.client("a", push()).await;
    hold(&world, &mut a, 10).await;
    drop(a);
    let mut returned = 0;
    world
        .until("the server notices, and the grace is over", || {
            world.clock.advance(10);
            let sessions = world.sessions.clone();
            tokio::spawn(async move { sessions.sweep().await });
            returned = world.brokers.seen(request::CHANGE_MESSAGE_INVISIBLETIME).len();
            returned == 10
        })
        .await;
    assert!(world.sessions.profile("a").is_some(), "it may come back");
    others_get_it(&world, 10).await;
}

/// The client's load balancer gave it another sidecar: nothing of it is returned, and the leases it has from here live on.
#[tokio::test]
async fn a_client_that_moved_to_another_sidecar_is_not_gone() {
    let world = World::new().await;
    let mut a = world.client("a", push()).await;
    let mut b = world.client("b", push()).await;
    hold(&world, &mut a, 3).await;
    world.brokers.is_elsewhere("a");
    a.telemetry = None;
    b.telemetry = None;
    for _ in 0..12 {
        world.until("the streams are seen to close", || true).await;
        world.clock.advance(10_000);
        world.sessions.sweep().await;
    }
    assert_eq!(world.receipts.stats().held, 3, "also when it was silent for so long that it is forgotten");
    assert_eq!(world.brokers.seen(request::CHANGE_MESSAGE_INVISIBLETIME).len(), 0, "nothing was given back");
    let asked = world.brokers.seen(own::VOUCH_FOR_CLIENTS);
    let gone: Vec<String> = asked.iter().flat_map(|asked| asked.json::<VouchBody>().expect("a body").gone).collect();
    assert!(gone.contains(&"a".to_owned()) && gone.contains(&"b".to_owned()));
}

/// The network to the broker is cut, and the client went to a sidecar that reaches it. This one must not give back, when the
/// network is there again, what a living client holds.
#[tokio::test]
async fn a_client_of_which_the_broker_did_not_say_where_it_is_is_asked_about_again() {
    for moved in [true, false] {
        let world = World::new().await;
        let mut a = world.client("a", push()).await;
        hold(&world, &mut a, 3).await;
        a.telemetry = None;
        // Both brokers, asked twice.
        for _ in 0..4 {
            world.brokers.fail(own::VOUCH_FOR_CLIENTS, Fault::Timeout);
        }
        for _ in 0..12 {
            if world.brokers.seen(own::VOUCH_FOR_CLIENTS).is_empty() {
                world.until("the stream is seen to close", || true).await;
                world.clock.advance(10_000);
                world.sessions.sweep().await;
            }
        }
        world.sessions.ask_again().await;
        assert_eq!(world.brokers.seen(own::VOUCH_FOR_CLIENTS).len(), 4);
        let returned = || world.brokers.seen(request::CHANGE_MESSAGE_INVISIBLETIME).len();
        assert_eq!((returned(), world.receipts.stats().returning), (0, 0), "nobody knows");
        if moved {
            world.brokers.is_elsewhere("a");
        }
        world.sessions.ask_again().await;
        if moved {
            assert_eq!((returned(), world.receipts.stats().returning, world.receipts.stats().held), (0, 0, 3));
        } else {
            world.until("all is returned", || returned() == 3).await;
        }
        world.sessions.ask_again().await;
        assert_eq!(world.brokers.seen(own::VOUCH_FOR_CLIENTS).len(), 6, "it is known now");
    }
}

/// The published Python client asks for messages without waiting for the answer to its settings.
#[tokio::test]
async fn a_receive_that_overtook_the_settings_waits_for_them() {
    const TRIES: usize = 5;
    let world = World::new().await;
    world
        .connect()
        .await
        .send_message(request_of("p", v2::SendMessageRequest { messages: messages(1) }))
        .await
        .expect("sent");
    // It waits for a second, by the clock of the machine, which may stand still meanwhile; but not each time.
    for n in 0..TRIES {
        let id = format!("early-{n}");
        let mut early = world.peer(&id).await;
        let answer = async { early.receive(v2::ReceiveMessageRequest { auto_renew: false, ..receive() }).await };
        let settings = async {
            tokio::task::yield_now().await;
            world.client(&id, simple()).await
        };
        let (answer, _stream) = tokio::join!(answer, settings);
        match answer.code() {
            Code::UnrecognizedClientType => {}
            _ => return assert_eq!(answer.messages.len(), 1),
        }
    }
    panic!("none was waited for");
}

/// C11: its sidecar is another one now, and it sends this one no settings. It may hold messages of the other.
#[tokio::test]
async fn a_consumer_that_goes_on_without_settings_counts_as_alive_and_is_served_in_the_end() {
    let world = World::new().await;
    tokio::spawn(world.sessions.clone().run(world.stop.clone()));
    let mut peer = world.peer("moved").await;
    peer.send(messages(1)).await;
    assert_eq!(world.brokers.seen(own::VOUCH_FOR_CLIENTS).len(), 0, "who sends holds nothing");
    let request = || v2::ReceiveMessageRequest { auto_renew: true, invisible_duration: None, ..receive() };
    assert_eq!(peer.receive(request()).await.code(), Code::UnrecognizedClientType);
    let told = || world.brokers.seen(own::VOUCH_FOR_CLIENTS);
    world.until("brokers are told", || !told().is_empty()).await;
    assert_eq!(told()[0].json::<VouchBody>().expect("a body").alive, ["moved"]);
    world.clock.advance(4_999);
    assert_eq!(peer.receive(request()).await.code(), Code::UnrecognizedClientType);
    assert_eq!(peer.heartbeat().await, Code::UnrecognizedClientType);
    assert_eq!(world.brokers.seen(request::POP_MESSAGE).len(), 0);
    world.clock.advance(1);
    assert_eq!(peer.receive(request()).await.messages.len(), 1);
    assert_eq!(world.receipts.stats().held, 1, "its leases are kept as for everybody");
    assert_eq!(peer.heartbeat().await, Code::Ok);
    world.clock.advance(14_999);
    world.sessions.sweep().await;
    assert_eq!(world.brokers.seen(request::CHANGE_MESSAGE_INVISIBLETIME).len(), 0);
    world.clock.advance(1);
    world.sessions.sweep().await;
    let returned = || world.brokers.seen(request::CHANGE_MESSAGE_INVISIBLETIME).len() == 1;
    world.until("without a heartbeat it is gone", returned).await;
}

#[tokio::test]
async fn a_client_that_reopens_its_stream_in_time_keeps_what_it_holds() {
    let world = World::new().await;
    let mut a = world.client("a", push()).await;
    hold(&world, &mut a, 3).await;
    a.telemetry = None;
    world.clock.advance(4_000);
    a.open(push()).await.expect("settings");
    for _ in 0..10 {
        world.clock.advance(4_000);
        world.sessions.sweep().await;
    }
    assert_eq!(world.receipts.stats().held, 3);
    assert_eq!(world.brokers.seen(request::CHANGE_MESSAGE_INVISIBLETIME).len(), 0);
}

#[tokio::test]
async fn a_client_without_heartbeats_is_forgotten() {
    let world = World::new().await;
    let mut a = world.client("a", push()).await;
    hold(&world, &mut a, 3).await;
    world.clock.advance(50_000);
    world.sessions.sweep().await;
    assert_eq!(a.heartbeat().await, Code::Ok);
    world.clock.advance(119_999);
    world.sessions.sweep().await;
    assert_eq!(world.sessions.len(), 1);
    world.clock.advance(1);
    world.sessions.sweep().await;
    assert_eq!(world.sessions.len(), 0);
    assert_eq!(a.heartbeat().await, Code::UnrecognizedClientType);
    world.until("what it held is no longer kept", || world.receipts.stats().held == 0).await;
}

#[tokio::test]
async fn a_poll_keeps_its_client_alive() {
    let world = World::new().await;
    let mut a = world.client("a", push()).await;
    world.brokers.hold_polls(true);
    let mut poller = Peer { client: a.client.clone(), id: "a".into(), credentials: None, telemetry: None };
    let waiting = tokio::spawn(async move { poller.receive(receive()).await });
    world.until("the poll waits", || world.brokers.seen(request::POP_MESSAGE).len() == 1).await;
    a.telemetry = None;
    for _ in 0..10 {
        world.clock.advance(60_000);
        world.sessions.sweep().await;
    }
    assert_eq!(world.sessions.len(), 1);
    world.brokers.hold_polls(false);
    assert_eq!(waiting.await.expect("a receive").code(), Code::MessageNotFound);
}

#[tokio::test]
async fn the_answer_of_a_busy_broker_does_not_forget_a_client() {
    let world = World::new().await;
    let mut peer = world.client("c", simple()).await;
    world.brokers.fail(request::GET_SUBSCRIPTIONGROUP_CONFIG, Fault::Code(response::SYSTEM_BUSY));
    assert_eq!(peer.heartbeat().await, Code::Ok);
    assert_eq!(peer.receive(receive()).await.code(), Code::MessageNotFound);
}
