//! A Proxy is a Deployment and what belongs to it, and sidecars in pods of others.

use std::sync::Arc;
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tracing::warn;

use super::injection::{self, Injected};
use super::objects::{self, Refusal};
use super::pods::{self, Seen};
use super::status::{self, Outcome};
use super::{ApiError, Context, key, secured, while_doing};
use crate::api::{Condition, InjectedStatus, PodState, Proxy, ProxyStatus, Reason};
use crate::build::{self, Object, PROXY, ProxyObjects, Sources};
use crate::place;
use crate::run::Scope;

/// Who owns the number of proxies from the moment that an autoscaler is to decide it until that does.
const HANDS_OVER: &str = "waybill-operator-scale";
/// Pods that a message names.
const NAMED_MAX: usize = 3;
/// Pods that a status names.
const STATES_MAX: usize = 100;

/// What reconciliations of Proxies need.
#[derive(Clone)]
pub struct Proxies {
    /// What all kinds need.
    pub context: Context,
    /// Where injected pods may be.
    pub scope: Scope,
}

/// Makes proxies and the configuration of sidecars as the resource says, and tells in its status how far they are.
///
/// # Errors
/// The API server does not do its part.
pub async fn reconcile_proxy(proxy: Arc<Proxy>, proxies: Arc<Proxies>) -> Result<Action, ApiError> {
    if proxy.metadata.deletion_timestamp.is_some() {
        // What it owns goes by itself, and what injected pods need when they do.
        return Ok(Action::await_change());
    }
    let context = &proxies.context;
    let came = match converge(&proxy, &proxies).await {
        Ok(came) => came,
        Err(Refusal::Api(error)) => return Err(error),
        Err(Refusal::Taken(message)) => Came::unmade(&proxy, Reason::ObjectConflict, message),
        Err(Refusal::Refused(message)) => Came::unmade(&proxy, Reason::ObjectRefused, message),
    };
    tell(&proxy, context, &came).await?;
    Ok(match came.outcome.reason {
        Reason::PodsReady | Reason::InjectionMissed => context.pace.resync(&key(&*proxy)),
        // How soon it gets there is seen only by asking.
        Reason::RollingOut | Reason::PodsNotReady | Reason::ConfigurationPending => {
            Action::requeue(again(&conditions(&proxy), context))
        }
        Reason::RolloutStopped | Reason::ConfigurationRefused => Action::requeue(context.pace.under_way * 5),
        _somebody_has_to_act => Action::requeue(context.pace.retry_max),
    })
}

/// What to do when the API server did not do its part.
pub fn on_proxy_error(proxy: Arc<Proxy>, error: &ApiError, proxies: Arc<Proxies>) -> Action {
    warn!(resource = key(&*proxy), %error, "tried again");
    super::after_api_error(error, proxies.context.pace)
}

/// What came of it.
struct Came {
    outcome: Outcome,
    status: ProxyStatus,
}

impl Came {
    /// Nothing was made; what was told of pods is still so, as far as is known.
    fn unmade(proxy: &Proxy, reason: Reason, message: String) -> Self {
        Self { outcome: Outcome { reason, message }, status: proxy.status.clone().unwrap_or_default() }
    }
}

/// Dereference, validate, apply, look.
async fn converge(proxy: &Proxy, proxies: &Proxies) -> Result<Came, Refusal> {
    let context = &proxies.context;
    let Some(sources) = sources(proxy, context).await? else {
        let name = proxy.spec.broker_ref.as_ref().map_or("", |broker| &broker.name);
        let message = format!("there is no Broker {name} in this namespace");
        return Ok(Came::unmade(proxy, Reason::BrokerNotFound, message));
    };
    let wanted = match build::proxy(proxy, &sources, &context.images) {
        Ok(wanted) => wanted,
        Err(invalid) => return Ok(Came::unmade(proxy, Reason::InvalidSpec, invalid.to_string())),
    };
    let deployment = apply(proxy, &wanted, context).await?;
    let (namespace, selector) = (proxy.namespace().unwrap_or_default(), build::selector(PROXY, &proxy.name_any()));
    let mut pods = pods::look_at(context, &namespace, &selector, place::SIDECAR_ADMIN_PORT).await?;
    pods.retain(|pod| !pod.ends());
    let hash = &wanted.configuration.hash;
    pods::hurry(context, &pods, hash).await?;
    let injected = injection::keep(proxy, proxies, &sources).await?;
    let counts = Counts::of(&deployment);
    let outcome = outcome(&counts, &pods, hash, &injected);
    let told = proxy.status.as_ref().map_or(&[][..], |status| &status.pods);
    let told_of = |name: &str| told.iter().find(|told| told.name == name);
    let generation = proxy.metadata.generation.unwrap_or(0);
    let mut states: Vec<PodState> = pods.iter().map(|pod| pod.state(told_of(&pod.name()), hash, generation)).collect();
    states.sort_by_key(|state| state.configuration.as_ref() == Some(hash));
    states.truncate(STATES_MAX);
    let status = ProxyStatus {
        replicas: counts.there,
        ready_replicas: counts.ready,
        updated_replicas: counts.updated,
        selector,
        configuration: hash.clone(),
        pods: states,
        injected: injected.status,
        ..ProxyStatus::default()
    };
    Ok(Came { outcome, status })
}

/// Where the brokers of a Proxy are. None: there is no such Broker.
pub(super) async fn sources(proxy: &Proxy, context: &Context) -> Result<Option<Sources>, ApiError> {
    if let Some(addresses) = &proxy.spec.name_servers {
        return Ok(Some(Sources { addresses: addresses.clone(), ..Sources::default() }));
    }
    let Some(broker_ref) = &proxy.spec.broker_ref else { return Ok(None) };
    let namespace = proxy.namespace().unwrap_or_default();
    let broker = super::broker_of(context, &namespace, &broker_ref.name).await?;
    let Some(broker) = broker else { return Ok(None) };
    // Brokers that are to go still give out what they have.
    let there = broker.status.as_ref().map_or(0, |status| status.replicas);
    let number = broker.spec.replicas.max(there).max(1);
    let addresses = (0..number).map(|number| (context.address)(&broker, number)).collect();
    let tls = secured::authorities(&broker, context).await?;
    Ok(Some(Sources { addresses, cluster: place::cluster_name(&namespace, &broker_ref.name), tls }))
}

/// The same, with the first broker of a Broker that is not there yet.
pub(super) async fn sources_or_first(proxy: &Proxy, context: &Context) -> Result<Sources, ApiError> {
    if let Some(sources) = sources(proxy, context).await? {
        return Ok(sources);
    }
    let namespace = proxy.namespace().unwrap_or_default();
    let name = proxy.spec.broker_ref.as_ref().map_or("", |broker| &broker.name);
    let first = format!("{}:{}", place::broker_host(&namespace, name, 0), place::REMOTING_PORT);
    Ok(Sources { addresses: vec![first], cluster: place::cluster_name(&namespace, name), tls: None })
}

/// Applies all objects; the answer is the Deployment as it is now.
async fn apply(proxy: &Proxy, wanted: &ProxyObjects, context: &Context) -> Result<Value, Refusal> {
    if proxy.spec.autoscaling.is_some()
        && let Some(deployment) = wanted.objects.last()
    {
        hand_over(deployment, context).await?;
    }
    let mut live = objects::apply_all(proxy, context, &wanted.objects).await?;
    if let Some(autoscaler) = &wanted.unwanted {
        objects::remove(&context.client, autoscaler).await?;
    }
    Ok(live.pop().unwrap_or(Value::Null))
}

/// What is applied no longer, and nobody else has said, goes to its default: the number of proxies would go to 1 until the autoscaler
/// raises it. So it is said once in another name.
async fn hand_over(deployment: &Object, context: &Context) -> Result<(), ApiError> {
    let Some(live) = objects::live(&context.client, deployment).await? else { return Ok(()) };
    let Some(replicas) = replicas_of_ours(&live) else { return Ok(()) };
    let metadata = &deployment.value["metadata"];
    let text = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
    let patch = json!({
        "apiVersion": deployment.value["apiVersion"],
        "kind": deployment.value["kind"],
        "metadata": { "name": text("name"), "namespace": text("namespace") },
        "spec": { "replicas": replicas },
    });
    let api: Api<kube::api::DynamicObject> =
        Api::namespaced_with(context.client.clone(), &text("namespace"), &deployment.resource);
    let params = PatchParams::apply(HANDS_OVER).force();
    api.patch(&text("name"), &params, &Patch::Apply(patch))
        .await
        .map_err(while_doing("hand over the number of pods"))?;
    Ok(())
}

/// The number of replicas, if the operator alone has said it.
fn replicas_of_ours(live: &Value) -> Option<i64> {
    let managers = live["metadata"]["managedFields"].as_array()?;
    let says = |manager: &Value| !manager["fieldsV1"]["f:spec"]["f:replicas"].is_null();
    let all: Vec<&str> =
        managers.iter().filter(|manager| says(manager)).filter_map(|manager| manager["manager"].as_str()).collect();
    (all == [crate::api::FIELD_MANAGER]).then(|| live["spec"]["replicas"].as_i64()).flatten()
}

/// How far the Deployment is.
#[derive(Debug, Clone, Default)]
struct Counts {
    wanted: i32,
    there: i32,
    ready: i32,
    updated: i32,
    /// The controller of Deployments has seen the newest one.
    seen: bool,
    /// A new pod does not come.
    stopped: bool,
}

impl Counts {
    fn of(deployment: &Value) -> Self {
        let number = |pointer: &str| deployment.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
        let count = |pointer: &str| i32::try_from(number(pointer)).unwrap_or(0);
        let conditions = deployment.pointer("/status/conditions").and_then(Value::as_array);
        let stopped = |condition: &Value| condition["type"] == "Progressing" && condition["status"] == "False";
        Self {
            wanted: count("/spec/replicas"),
            there: count("/status/replicas"),
            ready: count("/status/readyReplicas"),
            updated: count("/status/updatedReplicas"),
            seen: number("/status/observedGeneration") >= number("/metadata/generation"),
            stopped: conditions.is_some_and(|conditions| conditions.iter().any(stopped)),
        }
    }
}

/// What is most to be known.
fn outcome(counts: &Counts, seen: &[Seen], hash: &str, injected: &Injected) -> Outcome {
    let Counts { wanted, there, ready, updated, seen: known, stopped } = counts.clone();
    let InjectedStatus { count, missed, missed_pods, .. } = &injected.status;
    let of_pods = |of: &dyn Fn(&Seen) -> Option<String>| -> Vec<String> {
        seen.iter().filter_map(|pod| Some(format!("{}: {}", pod.name(), of(pod)?))).collect()
    };
    let failures = of_pods(&Seen::failure);
    let why = if failures.is_empty() { String::new() } else { format!("; {}", in_words(&failures)) };
    let mut refused = of_pods(&|pod| pod.refusal().map(str::to_owned));
    refused.extend_from_slice(&injected.refused);
    let behind = seen.iter().filter(|pod| pod.configuration.is_some() && pod.hash() != Some(hash));
    let mut pending: Vec<String> = behind.map(Seen::name).collect();
    pending.extend_from_slice(&injected.pending);
    let pods = format!("{ready} of {wanted} pods are ready");
    let (reason, message) = if !refused.is_empty() {
        (Reason::ConfigurationRefused, in_words(&refused))
    } else if known && (stopped || (!failures.is_empty() && ready < wanted)) {
        (Reason::RolloutStopped, format!("{updated} of {wanted} pods are as they should be, {ready} are ready{why}"))
    } else if !known || updated < wanted || there > updated {
        (Reason::RollingOut, format!("{updated} of {wanted} pods are as they should be, {ready} are ready"))
    } else if ready < wanted {
        (Reason::PodsNotReady, pods)
    } else if let Some((reason, _)) = injected.unmade.first() {
        // The pods of these namespaces would be told as pending for ever.
        let words: Vec<String> = injected.unmade.iter().map(|(_, words)| words.clone()).collect();
        (*reason, format!("injected sidecars keep the configuration that they have: {}", in_words(&words)))
    } else if !pending.is_empty() {
        (Reason::ConfigurationPending, format!("not known to have the configuration yet: {}", in_words(&pending)))
    } else if *missed > 0 {
        let message = format!("{missed} pods came without their sidecar, make them anew: {}", in_words(missed_pods));
        (Reason::InjectionMissed, message)
    } else if *count > 0 {
        (Reason::PodsReady, format!("{pods}; {count} pods have a sidecar"))
    } else {
        (Reason::PodsReady, pods)
    };
    Outcome { reason, message }
}

/// The first few, and how many more.
fn in_words(all: &[String]) -> String {
    let named: Vec<&str> = all.iter().take(NAMED_MAX).map(String::as_str).collect();
    match all.len() - named.len() {
        0 => named.join("; "),
        more => format!("{}; and {more} more", named.join("; ")),
    }
}

/// Soon at first, and the rarer the longer it is not ready: a pod whose admin port cannot be reached is asked for ever.
fn again(conditions: &[Condition], context: &Context) -> Duration {
    let since = status::ready(conditions).and_then(|ready| status::millis(&ready.last_transition_time));
    let waited = since.map_or(0, |since| context.clock.now_ms().saturating_sub(since));
    let rarer = Duration::from_millis(u64::try_from(waited).unwrap_or(0)) / 8;
    rarer.clamp(context.pace.under_way, context.pace.retry_max)
}

fn conditions(proxy: &Proxy) -> Vec<Condition> {
    proxy.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default()
}

/// Writes the status if it says something new, and tells people what happened.
async fn tell(proxy: &Proxy, context: &Context, came: &Came) -> Result<(), ApiError> {
    let (old, generation) = (conditions(proxy), proxy.metadata.generation.unwrap_or(0));
    let now = ProxyStatus {
        observed_generation: generation,
        conditions: status::conditions(&old, &came.outcome, generation, context.clock.now_ms()),
        ..came.status.clone()
    };
    if proxy.status.as_ref() == Some(&now) {
        return Ok(());
    }
    if status::write(proxy, context, &now).await? {
        status::announce(proxy, context, status::ready(&old), &came.outcome).await;
    }
    Ok(())
}
