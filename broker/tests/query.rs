//! Finding messages: by id, by key, by place, between two times, within bounds; and what is said of them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use serde_json::{Value, json};
use support::{Rig, START_MS};
use waybill_broker::FlushDiskType;
use waybill_broker::core::{Query, Wanted};
use waybill_broker::limits;
use waybill_protocol::message::{BatchItem, encode_batch, properties};
use waybill_protocol::remoting::codes::{own, request, response};
use waybill_protocol::remoting::{
    Command, DeleteTopicRequestHeader, SendMessageRequestHeader, SubscriptionGroupConfig, ViewMessageRequestHeader,
};

fn for_key(key: &str) -> Query {
    let wanted = Wanted::Key(key.into());
    Query { topic: "t".into(), wanted, since_ms: 0, until_ms: i64::MAX - 1, max: 64 }
}

fn for_id(id: &str) -> Query {
    Query { wanted: Wanted::Id(id.into()), ..for_key("") }
}

async fn found(rig: &Rig, query: &Query) -> Vec<String> {
    let answer = rig.broker.core().query(query).await.unwrap();
    let id = |payload: &[u8]| {
        let raw = waybill_protocol::message::peek_properties(payload).unwrap().to_owned();
        properties::get(&raw, properties::UNIQ_KEY).unwrap().to_owned()
    };
    answer.matches.iter().map(|found| id(&found.payload)).collect()
}

/// Sends with keys, and more properties.
async fn send(rig: &Rig, id: &str, keys: &str, more: &[(&str, &str)]) -> String {
    let plain = Rig::send_command("t", id, None, id);
    let mut header = SendMessageRequestHeader::decode_v2(&plain.ext).unwrap();
    let raw = header.properties.as_mut().unwrap();
    properties::set(raw, properties::KEYS, keys);
    for (name, value) in more {
        properties::set(raw, name, value);
    }
    let command = Command::request(request::SEND_MESSAGE_V2).with_header(&header).with_body(plain.body);
    rig.ok(command).await.ext.get("msgId").unwrap().to_owned()
}

async fn rig() -> Rig {
    let rig = Rig::new();
    rig.topic("t", 3).await;
    rig.group_with(SubscriptionGroupConfig { group_name: "g".into(), retry_max_times: 0, ..Default::default() }).await;
    rig
}

#[tokio::test]
async fn keys_are_words_and_the_newest_comes_first() {
    let rig = rig().await;
    for n in 0..9 {
        send(&rig, &format!("m{n}"), if n % 2 == 0 { "even all" } else { "odd all" }, &[]).await;
        rig.clock.advance(1_000);
    }
    assert_eq!(found(&rig, &for_key("odd")).await, ["m7", "m5", "m3", "m1"]);
    assert_eq!(found(&rig, &Query { max: 2, ..for_key("even") }).await, ["m8", "m6"]);
    assert_eq!(found(&rig, &for_key("al")).await, [""; 0]);
    assert_eq!(found(&rig, &for_key("odd all")).await, [""; 0]);
    let between = Query { since_ms: START_MS + 3_000, until_ms: START_MS + 5_000, ..for_key("all") };
    assert_eq!(found(&rig, &between).await, ["m5", "m4", "m3"]);
    assert!(rig.broker.core().query(&Query { topic: "absent".into(), ..between }).await.is_err());
}

/// Ids of the official clients say when they were made: everything stored well before is not even looked at.
#[tokio::test]
async fn an_id_narrows_the_search_by_its_time() {
    let rig = rig().await;
    for n in 0..50 {
        send(&rig, &format!("old{n}"), "k", &[]).await;
    }
    rig.clock.advance(3_600_000);
    let seconds = (START_MS + 3_600_000 - 1_609_459_200_000) / 1_000;
    let id = format!("01AABBCCDDEEFF1234{seconds:08X}00000001");
    send(&rig, &id, "k", &[]).await;
    rig.clock.advance(3_600_000);
    send(&rig, "young", "k", &[]).await;
    let answer = rig.broker.core().query(&for_id(&id)).await.unwrap();
    assert_eq!((answer.matches.len(), answer.looked_at, answer.oldest_first), (1, 2, true));
    assert_eq!(answer.since_ms, START_MS + 3_600_000 - 600_000);
    assert_eq!(found(&rig, &for_id("old7")).await, ["old7"], "other ids are looked for everywhere");
}

#[tokio::test]
async fn the_brokers_id_says_where_a_message_lies() {
    let rig = rig().await;
    let ids = [send(&rig, "a", "k", &[]).await, send(&rig, "b", "k", &[]).await];
    for (id, name) in ids.iter().zip(["a", "b"]) {
        let answer = rig.broker.core().query(&for_id(id)).await.unwrap();
        assert_eq!((answer.matches.len(), answer.looked_at), (1, 1));
        assert_eq!(found(&rig, &for_id(&id.to_lowercase())).await, [name]);
    }
    rig.topic("u", 1).await;
    assert_eq!(found(&rig, &Query { topic: "u".into(), ..for_id(&ids[0]) }).await, [""; 0], "of another topic");
    let forged = format!("{}{:016X}", &ids[0][..16], 7);
    assert_eq!(found(&rig, &for_id(&forged)).await, [""; 0]);
}

/// What was deleted is not found, neither by its place nor under a new topic of the same name.
#[tokio::test]
async fn a_topic_that_is_made_again_shows_nothing_of_the_old_one() {
    let rig = rig().await;
    let id = send(&rig, "a", "k", &[]).await;
    let position = waybill_protocol::message::offset_of_msg_id(&id).unwrap();
    let view = async |rig: &Rig| {
        let header = ViewMessageRequestHeader { offset: position, topic: None };
        rig.call(Command::request(request::VIEW_MESSAGE_BY_ID).with_header(&header)).await.code
    };
    assert_eq!(view(&rig).await, response::SUCCESS);
    assert_eq!(rig.drain_ids("g", "t").await, ["a"]);
    let topic = DeleteTopicRequestHeader { topic: "t".into(), only_if_empty: None };
    rig.ok(Command::request(request::DELETE_TOPIC_IN_BROKER).with_header(&topic)).await;
    assert_eq!(view(&rig).await, response::SYSTEM_ERROR);
    rig.topic("t", 3).await;
    let mut rig = rig;
    for _ in 0..2 {
        assert_eq!(view(&rig).await, response::SYSTEM_ERROR);
        assert_eq!(found(&rig, &for_id("a")).await, [""; 0]);
        assert_eq!(found(&rig, &for_id(&id)).await, [""; 0]);
        assert_eq!(found(&rig, &for_key("k")).await, [""; 0]);
        assert!(rig.pop("g", "t", 32, 1_000).await.is_empty());
        assert!(describe(&rig, "a").await["messages"].as_array().unwrap().is_empty());
        rig = rig.reopen();
    }
    send(&rig, "b", "k", &[]).await;
    assert_eq!(found(&rig, &for_key("k")).await, ["b"]);
    assert_eq!(rig.drain_ids("g", "t").await, ["b"]);
}

/// One search ends at its bound and says where; going on there finds the rest.
#[tokio::test]
async fn a_search_is_bounded_and_can_be_gone_on_with() {
    // It takes many messages, and what is searched need not be on disk.
    let rig = Rig::with(|config| config.flush_disk_type = FlushDiskType::Async);
    rig.topic("t", 3).await;
    send(&rig, "needle", "rare", &[]).await;
    let many = limits::QUERY_LOOK_MAX + 100;
    for n in 0..many {
        if n % 100 == 0 {
            rig.clock.advance(1);
        }
        rig.send("t", "straw").await;
    }
    let first = rig.broker.core().query(&for_key("rare")).await.unwrap();
    assert_eq!((first.matches.len(), first.looked_at), (0, limits::QUERY_LOOK_MAX));
    let cut_at = first.cut_at.expect("it was cut");
    let rest = rig.broker.core().query(&Query { until_ms: cut_at, ..for_key("rare") }).await.unwrap();
    assert_eq!((rest.matches.len(), rest.cut_at), (1, None));
}

async fn describe(rig: &Rig, id: &str) -> Value {
    let mut command = Command::request(own::DESCRIBE_MESSAGE);
    command.ext.set("topic", "t");
    command.ext.set("messageId", id);
    serde_json::from_slice(&rig.ok(command).await.body).unwrap()
}

/// The states of each group, as (group, state).
fn states(described: &Value) -> Vec<(String, String)> {
    let groups = described["messages"][0]["groups"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    groups.iter().map(|group| (text(&group["group"]), text(&group["state"]))).collect()
}

#[tokio::test]
async fn a_message_is_described_through_its_life() {
    let rig = rig().await;
    let state = async |rig: &Rig| states(&describe(rig, "a").await).remove(0).1;
    send(&rig, "a", "k1 k2", &[("colour", "red")]).await;
    let fresh = describe(&rig, "a").await;
    let message = &fresh["messages"][0];
    assert_eq!(
        (&message["topic"], &message["state"], &message["bodyBytes"]),
        (&json!("t"), &json!("Stored"), &json!(1))
    );
    assert_eq!(message["properties"], json!({"UNIQ_KEY": "a", "KEYS": "k1 k2", "colour": "red"}));
    assert_eq!((&message["storeTimestamp"], &message["groups"]), (&json!(START_MS), &json!([])), "nobody reads it");
    assert!(rig.pop("g", "t", 1, 1_000).await.len() == 1);
    assert_eq!(state(&rig).await, "Inflight");
    rig.clock.advance(1_000);
    assert_eq!(state(&rig).await, "Ready");
    assert!(rig.pop("g", "t", 1, 1_000).await.is_empty());
    assert_eq!(state(&rig).await, "DLQ");
    rig.group("other").await;
    let got = rig.pop("other", "t", 1, 60_000).await.remove(0);
    let mut give_back = Command::request(request::CHANGE_MESSAGE_INVISIBLETIME);
    for (name, value) in [("consumerGroup", "other"), ("topic", "t"), ("changedBy", "client"), ("offset", "0")] {
        give_back.ext.set(name, value);
    }
    give_back.ext.set_number("queueId", got.handle.queue_id);
    give_back.ext.set_number("invisibleTime", 5_000);
    give_back.ext.set("extraInfo", got.handle.to_string());
    rig.ok(give_back.clone()).await;
    let both = states(&describe(&rig, "a").await);
    assert_eq!(both, [("g".into(), "DLQ".into()), ("other".into(), "WaitingRetry".into())]);
    give_back.ext.set("changedBy", "extension");
    rig.ok(give_back).await;
    assert_eq!(states(&describe(&rig, "a").await)[1].1, "Inflight", "a simple consumer holds it until then");
    rig.ack("other", "t", &got.handle).await;
    assert_eq!(states(&describe(&rig, "a").await)[1].1, "Commit");
    assert_eq!(describe(&rig, "absent").await["messages"], json!([]));
}

/// Delayed messages and halves are found before they are in any queue.
#[tokio::test]
async fn what_waits_is_described_too() {
    let rig = rig().await;
    let due = START_MS + 60_000;
    send(&rig, "later", "k", &[(properties::TIMER_DELIVER_MS, &due.to_string())]).await;
    let described = describe(&rig, "later").await;
    let message = &described["messages"][0];
    assert_eq!((&message["state"], &message["due"]), (&json!("Timing"), &json!(due)));
    assert!(message["offset"].is_null(), "{message}");
    assert_eq!(found(&rig, &for_id("later")).await, [""; 0], "a query finds what is in a queue");
    // Many of another topic that are due before it.
    rig.topic("noise", 1).await;
    let sooner = format!("{}\u{1}{}", properties::TIMER_DELIVER_MS, START_MS + 1);
    let noise: Vec<_> =
        (0..1_024).map(|_| BatchItem { flag: 0, body: "x".into(), properties: sooner.clone() }).collect();
    let plain = Rig::send_command("noise", "n", None, "n");
    let header =
        SendMessageRequestHeader { batch: Some(true), ..SendMessageRequestHeader::decode_v2(&plain.ext).unwrap() };
    for _ in 0..3 {
        let body = encode_batch(&noise).unwrap();
        rig.ok(Command::request(request::SEND_BATCH_MESSAGE).with_header(&header).with_body(body)).await;
    }
    assert_eq!(describe(&rig, "later").await["messages"][0]["state"], "Timing");
}
