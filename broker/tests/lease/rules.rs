//! One test per rule of unordered consumption.

use crate::support::{Topic, World, attempts, offsets, refs};
use waybill_broker::lease::{
    AckOutcome, ChangeArgs, ChangeOutcome, ChangedBy, Counts, LeaseRef, Ledger, MAX_MS, Verdict,
};

const ACKED: AckOutcome = AckOutcome::Acked { wake: false };

fn world(count: usize) -> World {
    World::new(Topic::with(&[count]), false)
}

#[test]
fn gives_out_once_until_the_deadline_and_again_from_then_on() {
    let mut w = world(3);
    let first = w.pop();
    assert_eq!(attempts(&first), [(0, 1), (1, 1), (2, 1)]);
    assert_eq!((first.pop_time_ms, first.invisible_ms), (1000, 100));
    w.now = 1099;
    assert!(w.pop().messages.is_empty(), "live until the deadline");
    w.now = 1100;
    let second = w.pop();
    assert_eq!(attempts(&second), [(0, 2), (1, 2), (2, 2)]);
    assert!(second.messages.iter().all(|m| m.first_pop_ms == 1000));
}

#[test]
fn acked_is_never_given_out_again_and_a_repeated_ack_is_harmless() {
    let mut w = world(2);
    let handles = refs(&w.pop());
    assert_eq!(w.ack(handles[0]), ACKED);
    assert_eq!(w.ack(handles[0]), AckOutcome::AlreadyDone);
    w.now += 1000;
    assert_eq!(offsets(&w.pop()), [1]);
}

#[test]
fn an_expired_lease_can_be_acked_until_somebody_else_has_it() {
    let mut w = world(2);
    let handles = refs(&w.pop());
    w.now += 1000;
    assert_eq!(w.ack(handles[0]), ACKED);
    let again = w.pop();
    assert_eq!(offsets(&again), [1]);
    assert_eq!(w.ack(handles[1]), AckOutcome::Stale, "the handle of a past delivery");
    assert_eq!(w.ack(refs(&again)[0]), ACKED);
    assert_eq!(w.ack(handles[1]), AckOutcome::AlreadyDone, "nothing left to do, so no error");
}

#[test]
fn what_was_never_given_out_is_unknown() {
    let mut w = world(5);
    w.pop_max(2);
    let strange = |queue, offset| LeaseRef { queue, offset, pop_time_ms: 1000 };
    for lease in [strange(0, 2), strange(0, u64::MAX), strange(9, 0)] {
        assert_eq!(w.ack(lease), AckOutcome::Unknown);
        assert_eq!(w.change(lease, 50), ChangeOutcome::Unknown);
    }
}

#[test]
fn a_change_keeps_the_pop_time_and_counts_from_now() {
    let mut w = world(1);
    let handle = refs(&w.pop())[0];
    w.now = 1040;
    assert_eq!(w.change(handle, 500), ChangeOutcome::Changed { pop_time_ms: 1000, invisible_ms: 540 });
    w.now = 1539;
    assert!(w.pop().messages.is_empty());
    assert_eq!(
        w.change(handle, 1),
        ChangeOutcome::Changed { pop_time_ms: 1000, invisible_ms: 540 },
        "an equal deadline keeps the lease"
    );
    assert!(w.pop().messages.is_empty());
    w.now = 1540;
    assert_eq!(attempts(&w.pop()), [(0, 2)]);
}

#[test]
fn the_first_handle_stays_valid_over_changes() {
    // C01: shorten, then ack with the old handle, which is the new one, too.
    let mut w = world(10);
    let handles = refs(&w.pop());
    w.now = 1010;
    assert!(matches!(w.change(handles[5], 10), ChangeOutcome::Changed { pop_time_ms: 1000, .. }));
    assert_eq!(w.ack(handles[5]), ACKED);
    w.now = 1200;
    assert_eq!(offsets(&w.pop()), [0, 1, 2, 3, 4, 6, 7, 8, 9]);
}

#[test]
fn a_change_after_the_deadline_is_refused() {
    let mut w = world(1);
    let handle = refs(&w.pop())[0];
    w.now = 1100;
    assert_eq!(w.change(handle, 500), ChangeOutcome::Expired);
    let again = refs(&w.pop())[0];
    assert_eq!(w.change(handle, 500), ChangeOutcome::Stale);
    assert_eq!(w.ack(again), ACKED);
    assert_eq!(w.change(again, 500), ChangeOutcome::AlreadyDone);
}

#[test]
fn zero_makes_visible_at_once_with_a_later_pop_time() {
    let mut w = world(1);
    let first = w.pop();
    assert_eq!(w.change(refs(&first)[0], 0), ChangeOutcome::Changed { pop_time_ms: 1000, invisible_ms: 0 });
    let second = w.pop();
    assert_eq!(attempts(&second), [(0, 2)]);
    assert_eq!(
        (second.pop_time_ms, second.invisible_ms),
        (1001, 99),
        "same millisecond, other delivery, same deadline"
    );
    assert_eq!(w.ack(refs(&first)[0]), AckOutcome::Stale);
    w.now = 1100;
    assert_eq!(attempts(&w.pop()), [(0, 3)]);
}

#[test]
fn huge_and_negative_durations_do_no_harm() {
    let mut w = world(3);
    w.now = 0;
    let handles = refs(&w.pop());
    for (handle, asked) in handles.iter().zip([i64::MAX, i64::MIN, MAX_MS]) {
        assert!(matches!(w.change(*handle, asked), ChangeOutcome::Changed { .. }));
    }
    assert_eq!(offsets(&w.pop()), [1], "a negative duration counts as 0");
    w.now = i64::MAX;
    w.args.invisible_ms = i64::MAX;
    w.args.max_attempts = u32::MAX;
    assert_eq!(w.pop().messages.len(), 3);
    w.args.invisible_ms = i64::MIN;
    assert!(w.pop().messages.is_empty());
    w.now = i64::MIN;
    assert!(w.pop().messages.is_empty(), "time does not go back");
}

#[test]
fn suspend_does_not_count_the_delivery() {
    let mut w = world(1);
    w.args.max_attempts = 1;
    for _ in 0..5 {
        let popped = w.pop();
        assert_eq!(attempts(&popped), [(0, 1)]);
        w.suspend(refs(&popped)[0], 10);
        w.restart(false);
        w.now += 10;
    }
    let popped = w.pop();
    w.suspend(refs(&popped)[0], 10);
    w.change(refs(&popped)[0], 10);
    w.now += 10;
    let end = w.pop();
    assert!(end.messages.is_empty());
    assert_eq!(end.dead.len(), 1, "the last change decides");
}

#[test]
fn attempts_end_exactly_at_the_limit() {
    // C18 for groups with 1 and 3 attempts, failing by time-out.
    for limit in [1, 3] {
        let mut w = world(2);
        w.args.max_attempts = limit;
        for attempt in 1..=limit {
            assert_eq!(attempts(&w.pop()), [(0, attempt), (1, attempt)]);
            w.now += 100;
        }
        let end = w.pop();
        assert!(end.messages.is_empty());
        assert_eq!(
            end.dead.iter().map(|m| (m.offset, m.attempts, m.first_pop_ms)).collect::<Vec<_>>(),
            [(0, limit, 1000), (1, limit, 1000)]
        );
        assert_eq!(w.ledger.iter().count(), 0);
        w.now += 100;
        let after = w.pop();
        assert!(after.messages.is_empty() && after.dead.is_empty());
    }
}

#[test]
fn without_room_for_dead_letters_they_stay_and_others_go_on() {
    let mut w = world(3);
    w.args.max_attempts = 1;
    w.pop_max(2);
    w.now += 100;
    w.args.dead_letter = false;
    assert_eq!(offsets(&w.pop()), [2]);
    w.args.dead_letter = true;
    assert_eq!(w.pop().dead.len(), 2);
}

#[test]
fn never_more_than_max_dead_letters_included() {
    let mut w = world(9);
    w.args.max_attempts = 1;
    assert_eq!(w.pop_max(4).messages.len(), 4);
    w.now += 100;
    let popped = w.pop_max(5);
    assert_eq!((popped.dead.len(), popped.messages.len(), popped.rest), (4, 1, 4));
    assert_eq!(w.pop_max(0).messages.len(), 0);
}

#[test]
fn the_in_flight_limit_holds_per_queue_and_an_ack_makes_room() {
    let mut w = World::new(Topic::with(&[10, 10]), false);
    w.args.in_flight_max = 3;
    let popped = w.pop();
    assert_eq!((popped.messages.len(), popped.rest), (6, 0));
    let handles = refs(&popped);
    assert_eq!(w.ack(handles[0]), AckOutcome::Acked { wake: true });
    assert_eq!(w.pop().messages.len(), 1);
    w.now += 100;
    let again = w.pop();
    assert_eq!(again.messages.len(), 6, "expired ones are no longer in flight");
    assert!(again.messages.iter().all(|m| m.attempts == 2));
    w.now += 100;
    w.args.in_flight_max = 1;
    assert_eq!(w.pop().messages.len(), 2, "a lowered limit holds at once");
}

#[test]
fn an_ack_wakes_who_was_kept_from_an_expired_lease_by_the_limit() {
    let mut w = world(3);
    let handles = refs(&w.pop());
    w.change(handles[0], 10);
    w.now += 10;
    w.args.in_flight_max = 2;
    assert!(w.pop().messages.is_empty(), "two are in flight");
    assert_eq!(w.ack(handles[1]), AckOutcome::Acked { wake: true });
    assert_eq!(offsets(&w.pop()), [0]);
}

#[test]
fn expired_rows_count_against_new_ones_so_that_memory_is_bounded() {
    let mut w = world(100);
    w.args.in_flight_max = 5;
    w.args.max_attempts = u32::MAX;
    for _ in 0..20 {
        w.pop();
        w.now += 100;
    }
    assert_eq!(w.ledger.iter().count(), 5);
}

#[test]
fn filtered_messages_are_passed_for_good() {
    let mut w = world(0);
    for offset in 0..6 {
        w.topic.send(0, if offset % 2 == 0 { Verdict::Filtered } else { Verdict::Deliver }, None);
    }
    assert_eq!(offsets(&w.pop()), [1, 3, 5]);
    w.topic.queues[0].all.iter_mut().for_each(|m| m.verdict = Verdict::Deliver);
    assert!(w.pop().messages.is_empty());
    assert_eq!(w.ack(LeaseRef { queue: 0, offset: 2, pop_time_ms: 1000 }), AckOutcome::AlreadyDone);
}

#[test]
fn a_scan_is_bounded_and_says_that_more_may_follow() {
    let mut w = world(0);
    for _ in 0..25 {
        w.topic.send(0, Verdict::Filtered, None);
    }
    w.topic.send(0, Verdict::Deliver, None);
    w.args.scan_max = 10;
    for end in [10, 20] {
        let popped = w.pop();
        assert!(popped.messages.is_empty() && popped.more);
        assert_eq!(w.ledger.next(0), Some(end));
        assert_eq!(popped.rest, 26 - end);
    }
    assert_eq!(w.topic.examined, 20);
    let popped = w.pop();
    assert_eq!((offsets(&popped), popped.more), (vec![25], false));
}

#[test]
fn what_retention_took_is_done() {
    let mut w = world(10);
    let popped = w.pop_max(4);
    w.topic.queues[0].min = 6;
    assert_eq!(w.ack(refs(&popped)[0]), ACKED, "an ack needs no body");
    w.now += 100;
    assert_eq!(offsets(&w.pop_max(32)), [6, 7, 8, 9]);
    assert_eq!(w.ledger.get(0, 1), None, "no body, no redelivery");
    assert_eq!(w.ledger.iter().count(), 4);
}

#[test]
fn stop_ends_the_pop_before_the_message() {
    let mut w = world(5);
    w.topic.queues[0].all[2].verdict = Verdict::Stop;
    let popped = w.pop();
    assert_eq!((offsets(&popped), popped.rest, popped.more), (vec![0, 1], 3, false));
    w.topic.queues[0].all[2].verdict = Verdict::Deliver;
    assert_eq!(offsets(&w.pop()), [2, 3, 4]);
    w.now += 100;
    w.topic.queues[0].all[3].verdict = Verdict::Stop;
    assert_eq!(offsets(&w.pop()), [0, 1, 2], "redeliveries alike");
}

#[test]
fn a_group_starts_where_the_source_says_and_remembers_it() {
    let mut w = world(5);
    w.topic.start = 3;
    assert_eq!(w.ledger.rest(w.now, 0..1, 10, &mut w.topic), 2);
    assert_eq!(w.ledger.next(0), None, "looking is not reading");
    w.topic.queues[0].all.truncate(3);
    assert!(w.pop().messages.is_empty());
    w.topic.start = 0;
    w.restart(false);
    w.topic.send(0, Verdict::Deliver, None);
    assert_eq!(offsets(&w.pop()), [3]);
}

#[test]
fn committed_is_the_first_offset_not_done() {
    let mut w = world(5);
    assert_eq!(w.ledger.committed(0), None);
    let handles = refs(&w.pop_max(3));
    assert_eq!(w.ledger.committed(0), Some(0));
    w.ack(handles[1]);
    assert_eq!(w.ledger.committed(0), Some(0));
    w.ack(handles[0]);
    assert_eq!(w.ledger.committed(0), Some(2));
    w.ack(handles[2]);
    assert_eq!(w.ledger.committed(0), Some(3));
}

#[test]
fn the_oldest_deadline_comes_first() {
    let mut w = world(3);
    let handles = refs(&w.pop());
    w.change(handles[0], 70);
    w.change(handles[1], 50);
    w.change(handles[2], 60);
    w.now += 70;
    assert_eq!(offsets(&w.pop_max(2)), [1, 2]);
}

/// Pops one by one from three full queues in which everything comes back at once; counts (queue, kind) of what was taken.
fn busy(rounds: usize, mut w: World) -> [[usize; 2]; 3] {
    w.args.max_attempts = u32::MAX;
    w.args.invisible_ms = 1;
    let mut counts = [[0; 2]; 3];
    for _ in 0..rounds {
        w.now += 1;
        for message in w.pop_max(1).messages {
            counts[message.queue as usize][usize::from(message.attempts == 1)] += 1;
        }
    }
    counts
}

#[test]
fn neither_kind_nor_queue_starves() {
    let counts = busy(1200, World::new(Topic::with(&[2000, 2000, 2000]), false));
    for queue in counts {
        // Three quarters redeliveries, one quarter new, a third of both in each queue; the first pops find nothing to redeliver.
        assert!((295..=305).contains(&queue[0]) && (98..=102).contains(&queue[1]), "{counts:?}");
    }
}

#[test]
fn pops_of_a_single_queue_do_not_disturb_the_turns() {
    for singles in 1..4 {
        let mut w = World::new(Topic::with(&[200, 200]), false);
        let mut seen = [0_i32; 2];
        for _ in 0..48 {
            w.args.queues = 0..2;
            seen[w.pop_max(1).messages[0].queue as usize] += 1;
            w.args.queues = 0..1;
            for _ in 0..singles {
                w.pop_max(1);
            }
        }
        assert!((seen[0] - seen[1]).abs() <= 2, "{singles}: {seen:?}");
    }
}

#[test]
fn the_next_deadline_misses_nothing_after_the_pop_that_found_nothing() {
    let mut w = World::new(Topic::with(&[2, 1]), false);
    assert_eq!(w.ledger.next_deadline(w.now, 0..2), None);
    let popped = w.pop();
    let in_queue_1 = refs(&popped).into_iter().find(|r| r.queue == 1).unwrap();
    w.change(in_queue_1, 30);
    assert_eq!(w.ledger.next_deadline(w.now, 0..2), Some(1030));
    assert_eq!(w.ledger.next_deadline(w.now, 0..1), Some(1100));
    assert_eq!(w.ledger.next_deadline(w.now, 1..1), None);
    // Something else lets time go on past the deadline; the poll of 1000 must still be told of it.
    w.now = 1050;
    w.ack(LeaseRef { queue: 0, offset: 0, pop_time_ms: 1 });
    assert_eq!(w.ledger.next_deadline(1000, 0..2), Some(1030));
    assert_eq!(w.ledger.next_deadline(1030, 0..2), Some(1100));
    assert_eq!(w.ledger.next_deadline(1100, 0..2), None);
}

#[test]
fn batches_answer_each_entry_as_single_calls_would() {
    // C08: good ones, a stale one, a copy, a stranger.
    let mut w = world(6);
    let old = refs(&w.pop_max(1));
    w.now += 100;
    let handles = refs(&w.pop_max(4));
    let stranger = LeaseRef { queue: 3, offset: 0, pop_time_ms: 1100 };
    let entries = [handles[1], old[0], handles[2], handles[1], stranger];
    let outcomes = w.with(|w, changes| w.ledger.ack_many(w.now, &entries, changes));
    assert_eq!(outcomes, [ACKED, AckOutcome::Stale, ACKED, AckOutcome::AlreadyDone, AckOutcome::Unknown]);

    let change = |lease, invisible_ms| ChangeArgs { lease, invisible_ms, count: true, by: ChangedBy::Unknown };
    let entries = [
        change(handles[0], 300),
        change(handles[1], 300),
        change(handles[0], 200),
        change(handles[3], 0),
        change(handles[3], 50),
    ];
    let outcomes = w.with(|w, changes| w.ledger.change_many(w.now, &entries, changes));
    assert_eq!(
        outcomes,
        [
            ChangeOutcome::Changed { pop_time_ms: 1100, invisible_ms: 300 },
            ChangeOutcome::AlreadyDone,
            ChangeOutcome::Changed { pop_time_ms: 1100, invisible_ms: 200 },
            ChangeOutcome::Changed { pop_time_ms: 1100, invisible_ms: 0 },
            ChangeOutcome::Expired,
        ]
    );
    assert_eq!(w.ledger.get(0, 0).unwrap().deadline_ms(), 1300, "of equal entries the last one wins");
}

#[test]
fn a_client_that_is_gone_gives_everything_back_in_one_go() {
    let mut w = world(5);
    w.args.holder = 4;
    let mine = refs(&w.pop_max(3));
    w.change(mine[1], 5);
    w.args.holder = 5;
    w.pop_max(2);
    assert_eq!(
        w.with(|w, changes| w.ledger.release_held_by(w.now, |holder| holder == 4, 10, changes)),
        2,
        "one of three is visible earlier anyway"
    );
    w.now += 10;
    assert_eq!(offsets(&w.pop_max(9)), [1, 0, 2]);
    assert_eq!(w.with(|w, changes| w.ledger.release_held_by(w.now, |holder| holder == 4, 0, changes)), 0);
}

#[test]
fn a_reset_forgets_leases_and_old_handles_name_nothing() {
    let mut w = world(6);
    let first = refs(&w.pop_max(4));
    w.ack(first[0]);
    w.with(|w, changes| w.ledger.reset(w.now, 0, 2, changes));
    assert_eq!(w.ledger.iter().count(), 0);
    assert_eq!(w.ack(first[1]), AckOutcome::AlreadyDone, "before the new start");
    assert_eq!(w.ack(first[2]), AckOutcome::Unknown, "not given out in its new life");
    w.restart(false);
    let again = w.pop_max(32);
    assert_eq!(attempts(&again), [(2, 1), (3, 1), (4, 1), (5, 1)]);
    assert!(again.pop_time_ms > first[0].pop_time_ms);
    assert_eq!(w.ack(first[2]), AckOutcome::Stale);
    w.with(|w, changes| w.ledger.reset(w.now, 0, 0, changes));
    assert_eq!(w.pop().messages.len(), 6);
}

#[test]
fn counts_tell_the_states_apart() {
    let mut w = world(10);
    let bounds = |_| (0, 10);
    let handles = refs(&w.pop_max(5));
    w.ack(handles[0]);
    w.change(handles[1], 10);
    w.now += 10;
    assert_eq!(w.ledger.counts(w.now, 0, bounds), Counts { ready: 1, in_flight: 3, lag: 9, ..Counts::default() });
    assert_eq!(w.ledger.counts(w.now, 0, |_| (8, 10)), Counts { ready: 1, in_flight: 3, lag: 6, ..Counts::default() });
    assert_eq!(w.ledger.rest(w.now, 0..1, 1000, &mut w.topic), 6);
    assert_eq!(w.ledger.rest(w.now, 0..1, 5, &mut w.topic), 2);
}

#[test]
fn a_row_beyond_the_progress_is_not_given_out_twice() {
    let mut w = world(3);
    w.pop_max(2);
    let lease = *w.ledger.get(0, 1).unwrap();
    let mut damaged = Ledger::restore(false, [], [(0, 1, lease)]);
    let mut changes = Vec::new();
    w.args.max = 9;
    let popped = damaged.pop(&w.args, &mut w.topic, &mut changes);
    assert_eq!(offsets(&popped), [2]);
}
