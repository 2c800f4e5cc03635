//! Batches that nobody should send.

use super::support::Rig;
use super::{ack_entry, batch_ack, batch_change, entry, upstream_batch_ack};
use waybill_protocol::remoting::codes::response;
use waybill_protocol::remoting::{BatchChangeInvisibleResult, BatchChangeInvisibleTimeRequestHeader, Command};

#[tokio::test]
async fn a_batch_over_a_limit_changes_nothing() {
    let (rig, got) = Rig::with_messages(1).await;
    let before = rig.broker.core().store().stats().records;
    let many = vec![entry(&got[0].handle, 1_000); 1025];
    assert_eq!(rig.call(batch_change(many)).await.code, response::MESSAGE_ILLEGAL);
    let long = batch_change(Vec::new()).with_body(vec![b' '; (4 << 20) + 1]);
    assert_eq!(rig.call(long).await.code, response::MESSAGE_ILLEGAL);
    for body in [&b""[..], b"{", b"[[[[[[", b"{\"entries\":7}", b"\xff\xfe"] {
        assert_eq!(
            rig.call(batch_change(Vec::new()).with_body(body.to_vec())).await.code,
            response::MESSAGE_ILLEGAL,
            "{body:?}"
        );
    }
    let empty: BatchChangeInvisibleResult = rig.ok(batch_change(Vec::new())).await.json().unwrap();
    assert!(empty.entries.is_empty());
    assert_eq!(rig.broker.core().store().stats().records, before);
}

#[tokio::test]
async fn a_broken_body_changes_nothing_and_says_so() {
    let (rig, got) = Rig::with_messages(1).await;
    let good = batch_change(vec![entry(&got[0].handle, 0)]).body;
    let good = std::str::from_utf8(&good).unwrap();
    let before = rig.broker.core().store().stats().records;
    let mut bodies: Vec<Vec<u8>> = (0..good.len()).map(|end| good.as_bytes()[..end].to_vec()).collect();
    bodies.push(format!("{good}]").into_bytes());
    bodies.push(vec![b'['; 100_000]);
    bodies.push([&b"{\"entries\":"[..], &vec![b'['; 100_000]].concat());
    bodies.push(format!("{{\"entries\":{}1{}}}", "{\"a\":".repeat(50_000), "}".repeat(50_000)).into_bytes());
    bodies.push(good.replace("extraInfo\":\"", "extraInfo\":\"\u{0}\\ud800").into_bytes());
    bodies.push(good.as_bytes().iter().map(|byte| if *byte == b' ' { 0xff } else { *byte }).collect());
    bodies.push(good.replace("\"invisibleTime\":0", "\"invisibleTime\":1e99").into_bytes());
    bodies.push(good.replace("\"invisibleTime\":0", "\"invisibleTime\":9223372036854775808").into_bytes());
    bodies.push(good.replace("\"queueId\":0", "\"queueId\":2147483648").into_bytes());
    bodies.push(good.replace("\"offset\":0", "\"offset\":{}").into_bytes());
    for body in bodies {
        let shown = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
        let answer = rig.call(batch_change(Vec::new()).with_body(body.clone())).await;
        assert_eq!(answer.code, response::MESSAGE_ILLEGAL, "{shown}");
        assert!(answer.remark.is_some_and(|remark| !remark.is_empty()), "{shown}");
        let answer = rig.call(upstream_batch_ack(Vec::new()).with_body(body)).await;
        assert!(matches!(answer.code, response::MESSAGE_ILLEGAL | response::NO_MESSAGE), "{shown}");
    }
    assert_eq!(rig.broker.core().store().stats().records, before);
    assert!(rig.drain_ids("g", "t").await.is_empty(), "the lease is as it was");
}

/// An entry that is wrong by itself is answered by itself.
#[tokio::test]
async fn absurd_entries_fail_alone() {
    let (rig, got) = Rig::with_messages(2).await;
    let good = entry(&got[0].handle, 120_000);
    let mut absurd = vec![entry(&got[1].handle, 1_000); 9];
    absurd[0].queue_id = i32::MIN;
    absurd[1].offset = i64::MIN;
    absurd[2].offset = i64::MAX;
    absurd[3].invisible_time = i64::MAX;
    absurd[4].invisible_time = i64::MIN;
    absurd[5].extra_info = String::new();
    absurd[6].extra_info = "9".repeat(100_000);
    absurd[7].consumer_group = "another".into();
    absurd[8].extra_info = got[1].handle.to_string().replace("broker-a", "broker-b");
    let count = absurd.len();
    let entries = [vec![good.clone()], absurd, vec![good]].concat();
    let answer: BatchChangeInvisibleResult = rig.ok(batch_change(entries)).await.json().unwrap();
    let codes: Vec<i32> = answer.entries.iter().map(|entry| entry.code).collect();
    assert_eq!(codes.len(), count + 2);
    assert_eq!((codes[0], codes[count + 1]), (response::SUCCESS, response::SUCCESS));
    assert!(codes[1..=count].iter().all(|code| *code != response::SUCCESS), "{codes:?}");
    rig.clock.advance(60_000);
    assert_eq!(rig.drain_ids("g", "t").await, ["m001"]);
}

#[tokio::test]
async fn a_missing_topic_or_group_is_named() {
    let (rig, got) = Rig::with_messages(1).await;
    let with = |group: &str, topic: &str| {
        let header = BatchChangeInvisibleTimeRequestHeader { consumer_group: group.into(), topic: topic.into() };
        let entries = vec![entry(&got[0].handle, 0)];
        let body = batch_change(entries).body;
        Command::request(batch_change(Vec::new()).code).with_header(&header).with_body(body)
    };
    let answer = rig.call(with("g", "missing")).await;
    assert_eq!(answer.code, response::TOPIC_NOT_EXIST);
    assert!(answer.remark.unwrap().contains("missing"));
    let answer = rig.call(with("missing", "t")).await;
    assert_eq!(answer.code, response::SUBSCRIPTION_GROUP_NOT_EXIST);
    assert!(answer.remark.unwrap().contains("missing"));
    for (group, topic) in [("", "t"), ("g", "")] {
        assert_eq!(rig.call(with(group, topic)).await.code, response::MESSAGE_ILLEGAL);
    }
    let long = "x".repeat(40_000);
    assert_ne!(rig.call(with(&long, &long)).await.code, response::SUCCESS);
    // A count that lies: one ack whose bits reach far beyond what was popped.
    let far: Vec<i64> = (0..1_500).collect();
    let answer = rig.call(batch_ack(vec![ack_entry("g", "t", &got[0].handle, &far)])).await;
    assert_eq!(answer.code, response::MESSAGE_ILLEGAL);
    assert!(rig.drain_ids("g", "t").await.is_empty());
}
