//! `waybill lease`.

use serde_json::{Value, json};

use crate::support::{Dir, Standalone, run, until};

fn receive(waybill: &Standalone, topic: &str, wanted: usize) -> Vec<Value> {
    let mut received = Vec::new();
    while received.len() < wanted {
        let words = ["message", "receive", "--topic", topic, "--group", "billing", "--max", "32", "--output", "json"];
        received.extend(waybill.client(&words).json().as_array().expect("a list").iter().cloned());
    }
    received
}

fn holding(waybill: &Standalone, topic: &str, count: usize) -> Vec<Value> {
    for _message in 0..count {
        waybill.client(&["message", "send", "--topic", topic, "--body", "x"]).ok();
    }
    receive(waybill, topic, count)
}

#[test]
fn leases_are_listed_extended_and_released() {
    let dir = Dir::new();
    let waybill = Standalone::start(dir.path(), &[]);
    let json = |words: &[&str]| waybill.admin(&[words, &["--output", "json"]].concat()).json();
    holding(&waybill, "orders", 2);
    let invoices = holding(&waybill, "invoices", 1);

    let all = json(&["lease", "list"]);
    assert_eq!(all["leases"].as_array().map(Vec::len), Some(3), "{all}");
    let first = all["leases"][0].clone();
    assert!(first["holder"].as_str().is_some_and(|name| !name.is_empty()), "{all}");
    // Their sidecar answers a goodbye before it passes it on.
    until("who has said goodbye is not waited for", || json(&["lease", "list"])["watched"] == json!({}));
    assert_eq!(json(&["lease", "list", "--topic", "orders"])["leases"].as_array().map(Vec::len), Some(2));
    assert_eq!(json(&["lease", "list", "--client", "nobody"])["leases"], json!([]));
    let text = waybill.admin(&["lease", "list"]).ok().out;
    for shown in ["HOLDER", "as received", "CONSUME TIMEOUT", "sidecar's", "15m"] {
        assert!(text.contains(shown), "{shown} is not in {text}");
    }
    assert_eq!((&first["changes"], &first["renewals"], &first["changedBy"]), (&0.into(), &0.into(), &Value::Null));

    let outcome = |found: u32, changed: u32, dry_run: bool| json!({"found": found, "changed": changed, "ended": 0, "failed": {}, "dryRun": dry_run});
    let deadlines = || {
        let listed = json(&["lease", "list"]);
        let leases = listed["leases"].as_array().expect("a list").clone();
        leases.iter().map(|lease| lease["deadline"].as_i64().expect("a moment")).collect::<Vec<_>>()
    };
    let before = deadlines();
    assert_eq!(json(&["lease", "extend", "--all", "--by", "1h", "--dry-run"]), outcome(3, 0, true));
    assert_eq!(deadlines(), before, "only said");
    assert_eq!(json(&["lease", "extend", "--group", "billing", "--by", "1h"]), outcome(3, 3, false));
    for (after, before) in deadlines().iter().zip(&before) {
        // An hour, and what the request took.
        assert!((3_600_000..3_660_000).contains(&(after - before)), "{before} {after}");
    }
    let all = json(&["lease", "list"]);
    assert!(all["leases"].as_array().expect("a list").iter().all(|lease| lease["changedBy"] == "operator"), "{all}");
    let (queue, offset) = (first["queueId"].to_string(), first["offset"].to_string());
    let one = ["--group", "billing", "--topic", "invoices", "--queue", &queue, "--offset", &offset];
    assert_eq!(json(&[&["lease", "release"], &one[..]].concat()), outcome(1, 1, false));
    let again = receive(&waybill, "invoices", 1).remove(0);
    assert_eq!((&again["messageId"], &again["deliveryAttempt"]), (&invoices[0]["messageId"], &2.into()));
    let text = waybill.admin(&["lease", "release", "--topic", "orders"]).ok().out;
    assert_eq!(text, "2 of 2 leases released\n");
    assert_eq!(receive(&waybill, "orders", 2).len(), 2);
}

#[test]
fn what_fails_is_counted_and_ends_with_1() {
    let dir = Dir::new();
    let waybill = Standalone::start(dir.path(), &[]);
    holding(&waybill, "orders", 1);
    let refused = waybill.admin(&["lease", "extend", "--group", "billing", "--for", "9000h"]);
    refused.fails(1, &["1 lease was not extended"]);
    assert_eq!(refused.out, "0 of 1 lease extended\n1 failed: INVALID_PARAMETER\n");
    waybill.admin(&["lease", "release", "--group", "nobody"]).fails(1, &["nobody", "waybill group list"]);
}

#[test]
fn nothing_is_changed_that_was_not_named() {
    for words in [
        &["lease", "release"][..],
        &["lease", "release", "--queue", "1"],
        &["lease", "release", "--all", "--client", "c"],
        &["lease", "extend", "--all"],
        &["lease", "extend", "--all", "--by", "1s", "--for", "1s"],
        &["lease", "list", "--offset", "1"],
    ] {
        run(words).fails(2, &["Usage"]);
    }
    // What is empty names nothing: an unset variable, say.
    for (option, why) in [("--group", "blank"), ("--topic", "blank"), ("--client", "a value is required")] {
        for words in [&["lease", "list"][..], &["lease", "release"], &["lease", "extend", "--by", "1s"]] {
            run(&[words, &[option, ""]].concat()).fails(2, &[option, why]);
        }
        run(&["lease", "release", "--group", "g", option, ""]).fails(2, &[option]);
    }
    for short in ["0ms", "0s", "999ms"] {
        run(&["lease", "extend", "--group", "g", "--for", short]).fails(2, &["--for", "1s", "waybill lease release"]);
    }
    let help = run(&["lease", "extend", "--help"]).ok().out;
    assert!(help.contains("waybill lease extend --group billing --by 10m"), "{help}");
}
