//! Acknowledging messages and changing their invisible duration, one or many: one batch in the log either way.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Core, GroupTopic};
use crate::error::BrokerError;
use crate::lease::{AckOutcome, ChangeArgs, ChangeOutcome, ChangedBy, LeaseRef, schema};
use crate::store::{Admit, Batch, Commit};

/// The delivery that a receipt handle names.
pub type HandleRef = LeaseRef;

/// A change of one message's invisible duration.
#[derive(Debug, Clone, Copy)]
pub struct ChangeEntry {
    /// Which delivery.
    pub handle: HandleRef,
    /// New invisible duration from now, milliseconds; 0 or less = visible at once.
    pub invisible_ms: i64,
    /// Whether the next delivery counts as one more attempt.
    pub count: bool,
    /// On whose behalf.
    pub by: ChangedBy,
}

impl Core {
    /// Acknowledges deliveries; what is answered is durable. One outcome per handle, in order.
    ///
    /// # Errors
    /// The whole request fails if the topic does not exist or the store takes no writes; nothing was changed then.
    pub async fn ack(&self, group: &str, topic: &str, handles: &[HandleRef]) -> Result<Vec<AckOutcome>, BrokerError> {
        let Some(consumer) = self.consumer(group, topic)? else {
            return Ok(vec![AckOutcome::Unknown; handles.len()]);
        };
        self.store.admit(Admit::State)?;
        let (outcomes, commit) = {
            let mut changes = Vec::with_capacity(handles.len());
            let Some(mut ledger) = consumer.open_ledger() else {
                return Ok(vec![AckOutcome::Unknown; handles.len()]);
            };
            let outcomes = ledger.ack_many(self.now(), handles, &mut changes);
            (outcomes, self.submit_if_any(&consumer, &changes))
        };
        self.on_disk(commit, outcomes.contains(&AckOutcome::AlreadyDone)).await?;
        let woken: BTreeSet<u32> = outcomes
            .iter()
            .zip(handles)
            .filter(|(outcome, _)| matches!(outcome, AckOutcome::Acked { wake: true }))
            .map(|(_, handle)| handle.queue)
            .collect();
        for queue in woken {
            consumer.waiters.ring(queue);
        }
        let acked = outcomes.iter().filter(|outcome| matches!(outcome, AckOutcome::Acked { .. })).count();
        self.metrics.acked(acked as u64, (outcomes.len() - acked) as u64);
        Ok(outcomes)
    }

    /// Changes invisible durations; what is answered is durable. One outcome per entry, in order.
    ///
    /// # Errors
    /// As [`Core::ack`].
    pub async fn change(
        &self,
        group: &str,
        topic: &str,
        entries: &[ChangeEntry],
    ) -> Result<Vec<ChangeOutcome>, BrokerError> {
        let Some(consumer) = self.consumer(group, topic)? else {
            return Ok(vec![ChangeOutcome::Unknown; entries.len()]);
        };
        self.store.admit(Admit::State)?;
        let (outcomes, commit) = self.submit_changes(&consumer, entries);
        self.on_disk(commit, outcomes.contains(&ChangeOutcome::AlreadyDone)).await?;
        let changed = outcomes.iter().filter(|outcome| matches!(outcome, ChangeOutcome::Changed { .. })).count();
        self.metrics.changed(changed as u64, (outcomes.len() - changed) as u64);
        Ok(outcomes)
    }

    /// Waits for what was submitted, and for what it repeats: a repetition hears that it is done, so the first must be on disk, too.
    async fn on_disk(&self, commit: Option<Commit>, repeats: bool) -> Result<(), BrokerError> {
        match commit {
            Some(commit) => drop(commit.await?),
            None if repeats => drop(self.store.settled().await?),
            None => {}
        }
        Ok(())
    }

    /// Changes leases in memory and hands the batch to the store. A poll whose timer would now be too late looks again.
    pub(super) fn submit_changes(
        &self,
        consumer: &Arc<GroupTopic>,
        entries: &[ChangeEntry],
    ) -> (Vec<ChangeOutcome>, Option<Commit>) {
        let args: Vec<ChangeArgs> = entries
            .iter()
            .map(|entry| ChangeArgs {
                lease: entry.handle,
                invisible_ms: entry.invisible_ms,
                count: entry.count,
                by: entry.by,
            })
            .collect();
        let mut changes = Vec::with_capacity(args.len());
        let Some(mut ledger) = consumer.open_ledger() else {
            return (vec![ChangeOutcome::Unknown; entries.len()], None);
        };
        let outcomes = ledger.change_many(self.now(), &args, &mut changes);
        let commit = self.submit_if_any(consumer, &changes);
        let earliest = outcomes.iter().filter_map(deadline).min();
        if earliest.is_some_and(|deadline| deadline < consumer.armed_ms.load(Ordering::Relaxed)) {
            consumer.waiters.ring_all();
        } else if earliest.is_some() {
            consumer.waiters.tell();
        }
        (outcomes, commit)
    }

    /// Submits changes of which each counts by itself: as one batch, unless they are too many for one. What is answered is the last of
    /// them; it is committed only if all are.
    pub(super) fn submit_if_any(&self, consumer: &GroupTopic, changes: &[crate::lease::Change]) -> Option<Commit> {
        let parts = changes.chunks(self.rows_at_once());
        let submit = |part| {
            let mut batch = Batch::new();
            schema::record(&mut batch, consumer.group, consumer.topic, part);
            self.store.submit(batch)
        };
        parts.map(submit).last()
    }

    /// The ledger that handles of this group and topic belong to; `None` if the group never read the topic.
    pub(super) fn consumer(&self, group: &str, topic: &str) -> Result<Option<Arc<GroupTopic>>, BrokerError> {
        let topic = self.topic(topic)?;
        let Some(group) = self.catalog.group(group) else { return Ok(None) };
        Ok(self.existing_ledger(group.id, topic.id))
    }
}

fn deadline(outcome: &ChangeOutcome) -> Option<i64> {
    match outcome {
        ChangeOutcome::Changed { pop_time_ms, invisible_ms } => Some(pop_time_ms.saturating_add(*invisible_ms)),
        _ => None,
    }
}
