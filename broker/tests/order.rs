//! Ordered consumption through the requests of a real broker on a real store: the unit of order is the message group. Case C17.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use support::{Got, Rig, got};
use waybill_protocol::remoting::codes::response;
use waybill_protocol::remoting::{PopMessageRequestHeader, SubscriptionGroupConfig};

async fn rig(queues: i32) -> Rig {
    let rig = Rig::new();
    rig.topic("t", queues).await;
    let group_name = "g".into();
    rig.group_with(SubscriptionGroupConfig { group_name, consume_message_orderly: true, ..Default::default() }).await;
    rig
}

fn ids(got: &[Got]) -> Vec<String> {
    got.iter().map(Got::id).collect()
}

/// C17: a hundred messages of one group; twenty cold starts in the middle, with a batch in hand each time that is lost with the client.
#[tokio::test]
async fn c17_one_group_comes_in_order_through_twenty_cold_starts() {
    let mut rig = rig(4).await;
    let all: Vec<String> = (1..=100).map(|n| format!("m{n:03}")).collect();
    for id in &all {
        rig.send_in_group("t", id, "orders").await;
    }
    let mut done = Vec::new();
    for start in 0..20 {
        let batch = rig.pop("g", "t", 7, 10_000).await;
        assert_eq!(ids(&batch), all[done.len()..(done.len() + 7).min(100)], "start {start}");
        assert!(rig.pop("g", "t", 32, 10_000).await.is_empty(), "nothing while an earlier one is held");
        for got in batch.iter().take(5) {
            assert_eq!(rig.ack("g", "t", &got.handle).await, response::SUCCESS);
            done.push(got.id());
        }
        rig = rig.reopen();
        assert!(rig.pop("g", "t", 32, 10_000).await.is_empty(), "nor after a restart");
        rig.clock.advance(10_000);
    }
    assert_eq!(done, all);
    assert!(rig.pop("g", "t", 32, 10_000).await.is_empty());
}

/// C17: a client takes three of a group for 10 s, extends only the first to 20 s, and asks again at 12 s.
#[tokio::test]
async fn c17_extending_the_first_keeps_the_later_ones_back() {
    let mut rig = rig(1).await;
    for id in ["1", "2", "3"] {
        rig.send_in_group("t", id, "orders").await;
    }
    let first = rig.pop("g", "t", 3, 10_000).await;
    rig.change("g", "t", &first[0].handle, 20_000).await.expect("it is held");
    rig.clock.advance(12_000);
    assert!(rig.pop("g", "t", 3, 10_000).await.is_empty());
    rig = rig.reopen();
    rig.clock.advance(7_999);
    assert!(rig.pop("g", "t", 3, 10_000).await.is_empty());
    rig.clock.advance(1);
    let again = rig.pop("g", "t", 3, 10_000).await;
    assert_eq!((ids(&again), again[0].attempt()), (vec!["1".to_owned(), "2".to_owned(), "3".to_owned()], 2));
}

/// The head of one group is tried again and again; the other group of the same queue goes on, and its successors wait for it alone.
#[tokio::test]
async fn the_retry_of_a_head_blocks_its_group_only() {
    let mut rig = rig(1).await;
    for n in 0..6 {
        rig.send_in_group("t", &format!("slow{n}"), "slow").await;
        rig.send_in_group("t", &format!("fast{n}"), "fast").await;
    }
    let mut fast = Vec::new();
    for retry in 1..=3 {
        let head = rig.pop("g", "t", 1, 10_000).await.remove(0);
        assert_eq!((head.id(), head.attempt()), ("slow0".to_owned(), retry));
        rig.change("g", "t", &head.handle, 60_000).await.expect("it is held");
        for _ in 0..2 {
            let next = rig.pop("g", "t", 1, 10_000).await.remove(0);
            assert_eq!(rig.ack("g", "t", &next.handle).await, response::SUCCESS);
            fast.push(next.id());
        }
        rig = rig.reopen();
        rig.clock.advance(60_000);
    }
    assert_eq!(fast, (0..6).map(|n| format!("fast{n}")).collect::<Vec<_>>());
    assert_eq!(rig.drain_in_order("g", "t").await, (0..6).map(|n| format!("slow{n}")).collect::<Vec<_>>());
}

/// Fewer queues and more again: what is in them stays in order, and held back while an earlier one is held.
#[tokio::test]
async fn order_is_kept_when_the_number_of_queues_changes() {
    let mut rig = rig(4).await;
    for id in ["1", "2", "3"] {
        rig.send_in_group("t", id, "orders").await;
    }
    let held = rig.pop("g", "t", 1, 60_000).await.remove(0);
    for (queues, id) in [(1, "4"), (8, "5")] {
        rig.topic("t", queues).await;
        rig.send_in_group("t", id, "orders").await;
        rig = rig.reopen();
        assert!(rig.pop("g", "t", 32, 60_000).await.is_empty(), "{queues} queues");
    }
    assert_eq!(rig.ack("g", "t", &held.handle).await, response::SUCCESS);
    assert_eq!(rig.drain_in_order("g", "t").await, ["2", "3", "4", "5"]);
}

/// A receive is repeated after its answer was lost: the same batch as the same delivery, also from a broker that started meanwhile.
#[tokio::test]
async fn a_repeated_receive_gets_the_same_batch() {
    for orderly in [true, false] {
        let mut rig = Rig::new();
        rig.topic("t", 1).await;
        let config =
            SubscriptionGroupConfig { group_name: "g".into(), consume_message_orderly: orderly, ..Default::default() };
        rig.group_with(config).await;
        for id in ["1", "2", "3"] {
            rig.send_in_group("t", id, "orders").await;
        }
        let ask = |rig: &Rig, attempt: &str| PopMessageRequestHeader {
            attempt_id: Some(attempt.into()),
            order: Some(orderly),
            ..rig.pop_command("g", "t", 2, 60_000)
        };
        let lost = got(&rig.pop_raw(ask(&rig, "attempt-1")).await);
        rig.clock.advance(1_000);
        rig = rig.reopen();
        let again = got(&rig.pop_raw(ask(&rig, "attempt-1")).await);
        assert_eq!((ids(&again), ids(&lost)), (vec!["1".to_owned(), "2".into()], vec!["1".to_owned(), "2".into()]));
        assert!(again.iter().all(|got| got.attempt() == 1), "not counted twice");
        for got in &again {
            assert_eq!(rig.ack("g", "t", &got.handle).await, response::SUCCESS);
        }
        let next = got(&rig.pop_raw(ask(&rig, "attempt-2")).await);
        assert_eq!(ids(&next), ["3"], "what was acknowledged does not come again");
    }
}
