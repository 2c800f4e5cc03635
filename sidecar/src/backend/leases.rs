//! Leases that are ended or changed: handed over to gather with others, and awaited.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::{sync::oneshot, time::Instant};
use waybill_protocol::handle::ReceiptHandle;

use super::{
    ack::bit_of,
    error::BackendError,
    handles::json_len,
    metrics::LeaseOutcome,
    service::MessageService,
    types::{ChangeEntry, LeaseRef},
};
use crate::batching::{Caller, Gatherer, Kind, Run, Target, core::Item};

/// What a request answered for one lease: the newest handle (that of an ack is the one it had).
pub(super) type LeaseResult = Result<ReceiptHandle, BackendError>;

/// What is wanted of a lease.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wish {
    Ack,
    Change { invisible_ms: i64, suspend: bool },
}

/// A lease that was handed over, and who is to be told what became of it.
pub(crate) struct Handed {
    pub(super) lease: LeaseRef,
    pub(super) wish: Wish,
    pub(super) caller: Caller,
    pub(super) since: Instant,
    /// Where among its caller's entries it is.
    place: usize,
    answers: Arc<Answers>,
}

/// The answers to one caller, in the order of its entries. It hears of them when the last entry has gone, told or not.
struct Answers {
    results: Mutex<Vec<Option<LeaseResult>>>,
    caller: Option<oneshot::Sender<Vec<Option<LeaseResult>>>>,
}

impl Answers {
    fn of(count: usize) -> (Arc<Self>, oneshot::Receiver<Vec<Option<LeaseResult>>>) {
        let mut results = Vec::with_capacity(count);
        results.resize_with(count, || None);
        let (caller, answer) = oneshot::channel();
        (Arc::new(Self { results: Mutex::new(results), caller: Some(caller) }), answer)
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        if let Some(caller) = self.caller.take() {
            // It may have stopped waiting, which does not matter.
            let _gone = caller.send(std::mem::take(self.results.get_mut()));
        }
    }
}

impl Handed {
    pub(super) fn kind(&self) -> Kind {
        match self.wish {
            Wish::Ack => Kind::Ack,
            Wish::Change { .. } => Kind::Change,
        }
    }

    /// Tells the caller.
    pub(super) fn tell(self, result: LeaseResult) {
        if let Some(slot) = self.answers.results.lock().get_mut(self.place) {
            *slot = Some(result);
        }
    }

    fn target(&self) -> Target {
        Target {
            kind: self.kind(),
            group: Arc::clone(&self.lease.group),
            topic: Arc::clone(&self.lease.topic),
            topic_type: self.lease.handle.topic_type,
        }
    }

    fn is_with(&self, other: &Self) -> bool {
        let (a, b) = (&self.lease, &other.lease);
        a.handle.broker_name == b.handle.broker_name
            && a.handle.topic_type == b.handle.topic_type
            && a.group == b.group
            && a.topic == b.topic
    }

    /// About the bytes that it adds to the body of a request.
    fn bytes(&self) -> usize {
        /// Keys, punctuation, numbers.
        const FRAME: usize = 320;
        let handle = &self.lease.handle;
        // The name of a retry topic has the group in it.
        FRAME + 2 * json_len(&self.lease.group) + json_len(&self.lease.topic) + json_len(&handle.broker_name)
    }

    /// A message that is far from the start of its pop cannot be among others.
    fn most(&self) -> usize {
        match self.wish {
            Wish::Ack if bit_of(&self.lease).is_none() => 1,
            Wish::Ack | Wish::Change { .. } => usize::MAX,
        }
    }
}

impl MessageService {
    /// Finishes leases: one result per entry, in order. An ack repeated is harmless.
    ///
    /// What was handed over is sent even if this is dropped.
    ///
    /// # Errors
    /// Per entry: `InvalidReceiptHandle` is final; see [`BackendError::is_retryable`].
    pub async fn ack(&self, leases: Vec<LeaseRef>) -> Vec<Result<(), BackendError>> {
        self.ack_for(Caller::Client, leases).await
    }

    /// Changes leases: one result per entry, in order, each with the new handle.
    ///
    /// What was handed over is sent even if this is dropped.
    ///
    /// # Errors
    /// Per entry: `InvalidReceiptHandle` is final; see [`BackendError::is_retryable`].
    pub async fn change_invisible(&self, entries: Vec<ChangeEntry>) -> Vec<Result<ReceiptHandle, BackendError>> {
        self.change_for(entries.into_iter().map(|entry| (Caller::Client, entry)).collect()).await
    }

    /// [`Self::ack`] on behalf of `caller`.
    pub(crate) async fn ack_for(&self, caller: Caller, leases: Vec<LeaseRef>) -> Vec<Result<(), BackendError>> {
        let wishes = leases.into_iter().map(|lease| (lease, Wish::Ack, caller)).collect();
        self.wait_for(wishes).await.into_iter().map(|result| result.map(drop)).collect()
    }

    /// [`Self::change_invisible`], each on behalf of somebody.
    pub(crate) async fn change_for(&self, entries: Vec<(Caller, ChangeEntry)>) -> Vec<LeaseResult> {
        let wish = |(caller, ChangeEntry { lease, invisible_ms, suspend })| {
            (lease, Wish::Change { invisible_ms, suspend }, caller)
        };
        self.wait_for(entries.into_iter().map(wish).collect()).await
    }

    async fn wait_for(&self, wishes: Vec<(LeaseRef, Wish, Caller)>) -> Vec<LeaseResult> {
        let answers = self.hand_over(wishes).await.unwrap_or_default();
        // What a defect has lost is answered all the same.
        answers.into_iter().map(|result| result.unwrap_or_else(|| Err(BackendError::unanswered_entry()))).collect()
    }

    /// Takes leases over. There is an answer for each, except for those that a defect has lost.
    fn hand_over(&self, wishes: Vec<(LeaseRef, Wish, Caller)>) -> oneshot::Receiver<Vec<Option<LeaseResult>>> {
        let (answers, answer) = Answers::of(wishes.len());
        let since = Instant::now();
        let timeout = i64::try_from(self.request_timeout().as_millis()).unwrap_or(i64::MAX);
        let start_by = self.inner.gathered.now().saturating_add(timeout);
        let mut runs: Vec<Run<Handed>> = Vec::new();
        let mut most_of_group = usize::MAX;
        for (place, (mut lease, wish, caller)) in wishes.into_iter().enumerate() {
            self.inner.superseded.renew(&mut lease);
            let refused = self.refuse_hopeless(&lease);
            let entry = Handed { lease, wish, caller, since, place, answers: Arc::clone(&answers) };
            if let Err(error) = refused {
                self.inner.metrics.lease(entry.kind(), caller, LeaseOutcome::RefusedHere);
                entry.tell(Err(error));
                continue;
            }
            let item = |entry: Handed, most_of_group| Item {
                bytes: entry.bytes(),
                most: entry.most().min(most_of_group),
                start_by,
                number: 0,
                value: entry,
            };
            match runs.last_mut() {
                Some(run) if run.items.last().is_some_and(|last| last.value.is_with(&entry)) => {
                    run.items.push(item(entry, most_of_group));
                }
                _ => {
                    most_of_group = self.batch_max_of_group(&entry.lease.group);
                    runs.push(Run {
                        broker: entry.lease.handle.broker_name.as_str().into(),
                        target: entry.target(),
                        items: vec![item(entry, most_of_group)],
                    });
                }
            }
        }
        if !runs.is_empty() {
            Gatherer::hand_over(self, runs);
        }
        answer
    }
}
