//! Topics and brokers that change while a route to them is remembered.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI32, Ordering},
    },
    time::Duration,
};

use futures::future::join_all;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tokio::time::advance;
use waybill_ops::{clock::ManualClock, config::Live};
use waybill_protocol::remoting::{
    Command, JsonBody, TopicRouteData,
    codes::{request, response},
};
use waybill_sidecar::{
    backend::{
        BackendError, BackendMetrics, Filter, FilterKind, MessageService, PopRequest, PopStatus, SendRequest,
        Transport, TransportError,
    },
    config::Config,
    limits,
    route::TopicRoute,
};

use crate::{
    scripted::{Answer, Scripted, cluster, ok, popped, refuse, route, route_of, service, stored},
    service::{send_request, sent},
};

const SECOND: Duration = Duration::from_secs(1);

/// Lets tasks that wait for nothing but each other come to rest.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

fn queue_of(command: &Command) -> i32 {
    command.ext.get("e").and_then(|queue| queue.parse().ok()).expect("a queue")
}

/// A topic on broker `a` whose number of queues can be changed.
fn resizable(queues: &Arc<AtomicI32>) -> Arc<Scripted> {
    let queues = Arc::clone(queues);
    Scripted::new(move |_, command| {
        let queues = queues.load(Ordering::SeqCst);
        match command.code {
            request::GET_ROUTEINFO_BY_TOPIC => route(&["a"], queues),
            request::GET_BROKER_CLUSTER_INFO => cluster(&["a"]),
            _ if queue_of(command) >= queues => refuse(response::INVALID_PARAMETER, "request queueId is illegal"),
            _ => Ok(sent(1)),
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_send_to_a_queue_that_went_away_finds_the_new_route_at_once() {
    let queues = Arc::new(AtomicI32::new(8));
    let transport = resizable(&queues);
    let setup = service(transport.clone(), |_| {});
    setup.service.send(send_request(1)).await.expect("stored");
    advance(SECOND).await;
    queues.store(1, Ordering::SeqCst);
    let all = join_all((0..32).map(|_| setup.service.send(send_request(1)))).await;
    assert!(all.iter().all(Result::is_ok), "{all:?}");
    assert_eq!(transport.count(request::GET_ROUTEINFO_BY_TOPIC), 2, "one look-up for all that were refused");
    queues.store(8, Ordering::SeqCst);
    let grouped = SendRequest { message_group: Some("g".into()), ..send_request(1) };
    setup.service.send(grouped.clone()).await.expect("stored");
    advance(20 * SECOND).await;
    setup.service.send(send_request(1)).await.expect("stored");
    settle().await;
    queues.store(1, Ordering::SeqCst);
    advance(SECOND).await;
    setup.service.send(grouped).await.expect("stored where the group lives now");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_no_newer_route_explains_is_told() {
    let transport = Scripted::new(|_, command| match command.code {
        request::GET_ROUTEINFO_BY_TOPIC => route(&["a", "b"], 4),
        _ => refuse(response::NO_PERMISSION, "no"),
    });
    let setup = service(transport.clone(), |_| {});
    for second in 1..=3 {
        for _ in 0..10 {
            let refused = setup.service.send(send_request(1)).await.err();
            assert_eq!(refused, Some(BackendError::NoPermission("no".into())));
        }
        assert_eq!(transport.count(request::GET_ROUTEINFO_BY_TOPIC), second, "at most once a second");
        assert_eq!(transport.count(request::SEND_MESSAGE_V2), 20 * second, "each broker is asked once");
        advance(SECOND).await;
    }
}

/// Brokers `a` and `b`; those in `has` have the topic.
fn moving(has: &Arc<Mutex<Vec<&'static str>>>) -> Arc<Scripted> {
    let has = Arc::clone(has);
    Scripted::new(move |address, command| {
        let has = has.lock().clone();
        match command.code {
            request::GET_ROUTEINFO_BY_TOPIC if has.is_empty() => refuse(response::TOPIC_NOT_EXIST, "no"),
            request::GET_ROUTEINFO_BY_TOPIC => route(&has, 2),
            request::GET_BROKER_CLUSTER_INFO => cluster(&["a", "b"]),
            _ if !has.iter().any(|name| address == format!("{name}:10911")) => refuse(response::TOPIC_NOT_EXIST, "no"),
            request::POP_MESSAGE => {
                let lists = [("startOffsetInfo", "0 0 7"), ("msgOffsetInfo", "0 0 7")];
                Ok(popped(&[stored("T", 0, 7, "UNIQ_KEY\u{1}id\u{2}")], &lists))
            }
            _ => Ok(sent(1)),
        }
    })
}

fn pop_from(broker: &str) -> PopRequest {
    PopRequest {
        client_id: "client".into(),
        group: "G".into(),
        topic: "T".into(),
        broker_name: Some(broker.into()),
        max_messages: 32,
        invisible_ms: 60_000,
        poll_ms: 0,
        filter: Filter { kind: FilterKind::Tag, expression: "*".into() },
        fifo: false,
        attempt_id: None,
        subscribed_topics: None,
    }
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_left_a_broker_is_used_where_it_still_is() {
    let has = Arc::new(Mutex::new(vec!["a", "b"]));
    let transport = moving(&has);
    let setup = service(transport.clone(), |_| {});
    assert_eq!(setup.service.pop(pop_from("a")).await.map(|popped| popped.status), Ok(PopStatus::Found));
    *has.lock() = vec!["b"];
    advance(SECOND).await;
    assert_eq!(setup.service.pop(pop_from("a")).await.map(|popped| popped.status), Ok(PopStatus::Found));
    let polled: Vec<_> = transport.asked(request::POP_MESSAGE).into_iter().map(|(address, _)| address).collect();
    assert_eq!(polled, ["a:10911", "a:10911", "b:10911"]);
    *has.lock() = vec!["a"];
    advance(SECOND).await;
    for _ in 0..8 {
        assert_eq!(setup.service.send(send_request(1)).await.map(|sent| sent.broker_name), Ok("a".into()));
    }
    has.lock().clear();
    advance(SECOND).await;
    let gone = Some(BackendError::TopicNotFound("T".into()));
    assert_eq!(setup.service.send(send_request(1)).await.err(), gone);
    assert_eq!(setup.service.route("T").await.err(), gone, "that it is gone is known to all");
    assert_eq!(transport.count(request::GET_ROUTEINFO_BY_TOPIC), 4);
}

/// Two brokers, each the only one who knows its own part of each topic.
fn pair(a_is_down: &Arc<AtomicBool>) -> Arc<Scripted> {
    let down = Arc::clone(a_is_down);
    Scripted::new(move |address, command| {
        let name = address.split_once(':').map_or(address, |(name, _)| name);
        match command.code {
            _ if name == "a" && down.load(Ordering::SeqCst) => Err(TransportError::Unreachable("down".into())),
            request::GET_ROUTEINFO_BY_TOPIC => route(&[name], 1),
            request::GET_BROKER_CLUSTER_INFO => cluster(&[name]),
            _ => Ok(sent(1)),
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_is_back_is_used_again_within_three_seconds() {
    let down = Arc::new(AtomicBool::new(false));
    let transport = pair(&down);
    let setup = service(transport.clone(), |config| config.namesrv_addr = "a:10911;b:10911".into());
    let topics = ["T", "U"];
    for topic in topics {
        assert_eq!(setup.service.route(topic).await.expect("a route").broker_names(), ["a", "b"]);
    }
    down.store(true, Ordering::SeqCst);
    let outage = 30;
    for _ in 0..outage {
        advance(SECOND).await;
        settle().await;
        for topic in topics {
            let request = SendRequest { topic: topic.into(), ..send_request(1) };
            assert_eq!(setup.service.send(request).await.map(|sent| sent.broker_name), Ok("b".into()));
        }
    }
    let asked = |code| transport.asked(code).iter().filter(|(address, _)| address == "a:10911").count();
    let (watched, routes) = (asked(request::GET_BROKER_CLUSTER_INFO), asked(request::GET_ROUTEINFO_BY_TOPIC));
    assert!((20..=2 * outage).contains(&watched), "about once a second: {watched}");
    assert!(routes <= 10, "not for every topic: {routes}");

    down.store(false, Ordering::SeqCst);
    for _ in 0..2 {
        advance(SECOND).await;
        settle().await;
        for topic in topics {
            setup.service.route(topic).await.expect("a route");
        }
        settle().await;
    }
    for topic in topics {
        assert_eq!(setup.service.route(topic).await.expect("a route").broker_names(), ["a", "b"], "{topic}");
    }
    let watched = asked(request::GET_BROKER_CLUSTER_INFO);
    advance(10 * SECOND).await;
    settle().await;
    assert_eq!(asked(request::GET_BROKER_CLUSTER_INFO), watched, "one that answers is not watched");
}

#[tokio::test(start_paused = true)]
async fn topics_take_turns_each_on_its_own() {
    let transport = Scripted::new(|_, command| match command.code {
        request::GET_ROUTEINFO_BY_TOPIC => route(&["a", "b"], 4),
        request::GET_BROKER_CLUSTER_INFO => cluster(&["a", "b"]),
        _ => Ok(sent(1)),
    });
    let setup = service(transport.clone(), |_| {});
    for _ in 0..8 {
        for topic in ["T", "U"] {
            let request = SendRequest { topic: topic.into(), ..send_request(1) };
            setup.service.send(request).await.expect("stored");
        }
        // Also a topic whose route is looked up anew between two sends uses all its queues.
        advance(25 * SECOND).await;
        settle().await;
    }
    let mut used: BTreeMap<String, BTreeSet<(String, i32)>> = BTreeMap::new();
    for (address, command) in transport.asked(request::SEND_MESSAGE_V2) {
        let topic = command.ext.get("b").expect("a topic").to_owned();
        used.entry(topic).or_default().insert((address, queue_of(&command)));
    }
    assert!(used.values().all(|queues| queues.len() == 8), "{used:?}");
}

/// What the service says of itself after it was asked for the route of T.
async fn metrics_after_a_route(transport: Arc<dyn Transport>, namesrv_addr: &str) -> String {
    let metrics = BackendMetrics::default();
    let mut registry = Registry::default();
    metrics.register(&mut registry);
    let config = Config { namesrv_addr: namesrv_addr.into(), ..Config::default() };
    let service = MessageService::new(transport, Arc::new(Live::fixed(config)), Arc::new(ManualClock::new(0)), metrics);
    service.route("T").await.expect("a route");
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).expect("encodes");
    text
}

fn at(address: &str, queues: i32) -> Answer {
    let mut said: TopicRouteData = route_of("x", queues, 6);
    said.broker_datas[0].broker_addrs = [(0, address.to_owned())].into();
    Ok(ok().with_body(said.to_json()))
}

#[tokio::test]
async fn two_brokers_of_one_name_are_counted() {
    let two = Scripted::new(|address, _| at(address, 1));
    let text = metrics_after_a_route(two, "a:1;b:1").await;
    assert!(text.contains("waybill_sidecar_broker_name_conflicts_total 1\n"), "{text}");
    let one = Scripted::new(|_, _| at("a:1", 1));
    let text = metrics_after_a_route(one, "a:1;b:1").await;
    assert!(text.contains("waybill_sidecar_broker_name_conflicts_total 0\n"), "two name servers that agree: {text}");
}

#[tokio::test]
async fn a_route_cannot_claim_memory_without_end() {
    let liar = || route_of("liar", i32::MAX, 6);
    let merged = TopicRoute::merge([liar(), route_of("honest", 8, 6)]);
    let of =
        |route: &TopicRoute, name: &str| route.write_queues().iter().filter(|queue| queue.broker_name == name).count();
    assert_eq!((of(&merged, "liar"), of(&merged, "honest")), (limits::BROKER_QUEUES, 8));
    assert_eq!(merged.left_out(), i32::MAX as u64 - limits::BROKER_QUEUES as u64);
    let many = (0..50).map(|n| route_of(&format!("liar-{n}"), i32::MAX, 6));
    assert_eq!(TopicRoute::merge(many).write_queues().len(), limits::ROUTE_QUEUES);
    assert_eq!(TopicRoute::merge([route_of("none", -5, 6)]).left_out(), 0);

    let transport = Scripted::new(|address, _| at(address, 5_000));
    let text = metrics_after_a_route(transport, "a:1").await;
    assert!(text.contains("waybill_sidecar_route_queues_left_out_total 904\n"), "{text}");
}
