//! A disk whose syncs take longer than anybody waits: what is answered, what is held, and how much is kept in memory meanwhile.
//!
//! A sync here ends when the test lets it, and the clock is moved by hand, so nothing depends on how fast the machine is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::fs::File;
use std::io;
use std::sync::Arc;

use futures::future::join_all;
use parking_lot::{Condvar, Mutex};
use support::{LIMIT, Rig, START_MS, config};
use waybill_broker::store::{Disk, RealDisk};
use waybill_broker::{Broker, Peer};
use waybill_ops::clock::ManualClock;
use waybill_protocol::remoting::Command;
use waybill_protocol::remoting::codes::response;

const LEASE_MS: i64 = 10_000;
const PENDING_MAX: u64 = 64 << 10;

/// A disk whose syncs wait while it is held.
#[derive(Debug, Default)]
struct SlowDisk {
    held: Mutex<bool>,
    released: Condvar,
}

impl SlowDisk {
    fn hold(&self, held: bool) {
        *self.held.lock() = held;
        self.released.notify_all();
    }
}

impl Disk for SlowDisk {
    fn sync(&self, file: &File) -> io::Result<()> {
        let mut held = self.held.lock();
        while *held {
            self.released.wait(&mut held);
        }
        drop(held);
        RealDisk.sync(file)
    }
}

/// One queue with `count` messages, on a disk that can be held.
async fn rig_with(count: usize) -> (Arc<Rig>, Arc<SlowDisk>) {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let (clock, disk) = (Arc::new(ManualClock::new(START_MS)), Arc::new(SlowDisk::default()));
    let of_store = disk.clone();
    let broker = Broker::open_with(config(dir.path()), clock.clone(), |options| {
        options.disk = of_store;
        options.max_pending_bytes = PENDING_MAX;
    });
    let rig = Rig { dir, clock, broker: broker.unwrap(), peer: Peer::local() };
    rig.topic("t", 1).await;
    rig.group("g").await;
    for n in 0..count {
        rig.send("t", &format!("m{n:03}")).await;
    }
    (Arc::new(rig), disk)
}

/// Lets everything that is asked get as far as it can without the disk.
async fn as_far_as_it_gets() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, work).await.expect("it ends when the disk does its work")
}

#[tokio::test]
async fn what_was_renewed_in_time_is_given_to_nobody_however_long_the_sync_takes() {
    let (rig, disk) = rig_with(20).await;
    let held = rig.pop("g", "t", 20, LEASE_MS).await;
    assert_eq!(held.len(), 20);
    disk.hold(true);
    rig.clock.advance(LEASE_MS - 1_000);
    let before = rig.broker.core().store().stats();
    let renewals: Vec<_> = held
        .iter()
        .cloned()
        .map(|got| {
            let rig = rig.clone();
            tokio::spawn(async move { rig.change("g", "t", &got.handle, 60_000).await })
        })
        .collect();
    as_far_as_it_gets().await;
    assert!(renewals.iter().all(|renewal| !renewal.is_finished()), "no answer before it is on the disk");

    // The leases as they were are over, and another consumer asks.
    rig.clock.advance(30_000);
    let other = {
        let rig = rig.clone();
        tokio::spawn(async move { rig.pop("g", "t", 20, LEASE_MS).await })
    };
    as_far_as_it_gets().await;
    disk.hold(false);
    let renewed: Vec<_> = in_time(join_all(renewals)).await.into_iter().map(Result::unwrap).collect();
    assert!(in_time(other).await.unwrap().is_empty(), "given to another");
    let after = rig.broker.core().store().stats();
    assert_eq!(after.records - before.records, 20);
    assert!(
        after.syncs - before.syncs <= 3,
        "what waits for the disk goes together: {} syncs",
        after.syncs - before.syncs
    );
    for handle in renewed {
        assert_eq!(rig.ack("g", "t", &handle.unwrap()).await, response::SUCCESS);
    }
    assert!(rig.pop("g", "t", 20, LEASE_MS).await.is_empty());
}

#[tokio::test]
async fn what_waits_is_bounded_and_what_was_answered_is_there_afterwards() {
    let (rig, disk) = rig_with(0).await;
    disk.hold(true);
    let body = "x".repeat(1_000);
    let count = 4 * usize::try_from(PENDING_MAX).unwrap() / body.len();
    let sends: Vec<_> = (0..count)
        .map(|n| {
            let (rig, command) = (rig.clone(), Rig::send_command("t", &format!("s{n:03}"), None, &body));
            tokio::spawn(async move { rig.call(command).await })
        })
        .collect();
    as_far_as_it_gets().await;
    let refused = sends.iter().filter(|send| send.is_finished()).count();
    assert!(refused > count / 2, "{refused} of {count} are refused while the rest waits");
    disk.hold(false);
    let answers: Vec<Command> = in_time(join_all(sends)).await.into_iter().map(Result::unwrap).collect();
    let (stored, busy): (Vec<_>, Vec<_>) = (0..count).partition(|n| answers[*n].code == response::SUCCESS);
    assert_eq!(busy.len(), refused);
    assert!(busy.iter().all(|n| answers[*n].code == response::SYSTEM_BUSY), "a code that clients try again");
    assert!(!stored.is_empty());
    let stored: Vec<_> = stored.into_iter().map(|n| format!("s{n:03}")).collect();
    assert_eq!(rig.drain_ids("g", "t").await, stored);
    rig.send("t", "after").await;

    // And after a crash: nothing of what was answered was in memory only.
    let rig = Arc::try_unwrap(rig).unwrap_or_else(|_| panic!("nobody asks any more")).reopen();
    rig.group("another").await;
    let mut all = stored;
    all.insert(0, "after".to_owned());
    assert_eq!(rig.drain_ids("another", "t").await, all);
}

#[tokio::test]
async fn an_answer_that_nobody_waited_for_counts_all_the_same() {
    let (rig, disk) = rig_with(3).await;
    let held = rig.pop("g", "t", 3, LEASE_MS).await;
    disk.hold(true);
    // Whoever asks gives up, as a sidecar does after its time: the ack of one, a send, the renewal of another.
    let given_up: [tokio::task::JoinHandle<bool>; 3] = [
        tokio::spawn({
            let (rig, handle) = (rig.clone(), held[0].handle.clone());
            async move { rig.ack("g", "t", &handle).await == response::SUCCESS }
        }),
        tokio::spawn({
            let rig = rig.clone();
            async move { rig.call(Rig::send_command("t", "sent", None, "x")).await.code == response::SUCCESS }
        }),
        tokio::spawn({
            let (rig, handle) = (rig.clone(), held[1].handle.clone());
            async move { rig.change("g", "t", &handle, 60_000).await.is_ok() }
        }),
    ];
    as_far_as_it_gets().await;
    for asked in given_up {
        asked.abort();
        assert!(asked.await.unwrap_err().is_cancelled(), "it was still waiting");
    }
    disk.hold(false);
    // What comes later is on the disk later; then the ack is asked again, and hears that it is done.
    in_time(rig.send("t", "later")).await;
    assert_eq!(in_time(rig.ack("g", "t", &held[0].handle)).await, response::SUCCESS);
    rig.clock.advance(LEASE_MS + 1);
    let mut came: Vec<_> = rig.pop("g", "t", 10, LEASE_MS).await.iter().map(support::Got::id).collect();
    came.sort();
    assert_eq!(came, ["later", "m002", "sent"], "not what was acknowledged, nor what was renewed");
}

#[tokio::test]
async fn who_repeats_an_ack_hears_ok_only_when_the_first_is_on_the_disk() {
    let (rig, disk) = rig_with(1).await;
    let held = rig.pop("g", "t", 1, LEASE_MS).await;
    disk.hold(true);
    let ack = || {
        let (rig, handle) = (rig.clone(), held[0].handle.clone());
        tokio::spawn(async move { rig.ack("g", "t", &handle).await })
    };
    let first = ack();
    as_far_as_it_gets().await;
    let again = ack();
    as_far_as_it_gets().await;
    assert!(!first.is_finished() && !again.is_finished(), "nothing is on the disk");
    disk.hold(false);
    for answer in [first, again, ack()] {
        assert_eq!(in_time(answer).await.unwrap(), response::SUCCESS);
    }
}
