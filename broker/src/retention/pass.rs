//! One look at the log, and what comes of it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::plan::{By, Cause, Plan, Policy, Promise, arrival, plan};
use crate::Broker;
use crate::config::BrokerConfig;
use crate::error::BrokerError;
use crate::store::{Health, Keyspace, SegmentInfo, Store};

/// How often it is looked whether anything may go. Costs next to nothing.
const LOOK: Duration = Duration::from_secs(1);
/// How long segments gather after some went: all that still holds is said again once for all that go together.
const GATHER: Duration = Duration::from_secs(10);
/// When it is tried again after nothing could go that should.
const RETRY: Duration = Duration::from_secs(60);
/// How often it is looked for old messages of topics with a time of their own.
const OF_TOPICS: Duration = Duration::from_secs(60);
/// How often it is told that there is too little space.
const TELL: Duration = Duration::from_secs(60);
/// What goes must be so many times what is said again for it; else the log would grow by being shortened.
const WORTH: u64 = 2;

/// What a look at the log came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retained {
    /// Segments that went.
    pub dropped: usize,
    /// Segments that would have gone if nothing in them, or before them, were promised.
    pub held_back: usize,
    /// What for.
    pub held_by: Option<By>,
    /// Segments that may go and wait for others, because they are little beside what would have to be written for it.
    pub postponed: usize,
}

/// What is remembered from one look to the next.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    last: Retained,
    /// When it was last told that there is too little space.
    told: Option<Instant>,
    /// Bytes that had to be said again the last time.
    restated_bytes: u64,
}

impl Broker {
    /// Looks once a second whether messages are to go, until the broker stops.
    pub(crate) async fn keep_log_short(self: &Arc<Self>) {
        let (mut topics_at, mut log_at) = (Instant::now(), Instant::now());
        loop {
            if Instant::now() >= topics_at {
                topics_at = Instant::now() + OF_TOPICS;
                if let Err(error) = self.drop_old_of_topics().await {
                    warn!(%error, "old messages of topics with a reserve.time could not be dropped; it will be tried again");
                }
            }
            if Instant::now() >= log_at {
                let retained = match self.shorten_log().await {
                    Ok(retained) => Some(retained),
                    Err(error) => {
                        if !self.is_stopping() {
                            warn!(%error, "old messages could not be dropped; it will be tried again");
                        }
                        None
                    }
                };
                let full = self.core().store().health() == Health::DiskFull;
                log_at = Instant::now() + pause(retained, full);
            }
            tokio::select! {
                () = self.stopping().cancelled() => return,
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    /// Drops the messages that are to go by the rules of [`crate::retention`]. [`Broker::keep_house`] calls it when it is time.
    ///
    /// # Errors
    /// The store takes no writes or cannot be read. It can be tried again.
    pub async fn shorten_log(&self) -> Result<Retained, BrokerError> {
        let core = self.core();
        let store = core.store();
        if matches!(store.health(), Health::Failed(_)) || self.is_stopping() {
            return Ok(Retained::default());
        }
        let policy = policy(&self.in_force());
        let disk = if policy.disk_max_percent < 100 { Some(store.disk_usage()?) } else { None };
        let plan = |promise| plan(self.now(), policy, &store.segments(), disk, promise);
        let wanted = plan(None);
        if wanted.drop.is_empty() {
            if wanted.excess > 0 || wanted.filled_by_others {
                self.tell_of_excess(&wanted, policy, None);
            }
            return Ok(self.remember(Retained::default()));
        }

        let held = store.held().await?;
        let of_store = held.lowest().map(|(position, keyspace)| {
            let by = if keyspace == Keyspace::Half { By::Half } else { By::Timer };
            Promise { position, by }
        });
        let is_full = store.health() == Health::DiskFull;
        let of_store = of_store.into_iter().chain(arrival(self.now(), is_full, &store.segments())).min();
        let restated_bytes = self.retention().lock().restated_bytes;
        let is_little = |plan: &Plan| {
            let little = !plan.drop.is_empty() && plan.bytes() < WORTH * restated_bytes;
            if little {
                debug!(
                    bytes = plan.bytes(),
                    restated_bytes, "too little to drop for what would have to be written for it"
                );
            }
            little
        };
        let free = plan(of_store);
        if is_little(&free) {
            return Ok(self.remember(Retained { postponed: free.drop.len(), ..Retained::default() }));
        }
        // No more leases are given on what is to go, else a group that is far behind would hold it for ever.
        let held = match free.start() {
            Some(start) => {
                let cut = store.cut(held, start).await?;
                core.leave_behind(cut.mins()).await?;
                cut.into_held()
            }
            None => held,
        };
        let leased = core.lowest_leased().await?.map(|position| Promise { position, by: By::Lease });
        let promise = of_store.into_iter().chain(leased).min();
        let plan = plan(promise);
        let held_by = promise.map(|promise| promise.by).filter(|_| plan.held_back > 0);
        let nothing = Retained { held_back: plan.held_back, held_by, ..Retained::default() };
        if plan.excess > 0 || plan.filled_by_others {
            self.tell_of_excess(&plan, policy, held_by);
        }
        let Some(start) = plan.start() else {
            debug!(
                segments = plan.held_back,
                by = held_by.map(By::word),
                "old messages stay because some are promised"
            );
            return Ok(self.remember(nothing));
        };
        if is_little(&plan) {
            return Ok(self.remember(Retained { postponed: plan.drop.len(), ..nothing }));
        }

        let cut = store.cut(held, start).await?;
        if !core.leave_behind(cut.mins()).await? {
            let held_back = plan.held_back + plan.drop.len();
            return Ok(self.remember(Retained { held_back, held_by: Some(By::Lease), ..Retained::default() }));
        }
        let done = store.shorten(cut).await?;
        self.retention().lock().restated_bytes = done.restated_bytes;
        let gone: Vec<_> = plan.drop.iter().filter(|(segment, _)| segment.end <= done.start).copied().collect();
        self.tell_what_went(&gone, done.restated_bytes, store);
        Ok(self.remember(Retained { dropped: gone.len(), ..nothing }))
    }

    /// Drops the old messages of topics with a `reserve.time`. [`Broker::keep_house`] calls it once a minute.
    ///
    /// # Errors
    /// As of [`Broker::shorten_log`].
    pub async fn drop_old_of_topics(&self) -> Result<u64, BrokerError> {
        let core = self.core();
        if matches!(core.store().health(), Health::Failed(_)) || self.is_stopping() {
            return Ok(0);
        }
        let messages = core.drop_old_of_topics().await?;
        if messages > 0 {
            self.metrics().dropped_of_topics(messages);
            info!(messages, "messages older than the reserve.time of their topic are dropped");
        }
        Ok(messages)
    }

    /// What the last look at the log came to.
    pub(crate) fn retained(&self) -> Retained {
        self.retention().lock().last
    }

    fn remember(&self, retained: Retained) -> Retained {
        self.retention().lock().last = retained;
        retained
    }

    fn tell_what_went(&self, gone: &[(SegmentInfo, Cause)], restated_bytes: u64, store: &Store) {
        let mut messages = 0;
        for (segment, cause) in gone {
            messages += segment.messages;
            self.metrics().dropped(*cause, segment.end.saturating_sub(segment.base), segment.messages);
        }
        let by_age = gone.iter().filter(|(_, cause)| *cause == Cause::Age).count();
        let stats = store.stats();
        info!(
            segments = gone.len(),
            by_age,
            by_disk = gone.len() - by_age,
            messages,
            restated_bytes,
            log_end = stats.log_end,
            "the oldest messages are dropped"
        );
    }

    fn tell_of_excess(&self, plan: &Plan, policy: Policy, held_by: Option<By>) {
        let told = self.retention().lock().told.replace(Instant::now());
        if let Some(told) = told.filter(|told| told.elapsed() < TELL) {
            self.retention().lock().told = Some(told);
            return;
        }
        let Plan { excess, held_back, filled_by_others, .. } = plan;
        let (ratio, longest) = (policy.disk_max_percent, policy.log_bytes_max);
        match held_by {
            _ if *filled_by_others => warn!(
                ratio,
                "the disk is fuller than diskMaxUsedSpaceRatio without any message of this broker; of its own it drops no more than to a twentieth of the disk"
            ),
            Some(by) => warn!(
                excess,
                ratio,
                longest,
                segments = held_back,
                by = by.word(),
                "the log takes more of the disk than it may, and what is old cannot go because some of it is promised"
            ),
            None => warn!(
                excess,
                ratio,
                longest,
                "the log takes more of the disk than it may even if all goes that is not being written; the limits are too small for mappedFileSizeCommitLog"
            ),
        }
    }
}

/// How long to wait until the next look. `retained`: what this one came to, if it did not fail.
fn pause(retained: Option<Retained>, disk_full: bool) -> Duration {
    match retained {
        Some(Retained { dropped: 0, held_back: 0, postponed: 0, .. }) => LOOK,
        // Nobody can send until something goes: what it is held for may end at any time.
        _ if disk_full => GATHER,
        Some(Retained { dropped: 0, held_by, .. }) if held_by != Some(By::Lease) => RETRY,
        Some(_) => GATHER,
        None => RETRY,
    }
}

/// How long messages are kept.
fn policy(config: &BrokerConfig) -> Policy {
    Policy {
        age_ms: i64::try_from(config.file_reserved_time.saturating_mul(3_600_000)).unwrap_or(i64::MAX),
        disk_max_percent: config.disk_max_used_space_ratio,
        log_bytes_max: config.log_bytes_max,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_looked_at_again_soon() {
        let held = Retained { held_back: 3, held_by: Some(By::Timer), ..Retained::default() };
        assert_eq!(pause(Some(held), false), RETRY);
        assert_eq!(pause(Some(held), true), GATHER, "what is delayed may be due in a moment");
        assert_eq!(pause(Some(Retained { postponed: 1, ..Retained::default() }), true), GATHER);
        assert_eq!(pause(None, true), GATHER);
        assert_eq!(pause(None, false), RETRY);
        assert_eq!(pause(Some(Retained::default()), false), LOOK);
    }
}
