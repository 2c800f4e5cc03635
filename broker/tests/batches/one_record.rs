//! One record in the log, one answer per entry.

use super::support::Rig;
use super::{ack_entry, batch_ack, batch_change, entry, upstream_batch_ack};
use waybill_protocol::handle::ReceiptHandle;
use waybill_protocol::remoting::codes::response;
use waybill_protocol::remoting::{
    BatchChangeInvisibleEntry, BatchChangeInvisibleResult, EntryCodes, SubscriptionGroupConfig,
};

/// C08, as far as the broker is concerned.
#[tokio::test]
async fn a_batch_ack_says_which_entry_failed_if_it_is_asked() {
    let (rig, got) = Rig::with_messages(8).await;
    let first = &got[0].handle;
    let stale = ReceiptHandle { pop_time: first.pop_time - 1, start_offset: 5, ..first.clone() };
    let command = batch_ack(vec![
        ack_entry("g", "t", first, &[0, 1, 2]),
        ack_entry("g", "t", &stale, &[5]),
        ack_entry("g", "t", first, &[1, 100]),
    ]);
    let answer: EntryCodes = rig.ok(command).await.json().unwrap();
    let codes: Vec<i32> = answer.entries.iter().map(|entry| entry.code).collect();
    let (ok, no) = (response::SUCCESS, response::NO_MESSAGE);
    assert_eq!(codes, [ok, ok, ok, no, ok, no], "a repetition is harmless, a stale or unknown one fails alone");
    rig.clock.advance(60_000);
    assert_eq!(rig.drain_ids("g", "t").await, ["m003", "m004", "m005", "m006", "m007"]);
}

#[tokio::test]
async fn a_batch_ack_of_an_upstream_peer_gets_the_upstream_answer() {
    let (rig, got) = Rig::with_messages(3).await;
    let answer = rig.ok(upstream_batch_ack(vec![ack_entry("g", "t", &got[0].handle, &[0, 1, 77])])).await;
    assert!(answer.body.is_empty());
    assert_eq!(rig.call(upstream_batch_ack(Vec::new())).await.code, response::NO_MESSAGE);
    rig.clock.advance(60_000);
    assert_eq!(rig.drain_ids("g", "t").await, ["m002"]);
}

/// C07, as far as the broker is concerned: one record and one sync for the whole batch, one answer for each entry.
#[tokio::test]
async fn a_batch_change_is_one_record_and_bad_entries_fail_alone() {
    let (rig, got) = Rig::with_messages(100).await;
    let mut entries: Vec<_> = got.iter().map(|got| entry(&got.handle, 120_000)).collect();
    entries[3].extra_info = "garbage".into();
    entries[4].topic = "another".into();
    entries[5].invisible_time = -1;
    entries[6].extra_info = ReceiptHandle { pop_time: 1, ..got[6].handle.clone() }.to_string();
    entries.push(entry(&got[0].handle, 90_000));
    let before = rig.broker.core().store().stats();
    let answer: BatchChangeInvisibleResult = rig.ok(batch_change(entries)).await.json().unwrap();
    let after = rig.broker.core().store().stats();
    assert_eq!((after.records - before.records, after.syncs - before.syncs), (1, 1));
    let codes: Vec<i32> = answer.entries.iter().map(|entry| entry.code).collect();
    assert_eq!(codes.len(), 101, "one answer for each entry");
    for (index, code) in codes.iter().enumerate() {
        let expected = match index {
            3 | 4 => response::MESSAGE_ILLEGAL,
            5 => response::INVALID_PARAMETER,
            6 => response::NO_MESSAGE,
            _ => response::SUCCESS,
        };
        assert_eq!(*code, expected, "entry {index}");
    }
    assert_eq!(answer.entries[100].pop_time, got[0].handle.pop_time);
    rig.clock.advance(60_000);
    assert_eq!(
        rig.drain_ids("g", "t").await,
        ["m003", "m004", "m005", "m006"],
        "those that failed kept their old lease"
    );
    rig.clock.advance(30_000);
    assert_eq!(rig.drain_ids("g", "t").await, ["m000"], "of two changes of one message the last one holds");
    rig.clock.advance(30_000);
    assert_eq!(rig.drain_ids("g", "t").await.len(), 95);
}

#[tokio::test]
async fn suspend_gives_back_without_counting() {
    let (rig, got) = Rig::with_messages(1).await;
    let entry = BatchChangeInvisibleEntry { suspend: true, ..entry(&got[0].handle, 0) };
    rig.ok(batch_change(vec![entry])).await;
    let again = rig.pop("g", "t", 1, 60_000).await;
    assert_eq!(again[0].attempt(), 1);
}

/// Acks of several topics are one record for each.
#[tokio::test]
async fn a_batch_ack_over_topics_answers_in_the_order_of_the_request() {
    let rig = Rig::new();
    rig.group("g").await;
    let mut got = Vec::new();
    for topic in ["a", "b", "c"] {
        rig.topic(topic, 1).await;
        for n in 0..3 {
            rig.send(topic, &format!("{topic}{n}")).await;
        }
        got.push(rig.pop("g", topic, 3, 60_000).await);
    }
    let stale = ReceiptHandle { pop_time: 1, ..got[1][1].handle.clone() };
    let acks = vec![
        ack_entry("g", "a", &got[0][0].handle, &[0]),
        ack_entry("g", "b", &got[1][0].handle, &[0]),
        ack_entry("g", "missing", &got[0][0].handle, &[0]),
        ack_entry("g", "a", &got[0][0].handle, &[1, 2]),
        ack_entry("g", "b", &stale, &[1]),
        ack_entry("nobody", "c", &got[2][0].handle, &[1]),
        ack_entry("g", "c", &got[2][0].handle, &[0]),
    ];
    let before = rig.broker.core().store().stats();
    let answer: EntryCodes = rig.ok(batch_ack(acks)).await.json().unwrap();
    let after = rig.broker.core().store().stats();
    let codes: Vec<i32> = answer.entries.iter().map(|entry| entry.code).collect();
    let (ok, no, missing) = (response::SUCCESS, response::NO_MESSAGE, response::TOPIC_NOT_EXIST);
    assert_eq!(codes, [ok, ok, missing, ok, ok, no, no, ok]);
    assert_eq!(after.records - before.records, 3, "one for each topic");
    rig.clock.advance(60_000);
    assert!(rig.drain_ids("g", "a").await.is_empty());
    assert_eq!(rig.drain_ids("g", "b").await, ["b1", "b2"]);
    assert_eq!(rig.drain_ids("g", "c").await, ["c1", "c2"]);
}

/// None of them is waited for before the next is given to the store. Where the machine is busy the store may be done with one before the
/// next comes, but not each time; if they were waited for, no sync would ever be shared.
#[tokio::test]
async fn acks_of_several_topics_share_a_sync() {
    let rig = Rig::new();
    rig.group("g").await;
    for topic in ["a", "b", "c"] {
        rig.topic(topic, 1).await;
    }
    for _ in 0..100 {
        let mut acks = Vec::new();
        for topic in ["a", "b", "c"] {
            rig.send(topic, "m").await;
            let got = rig.pop("g", topic, 1, 60_000).await;
            let handle = &got[0].handle;
            acks.push(ack_entry("g", topic, handle, &[handle.offset]));
        }
        let before = rig.broker.core().store().stats();
        rig.ok(batch_ack(acks)).await;
        let after = rig.broker.core().store().stats();
        assert_eq!(after.records - before.records, 3, "one for each topic");
        if after.syncs - before.syncs < 3 {
            return;
        }
    }
    panic!("each of a hundred batches had a sync for each topic");
}

/// The upstream defect: of two rows with one key the deletion of the old one takes the new one along.
#[tokio::test]
async fn a_lease_extended_to_the_millisecond_at_which_it_ends_anyway_is_kept() {
    let (rig, got) = Rig::with_messages(2).await;
    let entries = got.iter().map(|got| entry(&got.handle, 60_000)).collect();
    let answer: BatchChangeInvisibleResult = rig.ok(batch_change(entries)).await.json().unwrap();
    for (result, got) in answer.entries.iter().zip(&got) {
        assert_eq!(
            (result.code, result.pop_time, result.invisible_time),
            (response::SUCCESS, got.handle.pop_time, got.handle.invisible_time)
        );
    }
    let rig = rig.reopen();
    rig.clock.advance(59_999);
    assert!(rig.drain_ids("g", "t").await.is_empty(), "held to the end");
    rig.clock.advance(1);
    assert_eq!(rig.drain_ids("g", "t").await, ["m000", "m001"], "and given out again after it");
}

#[tokio::test]
async fn an_ordered_group_gets_its_messages_in_order_after_a_batch_gave_them_back() {
    let rig = Rig::new();
    rig.topic("t", 1).await;
    let config = SubscriptionGroupConfig {
        group_name: "g".into(),
        consume_message_orderly: true,
        ..SubscriptionGroupConfig::default()
    };
    rig.group_with(config).await;
    for n in 0..3 {
        rig.send_in_group("t", &format!("m{n}"), "one").await;
    }
    let got = rig.pop("g", "t", 3, 60_000).await;
    assert_eq!(got.len(), 3, "a batch of one message group is taken together");
    // The head stays, so the others must not overtake it although they are visible.
    let entries = got[1..].iter().map(|got| entry(&got.handle, 0)).collect();
    rig.ok(batch_change(entries)).await;
    assert!(rig.pop("g", "t", 3, 60_000).await.is_empty());
    let suspended = BatchChangeInvisibleEntry { suspend: true, ..entry(&got[0].handle, 0) };
    rig.ok(batch_change(vec![suspended])).await;
    let again = rig.pop("g", "t", 3, 60_000).await;
    let order: Vec<(String, i32)> = again.iter().map(|got| (got.id(), got.attempt())).collect();
    assert_eq!(order, [("m0".into(), 1), ("m1".into(), 2), ("m2".into(), 2)], "only what was suspended is not counted");
}

#[tokio::test]
async fn what_was_delivered_again_is_changed_by_its_newest_handle_only() {
    let (rig, got) = Rig::with_messages(4).await;
    rig.clock.advance(60_000);
    let again = rig.pop("g", "t", 4, 60_000).await;
    assert!(again.iter().all(|got| got.attempt() == 2));
    let entries = vec![
        entry(&got[0].handle, 300_000),
        entry(&again[0].handle, 300_000),
        entry(&again[1].handle, 300_000),
        entry(&got[1].handle, 0),
    ];
    let answer: BatchChangeInvisibleResult = rig.ok(batch_change(entries)).await.json().unwrap();
    let codes: Vec<i32> = answer.entries.iter().map(|entry| entry.code).collect();
    let (ok, no) = (response::SUCCESS, response::NO_MESSAGE);
    assert_eq!(codes, [no, ok, ok, no]);
    rig.clock.advance(60_000);
    assert_eq!(rig.drain_ids("g", "t").await, ["m002", "m003"]);
}

#[tokio::test]
async fn the_limit_of_entries_is_configured() {
    let rig = Rig::with(|config| config.batch_max_entries = 2);
    rig.topic("t", 1).await;
    rig.group("g").await;
    rig.send("t", "m").await;
    let got = rig.pop("g", "t", 1, 60_000).await;
    let handle = &got[0].handle;
    rig.ok(batch_change(vec![entry(handle, 1_000); 2])).await;
    let answer = rig.call(batch_change(vec![entry(handle, 1_000); 3])).await;
    assert_eq!(answer.code, response::MESSAGE_ILLEGAL);
    assert!(answer.remark.unwrap().contains("allowed are 2 (batchMaxEntries)"));
    let answer = rig.call(batch_ack(vec![ack_entry("g", "t", handle, &[0, 1, 2])])).await;
    assert_eq!(answer.code, response::MESSAGE_ILLEGAL);
    rig.clock.advance(1_000);
    assert_eq!(rig.drain_ids("g", "t").await, ["m"], "a batch refused acknowledged nothing");
}
