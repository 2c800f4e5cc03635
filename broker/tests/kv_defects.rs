//! For every defect that is known of upstream's key-value path for pop consumption, a test that this broker does not have it.
//! Defects of parts that this broker does not have (a revive service, a lease cache with a flusher, locks with a time limit,
//! light message queues) are shown by what they made users see.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use support::{Got, Rig, got};
use tokio_util::sync::CancellationToken;
use waybill_broker::FlushDiskType;
use waybill_protocol::handle::ReceiptHandle;
use waybill_protocol::remoting::codes::{request, response};
use waybill_protocol::remoting::{
    Command, PopMessageRequestHeader, SubscriptionGroupConfig, UpdateConsumerOffsetRequestHeader,
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

/// #10736, case C12: what is acknowledged while the leases are written to the index comes back with a restart.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_acknowledged_near_a_checkpoint_and_near_its_deadline_stays_away() {
    const MESSAGES: usize = 6_000;
    let rig = Rig::with(|config| {
        config.flush_disk_type = FlushDiskType::Async;
        config.index_checkpoint_bytes = 64 << 10; // a checkpoint every few hundred acks
    });
    rig.topic("t", 4).await;
    rig.group("g").await;
    for n in 0..MESSAGES {
        rig.send("t", &format!("m{n}")).await;
    }
    let mut rig = rig;
    let (mut acked, mut delivered) = (HashSet::new(), 0);
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
            rig = rig.reopen();
        }
    }
    let rig = rig.reopen();
    rig.clock.advance(1_000);
    let left: HashSet<String> = rig.drain_ids("g", "t").await.into_iter().collect();
    assert!(left.is_disjoint(&acked));
    assert_eq!(left.len() + acked.len(), MESSAGES, "what was not acknowledged all returns");
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
    let header = PopMessageRequestHeader { poll_time: 20_000, ..rig.pop_command("g", "t", 1, 10_000) };
    let (answer, changed) = tokio::join!(rig.pop_raw(header), async {
        while rig.broker.core().polling("g", "t").unwrap() == 0 {
            tokio::task::yield_now().await;
        }
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

/// #9956, #7914: what is to be delivered again is put elsewhere, under a wrong offset or not at all, and is lost.
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

/// FIFO: a change answers a handle of zeros; without order info the offset is committed one too far; the loop is busy.
#[tokio::test]
async fn an_ordered_group_gets_usable_handles_and_loses_nothing() {
    let rig = Rig::new();
    rig.topic("t", 1).await;
    let config =
        SubscriptionGroupConfig { group_name: "g".into(), consume_message_orderly: true, ..Default::default() };
    rig.group_with(config).await;
    for n in 0..4 {
        rig.send_in_group("t", &format!("m{n}"), "one").await;
    }
    let got = rig.pop("g", "t", 2, 60_000).await;
    let changed = rig.change("g", "t", &got[0].handle, 90_000).await.unwrap();
    assert_eq!((changed.pop_time, changed.next_visible_time()), (got[0].handle.pop_time, support::START_MS + 90_000));
    assert_eq!(rig.ack("g", "t", &changed).await, response::SUCCESS);
    let rig = rig.reopen();
    rig.clock.advance(90_000);
    assert_eq!(rig.drain_in_order("g", "t").await, ["m1", "m2", "m3"]);
}

/// #9695, #9370: pops go by the offset of pull consumers; a reset leaves it, and leases of old pops, behind.
#[tokio::test]
async fn a_pull_consumers_offset_does_not_move_pops() {
    let rig = rig_with(3).await;
    let header = UpdateConsumerOffsetRequestHeader {
        consumer_group: "g".into(),
        topic: "t".into(),
        queue_id: 0,
        commit_offset: 2,
    };
    rig.ok(Command::request(request::UPDATE_CONSUMER_OFFSET).with_header(&header)).await;
    assert_eq!(rig.drain_ids("g", "t").await, ["m0", "m1", "m2"]);
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
    let header = PopMessageRequestHeader { poll_time: 20_000, ..rig.pop_command("g", "t", 1, 10_000) };
    let polls = (0..8).map(|_| rig.pop_raw(header.clone()));
    let (answers, ()) = tokio::join!(futures::future::join_all(polls), async {
        while rig.broker.core().polling("g", "t").unwrap() < 8 {
            tokio::task::yield_now().await;
        }
        stop.cancel();
    });
    assert!(answers.iter().all(|answer| answer.code != response::SUCCESS), "{answers:?}");
    tokio::time::timeout(Duration::from_secs(20), serving).await.expect("it stops").unwrap();
}
