//! From valid resources to Kubernetes objects. Pure: the same resource always gives the same objects, and nobody is asked.

mod broker;
mod broker_keys;
mod injected;
pub(crate) mod pods;
mod proxy;
mod proxy_configuration;
pub mod users;

use std::collections::BTreeMap;

use kube::core::ApiResource;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use crate::api::{FIELD_MANAGER, ImagePullPolicy};

pub use broker::{BrokerObjects, Standing, broker, leaving};
pub use broker_keys::{KEYS as BROKER_KEYS, Key as BrokerKey, Takes as BrokerKeyTakes};
pub use injected::{
    ENDPOINTS, INJECT, INJECT_NAMESPACE, INJECTION, PROXY_NAMESPACE, SIDECAR, Sidecar, UNUSED_SINCE, injected, sidecar,
};
pub use proxy::{PROXY, ProxyObjects, proxy};
pub use proxy_configuration::{Authorities, BROKER_AUTHORITIES, Configuration, Role, Sources, configuration};

/// The label whose value says that the operator made an object.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The annotation of pods by which the kubelet notices at once that a ConfigMap has changed: the hash of what they are to have.
pub const CONFIGURATION: &str = "waybill.dev/configuration";
/// The annotation of pod templates with the hash of the configuration that only counts at the start of a program.
pub const RESTART_CONFIGURATION: &str = "waybill.dev/restart-configuration";
/// Services have addresses of IPv6 and IPv4 where the cluster has both. Of which kinds they are, and which comes first, the cluster says.
const IP_FAMILIES: &str = "PreferDualStack";

/// What the operator's command line says of images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Images {
    /// The broker's, where a Broker names none.
    pub broker: String,
    /// The sidecar's, where a Proxy names none.
    pub sidecar: String,
    /// When they are pulled, where a resource does not say it.
    pub pull_policy: ImagePullPolicy,
}

/// An object that the operator owns, with only the fields that it decides about.
#[derive(Debug, Clone, PartialEq)]
pub struct Object {
    /// What it is.
    pub resource: ApiResource,
    /// As it is applied.
    pub value: Value,
}

/// A resource asks for what cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {reason}")]
pub struct Invalid {
    /// Where, such as `spec.storage.size`.
    pub field: String,
    /// Why, for people.
    pub reason: String,
}

impl Invalid {
    /// `field` and `reason` read as one sentence: `spec.storage.size` `is "abc", no size`.
    pub(crate) fn new(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { field: field.into(), reason: reason.into() }
    }
}

/// The labels that tell the objects of one resource from all others; those of its pods, too. They never change.
/// `component` is `broker` or `proxy`.
#[must_use]
pub fn labels(component: &str, instance: &str) -> BTreeMap<String, String> {
    let label = |key: &str, value: &str| (format!("app.kubernetes.io/{key}"), value.to_owned());
    BTreeMap::from([
        label("name", &format!("waybill-{component}")),
        label("instance", instance),
        label("component", component),
        label("managed-by", FIELD_MANAGER),
    ])
}

/// [`labels`] as `kubectl get -l` and list requests take them.
#[must_use]
pub fn selector(component: &str, instance: &str) -> String {
    let pairs: Vec<String> = labels(component, instance).iter().map(|(key, value)| format!("{key}={value}")).collect();
    pairs.join(",")
}

/// The metadata of an object that belongs to `owner`, and is deleted with it.
pub(crate) fn metadata(
    name: &str,
    labels: &BTreeMap<String, String>,
    owner: &impl Resource<DynamicType = ()>,
) -> Value {
    let mut metadata = json!({ "name": name, "namespace": owner.namespace().unwrap_or_default(), "labels": labels });
    if let Some(reference) = owner.controller_owner_ref(&()) {
        metadata["ownerReferences"] = json!([reference]);
    }
    metadata
}

/// The object of type `K` with this metadata; `value` has all else.
pub(crate) fn object<K: Resource<DynamicType = ()>>(metadata: &Value, mut value: Value) -> Object {
    value["apiVersion"] = json!(K::api_version(&()));
    value["kind"] = json!(K::kind(&()));
    value["metadata"] = metadata.clone();
    Object { resource: ApiResource::erase::<K>(&()), value }
}
