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

/// Waits for a submitted batch. The work goes on if it is dropped.
///
/// Errors: [`StoreError::Failed`] if the log failed, [`StoreError::TooLarge`] or [`StoreError::OutOfOrder`] if the batch was
/// not acceptable, [`StoreError::Closed`] if the store was closed before the batch was taken.
#[derive(Debug)]
pub struct Commit(oneshot::Receiver<Result<Committed, StoreError>>);

impl Commit {
    /// A commit that is already answered.
    pub(crate) fn answered(answer: Result<Committed, StoreError>) -> Self {
        let (sender, receiver) = oneshot::channel();
        // The receiver is right here, so the answer arrives.
        let _ = sender.send(answer);
        Self(receiver)
    }
}

impl Future for Commit {
    type Output = Result<Committed, StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map(|answer| answer.unwrap_or(Err(StoreError::Closed)))
    }
}
