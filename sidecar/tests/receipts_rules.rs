//! One test per rule of the receipt manager's core.

mod receipts_common;

use receipts_common::*;
use waybill_sidecar::receipts::{
    AckOutcome, ChangeError, ChangeOutcome, ChannelKind, Holder, Mode, Policy, PromiseSettings,
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
    // The last step counts for all further renewals; the lease is counted from when the request was made, not from the
    // answer.
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
fn a_delivery_that_is_held_already_stays_as_it_is() {
    let mut world = World::new();
    let first = handle(1, 77);
    world.hold(&first, Mode::Renew);
    let newest = world.renew(extended);
    let begun = world.begin_ack(&first);
    assert_eq!(world.hold(&first, Mode::Keep).held, 1);
    assert_eq!((world.held(), world.newest(&first)), (1, Some(newest)));
    world.end_ack(&begun, AckOutcome::Done);
    assert_eq!(world.held(), 0, "the ack that had begun before is that of this delivery");
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
