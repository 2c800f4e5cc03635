//! How the pods of a resource are: ready, failing, and with which configuration.

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use waybill_ops::address::with_port;

use super::{ApiError, Context, key, status, while_doing};
use crate::admin::InForce;
use crate::api::{FIELD_MANAGER, PodState};
use crate::build::CONFIGURATION;

/// The annotation of pods with the time at which their kubelet was last hurried.
const HURRIED: &str = "waybill.dev/configuration-hurried";
/// A pod that has still another configuration after this is hurried again, milliseconds.
const HURRY_AGAIN_MS: i64 = 5_000;
/// A pod may wait so long for its volume and for a node before that is told as a failure, milliseconds.
const SCHEDULING_MS: i64 = 30_000;
/// Pods that are asked at once.
const ASKED_AT_ONCE: usize = 8;
/// The most characters of what a container said last.
const LAST_WORDS_MAX: usize = 300;

/// One pod, and what it says of itself.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) pod: Pod,
    /// None: it was not asked, because it does not run.
    pub(super) configuration: Option<Result<InForce, String>>,
    /// When it was looked at, milliseconds since 1970.
    at_ms: i64,
}

impl Seen {
    pub(super) fn name(&self) -> String {
        self.pod.name_any()
    }

    pub(super) fn ready(&self) -> bool {
        let conditions = self.pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    }

    pub(super) fn ends(&self) -> bool {
        self.pod.metadata.deletion_timestamp.is_some()
    }

    /// The hash of the configuration in force.
    pub(super) fn hash(&self) -> Option<&str> {
        self.configuration.as_ref()?.as_ref().ok().map(|in_force| in_force.hash.as_str())
    }

    /// Why it refuses the file that it has now.
    pub(super) fn refusal(&self) -> Option<&str> {
        self.configuration.as_ref()?.as_ref().ok()?.error.as_deref()
    }

    /// What is wrong with it and does not become right by waiting.
    pub(super) fn failure(&self) -> Option<String> {
        let status = self.pod.status.as_ref()?;
        let conditions = status.conditions.iter().flatten();
        let unschedulable = conditions.into_iter().find(|condition| {
            let since = condition.last_transition_time.as_ref().map_or(0, |time| time.0.as_millisecond());
            condition.type_ == "PodScheduled"
                && condition.reason.as_deref() == Some("Unschedulable")
                && self.at_ms.saturating_sub(since) >= SCHEDULING_MS
        });
        if let Some(condition) = unschedulable {
            return Some(format!("no node takes it: {}", condition.message.as_deref().unwrap_or_default()));
        }
        status
            .init_container_statuses
            .iter()
            .flatten()
            .chain(status.container_statuses.iter().flatten())
            .find_map(container_failure)
    }

    /// For the status of its resource. `before` is what was told of it last: what is not known now is as it was.
    pub(super) fn state(&self, before: Option<&PodState>, wanted_hash: &str, generation: i64) -> PodState {
        let configuration = self.hash().map(str::to_owned);
        let applied = configuration.as_deref() == Some(wanted_hash);
        let problem =
            self.failure().or_else(|| self.refusal().map(|reason| format!("it refuses its configuration: {reason}")));
        PodState {
            name: self.name(),
            ready: self.ready(),
            applied_generation: if applied {
                Some(generation)
            } else {
                before.and_then(|before| before.applied_generation)
            },
            configuration: configuration.or_else(|| before?.configuration.clone()),
            problem,
        }
    }
}

/// What a container's status says of a failure that repeats itself.
fn container_failure(container: &ContainerStatus) -> Option<String> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let reason = waiting.reason.as_deref().unwrap_or_default();
    // Waiting for its image or its volumes is what every container does first.
    if matches!(reason, "" | "ContainerCreating" | "PodInitializing") {
        return None;
    }
    let last = container.last_state.as_ref().and_then(|last| last.terminated.as_ref());
    let words = match last {
        Some(last) => {
            let said = last.message.as_deref().unwrap_or_default().trim();
            let from = said.char_indices().rev().nth(LAST_WORDS_MAX - 1).map_or(0, |(at, _)| at);
            format!("it ended with {}: {}", last.exit_code, said.get(from..).unwrap_or_default())
        }
        None => waiting.message.clone().unwrap_or_default(),
    };
    Some(format!("{}: {reason}: {words}", container.name))
}

/// The pods that `selector` tells, in the order of their names, each asked for its configuration at `port`.
///
/// # Errors
/// The API server does not tell them.
pub(super) async fn look_at(
    context: &Context,
    namespace: &str,
    selector: &str,
    port: u16,
) -> Result<Vec<Seen>, ApiError> {
    let api: Api<Pod> = Api::namespaced(context.client.clone(), namespace);
    let listed = api.list(&ListParams::default().labels(selector)).await.map_err(while_doing("list the pods"))?;
    Ok(ask(context, listed.items, |_pod| Some(port)).await)
}

/// Asks all pods for their configuration, each at the port that `port` tells, and sorts them by namespace and name.
pub(super) async fn ask(context: &Context, pods: Vec<Pod>, port: impl Fn(&Pod) -> Option<u16>) -> Vec<Seen> {
    let ask = |(pod, port): (Pod, Option<u16>)| async move {
        let configuration = match port.and_then(|port| admin_address(&pod, port)) {
            Some(address) => Some((context.configuration)(address).await),
            None => None,
        };
        Seen { pod, configuration, at_ms: context.clock.now_ms() }
    };
    let pods = pods.into_iter().map(|pod| {
        let port = port(&pod);
        ask((pod, port))
    });
    let mut seen: Vec<Seen> = stream::iter(pods.collect::<Vec<_>>()).buffered(ASKED_AT_ONCE).collect().await;
    seen.sort_by_key(|seen| key(&seen.pod));
    seen
}

/// By the pod's own address, for its name may not be known everywhere yet. None: no container of it runs.
fn admin_address(pod: &Pod, port: u16) -> Option<String> {
    let status = pod.status.as_ref()?;
    let runs = |container: &ContainerStatus| container.state.as_ref().is_some_and(|state| state.running.is_some());
    let all = status.container_statuses.iter().flatten().chain(status.init_container_statuses.iter().flatten());
    if !all.into_iter().any(runs) {
        return None;
    }
    let ip = status.pod_ip.as_deref()?;
    Some(with_port(ip, port))
}

/// Annotates the pods that have another configuration than the one with this hash, so that the kubelet brings it to them at once
/// and not within a minute. The kubelet may hear of the pod before it hears of the ConfigMap, so a pod that has still another one
/// after a while is annotated again. The programs read their file again by themselves.
///
/// # Errors
/// The API server does not do it.
pub(super) async fn hurry(context: &Context, seen: &[Seen], hash: &str) -> Result<(), ApiError> {
    let now = context.clock.now_ms();
    for seen in seen {
        let told = |name: &str| seen.pod.annotations().get(name).map(String::as_str);
        let at = told(HURRIED).and_then(status::millis).unwrap_or(0);
        // One that has refused what it was hurried for is not hurried again.
        let done = told(CONFIGURATION) == Some(hash) && (now - at < HURRY_AGAIN_MS || seen.refusal().is_some());
        if done || seen.ends() || seen.hash().is_none_or(|has| has == hash) {
            continue;
        }
        let patch = json!({ "metadata": { "annotations": { CONFIGURATION: hash, HURRIED: status::time(now) } } });
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let namespace = seen.pod.namespace().unwrap_or_default();
        let api: Api<Pod> = Api::namespaced(context.client.clone(), &namespace);
        match api.patch_metadata(&seen.name(), &params, &Patch::Merge(patch)).await {
            Ok(_patched) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(while_doing("annotate a pod")(error)),
        }
    }
    Ok(())
}
