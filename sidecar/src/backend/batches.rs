//! How what has gathered goes to a broker: as one request, or as many where it must.

use std::sync::Arc;

use super::{
    change::WantedChange,
    error::BackendError,
    leases::{Handed, LeaseResult, Wish},
    metrics::{Fallback, LeaseOutcome},
    peers::Feature,
    service::MessageService,
};
use crate::{
    batching::{Caller, Carrier, Gatherer, Kind, NotSent, Plan, Sending, Target, core::Item},
    limits,
};

/// A broker that refuses more entries than this is believed to take fewer. Below, it is rather one entry that it
/// refuses them for.
const LEARN_ABOVE: usize = 32;

/// What a broker said to a request with many leases.
pub(super) enum BatchAnswer {
    /// One result for each.
    Each(Vec<LeaseResult>),
    /// The same for all.
    All(BackendError),
    /// It does not know such requests. Nothing was done (or an ack, which may be repeated).
    NotSupported,
    /// It does not take the request as a whole, fewer perhaps. Nothing was done (or an ack, which may be repeated).
    TooLarge,
}

fn wanted_change(entry: &Handed) -> Option<WantedChange<'_>> {
    match entry.wish {
        Wish::Change { invisible_ms, suspend } => Some((&entry.lease, invisible_ms, suspend, entry.caller)),
        Wish::Ack => None,
    }
}

fn feature(kind: Kind) -> Feature {
    match kind {
        Kind::Ack => Feature::BatchAckResults,
        Kind::Change => Feature::BatchChange,
    }
}

impl Carrier for MessageService {
    type Entry = Handed;

    fn gatherer(&self) -> &Gatherer<Handed> {
        &self.inner.gathered
    }

    fn plan(&self, broker: &str) -> Plan {
        Plan {
            acks: self.sending(broker, Kind::Ack),
            changes: self.sending(broker, Kind::Change),
            singly: self.fallback_concurrency(),
            batches_of_target: limits::BATCHES_OF_TARGET_IN_FLIGHT,
            batches: limits::BATCHES_IN_FLIGHT,
        }
    }

    async fn send(&self, broker: &Arc<str>, target: &Target, items: Vec<Item<Handed>>) -> Vec<Item<Handed>> {
        let items = self.hopeful(items);
        self.count_request(target.kind, &items);
        if items.len() > 1 {
            return self.send_batch(broker, target.kind, items).await;
        }
        for item in items {
            let result = self.send_one(&item.value).await;
            self.conclude(item.value, result);
        }
        Vec::new()
    }

    fn not_sent(&self, entry: Handed, why: NotSent) {
        let (outcome, error) = match why {
            NotSent::Full => (LeaseOutcome::Full, "too many leases wait to be changed or ended at this broker"),
            NotSent::Late => (LeaseOutcome::Late, "the broker does not keep up"),
        };
        self.inner.metrics.lease(entry.kind(), entry.caller, outcome);
        entry.tell(Err(BackendError::Busy(error.to_owned())));
    }

    fn waiting(&self, entries: usize) {
        self.inner.metrics.leases_wait(entries);
    }
}

impl MessageService {
    /// How leases go to a broker at this moment: as the configuration wants, and the broker can.
    pub(super) fn sending(&self, broker: &str, kind: Kind) -> Sending {
        let config = self.inner.config.get();
        let enabled = match kind {
            Kind::Ack => config.enable_batch_ack,
            Kind::Change => config.enable_batch_change_invisible_time,
        };
        if !enabled {
            return Sending::Singly;
        }
        match self.most(broker, feature(kind)) {
            0 => Sending::Singly,
            most => {
                let entries = usize::try_from(config.batch_change_invisible_time_max_num).unwrap_or(1);
                Sending::Batches { entries: entries.min(most).max(1), bytes: limits::BATCH_BODY_BYTES }
            }
        }
    }

    /// Requests at the same time where leases go one by one.
    pub(super) fn fallback_concurrency(&self) -> usize {
        usize::try_from(self.inner.config.get().backend_fallback_concurrency).unwrap_or(1)
    }

    /// Those that are still worth sending, with their newest handles: they may have waited for the answer to a change
    /// of the same lease.
    fn hopeful(&self, items: Vec<Item<Handed>>) -> Vec<Item<Handed>> {
        let mut hopeful = Vec::with_capacity(items.len());
        for mut item in items {
            self.inner.superseded.renew(&mut item.value.lease);
            match self.refuse_hopeless(&item.value.lease) {
                Ok(()) => hopeful.push(item),
                Err(error) => self.conclude(item.value, Err(error)),
            }
        }
        hopeful
    }

    async fn send_one(&self, entry: &Handed) -> LeaseResult {
        match entry.wish {
            Wish::Ack => self.ack_one(&entry.lease).await.map(|()| entry.lease.handle.clone()),
            Wish::Change { invisible_ms, suspend } => {
                self.change_one((&entry.lease, invisible_ms, suspend, entry.caller)).await
            }
        }
    }

    async fn send_batch(&self, broker: &str, kind: Kind, items: Vec<Item<Handed>>) -> Vec<Item<Handed>> {
        let answer = match kind {
            Kind::Ack => {
                let leases: Vec<_> = items.iter().map(|item| &item.value.lease).collect();
                self.ack_batch(&leases).await
            }
            Kind::Change => {
                let changes: Vec<_> = items.iter().filter_map(|item| wanted_change(&item.value)).collect();
                self.change_batch(&changes).await
            }
        };
        match answer {
            BatchAnswer::Each(results) => {
                let results =
                    results.into_iter().chain(std::iter::repeat_with(|| Err(BackendError::unanswered_entry())));
                for (item, result) in items.into_iter().zip(results) {
                    self.conclude(item.value, result);
                }
                Vec::new()
            }
            BatchAnswer::All(error) => {
                for item in items {
                    self.conclude(item.value, Err(error.clone()));
                }
                Vec::new()
            }
            BatchAnswer::NotSupported => {
                self.learn(broker, kind, 0, Fallback::NotSupported);
                items
            }
            BatchAnswer::TooLarge => {
                let most = (items.len() / 2).max(1);
                if items.len() > LEARN_ABOVE {
                    self.learn(broker, kind, most, Fallback::TooLarge);
                } else {
                    self.inner.metrics.fell_back(kind, Fallback::TooLarge);
                }
                items.into_iter().map(|item| Item { most: item.most.min(most), ..item }).collect()
            }
        }
    }

    fn learn(&self, broker: &str, kind: Kind, most: usize, why: Fallback) {
        self.inner.metrics.fell_back(kind, why);
        if self.learn_most(broker, feature(kind), most) {
            let requests = match kind {
                Kind::Ack => "acks",
                Kind::Change => "changes of invisible durations",
            };
            match most {
                0 => tracing::info!(broker, requests, "the broker does not take batches; they go one by one"),
                most => tracing::info!(broker, requests, most, "the broker takes smaller batches only"),
            }
        }
    }

    /// Keeps what the result says, and tells the caller.
    fn conclude(&self, entry: Handed, result: LeaseResult) {
        let outcome = if result.is_ok() { LeaseOutcome::Ok } else { LeaseOutcome::Failed };
        self.inner.metrics.lease(entry.kind(), entry.caller, outcome);
        match (&result, entry.wish) {
            (Ok(_), Wish::Ack) => self.inner.superseded.finished(&entry.lease),
            (Ok(newest), Wish::Change { .. }) => {
                self.inner.superseded.replaced(&entry.lease, newest, self.inner.clock.now_ms());
            }
            (Err(_), _) => {}
        }
        entry.tell(result);
    }

    fn count_request(&self, kind: Kind, items: &[Item<Handed>]) {
        let Some(oldest) = items.iter().map(|item| item.value.since).min() else { return };
        let callers = Caller::ALL.into_iter().filter(|caller| items.iter().any(|item| item.value.caller == *caller));
        self.inner.metrics.lease_request(kind, items.len(), callers, oldest.elapsed());
    }
}
