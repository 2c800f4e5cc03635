//! Giving back what clients hold that are gone.

use std::sync::Arc;

use futures::future::join_all;

use super::Core;
use crate::error::BrokerError;
use crate::store::Admit;

impl Core {
    /// Client ids that hold something, or did when the broker started.
    pub(crate) fn holders(&self) -> Vec<Arc<str>> {
        self.holders.names()
    }

    /// Makes visible at once what these clients hold, whoever it was for; one record in the log for each group and topic, unless that are
    /// very many. A lease
    /// keeps its pop time, so that a client that is alive all the same can still acknowledge until the next delivery. Answers
    /// how many leases were given back.
    ///
    /// # Errors
    /// The store takes no writes; the broker opens it anew and tries again.
    pub(crate) async fn release_clients(&self, gone: &[Arc<str>]) -> Result<u64, BrokerError> {
        let numbers = self.holders.numbers(gone);
        if numbers.is_empty() {
            return Ok(0);
        }
        let consumers: Vec<_> = self.ledgers.read().values().cloned().collect();
        self.store.admit(Admit::State)?;
        let mut released = 0;
        let mut commits = Vec::new();
        for consumer in consumers {
            let mut changes = Vec::new();
            let Some(mut ledger) = consumer.open_ledger() else { continue };
            released += ledger.release_held_by(self.now(), |holder| numbers.contains(&holder), 0, &mut changes);
            commits.extend(self.submit_if_any(&consumer, &changes));
            drop(ledger);
            if !changes.is_empty() {
                consumer.waiters.ring_all();
            }
        }
        join_all(commits).await.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(released as u64)
    }
}
