//! The store as its users see it.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;

use super::batch::Batch;
use super::blocks;
use super::checkpoint;
use super::commit::{Commit, Committed};
use super::committer::Committer;
use super::disk::DiskUsage;
use super::error::StoreError;
use super::index::IndexError;
use super::lock::DirLock;
use super::options::{Drive, Flush, Options};
use super::range;
use super::recovery::{self, Recovered};
use super::schema;
use super::shared::Shared;
use super::state::after;
use super::stats::Stats;
use super::types::{Admit, Entry, Health, Keyspace, QueueKey};

/// A handle to an open store; clones share it. It is closed with the last one, or by [`Store::close`].
#[derive(Clone)]
pub struct Store(Arc<Running>);

struct Running {
    shared: Arc<Shared>,
    /// `None` once closed.
    engine: Mutex<Option<Engine>>,
}

/// What does the work.
enum Engine {
    Threads(Threads),
    ByHand { committer: Box<Committer>, lock: DirLock },
}

struct Threads {
    committer: JoinHandle<()>,
    space: JoinHandle<()>,
    flusher: Option<JoinHandle<()>>,
    checkpoints: JoinHandle<Result<(), IndexError>>,
    lock: DirLock,
}

impl Store {
    /// Opens the store, recovering what a crash left.
    ///
    /// # Errors
    /// [`StoreError::Locked`], [`StoreError::Corrupt`] (the log is as it was), [`StoreError::Options`], [`StoreError::Io`],
    /// [`StoreError::Index`].
    pub fn open(options: Options) -> Result<Self, StoreError> {
        let Recovered { lock, shared, writer } = recovery::recover(options)?;
        let shared = Arc::new(shared);
        // Whether the disk is full is known from the beginning.
        shared.space.reserve();
        let committer = Committer::new(shared.clone(), writer);
        if let Drive::ByHand { .. } = shared.options.drive {
            let engine = Engine::ByHand { committer: Box::new(committer), lock };
            return Ok(Self(Arc::new(Running { shared, engine: Mutex::new(Some(engine)) })));
        }
        let threads = Threads {
            committer: spawn("store-committer", &shared, |_| committer.run())?,
            space: spawn("store-space", &shared, |shared| shared.space.run())?,
            flusher: match shared.options.flush {
                Flush::Sync => None,
                Flush::Async => Some(spawn("store-flusher", &shared, |shared| shared.flusher.run(shared))?),
            },
            checkpoints: spawn("store-index", &shared, checkpoint::run)?,
            lock,
        };
        Ok(Self(Arc::new(Running { shared, engine: Mutex::new(Some(Engine::Threads(threads))) })))
    }

    /// With [`Drive::ByHand`]: commits what waits, as one group, and makes the next segment ready. Nothing otherwise.
    pub fn work(&self) {
        if let Some(Engine::ByHand { committer, .. }) = &mut *self.0.engine.lock() {
            let mut arrived = self.shared().inbox.take_now();
            committer.turn(&mut arrived);
            self.shared().space.reserve();
        }
    }

    /// With [`Drive::ByHand`]: writes to the index what was committed since the last time. Nothing otherwise.
    ///
    /// # Errors
    /// [`StoreError::Index`]; the store has failed then.
    pub fn checkpoint(&self) -> Result<(), StoreError> {
        match &*self.0.engine.lock() {
            Some(Engine::ByHand { .. }) => Ok(checkpoint::take(self.shared())?),
            _ => Ok(()),
        }
    }

    /// Whether a change of this kind would be taken now; ask before changing anything.
    ///
    /// # Errors
    /// [`StoreError::DiskFull`], [`StoreError::Busy`], [`StoreError::Failed`], [`StoreError::Closed`].
    pub fn admit(&self, kind: Admit) -> Result<(), StoreError> {
        self.shared().admit(kind)
    }

    /// How full the disk is that the store is on.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn disk_usage(&self) -> Result<DiskUsage, StoreError> {
        let options = &self.shared().options;
        let asking = |error| StoreError::io(format!("asking about the disk of {}", options.dir.display()), error);
        options.disk.usage(&options.dir).map_err(asking)
    }

    /// Hands a batch to the committer. The order of calls is the order in the log. An empty batch is answered at once.
    pub fn submit(&self, batch: Batch) -> Commit {
        if batch.is_empty() {
            return Commit::answered(Ok(Committed::default()));
        }
        let max = self.shared().record_max();
        match batch.finish(max) {
            Ok(record) => self.shared().inbox.submit(record),
            Err(bytes) => {
                let refusal = StoreError::TooLarge { bytes, max };
                self.shared().refused(&refusal);
                Commit::answered(Err(refusal))
            }
        }
    }

    /// Waits until everything that was submitted before has been committed; costs nothing when nothing waits. For answers that rest on what is in
    /// memory, which is ahead of the disk.
    pub fn settled(&self) -> Commit {
        self.shared().inbox.settled()
    }

    /// Bytes that a batch may have.
    #[must_use]
    pub fn batch_bytes_max(&self) -> u64 {
        self.shared().record_max()
    }

    /// Removes keys, in as many batches as that takes. Nobody hears when it is done: for what nobody needs any longer, which whoever
    /// finds it later removes again.
    pub fn clean_up(&self, keyspace: Keyspace, keys: impl IntoIterator<Item = impl AsRef<[u8]>>) {
        let enough = usize::try_from(self.batch_bytes_max() / 32).unwrap_or(usize::MAX);
        let mut batch = Batch::new();
        for key in keys {
            batch.delete(keyspace, key.as_ref());
            if batch.len() >= enough {
                // Not at the cost of others when there is little room.
                if self.admit(Admit::State).is_err() {
                    return;
                }
                drop(self.submit(std::mem::take(&mut batch)));
            }
        }
        if self.admit(Admit::State).is_ok() {
            drop(self.submit(batch));
        }
    }

    /// Forgets all queues of a topic; as durable and as ordered as a batch.
    pub fn drop_topic(&self, topic: u32) -> Commit {
        let mut batch = Batch::new();
        batch.drop_topic(topic);
        self.submit(batch)
    }

    /// The committed value of a key.
    ///
    /// # Errors
    /// [`StoreError::Index`], [`StoreError::Closed`].
    pub fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.check_open()?;
        if let Some(change) = self.shared().state.read().get(keyspace, key) {
            return Ok(change.as_deref().map(Bytes::copy_from_slice));
        }
        self.indexed(self.shared().index.get(&schema::user_key(keyspace, key)))
    }

    /// Every committed key that starts with `prefix`, in order, with its value. Reads all of them: for start-up and administration.
    ///
    /// # Errors
    /// [`StoreError::Index`], [`StoreError::Closed`].
    pub fn scan(&self, keyspace: Keyspace, prefix: &[u8]) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        self.check_open()?;
        // Held until the end: the index must not get what is changed meanwhile.
        let state = self.shared().state.read();
        let rows = self.indexed(self.shared().index.scan(&schema::user_key(keyspace, prefix)))?;
        let mut changes = state.changes(keyspace, prefix).peekable();
        if changes.peek().is_none() {
            return Ok(rows.into_iter().map(|(key, value)| (key.slice(1..), value)).collect());
        }
        let mut merged: std::collections::BTreeMap<_, _> =
            rows.into_iter().map(|(key, value)| (key.slice(1..), value)).collect();
        for (key, change) in changes {
            match change {
                Some(value) => merged.insert(Bytes::copy_from_slice(key), Bytes::copy_from_slice(value)),
                None => merged.remove(key),
            };
        }
        Ok(merged.into_iter().collect())
    }

    /// At most `max` committed rows whose keys lie from `from` on to before `to`, in order; an empty `to` is the end. What it costs
    /// grows with `max`, and with the rows between that were deleted since the last checkpoint: whoever deletes what it has read goes
    /// on from there.
    ///
    /// # Errors
    /// [`StoreError::Index`], [`StoreError::Closed`].
    pub fn range(
        &self,
        keyspace: Keyspace,
        from: &[u8],
        to: &[u8],
        max: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        self.check_open()?;
        self.indexed(range::read(&self.shared().state, &self.shared().index, keyspace, (from, to), max))
    }

    /// All committed rows of a keyspace in order, so many at a time. Each time it goes on behind the last row before, and shows what is there
    /// then. Ends after an error.
    ///
    /// Errors: [`StoreError::Index`], [`StoreError::Closed`].
    pub fn pages(
        &self,
        keyspace: Keyspace,
        size: usize,
    ) -> impl Iterator<Item = Result<Vec<(Bytes, Bytes)>, StoreError>> {
        let mut next = Some(Vec::new());
        std::iter::from_fn(move || {
            let from = next.take()?;
            let page = self.range(keyspace, &from, &[], size);
            if let Ok(rows) = &page {
                next = rows.last().filter(|_| rows.len() == size).map(|(key, _)| after(key));
            }
            Some(page)
        })
    }

    /// At most `max` committed entries of a queue, from offset `from` on, in order.
    ///
    /// # Errors
    /// [`StoreError::Index`], [`StoreError::Closed`].
    pub fn entries(&self, queue: QueueKey, from: u64, max: usize) -> Result<Vec<Entry>, StoreError> {
        self.check_open()?;
        let sought = self.shared().state.read().queues.seek(queue, from, max);
        let Some(range) = sought.indexed.filter(|_| max > 0) else { return Ok(sought.tail) };
        let mut entries = Vec::new();
        let prefix = schema::block_prefix(queue);
        let visited = self.shared().index.visit(&prefix, &schema::block_key(queue, range.start), |key, block| {
            let block = blocks::decode(schema::block_first(key)?, block)?;
            entries.extend(block.into_iter().filter(|entry| range.contains(&entry.offset)));
            Some(entries.len() < max)
        });
        self.indexed(visited)?;
        entries.extend(sought.tail);
        entries.truncate(max);
        Ok(entries)
    }

    /// The lowest offset that is there and the one that comes next; equal for an empty queue, (0, 0) for an unknown one.
    #[must_use]
    pub fn bounds(&self, queue: QueueKey) -> (u64, u64) {
        self.shared().state.read().queues.bounds(queue)
    }

    /// How many messages of a topic are held in [`Keyspace::Timer`].
    #[must_use]
    pub fn waiting(&self, topic: u32) -> u64 {
        self.shared().state.read().waiting.of(topic)
    }

    /// The topics of the messages that are held in [`Keyspace::Timer`], and how many there are of each.
    #[must_use]
    pub fn all_waiting(&self) -> Vec<(u32, u64)> {
        self.shared().state.read().waiting.all().collect()
    }

    /// The payload at a log position, its checksum verified.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] for a position that is none, [`StoreError::Corrupt`], [`StoreError::Io`], [`StoreError::Closed`].
    pub fn read(&self, position: u64) -> Result<Bytes, StoreError> {
        self.check_open()?;
        self.shared().segments.read(position)
    }

    /// What happened since the store was opened, and where it stands.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let shared = self.shared();
        let counters = &shared.counters;
        Stats {
            records: counters.records.get(),
            bytes: counters.bytes.get(),
            groups: counters.groups.get(),
            largest_group: counters.largest_group.get(),
            syncs: shared.flusher.syncs(),
            log_time: Duration::from_nanos(counters.log_nanos.get()),
            pending_bytes: shared.inbox.pending_bytes(),
            checkpoints: counters.checkpoints.get(),
            failed_checkpoints: counters.failed_checkpoints.get(),
            last_checkpoint: Duration::from_nanos(counters.last_checkpoint_nanos.get()),
            overlay_bytes: shared.overlay_bytes(),
            log_end: shared.segments.committed(),
            log_durable: shared.flusher.durable(),
            log_indexed: shared.indexed(),
            log_start: shared.segments.first_base(),
            segments: shared.segments.len() as u64,
        }
    }

    /// Whether the store can take changes.
    #[must_use]
    pub fn health(&self) -> Health {
        let shared = self.shared();
        match shared.inbox.refuses() {
            Some(StoreError::Failed(reason)) => Health::Failed(reason.to_string()),
            Some(_) => Health::Failed("closed".to_owned()),
            None if shared.space.is_full() || shared.alarm.is_full() => Health::DiskFull,
            None => Health::Ok,
        }
    }

    /// Commits what waits, writes a last checkpoint and gives the directory back. All handles answer `Closed` from then on.
    /// Blocks for as long as that takes.
    ///
    /// # Errors
    /// [`StoreError::Failed`], [`StoreError::Index`]; the directory is given back all the same, and nothing that was answered is lost.
    pub fn close(&self) -> Result<(), StoreError> {
        self.0.close()
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    fn check_open(&self) -> Result<(), StoreError> {
        match self.shared().inbox.refuses() {
            Some(StoreError::Closed) => Err(StoreError::Closed),
            _ => Ok(()),
        }
    }

    /// What the index answered; the store fails if the index turns out to be damaged.
    fn indexed<T>(&self, answer: Result<T, IndexError>) -> Result<T, StoreError> {
        if answer.is_err() && self.shared().index.is_damaged() {
            self.shared().fail("the index is damaged; it is built again when the store is opened");
        }
        Ok(answer?)
    }
}

impl Running {
    fn close(&self) -> Result<(), StoreError> {
        let shared = &self.shared;
        let threads = match self.engine.lock().take() {
            None => return Ok(()),
            Some(Engine::Threads(threads)) => threads,
            Some(Engine::ByHand { mut committer, lock }) => {
                shared.inbox.close();
                committer.turn(&mut shared.inbox.take_now());
                committer.end();
                shared.space.stop();
                let checkpointed = checkpoint::take(shared);
                shared.index.close();
                drop(lock);
                return Ok(checkpointed?);
            }
        };
        // In this order: the committer may wait for space, and the last checkpoint comes after the last commit.
        shared.inbox.close();
        let committed = threads.committer.join();
        shared.space.stop();
        let spaced = threads.space.join();
        shared.flusher.stop();
        let flushed = threads.flusher.map_or(Ok(()), JoinHandle::join);
        shared.alarm.close();
        let checkpointed = threads.checkpoints.join();
        shared.index.close();
        drop(threads.lock);
        let ended = |thread: &str| StoreError::Failed(format!("the {thread} thread ended").into());
        committed.map_err(|_| ended("committer"))?;
        spaced.map_err(|_| ended("space"))?;
        flushed.map_err(|_| ended("flusher"))?;
        if let Some(failed @ StoreError::Failed(_)) = shared.inbox.refuses() {
            return Err(failed);
        }
        Ok(checkpointed.map_err(|_| ended("index"))??)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(Engine::ByHand { .. }) = self.engine.get_mut() {
            return;
        }
        // Nobody is left to hear of it, and nothing that was answered is lost.
        let _ = self.close();
    }
}

/// Starts a thread. If it panics, the store fails rather than leaving everybody waiting.
fn spawn<T: Send + 'static>(
    name: &str,
    shared: &Arc<Shared>,
    work: impl FnOnce(&Shared) -> T + Send + 'static,
) -> Result<JoinHandle<T>, StoreError> {
    let shared = shared.clone();
    let run = move || {
        catch_unwind(AssertUnwindSafe(|| work(&shared))).unwrap_or_else(|panic| {
            shared.fail("a thread of the store panicked");
            resume_unwind(panic)
        })
    };
    thread::Builder::new().name(name.to_owned()).spawn(run).map_err(|error| StoreError::io("starting a thread", error))
}
