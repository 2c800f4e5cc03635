//! The disk fills up under a server: what a client is told, what goes on, and that it ends by itself.

use std::io::Write;
use std::time::{Duration, Instant};

use crate::support::{Dir, Ran, Standalone, small_disks_can_be_had};

/// What the issue allows.
const RESUME_WITHIN: Duration = Duration::from_secs(60);
const BODY_BYTES: usize = 200_000;
/// More than the disk has room for.
const SENDS_MAX: usize = 200;

#[test]
fn a_full_disk_refuses_sends_and_nothing_else_and_heals_by_itself() {
    if !small_disks_can_be_had() {
        return;
    }
    let dir = Dir::new();
    // What fills the disk is not the broker's: it is not to make room by dropping messages, which it does within seconds.
    let config = "mappedFileSizeCommitLog: 4194304\nmaxMessageSize: 1048576\nindexCheckpointBytes: 1048576\ndiskMaxUsedSpaceRatio: 100\n";
    let config = dir.file("broker.yaml", config).display().to_string();
    let waybill = Standalone::start_on_small_disk(dir.path(), 32, &["--broker-config", &config]);
    let body = dir.file("body", &"x".repeat(BODY_BYTES)).display().to_string();
    let send = || waybill.client(&["message", "send", "--topic", "orders", "--file", &body]);
    for _message in 0..4 {
        send().ok();
    }
    let filler = waybill.inside(&dir.path().join("data/filler"));
    let mut file = std::fs::File::create(&filler).expect("the small disk is reachable");
    while file.write_all(&[0; 65_536]).is_ok() {}
    drop(file);
    // What was reserved for the log is still there; then comes the end.
    let mut stored = 4;
    let refused = loop {
        let sent = send();
        if sent.code != Some(0) {
            break sent;
        }
        stored += 1;
        assert!(stored < SENDS_MAX, "a full disk was never noticed");
    };
    refused.fails(1, &["INTERNAL_SERVER_ERROR", "the disk is full", "free space"]);
    assert_eq!(waybill.get("/readyz"), "ready\n");
    assert_eq!(receive_and_ack(&waybill, stored), stored, "received and acknowledged while the disk is full");
    send().fails(1, &["the disk is full"]);

    std::fs::remove_file(&filler).expect("it is there");
    let freed = Instant::now();
    while let refused @ Ran { code: Some(1), .. } = send() {
        refused.fails(1, &["the disk is full"]);
        assert!(freed.elapsed() < RESUME_WITHIN, "still refused after {:?}", freed.elapsed());
    }
    println!(
        "full disk: {stored} stored before, sends resumed {} ms after space was back",
        freed.elapsed().as_millis()
    );
    assert_eq!(receive_and_ack(&waybill, 1), 1, "what was refused was not stored, what was acknowledged stays away");
    assert_eq!(waybill.stop(), Some(0));
}

/// Receives and acknowledges until nothing comes any more, or more than `expected`; how many came.
fn receive_and_ack(waybill: &Standalone, expected: usize) -> usize {
    let receive = ["message", "receive", "--topic", "orders", "--group", "billing", "--output", "json"];
    let mut received = 0;
    loop {
        let page = waybill.client(&[&receive[..], &["--max", "32", "--ack", "--wait", "5s"]].concat()).json();
        let messages = page.as_array().expect("a list");
        assert!(messages.iter().all(|message| message["acked"] == true), "{page}");
        received += messages.len();
        if messages.is_empty() || received > expected {
            return received;
        }
    }
}
