//! A Broker is a StatefulSet and what belongs to it.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use kube::runtime::controller::Action;
use kube::{Api, ResourceExt};
use tracing::warn;

use super::drain::{self, Drained};
use super::objects::{self, Refusal};
use super::pods::{self, Seen};
use super::status::{self, Outcome};
use super::{ApiError, Context, claims, key, while_doing};
use crate::api::{Broker, BrokerStatus, Reason};
use crate::build::{self, Standing};
use crate::place::{BROKER_ADMIN_PORT, broker_set};

/// Makes the pods of a Broker as the resource says, and tells in its status how far they are.
///
/// # Errors
/// The API server does not do its part.
pub async fn reconcile_broker(broker: Arc<Broker>, context: Arc<Context>) -> Result<Action, ApiError> {
    if broker.metadata.deletion_timestamp.is_some() {
        // What it owns goes by itself.
        return Ok(Action::await_change());
    }
    let set = read_set(&broker, &context).await?;
    let mut before = Counts::of(set.as_ref());
    if set.is_none() {
        // Somebody took it away, perhaps while brokers were to go: those are to be drained all the same.
        before.asked = broker.status.as_ref().map_or(0, |status| status.replicas);
    }
    let came = match converge(&broker, &context, &before).await {
        Ok(came) => came,
        Err(Stopped::Refusal(Refusal::Api(error))) => return Err(error),
        Err(Stopped::Refusal(Refusal::Taken(message))) => Came::stopped(before, Reason::ObjectConflict, message),
        Err(Stopped::Refusal(Refusal::Refused(message))) => Came::stopped(before, Reason::ObjectRefused, message),
        Err(Stopped::Invalid(message)) => Came::stopped(before, Reason::InvalidSpec, message),
    };
    tell(&broker, &context, &came).await?;
    let pace = context.pace;
    Ok(match came.outcome.reason {
        Reason::PodsReady => pace.resync(&key(&*broker)),
        Reason::RollingOut | Reason::PodsNotReady | Reason::ConfigurationPending | Reason::DrainingBroker => {
            Action::requeue(pace.under_way)
        }
        Reason::RolloutStopped | Reason::ConfigurationRefused => Action::requeue(pace.under_way * 5),
        _needs_somebody => Action::requeue(pace.retry_max),
    })
}

/// What to do when the API server did not do its part.
pub fn on_broker_error(broker: Arc<Broker>, error: &ApiError, context: Arc<Context>) -> Action {
    warn!(resource = key(&*broker), %error, "tried again");
    super::after_api_error(error, context.pace)
}

async fn read_set(broker: &Broker, context: &Context) -> Result<Option<StatefulSet>, ApiError> {
    let api: Api<StatefulSet> = Api::namespaced(context.client.clone(), &broker.namespace().unwrap_or_default());
    api.get_opt(&broker_set(&broker.name_any())).await.map_err(while_doing("read the StatefulSet"))
}

/// What a StatefulSet says of itself.
#[derive(Debug, Clone, Default)]
struct Counts {
    /// How many pods it is to have.
    asked: i32,
    /// How many there are, those that end included.
    there: i32,
    ready: i32,
    updated: i32,
    /// The revision that its pods are to have.
    revision: String,
    /// The controller of StatefulSets has seen the newest one.
    seen: bool,
    volume_size: Option<String>,
}

impl Counts {
    fn of(set: Option<&StatefulSet>) -> Self {
        let Some(set) = set else { return Self::default() };
        let (spec, status) = (set.spec.clone().unwrap_or_default(), set.status.clone().unwrap_or_default());
        let claim = spec.volume_claim_templates.unwrap_or_default().into_iter().next().and_then(|claim| claim.spec);
        let requests = claim.and_then(|claim| claim.resources?.requests);
        Self {
            asked: spec.replicas.unwrap_or(1),
            there: status.replicas,
            ready: status.ready_replicas.unwrap_or(0),
            updated: status.updated_replicas.unwrap_or(0),
            revision: status.update_revision.unwrap_or_default(),
            seen: status.observed_generation >= set.metadata.generation,
            volume_size: requests.and_then(|mut requests| requests.remove("storage")).map(|size| size.0),
        }
    }

    fn standing(&self) -> Standing {
        Standing { pods: self.asked.max(self.there), volume_size: self.volume_size.clone() }
    }
}

/// Why a reconciliation went no further.
enum Stopped {
    /// The resource asks for what cannot be.
    Invalid(String),
    Refusal(Refusal),
}

impl From<Refusal> for Stopped {
    fn from(refusal: Refusal) -> Self {
        Self::Refusal(refusal)
    }
}

impl From<ApiError> for Stopped {
    fn from(error: ApiError) -> Self {
        Self::Refusal(Refusal::Api(error))
    }
}

/// What came of it.
struct Came {
    outcome: Outcome,
    counts: Counts,
    /// The hash of the configuration; empty: as before.
    configuration: String,
    /// None: they were not looked at.
    pods: Option<Vec<Seen>>,
}

impl Came {
    fn stopped(counts: Counts, reason: Reason, message: String) -> Self {
        Self { outcome: Outcome { reason, message }, counts, configuration: String::new(), pods: None }
    }
}

/// Validate, build, apply; drain what is to go.
async fn converge(broker: &Broker, context: &Context, before: &Counts) -> Result<Came, Stopped> {
    let standing = before.standing();
    let namespace = broker.namespace().unwrap_or_default();
    let build = |replicas| {
        build::broker(broker, &context.images, &standing, replicas)
            .map_err(|invalid| Stopped::Invalid(invalid.to_string()))
    };
    let wanted = broker.spec.replicas;
    let objects = build(wanted.max(before.asked))?;
    objects::apply_all(broker, context, &objects.around).await?;
    let selector = build::selector("broker", &broker.name_any());
    let pods = pods::look_at(context, &namespace, &selector, BROKER_ADMIN_PORT).await?;
    pods::hurry(context, &pods, &objects.configuration).await?;
    let drained = drain::step(broker, context, before.asked).await;
    let set = match drained.replicas {
        replicas if replicas == wanted.max(before.asked) => objects.set,
        fewer => build(fewer)?.set,
    };
    let live = objects::apply_all(broker, context, std::slice::from_ref(&set)).await?;
    claims::grow(broker, context, before.volume_size.as_deref()).await?;
    let live = live.into_iter().next().unwrap_or_default();
    let counts = Counts::of(serde_json::from_value(live).ok().as_ref());
    clear_the_way(context, &namespace, &pods, &counts).await?;
    let outcome = outcome(&pods, &counts, &drained, &objects.configuration);
    Ok(Came { outcome, counts, configuration: objects.configuration, pods: Some(pods) })
}

/// A pod that fails and is not what is asked for any more is deleted, so that the correction of a mistake needs no hands: the
/// controller of StatefulSets waits for it. One at a time, and none while a pod of what is asked for now is not ready: if that does
/// not come, no other pod is to follow it.
async fn clear_the_way(context: &Context, namespace: &str, pods: &[Seen], counts: &Counts) -> Result<(), ApiError> {
    const REVISION: &str = "controller-revision-hash";
    let updated = |seen: &Seen| seen.pod.labels().get(REVISION).is_some_and(|revision| *revision == counts.revision);
    if !counts.seen || counts.revision.is_empty() || pods.iter().any(|seen| updated(seen) && !seen.ready()) {
        return Ok(());
    }
    let stuck = |seen: &&Seen| !updated(seen) && !seen.ready() && !seen.ends() && seen.failure().is_some();
    match pods.iter().filter(stuck).max_by_key(|seen| number_of(&seen.name())) {
        Some(seen) => objects::delete_pod(&context.client, namespace, &seen.pod).await,
        None => Ok(()),
    }
}

/// The number at the end of a pod's name.
fn number_of(pod: &str) -> i32 {
    pod.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(-1)
}

fn outcome(pods: &[Seen], counts: &Counts, drained: &Drained, configuration: &str) -> Outcome {
    let Counts { asked, ready, updated, seen, .. } = *counts;
    let those = |is: &dyn Fn(&Seen) -> bool| -> Vec<String> {
        pods.iter().filter(|pod| !pod.ends() && is(pod)).map(Seen::name).collect()
    };
    let failure = |of: &dyn Fn(&Seen) -> Option<String>| {
        pods.iter().filter(|pod| !pod.ends()).find_map(|pod| Some(format!("{}: {}", pod.name(), of(pod)?)))
    };
    let counted = format!("{ready} of {asked} pods are ready");
    let (reason, message) = if let Some(refusal) = failure(&|pod| pod.refusal().map(str::to_owned)) {
        (Reason::ConfigurationRefused, refusal)
    } else if let Some(failure) = failure(&Seen::failure) {
        (Reason::RolloutStopped, failure)
    } else if let Some(waits) = &drained.waits {
        (Reason::DrainingBroker, waits.clone())
    } else if counts.there > asked {
        (Reason::RollingOut, format!("{} of {} pods go", counts.there - asked, counts.there))
    } else if !seen || updated < asked || counts.there < asked {
        (Reason::RollingOut, format!("{updated} of {asked} pods are as they should be, {counted}"))
    } else if ready < asked {
        let unready = those(&|pod| !pod.ready());
        (Reason::PodsNotReady, format!("{counted}, not {}", unready.join(", ")))
    } else {
        let behind = those(&|pod| pod.hash() != Some(configuration));
        if behind.is_empty() {
            (Reason::PodsReady, counted)
        } else {
            (Reason::ConfigurationPending, format!("not known to have the configuration yet: {}", behind.join(", ")))
        }
    };
    Outcome { reason, message }
}

/// Whether all brokers speak TLS: from the moment when all have the certificate, until there is to be none. Sidecars follow it, so it
/// does not come and go with later rollouts.
fn speaks_tls(broker: &Broker, reason: Reason) -> bool {
    let before = broker.status.as_ref().is_some_and(|before| before.tls);
    // All pods are ready, and as the resource asks now.
    let all = matches!(reason, Reason::PodsReady | Reason::ConfigurationPending);
    broker.spec.tls.is_some() && (before || all)
}

async fn tell(broker: &Broker, context: &Context, came: &Came) -> Result<(), ApiError> {
    let before = broker.status.as_ref();
    let generation = broker.metadata.generation.unwrap_or(0);
    let old = before.map_or(&[][..], |before| &before.conditions);
    let told = before.map_or(&[][..], |before| &before.pods);
    let configuration = match came.configuration.as_str() {
        "" => before.map(|before| before.configuration.clone()).unwrap_or_default(),
        hash => hash.to_owned(),
    };
    let pods = match &came.pods {
        None => told.to_vec(),
        Some(pods) => {
            let mut pods: Vec<&Seen> = pods.iter().filter(|pod| !pod.ends()).collect();
            pods.sort_by_key(|pod| number_of(&pod.name()));
            let told_of = |name: &str| told.iter().find(|told| told.name == name);
            pods.iter().map(|pod| pod.state(told_of(&pod.name()), &configuration, generation)).collect()
        }
    };
    // Pods are looked at when everything was applied.
    let volume_size = match &came.pods {
        Some(_) => Some(broker.spec.storage.size.clone()),
        None => before.and_then(|before| before.volume_size.clone()),
    };
    let now = BrokerStatus {
        observed_generation: generation,
        volume_size,
        replicas: came.counts.there,
        ready_replicas: came.counts.ready,
        updated_replicas: came.counts.updated,
        selector: build::selector("broker", &broker.name_any()),
        configuration,
        tls: speaks_tls(broker, came.outcome.reason),
        pods,
        conditions: status::conditions(old, &came.outcome, generation, context.clock.now_ms()),
    };
    if before != Some(&now) && status::write(broker, context, &now).await? {
        status::announce(broker, context, status::ready(old), &came.outcome).await;
    }
    Ok(())
}
