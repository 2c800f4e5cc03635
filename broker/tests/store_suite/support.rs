//! A disk that fails when told, a model of what the store should hold, and ways to harm its files.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tempfile::TempDir;
use waybill_broker::store::{
    Batch, Commit, Committed, Disk, EntryMeta, HeldRow, Keyspace, Options, QueueKey, RealDisk, Shortened, Store,
    StoreError,
};

pub(crate) use super::files::temp_dir;
/// On a disk.
pub(crate) fn disk_dir() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Small segments, no checkpoint unless asked for, and no sync: a crash is a copy of the files, or a killed process.
pub(crate) fn options(dir: &Path) -> Options {
    let mut options = Options::new(dir);
    options.segment_bytes = 64 * 1024;
    options.index_checkpoint_bytes = u64::MAX;
    options.index_overlay_bytes = u64::MAX / 16;
    options.index_checkpoint_interval = Duration::from_secs(3600);
    options.space_retry_interval = Duration::from_millis(5);
    options.disk = Arc::new(TestDisk::without_sync());
    options
}

pub(crate) fn open(dir: &Path) -> Store {
    Store::open(options(dir)).unwrap()
}

pub(crate) fn wait(commit: Commit) -> Result<Committed, StoreError> {
    block_on(commit)
}

pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(work)
}

/// Has the log start at the segment of `to`, or earlier where a held message lies.
pub(crate) fn shorten(store: &Store, to: u64) -> Result<Shortened, StoreError> {
    block_on(async {
        let held = store.held().await?;
        let cut = store.cut(held, to).await?;
        store.shorten(cut).await
    })
}

/// Waits for something that another thread brings about.
pub(crate) fn eventually(what: &str, condition: impl Fn() -> bool) {
    let (_never, done) = std::sync::mpsc::channel::<()>();
    for _ in 0..10_000 {
        if condition() {
            return;
        }
        let _ = done.recv_timeout(Duration::from_millis(1));
    }
    panic!("{what} did not happen");
}

/// A disk that fails when told.
#[derive(Debug, Default)]
pub(crate) struct TestDisk {
    pub(crate) fail_sync: AtomicBool,
    pub(crate) fail_write: AtomicBool,
    /// Syncs do nothing: enough where a crash is a copy of the files, and much faster.
    pub(crate) no_sync: AtomicBool,
    /// Every write stops after a few bytes.
    pub(crate) short_writes: AtomicBool,
    /// No segment can be reserved.
    pub(crate) full: AtomicBool,
    /// The index cannot be written.
    pub(crate) index_full: AtomicBool,
    /// No file can be removed.
    pub(crate) keeps_files: AtomicBool,
    pub(crate) syncs: AtomicU64,
    /// Bytes that were written.
    pub(crate) written: AtomicU64,
    held: Mutex<bool>,
    released: Condvar,
    waiting: AtomicU64,
}

impl TestDisk {
    pub(crate) fn without_sync() -> Self {
        Self { no_sync: true.into(), ..Self::default() }
    }

    /// Makes every sync wait until the answer is dropped.
    pub(crate) fn hold(&self) -> Held<'_> {
        *self.held.lock() = true;
        Held(self)
    }

    /// Syncs that are waiting.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::SeqCst)
    }
}

pub(crate) struct Held<'a>(&'a TestDisk);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        *self.0.held.lock() = false;
        self.0.released.notify_all();
    }
}

fn error_if(flag: &AtomicBool, kind: io::ErrorKind) -> io::Result<()> {
    if flag.load(Ordering::SeqCst) { Err(kind.into()) } else { Ok(()) }
}

impl Disk for TestDisk {
    fn write_at(&self, file: &File, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        error_if(&self.fail_write, io::ErrorKind::Other)?;
        if self.short_writes.load(Ordering::SeqCst) {
            let some = parts[0].get(..7).unwrap_or(&parts[0]);
            return RealDisk.write_at(file, &[IoSlice::new(some)], offset);
        }
        let written = RealDisk.write_at(file, parts, offset)?;
        self.written.fetch_add(written as u64, Ordering::SeqCst);
        Ok(written)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.syncs.fetch_add(1, Ordering::SeqCst);
        let mut held = self.held.lock();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        while *held {
            self.released.wait(&mut held);
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        drop(held);
        error_if(&self.fail_sync, io::ErrorKind::Other)?;
        if self.no_sync.load(Ordering::SeqCst) { Ok(()) } else { RealDisk.sync(file) }
    }

    fn allocate(&self, file: &File, size: u64) -> io::Result<()> {
        error_if(&self.full, io::ErrorKind::StorageFull)?;
        RealDisk.allocate(file, size)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        error_if(&self.keeps_files, io::ErrorKind::PermissionDenied)?;
        RealDisk.remove(path)
    }

    fn before_index_write(&self) -> io::Result<()> {
        error_if(&self.index_full, io::ErrorKind::StorageFull)
    }
}

pub(crate) fn open_on(dir: &Path, disk: &Arc<TestDisk>) -> Store {
    let mut options = options(dir);
    options.disk = disk.clone();
    Store::open(options).unwrap()
}

/// One change, as the model knows it.
#[derive(Clone)]
pub(crate) enum Change {
    Put(Keyspace, Vec<u8>, Vec<u8>),
    Delete(Keyspace, Vec<u8>),
    /// Appends with the queue's next offset, after leaving out this many.
    Append {
        queue: QueueKey,
        skip: u64,
        meta: EntryMeta,
        payload: Vec<u8>,
    },
    /// Holds a message for a queue until that time.
    Hold {
        keyspace: Keyspace,
        time_ms: u64,
        queue: QueueKey,
        meta: EntryMeta,
        payload: Vec<u8>,
    },
    /// Links one of the messages that were held before, by number (modulo), to its queue, and deletes its row.
    Link(usize),
    /// Lets one of them go.
    LetGo(usize),
}

impl std::fmt::Debug for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Put(keyspace, key, value) => write!(f, "put {keyspace:?} {key:?} {} bytes", value.len()),
            Self::Delete(keyspace, key) => write!(f, "delete {keyspace:?} {key:?}"),
            Self::Append { queue, skip, payload, .. } => {
                write!(f, "append {}/{} skip {skip} {} bytes", queue.topic, queue.queue, payload.len())
            }
            Self::Hold { keyspace, time_ms, queue, payload, .. } => {
                write!(f, "hold {keyspace:?} {time_ms} {}/{} {} bytes", queue.topic, queue.queue, payload.len())
            }
            Self::Link(at) => write!(f, "link {at}"),
            Self::LetGo(at) => write!(f, "let go {at}"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) offset: u64,
    pub(crate) position: u64,
    pub(crate) meta: EntryMeta,
    pub(crate) payload: Vec<u8>,
}

/// What the store should hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Model {
    pub(crate) keys: BTreeMap<(Keyspace, Vec<u8>), Vec<u8>>,
    pub(crate) queues: BTreeMap<QueueKey, Vec<Message>>,
    /// Payloads of what is held, by keyspace and key.
    pub(crate) held: BTreeMap<(Keyspace, Vec<u8>), Vec<u8>>,
    /// What comes next in queues that retention has emptied.
    pub(crate) emptied: BTreeMap<QueueKey, u64>,
    /// Where the log starts.
    pub(crate) start: u64,
}

/// Where a payload of a batch went.
enum Placed {
    Queue(QueueKey, usize),
    Held(Keyspace, HeldRow, Vec<u8>),
}

impl Model {
    /// Commits a batch to the store, and makes the same changes here.
    pub(crate) fn commit(&mut self, store: &Store, changes: &[Change]) {
        let mut batch = Batch::new();
        let mut placed = Vec::new();
        for change in changes {
            match change {
                Change::Put(keyspace, key, value) => {
                    batch.put(*keyspace, key, value);
                    self.keys.insert((*keyspace, key.clone()), value.clone());
                }
                Change::Delete(keyspace, key) => {
                    batch.delete(*keyspace, key);
                    self.keys.remove(&(*keyspace, key.clone()));
                }
                Change::Append { queue, skip, meta, payload } => {
                    let messages = self.queues.entry(*queue).or_default();
                    let free = self.emptied.get(queue).copied().unwrap_or(0);
                    let offset = messages.last().map_or(free, |message| message.offset + 1) + skip;
                    batch.append(*queue, offset, *meta, payload);
                    messages.push(Message { offset, position: 0, meta: *meta, payload: payload.clone() });
                    placed.push(Placed::Queue(*queue, messages.len() - 1));
                }
                Change::Hold { keyspace, time_ms, queue, meta, payload } => {
                    batch.hold(*keyspace, *time_ms, *queue, *meta, payload);
                    let EntryMeta { tag_hash, store_time_ms } = *meta;
                    let len = payload.len() as u32;
                    let row = HeldRow { time_ms: *time_ms, position: 0, len, tag_hash, queue: *queue, store_time_ms };
                    placed.push(Placed::Held(*keyspace, row, payload.clone()));
                }
                Change::Link(at) => self.link(*at, &mut batch),
                Change::LetGo(at) => {
                    if let Some((keyspace, row, _)) = self.take_held(*at) {
                        batch.let_go(keyspace, &row);
                    }
                }
            }
        }
        let positions = wait(store.submit(batch)).unwrap().positions;
        assert_eq!(positions.len(), placed.len());
        for (placed, position) in placed.into_iter().zip(positions) {
            match placed {
                Placed::Queue(queue, at) => self.queues.get_mut(&queue).unwrap()[at].position = position,
                Placed::Held(keyspace, row, payload) => {
                    let row = HeldRow { position, ..row };
                    let key = HeldRow::key(row.time_ms, position).to_vec();
                    self.keys.insert((keyspace, key.clone()), row.value().to_vec());
                    self.held.insert((keyspace, key), payload);
                }
            }
        }
    }

    /// One of the messages that were held before this batch, which is not held any longer.
    fn take_held(&mut self, at: usize) -> Option<(Keyspace, HeldRow, Vec<u8>)> {
        let (keyspace, key) = self.held.keys().nth(at.checked_rem(self.held.len())?).cloned()?;
        let payload = self.held.remove(&(keyspace, key.clone())).unwrap();
        let value = self.keys.remove(&(keyspace, key.clone())).unwrap();
        Some((keyspace, HeldRow::read(&key, &value).unwrap(), payload))
    }

    /// Moves one of the messages that were held before this batch to its queue.
    fn link(&mut self, at: usize, batch: &mut Batch) {
        let Some((keyspace, row, payload)) = self.take_held(at) else { return };
        let messages = self.queues.entry(row.queue).or_default();
        let free = self.emptied.get(&row.queue).copied().unwrap_or(0);
        let offset = messages.last().map_or(free, |message| message.offset + 1);
        batch.link(row.queue, row.entry(offset, 7));
        batch.delete(keyspace, &HeldRow::key(row.time_ms, row.position));
        let meta = EntryMeta { tag_hash: row.tag_hash, store_time_ms: 7 };
        messages.push(Message { offset, position: row.position, meta, payload });
    }

    pub(crate) fn drop_topic(&mut self, store: &Store, topic: u32) {
        wait(store.drop_topic(topic)).unwrap();
        self.queues.retain(|queue, _| queue.topic != topic);
        self.emptied.retain(|queue, _| queue.topic != topic);
    }

    /// Shortens the log, and forgets here what is gone by that.
    pub(crate) fn shorten(&mut self, store: &Store, to: u64) {
        let start = shorten(store, to).unwrap().start;
        assert!(start >= self.start);
        self.forget_before(start);
        eventually("the old segments are removed", || store.stats().log_start == start);
    }

    pub(crate) fn forget_before(&mut self, start: u64) {
        self.start = start;
        for (queue, messages) in &mut self.queues {
            let Some(last) = messages.last() else { continue };
            self.emptied.insert(*queue, last.offset + 1);
            let gone = messages.iter().position(|message| message.position >= start).unwrap_or(messages.len());
            messages.drain(..gone);
        }
        for (_, key) in self.held.keys() {
            assert!(u64::from_be_bytes(key[8..].try_into().unwrap()) >= start, "a held message is gone");
        }
    }

    /// Compares everything. Payloads with a byte in `harmed` may be unreadable, but not wrong.
    pub(crate) fn check(&self, store: &Store, harmed: std::ops::Range<u64>) {
        for keyspace in Keyspace::ALL {
            let expected: Vec<_> = self.keys.iter().filter(|((in_keyspace, _), _)| *in_keyspace == keyspace).collect();
            let found = store.scan(keyspace, b"").unwrap();
            assert!(
                found
                    .iter()
                    .map(|(key, value)| (&key[..], &value[..]))
                    .eq(expected.iter().map(|((_, key), value)| (&key[..], &value[..]))),
                "{keyspace:?}: {found:?} instead of {expected:?}"
            );
            let expected: Vec<_> = expected.into_iter().map(|((_, key), value)| (key, value)).collect();
            self.check_ranges(store, keyspace, &expected);
            for (key, value) in expected {
                assert_eq!(store.get(keyspace, key).unwrap().as_deref(), Some(&value[..]));
            }
        }
        let mut waiting: BTreeMap<u32, u64> = BTreeMap::new();
        let rows = self.keys.iter().filter(|((keyspace, _), _)| *keyspace == Keyspace::Timer);
        for row in rows.filter_map(|((_, key), value)| HeldRow::read(key, value)) {
            *waiting.entry(row.queue.topic).or_default() += 1;
        }
        assert_eq!(store.all_waiting().into_iter().collect::<BTreeMap<_, _>>(), waiting);
        for (queue, messages) in &self.queues {
            self.check_queue(store, *queue, messages, &harmed);
        }
        for ((_, key), payload) in &self.held {
            let position = u64::from_be_bytes(key[8..].try_into().unwrap());
            check_payload(store, position, payload, &harmed);
        }
    }

    /// Compares what is between two of the keys, or beside them.
    fn check_ranges(&self, store: &Store, keyspace: Keyspace, rows: &[(&Vec<u8>, &Vec<u8>)]) {
        let mut bounds: Vec<_> = rows.iter().step_by(1 + rows.len() / 5).map(|(key, _)| key.to_vec()).collect();
        bounds.extend([vec![], vec![2, 0], vec![255; 17]]);
        for (from, to) in bounds.iter().flat_map(|from| bounds.iter().map(move |to| (from, to))) {
            for max in [1, 3, usize::MAX] {
                let inside = rows.iter().filter(|(key, _)| *key >= from && (to.is_empty() || *key < to));
                let expected: Vec<_> = inside.take(max).map(|(key, value)| (&key[..], &value[..])).collect();
                let found = store.range(keyspace, from, to, max).unwrap();
                let found: Vec<_> = found.iter().map(|(key, value)| (&key[..], &value[..])).collect();
                assert_eq!(found, expected, "{keyspace:?} from {from:?} to {to:?}");
            }
        }
    }

    fn check_queue(&self, store: &Store, queue: QueueKey, messages: &[Message], harmed: &std::ops::Range<u64>) {
        let free = self.emptied.get(&queue).copied().unwrap_or(0);
        let bounds =
            messages.first().zip(messages.last()).map_or((free, free), |(first, last)| (first.offset, last.offset + 1));
        assert_eq!(store.bounds(queue), bounds);
        let entries = store.entries(queue, 0, usize::MAX).unwrap();
        assert_eq!(entries.len(), messages.len());
        for (entry, message) in entries.iter().zip(messages) {
            assert_eq!(entry.offset, message.offset);
            assert_eq!(entry.position, message.position);
            assert_eq!(entry.len as usize, message.payload.len());
            assert_eq!((entry.tag_hash, entry.store_time_ms), (message.meta.tag_hash, message.meta.store_time_ms));
            if message.position < self.start {
                assert!(matches!(store.read(message.position), Err(StoreError::NotFound(_))));
            } else {
                check_payload(store, message.position, &message.payload, harmed);
            }
        }
        for from in (0..bounds.1 + 2).step_by(1 + entries.len() / 7) {
            let expected: Vec<_> = entries.iter().filter(|entry| entry.offset >= from).take(3).copied().collect();
            assert_eq!(store.entries(queue, from, 3).unwrap(), expected);
        }
    }
}

fn check_payload(store: &Store, position: u64, expected: &[u8], harmed: &std::ops::Range<u64>) {
    match store.read(position) {
        Ok(payload) => assert_eq!(&payload[..], expected),
        Err(StoreError::Corrupt { .. } | StoreError::NotFound(_)) if harmed.contains(&position) => {}
        Err(error) => panic!("{error}"),
    }
}

/// Copies a store's directory, as a crash of the machine would leave it.
pub(crate) fn crash_image(dir: &Path) -> TempDir {
    let image = temp_dir();
    super::files::copy(dir, image.path());
    image
}

/// Every file of the log with its first position, in order.
pub(crate) fn log_files(dir: &Path) -> Vec<(u64, PathBuf)> {
    let mut files: Vec<_> = fs::read_dir(dir.join("log"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter_map(|path| Some((path.file_stem()?.to_str()?.parse().ok()?, path)))
        .collect();
    files.sort();
    files
}

/// The file that has a log position, and where in it.
pub(crate) fn locate(dir: &Path, position: u64) -> (PathBuf, usize) {
    let (base, path) = log_files(dir).into_iter().rev().find(|(base, _)| *base <= position).unwrap();
    (path, (position - base) as usize)
}

/// Changes bytes of the log in place.
pub(crate) fn edit(dir: &Path, position: u64, change: impl FnOnce(&mut [u8])) {
    let (path, at) = locate(dir, position);
    let mut bytes = fs::read(&path).unwrap();
    change(&mut bytes[at..]);
    fs::write(path, bytes).unwrap();
}

/// Bytes of a segment's header.
const SEGMENT_HEADER: usize = 32;

/// Cuts the log off at a position; answers which of the records that end at `ends` are whole nevertheless. Zeros that are missing are
/// no loss.
pub(crate) fn cut(dir: &Path, position: u64, ends: &[u64]) -> usize {
    let (path, at) = locate(dir, position);
    // The header of a segment is on the disk before the segment has its name.
    let (position, at) = (position + SEGMENT_HEADER.saturating_sub(at) as u64, at.max(SEGMENT_HEADER));
    let bytes = fs::read(&path).unwrap();
    let written = bytes[..at].iter().chain(bytes[at..].iter().take_while(|byte| **byte == 0)).count();
    let whole = position - at as u64 + written as u64;
    for (base, later) in log_files(dir) {
        if base > position {
            fs::remove_file(later).unwrap();
        }
    }
    File::options().write(true).open(path).unwrap().set_len(at as u64).unwrap();
    let whole = ends.iter().rposition(|end| *end <= whole).unwrap();
    whole.min(ends.iter().rposition(|end| *end <= position).unwrap() + 1)
}

/// The names, sizes and contents of all log files.
pub(crate) fn log_contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    log_files(dir).into_iter().map(|(_, path)| (path.clone(), fs::read(path).unwrap())).collect()
}

pub(crate) fn queue(topic: u32, queue: u32) -> QueueKey {
    QueueKey { topic, queue }
}

pub(crate) fn put(key: &[u8], value: &[u8]) -> Change {
    Change::Put(Keyspace::Lease, key.to_vec(), value.to_vec())
}

pub(crate) fn append(topic: u32, payload: &[u8]) -> Change {
    let meta = EntryMeta { tag_hash: topic, store_time_ms: payload.len() as i64 };
    Change::Append { queue: queue(topic, 0), skip: 0, meta, payload: payload.to_vec() }
}
