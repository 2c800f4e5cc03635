//! One thing after the other.

use std::time::Duration;

use waybill_broker::store::{Admit, Batch, EntryMeta, Flush, Health, HeldRow, Keyspace, Store, StoreError};

use crate::support::*;

#[test]
fn what_is_committed_is_found() {
    let dir = disk_dir();
    let store = open(dir.path());
    let mut model = Model::default();
    model.commit(&store, &[put(b"a", b"1"), put(b"ab", b"2"), put(b"b", b"3"), append(1, b"hello"), append(1, b"")]);
    model.commit(&store, &[put(b"a", b"4"), Change::Delete(Keyspace::Lease, b"b".to_vec()), append(2, &[7; 9000])]);
    model.check(&store, 0..0);
    assert_eq!(store.get(Keyspace::Lease, b"b").unwrap(), None);
    assert_eq!(store.get(Keyspace::Meta, b"a").unwrap(), None, "keyspaces are apart");
    let found = store.scan(Keyspace::Lease, b"a").unwrap();
    assert_eq!(found, [(b"a"[..].into(), b"4"[..].into()), (b"ab"[..].into(), b"2"[..].into())]);
    assert_eq!(store.health(), Health::Ok);
    store.admit(Admit::Append).unwrap();
    store.admit(Admit::State).unwrap();

    store.close().unwrap();
    let store = open(dir.path());
    model.check(&store, 0..0);
    model.commit(&store, &[append(2, b"after"), put(b"b", b"back")]);
    model.check(&store, 0..0);
}

#[test]
fn positions_grow_over_segments_and_only_they_are_read() {
    let dir = disk_dir();
    let store = open(dir.path());
    let mut model = Model::default();
    for size in [30_000, 30_000, 30_000, 1, 60_000] {
        model.commit(&store, &[append(1, &vec![size as u8; size])]);
    }
    let messages = &model.queues[&queue(1, 0)];
    assert!(messages.is_sorted_by_key(|message| message.position));
    assert!(messages.last().unwrap().position > 128 * 1024, "they are in several segments");
    model.check(&store, 0..0);
    let end = store.stats().log_end;
    let known: Vec<_> = messages.iter().map(|message| message.position).collect();
    for position in (0..end + 100).filter(|position| !known.contains(position)).chain([u64::MAX, u64::MAX - 20]) {
        let found = store.read(position);
        assert!(matches!(found, Err(StoreError::NotFound(_) | StoreError::Corrupt { .. })), "{found:?} at {position}");
    }
}

#[test]
fn what_is_held_is_in_no_queue_until_it_is_linked_and_is_written_once() {
    let dir = temp_dir();
    let store = open(dir.path());
    let mut model = Model::default();
    let meta = EntryMeta { tag_hash: 9, store_time_ms: 1 };
    let hold = |time_ms, payload: &[u8]| Change::Hold {
        keyspace: Keyspace::Timer,
        time_ms,
        queue: queue(1, 3),
        meta,
        payload: payload.to_vec(),
    };
    model.commit(&store, &[hold(20, &[2; 9000]), hold(10, b"first"), append(1, b"ordinary")]);
    model.check(&store, 0..0);
    assert_eq!(store.bounds(queue(1, 3)), (0, 0));
    let rows = store.range(Keyspace::Timer, b"", &HeldRow::key(20, 0), 10).unwrap();
    let rows: Vec<_> = rows.iter().map(|(key, value)| HeldRow::read(key, value).unwrap()).collect();
    assert_eq!(rows.iter().map(|row| (row.time_ms, row.len)).collect::<Vec<_>>(), [(10, 5)], "what is due before 20");

    let before = store.stats().log_end;
    model.commit(&store, &[Change::Link(0), Change::Link(0)]);
    assert!(store.stats().log_end - before < 300, "no payload is copied");
    model.check(&store, 0..0);
    let entries = store.entries(queue(1, 3), 0, 10).unwrap();
    assert_eq!(entries.iter().map(|entry| (entry.offset, entry.len)).collect::<Vec<_>>(), [(0, 5), (1, 9000)]);
    assert_eq!(store.range(Keyspace::Timer, b"", b"", 10).unwrap(), []);
    for index in [true, false] {
        let image = crash_image(dir.path());
        if !index {
            std::fs::remove_dir_all(image.path().join("index")).unwrap();
        }
        model.check(&open(image.path()), 0..0);
    }
    let mut batch = Batch::new();
    batch.link(queue(1, 3), entries[0]);
    assert!(matches!(wait(store.submit(batch)), Err(StoreError::OutOfOrder { .. })));
}

#[test]
fn a_payload_that_looks_like_a_message_is_not_one() {
    let dir = temp_dir();
    let store = open(dir.path());
    let mut model = Model::default();
    model.commit(&store, &[append(1, b"the real one")]);
    let real = model.queues[&queue(1, 0)][0].position;
    // The very bytes of the append, as a client that knows the format would send them.
    let (path, at) = locate(dir.path(), real);
    let forged = std::fs::read(path).unwrap()[at..at + 40 + 12].to_vec();
    model.commit(&store, &[append(1, &forged)]);
    let outer = model.queues[&queue(1, 0)][1].position;
    assert_eq!(&store.read(outer).unwrap()[..], forged);
    assert!(matches!(store.read(outer + 40), Err(StoreError::Corrupt { .. })));
}

#[test]
fn a_dropped_topic_is_forgotten_before_and_after_a_checkpoint() {
    let dir = temp_dir();
    let mut model = Model::default();
    for close_between in [false, true] {
        let mut store = open(dir.path());
        for topic in [7, 8, 9] {
            model.commit(&store, &[append(topic, b"x"), append(topic, b"y")]);
        }
        if close_between {
            store.close().unwrap();
            store = open(dir.path());
        }
        model.drop_topic(&store, 8);
        let check = |store: &Store, model: &Model| {
            model.check(store, 0..0);
            assert_eq!(store.bounds(queue(8, 0)), (0, 0));
            assert_eq!(store.entries(queue(8, 0), 0, 10).unwrap(), []);
        };
        check(&store, &model);
        let image = crash_image(dir.path());
        check(&open(image.path()), &model);
        store.close().unwrap();
        let store = open(dir.path());
        check(&store, &model);
        // Offsets start anew.
        model.commit(&store, &[append(8, b"new")]);
        model.check(&store, 0..0);
        model.drop_topic(&store, 8);
    }
}

#[test]
fn what_cannot_be_committed_changes_nothing() {
    let dir = temp_dir();
    let store = open(dir.path());
    let mut model = Model::default();
    model.commit(&store, &[append(1, b"0"), append(1, b"1")]);
    let append_at = |offset, extra: &[(u32, u64)]| {
        let mut batch = Batch::new();
        batch.put(Keyspace::Meta, b"never", b"");
        for (topic, offset) in extra {
            batch.append(queue(*topic, 0), *offset, EntryMeta::default(), b"");
        }
        batch.append(queue(1, 0), offset, EntryMeta::default(), b"");
        batch
    };
    for batch in [append_at(1, &[]), append_at(u64::MAX, &[(2, 5)]), append_at(5, &[(3, 1), (1, 9)])] {
        assert!(matches!(wait(store.submit(batch)), Err(StoreError::OutOfOrder { .. })));
    }
    let mut batch = Batch::new();
    batch.put(Keyspace::Meta, &vec![0; 70_000], b"");
    assert!(!batch.is_empty());
    assert!(matches!(wait(store.submit(batch)), Err(StoreError::TooLarge { bytes: 70_000, .. })));
    let mut batch = Batch::new();
    batch.append(queue(1, 0), 2, EntryMeta::default(), &vec![0; 65_536 - 32 - 40 - 40 + 1]);
    assert!(matches!(wait(store.submit(batch)), Err(StoreError::TooLarge { bytes: 65_512, max: 65_504 })));
    model.check(&store, 0..0);
    // What a refused batch would have claimed is free.
    model.commit(&store, &[append(2, b""), append(3, b""), append(1, &vec![1; 65_536 - 32 - 40 - 40 - 80])]);
    model.commit(&store, &[]);
    model.check(&store, 0..0);
    assert_eq!(store.stats().records, 2);
}

#[test]
fn one_process_at_a_time() {
    let dir = temp_dir();
    let store = open(dir.path());
    assert!(matches!(Store::open(options(dir.path())), Err(StoreError::Locked(_))));
    let other = store.clone();
    store.close().unwrap();
    store.close().unwrap();
    let again = open(dir.path());
    assert!(matches!(other.admit(Admit::State), Err(StoreError::Closed)));
    assert!(matches!(other.get(Keyspace::Meta, b"a"), Err(StoreError::Closed)));
    assert!(matches!(other.scan(Keyspace::Meta, b"a"), Err(StoreError::Closed)));
    assert!(matches!(other.entries(queue(1, 1), 0, 1), Err(StoreError::Closed)));
    assert!(matches!(other.read(0), Err(StoreError::Closed)));
    let mut batch = Batch::new();
    batch.put(Keyspace::Meta, b"a", b"");
    assert!(matches!(wait(other.submit(batch)), Err(StoreError::Closed)));
    drop(again);
    open(dir.path());
}

#[test]
fn options_that_cannot_work_are_refused() {
    let dir = temp_dir();
    for bytes in [0, 65_537, 4096, 1 << 40] {
        let mut options = options(dir.path());
        options.segment_bytes = bytes;
        assert!(matches!(Store::open(options), Err(StoreError::Options { name: "segment_bytes", .. })));
    }
}

#[test]
fn another_segment_size_is_used_from_the_next_segment_on() {
    let dir = temp_dir();
    let mut model = Model::default();
    for size in [64, 256, 128] {
        let mut options = options(dir.path());
        options.segment_bytes = size * 1024;
        let store = Store::open(options).unwrap();
        for _ in 0..4 {
            model.commit(&store, &[append(1, &vec![1; 50_000])]);
        }
        model.commit(&store, &[append(1, &vec![2; size as usize * 1024 - 200])]);
        model.check(&store, 0..0);
    }
    model.check(&open(dir.path()), 0..0);
}

#[test]
fn async_commits_reach_the_disk_by_themselves() {
    let dir = temp_dir();
    let mut options = options(dir.path());
    options.flush = Flush::Async;
    options.async_sync_interval = Duration::from_millis(20);
    options.index_checkpoint_bytes = 1;
    let store = Store::open(options.clone()).unwrap();
    let mut model = Model::default();
    for at in 0..100u32 {
        model.commit(&store, &[put(&at.to_be_bytes(), b"x"), append(1, &[0; 1000])]);
        assert!(store.stats().log_indexed <= store.stats().log_durable, "the index is never ahead of the disk");
    }
    eventually("the sync", || store.stats().log_durable == store.stats().log_end);
    eventually("the checkpoint", || store.stats().log_indexed == store.stats().log_end);
    model.check(&store, 0..0);
    store.close().unwrap();
    model.check(&Store::open(options).unwrap(), 0..0);
}

#[test]
fn checkpoints_come_by_size_by_memory_and_by_time() {
    let by: [fn(&mut waybill_broker::store::Options); 3] = [
        |options| options.index_checkpoint_bytes = 20_000,
        |options| options.index_overlay_bytes = 2000,
        |options| options.index_checkpoint_interval = Duration::from_millis(30),
    ];
    for set in by {
        let dir = temp_dir();
        let mut options = options(dir.path());
        set(&mut options);
        let store = Store::open(options).unwrap();
        let mut model = Model::default();
        for at in 0..60u32 {
            model.commit(&store, &[put(&at.to_be_bytes(), b"x"), append(at % 3, &[0; 1000])]);
        }
        eventually("a checkpoint", || store.stats().checkpoints > 0);
        for at in 0..30u32 {
            model.commit(&store, &[Change::Delete(Keyspace::Lease, at.to_be_bytes().to_vec())]);
        }
        model.check(&store, 0..0);
        let image = crash_image(dir.path());
        model.check(&open(image.path()), 0..0);
    }
}

#[test]
fn a_queue_of_many_blocks_is_read_from_anywhere() {
    let dir = temp_dir();
    let store = open(dir.path());
    let mut model = Model::default();
    let many: Vec<_> = (0..700).map(|_| append(1, b"m")).collect();
    model.commit(&store, &many);
    let other: Vec<_> = (0..10).map(|_| append(2, b"n")).collect();
    model.commit(&store, &other);
    store.close().unwrap();
    let store = open(dir.path());
    model.check(&store, 0..0);
    model.commit(&store, &many[..300]);
    model.check(&store, 0..0);
    let across: Vec<_> = store.entries(queue(1, 0), 690, 20).unwrap().iter().map(|entry| entry.offset).collect();
    assert_eq!(across, (690..710).collect::<Vec<_>>());
    assert_eq!(store.entries(queue(1, 0), 0, 0).unwrap(), []);
    assert_eq!(store.entries(queue(1, 0), 5000, 10).unwrap(), []);
    assert_eq!(store.entries(queue(0, 0), 0, 10).unwrap(), []);
}

#[test]
fn what_came_and_went_between_two_checkpoints_never_reaches_the_index() {
    let dir = temp_dir();
    let store = open(dir.path());
    for at in 0..2000u32 {
        let mut batch = Batch::new();
        batch.put(Keyspace::Lease, format!("a lease of some length {at}").as_bytes(), b"held");
        drop(store.submit(batch));
        let mut batch = Batch::new();
        batch.delete(Keyspace::Lease, format!("a lease of some length {at}").as_bytes());
        drop(store.submit(batch));
    }
    store.close().unwrap();
    let tables = std::fs::read_dir(dir.path().join("index/tables")).unwrap();
    let bytes: u64 = tables.map(|table| table.unwrap().metadata().unwrap().len()).sum();
    assert!(bytes < 8 * 1024, "{bytes}");
    assert_eq!(open(dir.path()).scan(Keyspace::Lease, b"").unwrap(), []);
}
