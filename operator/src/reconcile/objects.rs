//! Objects in the cluster, written only where they differ.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tracing::warn;

use super::compare::{covers, surplus};
use super::{ApiError, Context, key, while_doing};
use crate::api::FIELD_MANAGER;
use crate::build::Object;
use crate::hash;

/// The annotation with the hash of what was applied: tells that a field is to go, which a comparison cannot see.
const APPLIED: &str = "waybill.dev/applied";

/// What became of an object.
#[derive(Debug)]
pub(super) struct Written {
    /// As the API server has it.
    pub(super) live: Value,
    /// It was there and not as it was applied last: somebody changed it.
    pub(super) drifted: bool,
}

/// Why an object is not as it should be.
#[derive(Debug)]
pub(super) enum Refusal {
    /// An object of the name is there, and belongs to somebody else.
    Taken(String),
    /// The API server will not have it.
    Refused(String),
    /// It could not be asked, or could not do it now.
    Api(ApiError),
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        Self::Api(error)
    }
}

/// The object as the API server has it, if it is there.
///
/// # Errors
/// It could not be asked.
pub(super) async fn live(client: &Client, object: &Object) -> Result<Option<Value>, ApiError> {
    let (api, name) = api_of(client, object);
    let live = api.get_opt(name).await.map_err(while_doing("read an object"))?;
    Ok(live.map(|live| json!(live)))
}

/// Makes the object so, as the one field manager. Writes nothing if it is so already.
///
/// # Errors
/// See [`Refusal`].
pub(super) async fn apply(client: &Client, object: &Object) -> Result<Written, Refusal> {
    apply_over(client, object, live(client, object).await?).await
}

/// The same where it is known what is there.
///
/// # Errors
/// See [`Refusal`].
pub(super) async fn apply_over(client: &Client, object: &Object, live: Option<Value>) -> Result<Written, Refusal> {
    let (api, name) = api_of(client, object);
    let hash = hash::of(&object.value.to_string());
    let mut wanted = object.value.clone();
    wanted["metadata"]["annotations"][APPLIED] = json!(hash);
    let mut drifted = false;
    if let Some(live) = live {
        let owner = "/metadata/ownerReferences/0/uid";
        if live.pointer(owner) != wanted.pointer(owner) && !is_left_behind(&live, &wanted) {
            return Err(Refusal::Taken(format!("{} {name} belongs to somebody else", object.resource.kind)));
        }
        if covers(&live, &wanted) {
            return Ok(Written { live, drifted });
        }
        drifted = live["metadata"]["annotations"][APPLIED] == json!(hash);
    }
    let refused = |error| match error {
        kube::Error::Api(status) if matches!(status.code, 400 | 403 | 422) => {
            Refusal::Refused(format!("{} {name}: {}", object.resource.kind, status.message))
        }
        error => Refusal::Api(while_doing("apply an object")(error)),
    };
    let written = api.patch(name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(&wanted)).await;
    let mut live = json!(written.map_err(refused)?);
    if !covers(&live, &wanted)
        && let Some(surplus) = surplus(&live["spec"], &wanted["spec"])
    {
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let patch = Patch::Strategic(json!({ "spec": surplus }));
        live = json!(api.patch(name, &params, &patch).await.map_err(refused)?);
    }
    let drifted = drifted && covers(&live, &wanted);
    if !covers(&live, &wanted) {
        // The API server writes something in another way than it is compared here (a defect), or somebody changes it at once.
        warn!(kind = object.resource.kind, name, "the API server does not keep this object as it was applied");
    }
    Ok(Written { live, drifted })
}

/// Whether it was made for a resource of this name that is gone, and was left behind without an owner: `--cascade=orphan`.
fn is_left_behind(live: &Value, wanted: &Value) -> bool {
    let owners = live.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    owners.is_none_or(Vec::is_empty) && covers(&live["metadata"]["labels"], &wanted["metadata"]["labels"])
}

/// Makes all objects so, in their order, and tells people of what somebody else had changed. The answer: as they are now.
///
/// # Errors
/// See [`Refusal`]; those after it are not tried.
pub(super) async fn apply_all(
    owner: &impl kube::Resource<DynamicType = ()>,
    context: &Context,
    objects: &[Object],
) -> Result<Vec<Value>, Refusal> {
    let mut all = Vec::with_capacity(objects.len());
    for object in objects {
        let written = apply(&context.client, object).await?;
        if written.drifted {
            drift(owner, context, object).await;
        }
        all.push(written.live);
    }
    Ok(all)
}

/// Tells people that somebody had changed an object.
pub(super) async fn drift(owner: &impl kube::Resource<DynamicType = ()>, context: &Context, object: &Object) {
    let (kind, name) = (&object.resource.kind, name_of(object));
    let note = format!("{kind} {name} was changed by somebody and put back");
    warn!(resource = key(owner), "{note}");
    context.events.warning(owner, "DriftCorrected", note).await;
}

/// Deletes what belongs to `owner` (by uid) and is not wanted any more; what is not there, or somebody else's, is let be.
/// The answer: whether there was something to delete.
///
/// # Errors
/// The API server could not be asked, or does not do it.
pub(super) async fn remove(client: &Client, object: &Object) -> Result<bool, ApiError> {
    let (api, name) = api_of(client, object);
    let Some(live) = api.get_opt(name).await.map_err(while_doing("read an object"))? else { return Ok(false) };
    let owner = |value: &Value| value.pointer("/metadata/ownerReferences/0/uid").cloned();
    if owner(&json!(live)) != owner(&object.value) || live.metadata.deletion_timestamp.is_some() {
        return Ok(false);
    }
    // Only this very object, not another of the name that came in between.
    let preconditions = Preconditions { uid: live.metadata.uid, resource_version: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
    match api.delete(name, &params).await {
        Ok(_deleted) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(while_doing("delete an object")(error)),
    }
}

/// Deletes this very pod, not another one of its name. What is gone already is as good.
///
/// # Errors
/// The API server does not do it.
pub(super) async fn delete_pod(client: &Client, namespace: &str, pod: &Pod) -> Result<(), ApiError> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let preconditions = Preconditions { uid: pod.uid(), resource_version: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    match api.delete(&pod.name_any(), &params).await {
        Ok(_deleted) => Ok(()),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        Err(error) => Err(while_doing("delete a pod")(error)),
    }
}

fn api_of<'a>(client: &Client, object: &'a Object) -> (Api<DynamicObject>, &'a str) {
    let namespace = object.value.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default();
    (Api::namespaced_with(client.clone(), namespace, &object.resource), name_of(object))
}

fn name_of(object: &Object) -> &str {
    object.value.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}
