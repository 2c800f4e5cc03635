//! Volumes that are to be larger. The template of a StatefulSet cannot be changed, so each claim is.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use super::objects::Refusal;
use super::{Context, while_doing};
use crate::api::{Broker, FIELD_MANAGER};
use crate::{build, quantity};

/// Asks for the size of the resource where a claim asks for less. `template` is the size in the StatefulSet; where that is the
/// one of the resource, nobody is asked.
///
/// # Errors
/// The API server could not be asked, or the storage class does not let volumes grow.
pub(super) async fn grow(broker: &Broker, context: &Context, template: Option<&str>) -> Result<(), Refusal> {
    let wanted = &broker.spec.storage.size;
    let Some(template) = template else { return Ok(()) };
    if quantity::parse(template) >= quantity::parse(wanted) {
        return Ok(());
    }
    let namespace = broker.namespace().unwrap_or_default();
    let api: Api<PersistentVolumeClaim> = Api::namespaced(context.client.clone(), &namespace);
    let selector = build::selector("broker", &broker.name_any());
    let listed = api.list(&ListParams::default().labels(&selector)).await.map_err(while_doing("list the claims"))?;
    for claim in listed.items {
        let name = claim.name_any();
        let asks = claim.spec.and_then(|spec| spec.resources?.requests?.remove("storage"));
        if asks.is_some_and(|asks| quantity::parse(&asks.0) >= quantity::parse(wanted)) {
            continue;
        }
        let patch = json!({ "spec": { "resources": { "requests": { "storage": wanted } } } });
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        match api.patch(&name, &params, &Patch::Merge(patch)).await {
            Ok(_grown) => {}
            Err(kube::Error::Api(status)) if matches!(status.code, 403 | 422) => {
                return Err(Refusal::Refused(format!("PersistentVolumeClaim {name}: {}", status.message)));
            }
            Err(error) => return Err(while_doing("grow a claim")(error).into()),
        }
    }
    Ok(())
}
