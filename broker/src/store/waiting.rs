//! How many delayed messages wait, by topic: counted as they come and go, and written with each checkpoint, so that nobody has to look
//! at all of them when the store is opened.

use std::collections::HashMap;

use super::held::HeldRow;
use super::index::{Index, IndexError};
use super::schema;
use super::state::State;
use super::types::Keyspace;

/// The rows that are counted.
pub(super) const COUNTED: Keyspace = Keyspace::Timer;

/// The rows of [`COUNTED`] that can be read, by the topic that they name.
///
/// A row comes into being with its payload only (Hold); a Put says one again. A row that is deleted must say of which topic it was: by the
/// link before it, which moves its message to a queue; or because it was said since the last checkpoint ([`super::Batch::let_go`] says it
/// once more for that). Of one that does neither the topic is not known: then the next who opens the store counts all of them.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    by_topic: HashMap<u32, u64>,
    is_certain: bool,
}

impl Waiting {
    /// What was counted of all rows.
    pub(super) fn new(by_topic: HashMap<u32, u64>) -> Self {
        Self { by_topic, is_certain: true }
    }

    /// False if there may be others than these: after rows of which nobody knows of which topic they were.
    pub(super) fn is_certain(&self) -> bool {
        self.is_certain
    }

    /// How many rows there are of a topic.
    pub(super) fn of(&self, topic: u32) -> u64 {
        self.by_topic.get(&topic).copied().unwrap_or(0)
    }

    /// Topics with rows, and how many.
    pub(super) fn all(&self) -> impl Iterator<Item = (u32, u64)> {
        self.by_topic.iter().map(|(topic, count)| (*topic, *count))
    }

    /// A row that was not there is there.
    pub(super) fn came(&mut self, topic: u32) {
        *self.by_topic.entry(topic).or_default() += 1;
    }

    /// A row that was there is gone.
    pub(super) fn went(&mut self, topic: u32) {
        match self.by_topic.get_mut(&topic) {
            Some(count) if *count > 1 => *count -= 1,
            Some(_last) => {
                self.by_topic.remove(&topic);
            }
            None => self.is_certain = false,
        }
    }

    /// A row is gone of which nobody knows whether it was there, and of which topic.
    pub(super) fn lost(&mut self) {
        self.is_certain = false;
    }
}

/// Counts all rows: those of the index that were not changed since, and those that were written since. No checkpoint is under way.
pub(super) fn count(state: &State, index: &Index) -> Result<Waiting, IndexError> {
    let mut waiting = Waiting::new(HashMap::new());
    let mut came = |key: &[u8], value: &[u8]| {
        if let Some(row) = HeldRow::read(key, value) {
            waiting.came(row.queue.topic);
        }
    };
    let prefix = schema::user_key(COUNTED, &[]);
    index.visit(&prefix, &prefix, |key, value| {
        let key = key.get(prefix.len()..)?;
        if state.get(COUNTED, key).is_none() {
            came(key, value);
        }
        Some(true)
    })?;
    for (key, change) in state.changes(COUNTED, &[]) {
        if let Some(value) = change {
            came(key, value);
        }
    }
    Ok(waiting)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::future::Future;
    use std::path::Path;
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::store::{Batch, Drive, EntryMeta, Options, QueueKey, Store};

    fn open(dir: &Path) -> Store {
        let drive = Drive::ByHand { bell: Arc::default() };
        Store::open(Options { segment_bytes: 64 * 1024, drive, ..Options::new(dir) }).expect("it opens")
    }

    fn commit(store: &Store, batch: Batch) -> Vec<u64> {
        let commit = store.submit(batch);
        store.work();
        match pin!(commit).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(committed) => committed.expect("it is committed").positions,
            Poll::Pending => panic!("there was no answer"),
        }
    }

    /// Holds so many messages of this topic; their positions.
    fn hold(store: &Store, topic: u32, count: usize) -> Vec<u64> {
        let mut batch = Batch::new();
        let queue = QueueKey { topic, queue: 0 };
        (0..count).for_each(|_| batch.hold(COUNTED, 5, queue, EntryMeta::default(), b"later"));
        commit(store, batch)
    }

    fn delete(store: &Store, position: u64) {
        let mut batch = Batch::new();
        batch.delete(COUNTED, &HeldRow::key(5, position));
        commit(store, batch);
    }

    fn waiting(store: &Store) -> Vec<(u32, u64)> {
        store.all_waiting().into_iter().collect::<BTreeMap<_, _>>().into_iter().collect()
    }

    /// What the index says of it; `None` if that is of another position or not there.
    fn written(dir: &Path) -> Option<HashMap<u32, u64>> {
        let index = Index::open(dir).expect("the index opens");
        let (applied, _) = schema::decode_applied(&index.get(schema::APPLIED_KEY).unwrap().unwrap()).unwrap();
        schema::decode_waiting(&index.get(schema::WAITING_KEY).unwrap()?, applied.position)
    }

    #[test]
    fn a_directory_of_a_version_that_did_not_count_is_counted_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = open(dir.path());
        let first = hold(&store, 1, 3);
        store.checkpoint().expect("it is written");
        hold(&store, 2, 2);
        delete(&store, first[1]);
        store.close().expect("it closes");
        drop(store);
        // That version would have left no such row, or one of an earlier position.
        for left in [None, Some(schema::waiting_value(7, &[(9, 9)]))] {
            let index = Index::open(dir.path()).expect("the index opens");
            index.write([Ok((schema::WAITING_KEY.to_vec(), left))].into_iter()).expect("it is written");
            drop(index);
            assert_eq!(written(dir.path()), None);
            let store = open(dir.path());
            assert_eq!(waiting(&store), [(1, 2), (2, 2)]);
            hold(&store, 3, 1);
            store.close().expect("it closes");
            drop(store);
            let counted = written(dir.path()).expect("the next who opens it need not count");
            assert_eq!((counted.get(&1), counted.get(&2)), (Some(&2), Some(&2)));
            let store = open(dir.path());
            assert_eq!(store.waiting(3), 1);
            store.all_waiting().iter().for_each(|(topic, _)| assert!([1, 2, 3].contains(topic)));
            // As it was.
            let last = store.range(COUNTED, &[], &[], 9).expect("rows").pop().expect("a row");
            let mut batch = Batch::new();
            batch.let_go(COUNTED, &HeldRow::read(&last.0, &last.1).expect("a good row"));
            commit(&store, batch);
            store.close().expect("it closes");
        }
    }

    /// As an older version recalled a message: the log does not say of which topic it was.
    #[test]
    fn a_row_that_is_deleted_without_a_word_is_found_missing_by_the_next_who_opens() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = open(dir.path());
        let positions = hold(&store, 1, 3);
        store.checkpoint().expect("it is written");
        delete(&store, positions[0]);
        assert_eq!(store.range(COUNTED, &[], &[], 9).expect("rows").len(), 2);
        store.close().expect("it closes");
        drop(store);
        assert_eq!(written(dir.path()), None, "what is not certain is not written");
        let store = open(dir.path());
        assert_eq!(waiting(&store), [(1, 2)]);
        // Of those that are known from before the checkpoint, nothing has to be counted.
        let mut batch = Batch::new();
        let row = store.get(COUNTED, &HeldRow::key(5, positions[1])).expect("rows").expect("it is there");
        let row = HeldRow::read(&HeldRow::key(5, positions[1]), &row).expect("a good row");
        batch.let_go(COUNTED, &row);
        commit(&store, batch);
        let mut batch = Batch::new();
        batch.link(row.queue, HeldRow { position: positions[2], ..row }.entry(0, 1));
        batch.delete(COUNTED, &HeldRow::key(5, positions[2]));
        commit(&store, batch);
        assert_eq!(waiting(&store), []);
        store.close().expect("it closes");
        drop(store);
        assert_eq!(written(dir.path()), Some(HashMap::new()));
    }
}
