//! No space: what is refused, what goes on, and that it ends by itself.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use waybill_broker::store::{Admit, Batch, EntryMeta, Health, Keyspace, Store, StoreError};

use crate::support::*;

#[test]
fn messages_are_refused_first_state_goes_on_and_all_resumes_by_itself() {
    let dir = temp_dir();
    let disk = Arc::new(TestDisk::default());
    let store = open_on(dir.path(), &disk);
    let mut model = Model::default();
    eventually("the next segment", || log_files(dir.path()).len() == 2);
    disk.full.store(true, Ordering::SeqCst);
    // The next segment is there already, so this is still good.
    store.admit(Admit::Append).unwrap();
    model.commit(&store, &[append(1, &[1; 40_000])]);
    model.commit(&store, &[append(1, &[1; 40_000])]);
    eventually("the refusal", || store.admit(Admit::Append).is_err());
    assert!(matches!(store.admit(Admit::Append), Err(StoreError::DiskFull)));
    assert_eq!(store.health(), Health::DiskFull);

    // Acks and leases use the rest of the segment, up to a reserve.
    let mut state_changes = 0;
    while store.admit(Admit::State).is_ok() {
        model.commit(&store, &[put(format!("{state_changes}").as_bytes(), &[2; 500])]);
        state_changes += 1;
    }
    assert!(state_changes > 20, "{state_changes}");
    assert!(matches!(store.admit(Admit::State), Err(StoreError::DiskFull)));
    // What had been admitted before still fits.
    model.commit(&store, &[put(b"admitted before", &[2; 500])]);
    model.check(&store, 0..0);
    let image = crash_image(dir.path());
    model.check(&open(image.path()), 0..0);

    disk.full.store(false, Ordering::SeqCst);
    eventually("the resumption", || store.health() == Health::Ok);
    store.admit(Admit::Append).unwrap();
    store.admit(Admit::State).unwrap();
    model.commit(&store, &[append(1, &[3; 40_000])]);
    model.check(&store, 0..0);
    drop(store);
    model.check(&open(dir.path()), 0..0);
}

#[test]
fn a_batch_without_room_changes_nothing_and_blocks_nothing() {
    let dir = temp_dir();
    let disk = Arc::new(TestDisk::default());
    let store = open_on(dir.path(), &disk);
    eventually("the next segment", || log_files(dir.path()).len() == 2);
    disk.full.store(true, Ordering::SeqCst);
    let mut model = Model::default();
    model.commit(&store, &[append(1, &[1; 40_000])]);
    model.commit(&store, &[append(1, &[1; 40_000])]);
    eventually("the refusal", || store.admit(Admit::Append).is_err());
    let mut batch = Batch::new();
    batch.append(queue(1, 0), 2, EntryMeta::default(), &[1; 40_000]);
    assert!(matches!(wait(store.submit(batch)), Err(StoreError::DiskFull)));
    // Its offset is free again.
    model.commit(&store, &[append(1, b"small")]);
    model.check(&store, 0..0);
}

/// For owners who count on a change when they have submitted it: what is submitted after one that was refused may build on it.
#[test]
fn where_refusals_are_fatal_nothing_behind_a_refused_batch_is_committed() {
    let dir = temp_dir();
    let disk = Arc::new(TestDisk::default());
    let mut strict = options(dir.path());
    strict.disk = disk.clone();
    strict.refused_is_fatal = true;
    let store = Store::open(strict.clone()).unwrap();
    eventually("the next segment", || log_files(dir.path()).len() == 2);
    disk.full.store(true, Ordering::SeqCst);
    let mut model = Model::default();
    model.commit(&store, &[append(1, &[1; 40_000])]);
    model.commit(&store, &[append(1, &[1; 40_000])]);
    eventually("the refusal", || store.admit(Admit::Append).is_err());
    let big = || {
        let mut batch = Batch::new();
        batch.append(queue(1, 0), 2, EntryMeta::default(), &[1; 40_000]);
        batch
    };
    let behind = || {
        let mut batch = Batch::new();
        batch.put(Keyspace::Meta, b"behind", b"1");
        batch
    };
    let commits = [store.submit(big()), store.submit(behind())].map(wait);
    // The second may have come with the first, or when it had failed.
    let [Err(StoreError::DiskFull), Err(StoreError::DiskFull | StoreError::Failed(_))] = commits else {
        panic!("{commits:?}");
    };
    assert!(matches!(store.health(), Health::Failed(_)));
    assert!(matches!(store.admit(Admit::State), Err(StoreError::Failed(_))));
    drop(store);

    let store = Store::open(strict.clone()).unwrap();
    assert!(matches!(store.admit(Admit::Append), Err(StoreError::DiskFull)), "it is known from the beginning");
    model.commit(&store, &[append(1, b"small")]);
    model.check(&store, 0..0);
    disk.full.store(false, Ordering::SeqCst);
    let mut large = Batch::new();
    large.put(Keyspace::Meta, b"large", &[0; 70_000]);
    assert!(matches!(wait(store.submit(large)), Err(StoreError::TooLarge { .. })));
    assert!(matches!(wait(store.submit(behind())), Err(StoreError::Failed(_))));
    drop(store);

    let store = Store::open(strict).unwrap();
    let mut out_of_order = Batch::new();
    out_of_order.append(queue(1, 0), 0, EntryMeta::default(), b"x");
    let commits = [store.submit(out_of_order), store.submit(behind())].map(wait);
    assert!(matches!(&commits, [Err(StoreError::OutOfOrder { .. }), Err(StoreError::Failed(_))]), "{commits:?}");
    drop(store);
    model.check(&open(dir.path()), 0..0);
}

#[test]
fn what_nobody_needs_is_removed_in_as_many_batches_as_that_takes() {
    let dir = temp_dir();
    let store = open(dir.path());
    let mut model = Model::default();
    let keys: Vec<[u8; 1_000]> = (0..200).map(|n| [n; 1_000]).collect();
    for key in &keys {
        model.commit(&store, &[put(key, b"1")]);
    }
    let (gone, kept) = keys.split_at(190);
    store.clean_up(Keyspace::Lease, gone);
    store.clean_up(Keyspace::Lease, [[0; 0]; 0]);
    drop(store);
    let left: Vec<_> = open(dir.path()).scan(Keyspace::Lease, &[]).unwrap().into_iter().map(|(key, _)| key).collect();
    assert!(left.iter().map(|key| &key[..]).eq(kept.iter().map(|key| &key[..])), "{} are left", left.len());
}

#[test]
fn a_store_without_room_for_its_first_segment_does_not_open() {
    let dir = temp_dir();
    let disk = Arc::new(TestDisk::default());
    disk.full.store(true, Ordering::SeqCst);
    let mut full = options(dir.path());
    full.disk = disk;
    assert!(matches!(Store::open(full), Err(StoreError::Io { .. })));
    open(dir.path());
}

#[test]
fn a_store_opens_on_a_full_disk_with_what_it_has() {
    let dir = temp_dir();
    let mut model = Model::default();
    model.commit(&open(dir.path()), &[append(1, b"x"), put(b"a", b"1")]);
    for (_, next) in &log_files(dir.path())[1..] {
        std::fs::remove_file(next).unwrap();
    }
    let disk = Arc::new(TestDisk::default());
    disk.full.store(true, Ordering::SeqCst);
    let store = open_on(dir.path(), &disk);
    eventually("the refusal", || store.admit(Admit::Append).is_err());
    store.admit(Admit::State).unwrap();
    model.commit(&store, &[put(b"b", b"2")]);
    model.check(&store, 0..0);
}

#[test]
fn a_full_index_loses_nothing_and_catches_up_by_itself() {
    let dir = temp_dir();
    let disk = Arc::new(TestDisk::default());
    let mut options = options(dir.path());
    options.disk = disk.clone();
    options.index_overlay_bytes = 20_000;
    let store = Store::open(options.clone()).unwrap();
    let mut model = Model::default();
    model.commit(&store, &[put(b"before", b"1"), append(1, b"before")]);
    disk.index_full.store(true, Ordering::SeqCst);
    let mut refused = false;
    for at in 0..2000u32 {
        model.commit(&store, &[put(&at.to_be_bytes(), &[1; 100]), Change::Delete(Keyspace::Lease, vec![9; 4])]);
        model.commit(&store, &[append(at % 3, b"message")]);
        if matches!(store.admit(Admit::Append), Err(StoreError::DiskFull)) {
            refused = true;
            break;
        }
    }
    assert!(refused, "memory is bounded");
    assert_eq!(store.health(), Health::DiskFull);
    store.admit(Admit::State).unwrap();
    eventually("another attempt", || store.stats().failed_checkpoints > 2);
    assert_eq!(store.stats().checkpoints, 0);
    model.check(&store, 0..0);
    let image = crash_image(dir.path());
    model.check(&open(image.path()), 0..0);

    disk.index_full.store(false, Ordering::SeqCst);
    eventually("the checkpoint", || store.stats().checkpoints > 1 && store.health() == Health::Ok);
    store.admit(Admit::Append).unwrap();
    model.commit(&store, &[append(1, b"after"), put(b"after", b"1")]);
    model.check(&store, 0..0);

    // Closing with a full index says so, and loses nothing either.
    disk.index_full.store(true, Ordering::SeqCst);
    assert!(matches!(store.close(), Err(StoreError::Index(_))));
    disk.index_full.store(false, Ordering::SeqCst);
    model.check(&Store::open(options).unwrap(), 0..0);
}

#[test]
fn too_much_waiting_is_refused_for_now() {
    let dir = temp_dir();
    let disk = Arc::new(TestDisk::default());
    let mut options = options(dir.path());
    options.disk = disk.clone();
    options.max_pending_bytes = 1000;
    let store = Store::open(options).unwrap();
    eventually("the next segment", || log_files(dir.path()).len() == 2);
    let held = disk.hold();
    let mut batch = Batch::new();
    batch.put(Keyspace::Meta, b"a", &[0; 1000]);
    let commit = store.submit(batch);
    for kind in [Admit::Append, Admit::State] {
        assert!(matches!(store.admit(kind), Err(StoreError::Busy)));
    }
    drop(held);
    wait(commit).unwrap();
    store.admit(Admit::Append).unwrap();
}
