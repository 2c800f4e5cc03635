//! Which of several operators works: the one whose name is in a Lease. The others watch it, and one of them takes its place when it
//! gives the Lease up, or has not renewed it for as long as it lasts.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};
use waybill_ops::clock::Clock;

use crate::api::FIELD_MANAGER;
use crate::term::{Asked, Term};

/// The name of the Lease.
pub const LEASE: &str = "waybill-operator";

/// How long things take.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// A Lease that was not renewed for so long is free.
    pub lasts: Duration,
    /// From one renewal to the next. A third of the above lets two of them fail.
    pub renew: Duration,
    /// From one look at somebody else's Lease to the next.
    pub look: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self { lasts: Duration::from_secs(15), renew: Duration::from_secs(5), look: Duration::from_secs(2) }
    }
}

/// Somebody else leads now, or the API server could not be reached for so long that somebody else may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("another operator leads, or may lead, now")]
pub struct Lost;

/// A candidate.
pub struct Election {
    api: Api<Lease>,
    identity: String,
    clock: Arc<dyn Clock>,
    timing: Timing,
    term: Term,
}

impl std::fmt::Debug for Election {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Election").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// The Lease as it was seen last, and since when it is so. Clocks of other machines are not believed.
type Seen = Option<(String, Instant)>;

enum Taken {
    /// It is ours.
    Ours,
    /// It is this one's.
    Theirs(String),
}

impl Election {
    /// A candidate of this name for the Lease in `namespace`. Two that run at once never have the same name; one that was started again
    /// in the same place should have the one from before, and goes on at once.
    #[must_use]
    pub fn new(client: Client, namespace: &str, identity: String, clock: Arc<dyn Clock>, timing: Timing) -> Self {
        let term = Term::of(timing.lasts, clock.clone());
        Self { api: Api::namespaced(client, namespace), identity, clock, timing, term }
    }

    /// For how long this one certainly leads.
    #[must_use]
    pub fn term(&self) -> Term {
        self.term.clone()
    }

    /// Waits for the Lease, does `work` while it holds it, and gives it up afterwards. `work` is given a token that is cancelled with
    /// `stop`, and is dropped where it stands if the Lease is lost.
    ///
    /// # Errors
    /// [`Lost`].
    pub async fn lead<F, W>(self, stop: &CancellationToken, work: F) -> Result<(), Lost>
    where
        F: FnOnce(CancellationToken) -> W,
        W: Future<Output = ()>,
    {
        let mut seen = None;
        let mut renewed = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            asked = self.until_ours(&mut seen) => asked,
        };
        info!(identity = self.identity, "leads");
        self.term.renewed(&renewed);
        let mut work = std::pin::pin!(work(stop.child_token()));
        loop {
            tokio::select! {
                () = &mut work => break,
                () = sleep(self.timing.renew) => {}
            }
            let asked = self.term.asks();
            match timeout(self.timing.renew, self.take(&mut seen)).await {
                Ok(Ok(Taken::Ours)) => {
                    self.term.renewed(&asked);
                    renewed = asked;
                }
                Ok(Ok(Taken::Theirs(holder))) => {
                    warn!(holder, "the lease was taken over");
                    self.term.ends();
                    return Err(Lost);
                }
                Ok(Err(error)) => warn!(%error, "the lease could not be renewed"),
                Err(_elapsed) => warn!("the lease could not be renewed in time"),
            }
            // With what the next renewal may take, it would be too late to notice then.
            if renewed.elapsed() + self.timing.renew >= self.timing.lasts {
                return Err(Lost);
            }
        }
        self.term.ends();
        self.give_up().await;
        Ok(())
    }

    /// When the Lease was asked for that is ours now.
    async fn until_ours(&self, seen: &mut Seen) -> Asked {
        let mut known = None;
        loop {
            let asked = self.term.asks();
            match timeout(self.timing.lasts, self.take(seen)).await {
                Ok(Ok(Taken::Ours)) => return asked,
                Ok(Ok(Taken::Theirs(holder))) => {
                    if known.as_ref() != Some(&holder) {
                        info!(holder, "another operator leads");
                        known = Some(holder);
                    }
                }
                Ok(Err(error)) => debug!(%error, "the lease could not be taken"),
                Err(_elapsed) => warn!("the API server does not answer"),
            }
            sleep(self.timing.look).await;
        }
    }

    /// Takes or renews the Lease if it is ours, free or left behind.
    async fn take(&self, seen: &mut Seen) -> Result<Taken, kube::Error> {
        let Some(lease) = self.api.get_opt(LEASE).await? else {
            let new = json!({ "metadata": { "name": LEASE }, "spec": self.spec(true, 0) });
            let new: Lease = serde_json::from_value(new).map_err(kube::Error::SerdeError)?;
            self.api
                .create(&PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() }, &new)
                .await?;
            return Ok(Taken::Ours);
        };
        let version = lease.resource_version().unwrap_or_default();
        let known = seen.as_ref().filter(|(known, _)| *known == version).map(|(_, since)| *since);
        let since = known.unwrap_or_else(|| seen.insert((version.clone(), Instant::now())).1);
        let spec = lease.spec.unwrap_or_default();
        let holder = spec.holder_identity.unwrap_or_default();
        let lasts = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let lasts = lasts.map_or(self.timing.lasts, Duration::from_secs);
        let ours = holder == self.identity;
        if !ours && !holder.is_empty() && since.elapsed() < lasts {
            return Ok(Taken::Theirs(holder));
        }
        let transitions = spec.lease_transitions.unwrap_or(0).saturating_add(i32::from(!ours));
        // The version makes sure that of two that take it only one succeeds.
        let patch = json!({ "metadata": { "resourceVersion": version }, "spec": self.spec(!ours, transitions) });
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        self.api.patch(LEASE, &params, &Patch::Merge(patch)).await?;
        Ok(Taken::Ours)
    }

    fn spec(&self, acquired: bool, transitions: i32) -> Value {
        let now = Timestamp::from_millisecond(self.clock.now_ms()).unwrap_or(Timestamp::UNIX_EPOCH);
        let mut spec = json!({
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self.timing.lasts.as_secs().max(1),
            "renewTime": MicroTime(now),
            "leaseTransitions": transitions,
        });
        if acquired {
            spec["acquireTime"] = json!(MicroTime(now));
        }
        spec
    }

    /// So that nobody has to wait for it to run out.
    async fn give_up(&self) {
        let release = async {
            let lease = self.api.get(LEASE).await?;
            if lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_ref()) != Some(&self.identity) {
                return Ok(());
            }
            let patch = json!({ "metadata": { "resourceVersion": lease.resource_version() }, "spec": { "holderIdentity": "" } });
            let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
            self.api.patch(LEASE, &params, &Patch::Merge(patch)).await.map(drop)
        };
        match timeout(self.timing.renew, release).await {
            Ok(Ok(())) => info!("leads no more"),
            Ok(Err(error)) => warn!(%error, "the lease could not be given up"),
            Err(_elapsed) => warn!("the lease could not be given up in time"),
        }
    }
}
