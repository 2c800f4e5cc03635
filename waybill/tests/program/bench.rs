//! `waybill bench`: that it counts what really happened, not how fast it was.

use serde_json::Value;

use crate::support::{Dir, Standalone, run, run_and_end};

fn bench(waybill: &Standalone, words: &[&str]) -> Value {
    let common = ["--output", "json", "--in-flight", "8", "--connections", "2", "--size", "100"];
    waybill.client(&[&["bench"], words, &common].concat()).json()
}

/// Messages that a topic holds on the broker.
fn held(waybill: &Standalone, topic: &str) -> i64 {
    let shown = waybill.admin(&["topic", "describe", topic, "--output", "json"]).json();
    shown["queues"].as_array().unwrap().iter().map(|queue| queue["nextOffset"].as_i64().unwrap()).sum()
}

#[test]
fn send_counts_messages_and_the_servers_cpu() {
    let dir = Dir::new();
    let waybill = Standalone::start(dir.path(), &[]);
    let pid = waybill.pid();
    let report = bench(&waybill, &["send", "--topic", "b", "--count", "200", "--warmup", "0ms", "--pid", &pid]);
    assert_eq!(report["messages"], 200);
    assert_eq!(report["latenciesMs"]["send"]["count"], 200);
    assert_eq!(report["errors"], serde_json::json!({}));
    assert_eq!(held(&waybill, "b"), 201, "and one before the measurement");
    let process = &report["server"]["processes"][0];
    assert_eq!(process["pid"].to_string(), pid);
    assert!(process["residentBytesAfter"].as_i64().is_some_and(|bytes| bytes > 1_000_000), "{report}");
}

#[test]
fn receive_ack_takes_what_it_sent_and_no_more() {
    let dir = Dir::new();
    let waybill = Standalone::start(dir.path(), &[]);
    for ack in ["each", "batch"] {
        let report =
            bench(&waybill, &["receive-ack", "--topic", "b", "--group", "g", "--messages", "100", "--ack", ack]);
        assert_eq!((&report["messages"], &report["errors"]), (&100.into(), &serde_json::json!({})), "{report}");
    }
    assert_eq!(held(&waybill, "b"), 2 * (20 + 100));
    let leases = waybill.admin(&["lease", "list", "--group", "g", "--output", "json"]).json();
    assert_eq!(leases["leases"], serde_json::json!([]), "everything is acknowledged");
}

#[test]
fn end_to_end_misses_nothing() {
    let dir = Dir::new();
    let waybill = Standalone::start(dir.path(), &[]);
    let report = bench(
        &waybill,
        &["e2e", "--topic", "b", "--group", "g", "--rate", "100", "--duration", "1s", "--warmup", "0ms"],
    );
    assert_eq!(report["more"]["missing"], 0, "{report}");
    assert_eq!(report["more"]["sent"], report["more"]["received"]);
    assert_eq!(report["more"]["sent"], held(&waybill, "b"));
    assert!(report["messages"].as_u64().is_some_and(|messages| messages > 0), "{report}");
}

#[test]
fn changes_are_changes_at_the_broker() {
    let dir = Dir::new();
    let waybill = Standalone::start(dir.path(), &[]);
    let report = bench(&waybill, &["change", "--topic", "b", "--group", "g", "--duration", "1s", "--warmup", "0ms"]);
    let changes = report["messages"].as_u64().unwrap();
    let metrics = waybill.get("/metrics");
    let counted =
        metrics.lines().find_map(|line| line.strip_prefix("waybill_broker_lease_changes_total{part=\"broker\"} "));
    let counted: u64 = counted.expect(&metrics).parse().unwrap();
    assert!(changes > 0 && counted >= changes, "{changes} reported, the broker counted {counted}");
    assert_eq!(report["errors"], serde_json::json!({}));
    assert_eq!(held(&waybill, "b"), 8, "one for each call in flight");
}

/// Runs a measurement that asks the broker itself.
fn direct(words: &[&str]) -> Value {
    let common = ["--topic", "b", "--group", "g", "--duration", "1s", "--warmup", "0ms", "--connections", "2"];
    run(&[&["--output", "json", "bench"], words, &common].concat()).json()
}

#[test]
fn leases_are_extended_one_by_one_and_in_batches() {
    let dir = Dir::new();
    let waybill = Standalone::start(dir.path(), &[]);
    let options = ["--namesrv", &waybill.broker, "--admin", &waybill.admin, "--messages", "5"];
    let requests = |report: &Value, code: i32| -> f64 {
        let counters = report["counters"].as_object().unwrap();
        let of_code = |name: &str| {
            name.starts_with("waybill_broker_requests_total{") && name.contains(&format!("request_code=\"{code}\""))
        };
        counters.iter().filter(|(name, _)| of_code(name)).map(|(_, rise)| rise.as_f64().unwrap()).sum()
    };
    let each = direct(&[&["leases", "--in-flight", "8"][..], &options].concat());
    assert_eq!((&each["errors"], &each["more"]["held"]), (&serde_json::json!({}), &5.into()), "{each}");
    let (changes, counted) = (each["messages"].as_f64().unwrap(), requests(&each, 200_053));
    // The counter is read a little later than the first change begins, and when the last of all five has ended.
    assert!(counted > 0.0 && counted <= changes + 5.0, "{changes} reported, the broker counted {counted}");

    let batch = direct(&[&["leases", "--in-flight", "2", "--how", "batch"][..], &options].concat());
    assert_eq!((&batch["errors"], &batch["more"]["held"]), (&serde_json::json!({}), &10.into()), "{batch}");
    let calls = batch["latenciesMs"]["change"]["count"].as_f64().unwrap();
    assert_eq!(batch["messages"].as_f64().unwrap(), 5.0 * calls);
    assert_eq!(requests(&batch, 200_053), 0.0);
    assert!(calls > 0.0 && requests(&batch, 200_153) > 0.0, "{batch}");
    let leases = waybill.admin(&["lease", "list", "--group", "g", "--output", "json"]).json();
    assert_eq!(leases["leases"], serde_json::json!([]), "everything is acknowledged in the end");
}

#[test]
fn latency_is_of_a_send_and_an_ack_each() {
    let dir = Dir::new();
    let waybill = Standalone::start(dir.path(), &[]);
    for at in [["--endpoint", &waybill.endpoint], ["--direct", &waybill.broker]] {
        let report = direct(&[&["latency", "--rate", "100", "--in-flight", "4"][..], &at].concat());
        assert_eq!(report["errors"], serde_json::json!({}), "{report}");
        let sent = report["messages"].as_u64().unwrap();
        assert!(sent > 0 && report["latenciesMs"]["send"]["count"] == sent, "{report}");
        assert!(report["latenciesMs"]["ack"]["count"].as_u64().is_some_and(|acks| acks > 0), "{report}");
    }
}

#[test]
fn what_a_client_leaves_behind_is_seen_by_another() {
    let dir = Dir::new();
    let waybill = Standalone::start(dir.path(), &[]);
    let report =
        bench(&waybill, &["disconnect", "--topic", "b", "--group", "g", "--messages", "50", "--admin", &waybill.admin]);
    assert_eq!((&report["messages"], &report["more"]["missing"]), (&50.into(), &0.into()), "{report}");
    assert_eq!(report["latenciesMs"]["visible"]["count"], 50);
    let returned = &report["counters"]["waybill_broker_lease_changes_total{part=\"broker\"}"];
    assert_eq!(returned.as_f64(), Some(50.0), "{report}");
}

#[test]
fn idle_needs_no_messages() {
    let dir = Dir::new();
    let waybill = Standalone::start(dir.path(), &[]);
    let pid = waybill.pid();
    let report =
        bench(&waybill, &["idle", "--pid", &pid, "--receivers", "2", "--duration", "500ms", "--warmup", "0ms"]);
    assert_eq!((&report["messages"], &report["more"]["clients"]), (&0.into(), &2.into()));
    assert!(report["server"]["cpuSeconds"].is_number(), "{report}");
}

#[test]
fn what_takes_long_ends_at_a_signal() {
    let dir = Dir::new();
    let waybill = Standalone::start(dir.path(), &[]);
    let (pid, at) = (waybill.pid(), ["--endpoint", &waybill.endpoint]);
    let long = [&["bench", "idle", "--pid", &pid, "--duration", "10h"][..], &at].concat();
    let reading = [&["message", "send", "--topic", "t"][..], &at].concat();
    for (words, signal) in [(&long, 15), (&long, 2), (&reading, 15)] {
        assert_eq!(run_and_end(words, signal), Some(128 + signal as i32), "{words:?}");
    }
}
