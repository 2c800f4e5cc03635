//! The finalizer, only on resources whose deletion has something to do on brokers.

use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde::de::DeserializeOwned;

use super::{ApiError, while_doing};
use crate::api::{FIELD_MANAGER, FINALIZER};

/// Whether the resource has the finalizer.
pub(super) fn present(object: &impl ResourceExt) -> bool {
    object.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
}

/// Adds or removes the finalizer; writes nothing if it is as it should be. Finalizers of others stay.
///
/// # Errors
/// The API server refuses, with a conflict if the resource has changed since it was read.
pub(super) async fn set<K>(api: &Api<K>, object: &K, wanted: bool) -> Result<(), ApiError>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    if present(object) == wanted {
        return Ok(());
    }
    let mut finalizers: Vec<&str> =
        object.finalizers().iter().map(String::as_str).filter(|finalizer| *finalizer != FINALIZER).collect();
    if wanted {
        finalizers.push(FINALIZER);
    }
    // The version makes sure that nobody else's change of the list is undone.
    let patch = serde_json::json!({
        "metadata": { "resourceVersion": object.resource_version(), "finalizers": finalizers },
    });
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    match api.patch(&object.name_any(), &params, &Patch::Merge(patch)).await {
        Ok(_patched) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 && !wanted => Ok(()),
        Err(error) => Err(while_doing("set the finalizer")(error)),
    }
}
