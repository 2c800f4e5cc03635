//! The Secret with the users of a Proxy: written whole, from all Users that are for it.

use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::{Api, Resource, ResourceExt};
use serde_json::{Value, json};
use tracing::warn;

use super::compare::covers;
use super::credentials::{Credentials, Without, credentials};
use super::proxy::Proxies;
use super::shared_users;
use super::user::file_of;
use super::{ApiError, Context, after_api_error, key, while_doing};
use crate::api::{FIELD_MANAGER, Proxy, User};
use crate::build::users::{self, Known, OWNERS_FILE, USERS_FILE};
use crate::build::{self};

/// The annotation of pods with the version of the Secret that they are to have.
const USERS_VERSION: &str = "waybill.dev/users";

/// Writes the users of a Proxy into its Secret, if it asks for users or did so before.
///
/// # Errors
/// The API server does not do its part. One Secret of a User that cannot be had holds up no other User.
pub async fn reconcile_proxy_users(proxy: Arc<Proxy>, proxies: Arc<Proxies>) -> Result<Action, ApiError> {
    if proxy.meta().deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let context = &proxies.context;
    let namespace = proxy.namespace().unwrap_or_default();
    let secrets: Api<Secret> = Api::namespaced(context.client.clone(), &namespace);
    let name = users::users_secret(&proxy.name_any());
    let live = secrets.get_opt(&name).await.map_err(while_doing("read a Secret"))?;
    if live.is_none() && !proxy.asks_for_users() {
        return Ok(Action::await_change());
    }
    if live.as_ref().is_some_and(|live| !belongs_to(live, &proxy)) {
        let note = format!("the Secret {name} is there and belongs to somebody else: users cannot be written");
        warn!(resource = key(&*proxy), "{note}");
        context.events.warning(&*proxy, "ObjectConflict", note).await;
        return Ok(Action::requeue(context.pace.retry_max));
    }
    let UsersFile { text: file, owners, unread } = file(&proxy, live.as_ref(), context).await?;
    let wanted = secret(&proxy, &name, &file, &owners);
    if !live.is_some_and(|live| covers(&json!(live), &wanted) && file_of(&live).as_ref() == Some(&file)) {
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let written = secrets.patch(&name, &params, &Patch::Apply(&wanted)).await;
        let written = written.map_err(while_doing("write the users of a Proxy"))?;
        hurry(&proxy, context, &namespace, &written.resource_version().unwrap_or_default()).await;
    }
    let (changed, done) = shared_users::spread(&proxy, &file, &proxies).await;
    for (namespace, version) in changed {
        hurry(&proxy, context, &namespace, &version).await;
    }
    done?;
    match unread {
        // Rights come by hands.
        Some(error) if error.forbidden().is_some() => Ok(Action::requeue(context.pace.retry_max)),
        Some(error) => Err(error),
        None => Ok(context.pace.resync(&key(&*proxy))),
    }
}

/// Lets the kubelets notice at once: they look after a pod when its metadata changes, and else about once a minute. Pods that are not
/// told so have the users a little later.
async fn hurry(proxy: &Proxy, context: &Context, namespace: &str, version: &str) {
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), namespace);
    let (home, name) = (proxy.namespace().unwrap_or_default(), proxy.name_any());
    let of_proxy = (home == namespace).then(|| build::selector("proxy", &name));
    let injected = match home == namespace {
        true => format!("{}={name}", build::INJECT),
        false => format!("{}={name},{}={home}", build::INJECT, build::INJECT_NAMESPACE),
    };
    for selector in of_proxy.into_iter().chain([injected]) {
        let found = match pods.list_metadata(&ListParams::default().labels(&selector)).await {
            Ok(found) => found.items,
            Err(error) => return warn!(%error, "the pods of a Proxy could not be listed"),
        };
        for pod in found {
            let patch = json!({ "metadata": { "annotations": { USERS_VERSION: version } } });
            let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
            if let Err(error) = pods.patch_metadata(&pod.name_any(), &params, &Patch::Merge(patch)).await {
                warn!(%error, pod = pod.name_any(), "a pod could not be told of changed users");
            }
        }
    }
}

/// What to do when the API server did not do its part.
pub fn on_proxy_users_error(proxy: Arc<Proxy>, error: &ApiError, proxies: Arc<Proxies>) -> Action {
    warn!(kind = "users of a Proxy", resource = key(&*proxy), %error, "tried again");
    after_api_error(error, proxies.context.pace)
}

/// The users of a Proxy as they are now.
pub(super) struct UsersFile {
    pub(super) text: String,
    /// Whose each entry is: [`users::owners`].
    owners: String,
    /// Secrets could not be had, for this reason. Who is in the file that there was has the secret key from there: a hiccup, or a right that is
    /// missing, locks nobody out who was let in.
    pub(super) unread: Option<ApiError>,
}

/// The file with the users of a Proxy, where `former` is the Secret with the one that there was.
pub(super) async fn file(proxy: &Proxy, former: Option<&Secret>, context: &Context) -> Result<UsersFile, ApiError> {
    let namespace = proxy.namespace().unwrap_or_default();
    let api: Api<User> = Api::namespaced(context.client.clone(), &namespace);
    let mut all = api.list(&Default::default()).await.map_err(while_doing("list Users"))?.items;
    all.retain(|user| user.meta().deletion_timestamp.is_none());
    let (mut found, mut unread) = (Vec::new(), None);
    for user in users::of_proxy(&all, proxy) {
        match credentials(user, context).await {
            Ok(Credentials { secret_key }) => found.push((user, secret_key)),
            // It is no user; its own status says why.
            Err(Without::Any(_outcome)) => {}
            Err(Without::Reading(error)) => {
                found.extend(former_key(user, former).map(|secret_key| (user, secret_key)));
                // One that another try may mend is told before one that it does not.
                unread = unread.filter(|before: &ApiError| before.forbidden().is_none()).or(Some(error));
            }
        }
    }
    let known: Vec<Known<'_>> = found.iter().map(|(user, secret_key)| Known { user, secret_key }).collect();
    Ok(UsersFile { text: users::file(&known), owners: users::owners(&known), unread })
}

/// The secret key that the file has of this very User, from the Secret that it still names.
fn former_key(user: &User, former: Option<&Secret>) -> Option<String> {
    let former = former?;
    let owners = former.data.as_ref()?.get(OWNERS_FILE)?;
    users::is_of(&owners.0, user).then(|| users::secret_key(&file_of(former)?, &user.access_key())).flatten()
}

fn belongs_to(secret: &Secret, proxy: &Proxy) -> bool {
    secret.owner_references().iter().any(|owner| Some(&owner.uid) == proxy.uid().as_ref())
}

fn secret(proxy: &Proxy, name: &str, file: &str, owners: &str) -> Value {
    let metadata = build::metadata(name, &build::labels("proxy", &proxy.name_any()), proxy);
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    let data = json!({ USERS_FILE: bytes(file), OWNERS_FILE: bytes(owners) });
    build::object::<Secret>(&metadata, json!({ "type": "Opaque", "data": data })).value
}
