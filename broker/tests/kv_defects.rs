//! For every defect that is known of upstream's key-value path for pop consumption, a test that this broker does not have it.
//! Defects of parts that this broker does not have (a revive service, a lease cache with a flusher, locks with a time limit,
//! light message queues) are shown by what they made users see.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/files.rs"]
mod files;
mod support;

use std::collections::HashSet;
use std::fs::File;
use std::future::Future;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use support::{Got, Rig, got};
use tokio_util::sync::CancellationToken;
use waybill_broker::store::{Disk, Options, RealDisk};
use waybill_broker::{Broker, FlushDiskType};
use waybill_protocol::handle::ReceiptHandle;
use waybill_protocol::remoting::codes::{request, response};
use waybill_protocol::remoting::{
    Command, PopMessageRequestHeader, PopMessageResponseHeader, SendMessageRequestHeader, SubscriptionGroupConfig,
    UpdateConsumerOffsetRequestHeader,
};

async fn rig_with(count: usize) -> Rig {
    let rig = Rig::new();
    rig.topic("t", 1).await;
    rig.group("g").await;
    for n in 0..count {
        rig.send("t", &format!("m{n}")).await;
    }
    rig
}

/// The same of an ordered group, all in one message group.
async fn ordered_with(count: usize) -> Rig {
    let rig = Rig::new();
    rig.topic("t", 1).await;
    let config =
        SubscriptionGroupConfig { group_name: "g".into(), consume_message_orderly: true, ..Default::default() };
    rig.group_with(config).await;
    for n in 0..count {
        rig.send_in_group("t", &format!("m{n}"), "one").await;
    }
    rig
}

/// #10276: of a new row and an old one with equal keys, the deletion of the old one takes both.
#[tokio::test]
async fn a_lease_changed_to_its_own_deadline_is_kept_over_a_restart() {
    let rig = rig_with(1).await;
    let held = rig.pop("g", "t", 1, 60_000).await.remove(0);
    rig.clock.advance(20_000);
    rig.change("g", "t", &held.handle, 40_000).await.unwrap();
    let rig = rig.reopen();
    rig.clock.advance(39_999);
    assert!(rig.pop("g", "t", 1, 60_000).await.is_empty(), "neither lost nor visible");
    rig.clock.advance(1);
    assert_eq!(rig.pop("g", "t", 1, 60_000).await[0].attempt(), 2);
}

/// An ack with a wrong handle is answered with success; failures of the store are not reported.
#[tokio::test]
async fn an_ack_that_did_nothing_is_not_a_success() {
    let rig = rig_with(1).await;
    let held = rig.pop("g", "t", 1, 60_000).await.remove(0);
    for wrong in [
        ReceiptHandle { pop_time: held.handle.pop_time + 1, ..held.handle.clone() },
        ReceiptHandle { offset: 5, ..held.handle.clone() },
        ReceiptHandle { queue_id: 3, ..held.handle.clone() },
    ] {
        assert_ne!(rig.ack("g", "t", &wrong).await, response::SUCCESS, "{wrong}");
    }
    rig.broker.core().store().close().unwrap();
    assert_eq!(rig.ack("g", "t", &held.handle).await, response::SERVICE_NOT_AVAILABLE, "the store is gone");
}

/// The cache deletes by offset: an old handle's ack removes the row of the newer delivery.
#[tokio::test]
async fn an_old_handle_does_not_end_the_newer_delivery() {
    let rig = rig_with(1).await;
    let first = rig.pop("g", "t", 1, 10_000).await.remove(0);
    rig.clock.advance(10_000);
    let second = rig.pop("g", "t", 1, 10_000).await.remove(0);
    assert_eq!(rig.ack("g", "t", &first.handle).await, response::NO_MESSAGE);
    let rig = rig.reopen();
    rig.clock.advance(10_000);
    assert_eq!(rig.pop("g", "t", 1, 10_000).await[0].attempt(), 3, "it was not acknowledged");
    assert_eq!(rig.ack("g", "t", &second.handle).await, response::NO_MESSAGE);
}

/// #10736, case C12: what is acknowledged while the leases are written to the index comes back with a restart, here one after
/// an end without goodbye.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_acknowledged_near_a_checkpoint_and_near_its_deadline_stays_away() {
    const MESSAGES: usize = 6_000;
    let rig = Rig::with(|config| {
        config.flush_disk_type = FlushDiskType::Async;
        config.index_checkpoint_bytes = CHECKPOINT_BYTES; // one every few hundred acks
        config.mapped_file_size_commit_log = 1 << 20; // an end without goodbye copies them
        config.max_message_size = 1 << 16;
    });
    rig.topic("t", 4).await;
    rig.group("g").await;
    for n in 0..MESSAGES {
        rig.send("t", &format!("m{n}")).await;
    }
    let mut rig = rig;
    let (mut acked, mut delivered, mut ends) = (HashSet::new(), 0, 0);
    for round in 0.. {
        let got = rig.pop("g", "t", 32, 100).await;
        if got.is_empty() {
            rig.clock.advance(100);
            if acked.len() + MESSAGES / 10 >= MESSAGES {
                break;
            }
            continue;
        }
        // From fifty milliseconds before the end of the lease to fifty after it.
        rig.clock.advance(50 + (round * 7) % 101);
        for got in got {
            delivered += 1;
            assert!(!acked.contains(&got.id()), "{} was acknowledged", got.id());
            if delivered % 11 != 0 && rig.ack("g", "t", &got.handle).await == response::SUCCESS {
                acked.insert(got.id());
            }
        }
        if round % 40 == 39 {
            rig = crash(rig).await;
            ends += 1;
        }
    }
    assert!(ends > 2, "{ends} crashes");
    let rig = crash(rig).await;
    rig.clock.advance(1_000);
    let left: HashSet<String> = rig.drain_ids("g", "t").await.into_iter().collect();
    assert!(left.is_disjoint(&acked));
    assert_eq!(left.len() + acked.len(), MESSAGES, "what was not acknowledged all returns");
}

const CHECKPOINT_BYTES: u64 = 64 << 10;

/// Another broker on what the first one has in its files at this moment; a killed process leaves the same.
async fn crash(rig: Rig) -> Rig {
    let store = rig.broker.core().store().clone();
    // While the index is being written, a copy of its files is not what they were at any one moment.
    let settled = async {
        while {
            let stats = store.stats();
            stats.log_end - stats.log_indexed >= CHECKPOINT_BYTES
        } {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(support::LIMIT, settled).await.expect("the checkpoint is taken");
    let dir = Arc::new(files::temp_dir());
    files::copy(rig.dir.path(), dir.path());
    let mut config = rig.broker.config().clone();
    config.store_path_root_dir = dir.path().to_owned();
    let broker = Broker::open_with_clock(config, rig.clock.clone()).unwrap();
    Rig { dir, broker, ..rig }
}

/// A lock that ends by itself after two minutes lets two pops take the same messages; a loop runs on without the lock.
#[tokio::test(flavor = "multi_thread")]
async fn pops_at_the_same_time_never_share_a_message() {
    let rig = Arc::new(rig_with(400).await);
    let pops = (0..40).map(|_| {
        let rig = Arc::clone(&rig);
        tokio::spawn(async move { rig.pop("g", "t", 10, 600_000).await })
    });
    let mut ids = Vec::new();
    for pop in pops.collect::<Vec<_>>() {
        ids.extend(pop.await.unwrap().iter().map(Got::id));
    }
    assert_eq!((ids.len(), ids.iter().collect::<HashSet<_>>().len()), (400, 400));
}

/// A poll is not woken for messages to be delivered again (v1 retry topics, the default).
#[tokio::test]
async fn a_poll_that_waits_gets_what_is_given_back() {
    let rig = rig_with(1).await;
    let held = rig.pop("g", "t", 1, 600_000).await.remove(0);
    let (answer, changed) = tokio::join!(rig.poll("g", "t", 1), async {
        rig.until_waiting("g", "t", 1).await;
        rig.change("g", "t", &held.handle, 0).await
    });
    assert!(changed.is_ok());
    assert_eq!(got(&answer)[0].attempt(), 2);
}

/// A pop that fails inside is never answered.
#[tokio::test]
async fn a_pop_on_a_broken_store_is_answered() {
    let rig = rig_with(1).await;
    rig.broker.core().store().close().unwrap();
    let answer = rig.pop_raw(rig.pop_command("g", "t", 1, 10_000)).await;
    assert_eq!(answer.code, response::SERVICE_NOT_AVAILABLE);
}

/// Lengths of keys are counted in characters: names that are not ASCII break them.
#[tokio::test]
async fn names_that_are_not_ascii_are_refused_and_harm_nobody() {
    let rig = rig_with(1).await;
    let group = SubscriptionGroupConfig { group_name: "größe".into(), ..Default::default() };
    let command = Command::request(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP).with_json(&group);
    assert_ne!(rig.call(command).await.code, response::SUCCESS);
    let header = PopMessageRequestHeader { consumer_group: "größe".into(), ..rig.pop_command("g", "t", 1, 10_000) };
    assert_ne!(rig.pop_raw(header).await.code, response::SUCCESS);
    assert_eq!(rig.pop("g", "t", 1, 10_000).await.len(), 1);
}

/// #9956: what is to be delivered again is put elsewhere, under a wrong offset or not at all, and is lost.
#[tokio::test]
async fn a_message_is_delivered_again_from_where_it_lies_as_often_as_needed() {
    let rig = rig_with(3).await;
    let mut rig = rig;
    for attempt in 1..=6 {
        let mut got = rig.pop("g", "t", 3, 10_000).await;
        got.sort_by_key(Got::id);
        let told: Vec<_> = got.iter().map(|got| (got.id(), got.attempt(), got.handle.offset)).collect();
        assert_eq!(told, [("m0".into(), attempt, 0), ("m1".into(), attempt, 1), ("m2".into(), attempt, 2)]);
        rig.clock.advance(10_000);
        rig = rig.reopen();
    }
}

/// What is delivered again gets a topic that nobody asked for, and the number of the queue in place of the start offset.
#[tokio::test]
async fn what_is_delivered_again_has_its_own_topic_and_start_offset() {
    let rig = Rig::new();
    rig.topic("t", 8).await;
    rig.group("g").await;
    for n in 0..3 {
        let command = Rig::send_command("t", &format!("m{n}"), None, "x");
        let mut header = SendMessageRequestHeader::decode_v2(&command.ext).unwrap();
        header.queue_id = 7;
        rig.ok(Command::request(request::SEND_MESSAGE_V2).with_header(&header).with_body(command.body)).await;
    }
    let first = rig.pop("g", "t", 3, 10_000).await;
    assert_eq!(rig.ack("g", "t", &first[0].handle).await, response::SUCCESS);
    rig.clock.advance(10_000);
    let answer = rig.pop_raw(rig.pop_command("g", "t", 32, 10_000)).await;
    let header: PopMessageResponseHeader = answer.header().unwrap();
    assert_eq!(header.start_offset_info.as_deref(), Some("0 7 1"));
    assert_eq!(header.msg_offset_info.as_deref(), Some("0 7 1,2"));
    let got = got(&answer);
    assert_eq!(got.len(), 2);
    for (got, before) in got.iter().zip(&first[1..]) {
        assert_eq!((got.id(), got.attempt()), (before.id(), 2));
        assert_eq!((got.message.topic.as_str(), &got.message.properties), ("t", &before.message.properties));
        assert_eq!(rig.ack("g", "t", &got.handle).await, response::SUCCESS, "its handle is good");
    }
    rig.clock.advance(10_000);
    assert!(rig.pop("g", "t", 32, 10_000).await.is_empty());
}

/// A disk whose writes fail when told.
#[derive(Debug, Default)]
struct Failing(AtomicBool);

impl Disk for Failing {
    fn write_at(&self, file: &File, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        if self.0.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::Other.into());
        }
        RealDisk.write_at(file, parts, offset)
    }
}

/// #7914: a message is lost when the write fails by which it is delivered again, or put among the dead letters.
#[tokio::test]
async fn a_failed_write_of_a_redelivery_or_a_dead_letter_loses_nothing() {
    for attempts_left in [true, false] {
        let rig = Rig::new();
        rig.broker.close();
        let disk = Arc::new(Failing::default());
        let options = |options: &mut Options| options.disk = disk.clone();
        let broker = Broker::open_with(rig.broker.config().clone(), rig.clock.clone(), options).unwrap();
        let rig = Rig { broker, ..rig };
        rig.topic("t", 1).await;
        let retry_max_times = if attempts_left { 16 } else { 0 };
        rig.group_with(SubscriptionGroupConfig { group_name: "g".into(), retry_max_times, ..Default::default() }).await;
        rig.group("undertaker").await;
        rig.send("t", "m").await;
        assert_eq!(rig.pop("g", "t", 1, 10_000).await.len(), 1);
        rig.clock.advance(10_000);
        disk.0.store(true, Ordering::SeqCst);
        let failed = rig.pop_raw(rig.pop_command("g", "t", 1, 10_000)).await;
        assert_eq!(failed.code, response::SERVICE_NOT_AVAILABLE, "what could not be written is not given out");
        disk.0.store(false, Ordering::SeqCst);
        let housekeeping = tokio::spawn(Arc::clone(&rig.broker).keep_house());
        let healed = async {
            loop {
                let answer = rig.pop_raw(rig.pop_command("g", "t", 1, 10_000)).await;
                if answer.code != response::SERVICE_NOT_AVAILABLE {
                    return answer;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let answer = tokio::time::timeout(support::LIMIT, healed).await.expect("the store is opened again");
        housekeeping.abort();
        if attempts_left {
            assert_eq!(got(&answer)[0].id(), "m");
        } else {
            assert_eq!(answer.code, response::POLLING_TIMEOUT);
            assert_eq!(rig.drain_ids("undertaker", "%DLQ%g").await, ["m"], "there is one copy");
        }
    }
}

/// FIFO: a change answers a handle of zeros; without order info the offset is committed one too far.
#[tokio::test]
async fn an_ordered_group_gets_usable_handles_and_loses_nothing() {
    let rig = ordered_with(4).await;
    let got = rig.pop("g", "t", 2, 60_000).await;
    let changed = rig.change("g", "t", &got[0].handle, 90_000).await.unwrap();
    assert_eq!((changed.pop_time, changed.next_visible_time()), (got[0].handle.pop_time, support::START_MS + 90_000));
    assert_eq!(rig.ack("g", "t", &changed).await, response::SUCCESS);
    let rig = rig.reopen();
    rig.clock.advance(90_000);
    assert_eq!(rig.drain_in_order("g", "t").await, ["m1", "m2", "m3"]);
}

/// FIFO: who waits for a message that is held back tries for the lock without a pause.
#[tokio::test]
async fn a_poll_of_an_ordered_group_sleeps_while_the_head_is_held() {
    let rig = Arc::new(ordered_with(2).await);
    rig.topic("elsewhere", 1).await;
    let head = rig.pop("g", "t", 1, 600_000).await.remove(0);
    let turns = Arc::new(AtomicUsize::new(0));
    let waiting = tokio::spawn({
        let (rig, turns) = (Arc::clone(&rig), Arc::clone(&turns));
        async move {
            let mut poll = std::pin::pin!(rig.poll("g", "t", 1));
            std::future::poll_fn(|context| {
                turns.fetch_add(1, Ordering::SeqCst);
                poll.as_mut().poll(context)
            })
            .await
        }
    });
    rig.until_waiting("g", "t", 1).await;
    turns.store(0, Ordering::SeqCst);
    for n in 0..200 {
        rig.send("elsewhere", &format!("e{n}")).await;
    }
    assert_eq!(turns.load(Ordering::SeqCst), 0, "turns of the poll while others were served");
    assert_eq!(rig.ack("g", "t", &head.handle).await, response::SUCCESS);
    assert_eq!(got(&waiting.await.unwrap())[0].id(), "m1");
}

/// #9695: pops go by the offset that pull consumers commit; first seen with ordered groups.
#[tokio::test]
async fn a_pull_consumers_offset_does_not_move_pops() {
    for ordered in [false, true] {
        let rig = if ordered { ordered_with(3).await } else { rig_with(3).await };
        commit(&rig, 2).await;
        assert_eq!(rig.drain_in_order("g", "t").await, ["m0", "m1", "m2"], "ordered: {ordered}");
        commit(&rig, 0).await;
        let rig = rig.reopen();
        assert!(rig.pop("g", "t", 32, 10_000).await.is_empty(), "nor back, ordered: {ordered}");
    }
}

async fn commit(rig: &Rig, commit_offset: i64) {
    let header =
        UpdateConsumerOffsetRequestHeader { consumer_group: "g".into(), topic: "t".into(), queue_id: 0, commit_offset };
    rig.ok(Command::request(request::UPDATE_CONSUMER_OFFSET).with_header(&header)).await;
}

/// #9370: a reset leaves the offset of pull consumers behind, and leases of old pops. Here INVOKE_BROKER_TO_RESET_OFFSET leaves neither
/// (`reset.rs`); the requests by which a broker asks clients to move their own offsets are not answered.
#[tokio::test]
async fn clients_are_not_asked_to_move_a_group() {
    let rig = rig_with(1).await;
    for code in [request::RESET_CONSUMER_OFFSET_IN_BROKER, request::RESET_CONSUMER_CLIENT_OFFSET] {
        assert_eq!(rig.call(Command::request(code)).await.code, response::REQUEST_CODE_NOT_SUPPORTED);
    }
}

/// The bounds differ: ACK takes the offset one past the last message, CHANGE does not.
#[tokio::test]
async fn the_offset_past_the_last_message_is_nobodys() {
    let rig = rig_with(2).await;
    let got = rig.pop("g", "t", 2, 60_000).await;
    let past = ReceiptHandle { offset: 2, ..got[0].handle.clone() };
    assert_eq!(rig.ack("g", "t", &past).await, response::NO_MESSAGE);
    assert_eq!(rig.change("g", "t", &past, 10_000).await, Err(response::NO_MESSAGE));
    rig.send("t", "m2").await;
    assert_eq!(rig.pop("g", "t", 1, 60_000).await[0].id(), "m2", "it was not taken for done");
}

/// Where a new group begins depends on what happens to be in memory.
#[tokio::test]
async fn a_new_group_begins_at_the_same_message_before_and_after_a_restart() {
    for init_mode in [0, 1] {
        for restart in [false, true] {
            let rig = rig_with(3).await;
            let rig = if restart { rig.reopen() } else { rig };
            let header = PopMessageRequestHeader { init_mode, ..rig.pop_command("g", "t", 1, 10_000) };
            assert_eq!(got(&rig.pop_raw(header).await)[0].id(), "m0", "init mode {init_mode}, restart {restart}");
        }
    }
}

/// #9888: polls that are under way when the store closes crash.
#[tokio::test]
async fn polls_are_answered_when_the_broker_stops() {
    let rig = rig_with(0).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stop = CancellationToken::new();
    let broker = Arc::clone(&rig.broker);
    let serving = tokio::spawn({
        let stop = stop.clone();
        async move { broker.serve(listener, stop).await }
    });
    let polls = (0..8).map(|_| rig.poll("g", "t", 1));
    let (answers, ()) = tokio::join!(futures::future::join_all(polls), async {
        rig.until_waiting("g", "t", 8).await;
        stop.cancel();
    });
    assert!(answers.iter().all(|answer| answer.code != response::SUCCESS), "{answers:?}");
    tokio::time::timeout(support::LIMIT, serving).await.expect("it stops").unwrap();
}
