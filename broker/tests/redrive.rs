//! Dead letters that go back: once, to the group that gave up on them, as the messages that they were.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use serde_json::{Value, json};
use support::{Got, LIMIT, Rig};
use waybill_protocol::message::properties;
use waybill_protocol::remoting::codes::{own, request};
use waybill_protocol::remoting::{Command, DeleteTopicRequestHeader, SubscriptionGroupConfig};

async fn ask(rig: &Rig, fields: &[(&str, &str)], ids: &[&str]) -> Value {
    let mut command = Command::request(own::REDRIVE_DEAD_LETTERS);
    command.ext.set("consumerGroup", "g");
    for (name, value) in fields {
        command.ext.set(name, *value);
    }
    if !ids.is_empty() {
        command = command.with_body(serde_json::to_vec(&json!({ "ids": ids })).unwrap());
    }
    serde_json::from_slice(&rig.ok(command).await.body).unwrap()
}

fn ids(answer: &Value, field: &str) -> Vec<String> {
    answer[field].as_array().unwrap().iter().map(|letter| letter["messageId"].as_str().unwrap().to_owned()).collect()
}

/// Group "g" gives up after one attempt on these messages of topic "t".
async fn dead(messages: &[&str]) -> Rig {
    let rig = Rig::new();
    rig.topic("t", 2).await;
    rig.group_with(SubscriptionGroupConfig { group_name: "g".into(), retry_max_times: 0, ..Default::default() }).await;
    for id in messages {
        rig.send_tagged("t", id, "tag").await;
    }
    die(&rig, messages.len()).await;
    rig
}

/// Lets everything that there is for the group die.
async fn die(rig: &Rig, count: usize) {
    assert_eq!(rig.pop("g", "t", 32, 1_000).await.len(), count);
    rig.clock.advance(1_000);
    assert!(rig.pop("g", "t", 32, 1_000).await.is_empty());
}

async fn letters(rig: &Rig) -> u64 {
    let mut command = Command::request(own::COUNT_MESSAGES);
    command.ext.set("consumerGroup", "g");
    let counts: Value = serde_json::from_slice(&rig.ok(command).await.body).unwrap();
    counts["groups"][0]["deadLetters"].as_u64().unwrap()
}

#[tokio::test]
async fn a_letter_goes_back_as_the_message_that_it_was() {
    let rig = dead(&["a"]).await;
    rig.group("undertaker").await;
    let letter = rig.pop("undertaker", "%DLQ%g", 1, 60_000).await.remove(0);
    assert_eq!(letters(&rig).await, 1);
    rig.clock.advance(500);
    let answer = ask(&rig, &[], &[]).await;
    assert_eq!(
        (ids(&answer, "moved"), &answer["refused"], &answer["next"]),
        (vec!["a".into()], &json!([]), &Value::Null)
    );
    assert_eq!(letters(&rig).await, 0);
    let got = rig.pop("g", "t", 32, 60_000).await;
    assert_eq!((got.len(), got[0].id(), got[0].attempt()), (1, "a".to_owned(), 1));
    let (was, is) = (&letter.message, &got[0].message);
    assert_eq!((&is.body, is.born_timestamp, is.born_host), (&was.body, was.born_timestamp, was.born_host));
    assert_eq!(is.topic, "t");
    let property = |name| properties::get(&is.properties, name);
    assert_eq!(property(properties::TAGS), Some("tag"));
    for name in [properties::DLQ_ORIGIN_TOPIC, properties::DLQ_ORIGIN_MESSAGE_ID, properties::REAL_TOPIC] {
        assert_eq!(property(name), None, "{name}");
    }
    assert_eq!(ask(&rig, &[], &[]).await["moved"], json!([]), "not twice");
    let rig = rig.reopen();
    assert_eq!(ask(&rig, &[], &[]).await["moved"], json!([]), "nor after a restart");
    assert_eq!(letters(&rig).await, 0);
}

/// It was for one group, so the others that read the topic do not get it again.
#[tokio::test]
async fn only_the_group_that_gave_up_gets_it() {
    let rig = dead(&["a", "b"]).await;
    rig.group("other").await;
    assert_eq!(rig.drain_ids("other", "t").await, ["a", "b"]);
    ask(&rig, &[], &[]).await;
    rig.group("late").await;
    assert!(rig.pop("other", "t", 32, 60_000).await.is_empty());
    assert_eq!(rig.drain_ids("late", "t").await, ["a", "b"], "what was sent, and nothing that was redriven");
    assert_eq!(rig.drain_ids("g", "t").await, ["a", "b"]);
}

#[tokio::test]
async fn who_waits_is_woken() {
    let rig = dead(&["a"]).await;
    let work = async {
        let (answer, _) = tokio::join!(rig.poll("g", "t", 1), async {
            rig.until_waiting("g", "t", 1).await;
            ask(&rig, &[], &[]).await
        });
        assert_eq!(support::got(&answer)[0].id(), "a");
    };
    tokio::time::timeout(LIMIT, work).await.expect("woken");
}

#[tokio::test]
async fn one_some_or_those_of_before() {
    let rig = dead(&["a", "b", "c", "d", "e"]).await;
    let dry = ask(&rig, &[("dryRun", "true"), ("max", "2")], &[]).await;
    assert_eq!(ids(&dry, "moved").len(), 2);
    assert!(rig.pop("g", "t", 32, 1_000).await.is_empty(), "nothing happened");
    assert_eq!(ids(&ask(&rig, &[], &["c", "absent"]).await, "moved"), ["c"]);
    let some = ask(&rig, &[("max", "2")], &[]).await;
    assert_eq!(ids(&some, "moved").len(), 2);
    let (queue, offset) = (some["next"][0].to_string(), some["next"][1].to_string());
    let rest = ask(&rig, &[("queueId", &queue), ("offset", &offset)], &[]).await;
    let mut all = [ids(&some, "moved"), ids(&rest, "moved")].concat();
    all.sort();
    assert_eq!(all, ["a", "b", "d", "e"]);
    let until = rest["now"].to_string();
    die(&rig, 5).await;
    assert_eq!(letters(&rig).await, 5, "they died again");
    let again = ask(&rig, &[("storedUntil", &until)], &[]).await;
    assert_eq!(again["moved"], json!([]), "those that died since are another matter");
    assert_eq!(ids(&ask(&rig, &[], &[]).await, "moved").len(), 5);
    assert_eq!(rig.drain_ids("g", "t").await, ["a", "b", "c", "d", "e"]);
}

/// Who reads the dead letters as a topic sees one that died twice, too.
#[tokio::test]
async fn what_dies_again_is_a_letter_for_everybody() {
    let rig = dead(&["a"]).await;
    ask(&rig, &[], &[]).await;
    die(&rig, 1).await;
    rig.group("undertaker").await;
    let read = rig.pop("undertaker", "%DLQ%g", 32, 60_000).await;
    assert_eq!(read.iter().map(Got::id).collect::<Vec<_>>(), ["a", "a"]);
    let origin = |got: &Got| properties::get(&got.message.properties, properties::DLQ_ORIGIN_TOPIC).map(str::to_owned);
    assert_eq!(read.iter().map(origin).collect::<Vec<_>>(), [Some("t".to_owned()), Some("t".to_owned())]);
}

#[tokio::test]
async fn what_cannot_go_back_is_told_and_stays() {
    let rig = dead(&["a"]).await;
    rig.group_with(SubscriptionGroupConfig { group_name: "h".into(), retry_max_times: 0, ..Default::default() }).await;
    assert_eq!(rig.pop("h", "%DLQ%g", 1, 1_000).await.len(), 1);
    rig.clock.advance(1_000);
    assert!(rig.pop("h", "%DLQ%g", 1, 1_000).await.is_empty());
    let of_h = ask(&rig, &[("consumerGroup", "h")], &[]).await;
    assert_eq!(of_h["moved"], json!([]));
    let reason = of_h["refused"][0]["refused"].as_str().unwrap();
    assert!(reason.contains("redrive group g"), "{reason}");

    let topic = DeleteTopicRequestHeader { topic: "t".into(), only_if_empty: None };
    rig.ok(Command::request(request::DELETE_TOPIC_IN_BROKER).with_header(&topic)).await;
    let answer = ask(&rig, &[], &[]).await;
    assert_eq!((&answer["moved"], ids(&answer, "refused")), (&json!([]), vec!["a".to_owned()]));
    let reason = answer["refused"][0]["refused"].as_str().unwrap();
    assert!(reason.contains("no topic t"), "{reason}");
    assert_eq!(letters(&rig).await, 1, "it is still there");
    rig.topic("t", 1).await;
    assert_eq!(ids(&ask(&rig, &[], &[]).await, "moved"), ["a"], "and goes back once its topic is there again");
}

#[tokio::test]
async fn messages_of_a_group_go_back_to_their_queue_in_order() {
    let rig = Rig::new();
    rig.topic("t", 4).await;
    let group = |retries| SubscriptionGroupConfig {
        group_name: "g".into(),
        retry_max_times: retries,
        consume_message_orderly: true,
        ..Default::default()
    };
    rig.group_with(group(0)).await;
    for id in ["a", "b", "c"] {
        rig.send_in_group("t", id, "order-1").await;
    }
    for _ in 0..3 {
        assert_eq!(rig.pop("g", "t", 1, 1_000).await.len(), 1);
        rig.clock.advance(1_000);
    }
    assert!(rig.pop("g", "t", 1, 1_000).await.is_empty());
    assert_eq!(ids(&ask(&rig, &[], &[]).await, "moved"), ["a", "b", "c"]);
    rig.group_with(group(3)).await;
    assert_eq!(rig.drain_in_order("g", "t").await, ["a", "b", "c"]);
}

/// Redrives at the same time move each letter once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn at_the_same_time_each_letter_goes_back_once() {
    let names: Vec<String> = (0..30).map(|n| format!("m{n:02}")).collect();
    let rig = dead(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let some = || async { ids(&ask(&rig, &[("max", "7")], &[]).await, "moved") };
    let mut moved = Vec::new();
    for _ in 0..2 {
        let (a, b, c, d) = tokio::join!(some(), some(), some(), some());
        moved.extend([a, b, c, d].concat());
    }
    moved.sort();
    assert_eq!(moved, names);
    assert_eq!(rig.drain_ids("g", "t").await, names);
}

#[tokio::test]
async fn wrong_requests_are_refused() {
    let rig = dead(&["a"]).await;
    let call = |fields: &[(&str, &str)], body: &'static str| {
        let mut command = Command::request(own::REDRIVE_DEAD_LETTERS).with_body(body);
        for (name, value) in fields {
            command.ext.set(name, *value);
        }
        rig.call(command)
    };
    assert_eq!(call(&[], "").await.code, 29);
    assert_eq!(call(&[("consumerGroup", "absent")], "").await.code, 26);
    assert_eq!(call(&[("consumerGroup", "g"), ("max", "many")], "").await.code, 29);
    assert_eq!(call(&[("consumerGroup", "g")], "[").await.code, 29);
    rig.group("h").await;
    assert_eq!(ask(&rig, &[("consumerGroup", "h")], &[]).await["moved"], json!([]), "it has no dead letters");
}
