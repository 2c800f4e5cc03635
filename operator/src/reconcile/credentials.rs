//! The Secret of a User: given by somebody, or made once and never again.

use std::fmt;

use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::{Api, Resource, ResourceExt};
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::json;

use super::status::Outcome;
use super::{ApiError, Context, while_doing};
use crate::api::{Reason, User};

const ACCESS_KEY: &str = "accessKey";
const SECRET_KEY: &str = "secretKey";
/// Bytes drawn by lot for a secret key; twice as many characters.
const DRAWN: usize = 24;

/// What the Secret of a User has.
#[derive(Clone)]
pub(super) struct Credentials {
    pub(super) secret_key: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

/// Why there are no credentials.
#[derive(Debug)]
pub(super) enum Without {
    /// There are none that could be used: it is no user.
    Any(Outcome),
    /// They cannot be had now, or the operator may not read this Secret: what is known of the User may stay.
    Reading(ApiError),
}

/// The credentials of a User. Where none are given and none were made yet, they are made now.
///
/// # Errors
/// See [`Without`].
pub(super) async fn credentials(user: &User, context: &Context) -> Result<Credentials, Without> {
    let namespace = user.namespace().unwrap_or_default();
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &namespace);
    let name = user.secret_name();
    if !is_name(&name) {
        return Err(missing(format!("{name:?} cannot be the name of a Secret: name one in spec.secretRef")));
    }
    let read_error = |error| Without::Reading(while_doing("read a Secret")(error));
    let found = api.get_opt(&name).await.map_err(read_error)?;
    let secret = match (found, &user.spec.secret_ref) {
        (Some(secret), Some(_given)) => secret,
        (Some(secret), None) if belongs_to(&secret, user) => secret,
        (Some(_other), None) => {
            let message = format!(
                "the Secret {name} is there and belongs to somebody else: name it in spec.secretRef, or remove it"
            );
            return Err(Without::Any(Outcome { reason: Reason::ObjectConflict, message }));
        }
        (None, Some(_given)) => return Err(missing(format!("there is no Secret {name}"))),
        (None, None) => match make(user, &name) {
            Some(made) => match api.create(&PostParams::default(), &made).await {
                Ok(made) => {
                    context.events.normal(user, "CredentialsMade", format!("the Secret {name} is made")).await;
                    made
                }
                // A quota, or somebody else's rule about Secrets.
                Err(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 422) => {
                    return Err(missing(format!("the Secret {name} cannot be made: {}", status.message)));
                }
                Err(error) => return Err(Without::Reading(while_doing("make a Secret")(error))),
            },
            None => return Err(missing("the system gives no random numbers".to_owned())),
        },
    };
    read(&secret).ok_or_else(|| missing(format!("the Secret {name} has no text under {SECRET_KEY}")))
}

/// Whether it can be the name of a Secret. What cannot is not asked for: it would become part of a path.
fn is_name(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_part =
        |part: &str| !part.is_empty() && part.bytes().all(inner) && !part.starts_with('-') && !part.ends_with('-');
    text.len() <= 253 && text.split('.').all(is_part)
}

fn missing(message: String) -> Without {
    Without::Any(Outcome { reason: Reason::CredentialsMissing, message })
}

fn belongs_to(secret: &Secret, user: &User) -> bool {
    secret.owner_references().iter().any(|owner| Some(&owner.uid) == user.uid().as_ref())
}

fn read(secret: &Secret) -> Option<Credentials> {
    let bytes = secret.data.as_ref()?.get(SECRET_KEY)?;
    // Editors and `echo` put a line end behind what is typed; no client has it in its secret key.
    let text = std::str::from_utf8(&bytes.0).ok()?.trim_end_matches(['\n', '\r']);
    (!text.is_empty()).then(|| Credentials { secret_key: text.to_owned() })
}

/// None: there are no random numbers to be had.
fn make(user: &User, name: &str) -> Option<Secret> {
    let mut drawn = [0_u8; DRAWN];
    SystemRandom::new().fill(&mut drawn).ok()?;
    let secret_key: String = drawn.iter().map(|byte| format!("{byte:02x}")).collect();
    let owner = user.controller_owner_ref(&())?;
    serde_json::from_value(json!({
        "metadata": {
            "name": name,
            "namespace": user.namespace(),
            "labels": { crate::build::MANAGED_BY: crate::api::FIELD_MANAGER },
            "ownerReferences": [owner],
        },
        "type": "Opaque",
        "data": { ACCESS_KEY: bytes(&user.access_key()), SECRET_KEY: bytes(&secret_key) },
    }))
    .ok()
}

fn bytes(text: &str) -> k8s_openapi::ByteString {
    k8s_openapi::ByteString(text.as_bytes().to_vec())
}
