//! The ordered index on disk: an LSM tree without a log of its own, since the message log is one.
//!
//! A checkpoint is one sorted table that appears as a whole or not at all.

use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use lsm_tree::compaction::Leveled;
use lsm_tree::config::PartitioningPolicy;
use lsm_tree::{AbstractTree, AnyTree, Cache, Config, DescriptorTable, Guard, SeqNo, SequenceNumberCounter};
use parking_lot::RwLock;

use super::disk::is_full;
use super::error::StoreError;
use super::segment::sync_dir;

/// Blocks of tables that are kept in memory, in bytes.
const CACHE_BYTES: u64 = 4 * 1024 * 1024;
/// Tables that are kept open.
const OPEN_TABLES: usize = 64;
/// Tables in the first level before they are merged.
const LEVEL0_TABLES: u8 = 4;
/// The size of a table in bytes. Small, so that one step of a compaction is short.
const TABLE_BYTES: u64 = 8 * 1024 * 1024;
/// Merges after a checkpoint, at most; each takes what needs it most.
const COMPACTION_STEPS: usize = 4;
/// Its presence says that the index must be built again from the log.
const DAMAGED: &str = "index.damaged";
const DIR: &str = "index";

/// The open index.
pub(super) struct Index {
    dir: PathBuf,
    tree: RwLock<Option<Tree>>,
    damaged: AtomicBool,
}

struct Tree {
    tree: AnyTree,
    sequence: SequenceNumberCounter,
}

/// Why the index could not do it.
#[derive(Debug)]
pub(super) enum IndexError {
    Io(io::Error),
    /// What it has on disk makes no sense.
    Damaged(String),
    Closed,
}

impl From<lsm_tree::Error> for IndexError {
    fn from(error: lsm_tree::Error) -> Self {
        use io::ErrorKind::{InvalidData, InvalidInput, NotFound, UnexpectedEof};
        match error {
            // A file that is missing or too short is as bad as one with other bytes.
            lsm_tree::Error::Io(error)
                if matches!(error.kind(), NotFound | UnexpectedEof | InvalidData | InvalidInput) =>
            {
                Self::Damaged(error.to_string())
            }
            lsm_tree::Error::Io(error) => Self::Io(error),
            error => Self::Damaged(format!("{error:?}")),
        }
    }
}

impl From<IndexError> for StoreError {
    fn from(error: IndexError) -> Self {
        match error {
            IndexError::Io(error) => Self::Index(error.to_string().into()),
            IndexError::Damaged(reason) => Self::Index(reason.into()),
            IndexError::Closed => Self::Closed,
        }
    }
}

impl IndexError {
    /// True if there is no space.
    pub(super) fn is_full(&self) -> bool {
        matches!(self, Self::Io(error) if is_full(error))
    }
}

impl Index {
    /// Opens the index below `dir`, creating it if it is missing. Damage shows here or later.
    pub(super) fn open(dir: &Path) -> Result<Self, IndexError> {
        let marked = dir.join(DAMAGED).try_exists().map_err(IndexError::Io)?;
        if marked {
            return Err(IndexError::Damaged("it was found damaged before".into()));
        }
        let tree = guarded(|| Tree::open(&dir.join(DIR)))?;
        Ok(Self { dir: dir.to_owned(), tree: RwLock::new(Some(tree)), damaged: AtomicBool::new(false) })
    }

    /// Removes the index below `dir`, and with it the note that it is damaged.
    pub(super) fn remove(dir: &Path) -> io::Result<()> {
        for result in [fs::remove_dir_all(dir.join(DIR)), fs::remove_file(dir.join(DAMAGED))] {
            match result {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        sync_dir(dir)
    }

    /// Opens the index again after a failed write; nothing that was written is lost.
    pub(super) fn reopen(&self) -> Result<(), IndexError> {
        let mut tree = self.tree.write();
        // The old one must be gone before its files are opened again.
        *tree = None;
        *tree = Some(guarded(|| Tree::open(&self.dir.join(DIR)))?);
        Ok(())
    }

    /// Lets go of the files.
    pub(super) fn close(&self) {
        *self.tree.write() = None;
    }

    /// True if what is on disk makes no sense; the next start builds it again from the log.
    pub(super) fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Relaxed)
    }

    /// The value of a key.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Bytes>, IndexError> {
        self.with(|tree| Ok(tree.tree.get(key, SeqNo::MAX)?.map(|value| Bytes::copy_from_slice(&value))))
    }

    /// True if the key has a value.
    pub(super) fn contains(&self, key: &[u8]) -> Result<bool, IndexError> {
        self.with(|tree| Ok(tree.tree.contains_key(key, SeqNo::MAX)?))
    }

    /// Every row whose key starts with `prefix`, in order.
    pub(super) fn scan(&self, prefix: &[u8]) -> Result<Vec<(Bytes, Bytes)>, IndexError> {
        self.with(|tree| tree.tree.prefix(prefix, SeqNo::MAX, None).map(row).collect())
    }

    /// At most `max` rows from `from` on to before `to`, in order.
    pub(super) fn between(&self, from: &[u8], to: &[u8], max: usize) -> Result<Vec<(Bytes, Bytes)>, IndexError> {
        if from >= to {
            return Ok(Vec::new());
        }
        self.with(|tree| tree.tree.range(from..to, SeqNo::MAX, None).take(max).map(row).collect())
    }

    /// The rows from the last one at or before `from` on, while they start with `prefix` and `each` says true.
    pub(super) fn visit(
        &self,
        prefix: &[u8],
        from: &[u8],
        mut each: impl FnMut(&[u8], &[u8]) -> Option<bool>,
    ) -> Result<(), IndexError> {
        self.with(|tree| {
            let before = tree.tree.range(prefix..=from, SeqNo::MAX, None).next_back().map(|guard| guard.key());
            let start = before.transpose()?.unwrap_or_else(|| from.into());
            for guard in tree.tree.range(&*start.., SeqNo::MAX, None) {
                let (key, value) = guard.into_inner()?;
                if !key.starts_with(prefix) {
                    break;
                }
                match each(&key, &value) {
                    Some(true) => {}
                    Some(false) => break,
                    None => return Err(IndexError::Damaged(format!("the row {key:?} is not readable"))),
                }
            }
            Ok(())
        })
    }

    /// Writes rows, which come in the order of their keys, all or none of them; `None` removes.
    pub(super) fn write(
        &self,
        rows: impl Iterator<Item = Result<(Vec<u8>, Option<Vec<u8>>), IndexError>>,
    ) -> Result<(), IndexError> {
        self.with(|tree| {
            let mut ingestion = tree.tree.ingestion()?;
            for row in rows {
                match row? {
                    (key, Some(value)) => ingestion.write(key, value)?,
                    (key, None) => ingestion.write_tombstone(key)?,
                }
            }
            Ok(ingestion.finish()?)
        })
    }

    /// Merges tables where there are many.
    pub(super) fn compact(&self) -> Result<(), IndexError> {
        let strategy =
            Arc::new(Leveled::default().with_l0_threshold(LEVEL0_TABLES).with_table_target_size(TABLE_BYTES));
        self.with(|tree| {
            for _ in 0..COMPACTION_STEPS {
                tree.tree.compact(strategy.clone(), tree.sequence.get())?;
            }
            Ok(())
        })
    }

    fn with<T>(&self, work: impl FnOnce(&Tree) -> Result<T, IndexError>) -> Result<T, IndexError> {
        // Recursive, because the rows of a write are found by reading.
        let tree = self.tree.read_recursive();
        let tree = tree.as_ref().ok_or(IndexError::Closed)?;
        guarded(|| work(tree)).inspect_err(|error| {
            if matches!(error, IndexError::Damaged(_)) && !self.damaged.swap(true, Ordering::Relaxed) {
                // Best effort: without the note the damage is found again.
                let _ = fs::write(self.dir.join(DAMAGED), []);
            }
        })
    }
}

impl Tree {
    fn open(dir: &Path) -> Result<Self, IndexError> {
        let (sequence, visible) = (SequenceNumberCounter::default(), SequenceNumberCounter::default());
        let tree = Config::new(dir, sequence.clone(), visible.clone())
            .use_cache(Arc::new(Cache::with_capacity_bytes(CACHE_BYTES)))
            .use_descriptor_table(Some(Arc::new(DescriptorTable::new(OPEN_TABLES))))
            // The filter of a whole table is a quarter of a megabyte, which is read and hashed for each key that is looked up, since
            // few of them fit into the cache. In the first level filters stay in memory.
            .filter_block_partitioning_policy(PartitioningPolicy::new([false, true]))
            .open()?;
        let next = tree.get_highest_seqno().map_or(0, |highest| highest + 1);
        sequence.fetch_max(next);
        visible.fetch_max(next);
        Ok(Self { tree, sequence })
    }
}

fn row(guard: impl Guard) -> Result<(Bytes, Bytes), IndexError> {
    let (key, value) = guard.into_inner()?;
    Ok((Bytes::copy_from_slice(&key), Bytes::copy_from_slice(&value)))
}

/// The library panics on some damage; that must not take the store with it.
fn guarded<T>(work: impl FnOnce() -> Result<T, IndexError>) -> Result<T, IndexError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
        Err(IndexError::Damaged(said.unwrap_or("the index panicked").to_owned()))
    })
}
