//! Where topics are looked for, and what is remembered.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::advance;
use tokio_util::sync::CancellationToken;
use waybill_ops::{clock::ManualClock, config::Live};
use waybill_protocol::remoting::{
    ClusterInfo, Command, JsonBody,
    codes::{request, response},
};
use waybill_sidecar::{
    backend::{BackendError, BackendMetrics, MessageService, SendRequest, TransportError},
    config::Config,
    route::{TopicRoute, WriteQueue},
};

use crate::{
    scripted::{Answer, Scripted, cluster, lease, ok, refuse, route, route_of, service, two_brokers},
    service::send_request,
};

fn sources(config: &mut Config) {
    config.namesrv_addr = "a:1;b:1;c:1".into();
}

#[tokio::test]
async fn every_source_is_asked_and_the_answers_are_merged() {
    let transport = Scripted::new(|address, _| match address {
        "a:1" => Ok(ok().with_body(route_of("broker-2", 2, 6).to_json())),
        "b:1" => Ok(ok().with_body(route_of("broker-1", 1, 4).to_json())),
        _ => refuse(response::TOPIC_NOT_EXIST, ""),
    });
    let route = service(transport.clone(), sources).service.route("T").await.expect("a route");
    assert_eq!(route.broker_names(), ["broker-1", "broker-2"]);
    let queue = |queue_id| WriteQueue { broker_name: "broker-2".into(), queue_id };
    assert_eq!(route.write_queues(), [queue(0), queue(1)], "broker-1 is only readable");
    assert_eq!(route.readable_brokers(), ["broker-1", "broker-2"]);
    let asked = transport.asked(request::GET_ROUTEINFO_BY_TOPIC);
    assert_eq!(asked.len(), 3);
    for (_, command) in asked {
        assert_eq!((command.ext.get("topic"), command.ext.get("acceptStandardJsonOnly")), (Some("T"), Some("true")));
    }
}

#[test]
fn the_same_broker_from_two_sources_is_one_broker() {
    let first = route_of("broker", 4, 6);
    let mut second = route_of("broker", 8, 4);
    for broker in &mut second.broker_datas {
        broker.broker_addrs = [(0, "other:1".to_owned()), (1, "replica:1".to_owned())].into();
    }
    let merged = TopicRoute::merge([first, second]);
    assert_eq!((merged.queues.len(), merged.brokers.len()), (1, 1));
    assert_eq!(merged.write_queues().len(), 4, "the first source is believed");
    let addresses: Vec<&str> = merged.brokers[0].broker_addrs.values().map(String::as_str).collect();
    assert_eq!(addresses, ["broker:10911", "replica:1"], "the second may add");
}

#[test]
fn only_brokers_with_a_master_and_the_right_take_messages() {
    let mut replica_only = route_of("a", 2, 6);
    replica_only.broker_datas[0].broker_addrs = [(1, "a:1".to_owned())].into();
    let mut without_address = route_of("b", 2, 6);
    without_address.broker_datas.clear();
    let merged = TopicRoute::merge([
        replica_only,
        without_address,
        route_of("c", 2, 4),
        route_of("d", 2, 2),
        route_of("e", 1, 6),
    ]);
    let queues: Vec<&str> = merged.write_queues().iter().map(|queue| queue.broker_name.as_str()).collect();
    assert_eq!(queues, ["d", "d", "e"]);
    assert_eq!(merged.readable_brokers(), ["a", "c", "e"]);
}

#[tokio::test]
async fn a_topic_is_missing_only_if_every_source_says_so() {
    let missing = Scripted::new(|_, _| refuse(response::TOPIC_NOT_EXIST, ""));
    let result = service(missing, sources).service.route("T").await;
    assert_eq!(result.err(), Some(BackendError::TopicNotFound("T".into())));

    let one_is_down = Scripted::new(|address, _| match address {
        "b:1" => Err(TransportError::Unreachable("down".into())),
        _ => refuse(response::TOPIC_NOT_EXIST, ""),
    });
    let result = service(one_is_down, sources).service.route("T").await;
    assert!(matches!(result, Err(BackendError::Unavailable(_))), "{result:?}");

    let one_is_up = Scripted::new(|address, _| match address {
        "b:1" => route(&["broker"], 1),
        _ => Err(TransportError::Unreachable("down".into())),
    });
    assert!(service(one_is_up, sources).service.route("T").await.is_ok());

    let unreadable = Scripted::new(|_, _| Ok(ok().with_body("{")));
    let result = service(unreadable, sources).service.route("T").await;
    assert!(matches!(result, Err(BackendError::Other { .. })), "{result:?}");
}

#[tokio::test]
async fn a_broker_is_found_by_its_name() {
    let transport = two_brokers(|_, _| Ok(ok()));
    let setup = service(transport.clone(), |_| {});
    // No topic was ever asked for: the handle alone names the broker.
    assert_eq!(setup.service.ack(vec![lease("b", 1)]).await, [Ok(())]);
    assert_eq!(transport.asked(request::ACK_MESSAGE)[0].0, "b:10911");

    for name in ["nobody", "no-one", "nobody"] {
        let result = setup.service.ack(vec![lease(name, 1)]).await;
        assert!(matches!(result.as_slice(), [Err(BackendError::InvalidReceiptHandle(why))] if why.contains(name)));
    }
    assert_eq!(transport.count(request::GET_BROKER_CLUSTER_INFO), 1, "however many names clients make up");
    assert_eq!(transport.count(request::GET_ROUTEINFO_BY_TOPIC), 0, "which could create topics of these names");
}

#[tokio::test(start_paused = true)]
async fn a_new_broker_is_known_a_second_later_and_one_that_was_taken_out_is_forgotten() {
    let names: Arc<parking_lot::Mutex<Vec<&'static str>>> = Arc::new(vec!["a"].into());
    let now = Arc::clone(&names);
    let transport = Scripted::new(move |address, command| match command.code {
        request::GET_BROKER_CLUSTER_INFO => cluster(&now.lock()),
        _ if address == "a:10911" && !now.lock().contains(&"a") => Err(TransportError::Unreachable("gone".into())),
        _ => Ok(ok()),
    });
    let setup = service(transport, |_| {});
    let invalid = |results: Vec<Result<(), BackendError>>| {
        assert!(matches!(results.as_slice(), [Err(BackendError::InvalidReceiptHandle(_))]), "{results:?}");
    };
    invalid(setup.service.ack(vec![lease("b", 1)]).await);
    assert_eq!(setup.service.ack(vec![lease("a", 1)]).await, [Ok(())]);
    *names.lock() = vec!["b"];
    advance(Duration::from_secs(1)).await;
    assert_eq!(setup.service.ack(vec![lease("b", 1)]).await, [Ok(())]);
    let unreachable = setup.service.ack(vec![lease("a", 1)]).await;
    assert!(matches!(unreachable.as_slice(), [Err(BackendError::Unavailable(_))]), "{unreachable:?}");
    invalid(setup.service.ack(vec![lease("a", 1)]).await);
}

#[tokio::test]
async fn a_broker_whose_source_is_silent_may_exist() {
    let transport = Scripted::new(|address, command| match (address, command.code) {
        ("a:1", request::GET_BROKER_CLUSTER_INFO) => cluster(&["broker-a"]),
        (_, request::GET_BROKER_CLUSTER_INFO) => Err(TransportError::Timeout),
        _ => Ok(ok()),
    });
    let setup = service(transport, sources);
    assert_eq!(setup.service.ack(vec![lease("broker-a", 1)]).await, [Ok(())]);
    let result = setup.service.ack(vec![lease("broker-b", 1)]).await;
    assert_eq!(result, [Err(BackendError::Timeout)], "not a bad handle: the client tries again");
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_moved_is_found_after_its_connection_failed() {
    let moved = Arc::new(AtomicBool::new(false));
    let there = Arc::clone(&moved);
    let transport = Scripted::new(move |address, command| {
        let moved = there.load(Ordering::SeqCst);
        match (command.code, address) {
            (request::GET_BROKER_CLUSTER_INFO, _) => {
                let mut data = route_of("a", 1, 6).broker_datas.remove(0);
                if moved {
                    data.broker_addrs = [(0, "new:10911".to_owned())].into();
                }
                let broker_addr_table = [("a".to_owned(), data)].into();
                Ok(ok().with_body(ClusterInfo { broker_addr_table, ..ClusterInfo::default() }.to_json()))
            }
            (_, "a:10911") if moved => Err(TransportError::Connection("reset".into())),
            (_, "a:10911" | "new:10911") => Ok(ok()),
            _ => Err(TransportError::Unreachable(address.to_owned())),
        }
    });
    let setup = service(transport.clone(), |_| {});
    assert_eq!(setup.service.ack(vec![lease("a", 1)]).await, [Ok(())]);
    advance(Duration::from_secs(2)).await;
    moved.store(true, Ordering::SeqCst);
    let failed = setup.service.ack(vec![lease("a", 2)]).await;
    assert!(matches!(failed.as_slice(), [Err(BackendError::Unavailable(_))]), "{failed:?}");
    assert_eq!(setup.service.ack(vec![lease("a", 2)]).await, [Ok(())], "the new address, at once");
    assert_eq!(
        transport.asked(request::ACK_MESSAGE).last().map(|(address, _)| address.clone()),
        Some("new:10911".into())
    );
}

#[tokio::test(start_paused = true)]
async fn others_are_asked_as_soon_as_the_configuration_names_them() {
    let transport = Scripted::new(|address, command| match (address, command.code) {
        ("a-0:10911", request::GET_ROUTEINFO_BY_TOPIC) => route(&["a-0"], 1),
        ("a-1:10911", request::GET_ROUTEINFO_BY_TOPIC) => route(&["a-1"], 1),
        (_, request::GET_BROKER_CLUSTER_INFO) => cluster(&["a-0", "a-1"]),
        _ => Err(TransportError::Unreachable(address.to_owned())),
    });
    let dir = tempfile::tempdir().expect("directory");
    let (path, next) = (dir.path().join("sidecar.yaml"), dir.path().join("next"));
    let write = |sources: &str| {
        let text = format!("namesrvAddr: {sources}\n");
        std::fs::write(&next, text).and_then(|()| std::fs::rename(&next, &path)).expect("write");
    };
    write("a-0:10911");
    let live = Arc::new(Live::<Config>::load(&path).expect("valid"));
    let stop = CancellationToken::new();
    let watching = tokio::spawn(Arc::clone(&live).watch(stop.clone()));
    let clock = Arc::new(ManualClock::new(1_000_000));
    let service = MessageService::new(transport.clone(), live, clock, BackendMetrics::default());
    let brokers = async || {
        let before = service.route("T").await.map(|route| route.broker_names());
        // What is out of date is used while it is looked up again.
        tokio::time::sleep(Duration::from_millis(1)).await;
        let after = service.route("T").await.map(|route| route.broker_names());
        (before, after)
    };
    let (first, second) = (vec!["a-0".to_owned()], vec!["a-1".to_owned()]);
    let both = vec!["a-0".to_owned(), "a-1".to_owned()];
    assert_eq!(brokers().await, (Ok(first.clone()), Ok(first.clone())));
    write("a-0:10911;a-1:10911");
    // Well before a route is looked up again by itself.
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(brokers().await, (Ok(first), Ok(both.clone())));
    write("a-1:10911");
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(brokers().await, (Ok(both), Ok(second)));

    // One that falls silent and is then none any more is not asked for ever.
    write("a-1:10911;gone:10911");
    tokio::time::sleep(Duration::from_secs(4)).await;
    let _looked_up = brokers().await;
    write("a-1:10911");
    tokio::time::sleep(Duration::from_secs(4)).await;
    let asked =
        || transport.asked(request::GET_BROKER_CLUSTER_INFO).iter().filter(|(to, _)| to == "gone:10911").count();
    let before = asked();
    assert!(before > 0, "it was watched while it was one");
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(asked(), before);
    stop.cancel();
    watching.await.expect("no panic");
}

#[tokio::test]
async fn sends_pass_over_a_broker_that_cannot_be_reached_but_not_one_that_may_have_acted() {
    let answer = |failure: TransportError| -> Arc<Scripted> {
        two_brokers(move |address, _: &Command| -> Answer {
            match address {
                "a:10911" => Err(failure.clone()),
                _ => Ok(crate::service::sent(1)),
            }
        })
    };
    let unreachable = answer(TransportError::Unreachable("down".into()));
    let setup = service(unreachable.clone(), |_| {});
    for _ in 0..8 {
        let sent = setup.service.send(send_request(1)).await.expect("the other broker takes it");
        assert_eq!(sent.broker_name, "b");
    }
    let grouped = SendRequest { message_group: Some("g".into()), ..send_request(1) };
    let outcomes: Vec<bool> = [
        setup.service.send(SendRequest { message_group: Some("g1".into()), ..grouped.clone() }).await.is_ok(),
        setup.service.send(SendRequest { message_group: Some("g2".into()), ..grouped.clone() }).await.is_ok(),
        setup.service.send(SendRequest { message_group: Some("g3".into()), ..grouped.clone() }).await.is_ok(),
        setup.service.send(SendRequest { message_group: Some("g4".into()), ..grouped }).await.is_ok(),
    ]
    .into();
    assert!(outcomes.contains(&false), "the order of a message group is kept: {outcomes:?}");

    let cut = answer(TransportError::Connection("cut".into()));
    let setup = service(cut.clone(), |_| {});
    let mut failures = 0;
    for _ in 0..8 {
        failures += usize::from(setup.service.send(send_request(1)).await.is_err());
    }
    assert_eq!(failures, 4, "half of the queues are at the broken broker, and nothing is sent twice");
    assert_eq!(cut.count(request::SEND_MESSAGE_V2), 8);
}

#[tokio::test]
async fn sends_pass_over_a_broker_that_takes_no_messages_any_more() {
    let transport = two_brokers(|address, _: &Command| match address {
        "a:10911" => refuse(response::NO_PERMISSION, "it is about to go"),
        _ => Ok(crate::service::sent(1)),
    });
    let setup = service(transport.clone(), |_| {});
    for _ in 0..8 {
        let sent = setup.service.send(send_request(1)).await.expect("the other broker takes it");
        assert_eq!(sent.broker_name, "b");
    }
    let all = two_brokers(|_, _: &Command| refuse(response::NO_PERMISSION, "it is about to go"));
    let refused = service(all, |_| {}).service.send(send_request(1)).await;
    assert_eq!(refused.err(), Some(BackendError::NoPermission("it is about to go".into())));
}
