//! `waybill topic`, `waybill group`.

use crate::support::{Dir, Standalone};

#[test]
fn a_topic_is_made_changed_shown_and_deleted() {
    let dir = Dir::new();
    let waybill = Standalone::start(dir.path(), &[]);
    let json = |words: &[&str]| waybill.admin(&[words, &["--output", "json"]].concat()).json();

    let made = json(&["topic", "create", "orders", "--type", "fifo", "--queues", "3"]);
    assert_eq!((&made["result"], &made["topic"]["messageType"]), (&"created".into(), &"FIFO".into()));
    assert_eq!(json(&["topic", "create", "orders"])["result"], "exists already", "nothing else was asked for");

    let refused = waybill.admin(&["topic", "create", "orders", "--queues", "5"]);
    refused.fails(1, &["the topic orders exists with other settings: type FIFO, 3 queues", "--update"]);
    let changed = json(&["topic", "create", "orders", "--queues", "5", "--update"]);
    assert_eq!((&changed["result"], &changed["topic"]["readQueues"]), (&"updated".into(), &5.into()));

    let shown = json(&["topic", "describe", "orders"]);
    assert_eq!(shown["messageType"], "FIFO", "what was not asked for stays");
    assert_eq!(shown["queues"].as_array().map(Vec::len), Some(5));
    assert_eq!(shown["queues"][4], serde_json::json!({"id": 4, "minOffset": 0, "nextOffset": 0}));
    let listed = json(&["topic", "list"]);
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");
    assert_eq!(listed[0]["name"], "orders");

    let text = waybill.admin(&["topic", "list"]).ok().out;
    assert!(text.starts_with("TOPIC   TYPE  QUEUES"), "{text}");
    waybill.admin(&["topic", "delete", "orders"]).ok();
    waybill.admin(&["topic", "describe", "orders"]).fails(1, &["there is no topic orders", "waybill topic list"]);
    waybill.admin(&["topic", "delete", "orders"]).fails(1, &["there is no topic orders"]);
    assert_eq!(json(&["topic", "list"]), serde_json::json!([]));
}

#[test]
fn a_topic_keeps_messages_for_a_time_of_its_own() {
    let dir = Dir::new();
    let waybill = Standalone::start(dir.path(), &[]);
    let json = |words: &[&str]| waybill.admin(&[words, &["--output", "json"]].concat()).json();
    let create = ["topic", "create", "orders", "--retention"];
    let describe = ["topic", "describe", "orders"];

    waybill.admin(&[&create[..], &["90m"]].concat()).fails(2, &["12h or 3d"]);
    let why = ["reserve.time is 96 hours", "72 hours at most (fileReservedTime)"];
    waybill.admin(&[&create[..], &["4d"]].concat()).fails(1, &why);
    assert_eq!(json(&["topic", "list"]), serde_json::json!([]), "it was not made without");
    let made = json(&[&create[..], &["36h"]].concat());
    assert_eq!((&made["result"], &made["topic"]["retentionHours"]), (&"created".into(), &36.into()));
    assert_eq!(json(&["topic", "create", "orders"])["result"], "exists already", "nothing else was asked for");
    waybill.admin(&[&create[..], &["2d"]].concat()).fails(1, &["messages kept for 36h", "--update"]);
    let text = waybill.admin(&describe).ok().out;
    assert!(text.contains("read-write, messages kept for 36h\n"), "{text}");

    waybill.admin(&[&create[..], &["2d", "--update"]].concat()).ok();
    let text = waybill.admin(&["topic", "list"]).ok().out;
    assert!(text.contains("RETENTION") && text.contains("read-write  2d"), "{text}");
    let shown = json(&describe);
    assert_eq!((&shown["retentionHours"], &shown["brokerRetentionHours"]), (&48.into(), &72.into()));
    assert_eq!(shown["attributes"], serde_json::json!({"message.type": "NORMAL", "reserve.time": "48"}));

    waybill.admin(&[&create[..], &["default", "--update"]].concat()).ok();
    assert_eq!(json(&describe)["attributes"], serde_json::json!({"message.type": "NORMAL"}));
    let text = waybill.admin(&describe).ok().out;
    assert!(text.contains("messages are kept for 3d, as of all topics of this broker"), "{text}");
    let made = json(&["topic", "create", "other", "--retention", "default"]);
    assert_eq!((&made["result"], made["topic"].get("retentionHours")), (&"created".into(), None));
}

#[test]
fn a_group_is_made_changed_shown_and_deleted() {
    let dir = Dir::new();
    let waybill = Standalone::start(dir.path(), &[]);
    let json = |words: &[&str]| waybill.admin(&[words, &["--output", "json"]].concat()).json();

    waybill.admin(&["group", "describe", "billing"]).fails(1, &["there is no group billing"]);
    assert_eq!(json(&["group", "list"]), serde_json::json!([]), "asking for a group does not make it");
    let made = json(&["group", "create", "billing", "--retry-max-times", "3"]);
    assert_eq!((&made["result"], &made["group"]["retryMaxTimes"]), (&"created".into(), &3.into()));
    assert_eq!(json(&["group", "create", "billing"])["result"], "exists already");
    let refused = waybill.admin(&["group", "create", "billing", "--orderly"]);
    refused.fails(1, &["the group billing exists with other settings: order any, 3 retries", "--update"]);
    assert_eq!(json(&["group", "create", "billing", "--orderly", "--update"])["result"], "updated");
    let shown = json(&["group", "describe", "billing"]);
    assert_eq!((&shown["orderly"], &shown["retryMaxTimes"]), (&true.into(), &3.into()));
    assert_eq!((&shown["deadLetters"], &shown["topics"]), (&0.into(), &serde_json::json!([])));
    let listed = json(&["group", "list"]);
    for (key, value) in listed[0].as_object().expect("a group") {
        assert_eq!(&shown[key], value, "list and describe say the same of {key}");
    }

    let options = ["--renew", "off", "--invisible-duration", "30s", "--batch-max", "10"];
    let refused = waybill.admin(&[&["group", "create", "billing"], &options[..]].concat());
    refused.fails(1, &["--update"]);
    let made = json(&[&["group", "create", "billing", "--update"], &options[..]].concat());
    let own = serde_json::json!({"renew": false, "invisibleTimeMillis": 30_000, "batchMaxNum": 10});
    assert_eq!((&made["result"], &made["group"]["overrides"]), (&"updated".into(), &own));
    json(&["group", "create", "billing", "--renew", "on", "--invisible-duration", "default", "--update"]);
    let shown = json(&["group", "describe", "billing"]);
    let own = serde_json::json!({"waybill.renew": "true", "waybill.batch.max": "10"});
    assert_eq!(shown["attributes"], own, "what was not named stays");
    let text = waybill.admin(&["group", "describe", "billing"]).ok().out;
    for line in ["renewal: on", "defaultInvisibleTimeMills", "in one batch at most: 10"] {
        assert!(text.contains(line), "{line:?} is missing in {text}");
    }
    waybill.admin(&["group", "create", "billing", "--renew", "perhaps"]).fails(2, &["on, off or default"]);

    waybill.admin(&["group", "delete", "billing"]).ok();
    assert_eq!(json(&["group", "list"]), serde_json::json!([]));
}

/// Sends so many messages and receives all of them with the handles of the leases.
fn receive(waybill: &Standalone, topic: &str, group: &str) -> Vec<serde_json::Value> {
    let words = ["message", "receive", "--topic", topic, "--group", group, "--max", "32", "--output", "json"];
    waybill.client(&words).json().as_array().cloned().unwrap_or_default()
}

#[test]
fn a_group_goes_on_elsewhere() {
    let dir = Dir::new();
    let waybill = Standalone::start(dir.path(), &[]);
    let json = |words: &[&str]| waybill.admin(&[words, &["--output", "json"]].concat()).json();
    waybill.admin(&["topic", "create", "orders", "--queues", "1"]).ok();
    waybill.admin(&["group", "create", "billing"]).ok();
    for n in 0..3 {
        waybill.client(&["message", "send", "--topic", "orders", "--body", &n.to_string()]).ok();
    }
    let reset = ["group", "reset", "--group", "billing", "--topic", "orders", "--to"];
    let dry = json(&[&reset[..], &["latest", "--dry-run"]].concat());
    assert_eq!(dry["queues"], serde_json::json!([{"id": 0, "from": null, "to": 3}]));
    assert_eq!((&dry["reset"], receive(&waybill, "orders", "billing").len()), (&false.into(), 3), "nothing was moved");
    let shown = json(&["group", "describe", "billing"]);
    assert_eq!((&shown["topics"][0]["lag"], &shown["topics"][0]["inFlight"]), (&3.into(), &3.into()));

    let done = json(&[&reset[..], &["latest"]].concat());
    assert_eq!(
        (&done["reset"], &done["queues"][0]["from"], &done["queues"][0]["to"]),
        (&true.into(), &0.into(), &3.into())
    );
    assert_eq!(json(&["group", "describe", "billing"])["topics"][0]["lag"], 0);
    let back = waybill.admin(&[&reset[..], &["1h"]].concat()).ok().out;
    assert!(
        back.contains("group billing goes on in topic orders at:\nQUEUE  WAS  IS  BY\n0      3    0   -3"),
        "{back}"
    );
    assert_eq!(receive(&waybill, "orders", "billing").len(), 3);
    let text = waybill.admin(&["group", "describe", "billing"]).ok().out;
    assert!(text.contains("TOPIC   LAG  READY  IN FLIGHT") && text.contains("orders  3    0      3"), "{text}");

    waybill.admin(&[&reset[..], &["soon"]].concat()).fails(2, &["earliest, latest or a time"]);
    waybill.admin(&[&reset[..], &["latest", "--queue", "7"]].concat()).fails(1, &["no queue 7"]);
    let absent = ["group", "reset", "--group", "absent", "--topic", "orders", "--to", "latest"];
    waybill.admin(&absent).fails(1, &["waybill group list"]);
}

#[test]
fn names_that_cannot_be_are_refused_before_anything_is_sent() {
    for words in [
        ["topic", "describe", "a b"].as_slice(),
        &["group", "create", "ä"],
        &["message", "send", "--topic", "a/b", "--body", "b"],
        &["message", "receive", "--topic", "t", "--group", "a b"],
        &["lease", "list", "--group", "a b"],
        &["group", "reset", "--group", "g", "--topic", "", "--to", "latest"],
    ] {
        crate::support::run(words).fails(2, &["letters, digits"]);
    }
}
