//! Keeps the webhook's certificates in a Secret, and tells the API server which authority to trust. Only the leader does.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DynamicObject, PostParams};
use kube::core::ApiResource;
use serde_json::{Value, json};
use tracing::{info, warn};

use super::Webhook;
use super::certificates::Certificates;
use crate::api::FIELD_MANAGER;
use crate::build::MANAGED_BY;
use crate::reconcile::Context;

/// The certificate in the Secret.
pub(super) const CERTIFICATE: &str = "tls.crt";
/// Its key.
pub(super) const KEY: &str = "tls.key";
/// The authorities, for people.
const AUTHORITIES: &str = "ca.crt";
/// All of it, as it is read again.
const STATE: &str = "state.json";

/// Makes certificates where they are due, and the API server trust them. To be done again and again.
///
/// # Errors
/// What could not be done, for people.
pub async fn keep(context: &Context, webhook: &Webhook) -> Result<(), String> {
    let certificates = make(context, webhook).await?;
    trust(context, webhook, &certificates.bundle()).await
}

/// The certificates in the Secret, made anew where that is due.
async fn make(context: &Context, webhook: &Webhook) -> Result<Certificates, String> {
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &webhook.namespace);
    let cannot = |doing: &str, error: kube::Error| format!("cannot {doing} the Secret {}: {error}", webhook.secret);
    let live = api.get_opt(&webhook.secret).await.map_err(|error| cannot("read", error))?;
    let kept = live.as_ref().and_then(read);
    let next = Certificates::next(kept.as_ref(), &webhook.names(), context.clock.now_ms())
        .map_err(|error| format!("no certificate can be made: {error}"))?;
    let anew = next.is_some();
    let next = next.or(kept).ok_or_else(|| "there is no certificate".to_owned())?;
    let data = data_of(&next)?;
    let mut secret = live.unwrap_or_default();
    // What somebody has broken of it is put back, not only what is due.
    if secret.data.as_ref() == Some(&data) {
        return Ok(next);
    }
    let known = secret.metadata.resource_version.is_some();
    secret.metadata.name = Some(webhook.secret.clone());
    secret.metadata.labels.get_or_insert_default().insert(MANAGED_BY.to_owned(), FIELD_MANAGER.to_owned());
    secret.data = Some(data);
    let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    // With its version: of two that make certificates, one makes them, and the other reads those the next time.
    let written =
        if known { api.replace(&webhook.secret, &params, &secret).await } else { api.create(&params, &secret).await };
    written.map_err(|error| cannot("write", error))?;
    if anew {
        info!(secret = webhook.secret, "the webhook has new certificates");
    } else {
        warn!(secret = webhook.secret, "the webhook's Secret was changed by somebody and put back");
    }
    Ok(next)
}

/// What is in the Secret.
fn data_of(certificates: &Certificates) -> Result<BTreeMap<String, ByteString>, String> {
    let state = serde_json::to_string(certificates).map_err(|error| error.to_string())?;
    let data = [
        (CERTIFICATE, certificates.certificate.clone()),
        (KEY, certificates.key.clone()),
        (AUTHORITIES, certificates.bundle()),
        (STATE, state),
    ];
    Ok(BTreeMap::from(data.map(|(name, text)| (name.to_owned(), ByteString(text.into_bytes())))))
}

fn read(secret: &Secret) -> Option<Certificates> {
    let state = secret.data.as_ref()?.get(STATE)?;
    serde_json::from_slice(&state.0).ok()
}

/// Makes the API server trust these authorities at this webhook.
async fn trust(context: &Context, webhook: &Webhook, bundle: &str) -> Result<(), String> {
    let Some(name) = &webhook.configuration else { return Ok(()) };
    let resource = ApiResource::erase::<MutatingWebhookConfiguration>(&());
    let api: Api<DynamicObject> = Api::all_with(context.client.clone(), &resource);
    let cannot =
        |doing: &str, error: kube::Error| format!("cannot {doing} the MutatingWebhookConfiguration {name}: {error}");
    let Some(mut live) = api.get_opt(name).await.map_err(|error| cannot("read", error))? else {
        warn!(name, "there is no such MutatingWebhookConfiguration: no pod gets a sidecar");
        return Ok(());
    };
    if !set_bundle(&mut live.data["webhooks"], webhook, &STANDARD.encode(bundle)) {
        return Ok(());
    }
    let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    api.replace(name, &params, &live).await.map_err(|error| cannot("write", error))?;
    info!(name, "the API server trusts the webhook's authority");
    Ok(())
}

/// Whether there was something to change.
fn set_bundle(webhooks: &mut Value, webhook: &Webhook, bundle: &str) -> bool {
    let mut changed = false;
    for entry in webhooks.as_array_mut().into_iter().flatten() {
        let client = &mut entry["clientConfig"];
        let ours = client["service"]["namespace"] == json!(webhook.namespace)
            && client["service"]["name"] == json!(webhook.service);
        if ours && client["caBundle"] != bundle {
            client["caBundle"] = json!(bundle);
            changed = true;
        }
    }
    changed
}
