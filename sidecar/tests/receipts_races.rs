//! The races and defects seen in the field (and the cases C01, C02, C03, C05, C09), each against the core, in the shapes of both brokers.

mod receipts_common;

use receipts_common::*;
use waybill_protocol::handle::{ReceiptHandle, TopicType};
use waybill_sidecar::receipts::{
    AckOutcome, ChangeError, ChangeOutcome, ChannelKind, Holder, Mode, Policy,
    core::{Ask, Dropped, Intent, Purpose},
};

type Shape = fn(&ReceiptHandle, i64) -> ReceiptHandle;

/// How our broker answers, and how Apache's does.
const SHAPES: [Shape; 2] = [extended, moved];

/// An ack meets the first renewal in flight: nobody knows yet whether old handles stay valid, so it waits for the new one.
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

/// An answer that never comes holds nothing up: the entry can be acked, and is renewed again when the request is given up.
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

/// C01: after a change, the old handle and the new one both act on the same lease.
#[test]
fn a_changed_message_is_acked_by_its_old_and_by_its_new_handle() {
    for shape in SHAPES {
        for use_old in [true, false] {
            let mut world = World::new();
            let first = handle(5, 77);
            world.hold(&first, Mode::Renew);
            let begun = world.begin(&first, Intent::Change).unwrap();
            let changed = shape(&first, 10_000);
            world.end_change(&begun, 10_000, ChangeOutcome::LetGo(changed.clone()));
            let begun = world.begin_ack(if use_old { &first } else { &changed });
            assert_eq!(begun.handle, changed);
            world.end_ack(&begun, AckOutcome::Done);
            assert_eq!(world.held(), 0);
        }
    }
}

/// C03: the first try of an ack fails on the way; the client retries with the same handle until it gets a final answer.
#[test]
fn an_ack_that_failed_can_be_repeated_with_the_same_handle() {
    for shape in SHAPES {
        let mut world = World::new();
        let first = handle(1, 77);
        world.hold(&first, Mode::Renew);
        let mut newest = world.renew(shape);
        for _ in 0..5 {
            let begun = world.begin_ack(&first);
            assert_eq!(begun.handle, newest);
            world.pass(3_000);
            world.end_ack(&begun, AckOutcome::Failed);
            newest = world.renew(shape);
        }
        let begun = world.begin_ack(&first);
        assert_eq!(begun.handle, newest);
        world.end_ack(&begun, AckOutcome::Done);
        // A repeated ack of an acked message finds nothing here; the broker answers it.
        assert_eq!(world.begin(&first, Intent::Finish), None);
    }
}

/// C02: what the client holds is valid at our broker without this sidecar: the handles sent are all of one pop time.
#[test]
fn renewals_send_the_handle_the_client_has_where_handles_are_stable() {
    let mut world = World::new();
    let first = handle(1, 77);
    world.hold(&first, Mode::Renew);
    for _ in 0..8 {
        let newest = world.renew(extended);
        assert_eq!(newest.pop_time, first.pop_time);
    }
    // Kept handles go out and back without any change.
    let kept = handle(2, 77);
    world.hold(&kept, Mode::Keep);
    assert_eq!(world.begin_ack(&kept).handle, kept);
}

/// C05: a lease of the server's choice outlives the handler, however long it takes.
#[test]
fn a_handler_that_takes_longer_than_the_lease_acks_in_time() {
    for shape in SHAPES {
        let mut world = World::new();
        let first = handle(1, 77);
        world.hold(&first, Mode::Renew);
        let began = world.now;
        let mut deadline = world.now + LEASE;
        while world.now < began + 90_000 {
            let (batch, item) = world.next_item();
            assert!(world.now < deadline);
            let Ask::For(ms) = item.ask else { panic!("{item:?}") };
            deadline = world.now + ms;
            world.answer(&batch, &item, ms, Ok(shape(&item.handle, ms)));
        }
        let begun = world.begin_ack(&first);
        world.end_ack(&begun, AckOutcome::Done);
        assert_eq!((world.held(), world.dropped(Dropped::Late)), (0, 0));
    }
}

/// C09 and the clean-up that forgot before it knew: an unreachable broker for ten seconds, then everything goes back.
#[test]
fn a_clean_up_that_failed_is_repeated_until_done() {
    let mut world = World::with(Policy { max_batch: 16, ..Policy::default() });
    for offset in 0..100 {
        world.hold(&handle(offset, 77), Mode::Keep);
    }
    let left = world.now;
    world.core.client_gone(world.now, HOLDER.client, None);
    let mut back = 0;
    while world.held() > 0 {
        for batch in world.batches() {
            for item in &batch.items {
                assert_eq!(item.purpose, Purpose::Return);
                let reachable = world.now - left >= 10_000;
                let result = if reachable { Ok(extended(&item.handle, 1_000)) } else { Err(ChangeError::Unavailable) };
                back += u64::from(result.is_ok());
                world.settle(&batch, item, 1_000, result);
            }
            world.core.end_request(batch.lane);
        }
        world.now = world.core.next_wake(world.now).unwrap_or(world.now).max(world.now);
    }
    assert_eq!((back, world.dropped(Dropped::Returned)), (100, 100));
    assert!(world.now - left < 16_000, "{}", world.now - left);
}

/// A renewal in flight when the client leaves: its answer brings the newest handle, and that one is returned; nothing is renewed any more.
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

/// An ack that comes while its message is being returned wins if it can; while the return is in flight it uses what that brings.
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
    assert_eq!(world.dropped(Dropped::Late), 0, "late is found when it is looked at");
    world.pass(1);
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

/// The network between sidecar and broker is cut for ten seconds just when a renewal is due, the lease outlives it by a second.
#[test]
fn a_cut_that_the_lease_outlives_costs_nothing() {
    let mut world = World::new();
    world.hold(&handle(1, 77), Mode::Renew);
    let cut_until = world.now + LEASE - 1_000;
    loop {
        let (batch, item) = world.next_item();
        if world.now >= cut_until {
            world.answer(&batch, &item, MINUTE, Ok(extended(&item.handle, MINUTE)));
            break;
        }
        world.answer(&batch, &item, MINUTE, Err(ChangeError::Unavailable));
    }
    assert_eq!((world.core.counters().renewed, world.held(), world.core.stats().gave_up), (1, 1, 0));
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
    world.answer(&batch, &item, MINUTE, Ok(handle(2, 77)));
    assert_eq!(world.newest(&first), Some(first.clone()));
    assert_eq!(world.core.counters().failed(ChangeError::Other), 1);
    let begun = world.begin(&first, Intent::Change).unwrap();
    world.end_change(&begun, MINUTE, ChangeOutcome::Extended(handle(2, 77)));
    assert_eq!(world.newest(&first), Some(first));
}

/// Ordered messages: the pop time stays while the duration grows beyond any limit, at both brokers; so their acks never wait.
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

/// Memory is bounded: over the limit everything is refused or shed, and counted.
#[test]
fn a_flood_is_bounded_and_counted() {
    let policy = Policy { max_handles: 500, max_handles_per_client: 75, ..Policy::default() };
    let mut world = World::with(policy);
    let mut refused = 0;
    for offset in 0..2_000 {
        let client = format!("client-{}", offset % 7);
        let mut handle = handle(offset, 77);
        handle.invisible_time = 60_000 + offset * 7_919 % 20_000;
        refused += world.hold_for(Holder { client: &client, ..HOLDER }, &handle, Mode::Renew).refused.len() as u64;
    }
    let counters = world.core.counters();
    assert_eq!(world.held(), 500);
    assert_eq!(counters.refused, refused);
    assert_eq!(counters.registered - counters.dropped(Dropped::Shed), 500);
    assert!(counters.dropped(Dropped::Shed) > 0 && refused > 0);
}
