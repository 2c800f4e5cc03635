//! `waybill standalone`.

use std::collections::BTreeSet;

use crate::support::{Dir, Standalone};

#[test]
fn what_was_answered_is_there_after_a_restart() {
    let dir = Dir::new();
    let waybill = Standalone::start(dir.path(), &[]);
    waybill.client(&["message", "send", "--topic", "orders", "--body", "kept"]).ok();
    assert_eq!(waybill.stop(), Some(0), "asked to stop, it ends well");
    let waybill = Standalone::start(dir.path(), &[]);
    let receive = ["message", "receive", "--topic", "orders", "--group", "billing", "--output", "json"];
    assert_eq!(waybill.client(&receive).json()[0]["body"], "kept");
}

#[test]
fn one_admin_port_tells_of_both_halves() {
    let dir = Dir::new();
    let config = dir.file("sidecar.yaml", "enableBatchAck: true\n").display().to_string();
    let waybill = Standalone::start(dir.path(), &["--flush", "async", "--sidecar-config", &config]);
    assert_eq!(waybill.get("/healthz"), "ok\n");
    assert_eq!(waybill.get("/readyz"), "ready\n");
    waybill.client(&["message", "send", "--topic", "orders", "--body", "b"]).ok();

    let metrics = waybill.get("/metrics");
    let families: Vec<&str> = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    let distinct: BTreeSet<&str> = families.iter().copied().collect();
    assert_eq!(families.len(), distinct.len(), "a family is there twice: {metrics}");
    assert!(metrics.contains("rocketmq_messages_in_total{part=\"broker\",topic=\"orders\"} 1"), "{metrics}");
    assert!(metrics.contains("part=\"sidecar\"") && metrics.contains("process_cpu_seconds_total "), "{metrics}");

    let config: serde_json::Value = serde_json::from_str(&waybill.get("/config")).expect("JSON");
    assert_eq!(config["broker"]["flushDiskType"], "ASYNC_FLUSH");
    let port: i64 = waybill.admin.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    assert_eq!(config["broker"]["adminListen"], waybill.admin.as_str());
    let said = config["sidecar"].to_string();
    assert!(said.contains(&format!("\"adminServerPort\":{port}")), "{said}");
    assert!(said.contains("\"adminServerHost\":\"127.0.0.1\""), "{said}");
    assert!(config["sidecar"].to_string().contains("\"enableBatchAck\":true"), "{config}");
    assert_eq!(waybill.stop(), Some(0));
}

#[test]
fn an_address_to_listen_on_is_told_how_it_looks() {
    for option in ["--listen", "--broker-listen", "--admin-listen"] {
        crate::support::run(&["standalone", option, "9081"]).fails(2, &[option, "HOST:PORT", "127.0.0.1:9081"]);
    }
}
