//! What injection brings into a pod and its namespace: a sidecar, and the ConfigMap that it reads.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::proxy::{image, pull_policy};
use super::proxy_configuration::configuration;
use super::users::users_elsewhere;
use super::{Configuration, Images, Invalid, Object, Role, Sources, labels, object, pods};
use crate::api::Proxy;
use crate::place::{CONFIGURATION_DIR, SIDECAR_FILE, injected_configuration};

/// The name of the sidecar in a pod, and of its volume.
pub const SIDECAR: &str = "waybill-sidecar";
/// What ConfigMaps of injected sidecars have as `app.kubernetes.io/component`.
pub const INJECTION: &str = "injection";
/// The label of pods that says of which Proxy they want a sidecar.
pub const INJECT: &str = "waybill.dev/inject";
/// The label of pods with the namespace of that Proxy, if it is another one.
pub const INJECT_NAMESPACE: &str = "waybill.dev/inject-namespace";
/// The label of a ConfigMap with the namespace of its Proxy.
pub const PROXY_NAMESPACE: &str = "waybill.dev/proxy-namespace";
/// The annotation of a ConfigMap that says since when no pod of the namespace needs it.
pub const UNUSED_SINCE: &str = "waybill.dev/unused-since";
/// Where clients find their sidecar, as the environment of RocketMQ's clients has it.
pub const ENDPOINTS: &str = "ROCKETMQ_ENDPOINTS";

/// What a pod gets.
#[derive(Debug, Clone, PartialEq)]
pub struct Sidecar {
    /// The init container that stays.
    pub container: Value,
    /// The volume with its configuration.
    pub volume: Value,
    /// What applications find in [`ENDPOINTS`].
    pub endpoints: String,
}

/// The sidecar of `proxy` for pods of `namespace`.
///
/// # Errors
/// The resource asks for what cannot be.
pub fn sidecar(proxy: &Proxy, namespace: &str, images: &Images) -> Result<Sidecar, Invalid> {
    let injection = &proxy.spec.injection;
    // Names of ports are of this container alone; numbers, since an application may have a port of the same name.
    let probe = |period: i32, failures: i32| {
        let mut probe = pods::probe("/healthz", period, failures);
        probe["httpGet"]["port"] = json!(injection.admin_port);
        probe
    };
    let mut security = pods::container_security();
    // The pod's own may say something else, or nothing.
    if let (Value::Object(security), Value::Object(of_pod)) = (&mut security, pods::pod_security()) {
        let of_container = ["runAsUser", "runAsGroup", "runAsNonRoot", "seccompProfile"];
        security.extend(of_pod.into_iter().filter(|(name, _)| of_container.contains(&name.as_str())));
    }
    let mut container = json!({
        "name": SIDECAR,
        "image": image(proxy, images)?,
        "imagePullPolicy": pull_policy(proxy, images),
        // Starts before the application and stops after it.
        "restartPolicy": "Always",
        "args": ["--config", format!("{CONFIGURATION_DIR}/{SIDECAR_FILE}"), "--log-format", "json"],
        "ports": [{ "name": "waybill-admin", "containerPort": injection.admin_port, "protocol": "TCP" }],
        "securityContext": security,
        // It answers as soon as it takes connections of clients, whether it has found a broker or not.
        "startupProbe": probe(1, 60),
        "livenessProbe": probe(10, 6),
        "volumeMounts": [{ "name": SIDECAR, "mountPath": CONFIGURATION_DIR, "readOnly": true }],
    });
    if let Some(resources) = pods::resources("spec.injection.resources", &injection.resources)? {
        container["resources"] = resources;
    }
    let home = proxy.namespace().unwrap_or_default();
    let name = injected_configuration(&home, &proxy.name_any(), namespace);
    // Where nobody is asked yet the users may come later: the volume of a pod cannot be changed, and a sidecar that started again would look
    // for them in vain. Where they are asked for, the pod waits for them.
    let users = json!({ "name": users_elsewhere(proxy, namespace), "optional": !proxy.asks_for_users() });
    let sources = json!([{ "configMap": { "name": name } }, { "secret": users }]);
    let volume = json!({ "name": SIDECAR, "projected": { "sources": sources, "defaultMode": 0o444 } });
    Ok(Sidecar { container, volume, endpoints: format!("127.0.0.1:{}", injection.port) })
}

/// The ConfigMap of the injected sidecars in `namespace`. It outlives the Proxy where running pods have it, so it does not belong
/// to it.
///
/// # Errors
/// The resource asks for what a sidecar would refuse.
pub fn injected(proxy: &Proxy, namespace: &str, sources: &Sources) -> Result<(Object, Configuration), Invalid> {
    let configuration = configuration(proxy, Role::Injected, sources)?;
    let home = proxy.namespace().unwrap_or_default();
    let mut labels = labels(INJECTION, &proxy.name_any());
    labels.insert(PROXY_NAMESPACE.to_owned(), home.clone());
    let metadata = json!({
        "name": injected_configuration(&home, &proxy.name_any(), namespace),
        "namespace": namespace,
        "labels": labels,
    });
    let object = object::<ConfigMap>(&metadata, json!({ "data": configuration.data() }));
    Ok((object, configuration))
}
