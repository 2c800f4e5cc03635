//! A log in small files: what would not fit into one is refused or split before anything is changed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use serde_json::Value;
use support::Rig;
use waybill_protocol::message::{BatchItem, encode_batch};
use waybill_protocol::remoting::codes::{own, request, response};
use waybill_protocol::remoting::{Command, SendMessageRequestHeader, SubscriptionGroupConfig};

const BODY: usize = 400 << 10;

async fn rig() -> Rig {
    let rig = Rig::with(|config| {
        config.mapped_file_size_commit_log = 1 << 20;
        config.max_message_size = 512 << 10;
    });
    rig.topic("t", 1).await;
    rig.group_with(SubscriptionGroupConfig { group_name: "g".into(), retry_max_times: 0, ..Default::default() }).await;
    rig
}

async fn send(rig: &Rig, id: &str) {
    rig.ok(Rig::send_command("t", id, None, &"x".repeat(BODY))).await;
}

/// Lag and dead letters of the group.
async fn counted(rig: &Rig) -> [u64; 2] {
    let mut command = Command::request(own::COUNT_MESSAGES);
    command.ext.set("consumerGroup", "g");
    let counts: Value = serde_json::from_slice(&rig.ok(command).await.body).unwrap();
    let group = &counts["groups"][0];
    [&group["topics"][0]["lag"], &group["deadLetters"]].map(|number| number.as_u64().unwrap_or_default())
}

#[tokio::test]
async fn a_batch_that_does_not_fit_into_a_file_is_refused_and_leaves_no_gap() {
    let rig = rig().await;
    assert!(rig.pop("g", "t", 1, 1_000).await.is_empty());
    let item = || BatchItem { flag: 0, body: vec![b'x'; BODY].into(), properties: String::new() };
    let one = Rig::send_command("t", "m", None, "x");
    let header =
        SendMessageRequestHeader { batch: Some(true), ..SendMessageRequestHeader::decode_v2(&one.ext).unwrap() };
    let batch = |count: usize| {
        let items: Vec<_> = (0..count).map(|_| item()).collect();
        Command::request(request::SEND_BATCH_MESSAGE).with_header(&header).with_body(encode_batch(&items).unwrap())
    };
    let refused = rig.call(batch(3)).await;
    assert_eq!(refused.code, response::MESSAGE_ILLEGAL);
    assert!(refused.remark.unwrap_or_default().contains("mappedFileSizeCommitLog"));
    rig.ok(batch(2)).await;
    assert_eq!(counted(&rig).await, [2, 0], "counts are exact");
    assert_eq!(rig.pop("g", "t", 2, 60_000).await.len(), 2);
}

/// Four letters in a file of the log are too many; each dies and goes back all the same, once.
#[tokio::test]
async fn letters_that_do_not_fit_into_a_file_together_die_and_go_back_one_after_the_other() {
    let rig = rig().await;
    for n in 0..4 {
        send(&rig, &format!("m{n}")).await;
    }
    let mut held = 0;
    while held < 4 {
        held += rig.pop("g", "t", 4, 1_000).await.len();
    }
    rig.clock.advance(1_000);
    for _ in 0..4 {
        assert!(rig.pop("g", "t", 4, 60_000).await.is_empty());
    }
    assert_eq!(counted(&rig).await, [0, 4]);
    let mut redrive = Command::request(own::REDRIVE_DEAD_LETTERS);
    redrive.ext.set("consumerGroup", "g");
    let mut moved = 0;
    while moved < 4 {
        let answer: Value = serde_json::from_slice(&rig.ok(redrive.clone()).await.body).unwrap();
        let now = answer["moved"].as_array().unwrap().len();
        assert!((1..=2).contains(&now), "{now}");
        moved += now;
    }
    let rig = rig.reopen();
    assert_eq!(counted(&rig).await, [4, 0]);
}

/// More leases than one batch may change.
#[tokio::test]
async fn many_leases_are_given_up_in_more_than_one_step_or_not_at_all() {
    let rig = rig().await;
    // Half of a file is room for some 5,400 rows.
    let items: Vec<_> =
        (0..1_000).map(|_| BatchItem { flag: 0, body: "x".into(), properties: String::new() }).collect();
    let one = Rig::send_command("t", "m", None, "x");
    let header =
        SendMessageRequestHeader { batch: Some(true), ..SendMessageRequestHeader::decode_v2(&one.ext).unwrap() };
    for _ in 0..6 {
        let body = encode_batch(&items).unwrap();
        rig.ok(Command::request(request::SEND_BATCH_MESSAGE).with_header(&header).with_body(body)).await;
    }
    let mut held = 0;
    while held < 6_000 {
        held += rig.pop("g", "t", 32, 3_600_000).await.len();
    }
    let mut reset = Command::request(request::INVOKE_BROKER_TO_RESET_OFFSET);
    for (name, value) in [("topic", "t"), ("group", "g"), ("timestamp", "0"), ("isForce", "true")] {
        reset.ext.set(name, value);
    }
    assert_eq!(rig.call(reset.clone()).await.code, response::SYSTEM_BUSY);
    assert_eq!(counted(&rig).await[0], 6_000, "nothing was changed");
    let mut delete = Command::request(request::DELETE_SUBSCRIPTIONGROUP);
    delete.ext.set("groupName", "g");
    rig.ok(delete).await;
    let rig = rig.reopen();
    let leases = rig.broker.core().store().scan(waybill_broker::store::Keyspace::Lease, &[]).unwrap();
    assert_eq!(leases.len(), 0);
}
