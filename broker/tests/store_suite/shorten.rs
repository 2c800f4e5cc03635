//! A log that starts later: what lies before is gone, everything else is there, whatever happens on the way and to the index.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use tempfile::TempDir;
use waybill_broker::store::{Batch, Commit, Drive, Entry, EntryMeta, Flush, HeldRow, Keyspace, Store, StoreError};

use crate::support::*;

fn big(topic: u32) -> Change {
    append(topic, &[7; 20_000])
}

/// Messages of three topics, a topic whose messages are all old, rows that are old, changed and deleted, in about eight segments.
fn fill(store: &Store) -> Model {
    let mut model = Model::default();
    model.commit(
        store,
        &[append(9, b"old"), append(9, b"too"), put(b"old", b"1"), put(b"changed", b"1"), put(b"x", b"1")],
    );
    for _ in 0..8 {
        model.commit(store, &[big(1), append(2, b"small")]);
        model.commit(store, &[big(1), big(3)]);
    }
    model.commit(store, &[put(b"changed", b"2"), Change::Delete(Keyspace::Lease, b"x".to_vec())]);
    model.commit(store, &[Change::Put(Keyspace::Topic, b"t".to_vec(), b"settings".to_vec())]);
    model
}

fn without_index(dir: &Path) -> TempDir {
    let image = crash_image(dir);
    let _ = fs::remove_dir_all(image.path().join("index"));
    image
}

fn bases(dir: &Path) -> Vec<u64> {
    log_files(dir).into_iter().map(|(base, _)| base).collect()
}

#[test]
fn what_lies_before_is_gone_and_everything_else_is_there_also_without_the_index() {
    let dir = temp_dir();
    let store = open(dir.path());
    let mut model = fill(&store);
    let before = bases(dir.path());
    let gone = model.queues[&queue(9, 0)][0].position;
    let wanted = model.queues[&queue(3, 0)][5].position;
    model.shorten(&store, wanted);
    assert!(model.start > 0 && model.start <= wanted && wanted < model.start + 64 * 1024, "it starts at a segment");
    let expected: Vec<_> = before.iter().copied().filter(|base| *base >= model.start).collect();
    assert!(expected.len() < before.len());
    // One more may have been made ready since.
    assert!(bases(dir.path()).starts_with(&expected), "the files before are gone, and no other");
    assert!(matches!(store.read(gone), Err(StoreError::NotFound(_))));
    assert_eq!(store.bounds(queue(9, 0)), (2, 2));
    model.check(&store, 0..0);
    for image in [crash_image(dir.path()), without_index(dir.path())] {
        let again = open(image.path());
        model.check(&again, 0..0);
        assert_eq!(again.segments(), store.segments(), "what is known about the segments is found again");
        let mut model = model.clone();
        // An emptied queue goes on where it was.
        model.commit(&again, &[append(9, b"new"), append(1, b"new"), put(b"y", b"1")]);
        assert_eq!(again.bounds(queue(9, 0)), (2, 3));
        model.check(&again, 0..0);
    }
}

#[test]
fn it_is_shortened_again_and_again_and_nothing_is_lost() {
    let dir = temp_dir();
    let store = open(dir.path());
    let mut model = fill(&store);
    for round in 0..6 {
        let end = store.stats().log_end;
        model.shorten(&store, end - 100_000);
        model.check(&store, 0..0);
        model.check(&open(without_index(dir.path()).path()), 0..0);
        model.commit(&store, &[big(1), big(2), append(round, b"x"), put(&[round as u8], b"v")]);
        model.commit(&store, &[big(1), big(4)]);
    }
    assert!(store.stats().segments <= 4);
    // All of it, as far as that goes.
    model.shorten(&store, u64::MAX);
    model.check(&store, 0..0);
    store.close().unwrap();
    model.check(&open(dir.path()), 0..0);
}

/// The ends of the records from a position on, by opening copies of the log that end earlier and earlier.
fn record_ends(dir: &Path, from: u64, to: u64) -> Vec<u64> {
    let mut ends = Vec::new();
    for position in (from..=to).step_by(8) {
        let (path, at) = locate(dir, position);
        let bytes = fs::read(path).unwrap();
        if at >= 32 && bytes[at..].starts_with(b"WBr1") {
            ends.push(position);
        }
    }
    ends.push(to);
    ends
}

#[test]
fn a_crash_at_any_step_leaves_a_log_that_is_complete() {
    let dir = temp_dir();
    let disk = Arc::new(TestDisk::without_sync());
    disk.keeps_files.store(true, Ordering::SeqCst);
    let store = open_on(dir.path(), &disk);
    let before = fill(&store);
    let (from, wanted) = (store.stats().log_end, before.queues[&queue(3, 0)][5].position);
    let start = shorten(&store, wanted).unwrap().start;
    let mut after = before.clone();
    after.forget_before(start);
    after.check(&store, 0..0);
    let to = store.stats().log_end;
    eventually("the index has it", || store.stats().log_indexed == to);

    // The machine dies before all of it is in the log; the index is as it was, ahead of the log, or not there.
    let steps = record_ends(dir.path(), from, to);
    assert!(steps.len() > 4, "{steps:?}");
    for (image, step) in
        steps.iter().flat_map(|step| [(crash_image(dir.path()), step), (without_index(dir.path()), step)])
    {
        cut(image.path(), *step, &[0, *step]);
        let again = open(image.path());
        assert!(*step == to || again.stats().log_start == 0, "no file goes before it is said that it may");
        for key in [&b"old"[..], b"changed", b"x"] {
            let expected = before.keys.get(&(Keyspace::Lease, key.to_vec())).map(|value| &value[..]);
            assert_eq!(again.get(Keyspace::Lease, key).unwrap().as_deref(), expected);
        }
        for (queue, messages) in &before.queues {
            let (min, next) = again.bounds(*queue);
            assert_eq!(next, messages.last().unwrap().offset + 1);
            let new_min = after.queues[queue].first().map_or(next, |message| message.offset);
            assert!(min == messages[0].offset || min == new_min, "{queue:?} {min}");
        }
        let mut model = before.clone();
        model.shorten(&again, wanted);
        assert_eq!(model, after);
        model.check(&again, 0..0);
    }

    // It dies while the files are removed.
    let old: Vec<_> = log_files(dir.path()).into_iter().filter(|(base, _)| *base < start).collect();
    assert!(old.len() > 2);
    for removed in 0..=old.len() {
        for image in [crash_image(dir.path()), without_index(dir.path())] {
            for (_, path) in &old[..removed] {
                fs::remove_file(image.path().join("log").join(path.file_name().unwrap())).unwrap();
            }
            let again = open(image.path());
            after.check(&again, 0..0);
            again.close().unwrap();
            // The rest goes without anybody asking for it.
            let again = open(image.path());
            eventually("the rest is removed", || again.stats().log_start == start);
            after.check(&again, 0..0);
            assert_eq!(bases(image.path())[0], start);
        }
    }
}

#[test]
fn a_log_whose_first_segments_are_missing_without_its_saying_so_is_refused() {
    let dir = temp_dir();
    let store = open(dir.path());
    let mut model = fill(&store);
    let images = || [crash_image(dir.path()), without_index(dir.path())];
    let refuse_without_first = |image: TempDir| {
        fs::remove_file(&log_files(image.path())[0].1).unwrap();
        let left = log_contents(image.path());
        assert!(matches!(Store::open(options(image.path())), Err(StoreError::Corrupt { .. })));
        assert_eq!(log_contents(image.path()), left);
    };
    images().into_iter().for_each(refuse_without_first);
    // One more than it says.
    let wanted = store.stats().log_end / 2;
    model.shorten(&store, wanted);
    images().into_iter().for_each(refuse_without_first);
}

fn hold(keyspace: Keyspace, time_ms: u64, payload: &[u8]) -> Change {
    Change::Hold {
        keyspace,
        time_ms,
        queue: queue(5, 0),
        meta: EntryMeta { tag_hash: 0, store_time_ms: 1 },
        payload: payload.to_vec(),
    }
}

#[test]
fn what_is_held_stays_and_goes_with_its_queue() {
    for keyspace in [Keyspace::Timer, Keyspace::Half] {
        let dir = temp_dir();
        let store = open(dir.path());
        let mut model = Model::default();
        for _ in 0..4 {
            model.commit(&store, &[big(1), big(1), big(1)]);
        }
        model.commit(&store, &[hold(keyspace, 5, b"held")]);
        let position =
            HeldRow::read(&store.scan(keyspace, b"").unwrap()[0].0, &store.scan(keyspace, b"").unwrap()[0].1);
        let position = position.unwrap().position;
        for _ in 0..4 {
            model.commit(&store, &[big(1), big(1), big(1)]);
        }
        assert_eq!(block_on(store.held()).unwrap().lowest(), Some((position, keyspace)));
        model.shorten(&store, u64::MAX);
        assert!(model.start > 0 && model.start <= position && position < model.start + 64 * 1024);
        model.check(&store, 0..0);
        model.check(&open(without_index(dir.path()).path()), 0..0);
        // In its queue it is as new as the others, and goes as they do.
        let newest = |store: &Store| store.segments()[0].newest_ms.unwrap();
        assert_eq!(newest(&store), 20_000);
        let key = HeldRow::key(5, position);
        let mut batch = Batch::new();
        let entry = Entry { offset: 0, position, len: 4, tag_hash: 0, store_time_ms: 99_999 };
        batch.link(queue(5, 0), entry);
        batch.delete(keyspace, &key);
        wait(store.submit(batch)).unwrap();
        assert_eq!(newest(&store), 99_999);
        assert_eq!(newest(&open(without_index(dir.path()).path())), 99_999);
        assert_eq!(block_on(store.held()).unwrap().lowest(), None);
        let start = shorten(&store, u64::MAX).unwrap().start;
        assert!(start > position);
        assert_eq!(store.bounds(queue(5, 0)), (1, 1));
        let mut again = Batch::new();
        again.link(queue(5, 0), Entry { offset: 1, ..entry });
        assert!(matches!(wait(store.submit(again)), Err(StoreError::NotFound(found)) if found == position));
        let mut next = Batch::new();
        next.append(queue(5, 0), 1, EntryMeta::default(), b"the refused batch has claimed nothing");
        wait(store.submit(next)).unwrap();
    }
}

#[test]
fn a_held_message_whose_row_moves_while_they_are_looked_at_stays() {
    let dir = temp_dir();
    let store = open(dir.path());
    let mut model = Model::default();
    model.commit(&store, &[hold(Keyspace::Half, 5, b"moves")]);
    let (key, value) = store.scan(Keyspace::Half, b"").unwrap().remove(0);
    let position = HeldRow::read(&key, &value).unwrap().position;
    for _ in 0..4 {
        model.commit(&store, &[big(1), big(1), big(1)]);
    }
    for time_ms in 0..1000 {
        model.commit(&store, &[hold(Keyspace::Timer, 1000 + time_ms, b"others")]);
    }
    let held = block_on(async {
        let looking = tokio::spawn({
            let store = store.clone();
            async move { store.held().await }
        });
        // It has read the first rows of the first keyspace.
        tokio::task::yield_now().await;
        let mut batch = Batch::new();
        batch.delete(Keyspace::Half, &key);
        batch.put(Keyspace::Timer, &HeldRow::key(1, position), &value);
        let mut moved = Box::pin(store.submit(batch));
        eventually("the row moves", || store.get(Keyspace::Timer, &HeldRow::key(1, position)).unwrap().is_some());
        let held = looking.await.unwrap();
        (&mut moved).await.unwrap();
        held
    });
    assert_eq!(held.unwrap().lowest(), Some((position, Keyspace::Timer)));
}

#[test]
fn nothing_goes_while_the_index_cannot_be_written() {
    let dir = temp_dir();
    let disk = Arc::new(TestDisk::without_sync());
    let store = open_on(dir.path(), &disk);
    let mut model = fill(&store);
    disk.index_full.store(true, Ordering::SeqCst);
    let start = shorten(&store, u64::MAX).unwrap().start;
    assert!(start > 0);
    eventually("it is tried", || store.stats().failed_checkpoints > 3);
    assert_eq!(bases(dir.path())[0], 0);
    model.forget_before(start);
    model.check(&store, 0..0);
    disk.index_full.store(false, Ordering::SeqCst);
    eventually("they are removed", || bases(dir.path())[0] == start);
    model.check(&store, 0..0);
}

#[test]
fn a_message_that_is_held_after_they_were_looked_at_stays() {
    let dir = temp_dir();
    let store = open(dir.path());
    let mut model = fill(&store);
    let held = block_on(store.held()).unwrap();
    assert_eq!(held.lowest(), None);
    model.commit(&store, &[hold(Keyspace::Timer, 5, b"new")]);
    for _ in 0..4 {
        model.commit(&store, &[big(1), big(1), big(1)]);
    }
    let cut = block_on(store.cut(held, u64::MAX)).unwrap();
    let start = block_on(store.shorten(cut)).unwrap().start;
    assert!(start > 0);
    model.forget_before(start);
    model.check(&store, 0..0);
}

#[test]
fn of_rows_in_another_form_among_held_ones_nothing_is_known_and_nothing_goes() {
    let dir = temp_dir();
    let store = open(dir.path());
    let mut model = fill(&store);
    model.commit(&store, &[Change::Put(Keyspace::Timer, b"?".to_vec(), b"?".to_vec())]);
    model.shorten(&store, u64::MAX);
    assert_eq!(model.start, 0);
    model.check(&store, 0..0);
}

#[test]
fn rows_that_change_meanwhile_keep_their_last_value() {
    let dir = temp_dir();
    let store = open(dir.path());
    let mut model = fill(&store);
    let stop = AtomicBool::new(false);
    let key = |n: u64| (n % 2000).to_be_bytes();
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut n = 0;
            while !stop.load(Ordering::SeqCst) || n < 4000 {
                let mut batch = Batch::new();
                batch.put(Keyspace::Offset, &key(n), &n.to_be_bytes());
                batch.delete(Keyspace::Offset, &key(n + 1000));
                wait(store.submit(batch)).unwrap();
                n += 1;
            }
            n
        });
        for _ in 0..20 {
            let end = store.stats().log_end;
            shorten(&store, end.saturating_sub(64 * 1024)).unwrap();
        }
        stop.store(true, Ordering::SeqCst);
        writer.join().unwrap()
    });
    let expected: Vec<_> = {
        let mut rows: Vec<_> = (written.saturating_sub(1000)..written).map(|n| (key(n), n.to_be_bytes())).collect();
        rows.sort();
        rows
    };
    for store in [&store, &open(without_index(dir.path()).path())] {
        let found = store.scan(Keyspace::Offset, b"").unwrap();
        assert!(
            found.iter().map(|(key, value)| (&key[..], &value[..])).eq(expected.iter().map(|(k, v)| (&k[..], &v[..])))
        );
    }
    model.keys.clear();
}

/// Runs to its end what needs the store's work, which is done by hand; `meanwhile` is told before each piece of work how many there were.
fn by_hand<T>(store: &Store, work: impl Future<Output = T>, mut meanwhile: impl FnMut(usize)) -> T {
    let mut work = std::pin::pin!(work);
    let mut done = 0;
    block_on(std::future::poll_fn(|context| {
        loop {
            if let Poll::Ready(answer) = work.as_mut().poll(context) {
                return Poll::Ready(answer);
            }
            meanwhile(done);
            store.work();
            done += 1;
        }
    }))
}

/// Shortens a log over and over, and makes a change at another step each time; `expected` makes it in the model. Everything must be as
/// the model says, with the index and without.
fn at_any_step(change: impl Fn(&Store) -> Commit, expected: impl Fn(&mut Model), check: impl Fn(&Store, usize)) {
    let filled = temp_dir();
    let store = open(filled.path());
    let model = fill(&store);
    store.close().unwrap();
    let (mut step, mut steps) = (0, 1);
    while step < steps {
        let dir = crash_image(filled.path());
        let mut options = options(dir.path());
        options.drive = Drive::ByHand { bell: Arc::default() };
        let store = Store::open(options).unwrap();
        let mut changing = None;
        let all = async {
            let held = store.held().await?;
            let cut = store.cut(held, u64::MAX).await?;
            store.shorten(cut).await
        };
        let start = by_hand(&store, all, |done| {
            steps = done + 1;
            if done == step {
                changing = Some(change(&store));
            }
        });
        let start = start.unwrap().start;
        assert!(start > 0);
        wait(changing.unwrap()).unwrap();
        let mut model = model.clone();
        expected(&mut model);
        model.forget_before(start);
        for store in [&store, &open(without_index(dir.path()).path())] {
            check(store, step);
            model.check(store, 0..0);
        }
        step += 1;
    }
    assert!(steps > 4, "{steps} steps");
}

#[test]
fn a_topic_that_is_dropped_at_any_step_stays_dropped() {
    at_any_step(
        |store| store.drop_topic(3),
        |model| drop(model.queues.remove(&queue(3, 0))),
        |store, step| assert_eq!(store.bounds(queue(3, 0)), (0, 0), "dropped at step {step}"),
    );
}

#[test]
fn rows_that_change_at_any_step_keep_their_last_value() {
    at_any_step(
        |store| {
            let mut batch = Batch::new();
            batch.put(Keyspace::Lease, b"old", b"new");
            batch.delete(Keyspace::Lease, b"changed");
            batch.put(Keyspace::Topic, b"t", b"other settings");
            store.submit(batch)
        },
        |model| {
            model.keys.insert((Keyspace::Lease, b"old".to_vec()), b"new".to_vec());
            model.keys.remove(&(Keyspace::Lease, b"changed".to_vec()));
            model.keys.insert((Keyspace::Topic, b"t".to_vec()), b"other settings".to_vec());
        },
        |_store, _step| {},
    );
}

#[test]
fn one_at_a_time() {
    let dir = temp_dir();
    let store = open(dir.path());
    let held = block_on(store.held()).unwrap();
    assert!(matches!(block_on(store.held()), Err(StoreError::Busy)));
    drop(held);
    assert!(block_on(store.held()).is_ok());
}

#[test]
fn without_room_nothing_goes_and_it_works_again_later() {
    let dir = temp_dir();
    let disk = Arc::new(TestDisk::without_sync());
    let store = open_on(dir.path(), &disk);
    let mut model = fill(&store);
    // More rows than what is left of the segments that are there has room for.
    for n in 0..200_u32 {
        model.commit(&store, &[put(&n.to_be_bytes(), &[1; 2000])]);
    }
    disk.full.store(true, Ordering::SeqCst);
    assert!(matches!(shorten(&store, u64::MAX), Err(StoreError::DiskFull)));
    assert_eq!(store.stats().log_start, 0);
    model.check(&store, 0..0);
    model.check(&open(without_index(dir.path()).path()), 0..0);
    disk.full.store(false, Ordering::SeqCst);
    eventually("there is room", || store.admit(waybill_broker::store::Admit::Append).is_ok());
    model.shorten(&store, u64::MAX);
    assert!(model.start > 0);
    model.check(&store, 0..0);
}

#[test]
fn without_waiting_for_the_disk_nothing_goes_before_the_disk_says_that_it_may() {
    let dir = temp_dir();
    let disk = Arc::new(TestDisk::default());
    let mut options = options(dir.path());
    options.disk = disk.clone();
    options.flush = Flush::Async;
    options.async_sync_interval = std::time::Duration::from_millis(1);
    let store = Store::open(options).unwrap();
    let mut model = fill(&store);
    let end = store.stats().log_end;
    eventually("it is on the disk", || store.stats().log_durable == end);
    let held = disk.hold();
    let start = shorten(&store, end).unwrap().start;
    assert!(start > 0);
    eventually("the disk is asked", || disk.waiting() > 0);
    assert_eq!(bases(dir.path())[0], 0);
    drop(held);
    eventually("they are removed", || bases(dir.path())[0] == start);
    model.forget_before(start);
    model.check(&store, 0..0);
}

#[test]
fn the_index_forgets_what_is_gone() {
    let dir = temp_dir();
    let store = open(dir.path());
    let size = || {
        let tables = fs::read_dir(dir.path().join("index/tables")).unwrap();
        tables.map(|table| table.unwrap().metadata().unwrap().len()).sum::<u64>()
    };
    let mut model = Model::default();
    for _ in 0..400 {
        model.commit(&store, &vec![append(1, &[1; 300]); 60]);
    }
    let grown = {
        model.shorten(&store, 70_000);
        size()
    };
    // Each time there is something to write, and after some times tables are merged.
    for _ in 0..12 {
        for _ in 0..3 {
            model.commit(&store, &[append(1, &[1; 40_000])]);
        }
        model.shorten(&store, u64::MAX);
    }
    assert!(size() < grown / 4, "{} of {grown} bytes are left", size());
    model.check(&store, 0..0);
    model.check(&open(without_index(dir.path()).path()), 0..0);
}
