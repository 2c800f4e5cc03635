//! What is about to go: retention has decided about it, and it stays for a while only because somebody holds a message in it.
//!
//! Groups that read a queue leave it behind when that is decided. Those that begin later, or are moved back, begin behind it: else each
//! of them would hold it once more, and it would never go. Not kept on disk; the first look at the log after a start decides anew.

use std::collections::HashMap;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use crate::store::{QueueKey, Store};

/// The offsets below which nothing is given out for the first time any more, by queue; of queues that are not here the store knows.
#[derive(Debug, Default)]
pub(super) struct LeftBehind {
    mins: ArcSwap<HashMap<QueueKey, u64>>,
    /// Held by who changes it.
    writer: Mutex<()>,
}

impl LeftBehind {
    /// What lies below these offsets is to go. Whoever takes a ledger's lock after this sees it.
    pub(super) fn raise(&self, mins: &HashMap<QueueKey, u64>, store: &Store) {
        let _writer = self.writer.lock();
        let mut all = HashMap::clone(&self.mins.load());
        for (key, min) in mins {
            let known = all.entry(*key).or_default();
            *known = (*known).max(*min);
        }
        // What is gone the store knows, as it knows that a topic is.
        all.retain(|key, min| {
            let (low, next) = store.bounds(*key);
            low < *min && *min <= next
        });
        self.mins.store(all.into());
    }

    /// From where to where a queue can be read by who has not read it.
    pub(super) fn bounds(&self, key: QueueKey, store: &Store) -> (u64, u64) {
        let (min, next) = store.bounds(key);
        (self.mins.load().get(&key).map_or(min, |left| min.max(*left)), next)
    }
}
