//! One test per rule of the receipt manager's core.

mod receipts_common;

use receipts_common::*;
use waybill_sidecar::receipts::{
    AckOutcome, ChangeError, ChangeOutcome, ChannelKind, DrainPolicy, Holder, Mode, Policy, PromiseSettings,
    core::{Ask, Dropped, Find, Intent, Purpose},
    promise,
};

#[test]
fn renews_ahead_of_the_deadline_along_the_policy() {
    let mut world = World::new();
    let first = handle(1, 77);
    world.hold(&first, Mode::Renew);
    let mut lease_began = world.now;
    let mut lease = LEASE;
    for minutes in [1, 3, 5, 10, 30, 60, 60] {
        let due = lease_began + lease - 10_000;
        world.now = due - 1;
        world.nothing_sent();
        world.now = due;
        let (batch, item) = world.only_item();
        assert_eq!((item.purpose, item.ask, item.suspend), (Purpose::Renew, Ask::For(minutes * MINUTE), false));
        lease_began = world.now;
        lease = minutes * MINUTE;
        world.pass(20);
        world.answer(&batch, &item, lease, Ok(extended(&item.handle, lease)));
        if minutes == 60 {
            break;
        }
    }
    assert_eq!(world.core.counters().renewed, 6);
    // The last step counts for all further renewals; the lease is counted from when the request was made, not from the answer.
    world.now = lease_began + lease - 10_000;
    assert_eq!(world.only_item().1.ask, Ask::For(60 * MINUTE));
}

#[test]
fn lets_go_with_the_groups_back_off_after_the_longest_time() {
    let mut world = World::with(Policy { renew_max_time_ms: 5 * MINUTE, ..Policy::default() });
    let first = handle(1, 77);
    let mut item = received(first.clone(), Mode::Renew);
    item.reconsume_times = 4;
    let held_since = world.now;
    world.core.register(world.now, HOLDER, ChannelKind::Grpc, &[item]);
    for _ in 0..3 {
        world.renew(extended);
    }
    let (batch, item) = world.next_item();
    assert_eq!(world.now - held_since, 560_000, "50 s, then 60 s, 3 min and 5 min, each less 10 s");
    assert_eq!((item.purpose, item.ask), (Purpose::LetGo, Ask::Backoff(4)));
    let let_go = extended(&item.handle, 30_000);
    world.answer(&batch, &item, 30_000, Ok(let_go.clone()));
    // A late ack still finds the newest handle, until the message is visible again.
    assert_eq!(world.newest(&first), Some(let_go));
    assert_eq!((world.core.stats().let_go, world.core.counters().outlived), (1, 1));
    world.pass(30_100);
    world.nothing_sent();
    assert_eq!((world.held(), world.dropped(Dropped::LetGo)), (0, 1));
}

#[test]
fn a_lease_shorter_than_the_lead_is_renewed_at_half_time() {
    let mut world = World::new();
    let mut short = handle(1, 77);
    short.invisible_time = 4_000;
    world.hold(&short, Mode::Renew);
    world.pass(1_999);
    world.nothing_sent();
    world.pass(1);
    world.only_item();
}

#[test]
fn a_kept_handle_is_never_renewed_and_forgotten_when_its_lease_is_over() {
    let mut world = World::new();
    let kept = handle(1, 77);
    world.hold(&kept, Mode::Keep);
    for _ in 0..60 {
        world.pass(999);
        world.nothing_sent();
        assert_eq!(world.newest(&kept), Some(kept.clone()));
    }
    world.pass(160);
    world.nothing_sent();
    assert_eq!((world.held(), world.dropped(Dropped::Expired)), (0, 1));
    assert_eq!(world.core.next_wake(world.now), None, "nothing left to wake for");
}

#[test]
fn found_by_first_handle_by_any_later_one_and_by_message_id() {
    let mut world = World::new();
    let first = handle(1, 1_000);
    world.hold(&first, Mode::Renew);
    let second = world.renew(moved);
    let third = world.renew(moved);
    for known in [&first, &second, &third] {
        assert_eq!(world.newest(known), Some(third.clone()));
    }
    assert_eq!(world.core.newest(HOLDER, Find::MessageId("id-1")), Some(third.clone()));
    // Of another client the id is not enough, the handle is.
    let other = Holder { client: "client-b", ..HOLDER };
    assert_eq!(world.core.newest(other, Find::MessageId("id-1")), None);
    assert_eq!(world.core.newest(other, Find::Handle(&first)), Some(third));
    // Neither another group's nor another topic's.
    assert_eq!(world.core.newest(Holder { group: "other", ..HOLDER }, Find::Handle(&first)), None);
    assert_eq!(world.core.newest(Holder { topic: "other", ..HOLDER }, Find::Handle(&first)), None);
    assert_eq!(world.core.newest(Holder { topic: "other", ..HOLDER }, Find::MessageId("id-1")), None);
    // A handle of a past or a future delivery of the same message is not this one's.
    assert_eq!(world.newest(&handle(1, 999)), None);
    assert_eq!(world.newest(&handle(1, 1_000_000)), None);
    assert_eq!(world.newest(&handle(2, 1_000)), None);
}

#[test]
fn the_newest_handle_keeps_all_its_parts() {
    let mut world = World::new();
    for commit_log_offset in [None, Some(0), Some(i64::MAX)] {
        let mut odd = handle(1, 1);
        odd.offset = i64::MAX;
        odd.commit_log_offset = commit_log_offset;
        odd.queue_id = i32::MIN;
        odd.start_offset = -5;
        odd.topic_type = waybill_protocol::handle::TopicType::RetryV2;
        world.hold(&odd, Mode::Renew);
        assert_eq!(world.newest(&odd), Some(odd.clone()));
        let begun = world.begin_ack(&odd);
        world.end_ack(&begun, AckOutcome::Done);
    }
}

#[test]
fn a_newer_delivery_replaces_the_older_whoever_held_it() {
    let mut world = World::new();
    let (old, new) = (handle(1, 100), handle(1, 200));
    world.hold(&old, Mode::Renew);
    let stale = world.begin_ack(&old);
    let other = Holder { client: "client-b", ..HOLDER };
    assert_eq!(world.hold_for(other, &new, Mode::Renew).held, 1);
    assert_eq!((world.held(), world.dropped(Dropped::Replaced)), (1, 1));
    assert_eq!((world.newest(&old), world.newest(&new)), (None, Some(new.clone())));
    // The ack of the old delivery ends; the new one is untouched.
    world.end_ack(&stale, AckOutcome::Done);
    assert_eq!(world.newest(&new), Some(new.clone()));
    // The old one's registration comes late: no effect.
    assert_eq!(world.hold(&old, Mode::Renew).held, 1);
    assert_eq!((world.held(), world.newest(&new)), (1, Some(new)));
}

#[test]
fn a_transient_failure_is_retried_within_the_lease_so_often_and_the_last_time_near_its_end() {
    for error in [ChangeError::Busy, ChangeError::Timeout, ChangeError::Unavailable, ChangeError::Other] {
        let mut world = World::new();
        let first = handle(1, 77);
        world.hold(&first, Mode::Renew);
        let deadline = world.now + LEASE;
        let mut tried = Vec::new();
        for _ in 0..4 {
            let (batch, item) = world.next_item();
            assert_eq!((item.purpose, item.ask, &item.handle), (Purpose::Renew, Ask::For(MINUTE), &first));
            tried.push(deadline - world.now);
            world.answer(&batch, &item, MINUTE, Err(error));
        }
        // Pauses grow, and the last try leaves one second for itself.
        assert_eq!(tried, [10_000, 8_800, 6_600, 1_000], "{error:?}");
        assert_eq!(world.core.counters().failed(error), 4);
        // Given up: not renewed any more, but found until the lease is over.
        assert_eq!(world.core.stats().gave_up, 1);
        assert_eq!(world.newest(&first), Some(first.clone()));
        world.now = deadline;
        world.nothing_sent();
        assert_eq!((world.held(), world.dropped(Dropped::GaveUp)), (0, 1));
    }
}

#[test]
fn a_success_forgives_earlier_failures() {
    let mut world = World::new();
    world.hold(&handle(1, 77), Mode::Renew);
    for _ in 0..3 {
        for _ in 0..3 {
            let (batch, item) = world.next_item();
            world.answer(&batch, &item, MINUTE, Err(ChangeError::Busy));
        }
        world.renew(extended);
    }
    assert_eq!((world.held(), world.core.stats().gave_up), (1, 0));
}

#[test]
fn a_dead_handle_is_dropped_a_refused_one_is_only_not_renewed() {
    let mut world = World::new();
    world.hold(&handle(1, 77), Mode::Renew);
    let (batch, item) = world.next_item();
    world.answer(&batch, &item, MINUTE, Err(ChangeError::Gone));
    assert_eq!((world.held(), world.dropped(Dropped::Gone)), (0, 1));

    world.hold(&handle(2, 77), Mode::Renew);
    let (batch, item) = world.next_item();
    world.answer(&batch, &item, MINUTE, Err(ChangeError::Refused));
    assert_eq!(world.core.stats().gave_up, 1);
    world.pass(9_000);
    world.nothing_sent();
    assert!(world.newest(&handle(2, 77)).is_some());
}

#[test]
fn each_entry_of_a_batch_has_its_own_result() {
    let mut world = World::new();
    for offset in 1..=5 {
        world.hold(&handle(offset, 77), Mode::Renew);
    }
    world.pass(LEASE - 10_000);
    let batches = world.batches();
    assert_eq!(batches.len(), 1);
    let batch = &batches[0];
    let result = |offset, handle| match offset {
        1 => Ok(extended(handle, MINUTE)),
        2 => Err(ChangeError::Gone),
        3 => Err(ChangeError::Busy),
        4 => Err(ChangeError::Refused),
        _ => Ok(moved(handle, MINUTE)),
    };
    for item in &batch.items {
        world.settle(batch, item, MINUTE, result(item.handle.offset, &item.handle));
    }
    world.core.end_request(batch.lane);
    let newest = |offset| world.newest(&handle(offset, 77));
    assert_eq!(newest(1), Some(extended(&handle(1, 77), MINUTE)));
    assert_eq!(newest(2), None);
    assert_eq!(newest(3), Some(handle(3, 77)));
    assert_eq!(newest(4), Some(handle(4, 77)));
    assert_eq!(newest(5), Some(moved(&handle(5, 77), MINUTE)));
    assert_eq!((world.core.counters().renewed, world.core.stats().in_flight), (2, 0));
}

#[test]
fn batches_are_per_group_topic_and_broker_and_no_larger_than_allowed() {
    let mut world = World::with(Policy { max_batch: 4, max_requests_per_broker: 100, ..Policy::default() });
    for (group, topic, broker, count) in
        [("g1", "t1", "b1", 10), ("g1", "t1", "b2", 3), ("g1", "t2", "b1", 1), ("g2", "t1", "b1", 5)]
    {
        for offset in 0..count {
            let mut handle = handle(offset, 77);
            handle.broker_name = broker.to_owned();
            world.hold_for(Holder { client: "c", group, topic }, &handle, Mode::Renew);
        }
    }
    world.pass(LEASE - 10_000);
    let mut seen: Vec<(String, String, String, usize)> = world
        .batches()
        .iter()
        .map(|batch| {
            assert!(batch.items.iter().all(|item| *item.handle.broker_name == *batch.broker));
            (batch.group.to_string(), batch.topic.to_string(), batch.broker.to_string(), batch.items.len())
        })
        .collect();
    seen.sort();
    let row = |g: &str, t: &str, b: &str, n| (g.to_owned(), t.to_owned(), b.to_owned(), n);
    let expected = [
        row("g1", "t1", "b1", 2),
        row("g1", "t1", "b1", 4),
        row("g1", "t1", "b1", 4),
        row("g1", "t1", "b2", 3),
        row("g1", "t2", "b1", 1),
        row("g2", "t1", "b1", 1),
        row("g2", "t1", "b1", 4),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn a_broker_that_does_not_answer_delays_no_other_and_the_most_urgent_go_first() {
    let policy = Policy { max_batch: 1, max_requests_per_broker: 2, ..Policy::default() };
    let mut world = World::with(policy);
    let mut elsewhere = handle(100, 77);
    elsewhere.broker_name = "broker-b".to_owned();
    for offset in 0..6 {
        let mut handle = handle(offset, 77);
        handle.invisible_time = LEASE - offset * 500;
        world.hold(&handle, Mode::Renew);
    }
    world.hold(&elsewhere, Mode::Renew);
    world.pass(LEASE - 10_000);
    let batches = world.batches();
    let offsets: Vec<i64> = batches.iter().map(|batch| batch.items[0].handle.offset).collect();
    assert_eq!(offsets, [5, 4, 100], "two for the first broker, the earliest deadlines; one for the other");
    assert_eq!((world.core.stats().due, world.core.requests()), (4, 3));
    assert_eq!(world.core.next_wake(world.now), None, "woken by the end of a request, not by time");
    world.answer(&batches[1], &batches[1].items[0].clone(), MINUTE, Ok(handle(4, 77)));
    assert_eq!(world.only_item().1.handle.offset, 3);
    // Nothing answers any more: what is not sent before its lease is over is late, counted, and never sent.
    world.pass(20_000);
    world.core.end_request(batches[0].lane);
    world.nothing_sent();
    assert_eq!(world.dropped(Dropped::Late), 3);
}

#[test]
fn an_ack_forgets_the_handle_only_when_it_is_done_or_gone() {
    let mut world = World::new();
    for (outcome, stays) in [(AckOutcome::Done, false), (AckOutcome::Gone, false), (AckOutcome::Failed, true)] {
        let first = handle(1, 77);
        world.hold(&first, Mode::Renew);
        let begun = world.begin_ack(&first);
        assert!(!begun.wait);
        world.end_ack(&begun, outcome);
        assert_eq!(world.newest(&first).is_some(), stays, "{outcome:?}");
    }
    // The one that stayed is renewed as if nothing had been.
    world.renew(extended);
}

#[test]
fn nothing_is_sent_while_an_ack_is_under_way() {
    let mut world = World::new();
    let first = handle(1, 77);
    world.hold(&first, Mode::Renew);
    let (one, two) = (world.begin_ack(&first), world.begin_ack(&first));
    world.pass(LEASE - 5_000);
    world.core.client_gone(world.now, HOLDER.client, None);
    world.nothing_sent();
    world.end_ack(&one, AckOutcome::Failed);
    world.nothing_sent();
    world.end_ack(&two, AckOutcome::Failed);
    assert_eq!(world.only_item().1.purpose, Purpose::Return);
}

#[test]
fn an_extending_change_goes_on_with_the_new_handle_from_the_new_deadline() {
    let mut world = World::new();
    let first = handle(1, 77);
    world.hold(&first, Mode::Renew);
    world.pass(30_000);
    let begun = world.begin(&first, Intent::Change).unwrap();
    let changed = moved(&first, 5 * MINUTE);
    world.end_change(&begun, 5 * MINUTE, ChangeOutcome::Extended(changed.clone()));
    assert_eq!(world.newest(&first), Some(changed.clone()));
    world.pass(5 * MINUTE - 10_001);
    world.nothing_sent();
    world.pass(1);
    let (_, item) = world.only_item();
    assert_eq!((item.purpose, item.handle), (Purpose::Renew, changed));
}

#[test]
fn a_negative_ack_lets_go() {
    let mut world = World::new();
    let first = handle(1, 77);
    world.hold(&first, Mode::Renew);
    let begun = world.begin(&first, Intent::Change).unwrap();
    let changed = moved(&first, 90_000);
    world.end_change(&begun, 90_000, ChangeOutcome::LetGo(changed.clone()));
    // Never renewed, and not returned early when the client leaves: the back-off is the client's own wish.
    world.pass(85_000);
    world.core.client_gone(world.now, HOLDER.client, None);
    world.nothing_sent();
    // Until then old handles find the new one, so that an ack with an old handle is not an OK without effect.
    assert_eq!(world.newest(&first), Some(changed));
    world.pass(5_100);
    world.nothing_sent();
    assert_eq!(world.held(), 0);
}

#[test]
fn a_failed_change_changes_nothing() {
    let mut world = World::new();
    let first = handle(1, 77);
    world.hold(&first, Mode::Renew);
    let begun = world.begin(&first, Intent::Change).unwrap();
    world.pass(1_000);
    world.end_change(&begun, MINUTE, ChangeOutcome::Failed);
    assert_eq!(world.newest(&first), Some(first.clone()));
    let begun = world.begin(&first, Intent::Change).unwrap();
    world.end_change(&begun, MINUTE, ChangeOutcome::Gone);
    assert_eq!(world.held(), 0);
}

#[test]
fn what_a_client_held_is_returned_at_once_when_it_leaves() {
    let mut world = World::with(Policy { clear_invisible_ms: 1_500, ..Policy::default() });
    for offset in 0..10 {
        let mode = if offset % 2 == 0 { Mode::Renew } else { Mode::Keep };
        world.hold(&handle(offset, 77), mode);
    }
    world.hold_for(Holder { client: "client-b", ..HOLDER }, &handle(50, 77), Mode::Renew);
    world.core.client_gone(world.now, HOLDER.client, None);
    let batches = world.batches();
    assert_eq!((batches.len(), batches[0].items.len()), (1, 10));
    for item in &batches[0].items {
        assert_eq!((item.purpose, item.ask, item.suspend), (Purpose::Return, Ask::For(1_500), false));
        assert_eq!(item.handle, handle(item.handle.offset, 77), "kept handles go back unchanged");
        world.settle(&batches[0], item, 1_500, Ok(extended(&item.handle, 1_500)));
    }
    assert_eq!((world.held(), world.dropped(Dropped::Returned)), (1, 10));
}

#[test]
fn only_the_left_group_is_returned() {
    let mut world = World::new();
    world.hold(&handle(1, 77), Mode::Renew);
    world.hold_for(Holder { group: "other", ..HOLDER }, &handle(1, 77), Mode::Renew);
    world.core.client_gone(world.now, HOLDER.client, Some("other"));
    assert_eq!(&*world.only_item().0.group, "other");
    assert!(!world.hold(&handle(2, 77), Mode::Renew).client_gone);
    assert!(world.hold_for(Holder { group: "other", ..HOLDER }, &handle(2, 77), Mode::Renew).client_gone);
}

#[test]
fn a_return_is_retried_until_done_or_the_lease_is_over() {
    let mut world = World::new();
    world.hold(&handle(1, 77), Mode::Renew);
    let deadline = world.now + LEASE;
    world.core.client_gone(world.now, HOLDER.client, None);
    let mut pauses = Vec::new();
    let mut last = world.now;
    while world.now < deadline - 5_000 {
        let (batch, item) = world.next_item();
        assert_eq!(item.purpose, Purpose::Return);
        pauses.push(world.now - last);
        last = world.now;
        world.answer(&batch, &item, 1_000, Err(ChangeError::Unavailable));
    }
    assert_eq!(pauses[..6], [0, 500, 1_000, 2_000, 4_000, 5_000]);
    assert!(pauses[6..].iter().all(|pause| *pause == 5_000), "{pauses:?}");
    world.now = deadline + 5_000;
    world.nothing_sent();
    assert_eq!((world.held(), world.dropped(Dropped::ReturnExpired)), (0, 1));
}

#[test]
fn a_client_that_is_back_keeps_what_was_not_returned_yet() {
    let mut world = World::new();
    for offset in 1..=3 {
        world.hold(&handle(offset, 77), Mode::Renew);
    }
    world.core.client_gone(world.now, HOLDER.client, None);
    let batch = world.batches().remove(0);
    world.core.client_back(world.now, HOLDER.client);
    // One was returned, one return failed, one is dead.
    world.settle(&batch, &batch.items[0], 1_000, Ok(extended(&batch.items[0].handle, 1_000)));
    world.settle(&batch, &batch.items[1], 1_000, Err(ChangeError::Timeout));
    world.answer(&batch, &batch.items[2].clone(), 1_000, Err(ChangeError::Gone));
    assert_eq!((world.held(), world.dropped(Dropped::Returned), world.dropped(Dropped::Gone)), (1, 1, 1));
    let (_, item) = world.next_item();
    assert_eq!((item.purpose, &item.handle), (Purpose::Renew, &batch.items[1].handle));
    // And what it receives from now on is its own.
    assert!(!world.hold(&handle(9, 77), Mode::Renew).client_gone);
}

#[test]
fn messages_that_arrive_for_a_client_that_left_go_back_uncounted() {
    let mut world = World::new();
    world.core.client_gone(world.now, HOLDER.client, None);
    let registered = world.hold(&handle(1, 77), Mode::Renew);
    assert!(registered.client_gone);
    let (_, item) = world.only_item();
    assert_eq!((item.purpose, item.suspend), (Purpose::Return, true));
    // That is not remembered for ever.
    world.pass(60_000);
    assert!(!world.hold(&handle(2, 77), Mode::Renew).client_gone);
}

#[test]
fn what_could_not_be_written_goes_back_whether_held_or_not() {
    let mut world = World::new();
    let (held, unknown, older) = (handle(1, 77), handle(2, 77), handle(3, 60));
    world.hold(&held, Mode::Renew);
    world.hold(&handle(3, 77), Mode::Renew);
    world.core.give_back(world.now, HOLDER, ChannelKind::Grpc, vec![held.clone(), unknown.clone(), older]);
    let batch = world.batches().remove(0);
    let mut handles: Vec<_> = batch.items.iter().map(|item| item.handle.clone()).collect();
    handles.sort_by_key(|handle| handle.offset);
    assert_eq!(handles, [held, unknown], "the handle of a past delivery is nobody's");
    assert!(batch.items.iter().all(|item| item.purpose == Purpose::Return && item.suspend));
    // A client that comes back does not get them: it never saw them.
    world.core.client_back(world.now, HOLDER.client);
    for item in &batch.items {
        world.settle(&batch, item, 1_000, Err(ChangeError::Busy));
    }
    world.core.end_request(batch.lane);
    world.pass(1_000);
    assert_eq!(world.batches()[0].items.len(), 2);
}

#[test]
fn limits_hold_and_what_is_due_last_is_shed_first() {
    let policy = Policy { max_handles: 3, max_handles_per_client: 2, ..Policy::default() };
    let mut world = World::with(policy);
    assert_eq!(world.hold(&handle(1, 77), Mode::Renew).held, 1);
    let mut long = handle(2, 77);
    long.invisible_time = 10 * MINUTE;
    assert_eq!(world.hold(&long, Mode::Keep).held, 1);
    // One client's limit.
    assert_eq!(world.hold(&handle(3, 77), Mode::Renew).refused, [0]);
    let other = Holder { client: "client-b", ..HOLDER };
    assert_eq!(world.hold_for(other, &handle(4, 77), Mode::Renew).held, 1);
    // Everybody's limit: the kept handle with ten minutes left gives way.
    assert_eq!(world.hold_for(other, &handle(5, 77), Mode::Renew).held, 1);
    assert_eq!((world.newest(&long), world.held(), world.dropped(Dropped::Shed)), (None, 3, 1));
    // Something later than everything held gives way itself.
    let third = Holder { client: "client-c", ..HOLDER };
    world.pass(1_000);
    assert_eq!(world.hold_for(third, &handle(6, 77), Mode::Renew).refused, [0]);
    assert_eq!((world.held(), world.core.counters().refused), (3, 2));
    // Room again.
    let begun = world.begin_ack(&handle(1, 77));
    world.end_ack(&begun, AckOutcome::Done);
    assert_eq!(world.hold_for(third, &handle(6, 77), Mode::Renew).held, 1);
}

#[test]
fn a_flip_of_the_switch_leaves_what_was_popped_before_under_its_promise() {
    let settings = |grpc_renew| PromiseSettings {
        grpc_renew,
        group_renew: None,
        default_invisible_ms: MINUTE,
        consume_timeout_minutes: 15,
        max_invisible_ms: 720 * MINUTE,
    };
    let mut world = World::new();
    for (offset, renew) in [(1, true), (2, false), (3, true)] {
        let (mode, invisible_ms) = promise(ChannelKind::Grpc, &settings(renew));
        let mut handle = handle(offset, 77);
        handle.invisible_time = invisible_ms;
        world.hold(&handle, mode);
    }
    world.pass(LEASE - 10_000);
    let batch = world.batches().remove(0);
    let mut renewed: Vec<i64> = batch.items.iter().map(|item| item.handle.offset).collect();
    renewed.sort_unstable();
    assert_eq!(renewed, [1, 3]);
    let mut kept = handle(2, 77);
    kept.invisible_time = 15 * MINUTE;
    assert_eq!(world.newest(&kept), Some(kept.clone()));
}

#[test]
fn promises() {
    let base = PromiseSettings {
        grpc_renew: true,
        group_renew: None,
        default_invisible_ms: MINUTE,
        consume_timeout_minutes: 15,
        max_invisible_ms: 720 * MINUTE,
    };
    let off = PromiseSettings { grpc_renew: false, ..base };
    assert_eq!(promise(ChannelKind::Grpc, &base), (Mode::Renew, MINUTE));
    assert_eq!(promise(ChannelKind::Grpc, &off), (Mode::Keep, 15 * MINUTE));
    assert_eq!(promise(ChannelKind::Remoting, &off), (Mode::Renew, MINUTE));
    // The group's word counts before the sidecar's.
    assert_eq!(promise(ChannelKind::Grpc, &PromiseSettings { group_renew: Some(false), ..base }).0, Mode::Keep);
    assert_eq!(promise(ChannelKind::Grpc, &PromiseSettings { group_renew: Some(true), ..off }).0, Mode::Renew);
    // No longer than may be asked for, and something in any case.
    let odd = |minutes| PromiseSettings { consume_timeout_minutes: minutes, ..off };
    assert_eq!(promise(ChannelKind::Grpc, &odd(i64::MAX)).1, 720 * MINUTE);
    assert_eq!(promise(ChannelKind::Grpc, &odd(-1)).1, 1);
}

#[test]
fn remoting_clients_are_renewed_whatever_was_said() {
    let mut world = World::new();
    world.core.register(world.now, HOLDER, ChannelKind::Remoting, &[received(handle(1, 77), Mode::Keep)]);
    world.renew(extended);
}

#[test]
fn a_drain_releases_everything() {
    let mut world = World::new();
    for offset in 0..5 {
        world.hold(&handle(offset, 77), if offset == 0 { Mode::Keep } else { Mode::Renew });
    }
    let acking = world.begin_ack(&handle(4, 77));
    world.core.drain(DrainPolicy::Release);
    assert_eq!(world.core.release(world.now, 0, 3), Some(3));
    assert_eq!(world.core.release(world.now, 3, 100), None);
    assert_eq!(world.batches()[0].items.len(), 4);
    // An ack that is under way comes first; one that fails does not keep the message.
    world.end_ack(&acking, AckOutcome::Failed);
    assert_eq!(world.only_item().1.purpose, Purpose::Return);
    // What is popped in the last moment goes back too, and a client that comes back gets nothing.
    world.core.client_back(world.now, HOLDER.client);
    assert!(world.hold(&handle(9, 77), Mode::Renew).client_gone);
    assert_eq!(world.only_item().1.purpose, Purpose::Return);
}

#[test]
fn a_drain_leaves_everything_to_its_lease() {
    let mut world = World::new();
    let first = handle(1, 77);
    world.hold(&first, Mode::Renew);
    world.hold_for(Holder { client: "gone", ..HOLDER }, &handle(2, 77), Mode::Renew);
    world.core.client_gone(world.now, "gone", None);
    world.core.drain(DrainPolicy::LeaveToLease);
    assert_eq!(world.only_item().1.purpose, Purpose::Return, "a client that is gone is gone");
    world.pass(LEASE - 1);
    world.nothing_sent();
    assert!(world.newest(&first).is_some(), "acks are still taken");
    world.pass(101);
    world.nothing_sent();
    assert_eq!(world.newest(&first), None);
}

#[test]
fn names_and_queues_are_forgotten_with_their_last_handle() {
    let mut world = World::new();
    for round in 0..50 {
        let client = format!("client-{round}");
        let topic = format!("topic-{round}");
        let holder = Holder { client: &client, group: "group", topic: &topic };
        world.hold_for(holder, &handle(1, 77), Mode::Renew);
        assert_eq!(world.core.stats().clients, 1);
        let begun = world.core.begin(holder, Find::Handle(&handle(1, 77)), Intent::Finish).unwrap();
        world.end_ack(&begun, AckOutcome::Done);
        assert_eq!((world.core.stats().clients, world.core.stats().held), (0, 0));
    }
    assert_eq!(world.core.next_wake(world.now), None);
    world.core.client_gone(world.now, "nobody", None);
    assert_eq!(world.core.stats().clients, 1, "remembered as gone");
    world.pass(60_000);
    world.core.client_gone(world.now, "somebody", None);
    assert_eq!(world.core.stats().clients, 1, "nobody is forgotten");
    world.core.client_back(world.now, "somebody");
    assert_eq!(world.core.stats().clients, 0);
}
