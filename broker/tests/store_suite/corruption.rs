//! Files that are not as they were left.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use waybill_broker::store::{Batch, EntryMeta, Health, Keyspace, Store, StoreError};

use crate::support::*;

/// A store with records that were each committed alone, not checkpointed; and where each ended.
fn store_of(dir: &Path, batches: &[&[Change]]) -> (Store, Vec<Model>, Vec<u64>) {
    let store = open(dir);
    let mut models = vec![Model::default()];
    let mut ends = vec![store.stats().log_end];
    for batch in batches {
        let mut model = models.last().unwrap().clone();
        model.commit(&store, batch);
        models.push(model);
        ends.push(store.stats().log_end);
    }
    (store, models, ends)
}

fn three(dir: &Path) -> (Store, Vec<Model>, Vec<u64>) {
    let big = [append(1, &[3; 5000]), put(b"c", b"3")];
    store_of(dir, &[&[append(1, b"one"), put(b"a", b"1")], &[append(1, b"two"), put(b"b", b"2")], &big])
}

#[test]
fn a_log_cut_anywhere_keeps_what_is_before() {
    let dir = temp_dir();
    let (_store, models, ends) = three(dir.path());
    let near = |at: u64| at.saturating_sub(9).max(ends[0])..at + 50;
    let positions = ends.iter().flat_map(|end| near(*end)).chain((ends[0]..ends[3]).step_by(97));
    for position in positions.filter(|position| *position <= ends[3]) {
        let image = crash_image(dir.path());
        let kept = cut(image.path(), position, &ends);
        let store = open(image.path());
        models[kept].check(&store, 0..0);
        let mut model = models[kept].clone();
        model.commit(&store, &[append(1, b"next"), put(b"d", b"4")]);
        drop(store);
        model.check(&open(image.path()), 0..0);
    }
}

/// A store whose last two records were written and synced together; and where these start.
fn two_together(dir: &Path) -> (Store, Model, [u64; 2]) {
    let disk = Arc::new(TestDisk::default());
    let store = open_on(dir, &disk);
    eventually("the next segment", || log_files(dir).len() == 2);
    let mut model = Model::default();
    model.commit(&store, &[append(1, b"before"), put(b"a", b"1")]);
    let held = disk.hold();
    let plug = store.submit(one_append(2, 0, b"plug"));
    eventually("the sync", || disk.waiting() == 1);
    let together = [store.submit(one_append(3, 0, b"two")), store.submit(one_append(3, 1, b"three"))];
    drop(held);
    let position = wait(plug).unwrap().positions[0];
    let plug = Message { offset: 0, position, meta: EntryMeta::default(), payload: b"plug".to_vec() };
    model.queues.insert(queue(2, 0), vec![plug]);
    let starts = together.map(|commit| wait(commit).unwrap().positions[0] - 40);
    (store, model, starts)
}

fn one_append(topic: u32, offset: u64, payload: &[u8]) -> Batch {
    let mut batch = Batch::new();
    batch.append(queue(topic, 0), offset, EntryMeta::default(), payload);
    batch
}

#[test]
fn a_torn_group_is_thrown_away_and_nothing_of_it_ever_comes_back() {
    let dir = disk_dir();
    let (_store, mut model, [two, three]) = two_together(dir.path());
    let image = crash_image(dir.path());
    edit(image.path(), two + 50, |bytes| bytes[0] ^= 1);
    let store = open(image.path());
    model.check(&store, 0..0);
    assert_eq!(store.bounds(queue(3, 0)), (0, 0));
    // This record ends exactly where the third had started, and says the same about itself.
    let position = wait(store.submit(one_append(3, 0, b"new"))).unwrap().positions[0];
    assert_eq!(position, two + 40);
    assert_eq!(store.stats().log_end, three);
    let new = Message { offset: 0, position, meta: EntryMeta::default(), payload: b"new".to_vec() };
    model.queues.insert(queue(3, 0), vec![new]);
    let again = crash_image(image.path());
    model.check(&open(again.path()), 0..0);
}

#[test]
fn a_record_that_was_lost_from_an_unfinished_group_is_no_corruption_wherever_the_group_lies() {
    // The group goes over the end of a segment.
    let dir = temp_dir();
    let disk = Arc::new(TestDisk::default());
    let store = open_on(dir.path(), &disk);
    let mut model = Model::default();
    model.commit(&store, &[append(1, &[1; 60_000])]);
    eventually("the next segment", || log_files(dir.path()).len() == 2);
    let end = store.stats().log_end;
    let held = disk.hold();
    let plug = store.submit(one_append(1, 1, b"plug"));
    eventually("the sync", || disk.waiting() == 1);
    let together = [store.submit(one_append(2, 0, &[2; 4000])), store.submit(one_append(3, 0, &[3; 4000]))];
    drop(held);
    wait(plug).unwrap();
    let [first, second] = together.map(|commit| wait(commit).unwrap().positions[0]);
    assert!(first < 65_536 && second > 65_536);
    let image = crash_image(dir.path());
    edit(image.path(), first, |bytes| bytes[..100].fill(0));
    let full = Arc::new(TestDisk::default());
    full.full.store(true, Ordering::SeqCst);
    let store = open_on(image.path(), &full);
    assert_eq!(log_files(image.path()).len(), 1, "what had been torn off is gone");
    assert_eq!(store.bounds(queue(1, 0)), (0, 2));
    assert_eq!((store.bounds(queue(2, 0)), store.bounds(queue(3, 0))), ((0, 0), (0, 0)));
    assert!(store.stats().log_end > end);
    wait(store.submit(one_append(3, 0, b"new"))).unwrap();
    let again = crash_image(image.path());
    assert_eq!(open(again.path()).bounds(queue(3, 0)), (0, 1));
}

/// Opening must be refused, naming the file and the position, with nothing changed.
fn refused(dir: &Path, position: u64) {
    let before = log_contents(dir);
    match Store::open(options(dir)).err() {
        Some(error @ StoreError::Corrupt { .. }) => {
            let StoreError::Corrupt { file, position: found, .. } = &error else { unreachable!() };
            assert_eq!(*file, locate(dir, position).0);
            assert_eq!(*found, position);
            assert!(error.to_string().contains(&format!("log position {position}")), "{error}");
        }
        other => panic!("{other:?} for damage at {position}"),
    }
    assert_eq!(log_contents(dir), before, "nothing is changed");
    // The lock was given back.
    assert!(matches!(Store::open(options(dir)), Err(StoreError::Corrupt { .. })));
}

#[test]
fn damage_before_a_later_sync_is_refused() {
    let dir = disk_dir();
    let (store, _, ends) = three(dir.path());
    for (position, record) in [(ends[0], 0), (ends[0] + 20, 0), (ends[1] - 20, 0), (ends[1] + 3, 1), (ends[2] - 9, 1)] {
        let image = crash_image(dir.path());
        edit(image.path(), position, |bytes| bytes[0] ^= 0x40);
        refused(image.path(), ends[record]);
    }
    // The end of a segment that looks as if it had been left early.
    let other = temp_dir();
    let big = [append(1, &[3; 30_000])];
    let (_store, _, other_ends) = store_of(other.path(), &[&big, &big, &big]);
    let image = crash_image(other.path());
    edit(image.path(), other_ends[1], |bytes| bytes.fill(0));
    refused(image.path(), other_ends[1]);
    // A whole record of zeros.
    let image = crash_image(dir.path());
    edit(image.path(), ends[1], |bytes| bytes[..(ends[2] - ends[1]) as usize].fill(0));
    refused(image.path(), ends[1]);
    // Closing proves the last one, too.
    store.close().unwrap();
    let image = crash_image(dir.path());
    fs::remove_dir_all(image.path().join("index")).unwrap();
    edit(image.path(), ends[3] - 20, |bytes| bytes[0] ^= 1);
    refused(image.path(), ends[2]);
}

#[test]
fn damage_in_an_earlier_segment_is_refused() {
    let dir = temp_dir();
    let big = [append(1, &[3; 40_000])];
    let (_store, _, ends) = store_of(dir.path(), &[&big, &big, &big, &big]);
    let image = crash_image(dir.path());
    edit(image.path(), ends[0] + 100, |bytes| bytes[0] ^= 1);
    refused(image.path(), ends[0]);
    let image = crash_image(dir.path());
    edit(image.path(), 65_536 + 20, |bytes| bytes[0] ^= 1);
    refused(image.path(), 65_536);
    let image = crash_image(dir.path());
    fs::remove_file(locate(image.path(), 65_536).0).unwrap();
    let error = Store::open(options(image.path())).err();
    assert!(matches!(&error, Some(StoreError::Corrupt { position: 131_072, .. })), "{error:?}");
}

#[test]
fn damage_to_a_checkpointed_message_shows_when_it_is_read() {
    let dir = temp_dir();
    let (store, models, _) = three(dir.path());
    store.close().unwrap();
    let harmed = models[3].queues[&queue(1, 0)][1].position;
    edit(dir.path(), harmed + 41, |bytes| bytes[0] ^= 1);
    let store = open(dir.path());
    models[3].check(&store, harmed..harmed + 1);
    match store.read(harmed) {
        Err(StoreError::Corrupt { file, position, .. }) => {
            assert_eq!((file, position), (locate(dir.path(), harmed).0, harmed));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_index_that_is_missing_damaged_or_ahead_is_built_again() {
    let dir = disk_dir();
    let (store, models, ends) = three(dir.path());
    store.close().unwrap();
    let tables = |dir: &Path| -> Vec<_> {
        let found = fs::read_dir(dir.join("index/tables")).unwrap();
        found.map(|entry| entry.unwrap().path()).collect()
    };
    type Harm<'a> = (&'static str, &'a dyn Fn(&Path));
    let harms: [Harm<'_>; 6] = [
        ("missing", &|dir| fs::remove_dir_all(dir.join("index")).unwrap()),
        ("without its tables", &|dir| fs::remove_dir_all(dir.join("index/tables")).unwrap()),
        ("a bad pointer", &|dir| fs::write(dir.join("index/current"), [9; 25]).unwrap()),
        ("a short table", &|dir| fs::write(&tables(dir)[0], b"short").unwrap()),
        ("a table of garbage", &|dir| {
            let len = fs::read(&tables(dir)[0]).unwrap().len();
            fs::write(&tables(dir)[0], vec![0xa5; len]).unwrap();
        }),
        ("of another log", &|dir| {
            let other = temp_dir();
            let (store, _, _) = store_of(other.path(), &[&[put(b"other", b"x"), append(5, b"x")]]);
            store.close().unwrap();
            fs::remove_dir_all(dir.join("index")).unwrap();
            fs::rename(other.path().join("index"), dir.join("index")).unwrap();
        }),
    ];
    for (name, harm) in harms {
        let image = crash_image(dir.path());
        harm(image.path());
        println!("{name}");
        let store = open(image.path());
        models[3].check(&store, 0..0);
        drop(store);
        models[3].check(&open(image.path()), 0..0);
    }
    let image = crash_image(dir.path());
    assert_eq!(cut(image.path(), ends[2], &ends), 2);
    models[2].check(&open(image.path()), 0..0);
}

#[test]
fn damage_of_the_index_found_while_running_fails_the_store_and_is_mended_by_opening() {
    let dir = temp_dir();
    let store = open(dir.path());
    let mut model = Model::default();
    for at in 0..2000u32 {
        model.keys.insert((Keyspace::Lease, at.to_be_bytes().to_vec()), vec![1; 50]);
    }
    let mut batch = Batch::new();
    for ((keyspace, key), value) in &model.keys {
        batch.put(*keyspace, key, value);
    }
    // In pieces: a segment is small here.
    drop(batch);
    for chunk in model.keys.clone().into_iter().collect::<Vec<_>>().chunks(500) {
        let mut batch = Batch::new();
        for ((keyspace, key), value) in chunk {
            batch.put(*keyspace, key, value);
        }
        wait(store.submit(batch)).unwrap();
    }
    store.close().unwrap();
    let table = fs::read_dir(dir.path().join("index/tables")).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs::read(&table).unwrap();
    // The first block: opening does not read it.
    bytes[100..2000].fill(0x55);
    fs::write(&table, bytes).unwrap();
    let store = open(dir.path());
    assert!(matches!(store.get(Keyspace::Lease, &3u32.to_be_bytes()), Err(StoreError::Index(_))));
    assert!(matches!(store.health(), Health::Failed(_)));
    assert!(matches!(wait(store.submit(one_append(1, 0, b""))), Err(StoreError::Failed(_))));
    assert!(store.close().is_err());
    model.check(&open(dir.path()), 0..0);
}

#[test]
fn files_that_are_none_of_the_stores_are_left_alone() {
    let dir = temp_dir();
    let (store, models, _) = three(dir.path());
    store.close().unwrap();
    fs::write(dir.path().join("log/notes.txt"), b"hello").unwrap();
    fs::write(dir.path().join("log/next.tmp"), b"half a segment").unwrap();
    models[3].check(&open(dir.path()), 0..0);
    assert_eq!(fs::read(dir.path().join("log/notes.txt")).unwrap(), b"hello");
}
