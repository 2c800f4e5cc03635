//! The answer to a submitted batch.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use super::error::StoreError;

/// A batch that was committed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Committed {
    /// The log positions of the appended payloads, in the order of the batch.
    pub positions: Vec<u64>,
}

/// How a batch ended.
pub(super) type Answer = Result<Committed, StoreError>;

/// Waits for a submitted batch. The work goes on if it is dropped.
///
/// Errors: [`StoreError::Failed`] if the log failed, [`StoreError::TooLarge`] or [`StoreError::OutOfOrder`] if the batch was
/// not acceptable, [`StoreError::DiskFull`] if there was no room for it, [`StoreError::Closed`] if the store was closed before.
/// Unless it is `Failed`, nothing of the batch was changed.
#[derive(Debug)]
pub struct Commit(oneshot::Receiver<Answer>);

impl Commit {
    /// A commit that will be answered.
    pub(super) fn pending() -> (oneshot::Sender<Answer>, Self) {
        let (sender, receiver) = oneshot::channel();
        (sender, Self(receiver))
    }

    /// A commit that is already answered.
    pub(super) fn answered(answer: Answer) -> Self {
        let (sender, commit) = Self::pending();
        // The receiver is right here, so the answer arrives.
        let _ = sender.send(answer);
        commit
    }
}

impl Future for Commit {
    type Output = Result<Committed, StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0)
            .poll(context)
            .map(|answer| answer.unwrap_or_else(|_| Err(StoreError::Failed("the committer ended".into()))))
    }
}
