//! `waybill message`, `waybill lease`.

use serde_json::{Value, json};
use waybill_ops::clock;

use crate::support::{Dir, Standalone, run};

const HOUR_MS: i64 = 3_600_000;

const RECEIVE: [&str; 8] = ["message", "receive", "--topic", "orders", "--group", "billing", "--output", "json"];

fn leases(waybill: &Standalone) -> Value {
    waybill.admin(&["lease", "list", "--group", "billing", "--output", "json"]).json()["leases"].clone()
}

#[test]
fn a_message_goes_the_whole_way() {
    let dir = Dir::new();
    let waybill = Standalone::start(dir.path(), &[]);
    let send =
        ["message", "send", "--topic", "orders", "--body", "héllo", "--tag", "paid", "--key", "4711", "--key", "k2"];
    let sent = waybill.client(&[&send[..], &["--property", "région=eu=1", "--output", "json"]].concat()).json();

    let received = waybill.client(&RECEIVE).json();
    let message = &received[0];
    assert_eq!(received.as_array().map(Vec::len), Some(1), "{received}");
    assert_eq!(message["messageId"], sent["messageId"]);
    assert_eq!(message["body"], "héllo");
    assert_eq!((&message["tag"], &message["keys"]), (&"paid".into(), &json!(["4711", "k2"])));
    assert_eq!(message["properties"], json!({"région": "eu=1"}));
    assert_eq!((&message["deliveryAttempt"], &message["acked"]), (&1.into(), &false.into()));

    let held = leases(&waybill);
    assert_eq!(held.as_array().map(Vec::len), Some(1), "{held}");
    assert_eq!((&held[0]["topic"], &held[0]["attempts"]), (&"orders".into(), &1.into()));
    assert!(held[0]["holder"].as_str().is_some_and(|holder| holder.starts_with("waybill-receive@")), "{held}");
    let ends_in = held[0]["deadline"].as_i64().unwrap() - held[0]["popTime"].as_i64().unwrap();
    assert_eq!(ends_in, 30_000);
    let text = waybill.admin(&["lease", "list", "--group", "billing", "--topic", "orders"]).ok().out;
    assert!(text.contains("waybill-receive@"), "{text}");
    let other = waybill.admin(&["lease", "list", "--group", "billing", "--topic", "others", "--output", "json"]);
    assert!(other.code == Some(1) || other.json()["leases"] == json!([]), "another topic has no leases");

    let handle = message["receiptHandle"].as_str().unwrap();
    waybill.client(&["message", "ack", "--topic", "orders", "--group", "billing", handle]).ok();
    assert_eq!(leases(&waybill), json!([]));
    waybill
        .client(&["message", "ack", "--topic", "orders", "--group", "billing", "no handle"])
        .fails(1, &["INVALID_RECEIPT_HANDLE"]);
}

#[test]
fn receive_and_ack_in_one() {
    let dir = Dir::new();
    let waybill = Standalone::start(dir.path(), &[]);
    let body = dir.file("body", "from a file");
    let body = body.display().to_string();
    for _message in 0..3 {
        waybill.client(&["message", "send", "--topic", "orders", "--file", &body]).ok();
    }
    let mut seen = 0;
    while seen < 3 {
        let received = waybill.client(&[&RECEIVE[..], &["--max", "32", "--ack"]].concat()).json();
        let messages = received.as_array().unwrap();
        assert!(!messages.is_empty(), "three were sent, {seen} came");
        assert!(messages.iter().all(|m| m["acked"] == true && m["body"] == "from a file"), "{received}");
        seen += messages.len();
    }
    assert_eq!(leases(&waybill), json!([]));
}

#[test]
fn a_delayed_message_is_recalled() {
    let dir = Dir::new();
    let waybill = Standalone::start(dir.path(), &[]);
    waybill.admin(&["topic", "create", "later", "--type", "delay"]).ok();
    let send = ["message", "send", "--topic", "later", "--body", "b", "--delay", "1h", "--output", "json"];
    let before_ms = clock::now_ms();
    let sent = waybill.client(&send).json();
    assert_eq!(sent.get("queueOffset"), None, "it is in no queue yet");
    let due_ms = sent["deliveryTimestamp"].as_i64().expect("when it is due");
    assert!((before_ms + HOUR_MS..=clock::now_ms() + HOUR_MS).contains(&due_ms), "{due_ms}");
    let text = waybill.client(&["message", "send", "--topic", "later", "--body", "b", "--delay", "2h"]).ok().out;
    assert!(text.contains(" to later, to be delivered at 20") && text.contains("Z\n  recall handle "), "{text}");
    let describe = ["topic", "describe", "later"];
    let text = waybill.admin(&describe).ok().out;
    assert!(text.contains("\n2 delayed messages wait for their time\n"), "{text}");

    let id = sent["messageId"].as_str().expect("an id");
    let found = waybill.admin(&["message", "query", "--topic", "later", "--id", id]).ok();
    assert_eq!(found.out, "no message\n");
    let hint = format!("waybill message describe --topic later --id {id}");
    assert!(found.err.contains("2 messages of this topic are delayed") && found.err.contains(&hint), "{}", found.err);
    let handle = sent["recallHandle"].as_str().expect("a handle");
    let recall = ["message", "recall", "--topic", "later", handle, "--output", "json"];
    assert_eq!(waybill.client(&recall).json()["messageId"], sent["messageId"]);
    waybill.client(&recall).fails(1, &["MESSAGE_NOT_FOUND"]);
    assert_eq!(waybill.admin(&[&describe[..], &["--output", "json"]].concat()).json()["delayed"], 1);
    let text = waybill.admin(&describe).ok().out;
    assert!(text.contains("\n1 delayed message waits for its time\n"), "{text}");
    waybill
        .client(&["message", "send", "--topic", "later", "--body", "b", "--delay", "25h"])
        .fails(1, &["ILLEGAL_DELIVERY_TIME", "max is 86400000 ms (maxDelayTimeMills)"]);
}

#[test]
fn nobody_to_talk_to() {
    // A port that the system gives to nobody.
    let closed = "127.0.0.1:1";
    run(&["topic", "list", "--broker", closed]).fails(69, &["no broker at", closed, "--broker"]);
    run(&["message", "send", "--topic", "t", "--body", "b", "--endpoint", closed])
        .fails(69, &["nobody answers at", "--endpoint"]);
    let json = run(&["topic", "list", "--broker", closed, "--output", "json"]);
    let error: Value = serde_json::from_str(&json.err).expect("errors are JSON as well");
    assert_eq!((json.code, &error["error"]["kind"]), (Some(69), &"unavailable".into()));
}
