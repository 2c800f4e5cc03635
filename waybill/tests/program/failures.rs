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
    let receive = ["message", "receive", "--topic", "t", "--group", "g"];
    for wait in ["1s", "4999ms", "21s"] {
        run(&[&receive[..], &["--wait", wait]].concat()).fails(2, &["--wait", "from 5s to 20s"]);
    }
    for wrong in [&["--retry-max-times", "-1"][..], &["--retry-max-times=-1"]] {
        run(&[&["group", "create", "g"], wrong].concat()).fails(2, &["-1 is not in 0..=1000"]);
    }
}

#[test]
fn an_address_that_is_none_is_wrong_usage() {
    for (wrong, what) in
        [("foo", "the port is missing"), ("::::", "no host"), ("localhost:99999", "no port from 1 to 65535")]
    {
        run(&["topic", "list", "--broker", wrong]).fails(2, &["--broker", what, "such as 127.0.0.1:8081"]);
        let send = ["message", "send", "--topic", "t", "--body", "b", "--endpoint", wrong];
        run(&send).fails(2, &["--endpoint", what, "such as 127.0.0.1:8081"]);
        run(&["bench", "send", "--endpoint", wrong]).fails(2, &["--endpoint", what]);
    }
}

#[test]
fn the_port_next_door() {
    let dir = Dir::new();
    let waybill = Standalone::start(dir.path(), &[]);
    let (endpoint, broker, admin) = (&waybill.endpoint, &waybill.broker, &waybill.admin);
    let list = |address: &str| run(&["topic", "list", "--broker", address]);
    let send = |address: &str| run(&["message", "send", "--topic", "t", "--body", "b", "--endpoint", address]);
    let ack = |address: &str| run(&["message", "ack", "--topic", "t", "--group", "g", "--endpoint", address, "h"]);
    let (remoting, grpc) = ("not a broker's remoting port", "not a gRPC endpoint");
    list(endpoint).fails(69, &["a gRPC server", endpoint, remoting, "--broker"]);
    list(admin).fails(69, &["a web server", admin, remoting, "--broker"]);
    for wrong in [&send as &dyn Fn(&str) -> crate::support::Ran, &ack] {
        wrong(broker).fails(69, &["a broker", broker, grpc, "--endpoint"]);
        wrong(admin).fails(69, &["a web server", admin, grpc, "--endpoint"]);
    }
    let bench = run(&["bench", "send", "--duration", "1s", "--warmup", "0s", "--endpoint", broker]);
    bench.fails(69, &["a broker", broker, grpc]);
    list(broker).ok();
    send(endpoint).ok();
}

#[test]
fn a_configuration_that_cannot_work() {
    let dir = Dir::new();
    let file = dir.file("sidecar.yaml", "enableBatchAck: true\nenableBatchAcks: true\n");
    let file = file.display().to_string();
    standalone(&dir, &["--sidecar-config", &file]).fails(
        64,
        &[
            "sidecar.yaml line 2, enableBatchAcks: unknown key; did you mean enableBatchAck?",
            "docs/configuration-sidecar.md",
        ],
    );
    let file = dir.file("broker.yaml", "defaultTopicQueueNums: 0\n");
    let file = file.display().to_string();
    standalone(&dir, &["--broker-config", &file]).fails(64, &["broker.yaml line 1", "defaultTopicQueueNums"]);
    standalone(&dir, &["--broker-config", "/nothing/here"]).fails(64, &["/nothing/here", "cannot be opened"]);
}

/// Nobody is left to believe that the file decides what an option decides.
#[test]
fn a_configuration_that_sets_what_options_decide() {
    let dir = Dir::new();
    for (key, value, says) in [
        ("storePathRootDir", "/data", "--data-dir"),
        ("bindAddress", "0.0.0.0", "--broker-listen"),
        ("listenPort", "10911", "--broker-listen"),
        ("brokerIP1", "10.0.0.1", "--broker-listen"),
        ("adminListen", "0.0.0.0:10915", "--admin-listen"),
        ("flushDiskType", "ASYNC_FLUSH", "--flush"),
        ("autoCreateTopicEnable", "false", "--no-auto-create"),
        ("autoCreateTopicMessageType", "NORMAL", "type MIXED"),
        ("autoCreateSubscriptionGroup", "false", "--no-auto-create"),
    ] {
        let file = dir.file("b.yaml", &format!("brokerClusterName: c\n{key}: {value}\n")).display().to_string();
        standalone(&dir, &["--broker-config", &file]).fails(64, &[&format!("b.yaml line 2, {key}: standalone"), says]);
    }
    for (key, value, says) in [
        ("grpcServerHost", "0.0.0.0", "--listen"),
        ("grpcServerPort", "8081", "--listen"),
        ("adminServerHost", "0.0.0.0", "--admin-listen"),
        ("adminServerPort", "8082", "--admin-listen"),
        ("namesrvAddr", "'10.0.0.1:9876'", "the same process"),
    ] {
        let file = dir.file("s.yaml", &format!("{{{key}: {value}}}\n")).display().to_string();
        standalone(&dir, &["--sidecar-config", &file]).fails(64, &["s.yaml", &format!("{key}: standalone"), says]);
    }
}

#[test]
fn a_directory_that_cannot_be_written() {
    let dir = Dir::new();
    // Where the data would be there is a file.
    dir.file("data", "");
    let failed = standalone(&dir, &[]);
    failed.fails(1, &["the store in", "cannot be opened", "os error", "check the owner", "--data-dir"]);
    for wrong in ["retry", "another waybill"] {
        assert!(!failed.err.contains(wrong), "{}", failed.err);
    }
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
    // A name that none can have is wrong usage, and nothing is sent.
    waybill.client(&["message", "send", "--topic", "bad topic", "--body", "b"]).fails(2, &["bad topic", "not allowed"]);
}

/// Queues that hold messages are not taken away, and the advice that comes with the refusal can be followed.
#[test]
fn fewer_queues_than_hold_messages() {
    let dir = Dir::new();
    let waybill = Standalone::start(dir.path(), &[]);
    let topic = |more: &[&str]| waybill.admin(&[&["topic", "create", "orders"], more].concat());
    topic(&["--queues", "4"]).ok();
    for _message in 0..8 {
        waybill.client(&["message", "send", "--topic", "orders", "--body", "b"]).ok();
    }
    topic(&["--queues", "1", "--update"])
        .fails(1, &["readQueueNums of orders stays 4", "holds 2 messages", "Lower writeQueueNums to 1 first"]);
    topic(&["--write-queues", "1", "--update"]).ok();
    topic(&["--read-queues", "1", "--update"]).fails(1, &["holds 2 messages that no consumer group has read"]);
    topic(&["--queues", "1", "--write-queues", "1"]).fails(2, &["--write-queues"]);
}
