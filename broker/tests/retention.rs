//! How long messages are kept, through requests: by age and by disk, and what is promised stays.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use support::{Got, Rig, START_MS};
use waybill_broker::lease::Counts;
use waybill_broker::retention::{By, Retained};
use waybill_broker::store::{Batch, Disk, DiskUsage, EntryMeta, HeldRow, Keyspace, QueueKey};
use waybill_broker::{Broker, BrokerConfig, Peer};
use waybill_ops::clock::ManualClock;
use waybill_protocol::message::properties;
use waybill_protocol::remoting::codes::{request, response};
use waybill_protocol::remoting::{
    Command, CreateTopicRequestHeader, DeleteTopicRequestHeader, OffsetResponseHeader, QueueRequestHeader,
    ResetOffsetRequestHeader, SendMessageRequestHeader, SubscriptionGroupConfig,
};

const HOUR: i64 = 3_600_000;
const SEGMENT: u64 = 1 << 20;
/// Messages of this many bytes; ten of them fill a segment.
const BODY: usize = 100_000;

fn small(config: &mut BrokerConfig) {
    config.mapped_file_size_commit_log = SEGMENT;
    config.max_message_size = 256 << 10;
    // The disk of the machine that the tests run on is none of theirs.
    config.disk_max_used_space_ratio = 100;
}

fn rig() -> Rig {
    Rig::with(small)
}

/// Sends `count` messages of which ten fill a segment; their numbers go on from `from`.
async fn fill(rig: &Rig, topic: &str, from: usize, count: usize) {
    for n in from..from + count {
        let command = Rig::send_command(topic, &format!("m{n:04}"), None, &"x".repeat(BODY));
        rig.ok(command).await;
    }
}

async fn offset(rig: &Rig, code: i32, topic: &str) -> i64 {
    let header = QueueRequestHeader { topic: topic.into(), queue_id: 0 };
    rig.ok(Command::request(code).with_header(&header)).await.header::<OffsetResponseHeader>().unwrap().offset
}

async fn bounds(rig: &Rig, topic: &str) -> (i64, i64) {
    (offset(rig, request::GET_MIN_OFFSET, topic).await, offset(rig, request::GET_MAX_OFFSET, topic).await)
}

/// What nobody has to wait for: segments that went.
async fn dropped(rig: &Rig) -> usize {
    rig.broker.shorten_log().await.unwrap().dropped
}

fn counts(rig: &Rig, group: &str) -> Counts {
    rig.broker.core().group_counts().into_iter().find(|(_, name, _)| name == group).unwrap().2
}

fn metric(rig: &Rig, name: &str) -> i64 {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &rig.broker.metrics().registry().lock()).unwrap();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name} in {text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn messages_go_when_they_are_old_and_offsets_go_on() {
    let rig = rig();
    rig.topic("t", 1).await;
    rig.topic("quiet", 1).await;
    fill(&rig, "quiet", 0, 1).await;
    fill(&rig, "t", 0, 30).await;
    rig.clock.advance(71 * HOUR);
    fill(&rig, "t", 30, 10).await;
    assert_eq!(dropped(&rig).await, 0);
    assert_eq!(bounds(&rig, "t").await, (0, 40));
    rig.clock.advance(2 * HOUR);
    assert_eq!(metric(&rig, "waybill_store_oldest_message_seconds"), 73 * 3600);
    let went = dropped(&rig).await;
    assert!(went >= 2, "{went}");
    let (min, next) = bounds(&rig, "t").await;
    assert!(min > 10 && min <= 30 && next == 40, "{min} {next}");
    assert_eq!(bounds(&rig, "quiet").await, (1, 1));
    assert_eq!(metric(&rig, "waybill_retention_segments_dropped_total{cause=\"age\"}"), went as i64);
    assert_eq!(metric(&rig, "waybill_retention_bytes_dropped_total{cause=\"age\"}"), went as i64 * SEGMENT as i64);
    assert_eq!(metric(&rig, "waybill_retention_messages_dropped_total{cause=\"age\"}"), min + 1);
    assert_eq!(dropped(&rig).await, 0, "what is young stays");

    // The same after a restart, and after one without the index.
    let rig = rig.reopen();
    assert_eq!(bounds(&rig, "t").await, (min, next));
    rig.broker.close();
    std::fs::remove_dir_all(rig.dir.path().join("index")).unwrap();
    let rig = rig.reopen();
    assert_eq!(bounds(&rig, "t").await, (min, next));
    assert_eq!(bounds(&rig, "quiet").await, (1, 1));
    fill(&rig, "quiet", 0, 1).await;
    assert_eq!(bounds(&rig, "quiet").await, (1, 2));
    rig.group("g").await;
    let ids = rig.drain_ids("g", "t").await;
    let expected: Vec<_> = (min..next).map(|n| format!("m{n:04}")).collect();
    assert_eq!(ids, expected, "a new group begins at the oldest that is there, and misses none");
}

#[tokio::test]
async fn what_is_held_by_a_consumer_stays_and_can_be_acknowledged() {
    let rig = rig();
    rig.topic("t", 1).await;
    rig.group("g").await;
    fill(&rig, "t", 0, 15).await;
    let held: Got = rig.pop("g", "t", 1, 100 * HOUR).await.remove(0);
    fill(&rig, "t", 15, 30).await;
    rig.clock.advance(80 * HOUR);
    let Retained { dropped, held_back, held_by, .. } = rig.broker.shorten_log().await.unwrap();
    assert_eq!((dropped, held_by), (0, Some(By::Lease)));
    // Of what only stays for this, nothing more is given out.
    let young = counts(&rig, "g");
    assert_eq!((young.in_flight, young.ready), (1, 0));
    assert!(young.lag < 20, "{young:?}");
    let next = rig.pop("g", "t", 1, 1_000).await.remove(0).handle.offset;
    assert!(next > 25, "{next}");
    assert!(held_back >= 3);
    assert_eq!(metric(&rig, "waybill_retention_segments_held_back{promised=\"lease\"}"), held_back as i64);
    assert_eq!(metric(&rig, "waybill_retention_segments_held_back{promised=\"timer\"}"), 0);
    assert_eq!(bounds(&rig, "t").await, (0, 45));
    let longer = rig.change("g", "t", &held.handle, 100 * HOUR).await.unwrap();
    assert_eq!(rig.ack("g", "t", &longer).await, response::SUCCESS);
    rig.clock.advance(2_000);
    let went = rig.broker.shorten_log().await.unwrap();
    assert!(went.dropped >= 3 && went.held_back == 0, "{went:?}");
    assert_eq!(metric(&rig, "waybill_retention_segments_held_back{promised=\"lease\"}"), 0);
}

/// A stream of new groups, or a group that is moved back, must not hold for ever what is to go.
#[tokio::test]
async fn on_what_is_to_go_no_group_begins() {
    let rig = rig();
    rig.topic("t", 1).await;
    for group in ["holder", "before", "moved"] {
        rig.group(group).await;
    }
    fill(&rig, "t", 0, 45).await;
    let held = rig.pop("holder", "t", 1, 100 * HOUR).await.remove(0);
    assert_eq!(rig.pop("before", "t", 1, HOUR).await.len(), 1, "nothing is decided yet");
    assert_eq!(rig.drain_ids("moved", "t").await.len(), 45);
    rig.clock.advance(80 * HOUR);
    fill(&rig, "t", 45, 1).await;
    let young = async |group: &str| {
        let Retained { dropped, held_by, .. } = rig.broker.shorten_log().await.unwrap();
        assert_eq!((dropped, held_by), (0, Some(By::Lease)));
        rig.group(group).await;
        rig.pop(group, "t", 1, 100 * HOUR).await.remove(0)
    };
    let first = young("late").await;
    assert!(first.handle.offset > 25, "{}", first.handle.offset);
    for group in ["later", "latest"] {
        assert_eq!(young(group).await.handle.offset, first.handle.offset);
        assert_eq!(counts(&rig, group).lag, 46 - first.handle.offset as u64);
    }
    let reset = async |offset: Option<i64>| {
        let header = ResetOffsetRequestHeader {
            topic: "t".into(),
            group: "moved".into(),
            timestamp: 0,
            is_force: true,
            queue_id: Some(0),
            offset,
        };
        rig.call(Command::request(request::INVOKE_BROKER_TO_RESET_OFFSET).with_header(&header)).await.code
    };
    assert_eq!(reset(Some(0)).await, response::INVALID_PARAMETER);
    assert_eq!(reset(None).await, response::SUCCESS);
    assert_eq!(rig.pop("moved", "t", 1, HOUR).await[0].handle.offset, first.handle.offset, "the earliest that stays");
    assert_eq!(bounds(&rig, "t").await, (0, 46), "it is still there");
    assert_eq!(rig.ack("holder", "t", &held.handle).await, response::SUCCESS);
    assert!(dropped(&rig).await >= 3, "none of them holds what is old");
    assert_eq!(bounds(&rig, "t").await, (first.handle.offset, 46));
}

#[tokio::test]
async fn what_is_before_a_held_message_goes() {
    let rig = rig();
    rig.topic("t", 1).await;
    rig.group("g").await;
    fill(&rig, "t", 0, 60).await;
    // All but one are done.
    let mut held = None;
    for n in 0..60 {
        let got = rig.pop("g", "t", 1, 100 * HOUR).await.remove(0);
        match n {
            35 => held = Some(got),
            _ => assert_eq!(rig.ack("g", "t", &got.handle).await, response::SUCCESS),
        }
    }
    rig.clock.advance(80 * HOUR);
    let went = rig.broker.shorten_log().await.unwrap();
    assert!(went.dropped >= 2 && went.held_back >= 1, "{went:?}");
    let (min, _) = bounds(&rig, "t").await;
    assert!(min > 15 && min <= 35, "{min}");
    // Given back, it comes again as it was.
    let held = held.unwrap();
    rig.change("g", "t", &held.handle, 0).await.unwrap();
    let again = rig.pop("g", "t", 1, HOUR).await.remove(0);
    assert_eq!((again.id(), again.attempt()), (held.id(), 2));
    assert_eq!(again.message.body.len(), BODY);
}

#[tokio::test]
async fn what_is_held_by_nobody_any_more_goes_and_groups_go_on_after_it() {
    for ordered in [false, true] {
        let rig = rig();
        rig.topic("t", 1).await;
        let config =
            SubscriptionGroupConfig { group_name: "g".into(), consume_message_orderly: ordered, ..Default::default() };
        rig.group_with(config).await;
        rig.group("behind").await;
        fill(&rig, "t", 0, 45).await;
        let old = rig.pop("g", "t", 3, HOUR).await;
        assert_eq!(rig.pop("behind", "t", 1, HOUR).await.len(), 1);
        assert!(!old.is_empty());
        rig.clock.advance(80 * HOUR);
        assert!(dropped(&rig).await >= 3);
        let (min, next) = bounds(&rig, "t").await;
        for group in ["g", "behind"] {
            assert_eq!(counts(&rig, group), Counts { lag: (next - min) as u64, ..Counts::default() });
        }
        // It is done, as is everything that is gone.
        assert_eq!(rig.ack("g", "t", &old[0].handle).await, response::SUCCESS);
        assert_eq!(rig.change("g", "t", &old[0].handle, HOUR).await, Err(response::NO_MESSAGE));
        let rig = rig.reopen();
        let expected: Vec<_> = (min..next).map(|n| format!("m{n:04}")).collect();
        let mut ids = rig.drain_in_order("g", "t").await;
        ids.sort();
        assert_eq!(ids, expected);
        assert_eq!(rig.drain_ids("behind", "t").await, expected);
    }
}

/// Holds a message in the store, as delayed ones and halves of transactions are.
async fn hold(rig: &Rig, keyspace: Keyspace) -> u64 {
    let core = rig.broker.core();
    let mut batch = Batch::new();
    let queue = QueueKey { topic: core.catalog().topic("t").unwrap().id, queue: 0 };
    let meta = EntryMeta { tag_hash: 0, store_time_ms: START_MS };
    batch.hold(keyspace, 5, queue, meta, b"held");
    core.store().submit(batch).await.unwrap().positions[0]
}

#[tokio::test]
async fn what_is_delayed_or_undecided_stays() {
    for (keyspace, by) in [(Keyspace::Timer, By::Timer), (Keyspace::Half, By::Half)] {
        let rig = rig();
        rig.topic("t", 1).await;
        fill(&rig, "t", 0, 15).await;
        let position = hold(&rig, keyspace).await;
        fill(&rig, "t", 15, 30).await;
        rig.clock.advance(80 * HOUR);
        let went = rig.broker.shorten_log().await.unwrap();
        assert_eq!((went.dropped, went.held_by), (1, Some(by)));
        assert_eq!(&rig.broker.core().store().read(position).unwrap()[..], b"held");
        let mut batch = Batch::new();
        batch.delete(keyspace, &HeldRow::key(5, position));
        rig.broker.core().store().submit(batch).await.unwrap();
        assert!(dropped(&rig).await >= 2);
    }
}

/// Where space is short, what was delayed lies in what goes first. Its consumers have a while to take it all the same.
#[tokio::test]
async fn what_came_into_its_queue_late_can_be_received() {
    let rig = Rig::with(|config| {
        small(config);
        config.log_bytes_max = 4 * SEGMENT;
    });
    rig.topic("t", 1).await;
    rig.group("g").await;
    let plain = Rig::send_command("t", "late", None, "late");
    let mut header = SendMessageRequestHeader::decode_v2(&plain.ext).unwrap();
    properties::set(header.properties.as_mut().unwrap(), properties::TIMER_DELAY_MS, &HOUR.to_string());
    rig.ok(Command::request(request::SEND_MESSAGE_V2).with_header(&header).with_body(plain.body)).await;
    fill(&rig, "t", 0, 60).await;
    rig.clock.advance(HOUR);
    assert_eq!(rig.broker.deliver_due().await.unwrap(), 1);
    let kept = rig.broker.shorten_log().await.unwrap();
    assert_eq!((kept.dropped, kept.held_by), (0, Some(By::Arrival)));
    rig.clock.advance(10 * 60_000 - 1);
    let rig = rig.reopen();
    assert_eq!(dropped(&rig).await, 0, "so it is after a restart");
    let ids = rig.drain_ids("g", "t").await;
    assert!(ids.len() == 61 && ids.contains(&"late".to_owned()), "{ids:?}");
    // Nobody holds them any more either.
    rig.clock.advance(HOUR);
    assert!(dropped(&rig).await >= 2);
}

#[tokio::test]
async fn topics_that_are_deleted_and_made_again_show_nothing_old() {
    let rig = rig();
    rig.topic("t", 1).await;
    rig.topic("other", 1).await;
    rig.group("g").await;
    fill(&rig, "t", 0, 25).await;
    assert_eq!(rig.pop("g", "t", 1, 100 * HOUR).await.len(), 1);
    rig.ok(Command::request(request::DELETE_TOPIC_IN_BROKER)
        .with_header(&DeleteTopicRequestHeader { topic: "t".into(), only_if_empty: None }))
        .await;
    rig.topic("t", 1).await;
    fill(&rig, "other", 0, 10).await;
    rig.clock.advance(80 * HOUR);
    assert!(dropped(&rig).await >= 2, "leases of a deleted topic hold nothing");
    rig.broker.close();
    std::fs::remove_dir_all(rig.dir.path().join("index")).unwrap();
    let rig = rig.reopen();
    assert_eq!(bounds(&rig, "t").await, (0, 0));
    assert_eq!(rig.drain_ids("g", "t").await, Vec::<String>::new());
}

/// A disk of which so much is used, beside the log.
#[derive(Debug)]
struct FakeDisk {
    others: AtomicU64,
    total: u64,
}

impl Disk for FakeDisk {
    fn usage(&self, dir: &Path) -> std::io::Result<DiskUsage> {
        let log: u64 = std::fs::read_dir(dir.join("log"))?.map(|file| file.unwrap().metadata().unwrap().len()).sum();
        Ok(DiskUsage { used: self.others.load(Ordering::SeqCst) + log, total: self.total })
    }
}

#[tokio::test]
async fn a_disk_that_fills_up_takes_the_oldest_and_not_what_is_promised() {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let clock = Arc::new(ManualClock::new(START_MS));
    let disk = Arc::new(FakeDisk { others: (10 * SEGMENT).into(), total: 40 * SEGMENT });
    let mut config = support::config(dir.path());
    small(&mut config);
    config.disk_max_used_space_ratio = 50;
    let fake = disk.clone();
    let broker = Broker::open_with(config, clock.clone(), move |options| options.disk = fake).unwrap();
    let rig = Rig { dir, clock, broker, peer: Peer::local() };
    rig.topic("t", 1).await;
    rig.group("g").await;
    // Eight segments, and the one that is kept ready.
    fill(&rig, "t", 0, 75).await;
    assert_eq!(rig.broker.shorten_log().await.unwrap(), Retained::default());
    fill(&rig, "t", 75, 40).await;
    let went = rig.broker.shorten_log().await.unwrap();
    assert!(went.dropped >= 2 && went.held_back == 0, "{went:?}");
    assert_eq!(metric(&rig, "waybill_retention_segments_dropped_total{cause=\"disk\"}"), went.dropped as i64);
    let (min, next) = bounds(&rig, "t").await;
    assert!(min > 15 && min < 45 && next == 115, "{min} {next}");
    until_removed(&rig).await;
    assert_eq!(dropped(&rig).await, 0, "there is room again");

    // Somebody holds the oldest: nothing goes.
    let held = rig.pop("g", "t", 1, HOUR).await.remove(0);
    disk.others.store(14 * SEGMENT, Ordering::SeqCst);
    let went = rig.broker.shorten_log().await.unwrap();
    assert_eq!((went.dropped, went.held_by), (0, Some(By::Lease)));
    assert!(went.held_back >= 3);
    // Others have filled it: a twentieth, two segments, may always be there.
    disk.others.store(30 * SEGMENT, Ordering::SeqCst);
    assert_eq!(rig.ack("g", "t", &held.handle).await, response::SUCCESS);
    assert!(dropped(&rig).await >= 5);
    assert_eq!(rig.broker.core().store().segments().len(), 2);
    until_removed(&rig).await;
    assert_eq!(dropped(&rig).await, 0);
}

/// Until the files of what went are gone.
async fn until_removed(rig: &Rig) {
    let core = rig.broker.core();
    let removed = async {
        while core.store().segments()[0].base != core.store().stats().log_start {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(support::LIMIT, removed).await.expect("the files are removed");
}

#[tokio::test]
async fn the_log_is_kept_short_by_itself() {
    let rig = Rig::with(|config| {
        small(config);
        config.log_bytes_max = 4 * SEGMENT;
    });
    rig.topic("t", 1).await;
    let house = tokio::spawn(Arc::clone(&rig.broker).keep_house());
    fill(&rig, "t", 0, 100).await;
    let short = async {
        while metric(&rig, "waybill_store_log_bytes") > 4 * SEGMENT as i64 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(support::LIMIT, short).await.expect("it is shortened");
    until_removed(&rig).await;
    assert!(metric(&rig, "waybill_store_segments") <= 4);
    let files = std::fs::read_dir(rig.dir.path().join("log")).unwrap().count();
    assert!(files <= 5, "{files} files, with the one that is kept ready");
    let (min, next) = bounds(&rig, "t").await;
    assert!(min > 50 && next == 100, "{min} {next}");
    rig.broker.close();
    house.await.unwrap();
}

/// Many leases over many queues: the first of all is found, wherever it is.
#[tokio::test]
async fn the_first_of_many_leases_counts() {
    let rig = rig();
    rig.topic("t", 4).await;
    rig.group("g").await;
    for n in 0..1_500 {
        rig.send("t", &format!("m{n}")).await;
    }
    fill(&rig, "t", 0, 30).await;
    let mut handles: HashMap<i32, Vec<Got>> = HashMap::new();
    loop {
        let got = rig.pop("g", "t", 32, 100 * HOUR).await;
        if got.is_empty() {
            break;
        }
        for got in got {
            handles.entry(got.handle.queue_id).or_default().push(got);
        }
    }
    rig.clock.advance(80 * HOUR);
    // The last of the small ones of one queue is left.
    let kept = handles[&2].iter().filter(|got| got.message.body.len() < 100).max_by_key(|got| got.handle.offset);
    let kept = kept.unwrap().handle.offset;
    for got in handles.values().flatten() {
        if (got.handle.queue_id, got.handle.offset) != (2, kept) {
            if got.handle.offset % 97 == 0 {
                assert_eq!(dropped(&rig).await, 0);
            }
            assert_eq!(rig.ack("g", "t", &got.handle).await, response::SUCCESS);
        }
    }
    assert_eq!(rig.broker.shorten_log().await.unwrap().held_by, Some(By::Lease));
    assert_eq!(dropped(&rig).await, 0);
}

#[tokio::test]
async fn a_topic_can_keep_its_messages_for_a_shorter_time() {
    let rig = rig();
    for topic in ["short", "long"] {
        rig.ok(Command::request(request::UPDATE_AND_CREATE_TOPIC).with_header(&CreateTopicRequestHeader {
            attributes: Some(format!("+reserve.time={}", if topic == "short" { "3" } else { "-1" })),
            ..CreateTopicRequestHeader::new(topic, 1)
        }))
        .await;
    }
    rig.group("g").await;
    for n in 0..600 {
        rig.send("short", &format!("m{n:04}")).await;
        rig.send("long", &format!("m{n:04}")).await;
        if n == 299 {
            rig.clock.advance(2 * HOUR);
        }
    }
    let rig = rig.reopen();
    assert_eq!(rig.broker.drop_old_of_topics().await.unwrap(), 0);
    rig.clock.advance(2 * HOUR);
    // What is held stays, and what comes after it.
    let mut got = Vec::new();
    while got.len() < 200 {
        got.extend(rig.pop("g", "short", 32, HOUR).await);
    }
    for got in &got {
        if got.handle.offset != 100 {
            assert_eq!(rig.ack("g", "short", &got.handle).await, response::SUCCESS);
        }
    }
    assert_eq!(rig.broker.drop_old_of_topics().await.unwrap(), 100);
    assert_eq!(bounds(&rig, "short").await, (100, 600));
    assert_eq!(rig.ack("g", "short", &got[100].handle).await, response::SUCCESS);
    assert_eq!(rig.broker.drop_old_of_topics().await.unwrap(), 200);
    assert_eq!(metric(&rig, "waybill_retention_messages_dropped_total{cause=\"topic\"}"), 300);
    assert_eq!(bounds(&rig, "short").await, (300, 600));
    assert_eq!(bounds(&rig, "long").await, (0, 600));
    assert_eq!(counts(&rig, "g"), Counts { lag: 300, ..Counts::default() });
    rig.broker.close();
    std::fs::remove_dir_all(rig.dir.path().join("index")).unwrap();
    let rig = rig.reopen();
    let expected: Vec<_> = (300..600).map(|n| format!("m{n:04}")).collect();
    assert_eq!(rig.drain_ids("g", "short").await, expected);
    assert_eq!(bounds(&rig, "long").await, (0, 600));
}

#[tokio::test]
async fn a_topic_cannot_keep_its_messages_longer_than_the_broker() {
    let rig = rig();
    let put = async |queues: i32, attributes: &str| {
        let header = CreateTopicRequestHeader {
            attributes: Some(attributes.into()),
            ..CreateTopicRequestHeader::new("t", queues)
        };
        rig.call(Command::request(request::UPDATE_AND_CREATE_TOPIC).with_header(&header)).await
    };
    let refused = put(1, "+reserve.time=73").await;
    assert_eq!(refused.code, response::INVALID_PARAMETER);
    let why = refused.remark.unwrap_or_default();
    assert!(why.contains("reserve.time is 73 hours") && why.contains("72 hours at most (fileReservedTime)"), "{why}");
    assert!(rig.broker.core().catalog().topic("t").is_none());
    assert_eq!(put(1, "+reserve.time=72").await.code, response::SUCCESS);
    let mut shorter = rig.broker.in_force().as_ref().clone();
    shorter.file_reserved_time = 24;
    rig.broker.reconfigure(&shorter).unwrap();
    // What it has it may keep, so that other settings can still be changed; but it gets it no more.
    assert_eq!(put(2, "").await.code, response::SUCCESS);
    assert_eq!(put(2, "+reserve.time=72").await.code, response::SUCCESS);
    assert_eq!(put(2, "+reserve.time=48").await.code, response::INVALID_PARAMETER);
    assert_eq!(put(2, "-reserve.time").await.code, response::SUCCESS);
    assert_eq!(put(2, "+reserve.time=72").await.code, response::INVALID_PARAMETER);
    assert_eq!(put(2, "+reserve.time=24").await.code, response::SUCCESS);
}
