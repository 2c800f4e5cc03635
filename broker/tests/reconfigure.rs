//! Keys that a running broker takes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use serde_json::Value;
use support::{Rig, config};
use waybill_broker::BrokerConfig;
use waybill_protocol::remoting::Command;
use waybill_protocol::remoting::codes::{own, request, response};

fn file(rig: &Rig, change: impl FnOnce(&mut BrokerConfig)) -> BrokerConfig {
    let mut file = config(rig.dir.path());
    change(&mut file);
    file
}

fn route() -> Command {
    let mut ask = Command::request(request::GET_ROUTEINFO_BY_TOPIC);
    ask.ext.set("topic", "t");
    ask
}

async fn permission(rig: &Rig) -> Value {
    let route: Value = serde_json::from_slice(&rig.ok(route()).await.body).unwrap();
    route["queueDatas"][0]["perm"].clone()
}

#[tokio::test]
async fn a_broker_that_is_to_go_offers_no_queue_to_write_and_gives_out_what_it_has() {
    let (rig, got) = Rig::with_messages(3).await;
    let read_only = file(&rig, |file| file.read_only_brokers = vec!["broker-a".into()]);
    assert!(rig.broker.reconfigure(&read_only).unwrap().is_empty());
    assert_eq!(permission(&rig).await, 4);
    let refused = rig.call(Rig::send_command("t", "late", None, "late")).await;
    assert_eq!(refused.code, response::NO_PERMISSION);
    assert_eq!(rig.ack("g", "t", &got[0].handle).await, response::SUCCESS);
    rig.clock.advance(60_000);
    assert_eq!(rig.drain_ids("g", "t").await, ["m001", "m002"]);
    let left: Value = serde_json::from_slice(&rig.ok(Command::request(own::COUNT_LEFT)).await.body).unwrap();
    assert_eq!((&left["permission"], &left["inFlight"]), (&4.into(), &2.into()));

    assert!(rig.broker.reconfigure(&file(&rig, |_| {})).unwrap().is_empty());
    assert_eq!(permission(&rig).await, 6);
    rig.send("t", "again").await;
}

#[tokio::test]
async fn limits_count_from_then_on_and_the_rest_waits_for_a_restart() {
    let (rig, _got) = Rig::with_messages(1).await;
    let changed = file(&rig, |file| {
        file.max_message_size = 4;
        file.client_gone_after = 5_000;
    });
    assert_eq!(rig.broker.reconfigure(&changed).unwrap(), ["clientGoneAfter"]);
    let refused = rig.call(Rig::send_command("t", "long", None, "longer than four bytes")).await;
    assert_eq!(refused.code, response::MESSAGE_ILLEGAL);
    assert_eq!(rig.broker.in_force().client_gone_after, 30_000);
}

#[tokio::test]
async fn what_does_not_fit_to_what_counts_since_the_start_changes_nothing() {
    let rig = Rig::with(|config| {
        config.mapped_file_size_commit_log = 1 << 20;
        config.max_message_size = 1 << 18;
    });
    let changed = file(&rig, |file| file.max_message_size = 4 << 20);
    assert_eq!(rig.broker.reconfigure(&changed).unwrap_err().key, "maxMessageSize");
    assert_eq!(rig.broker.in_force().max_message_size, 1 << 18);
}
