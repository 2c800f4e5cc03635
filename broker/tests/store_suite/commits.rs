//! Committing together, in order, and failing honestly.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use waybill_broker::store::{Admit, Batch, EntryMeta, Health, Keyspace, StoreError};

use crate::support::*;

fn put_batch(key: &str, value: &str) -> Batch {
    let mut batch = Batch::new();
    batch.put(Keyspace::Meta, key.as_bytes(), value.as_bytes());
    batch
}

#[test]
fn those_who_wait_share_a_sync() {
    let dir = disk_dir();
    let disk = Arc::new(TestDisk::default());
    let store = open_on(dir.path(), &disk);
    eventually("the next segment", || log_files(dir.path()).len() == 2);
    let before = disk.syncs.load(Ordering::SeqCst);
    let held = disk.hold();
    let first = store.submit(put_batch("0", "0"));
    eventually("the sync of the first", || disk.waiting() == 1);
    let others: Vec<_> = (1..=255).map(|at| store.submit(put_batch(&at.to_string(), "x"))).collect();
    assert!(store.stats().pending_bytes > 256 * 40);
    drop(held);
    for commit in std::iter::once(first).chain(others) {
        wait(commit).unwrap();
    }
    assert_eq!(disk.syncs.load(Ordering::SeqCst) - before, 2);
    let stats = store.stats();
    assert_eq!((stats.records, stats.groups, stats.syncs, stats.largest_group), (256, 2, 2, 255));
    assert_eq!(stats.pending_bytes, 0);
    assert_eq!(stats.log_durable, stats.log_end);
}

#[test]
fn what_is_not_durable_is_not_shown() {
    let dir = temp_dir();
    let disk = Arc::new(TestDisk::default());
    let store = open_on(dir.path(), &disk);
    eventually("the next segment", || log_files(dir.path()).len() == 2);
    let mut model = Model::default();
    model.commit(&store, &[append(1, b"before"), put(b"a", b"before")]);
    let held = disk.hold();
    let mut batch = Batch::new();
    batch.append(queue(1, 0), 1, EntryMeta::default(), b"waits");
    batch.put(Keyspace::Lease, b"a", b"waits");
    let commit = store.submit(batch);
    eventually("the sync", || disk.waiting() == 1);
    let position = store.stats().log_end + 40;
    model.check(&store, 0..0);
    assert!(matches!(store.read(position), Err(StoreError::NotFound(_))));
    drop(held);
    assert_eq!(wait(commit).unwrap().positions, [position]);
    assert_eq!(&store.read(position).unwrap()[..], b"waits");
    assert_eq!(store.get(Keyspace::Lease, b"a").unwrap().as_deref(), Some(&b"waits"[..]));
    assert_eq!(store.bounds(queue(1, 0)), (0, 2));
}

#[test]
fn the_order_of_submits_is_the_order_of_the_log() {
    let dir = temp_dir();
    let store = open(dir.path());
    let log = parking_lot::Mutex::new((0u64, Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let mut log = log.lock();
                    let mut batch = Batch::new();
                    batch.append(queue(1, 0), log.0, EntryMeta::default(), &log.0.to_be_bytes());
                    batch.put(Keyspace::Meta, b"last", &log.0.to_be_bytes());
                    log.0 += 1;
                    let commit = store.submit(batch);
                    log.1.push(commit);
                }
            });
        }
    });
    let positions: Vec<_> = log.into_inner().1.into_iter().map(|commit| wait(commit).unwrap().positions[0]).collect();
    assert!(positions.is_sorted());
    for (at, position) in positions.iter().enumerate() {
        assert_eq!(&store.read(*position).unwrap()[..], (at as u64).to_be_bytes());
    }
    assert_eq!(store.get(Keyspace::Meta, b"last").unwrap().as_deref(), Some(&1599u64.to_be_bytes()[..]));
    assert!(store.stats().groups < 1600, "they were committed in groups");
}

#[test]
fn work_goes_on_when_nobody_waits_for_it() {
    let dir = temp_dir();
    let store = open(dir.path());
    drop(store.submit(put_batch("dropped", "x")));
    wait(store.submit(put_batch("kept", "x"))).unwrap();
    assert!(store.get(Keyspace::Meta, b"dropped").unwrap().is_some());
    drop(store.submit(put_batch("last", "x")));
    store.close().unwrap();
    assert!(open(dir.path()).get(Keyspace::Meta, b"last").unwrap().is_some());
}

#[test]
fn short_writes_are_continued() {
    let dir = temp_dir();
    let disk = Arc::new(TestDisk::default());
    disk.short_writes.store(true, Ordering::SeqCst);
    let store = open_on(dir.path(), &disk);
    let mut model = Model::default();
    for _ in 0..20 {
        model.commit(&store, &[append(1, &[5; 9000]), put(b"k", b"v")]);
    }
    model.check(&store, 0..0);
    drop(store);
    model.check(&open(dir.path()), 0..0);
}

/// A failed write or sync fails everybody, takes nothing more, and re-opening finds all that was answered.
fn failure(break_it: fn(&TestDisk) -> &AtomicBool) {
    let dir = temp_dir();
    let disk = Arc::new(TestDisk::default());
    let store = open_on(dir.path(), &disk);
    eventually("the next segment", || log_files(dir.path()).len() == 2);
    let mut model = Model::default();
    model.commit(&store, &[put(b"before", b"x"), append(1, b"before")]);

    let held = disk.hold();
    let first = store.submit(put_batch("held", "x"));
    eventually("the sync", || disk.waiting() == 1 || break_it(&disk).load(Ordering::SeqCst));
    let waiting: Vec<_> = (0..10).map(|at| store.submit(put_batch(&format!("waiting {at}"), "x"))).collect();
    break_it(&disk).store(true, Ordering::SeqCst);
    drop(held);
    let _ = wait(first);
    for commit in waiting {
        assert!(matches!(wait(commit), Err(StoreError::Failed(_))));
    }
    assert!(matches!(store.health(), Health::Failed(_)));
    break_it(&disk).store(false, Ordering::SeqCst);
    assert!(matches!(wait(store.submit(put_batch("later", "x"))), Err(StoreError::Failed(_))));
    for kind in [Admit::Append, Admit::State] {
        assert!(matches!(store.admit(kind), Err(StoreError::Failed(_))));
    }
    assert_eq!(store.get(Keyspace::Lease, b"before").unwrap().as_deref(), Some(&b"x"[..]), "reading goes on");
    assert_eq!(store.get(Keyspace::Meta, b"waiting 0").unwrap(), None);
    assert_eq!(store.stats().pending_bytes, 0);
    assert!(matches!(store.close(), Err(StoreError::Failed(_))));

    let store = open(dir.path());
    assert_eq!(store.get(Keyspace::Lease, b"before").unwrap().as_deref(), Some(&b"x"[..]));
    assert_eq!(store.get(Keyspace::Meta, b"later").unwrap(), None);
    let before = store.scan(Keyspace::Meta, b"").unwrap();
    wait(store.submit(put_batch("again", "x"))).unwrap();
    drop(store);
    assert_eq!(open(dir.path()).scan(Keyspace::Meta, b"").unwrap().len(), before.len() + 1);
}

#[test]
fn a_failed_sync_fails_the_store_until_it_is_opened_again() {
    failure(|disk| &disk.fail_sync);
}

#[test]
fn a_failed_write_fails_the_store_until_it_is_opened_again() {
    failure(|disk| &disk.fail_write);
}

#[test]
fn what_a_failed_sync_may_have_kept_from_the_disk_is_written_again_when_opening() {
    let dir = disk_dir();
    let disk = Arc::new(TestDisk::default());
    let store = open_on(dir.path(), &disk);
    let mut model = Model::default();
    model.commit(&store, &[append(1, &[1; 3000])]);
    let durable = store.stats().log_durable;
    disk.fail_sync.store(true, Ordering::SeqCst);
    let mut batch = Batch::new();
    batch.append(queue(2, 0), 0, EntryMeta::default(), &[2; 5000]);
    assert!(wait(store.submit(batch)).is_err());
    disk.fail_sync.store(false, Ordering::SeqCst);
    drop(store);

    let (written, syncs) = (disk.written.load(Ordering::SeqCst), disk.syncs.load(Ordering::SeqCst));
    let store = open_on(dir.path(), &disk);
    assert_eq!(store.bounds(queue(2, 0)), (0, 1), "the system still shows it");
    let end = store.stats().log_end;
    assert!(end - durable > 5000);
    // The header of the next segment may be among it.
    assert!(disk.written.load(Ordering::SeqCst) - written >= end - durable);
    assert!(disk.syncs.load(Ordering::SeqCst) > syncs);
    assert_eq!(store.stats().log_durable, end);
}

#[test]
fn readers_see_whole_batches_while_others_commit() {
    let dir = temp_dir();
    let mut options = options(dir.path());
    options.index_checkpoint_bytes = 50_000;
    let store = waybill_broker::store::Store::open(options).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..3 {
            let (store, done) = (&store, &done);
            scope.spawn(move || {
                let mut last = 0;
                while !done.load(Ordering::SeqCst) {
                    let both = store.scan(Keyspace::Progress, b"").unwrap();
                    if let [(_, one), (_, two)] = &both[..] {
                        assert_eq!(one, two, "a batch is seen as a whole");
                    } else {
                        assert!(both.is_empty());
                    }
                    let (_, next) = store.bounds(queue(1, 0));
                    assert!(next >= last);
                    last = next;
                    let from = next.saturating_sub(10 + reader * 300);
                    let entries = store.entries(queue(1, 0), from, 20).unwrap();
                    assert_eq!(entries.len() as u64, (next - from).min(20).max(entries.len() as u64));
                    for (at, entry) in entries.iter().enumerate() {
                        assert_eq!(entry.offset, from + at as u64);
                        assert_eq!(&store.read(entry.position).unwrap()[..8], entry.offset.to_be_bytes());
                    }
                }
            });
        }
        for offset in 0.. {
            if offset >= 3000 && store.stats().checkpoints > 1 {
                break;
            }
            let mut batch = Batch::new();
            let mut payload = vec![0; 100];
            payload[..8].copy_from_slice(&u64::to_be_bytes(offset));
            batch.append(queue(1, 0), offset, EntryMeta::default(), &payload);
            batch.put(Keyspace::Progress, b"one", &offset.to_be_bytes());
            batch.put(Keyspace::Progress, b"two", &offset.to_be_bytes());
            let commit = store.submit(batch);
            if offset % 50 == 49 {
                wait(commit).unwrap();
            }
        }
        done.store(true, Ordering::SeqCst);
    });
}
