//! Where batches wait for the committer, in the order in which they were submitted.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};
use tokio::sync::{Notify, oneshot};

use super::batch::{Batch, Record};
use super::commit::{Answer, Commit, Committed};
use super::error::StoreError;
use super::shared::Shared;

/// A batch on its way into the log.
#[derive(Debug)]
pub(super) struct Submission {
    pub(super) record: Record,
    pub(super) answer: oneshot::Sender<Answer>,
}

/// Makes a batch of what can be read then.
type Make = Box<dyn FnOnce(&Shared) -> Result<Batch, StoreError> + Send>;

/// A batch that is made when everything before it has been committed and can be read.
pub(super) struct Late {
    pub(super) make: Make,
    pub(super) answer: oneshot::Sender<Answer>,
}

impl fmt::Debug for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Late")
    }
}

#[derive(Debug, Default)]
enum Phase {
    #[default]
    Open,
    Closing,
    Failed(Arc<str>),
}

/// What the committer takes at once.
#[derive(Debug, Default)]
pub(super) struct Arrived {
    pub(super) submissions: Vec<Submission>,
    /// Who waits until all of them, and all before, have been committed.
    pub(super) settled: Vec<oneshot::Sender<Answer>>,
}

#[derive(Debug, Default)]
struct Waiting {
    arrived: Arrived,
    late: VecDeque<Late>,
    phase: Phase,
    /// The committer sleeps and must be woken.
    asleep: bool,
}

/// The queue in front of the committer.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
    /// Rings instead of waking the committer's thread, where there is none.
    bell: Option<Arc<Notify>>,
    /// Bytes that were submitted and are not answered yet.
    pending_bytes: AtomicU64,
}

impl Inbox {
    /// An open inbox that rings a bell when something arrives.
    pub(super) fn with_bell(bell: Option<Arc<Notify>>) -> Self {
        Self { bell, ..Self::default() }
    }

    /// Puts a record at the end.
    pub(super) fn submit(&self, record: Record) -> Commit {
        let bytes = record.len();
        self.put(|waiting, answer| {
            self.expect(bytes);
            waiting.arrived.submissions.push(Submission { record, answer });
        })
    }

    /// Has a batch made and committed when everything before it has been. Where there is much to do, others come in between.
    pub(super) fn submit_late(
        &self,
        make: impl FnOnce(&Shared) -> Result<Batch, StoreError> + Send + 'static,
    ) -> Commit {
        self.put(|waiting, answer| waiting.late.push_back(Late { make: Box::new(make), answer }))
    }

    /// Answers when everything that was submitted before has been committed; at once if nothing waits.
    pub(super) fn settled(&self) -> Commit {
        match self.pending_bytes() {
            0 => Commit::answered(Ok(Committed::default())),
            _ => self.put(|waiting, answer| waiting.arrived.settled.push(answer)),
        }
    }

    fn put(&self, put: impl FnOnce(&mut Waiting, oneshot::Sender<Answer>)) -> Commit {
        let mut waiting = self.waiting.lock();
        match &waiting.phase {
            Phase::Open => {}
            Phase::Closing => return Commit::answered(Err(StoreError::Closed)),
            Phase::Failed(reason) => return Commit::answered(Err(StoreError::Failed(reason.clone()))),
        }
        let (answer, commit) = Commit::pending();
        put(&mut waiting, answer);
        let wake = std::mem::take(&mut waiting.asleep);
        drop(waiting);
        if wake {
            self.arrived.notify_one();
        }
        if let Some(bell) = &self.bell {
            bell.notify_one();
        }
        commit
    }

    /// Everything that waits.
    pub(super) fn take_now(&self) -> Arrived {
        std::mem::take(&mut self.waiting.lock().arrived)
    }

    /// The batch to be made next, if there is one.
    pub(super) fn take_late(&self) -> Option<Late> {
        self.waiting.lock().late.pop_front()
    }

    /// Everything that waits, which may be a batch to be made only; else waits itself. `None` if nothing will come. `emptied` is room for what comes next.
    pub(super) fn take(&self, emptied: Arrived) -> Option<Arrived> {
        let mut waiting = self.waiting.lock();
        loop {
            let Arrived { submissions, settled } = &waiting.arrived;
            if !submissions.is_empty() || !settled.is_empty() || !waiting.late.is_empty() {
                return Some(std::mem::replace(&mut waiting.arrived, emptied));
            }
            if !matches!(waiting.phase, Phase::Open) {
                return None;
            }
            waiting.asleep = true;
            self.arrived.wait(&mut waiting);
        }
    }

    /// Says that this many bytes will be answered.
    pub(super) fn expect(&self, bytes: u64) {
        self.pending_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Says that this many bytes were answered.
    pub(super) fn answered(&self, bytes: u64) {
        self.pending_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Bytes that were submitted and are not answered yet.
    pub(super) fn pending_bytes(&self) -> u64 {
        self.pending_bytes.load(Ordering::Relaxed)
    }

    /// Takes nothing more; what waits is still committed.
    pub(super) fn close(&self) {
        let mut waiting = self.waiting.lock();
        if matches!(waiting.phase, Phase::Open) {
            waiting.phase = Phase::Closing;
        }
        drop(waiting);
        self.arrived.notify_all();
    }

    /// Answers everything that waits, and everything that comes, with `Failed`. The first reason stays.
    pub(super) fn fail(&self, reason: Arc<str>) {
        let mut waiting = self.waiting.lock();
        if !matches!(waiting.phase, Phase::Failed(_)) {
            waiting.phase = Phase::Failed(reason.clone());
        }
        let Arrived { submissions: refused, settled } = std::mem::take(&mut waiting.arrived);
        let late = std::mem::take(&mut waiting.late);
        drop(waiting);
        self.arrived.notify_all();
        for answer in late.into_iter().map(|late| late.answer).chain(settled) {
            let _ = answer.send(Err(StoreError::Failed(reason.clone())));
        }
        for submission in refused {
            self.answered(submission.record.len());
            // Nobody needs to be interested any longer.
            let _ = submission.answer.send(Err(StoreError::Failed(reason.clone())));
        }
    }

    /// Why nothing is taken any longer, if so.
    pub(super) fn refuses(&self) -> Option<StoreError> {
        match &self.waiting.lock().phase {
            Phase::Open => None,
            Phase::Closing => Some(StoreError::Closed),
            Phase::Failed(reason) => Some(StoreError::Failed(reason.clone())),
        }
    }
}
