//! What resources tell of themselves.

use std::fmt::Debug;

use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::info;

use super::{ApiError, Context, key, while_doing};
use crate::api::{Condition, ConditionStatus, ConditionType, FIELD_MANAGER, Reason};

/// What came of a reconciliation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) reason: Reason,
    pub(super) message: String,
}

/// The conditions that tell `outcome`; equal to `before` if nothing is new.
pub(super) fn conditions(before: &[Condition], outcome: &Outcome, generation: i64, now_ms: i64) -> Vec<Condition> {
    let now = time(now_ms);
    let condition = |kind: ConditionType| {
        let status = if outcome.reason.holds(kind) { ConditionStatus::True } else { ConditionStatus::False };
        let since = before.iter().find(|old| old.kind == kind && old.status == status);
        Condition {
            kind,
            status,
            reason: outcome.reason,
            message: outcome.message.clone(),
            last_transition_time: since.map_or_else(|| now.clone(), |old| old.last_transition_time.clone()),
            observed_generation: generation,
        }
    };
    [ConditionType::Ready, ConditionType::Progressing, ConditionType::Degraded].map(condition).to_vec()
}

/// The condition Ready.
pub(super) fn ready(conditions: &[Condition]) -> Option<&Condition> {
    conditions.iter().find(|condition| condition.kind == ConditionType::Ready)
}

/// Writes a status. The answer: whether the resource is still there.
pub(super) async fn write<K>(object: &K, context: &Context, status: &impl Serialize) -> Result<bool, ApiError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(context.client.clone(), &object.namespace().unwrap_or_default());
    let patch = serde_json::json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": { "name": object.name_any() },
        "status": status,
    });
    let params = PatchParams::apply(FIELD_MANAGER).force();
    match api.patch_status(&object.name_any(), &params, &Patch::Apply(patch)).await {
        Ok(_written) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(while_doing("write the status")(error)),
    }
}

/// Tells people when the reason is another one than it was.
pub(super) async fn announce(
    object: &impl Resource<DynamicType = ()>,
    context: &Context,
    was: Option<&Condition>,
    outcome: &Outcome,
) {
    if was.is_some_and(|was| was.reason == outcome.reason) {
        return;
    }
    let (reason, note) = (format!("{:?}", outcome.reason), outcome.message.clone());
    info!(resource = key(object), reason, "{note}");
    if outcome.reason.holds(ConditionType::Degraded) || outcome.reason == Reason::BrokerUnreachable {
        context.events.warning(object, &reason, note).await;
    } else {
        context.events.normal(object, &reason, note).await;
    }
}

/// A time as Kubernetes writes it: whole seconds.
pub(super) fn time(ms: i64) -> String {
    Timestamp::from_second(ms.div_euclid(1_000)).unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}

/// Milliseconds of a time that Kubernetes wrote.
pub(super) fn millis(time: &str) -> Option<i64> {
    time.parse::<Timestamp>().ok().map(|time| time.as_millisecond())
}
