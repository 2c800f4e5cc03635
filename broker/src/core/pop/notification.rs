//! Waiting to be told that there are messages, without taking any.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{Asked, Pop};
use crate::core::Core;
use crate::core::source::Messages;
use crate::core::wake::For;
use crate::error::BrokerError;
use crate::limits;

/// What is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// A pop would find something.
    Messages,
    /// Nothing came in time.
    Nothing,
    /// There is nothing now, and too many wait already for this one to wait, too.
    Full,
}

impl Core {
    /// Whether a pop would find something, now or within `poll_ms`; ends early when `gone` is cancelled. What a subscription does
    /// not want counts as something.
    ///
    /// # Errors
    /// [`BrokerError::PollingTimeout`] if `gone` was cancelled, and everything that is wrong with the request.
    pub async fn notice(&self, pop: &Pop, gone: &CancellationToken) -> Result<Notice, BrokerError> {
        let mut asked = self.resolve(pop).await?;
        if self.look(&asked)?.0 {
            return Ok(Notice::Messages);
        }
        let end = pop.born_ms.saturating_add(pop.poll_ms.max(0)) - limits::POLL_EARLY_MS;
        if self.now() >= end {
            return Ok(Notice::Nothing);
        }
        let consumer = asked.consumer.clone();
        let _waiting = match self.enter(&asked, For::Word) {
            Err(BrokerError::PollingFull(_)) => return Ok(Notice::Full),
            place => place?,
        };
        loop {
            // Before the look: what comes between the look and the wait rings, too.
            let told = consumer.waiters.told();
            tokio::pin!(told);
            told.as_mut().enable();
            let (found, next_deadline) = self.look(&asked)?;
            if found {
                return Ok(Notice::Messages);
            }
            let now = self.now();
            if now >= end || self.stop.is_cancelled() {
                return Ok(Notice::Nothing);
            }
            let until = next_deadline.map_or(end, |deadline| deadline.min(end));
            let pause = Duration::from_millis(u64::try_from(until - now).unwrap_or(0).saturating_add(1));
            tokio::select! {
                () = told => {}
                () = tokio::time::sleep(pause) => {}
                () = gone.cancelled() => return Err(BrokerError::PollingTimeout),
                () = self.stop.cancelled() => return Ok(Notice::Nothing),
            }
            // As in a pop: there may be more queues now, or another topic of the same name.
            asked = self.resolve(pop).await?;
            if !std::sync::Arc::ptr_eq(&asked.consumer, &consumer) {
                return Ok(Notice::Nothing);
            }
        }
    }

    /// Whether a pop would find something now, and when the next lease runs out.
    fn look(&self, asked: &Asked) -> Result<(bool, Option<i64>), BrokerError> {
        let mut source = Messages::new(self, asked, limits::POP_MAX_BYTES);
        let limit = self.in_flight_max();
        let mut ledger = asked.open_ledger()?;
        let now = self.now();
        let found = ledger.rest(now, asked.queues.clone(), limit, &mut source) > 0;
        Ok((found, ledger.next_deadline(now, asked.queues.clone())))
    }
}
