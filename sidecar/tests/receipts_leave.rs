//! Messages that go back, limits and drains: the rules of the receipt manager's core about clients that leave.

mod receipts_common;

use receipts_common::*;
use waybill_sidecar::receipts::{
    AckOutcome, ChangeError, ChannelKind, DrainPolicy, Holder, Mode, Policy,
    core::{Ask, Dropped, Find, Intent, Purpose},
};

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
fn what_was_held_of_many_topics_goes_back_in_full_requests() {
    let mut world = World::with(Policy { max_batch: 256, max_requests_per_broker: 2, ..Policy::default() });
    // Eight targets, 500 of each, in turn; and somebody who holds one of each, due later.
    let targets: Vec<_> = (0..8).map(|n| (format!("group-{}", n / 4), format!("topic-{}", n % 4))).collect();
    for offset in 0..500 {
        for (group, topic) in &targets {
            world.hold_for(Holder { client: "client-a", group, topic }, &handle(offset, 77), Mode::Renew);
        }
    }
    for (group, topic) in &targets {
        world.hold_for(Holder { client: "client-b", group, topic }, &handle(1_000, 77), Mode::Renew);
    }
    world.core.client_gone(world.now, "client-a", None);
    let mut sizes = Vec::new();
    while world.held() > 8 {
        let batches = world.batches();
        assert!((1..=2).contains(&batches.len()), "only what may be under way");
        for batch in batches {
            sizes.push(batch.items.len());
            for item in &batch.items {
                world.settle(&batch, item, 1_000, Ok(extended(&item.handle, 1_000)));
            }
            world.core.end_request(batch.lane);
        }
        world.pass(1);
    }
    sizes.sort_unstable();
    assert_eq!(sizes, [vec![244; 8], vec![256; 8]].concat());
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

/// A poll that began before the client left may bring messages as long as it can last.
#[test]
fn that_a_client_left_is_remembered_for_as_long_as_a_poll_may_last() {
    let mut world = World::with(Policy { remember_gone_ms: 640_000, ..Policy::default() });
    world.core.client_gone(world.now, HOLDER.client, None);
    world.pass(639_999);
    assert!(world.hold(&handle(1, 77), Mode::Renew).client_gone);
    world.pass(1);
    assert!(!world.hold(&handle(2, 77), Mode::Renew).client_gone, "another client with that name");
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

#[test]
fn what_could_not_be_written_and_is_received_again_is_kept() {
    let mut world = World::new();
    let first = handle(1, 77);
    world.core.give_back(world.now, HOLDER, ChannelKind::Grpc, vec![first.clone()]);
    // The client repeats its receive; the broker answers with the same delivery.
    assert!(!world.hold(&first, Mode::Renew).client_gone);
    world.nothing_sent();
    world.renew(extended);
    // An older delivery of the message changes nothing, and neither does one for a client that is gone.
    world.core.give_back(world.now, HOLDER, ChannelKind::Grpc, vec![first.clone()]);
    world.hold(&handle(1, 60), Mode::Renew);
    world.core.client_gone(world.now, HOLDER.client, None);
    assert!(world.hold(&first, Mode::Renew).client_gone);
    assert_eq!(world.only_item().1.purpose, Purpose::Return);
}
