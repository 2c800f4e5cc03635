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
    assert_eq!((&shown["consumeMessageOrderly"], &shown["retryMaxTimes"]), (&true.into(), &3.into()));

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
