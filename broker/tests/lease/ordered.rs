//! One test per rule of ordered consumption.

use crate::support::{Topic, World, attempts, offsets, refs};
use waybill_broker::lease::{AckOutcome, ChangeArgs, ChangeOutcome, ChangedBy, Counts, LeaseRef, Verdict};

const A: u32 = 11;
const B: u32 = 12;

fn world(groups: &[u32]) -> World {
    World::new(Topic::grouped(groups), true)
}

#[test]
fn a_group_is_given_out_in_order_and_held_back_while_one_is_open() {
    let mut w = world(&[A, A, A, A]);
    let first = w.pop_max(2);
    assert_eq!(offsets(&first), [0, 1]);
    assert!(w.pop().messages.is_empty());
    assert_eq!(w.ack(refs(&first)[0]), AckOutcome::Acked { wake: false });
    assert!(w.pop().messages.is_empty(), "1 is still open");
    assert_eq!(w.ack(refs(&first)[1]), AckOutcome::Acked { wake: true });
    assert_eq!(attempts(&w.pop()), [(2, 1), (3, 1)]);
}

#[test]
fn one_group_does_not_hold_up_another() {
    let mut w = world(&[A, A, A, B, A, B]);
    assert_eq!(offsets(&w.pop_max(1)), [0]);
    assert_eq!(offsets(&w.pop_max(32)), [3, 5], "the scan passes what is blocked");
    assert_eq!(w.ledger.next(0), Some(6));
    assert_eq!(w.ledger.counts(w.now, 0, |_| (0, 6)), Counts { in_flight: 3, blocked: 3, lag: 6, ..Counts::default() });
}

#[test]
fn a_group_that_nobody_holds_is_not_counted_as_blocked() {
    let mut w = world(&[A, A, A, B]);
    let counts = |w: &mut World| w.ledger.counts(w.now, 0, |_| (0, 4));
    let first = w.pop_max(1);
    assert_eq!(offsets(&w.pop_max(32)), [3]);
    assert_eq!(counts(&mut w), Counts { in_flight: 2, blocked: 2, lag: 4, ..Counts::default() });
    w.ack(refs(&first)[0]);
    assert_eq!(counts(&mut w), Counts { ready: 2, in_flight: 1, lag: 3, ..Counts::default() });
    let second = w.pop_max(32);
    assert_eq!(offsets(&second), [1, 2], "as many as were counted");
    w.change(refs(&second)[0], 0);
    assert_eq!(counts(&mut w).blocked, 1, "1 was given back, but 2 is held");
    assert_eq!(counts(&mut w).ready, 0);
}

#[test]
fn extending_the_first_keeps_the_later_ones_back() {
    // C17: three of one group for 10 s, the first extended to 20 s.
    let mut w = world(&[A, A, A]);
    w.args.invisible_ms = 10_000;
    let handles = refs(&w.pop());
    assert_eq!(w.change(handles[0], 20_000), ChangeOutcome::Changed { pop_time_ms: 1000, invisible_ms: 20_000 });
    w.now = 13_000;
    assert!(w.pop().messages.is_empty());
    w.restart(true);
    assert!(w.pop().messages.is_empty());
    w.now = 20_999;
    assert!(w.pop().messages.is_empty());
    w.now = 21_000;
    assert_eq!(attempts(&w.pop()), [(0, 2), (1, 2), (2, 2)]);
}

#[test]
fn a_batch_cut_short_continues_only_when_it_is_done() {
    let mut w = world(&[A, A, A]);
    let first = w.pop_max(2);
    w.now += 100;
    let second = w.pop_max(1);
    assert_eq!(attempts(&second), [(0, 2)]);
    assert!(w.pop().messages.is_empty(), "1 has run out, but 0 is open");
    assert_eq!(w.ack(refs(&first)[1]), AckOutcome::Acked { wake: false }, "late, but not given out again");
    w.ack(refs(&second)[0]);
    assert_eq!(attempts(&w.pop()), [(2, 1)]);
}

#[test]
fn new_messages_follow_redelivered_ones_of_their_group_in_one_pop() {
    let mut w = world(&[A, B, A]);
    w.pop();
    w.now += 100;
    w.topic.send(0, Verdict::Deliver, Some(A));
    w.topic.send(0, Verdict::Deliver, Some(B));
    assert_eq!(attempts(&w.pop_max(3)), [(0, 2), (2, 2), (1, 2)]);
    assert!(w.pop().messages.is_empty(), "3 and 4 wait for their groups");
    w.now += 100;
    assert_eq!(attempts(&w.pop_max(32)), [(0, 3), (2, 3), (3, 1), (1, 3), (4, 1)]);
}

#[test]
fn messages_without_a_group_form_one() {
    let mut w = World::new(Topic::with(&[3, 2]), true);
    let popped = w.pop_max(1);
    assert_eq!(popped.messages[0].queue, 0);
    let other = w.pop_max(32);
    assert!(other.messages.iter().all(|m| m.queue == 1), "per queue");
    assert_eq!(other.messages.len(), 2);
}

#[test]
fn a_deferred_message_was_never_given_out() {
    let mut w = world(&[A, A]);
    w.pop_max(1);
    w.pop();
    assert!(w.ledger.get(0, 1).unwrap().is_deferred());
    let forged = LeaseRef { queue: 0, offset: 1, pop_time_ms: 0 };
    assert_eq!(w.ack(forged), AckOutcome::Stale);
    assert_eq!(w.change(forged, 50), ChangeOutcome::Stale);
}

#[test]
fn deferring_is_bounded_by_the_in_flight_limit() {
    let mut w = world(&[A; 20]);
    w.args.in_flight_max = 5;
    let first = w.pop_max(1);
    let second = w.pop_max(32);
    assert!(second.messages.is_empty());
    assert_eq!((second.rest, w.ledger.iter().count(), w.ledger.next(0)), (0, 5, Some(5)));
    assert_eq!(w.ack(refs(&first)[0]), AckOutcome::Acked { wake: true });
    assert_eq!(offsets(&w.pop()), [1, 2, 3, 4, 5]);
}

#[test]
fn a_dead_letter_frees_its_successors_in_the_same_pop() {
    let mut w = world(&[A, A]);
    w.args.max_attempts = 1;
    w.pop_max(1);
    w.pop();
    w.now += 100;
    w.args.dead_letter = false;
    assert!(w.pop_max(32).messages.is_empty(), "no dead letter, no successor");
    w.args.dead_letter = true;
    let popped = w.pop();
    assert_eq!(popped.dead.iter().map(|m| m.offset).collect::<Vec<_>>(), [0]);
    assert_eq!(attempts(&popped), [(1, 1)]);
}

#[test]
fn a_message_that_cannot_become_a_dead_letter_now_holds_new_ones_back() {
    let mut w = world(&[A, A]);
    w.args.max_attempts = 1;
    let handles = refs(&w.pop());
    w.suspend(handles[0], 100);
    w.now += 100;
    w.topic.send(0, Verdict::Deliver, Some(A));
    w.args.dead_letter = false;
    assert_eq!(attempts(&w.pop()), [(0, 1)], "1 has no attempt left, 2 comes after it");
    assert!(w.ledger.get(0, 2).unwrap().is_deferred());
}

#[test]
fn blocked_groups_survive_a_restart() {
    let mut w = world(&[A, A, B, B]);
    let first = w.pop_max(1);
    w.pop_max(1);
    w.restart(true);
    assert!(w.pop_max(32).messages.is_empty());
    w.topic.send(0, Verdict::Deliver, Some(A));
    w.topic.send(0, Verdict::Deliver, Some(B));
    assert!(w.pop().messages.is_empty());
    w.ack(refs(&first)[0]);
    assert_eq!(offsets(&w.pop()), [1, 4]);
}

#[test]
fn a_group_that_becomes_ordered_keeps_order_among_open_messages() {
    let mut w = World::new(Topic::grouped(&[A, A, B, A]), false);
    w.pop_max(3);
    w.restart(true);
    w.ledger.ack(w.now, LeaseRef { queue: 0, offset: 9, pop_time_ms: 9 }, &mut Vec::new());
    let popped = w.ledger.pop(&w.args, &mut w.topic, &mut Vec::new());
    assert!(popped.messages.is_empty(), "3 waits for 0 and 1");
}

#[test]
fn a_group_that_is_no_longer_ordered_gives_out_what_was_deferred() {
    let mut w = world(&[A, A, A]);
    w.pop_max(1);
    w.pop_max(32);
    w.restart(false);
    assert_eq!(attempts(&w.pop()), [(1, 1), (2, 1)]);
}

#[test]
fn the_longest_waiting_group_comes_first() {
    let mut w = world(&[A, B]);
    let handles = refs(&w.pop());
    w.change(handles[0], 50);
    w.change(handles[1], 40);
    w.now += 50;
    assert_eq!(offsets(&w.pop_max(1)), [1]);
}

#[test]
fn an_answer_that_was_lost_is_given_again() {
    let mut w = world(&[A, A, B, A]);
    w.args.attempt = 7;
    let lost = w.pop_max(3);
    assert_eq!(attempts(&lost), [(0, 1), (1, 1), (2, 1)]);
    w.now += 10;
    w.restart(true);
    let again = w.pop_max(32);
    assert_eq!(attempts(&again), [(0, 1), (1, 1), (2, 1)], "the same, not counted twice, and nothing else");
    assert_eq!(again.pop_time_ms + again.invisible_ms, w.now + 100, "for the full time");
    assert_eq!(w.ack(refs(&lost)[0]), AckOutcome::Stale, "what was under way with the lost handles does nothing");
    assert_eq!(w.ack(refs(&again)[0]), AckOutcome::Acked { wake: false });
    assert_eq!(attempts(&w.pop()), [(1, 1), (2, 1)], "what is left of it");
    w.args.attempt = 8;
    assert!(w.pop().messages.is_empty(), "a new receive");
}

#[test]
fn a_lost_answer_is_given_again_while_its_leases_last() {
    let mut w = world(&[A, A]);
    (w.args.attempt, w.args.max_attempts) = (7, 3);
    for attempt in 1..=3 {
        assert_eq!(attempts(&w.pop()), [(0, attempt), (1, attempt)]);
        w.now += 99;
        assert_eq!(attempts(&w.pop()), [(0, attempt), (1, attempt)]);
        w.now += 100;
    }
    assert_eq!(
        w.pop().dead.len(),
        2,
        "what runs out again and again is dead in the end, whatever the receives are called"
    );
}

#[test]
fn only_the_same_client_with_the_same_name_gets_an_answer_again() {
    for (holder, attempt) in [(2, 7), (1, 8), (1, 0), (0, 7)] {
        let mut w = world(&[A, B]);
        w.args.attempt = 7;
        w.pop();
        (w.args.holder, w.args.attempt) = (holder, attempt);
        assert!(w.pop().messages.is_empty(), "client {holder}, receive {attempt}");
    }
    let mut w = world(&[A]);
    (w.args.holder, w.args.attempt) = (0, 7);
    w.pop();
    assert!(w.pop().messages.is_empty(), "unknown clients are not one client");
}

#[test]
fn an_answer_of_which_the_client_has_spoken_was_not_lost() {
    let mut w = world(&[A, B]);
    w.args.attempt = 7;
    let heard = w.pop();
    let args = ChangeArgs { lease: refs(&heard)[0], invisible_ms: 500, count: true, by: ChangedBy::Client };
    w.with(|w, changes| w.ledger.change(w.now, args, changes));
    assert!(w.pop().messages.is_empty());
}

#[test]
fn a_lost_answer_is_not_given_again_before_a_predecessor_that_another_holds() {
    let mut w = world(&[A, A]);
    w.args.attempt = 7;
    w.pop();
    w.now += 100;
    (w.args.holder, w.args.attempt) = (2, 9);
    assert_eq!(attempts(&w.pop_max(1)), [(0, 2)]);
    (w.args.holder, w.args.attempt) = (1, 7);
    assert!(w.pop_max(32).messages.is_empty(), "0 is with another client, and 1 comes after it");
}
