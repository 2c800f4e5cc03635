//! A User is an entry in the file of each Proxy that it is for. Its own reconciliation makes the Secret and tells how far it is; the files
//! are written by [`super::proxy_users`].

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::runtime::controller::Action;
use kube::{Api, Resource, ResourceExt};
use tracing::warn;

use super::credentials::{Without, credentials};
use super::status::{self, Outcome};
use super::{ApiError, Context, Kind, after_api_error, key, while_doing};
use crate::api::{Proxy, Reason, User, UserStatus};
use crate::build::users::{self, Known, USERS_FILE};

/// What came of it.
struct Came {
    outcome: Outcome,
    /// How many Proxies ask for it, and how many of them know it. None: as before.
    known: Option<(usize, usize)>,
}

impl Came {
    fn nowhere(reason: Reason, message: String) -> Self {
        Self { outcome: Outcome { reason, message }, known: Some((0, 0)) }
    }
}

/// Makes the credentials if none are given, and tells how far Proxies know the user.
///
/// # Errors
/// The API server does not do its part.
pub async fn reconcile_user(user: Arc<User>, kind: Arc<Kind<User>>) -> Result<Action, ApiError> {
    let context = &kind.context;
    if user.meta().deletion_timestamp.is_some() {
        // The files are written without it, and its Secret goes with it.
        return Ok(Action::await_change());
    }
    let came = look(&user, &kind).await?;
    tell(&user, context, &came).await?;
    Ok(match came.outcome.reason {
        Reason::Applied => context.pace.resync(&key(&*user)),
        Reason::ConfigurationPending => Action::requeue(context.pace.retry_min),
        _other => Action::requeue(context.pace.retry_max),
    })
}

/// What to do when the API server did not do its part.
pub fn on_user_error(user: Arc<User>, error: &ApiError, kind: Arc<Kind<User>>) -> Action {
    warn!(kind = "User", resource = key(&*user), %error, "tried again");
    after_api_error(error, kind.context.pace)
}

async fn look(user: &User, kind: &Kind<User>) -> Result<Came, ApiError> {
    let context = &kind.context;
    if let Some(mistake) = users::mistake(user) {
        return Ok(Came::nowhere(Reason::InvalidSpec, mistake));
    }
    let credentials = match credentials(user, context).await {
        Ok(credentials) => credentials,
        Err(Without::Any(outcome)) => return Ok(Came { outcome, known: Some((0, 0)) }),
        Err(Without::Reading(error)) => match error.forbidden() {
            Some(why) => {
                let message = format!("the Secret {} cannot be read: {why}", user.secret_name());
                let outcome = Outcome { reason: Reason::CredentialsMissing, message };
                return Ok(Came { outcome, known: None });
            }
            None => return Err(error),
        },
    };
    let namespace = user.namespace().unwrap_or_default();
    let proxies: Api<Proxy> = Api::namespaced(context.client.clone(), &namespace);
    let proxies = proxies.list(&Default::default()).await.map_err(while_doing("list Proxies"))?.items;
    let asking: Vec<Proxy> =
        proxies.into_iter().filter(|proxy| proxy.asks_for_users() && users::concerns(user, proxy)).collect();
    if asking.is_empty() {
        let message = "no Proxy that it is for asks for users (spec.accessControl.authentication)".to_owned();
        return Ok(Came::nowhere(Reason::ProxyNotFound, message));
    }
    if let Some(older) = asking.iter().find_map(|proxy| older(user, proxy, kind)) {
        let message = format!("User {older} has the access key {} there", user.access_key());
        return Ok(Came::nowhere(Reason::NameConflict, message));
    }
    let secrets: Api<Secret> = Api::namespaced(context.client.clone(), &namespace);
    let known = Known { user, secret_key: &credentials.secret_key };
    let mut waiting = Vec::new();
    for proxy in &asking {
        let name = users::users_secret(&proxy.name_any());
        let secret = secrets.get_opt(&name).await.map_err(while_doing("read a Secret"))?;
        if !secret.is_some_and(|secret| file_of(&secret).is_some_and(|file| users::has(&file, known))) {
            waiting.push(proxy.name_any());
        }
    }
    let (proxies, applied) = (asking.len(), asking.len() - waiting.len());
    let outcome = match waiting.first() {
        None => Outcome { reason: Reason::Applied, message: format!("known to {proxies} Proxies") },
        Some(first) => {
            let message = format!("{applied} of {proxies} Proxies know it; {first} does not yet");
            Outcome { reason: Reason::ConfigurationPending, message }
        }
    };
    Ok(Came { outcome, known: Some((proxies, applied)) })
}

/// The file in a Secret.
pub(super) fn file_of(secret: &Secret) -> Option<String> {
    let bytes = secret.data.as_ref()?.get(USERS_FILE)?;
    String::from_utf8(bytes.0.clone()).ok()
}

/// An older User that has the same access key at the Proxy.
fn older(user: &User, proxy: &Proxy, kind: &Kind<User>) -> Option<String> {
    let namespace = user.namespace();
    let takes = |other: &Arc<User>| {
        other.namespace() == namespace
            && other.access_key() == user.access_key()
            && other.meta().deletion_timestamp.is_none()
            && users::concerns(other, proxy)
            && users::age(other) < users::age(user)
    };
    kind.known.state().iter().find(|other| takes(other)).map(|other| other.name_any())
}

async fn tell(user: &User, context: &Context, came: &Came) -> Result<(), ApiError> {
    let generation = user.meta().generation.unwrap_or(0);
    let before = user.status.as_ref();
    let old = before.map_or(&[][..], |before| &before.conditions);
    let count = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
    let before_known = before.map_or((0, 0), |before| (before.proxies, before.applied_proxies));
    let (proxies, applied_proxies) =
        came.known.map_or(before_known, |(proxies, applied)| (count(proxies), count(applied)));
    let now = UserStatus {
        observed_generation: generation,
        access_key: user.access_key(),
        secret_name: user.secret_name(),
        proxies,
        applied_proxies,
        conditions: status::conditions(old, &came.outcome, generation, context.clock.now_ms()),
    };
    if before != Some(&now) && status::write(user, context, &now).await? {
        status::announce(user, context, status::ready(old), &came.outcome).await;
    }
    Ok(())
}
