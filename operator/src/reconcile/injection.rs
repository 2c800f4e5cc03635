//! Injected sidecars: which pods have one, which ask for one in vain, and the ConfigMaps that they read.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use kube::core::PartialObjectMeta;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tracing::info;

use super::objects::{self, Refusal};
use super::pods::{self, Seen};
use super::proxy::Proxies;
use super::shared_users;
use super::{ApiError, Context, key, status, while_doing};
use crate::api::{FIELD_MANAGER, InjectedStatus, PodState, Proxy, Reason};
use crate::build::{
    self, INJECT, INJECT_NAMESPACE, INJECTION, MANAGED_BY, Object, PROXY_NAMESPACE, SIDECAR, Sources, UNUSED_SINCE,
};
use crate::run::Scope;

/// A ConfigMap that nobody needs goes after so long: a pod may be on its way.
const UNUSED_MS: i64 = 60_000;
/// Pods with a sidecar that a status names.
const NAMED_MAX: usize = 100;
/// Pods without their sidecar that a status names.
const MISSED_MAX: usize = 20;

/// What there is to say of the injected sidecars of a Proxy.
pub(super) struct Injected {
    pub(super) status: InjectedStatus,
    /// Running ones that have the configuration not yet, and why.
    pub(super) pending: Vec<String>,
    /// Those that refuse it, and why.
    pub(super) refused: Vec<String>,
    /// Namespaces in which it cannot be made, and why; it is made in the others all the same.
    pub(super) unmade: Vec<(Reason, String)>,
}

/// Makes each namespace with injected pods have the configuration, and looks how far the pods have it.
///
/// # Errors
/// See [`Refusal`].
pub(super) async fn keep(proxy: &Proxy, proxies: &Proxies, sources: &Sources) -> Result<Injected, Refusal> {
    let context = &proxies.context;
    let asking = asking(proxy, proxies).await?;
    let (has, missed): (Vec<Pod>, Vec<Pod>) = asking.into_iter().partition(|pod| sidecar_of(pod).is_some());
    let (mut hash, mut unmade) = (String::new(), Vec::new());
    let namespaces: BTreeSet<String> = has.iter().filter_map(ResourceExt::namespace).collect();
    for namespace in &namespaces {
        // It is the same in all of them.
        let (object, configuration) =
            build::injected(proxy, namespace, sources).map_err(|invalid| Refusal::Refused(invalid.to_string()))?;
        hash = configuration.hash;
        match make(&object, context).await {
            Ok(()) => {}
            Err(Refusal::Taken(words)) => unmade.push((Reason::ObjectConflict, words)),
            Err(Refusal::Refused(words)) => unmade.push((Reason::ObjectRefused, words)),
            Err(Refusal::Api(error)) => return Err(error.into()),
        }
    }
    let seen = pods::ask(context, has, admin_port).await;
    pods::hurry(context, &seen, &hash).await?;
    let generation = proxy.metadata.generation.unwrap_or(0);
    let before = proxy.status.as_ref().map_or(&[][..], |status| &status.injected.pods);
    let mut told: Vec<PodState> = seen.iter().map(|seen| state(seen, before, &hash, generation)).collect();
    let applied = told.iter().filter(|state| state.configuration.as_deref() == Some(hash.as_str())).count();
    // One that does not run yet reads the newest when it starts.
    let pending = seen.iter().filter(|seen| seen.configuration.is_some() && seen.hash() != Some(hash.as_str()));
    let pending = pending.map(|seen| key(&seen.pod)).collect();
    let refused = seen.iter().filter_map(|seen| Some(format!("{}: {}", key(&seen.pod), seen.refusal()?))).collect();
    told.sort_by_key(|state| state.configuration.as_deref() == Some(hash.as_str()));
    told.truncate(NAMED_MAX);
    let mut missed_pods: Vec<String> =
        if proxy.spec.injection.enabled { missed.iter().map(key).collect() } else { Vec::new() };
    let count = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
    let missed = count(missed_pods.len());
    missed_pods.truncate(MISSED_MAX);
    let status = InjectedStatus {
        count: count(seen.len()),
        applied: count(applied),
        configuration: hash,
        pods: told,
        missed,
        missed_pods,
    };
    Ok(Injected { status, pending, refused, unmade })
}

/// What a status says of an injected pod; of its application it says nothing.
fn state(seen: &Seen, before: &[PodState], wanted_hash: &str, generation: i64) -> PodState {
    let name = key(&seen.pod);
    let before = before.iter().find(|state| state.name == name);
    let asked = seen.configuration.as_ref();
    let restart = asked.and_then(|asked| asked.as_ref().ok()).map_or(&[][..], |in_force| &in_force.needs_restart);
    let problem = match asked {
        Some(Err(error)) => Some(format!("its sidecar cannot be asked: {error}")),
        _answered if !restart.is_empty() => {
            Some(format!("these count when the pod is made anew: {}", restart.join(", ")))
        }
        _answered => None,
    };
    let applied = seen.hash() == Some(wanted_hash);
    PodState {
        ready: seen.ready(),
        configuration: seen.hash().map(str::to_owned),
        applied_generation: if applied {
            Some(generation)
        } else {
            before.and_then(|before| before.applied_generation)
        },
        problem: seen.refusal().map(|reason| format!("it refuses its configuration: {reason}")).or(problem),
        name,
    }
}

/// The sidecar of a pod, if it has one.
fn sidecar_of(pod: &Pod) -> Option<&Container> {
    pod.spec.as_ref()?.init_containers.iter().flatten().find(|container| container.name == SIDECAR)
}

/// The port at which a sidecar can be asked, once it runs.
fn admin_port(pod: &Pod) -> Option<u16> {
    let statuses = pod.status.as_ref()?.init_container_statuses.iter().flatten();
    statuses.into_iter().find(|status| status.name == SIDECAR && status.started == Some(true))?;
    let port = sidecar_of(pod)?.ports.iter().flatten().next()?.container_port;
    u16::try_from(port).ok()
}

/// The pods that ask for a sidecar of this Proxy, may have one, and have not ended.
async fn asking(proxy: &Proxy, proxies: &Proxies) -> Result<Vec<Pod>, ApiError> {
    let (home, name) = (proxy.namespace().unwrap_or_default(), proxy.name_any());
    let client = &proxies.context.client;
    let mut apis = vec![Api::<Pod>::namespaced(client.clone(), &home)];
    if !proxy.spec.injection.namespaces.is_empty() {
        apis.extend(proxies.scope.apis::<Pod>(client));
    }
    let mut pods: Vec<Pod> = Vec::new();
    for api in apis {
        let listed = api.list(&ListParams::default().labels(&format!("{INJECT}={name}"))).await;
        pods.extend(listed.map_err(while_doing("list pods"))?.items);
    }
    pods.retain(|pod| {
        let namespace = pod.namespace().unwrap_or_default();
        asks(pod, &home) && !has_ended(pod) && (home == namespace || proxy.spec.injection.allows(&home, &namespace))
    });
    // The namespace of the Proxy may have been listed twice.
    pods.sort_by_key(key);
    pods.dedup_by_key(|pod| key(pod));
    Ok(pods)
}

/// Whether a pod that asks for a sidecar means a Proxy in the namespace `home`.
fn asks(pod: &impl ResourceExt, home: &str) -> bool {
    match pod.labels().get(INJECT_NAMESPACE) {
        Some(namespace) => namespace == home,
        None => pod.namespace().as_deref() == Some(home),
    }
}

fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    pod.metadata.deletion_timestamp.is_some() || matches!(phase, Some("Succeeded" | "Failed"))
}

/// Makes the ConfigMap as it should be.
async fn make(object: &Object, context: &Context) -> Result<(), Refusal> {
    let live = objects::live(&context.client, object).await?;
    if live.as_ref().is_some_and(|live| !is_ours(live)) {
        let text = |field: &str| object.value["metadata"][field].as_str().unwrap_or_default().to_owned();
        return Err(taken(&text("namespace"), &text("name")));
    }
    let written = objects::apply_over(&context.client, object, live).await?;
    if !written.live["metadata"]["annotations"][UNUSED_SINCE].is_null() {
        let live: ConfigMap = serde_json::from_value(written.live).unwrap_or_default();
        mark(context, &live, None).await?;
    }
    Ok(())
}

fn taken(namespace: &str, name: &str) -> Refusal {
    Refusal::Taken(format!("ConfigMap {namespace}/{name} belongs to somebody else"))
}

fn is_ours(live: &Value) -> bool {
    live["metadata"]["labels"][MANAGED_BY] == FIELD_MANAGER
}

/// Makes the ConfigMap be there before a pod that needs it. What is in it is looked after by [`keep`].
///
/// # Errors
/// It cannot be, and why, for people.
pub(crate) async fn provide(proxy: &Proxy, namespace: &str, context: &Context) -> Result<(), String> {
    ensure(proxy, namespace, context).await.map_err(|refusal| match refusal {
        Refusal::Taken(words) | Refusal::Refused(words) => words,
        Refusal::Api(error) => error.to_string(),
    })
}

async fn ensure(proxy: &Proxy, namespace: &str, context: &Context) -> Result<(), Refusal> {
    let home = proxy.namespace().unwrap_or_default();
    let name = crate::place::injected_configuration(&home, &proxy.name_any(), namespace);
    let api: Api<ConfigMap> = Api::namespaced(context.client.clone(), namespace);
    match api.get_opt(&name).await.map_err(while_doing("read a ConfigMap"))? {
        Some(live) if !is_ours(&json!(live)) => return Err(taken(namespace, &name)),
        Some(live) if live.annotations().contains_key(UNUSED_SINCE) => mark(context, &live, None).await?,
        Some(_live) => {}
        None => {
            let sources = super::proxy::sources_or_first(proxy, context).await?;
            let (object, _configuration) =
                build::injected(proxy, namespace, &sources).map_err(|invalid| Refusal::Refused(invalid.to_string()))?;
            make(&object, context).await?;
        }
    }
    if proxy.asks_for_users() && home != namespace {
        if !proxy.shares_users_with(namespace) {
            let words =
                "its sidecars ask for users, and spec.injection.shareUsers does not let this namespace have them";
            return Err(Refusal::Refused(words.to_owned()));
        }
        let map = api.get(&name).await.map_err(while_doing("read a ConfigMap"))?;
        shared_users::provide(proxy, &map, context).await?;
    }
    Ok(())
}

/// Takes away the ConfigMaps that no pod has needed for a minute, those of Proxies that are gone among them.
///
/// # Errors
/// The API server does not do its part, for one of them; the others are looked at all the same.
pub async fn sweep(context: &Context, scope: &Scope) -> Result<(), ApiError> {
    let selector = format!("app.kubernetes.io/component={INJECTION},{MANAGED_BY}={FIELD_MANAGER}");
    let mut failed = Ok(());
    for api in scope.apis::<ConfigMap>(&context.client) {
        let listed = api.list(&ListParams::default().labels(&selector)).await;
        for config_map in listed.map_err(while_doing("list ConfigMaps"))?.items {
            if let Err(error) = sweep_one(context, &config_map).await {
                failed = Err(error);
            }
        }
    }
    failed
}

async fn sweep_one(context: &Context, config_map: &ConfigMap) -> Result<(), ApiError> {
    let label = |name: &str| config_map.labels().get(name).map(String::as_str).unwrap_or_default();
    let (proxy, home) = (label("app.kubernetes.io/instance"), label(PROXY_NAMESPACE));
    let namespace = config_map.namespace().unwrap_or_default();
    let pods: Api<PartialObjectMeta<Pod>> = Api::namespaced(context.client.clone(), &namespace);
    let running = "status.phase!=Succeeded,status.phase!=Failed";
    let asking = ListParams::default().labels(&format!("{INJECT}={proxy}")).fields(running);
    let listed = pods.list(&asking).await.map_err(while_doing("list pods"))?;
    let used = listed.items.iter().any(|pod| asks(pod, home));
    let since = config_map.annotations().get(UNUSED_SINCE).and_then(|since| status::millis(since));
    let now = context.clock.now_ms();
    match (used, since) {
        (true, None) => Ok(()),
        (true, Some(_)) => mark(context, config_map, None).await,
        (false, None) => mark(context, config_map, Some(now)).await,
        (false, Some(since)) if now - since < UNUSED_MS => Ok(()),
        (false, Some(_)) => delete(context, config_map).await,
    }
}

/// Says since when a ConfigMap is not used, or that it is.
async fn mark(context: &Context, config_map: &ConfigMap, unused_since_ms: Option<i64>) -> Result<(), ApiError> {
    let since = unused_since_ms.map(status::time);
    let patch = json!({ "metadata": { "annotations": { UNUSED_SINCE: since } } });
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let api: Api<ConfigMap> = Api::namespaced(context.client.clone(), &config_map.namespace().unwrap_or_default());
    match api.patch(&config_map.name_any(), &params, &Patch::Merge(patch)).await {
        Ok(_marked) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(while_doing("mark a ConfigMap")(error)),
    }
}

/// Deletes it, unless somebody has said meanwhile that it is used.
async fn delete(context: &Context, config_map: &ConfigMap) -> Result<(), ApiError> {
    let preconditions = Preconditions {
        uid: config_map.metadata.uid.clone(),
        resource_version: config_map.metadata.resource_version.clone(),
    };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
    let api: Api<ConfigMap> = Api::namespaced(context.client.clone(), &config_map.namespace().unwrap_or_default());
    match api.delete(&config_map.name_any(), &params).await {
        Ok(_deleted) => {
            info!(config_map = key(config_map), "nobody needs it any more, it is deleted");
            Ok(())
        }
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        Err(error) => Err(while_doing("delete a ConfigMap")(error)),
    }
}
