//! Random lives of a store, compared with a model: batches, checkpoints, re-opening, crashes, cuts, flipped bytes, a lost index.

use proptest::prelude::*;
use waybill_broker::store::{EntryMeta, Keyspace, Options, Store, StoreError};

use crate::support::*;

#[derive(Debug, Clone)]
enum Step {
    Commit(Vec<Change>),
    DropTopic(u32),
    /// The log is to start where so many thousandths of it are.
    Shorten(u64),
    /// Closed and opened.
    Reopen,
    /// The process dies and the store is opened again.
    Crash,
    /// The index is gone as well.
    CrashWithoutIndex,
    /// The machine dies while this many thousandths of the log, and nothing of the index, are on its disk.
    Cut(u64),
    /// So many thousandths of the records are in the log; the index may be ahead.
    CutBetweenRecords(usize),
    /// A byte of the log changes; at so many thousandths of it.
    Flip(u64, u8),
}

fn change() -> impl Strategy<Value = Change> {
    // Of other rows among those of held messages nothing is known, and so the log could not be shortened.
    let free: Vec<_> =
        Keyspace::ALL.into_iter().filter(|keyspace| !matches!(keyspace, Keyspace::Timer | Keyspace::Half)).collect();
    let keyspace = prop::sample::select(free);
    let key = prop_oneof![(0..12u8).prop_map(|key| vec![key % 4, key]), prop::collection::vec(any::<u8>(), 0..4),];
    let value = prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..40),
        1 => (0..3000usize).prop_map(|len| vec![0; len]),
    ];
    let payload = prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..60),
        1 => (0..20_000usize).prop_map(|len| vec![1; len]),
    ];
    let meta = (prop_oneof![Just(0), any::<u32>()], any::<i64>())
        .prop_map(|(tag_hash, store_time_ms)| EntryMeta { tag_hash, store_time_ms });
    let skip = prop_oneof![9 => Just(0u64), 1 => 0..1000u64];
    prop_oneof![
        3 => (keyspace.clone(), key.clone(), value).prop_map(|(keyspace, key, value)| Change::Put(keyspace, key, value)),
        2 => (keyspace, key).prop_map(|(keyspace, key)| Change::Delete(keyspace, key)),
        4 => (0..3u32, 0..2u32, skip, meta.clone(), payload.clone()).prop_map(|(topic, number, skip, meta, payload)| {
            Change::Append { queue: queue(topic, number), skip, meta, payload }
        }),
        2 => (any::<bool>(), 0..9u64, 0..3u32, meta, payload).prop_map(|(half, time_ms, topic, meta, payload)| {
            let keyspace = if half { Keyspace::Half } else { Keyspace::Timer };
            Change::Hold { keyspace, time_ms, queue: queue(topic, 0), meta, payload }
        }),
        2 => any::<usize>().prop_map(Change::Link),
        1 => any::<usize>().prop_map(Change::LetGo),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        30 => prop::collection::vec(change(), 1..6).prop_map(Step::Commit),
        1 => (0..3u32).prop_map(Step::DropTopic),
        3 => (0..1200u64).prop_map(Step::Shorten),
        2 => Just(Step::Reopen),
        2 => Just(Step::Crash),
        1 => Just(Step::CrashWithoutIndex),
        2 => (0..1000u64).prop_map(Step::Cut),
        1 => (0..1000usize).prop_map(Step::CutBetweenRecords),
        1 => (0..1000u64, 1..=255u8).prop_map(|(at, bits)| Step::Flip(at, bits)),
    ]
}

fn store_options(dir: &std::path::Path, checkpoint_bytes: u64) -> Options {
    let mut options = options(dir);
    options.index_checkpoint_bytes = checkpoint_bytes;
    options
}

/// What the store held after each record, and where that record ended.
type History = Vec<(u64, Model)>;

fn kept_before(history: &History, position: u64) -> usize {
    history.iter().rposition(|(end, _)| *end <= position).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_store_holds_what_the_model_holds(
        steps in prop::collection::vec(step(), 1..60),
        checkpoint_bytes in prop_oneof![Just(u64::MAX), Just(1), 5000..100_000u64],
    ) {
        let mut dir = temp_dir();
        let mut store = Store::open(store_options(dir.path(), checkpoint_bytes)).unwrap();
        let mut history: History = vec![(store.stats().log_end, Model::default())];
        for step in steps {
            let (_, mut model) = history.last().unwrap().clone();
            match step {
                Step::Commit(changes) => {
                    model.commit(&store, &changes);
                    // Links alone are no record where nothing is held.
                    let end = store.stats().log_end;
                    if end > history.last().unwrap().0 {
                        history.push((end, model));
                    }
                }
                Step::DropTopic(topic) => {
                    model.drop_topic(&store, topic);
                    history.push((store.stats().log_end, model));
                }
                Step::Shorten(at) => {
                    let end = store.stats().log_end;
                    model.shorten(&store, model.start + (end - model.start) * at / 1000);
                    model.check(&store, 0..0);
                    // What the log says now is not cut off any more: it was on the disk before the segments went.
                    history = vec![(store.stats().log_end, model)];
                }
                Step::Reopen => {
                    store.close().unwrap();
                    store = Store::open(store_options(dir.path(), checkpoint_bytes)).unwrap();
                    model.check(&store, 0..0);
                    let end = store.stats().log_end;
                    if end > history.last().unwrap().0 {
                        history.push((end, model));
                    }
                }
                Step::Crash | Step::CrashWithoutIndex => {
                    let image = crash_image(dir.path());
                    if matches!(step, Step::CrashWithoutIndex) {
                        let _ = std::fs::remove_dir_all(image.path().join("index"));
                    }
                    store = Store::open(store_options(image.path(), checkpoint_bytes)).unwrap();
                    dir = image;
                    model.check(&store, 0..0);
                }
                Step::Cut(_) | Step::CutBetweenRecords(_) => {
                    let ends: Vec<_> = history.iter().map(|(end, _)| *end).collect();
                    let image = crash_image(dir.path());
                    let position = match step {
                        Step::CutBetweenRecords(at) => ends[ends.len() * at / 1000],
                        Step::Cut(at) => {
                            let _ = std::fs::remove_dir_all(image.path().join("index"));
                            ends[0] + (ends[ends.len() - 1] - ends[0]) * at / 1000
                        }
                        _ => unreachable!(),
                    };
                    let kept = cut(image.path(), position, &ends);
                    store = Store::open(store_options(image.path(), checkpoint_bytes)).unwrap();
                    dir = image;
                    history.truncate(kept + 1);
                    history.last().unwrap().1.check(&store, 0..0);
                }
                Step::Flip(at, bits) => {
                    let (start, end) = (history[0].0, history.last().unwrap().0);
                    let position = start + (end - start) * at / 1000;
                    let image = crash_image(dir.path());
                    edit(image.path(), position, |bytes| bytes[0] ^= bits);
                    let before = log_contents(image.path());
                    match Store::open(store_options(image.path(), checkpoint_bytes)) {
                        Ok(found) => {
                            // Either it was in the index already, or it was the last record and nothing says that it was on the disk, or
                            // it means nothing.
                            let kept = if found.stats().log_end == end { history.len() - 1 } else { kept_before(&history, position) };
                            prop_assert!(kept + 2 >= history.len());
                            history[kept].1.check(&found, position.saturating_sub(30_000)..position + 1);
                        }
                        Err(StoreError::Corrupt { .. }) => prop_assert_eq!(log_contents(image.path()), before),
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        }
        history.last().unwrap().1.check(&store, 0..0);
    }
}
