//! From Users to the file that sidecars read.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use waybill_sidecar::access;

use crate::api::{Proxy, User, UserPermission};
use crate::hash;
use crate::place::injected_configuration;

/// The key of the file in a Secret, and so its name where it is mounted.
pub const USERS_FILE: &str = "users.yaml";
/// The key beside it of [`owners`], which sidecars do not read.
pub const OWNERS_FILE: &str = "owners.json";
/// Where the Secret is mounted.
pub const USERS_DIRECTORY: &str = "/etc/waybill/users";

/// The Secret with the users of a Proxy, in its namespace.
#[must_use]
pub fn users_secret(proxy: &str) -> String {
    format!("{proxy}-proxy-users")
}

/// The Secret with the users of a Proxy that its injected sidecars in `namespace` read: in its own the one that its proxies read.
#[must_use]
pub fn users_elsewhere(proxy: &Proxy, namespace: &str) -> String {
    let (home, name) = (proxy.namespace().unwrap_or_default(), proxy.name_any());
    if home == namespace { users_secret(&name) } else { injected_configuration(&home, &name, namespace) }
}

/// A user with its secret key.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    /// Who.
    pub user: &'a User,
    /// The secret key.
    pub secret_key: &'a str,
}

impl fmt::Debug for Known<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Known").field("user", &self.user.name_any()).finish_non_exhaustive()
    }
}

/// The file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    #[serde(default)]
    revision: String,
    users: Vec<Value>,
}

/// Whether the user is for this Proxy; both are of one namespace.
#[must_use]
pub fn concerns(user: &User, proxy: &Proxy) -> bool {
    let broker = user.spec.broker_ref.as_ref();
    let of_broker = broker.is_some_and(|broker| proxy.spec.broker_ref.as_ref() == Some(broker));
    of_broker || user.spec.proxy_ref.as_ref().is_some_and(|named| named.name == proxy.name_any())
}

/// The Users of a Proxy, and each access key once: the older User has it. In the order of their access keys.
#[must_use]
pub fn of_proxy<'a>(users: &'a [User], proxy: &Proxy) -> Vec<&'a User> {
    let mut found: Vec<&User> = users.iter().filter(|user| concerns(user, proxy) && mistake(user).is_none()).collect();
    found.sort_by_key(|user| age(user));
    let mut taken = BTreeSet::new();
    found.retain(|user| taken.insert(user.access_key()));
    found.sort_by_key(|user| user.access_key());
    found
}

/// What the sidecars would not take. The definition of the kind does not let it in; one mistake would keep all users from
/// them.
#[must_use]
pub fn mistake(user: &User) -> Option<String> {
    let entry = entry(Known { user, secret_key: "any" });
    access::mistake(&json!({ "users": [entry] }).to_string())
}

/// Older ones come first.
pub(crate) fn age(user: &User) -> (Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>, String) {
    (user.creation_timestamp(), user.name_any())
}

/// The file with these users.
#[must_use]
pub fn file(known: &[Known<'_>]) -> String {
    let users: Vec<Value> = known.iter().map(|one| entry(*one)).collect();
    // Without the secret keys: it is shown where they must not be.
    let named: Vec<_> = known.iter().map(|one| (one.user.uid(), one.user.metadata.generation)).collect();
    let file = File { revision: hash::of(&format!("{named:?}")), users };
    // Maps with text as keys can always be written.
    serde_json::to_string_pretty(&file).unwrap_or_default()
}

/// Whether the file has this user as it is.
#[must_use]
pub fn has(file: &str, known: Known<'_>) -> bool {
    serde_json::from_str::<File>(file).is_ok_and(|file| file.users.contains(&entry(known)))
}

/// Which User each access key of the file is of, and from which Secret its secret key came: what an entry may be kept for when that Secret cannot be
/// read.
#[must_use]
pub fn owners(known: &[Known<'_>]) -> String {
    let owners: BTreeMap<String, String> = known.iter().map(|one| (one.user.access_key(), owner(one.user))).collect();
    serde_json::to_string(&owners).unwrap_or_default()
}

/// Whether the entry with the access key of this User is its own, from the Secret that it names now.
#[must_use]
pub fn is_of(owners: &[u8], user: &User) -> bool {
    let owners: Option<BTreeMap<String, String>> = serde_json::from_slice(owners).ok();
    owners.is_some_and(|owners| owners.get(&user.access_key()) == Some(&owner(user)))
}

fn owner(user: &User) -> String {
    format!("{} {}", user.uid().unwrap_or_default(), user.secret_name())
}

/// The secret key that the file has for this access key.
#[must_use]
pub fn secret_key(file: &str, access_key: &str) -> Option<String> {
    let file: File = serde_json::from_str(file).ok()?;
    let entry = file.users.iter().find(|entry| entry["accessKey"] == access_key)?;
    entry["secretKey"].as_str().map(str::to_owned)
}

fn entry(Known { user, secret_key }: Known<'_>) -> Value {
    let permissions: Vec<Value> = user.spec.permissions.iter().map(permission).collect();
    json!({
        "accessKey": user.access_key(),
        "secretKey": secret_key,
        "superUser": user.spec.super_user,
        "enabled": user.spec.enabled,
        "permissions": permissions,
    })
}

fn permission(permission: &UserPermission) -> Value {
    json!(permission)
}
