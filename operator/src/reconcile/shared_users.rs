//! The users of a Proxy in other namespaces whose pods have its sidecars: a Secret beside the ConfigMap of the sidecars there. It belongs
//! to that ConfigMap, so it goes with it, and nobody needs the right to list or delete Secrets.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tracing::warn;

use super::compare::covers;
use super::objects::Refusal;
use super::proxy::Proxies;
use super::proxy_users;
use super::user::file_of;
use super::{ApiError, Context, key, while_doing};
use crate::api::{FIELD_MANAGER, Proxy};
use crate::build::users::{USERS_FILE, users_elsewhere, users_secret};
use crate::build::{self, INJECTION, MANAGED_BY, PROXY_NAMESPACE};

/// Brings the users of a Proxy, which are `file`, to all namespaces that may have them, and takes them from those that may not any more.
/// Answers where something changed and what the Secret's version is now, and whether the API server did its part: one namespace where it
/// does not holds up no other.
pub(super) async fn spread(
    proxy: &Proxy,
    file: &str,
    proxies: &Proxies,
) -> (Vec<(String, String)>, Result<(), ApiError>) {
    let (mut changed, mut done) = (Vec::new(), Ok(()));
    let maps = match elsewhere(proxy, proxies).await {
        Ok(maps) => maps,
        Err(error) => return (changed, Err(error)),
    };
    for map in maps {
        let namespace = map.namespace().unwrap_or_default();
        let file = proxy.shares_users_with(&namespace).then_some(file);
        match put(proxy, &map, file, &proxies.context).await {
            Ok(Some(version)) => changed.push((namespace, version)),
            Ok(None) => {}
            Err(Refusal::Api(error)) => done = Err(error),
            Err(Refusal::Taken(note) | Refusal::Refused(note)) => {
                warn!(resource = key(proxy), "{note}");
                proxies.context.events.warning(proxy, "ObjectConflict", note).await;
            }
        }
    }
    (changed, done)
}

/// Makes the Secret be there before a pod that needs it. What is in it is looked after by [`spread`].
///
/// # Errors
/// See [`Refusal`].
pub(super) async fn provide(proxy: &Proxy, map: &impl ResourceExt, context: &Context) -> Result<(), Refusal> {
    let secrets: Api<Secret> = Api::namespaced(context.client.clone(), &proxy.namespace().unwrap_or_default());
    let at_home = secrets.get_opt(&users_secret(&proxy.name_any())).await.map_err(while_doing("read a Secret"))?;
    // Whose Secret cannot be read now comes with the next change.
    let file = proxy_users::file(proxy, at_home.as_ref(), context).await?;
    put(proxy, map, Some(&file.text), context).await.map(drop)
}

/// The ConfigMaps of the sidecars of a Proxy in namespaces other than its own.
async fn elsewhere(proxy: &Proxy, proxies: &Proxies) -> Result<Vec<PartialObjectMeta<ConfigMap>>, ApiError> {
    let (home, name) = (proxy.namespace().unwrap_or_default(), proxy.name_any());
    let selector = format!(
        "app.kubernetes.io/component={INJECTION},app.kubernetes.io/instance={name},{PROXY_NAMESPACE}={home},{MANAGED_BY}={FIELD_MANAGER}"
    );
    let mut maps = Vec::new();
    for api in proxies.scope.apis::<ConfigMap>(&proxies.context.client) {
        let listed = api.list_metadata(&ListParams::default().labels(&selector)).await;
        maps.extend(listed.map_err(while_doing("list ConfigMaps"))?.items);
    }
    maps.retain(|map| map.namespace().as_deref() != Some(home.as_str()));
    Ok(maps)
}

/// Makes the Secret so; without a file it has no users, and is not made if it is not there. Answers its version if that was a change.
async fn put(
    proxy: &Proxy,
    map: &impl ResourceExt,
    file: Option<&str>,
    context: &Context,
) -> Result<Option<String>, Refusal> {
    let namespace = map.namespace().unwrap_or_default();
    let name = users_elsewhere(proxy, &namespace);
    let secrets: Api<Secret> = Api::namespaced(context.client.clone(), &namespace);
    let wanted = secret(proxy, map, &name, file);
    match secrets.get_opt(&name).await.map_err(while_doing("read a Secret"))? {
        None if file.is_none() => return Ok(None),
        None => {}
        Some(live) if live.labels().get(MANAGED_BY).map(String::as_str) != Some(FIELD_MANAGER) => {
            return Err(Refusal::Taken(format!("Secret {namespace}/{name} belongs to somebody else")));
        }
        Some(live) if covers(&json!(live), &wanted) && file_of(&live).as_deref() == file => return Ok(None),
        Some(_differs) => {}
    }
    let params = PatchParams::apply(FIELD_MANAGER).force();
    match secrets.patch(&name, &params, &Patch::Apply(&wanted)).await {
        Ok(written) => Ok(Some(written.resource_version().unwrap_or_default())),
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 422) => {
            Err(Refusal::Refused(format!("Secret {namespace}/{name}: {}", status.message)))
        }
        Err(error) => Err(Refusal::Api(while_doing("write the users of a Proxy into another namespace")(error))),
    }
}

fn secret(proxy: &Proxy, map: &impl ResourceExt, name: &str, file: Option<&str>) -> Value {
    let mut labels = build::labels(INJECTION, &proxy.name_any());
    labels.insert(PROXY_NAMESPACE.to_owned(), proxy.namespace().unwrap_or_default());
    let metadata = json!({
        "name": name,
        "namespace": map.namespace(),
        "labels": labels,
        "ownerReferences": [{ "apiVersion": "v1", "kind": "ConfigMap", "name": map.name_any(), "uid": map.uid() }],
    });
    let data = file.map(|file| json!({ USERS_FILE: k8s_openapi::ByteString(file.as_bytes().to_vec()) }));
    build::object::<Secret>(&metadata, json!({ "type": "Opaque", "data": data.unwrap_or_else(|| json!({})) })).value
}
