//! Files that are not as they were left.

use std::fs;

use waybill_broker::store::{Keyspace, Store, StoreError};

use crate::support::*;

/// A store with records that were each committed alone, not checkpointed; and where each ended.
fn store_of(dir: &std::path::Path, batches: &[&[Change]]) -> (Store, Vec<Model>, Vec<u64>) {
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

fn three(dir: &std::path::Path) -> (Store, Vec<Model>, Vec<u64>) {
    let big = [append(1, &[3; 5000]), put(b"c", b"3")];
    store_of(dir, &[&[append(1, b"one"), put(b"a", b"1")], &[append(1, b"two"), put(b"b", b"2")], &big])
}

#[test]
fn a_log_cut_anywhere_keeps_what_is_before() {
    let dir = temp_dir();
    let (_store, models, ends) = three(dir.path());
    for position in (ends[0] - 32..ends[2] + 200).chain((ends[2] + 200..=ends[3]).step_by(97)) {
        if position < ends[0] {
            continue;
        }
        let image = crash_image(dir.path());
        cut(image.path(), position);
        let kept = ends.iter().rposition(|end| *end <= position).unwrap();
        let store = open(image.path());
        models[kept].check(&store, 0..0);
        let mut model = models[kept].clone();
        model.commit(&store, &[append(1, b"next"), put(b"d", b"4")]);
        drop(store);
        model.check(&open(image.path()), 0..0);
    }
}

#[test]
fn a_torn_record_is_thrown_away_and_nothing_of_it_ever_comes_back() {
    let dir = temp_dir();
    let (store, models, ends) = three(dir.path());
    // The second and third were written together and neither was answered: as if the third had reached the disk and the second had not.
    drop(store);
    let source = temp_dir();
    let disk = std::sync::Arc::new(TestDisk::default());
    let store = open_on(source.path(), &disk);
    let mut one = Model::default();
    one.commit(&store, &[append(1, b"one"), put(b"a", b"1")]);
    disk.hold();
    let mut batches = Vec::new();
    for name in ["plug", "two", "three"] {
        let mut batch = waybill_broker::store::Batch::new();
        batch.put(Keyspace::Meta, name.as_bytes(), &[7; 100]);
        batches.push(store.submit(batch));
        if name == "plug" {
            eventually("the sync", || disk.waiting() > 0);
        }
    }
    disk.release();
    batches.into_iter().for_each(|commit| drop(wait(commit).unwrap()));
    let end = store.stats().log_end;
    let image = crash_image(source.path());
    drop(store);
    let record = 40 + 12 + 100 + 8;
    let (two, three) = (end - record, end - record + 5 - 5);
    assert_eq!(two, three);
    let (second, third) = (end - 2 * (record - 3 + 3), end - record);
    let _ = (second, third, models, ends);
    // Harm the second, keep the third.
    edit(image.path(), end - 200, |bytes| bytes[0] ^= 1);
    let store = open(image.path());
    assert_eq!(store.get(Keyspace::Meta, b"plug").unwrap().is_some(), true);
    assert_eq!(store.get(Keyspace::Meta, b"two").unwrap(), None);
    assert_eq!(store.get(Keyspace::Meta, b"three").unwrap(), None);
}
