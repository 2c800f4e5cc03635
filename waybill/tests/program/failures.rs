//! What goes wrong says what is wrong, what to do, and an exit code that scripts can rely on.

use crate::support::{Dir, Standalone, options, run};

/// Runs of the program that take well over a second together.
const TRIES_MAX: usize = 1_000;

fn standalone(dir: &Dir, more: &[&str]) -> crate::support::Ran {
    let options = options(dir.path());
    let words: Vec<&str> = options.iter().map(String::as_str).chain(more.iter().copied()).collect();
    run(&words)
}

#[test]
fn wrong_usage() {
    run(&[]).fails(2, &["Usage: waybill"]);
    run(&["topic", "create"]).fails(2, &["<TOPIC>"]);
    run(&["topic", "create", "t", "--queues", "0"]).fails(2, &["--queues"]);
    run(&["message", "receive", "--topic", "t", "--group", "g", "--invisible", "soon"]).fails(2, &["30s"]);
    run(&["message", "send", "--topic", "t", "--property", "novalue"]).fails(2, &["KEY=VALUE"]);
    run(&["bench", "send", "--rate", "fast"]).fails(2, &["--rate"]);
    run(&["bench", "send", "--pid", "4194305"]).fails(2, &["--pid 4194305 cannot be measured"]);
    run(&["bench", "idle"]).fails(2, &["--pid"]);
    run(&["bench", "send", "--in-flight", "1"]).fails(2, &["--in-flight must be at least --connections"]);
}

#[test]
fn a_configuration_that_cannot_work() {
    let dir = Dir::new();
    let file = dir.file("sidecar.yaml", "enableBatchAck: true\nenableBatchAcks: true\n");
    let file = file.display().to_string();
    standalone(&dir, &["--sidecar-config", &file]).fails(64, &["sidecar.yaml line 2", "enableBatchAcks"]);
    let file = dir.file("broker.yaml", "defaultTopicQueueNums: 0\n");
    let file = file.display().to_string();
    standalone(&dir, &["--broker-config", &file]).fails(64, &["broker.yaml line 1", "defaultTopicQueueNums"]);
    standalone(&dir, &["--broker-config", "/nothing/here"]).fails(64, &["/nothing/here", "cannot be opened"]);
}

#[test]
fn a_port_or_a_store_that_is_taken() {
    let dir = Dir::new();
    let waybill = Standalone::start(dir.path(), &[]);
    standalone(&dir, &[]).fails(1, &["the store in", "cannot be opened", "--data-dir"]);
    let other = Dir::new();
    let mut options = options(other.path());
    let at = options.iter().position(|word| word == "--listen").unwrap();
    options[at + 1].clone_from(&waybill.endpoint);
    let words: Vec<&str> = options.iter().map(String::as_str).collect();
    run(&words).fails(1, &["cannot listen on", &waybill.endpoint, "--listen with another address"]);
}

#[test]
fn what_was_not_created() {
    let dir = Dir::new();
    let waybill = Standalone::start(dir.path(), &["--no-auto-create"]);
    let sent = waybill.client(&["message", "send", "--topic", "orders", "--body", "b"]);
    sent.fails(1, &["TOPIC_NOT_FOUND", "waybill topic create"]);
    waybill.admin(&["topic", "create", "orders"]).ok();
    // The sidecar remembers for a second that the topic was not there.
    let sent = (0..TRIES_MAX)
        .any(|_try| waybill.client(&["message", "send", "--topic", "orders", "--body", "b"]).code == Some(0));
    assert!(sent, "the topic was created, but is still not found");
    let received = waybill.client(&["message", "receive", "--topic", "orders", "--group", "billing"]);
    received.fails(1, &["CONSUMER_GROUP_NOT_FOUND", "waybill group create"]);
    waybill.client(&["message", "send", "--topic", "bad topic", "--body", "b"]).fails(1, &["ILLEGAL_TOPIC"]);
}
