//! The cases C01, C02, C03, C05 and C09 against the core, in the shapes of both brokers.

mod receipts_common;

use receipts_common::*;
use waybill_sidecar::receipts::{
    AckOutcome, ChangeError, ChangeOutcome, Mode, Policy,
    core::{Ask, Dropped, Intent, Purpose},
};

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

/// The network between sidecar and broker is cut for ten seconds just when a renewal is due, the lease outlives it by a
/// second.
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
