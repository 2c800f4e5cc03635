//! A log in small files: what would not fit into one is refused or split before anything is changed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/files.rs"]
mod files;
mod support;

use std::path::Path;

use files::{copy, temp_dir};
use serde_json::Value;
use support::Rig;
use waybill_broker::BrokerConfig;
use waybill_broker::store::Keyspace;
use waybill_protocol::message::{BatchItem, encode_batch};
use waybill_protocol::remoting::codes::{own, request, response};
use waybill_protocol::remoting::{Command, SendMessageRequestHeader, SubscriptionGroupConfig};

const BODY: usize = 400 << 10;

fn small(config: &mut BrokerConfig) {
    config.mapped_file_size_commit_log = 1 << 20;
    config.max_message_size = 512 << 10;
}

async fn rig() -> Rig {
    let rig = Rig::with(small);
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

/// Topic "t" has 6,000 messages, all of them held by group "g". Half of a file is room for some 5,400 rows.
async fn with_many_leases() -> Rig {
    let rig = rig().await;
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
    rig
}

fn reset(timestamp: &str) -> Command {
    let mut reset = Command::request(request::INVOKE_BROKER_TO_RESET_OFFSET);
    for (name, value) in [("topic", "t"), ("group", "g"), ("timestamp", timestamp), ("isForce", "true")] {
        reset.ext.set(name, value);
    }
    reset
}

fn leases(rig: &Rig) -> usize {
    rig.broker.core().store().scan(Keyspace::Lease, &[]).unwrap().len()
}

/// Messages of the group: all that are not done, and those that are held.
fn lag_and_held(rig: &Rig) -> (u64, u64) {
    let (_, _, counts) = rig.broker.core().group_counts().into_iter().find(|(topic, ..)| topic == "t").unwrap();
    (counts.lag, counts.in_flight)
}

/// More leases than one batch may change.
#[tokio::test]
async fn many_leases_are_forgotten_in_more_than_one_step() {
    let rig = with_many_leases().await;
    rig.ok(reset("0")).await;
    assert_eq!((lag_and_held(&rig), leases(&rig)), ((6_000, 0), 0));
    let rig = rig.reopen();
    assert_eq!((lag_and_held(&rig), leases(&rig)), ((6_000, 0), 0));
    let got = rig.pop("g", "t", 1, 3_600_000).await.remove(0);
    assert_eq!((got.message.queue_offset, got.attempt()), (0, 1));
    let rig = rig.reopen();
    assert_eq!((lag_and_held(&rig), leases(&rig)), ((6_000, 1), 1), "the new lease is none of those");
    let mut delete = Command::request(request::DELETE_SUBSCRIPTIONGROUP);
    delete.ext.set("groupName", "g");
    rig.ok(delete).await;
    let rig = rig.reopen();
    assert_eq!(leases(&rig), 0);
}

/// Wherever a crash cuts the log, a reset has happened or it has not; and what was begun is ended by the next start.
#[tokio::test]
async fn a_reset_in_steps_is_whole_after_a_crash() {
    let rig = with_many_leases().await;
    let core = rig.broker.core();
    let before = core.store().stats().log_end;
    rig.ok(reset("-1")).await;
    let after = core.store().stats().log_end;
    assert!(after - before > 6_000 * 20, "{before} {after}: the leases are removed one by one");
    let mut seen = [0, 0];
    for step in 0..=12 {
        let end = before + (after - before) * step / 12;
        let dir = temp_dir();
        copy(rig.dir.path(), dir.path());
        cut_log(dir.path(), end);
        let crashed = Rig::within(dir, small);
        let whole = lag_and_held(&crashed);
        match whole {
            (6_000, 6_000) => assert_eq!((seen[1], leases(&crashed)), (0, 6_000), "{step}: nothing had begun"),
            (0, 0) => assert!(step > 0),
            other => panic!("{step}: {other:?} is neither before nor after"),
        }
        seen[usize::from(whole.1 == 0)] += 1;
        let crashed = crashed.reopen();
        assert_eq!(lag_and_held(&crashed), whole);
        assert_eq!(leases(&crashed) as u64, whole.1, "{step}");
    }
    assert!(seen[0] >= 1 && seen[1] >= 11, "{seen:?}");
}

/// What a crash leaves of a log whose last writes did not come to the disk.
fn cut_log(dir: &Path, end: u64) {
    for file in std::fs::read_dir(dir.join("log")).unwrap() {
        let path = file.unwrap().path();
        let Some(base) = path.file_stem().and_then(|name| name.to_str()?.parse::<u64>().ok()) else { continue };
        let mut bytes = std::fs::read(&path).unwrap();
        // The header was on the disk before the file was used.
        let keep = usize::try_from(end.saturating_sub(base)).unwrap().max(32);
        bytes.iter_mut().skip(keep).for_each(|byte| *byte = 0);
        std::fs::write(&path, bytes).unwrap();
    }
}
