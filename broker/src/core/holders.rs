//! Names of the clients that hold leases, as numbers.
//!
//! A lease is small and there are many; a client id is forty bytes. Each id is stored once, in the batch of the first lease
//! that names it. Key: number u32 big-endian. Value: the client id, UTF-8.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::store::{Batch, Keyspace, Store, StoreError};

/// Client ids are cut to this many bytes, and at most this many different ones are told apart.
const NAME_BYTES_MAX: usize = 255;
const NAMES_MAX: usize = 1_000_000;

#[derive(Debug, Default)]
struct Table {
    by_name: HashMap<Arc<str>, u32>,
    by_number: HashMap<u32, Arc<str>>,
    next: u32,
}

/// The table of holders. Number 0 is "unknown".
#[derive(Debug, Default)]
pub(crate) struct Holders {
    table: Mutex<Table>,
}

impl Holders {
    /// Loads the table, forgetting holders that no lease names any more.
    pub(crate) fn load(store: &Store, in_use: &HashSet<u32>) -> Result<Self, StoreError> {
        let mut table = Table { next: in_use.iter().max().copied().unwrap_or(0).saturating_add(1), ..Table::default() };
        let mut forgotten = Vec::new();
        for (key, value) in store.scan(Keyspace::Holder, &[])? {
            let Ok(number) = <[u8; 4]>::try_from(key.as_ref()).map(u32::from_be_bytes) else { continue };
            table.next = table.next.max(number.saturating_add(1));
            match std::str::from_utf8(&value) {
                Ok(name) if in_use.contains(&number) => {
                    let name: Arc<str> = name.into();
                    table.by_name.insert(Arc::clone(&name), number);
                    table.by_number.insert(number, name);
                }
                _ => forgotten.push(key),
            }
        }
        store.clean_up(Keyspace::Holder, forgotten);
        Ok(Self { table: Mutex::new(table) })
    }

    /// The number of a client id; a new one is written with `batch`. An empty id, or one too many, is 0.
    pub(crate) fn number(&self, name: &str, batch: &mut Batch) -> u32 {
        let name = truncated(name);
        if name.is_empty() {
            return 0;
        }
        let mut table = self.table.lock();
        if let Some(number) = table.by_name.get(name) {
            return *number;
        }
        if table.by_name.len() >= NAMES_MAX || table.next == u32::MAX {
            return 0;
        }
        let number = table.next;
        table.next += 1;
        let name: Arc<str> = name.into();
        batch.put(Keyspace::Holder, &number.to_be_bytes(), name.as_bytes());
        table.by_name.insert(Arc::clone(&name), number);
        table.by_number.insert(number, name);
        number
    }

    /// The numbers of those of these client ids that have one.
    pub(crate) fn numbers(&self, names: &[Arc<str>]) -> HashSet<u32> {
        let table = self.table.lock();
        names.iter().filter_map(|name| table.by_name.get(truncated(name)).copied()).collect()
    }

    /// The client ids of all who have a number.
    pub(crate) fn names(&self) -> Vec<Arc<str>> {
        self.table.lock().by_name.keys().cloned().collect()
    }

    /// The client id of a number, if it is known.
    pub(crate) fn name(&self, number: u32) -> Option<Arc<str>> {
        self.table.lock().by_number.get(&number).cloned()
    }
}

fn truncated(name: &str) -> &str {
    let mut end = name.len().min(NAME_BYTES_MAX);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name.get(..end).unwrap_or_default()
}
