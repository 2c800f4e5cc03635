//! The races and defects seen in the field, each against the core, in the shapes of both brokers.

mod receipts_common;

use receipts_common::*;
use waybill_protocol::handle::{ReceiptHandle, TopicType};
use waybill_sidecar::receipts::{
    AckOutcome, ChangeError, ChangeOutcome, ChannelKind, Mode, Policy,
    core::{Ask, Dropped, Intent, Purpose},
};

/// An ack meets the first renewal in flight: nobody knows yet whether old handles stay valid, so it waits for the new
/// one.
#[test]
fn renew_concurrent_with_ack_uses_no_superseded_handle() {
    for shape in SHAPES {
        let mut world = World::new();
        let first = handle(1, 77);
        world.hold(&first, Mode::Renew);
        let (batch, item) = world.next_item();
        let begun = world.begin_ack(&first);
        assert!(begun.wait);
        let renewed = shape(&item.handle, MINUTE);
        let newest = world.settle(&batch, &item, MINUTE, Ok(renewed.clone()));
        assert_eq!(newest, Some(renewed), "this is what the ack must use");
        world.end_ack(&begun, AckOutcome::Done);
        assert_eq!(world.held(), 0);
    }
}

/// Once a broker has shown that handles stay valid, an ack waits for nothing.
#[test]
fn an_ack_waits_for_no_renewal_where_handles_stay_valid() {
    for (shape, waits) in [(extended as Shape, false), (moved, true)] {
        let mut world = World::new();
        let first = handle(1, 77);
        world.hold(&first, Mode::Renew);
        world.renew(shape);
        let (batch, item) = world.next_item();
        let begun = world.begin_ack(&first);
        assert_eq!(begun.wait, waits);
        if !waits {
            // The ack ends first; the renewal's answer finds nothing and does nothing.
            world.end_ack(&begun, AckOutcome::Done);
            assert_eq!(world.settle(&batch, &item, MINUTE, Ok(shape(&item.handle, MINUTE))), None);
            assert_eq!((world.held(), world.core.counters().stale, world.core.stats().in_flight), (0, 1, 0));
        }
    }
}

/// A change must be the last word at the broker, so it waits for a renewal even where handles stay valid.
#[test]
fn renew_concurrent_with_change_cannot_overtake_it() {
    for shape in SHAPES {
        let mut world = World::new();
        let first = handle(1, 77);
        world.hold(&first, Mode::Renew);
        world.renew(shape);
        let (batch, item) = world.next_item();
        let begun = world.begin(&first, Intent::Change).unwrap();
        assert!(begun.wait);
        let renewed = shape(&item.handle, 3 * MINUTE);
        assert_eq!(world.settle(&batch, &item, 3 * MINUTE, Ok(renewed.clone())), Some(renewed.clone()));
        world.core.end_request(batch.lane);
        world.nothing_sent();
        let changed = shape(&renewed, 30_000);
        world.end_change(&begun, 30_000, ChangeOutcome::Extended(changed.clone()));
        assert_eq!(world.newest(&first), Some(changed));
        world.pass(19_999);
        world.nothing_sent();
        world.pass(1);
        assert_eq!(
            world.only_item().1.purpose,
            Purpose::Renew,
            "ahead of the changed deadline, not of the renewed one"
        );
    }
}

/// A renewal's answer that arrives after a change has taken effect does not overwrite it.
#[test]
fn a_late_renewal_overwrites_nothing_newer() {
    let mut world = World::new();
    let first = handle(1, 77);
    world.hold(&first, Mode::Renew);
    let (batch, item) = world.next_item();
    let begun = world.begin(&first, Intent::Change).unwrap();
    let changed = moved(&first, 5 * MINUTE);
    world.end_change(&begun, 5 * MINUTE, ChangeOutcome::Extended(changed.clone()));
    for result in [Ok(moved(&first, MINUTE)), Err(ChangeError::Gone), Err(ChangeError::Busy)] {
        assert_eq!(world.settle(&batch, &item, MINUTE, result), None);
        assert_eq!(world.newest(&first), Some(changed.clone()));
    }
    assert_eq!((world.core.counters().stale, world.core.stats().in_flight, world.held()), (3, 0, 1));
}

/// The same answer twice, or the answer to a request about an earlier entry of the same slot.
#[test]
fn an_answer_counts_once_and_only_for_its_own_entry() {
    let mut world = World::new();
    let first = handle(1, 77);
    world.hold(&first, Mode::Renew);
    let (batch, item) = world.next_item();
    world.answer(&batch, &item, MINUTE, Ok(extended(&first, MINUTE)));
    world.settle(&batch, &item, MINUTE, Err(ChangeError::Gone));
    assert_eq!(world.held(), 1);
    let (batch, item) = world.next_item();
    let begun = world.begin_ack(&first);
    world.end_ack(&begun, AckOutcome::Done);
    // Another message takes the slot.
    let second = handle(2, 77);
    world.hold(&second, Mode::Renew);
    world.settle(&batch, &item, MINUTE, Err(ChangeError::Gone));
    world.end_ack(&begun, AckOutcome::Done);
    assert_eq!(world.newest(&second), Some(second));
}

/// Forwarded to the dead-letter topic: not renewed afterwards; not forgotten when the forward failed.
#[test]
fn forward_removes_only_when_it_happened() {
    let mut world = World::new();
    let first = handle(1, 77);
    world.hold(&first, Mode::Renew);
    let begun = world.begin_ack(&first);
    world.end_ack(&begun, AckOutcome::Failed);
    world.renew(extended);
    let begun = world.begin_ack(&first);
    world.end_ack(&begun, AckOutcome::Done);
    assert_eq!((world.held(), world.core.next_wake(world.now)), (0, None));
}

/// Endless entries: whatever happens, an entry that nobody acks is gone once its last lease is over.
#[test]
fn nothing_is_held_for_ever() {
    for error in ChangeError::ALL {
        let mut world = World::new();
        world.hold(&handle(1, 77), Mode::Renew);
        world.hold(&handle(2, 77), Mode::Keep);
        for _ in 0..1_000 {
            for batch in world.batches() {
                for item in &batch.items {
                    world.settle(&batch, item, MINUTE, Err(error));
                }
                world.core.end_request(batch.lane);
            }
            match world.core.next_wake(world.now) {
                Some(at) => world.now = world.now.max(at),
                None => break,
            }
        }
        assert_eq!((world.held(), world.core.next_wake(world.now)), (0, None), "{error:?}");
    }
    // Answered always OK: until renewMaxTimeMillis plus the longest step, then let go.
    let mut world = World::new();
    let since = world.now;
    world.hold(&handle(1, 77), Mode::Renew);
    while world.held() > 0 {
        for batch in world.batches() {
            let item = batch.items[0].clone();
            let ms = match item.ask {
                Ask::For(ms) => ms,
                Ask::Backoff(_) => 10_000,
            };
            world.answer(&batch, &item, ms, Ok(extended(&item.handle, ms)));
        }
        world.now = world.core.next_wake(world.now).unwrap_or(world.now).max(world.now);
    }
    assert!(world.now - since <= (180 + 61) * MINUTE, "{}", world.now - since);
}

/// An answer that never comes holds nothing up: the entry can be acked, and is renewed again when the request is given
/// up.
#[test]
fn a_request_that_never_ends_blocks_no_ack() {
    let mut world = World::new();
    let first = handle(1, 77);
    world.hold(&first, Mode::Renew);
    world.renew(extended);
    let (_batch, _item) = world.next_item();
    let begun = world.begin_ack(&first);
    assert!(!begun.wait);
    world.end_ack(&begun, AckOutcome::Done);
    assert_eq!(world.held(), 0);
}

/// A change that was refused because of flow control leaves the entry with its handle.
#[test]
fn a_flow_limited_change_loses_no_handle() {
    for shape in SHAPES {
        let mut world = World::new();
        let first = handle(1, 77);
        world.hold(&first, Mode::Renew);
        let newest = world.renew(shape);
        let begun = world.begin(&first, Intent::Change).unwrap();
        assert_eq!(begun.handle, newest);
        world.end_change(&begun, 30_000, ChangeOutcome::Failed);
        assert_eq!(world.newest(&first), Some(newest));
        world.renew(shape);
    }
}

/// A renewal in flight when the client leaves: its answer brings the newest handle, and that one is returned; nothing
/// is renewed any more.
#[test]
fn a_client_that_leaves_during_a_renewal_gives_back_the_newest_handle() {
    for shape in SHAPES {
        let mut world = World::new();
        let first = handle(1, 77);
        world.hold(&first, Mode::Renew);
        let (batch, item) = world.next_item();
        world.core.client_gone(world.now, HOLDER.client, None);
        world.nothing_sent();
        let renewed = shape(&item.handle, MINUTE);
        world.answer(&batch, &item, MINUTE, Ok(renewed.clone()));
        let (_, item) = world.only_item();
        assert_eq!((item.purpose, item.handle), (Purpose::Return, renewed));
    }
}

/// An ack that comes while its message is being returned wins if it can; while the return is in flight it uses what
/// that brings.
#[test]
fn an_ack_meets_a_return() {
    for shape in SHAPES {
        let mut world = World::new();
        let first = handle(1, 77);
        world.hold(&first, Mode::Renew);
        world.core.client_gone(world.now, HOLDER.client, None);
        // Not sent yet: the ack comes first, and done is done.
        let begun = world.begin_ack(&first);
        world.nothing_sent();
        world.end_ack(&begun, AckOutcome::Failed);
        // Sent: the ack waits for the handle it brings.
        let (batch, item) = world.only_item();
        let begun = world.begin_ack(&first);
        assert!(begun.wait);
        let returned = shape(&item.handle, 1_000);
        assert_eq!(world.settle(&batch, &item, 1_000, Ok(returned.clone())), Some(returned));
        world.end_ack(&begun, AckOutcome::Done);
        assert_eq!((world.held(), world.dropped(Dropped::Returned)), (0, 1));
    }
}

/// A negative ack whose client leaves before the answer: the back-off stays as the client wanted it.
#[test]
fn a_client_that_leaves_during_its_negative_ack_keeps_its_back_off() {
    let mut world = World::new();
    let first = handle(1, 77);
    world.hold(&first, Mode::Renew);
    let begun = world.begin(&first, Intent::Change).unwrap();
    world.core.client_gone(world.now, HOLDER.client, None);
    world.end_change(&begun, 90_000, ChangeOutcome::LetGo(moved(&first, 90_000)));
    world.nothing_sent();
    assert_eq!(world.held(), 0);
}

/// The pop of a normal topic and of a retry topic with equal queue, offset and message id are two messages.
#[test]
fn normal_and_retry_topic_do_not_collide() {
    let mut world = World::new();
    let normal = handle(1, 77);
    let kinds =
        [TopicType::RetryV1, TopicType::RetryV2].map(|topic_type| ReceiptHandle { topic_type, ..handle(1, 88) });
    world.hold(&normal, Mode::Renew);
    for retry in &kinds {
        world.hold(retry, Mode::Renew);
    }
    assert_eq!(world.held(), 3);
    assert_eq!(world.newest(&kinds[0]), Some(kinds[0].clone()));
    let begun = world.begin_ack(&normal);
    world.end_ack(&begun, AckOutcome::Done);
    assert_eq!((world.newest(&normal), world.newest(&kinds[1])), (None, Some(kinds[1].clone())));
    // They are of different real topics, so they do not share a request.
    world.pass(LEASE - 10_000);
    assert_eq!(world.batches().len(), 2);
}

/// No handle is renewed twice at the same time, however long the first request takes.
#[test]
fn one_request_per_handle() {
    let mut world = World::new();
    world.hold(&handle(1, 77), Mode::Renew);
    let (batch, item) = world.next_item();
    for _ in 0..100 {
        world.pass(1_000);
        world.nothing_sent();
    }
    world.answer(&batch, &item, MINUTE, Err(ChangeError::Timeout));
    world.nothing_sent();
    assert_eq!((world.held(), world.dropped(Dropped::Late)), (0, 1));
}

/// Busy is not gone: the lease is not given up for it.
#[test]
fn a_busy_broker_costs_no_redelivery() {
    let mut world = World::new();
    world.hold(&handle(1, 77), Mode::Renew);
    for _ in 0..3 {
        let (batch, item) = world.next_item();
        world.answer(&batch, &item, MINUTE, Err(ChangeError::Busy));
    }
    world.renew(extended);
    assert_eq!((world.held(), world.dropped(Dropped::Late)), (1, 0));
}

/// What could not be written goes back through the manager, so no renewal with a stale handle follows.
#[test]
fn a_failed_write_is_returned_once_and_not_renewed() {
    for shape in SHAPES {
        let mut world = World::new();
        let first = handle(1, 77);
        world.hold(&first, Mode::Renew);
        let newest = world.renew(shape);
        world.core.give_back(world.now, HOLDER, ChannelKind::Grpc, vec![first.clone()]);
        let (batch, item) = world.only_item();
        assert_eq!((item.purpose, item.suspend, &item.handle), (Purpose::Return, true, &newest));
        world.answer(&batch, &item, 1_000, Ok(shape(&newest, 1_000)));
        assert_eq!((world.held(), world.core.next_wake(world.now)), (0, None));
    }
}

/// Apache answers a renewal of an ordered message that was acked meanwhile with success and zeros.
#[test]
fn an_answer_of_zeros_means_gone() {
    let mut world = World::new();
    let first = handle(1, 77);
    world.hold(&first, Mode::Renew);
    let (batch, item) = world.next_item();
    let zeros = ReceiptHandle { pop_time: 0, invisible_time: 0, revive_queue_id: 0, ..first };
    world.answer(&batch, &item, MINUTE, Ok(zeros));
    assert_eq!((world.held(), world.dropped(Dropped::Gone)), (0, 1));
}

/// An answer about another message is worth nothing.
#[test]
fn an_answer_about_another_message_is_not_taken_over() {
    let mut world = World::new();
    let first = handle(1, 77);
    world.hold(&first, Mode::Renew);
    let (batch, item) = world.next_item();
    let others = [
        ReceiptHandle { offset: 2, ..first.clone() },
        ReceiptHandle { queue_id: 2, ..first.clone() },
        ReceiptHandle { broker_name: "other".to_owned(), ..first.clone() },
        ReceiptHandle { topic_type: TopicType::RetryV1, ..first.clone() },
    ];
    world.answer(&batch, &item, MINUTE, Ok(others[0].clone()));
    for (count, other) in others[1..].iter().enumerate() {
        assert_eq!(world.core.counters().failed(ChangeError::Other), 1 + count as u64);
        let (batch, item) = world.next_item();
        assert_eq!(item.handle, first);
        world.answer(&batch, &item, MINUTE, Ok(other.clone()));
    }
    assert_eq!(world.newest(&first), Some(first.clone()));
    assert_eq!(world.core.counters().renewed, 0);
    let begun = world.begin(&first, Intent::Change).unwrap();
    world.end_change(&begun, MINUTE, ChangeOutcome::Extended(handle(2, 77)));
    assert_eq!(world.newest(&first), Some(first));
}

/// Where handles change, two changes, or a change and an ack, of one message go one after the other: the second with
/// the handle of the first.
#[test]
fn a_change_goes_alone_where_handles_change() {
    for (shape, alone) in [(extended as Shape, false), (moved, true)] {
        let mut world = World::new();
        let first = handle(1, 77);
        world.hold(&first, Mode::Renew);
        let newest = world.renew(shape);
        let change = world.begin(&first, Intent::Change).unwrap();
        assert!(!change.wait);
        let ack = world.begin_ack(&first);
        assert_eq!(ack.wait, alone, "an ack after a change");
        let second = world.begin(&first, Intent::Change).unwrap();
        assert!(second.wait, "the last word must be the last");
        let changed = shape(&newest, 30_000);
        world.end_change(&change, 30_000, ChangeOutcome::Extended(changed.clone()));
        let ack = if alone { world.core.resume(ack.id, Intent::Finish).unwrap() } else { ack };
        assert!(!ack.wait);
        assert_eq!(ack.handle, if alone { changed.clone() } else { newest });
        // The second change: beside the ack where handles stay valid, after it where they do not.
        let second = world.core.resume(second.id, Intent::Change).unwrap();
        assert_eq!((second.wait, &second.handle), (alone, &changed));
        world.end_ack(&ack, AckOutcome::Failed);
        let second = if alone { world.core.resume(second.id, Intent::Change).unwrap() } else { second };
        assert!(!second.wait);
        world.end_change(&second, 30_000, ChangeOutcome::Failed);
        world.renew(shape);
    }
}

/// One that still waits is given up: the others do not notice.
#[test]
fn a_cancelled_waiter_leaves_nothing_behind() {
    let mut world = World::new();
    let first = handle(1, 77);
    world.hold(&first, Mode::Renew);
    world.renew(moved);
    let change = world.begin(&first, Intent::Change).unwrap();
    let waiting = world.begin_ack(&first);
    world.core.cancel(world.now, waiting.id);
    world.pass(LEASE - 5_000);
    world.nothing_sent();
    world.end_change(&change, 1, ChangeOutcome::Failed);
    world.renew(moved);
}

/// Ordered messages: the pop time stays while the duration grows beyond any limit, at both brokers; so their acks never
/// wait.
#[test]
fn ordered_handles_grow_and_never_wait() {
    let mut world = World::new();
    let mut moving = handle(9, 77);
    moving.queue_id = 5;
    world.hold(&moving, Mode::Renew);
    world.renew(moved);
    let ordered = ReceiptHandle { revive_queue_id: 999, invisible_time: 30_000, ..handle(1, 77) };
    world.hold(&ordered, Mode::Renew);
    let (batch, item) = world.next_item();
    assert_eq!(item.handle, ordered);
    assert!(!world.begin_ack(&ordered).wait, "although this broker's other handles change");
    let grown = ReceiptHandle { invisible_time: 100 * 3_600_000, ..ordered.clone() };
    world.answer(&batch, &item, MINUTE, Ok(grown.clone()));
    assert_eq!(world.newest(&ordered), Some(grown));
    // And what they show says nothing about the others: those still wait.
    let mut again = moving.clone();
    again.offset = 10;
    world.hold(&again, Mode::Renew);
    let batch = loop {
        let batches = world.batches();
        if let Some(batch) = batches.into_iter().find(|b| b.items.iter().any(|item| item.handle.queue_id == 5)) {
            break batch;
        }
        world.now = world.core.next_wake(world.now).unwrap();
    };
    let due = batch.items.iter().find(|item| item.handle.queue_id == 5).unwrap();
    let other = if due.handle.offset == 10 { &again } else { &moving };
    assert!(world.begin_ack(other).wait);
}

/// The clocks of broker and sidecar differ by hours: leases are counted from when they were seen.
#[test]
fn a_skewed_clock_ends_no_lease() {
    for pop_time in [1, i64::MAX / 2] {
        let mut world = World::new();
        let first = handle(1, pop_time);
        world.hold(&first, Mode::Renew);
        world.nothing_sent();
        assert_eq!(world.begin_ack(&first).handle, first);
    }
}

/// Many handles popped together share requests and do not pile up.
#[test]
fn handles_popped_together_are_renewed_in_few_requests() {
    let mut world = World::with(Policy { max_requests_per_broker: 100, ..Policy::default() });
    for offset in 0..10_000 {
        if offset % 100 == 0 {
            world.pass(1);
        }
        world.hold(&handle(offset, 77), Mode::Renew);
    }
    let mut batches = Vec::new();
    let mut wakes = 0;
    while batches.iter().map(|batch: &waybill_sidecar::receipts::core::Batch| batch.items.len()).sum::<usize>() < 10_000
    {
        let next = world.core.next_wake(world.now).unwrap();
        world.now = world.now.max(next);
        wakes += 1;
        batches.extend(world.batches());
    }
    assert!(wakes <= 4, "{wakes} wakes");
    assert!(batches.len() <= 13, "{} requests", batches.len());
}
