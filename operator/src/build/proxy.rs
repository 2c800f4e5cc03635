//! The objects of a Proxy: a Deployment, the Service that clients connect to, a ConfigMap that running pods read again, a budget of
//! disruptions, an account without rights, and a HorizontalPodAutoscaler where that is asked for.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::proxy_configuration::{TLS_DIR, configuration};
use super::users::{USERS_DIRECTORY, users_secret};
use super::{
    Configuration, IP_FAMILIES, Images, Invalid, Object, RESTART_CONFIGURATION, Role, Sources, labels, metadata,
    object, pods,
};
use crate::api::{Proxy, Resources};
use crate::place::{CONFIGURATION_DIR, SIDECAR_ADMIN_PORT, SIDECAR_FILE, SIDECAR_PORT, proxy_name};

/// What objects of proxies have as `app.kubernetes.io/component`.
pub const PROXY: &str = "proxy";
/// The container of a proxy's pod.
const PROXY_CONTAINER: &str = "proxy";
/// What a proxy needs beside its grace time to end.
const ENDING_SECONDS: i64 = 7;
/// A rollout of which no pod comes for so long has stopped.
const PROGRESS_SECONDS: i64 = 120;
/// What is requested of CPU where the number of proxies follows its use and nothing is said.
const CPU: &str = "100m";

/// What a Proxy asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct ProxyObjects {
    /// What the pods are to have in force.
    pub configuration: Configuration,
    /// In the order in which they are applied; the Deployment is the last.
    pub objects: Vec<Object>,
    /// The autoscaler, where there is to be none.
    pub unwanted: Option<Object>,
}

/// The objects of `proxy`.
///
/// # Errors
/// The resource asks for what cannot be.
pub fn proxy(proxy: &Proxy, sources: &Sources, images: &Images) -> Result<ProxyObjects, Invalid> {
    let name = proxy_name(&proxy.name_any());
    let labels = labels(PROXY, &proxy.name_any());
    let metadata = metadata(&name, &labels, proxy);
    let configuration = configuration(proxy, Role::Shared, sources)?;
    let autoscaler = object::<HorizontalPodAutoscaler>(&metadata, json!({ "spec": autoscaler(proxy, &name) }));
    let mut objects = vec![
        object::<ServiceAccount>(&metadata, json!({ "automountServiceAccountToken": false })),
        object::<ConfigMap>(&metadata, json!({ "data": configuration.data() })),
        service(proxy, &metadata, &labels),
        object::<PodDisruptionBudget>(
            &metadata,
            json!({ "spec": { "maxUnavailable": 1, "selector": { "matchLabels": labels } } }),
        ),
    ];
    let unwanted = match proxy.spec.autoscaling {
        Some(_) => {
            objects.push(autoscaler);
            None
        }
        None => Some(autoscaler),
    };
    let deployment = deployment(proxy, &name, &labels, &configuration, images)?;
    objects.push(object::<Deployment>(&metadata, json!({ "spec": deployment })));
    Ok(ProxyObjects { configuration, objects, unwanted })
}

/// The image of the sidecars of a Proxy.
///
/// # Errors
/// Nobody names one.
pub(super) fn image<'a>(proxy: &'a Proxy, images: &'a Images) -> Result<&'a str, Invalid> {
    let image = proxy.spec.image.as_deref().unwrap_or(&images.sidecar);
    if image.is_empty() {
        Err(Invalid::new("spec.image", "is absent, and the operator has no --sidecar-image"))
    } else {
        Ok(image)
    }
}

/// When it is pulled.
pub(super) fn pull_policy(proxy: &Proxy, images: &Images) -> &'static str {
    proxy.spec.image_pull_policy.unwrap_or(images.pull_policy).word()
}

fn service(proxy: &Proxy, metadata: &Value, labels: &BTreeMap<String, String>) -> Object {
    let mut metadata = metadata.clone();
    if !proxy.spec.service.annotations.is_empty() {
        metadata["annotations"] = json!(proxy.spec.service.annotations);
    }
    let port = json!({ "name": "grpc", "port": SIDECAR_PORT, "targetPort": "grpc", "protocol": "TCP" });
    object::<Service>(
        &metadata,
        json!({ "spec": {
            "type": proxy.spec.service.kind,
            "ipFamilyPolicy": IP_FAMILIES,
            "selector": labels,
            "ports": [port],
        } }),
    )
}

fn autoscaler(proxy: &Proxy, name: &str) -> Value {
    let mut spec = json!({ "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": name } });
    if let Some(autoscaling) = &proxy.spec.autoscaling {
        spec["minReplicas"] = json!(autoscaling.min_replicas);
        spec["maxReplicas"] = json!(autoscaling.max_replicas);
        let target = json!({ "type": "Utilization", "averageUtilization": autoscaling.cpu_percent });
        spec["metrics"] = json!([{ "type": "Resource", "resource": { "name": "cpu", "target": target } }]);
    }
    spec
}

fn deployment(
    proxy: &Proxy,
    name: &str,
    labels: &BTreeMap<String, String>,
    configuration: &Configuration,
    images: &Images,
) -> Result<Value, Invalid> {
    let mut volumes = vec![json!({ "name": "configuration", "configMap": { "name": name } })];
    let mut mounts = vec![json!({ "name": "configuration", "mountPath": CONFIGURATION_DIR, "readOnly": true })];
    if let Some(tls) = &proxy.spec.tls {
        volumes.push(json!({ "name": "tls", "secret": { "secretName": tls.secret_name } }));
        mounts.push(json!({ "name": "tls", "mountPath": TLS_DIR, "readOnly": true }));
    }
    if proxy.asks_for_users() {
        // Not optional: a proxy that cannot ask lets nobody in, and the operator writes it in a moment.
        volumes.push(json!({ "name": "users", "secret": { "secretName": users_secret(&proxy.name_any()) } }));
        mounts.push(json!({ "name": "users", "mountPath": USERS_DIRECTORY, "readOnly": true }));
    }
    let mut container = json!({
        "name": PROXY_CONTAINER,
        "image": image(proxy, images)?,
        "imagePullPolicy": pull_policy(proxy, images),
        "args": ["--config", format!("{CONFIGURATION_DIR}/{SIDECAR_FILE}"), "--log-format", "json"],
        "ports": [
            { "name": "grpc", "containerPort": SIDECAR_PORT, "protocol": "TCP" },
            { "name": "admin", "containerPort": SIDECAR_ADMIN_PORT, "protocol": "TCP" },
        ],
        "securityContext": pods::container_security(),
        "startupProbe": pods::probe("/healthz", 1, 60),
        "livenessProbe": pods::probe("/healthz", 10, 6),
        // Often, since a Service sends clients to a pod that is to go, when there is no other, for as long as it says that it is ready; who comes when it
        // has ended waits for a time-out.
        "readinessProbe": pods::probe("/readyz", 1, 2),
        "volumeMounts": mounts,
    });
    if let Some(resources) = pods::resources("spec.resources", &requested(proxy))? {
        container["resources"] = resources;
    }
    let mut template = json!({
        "metadata": { "labels": labels, "annotations": { RESTART_CONFIGURATION: configuration.at_start } },
        "spec": {
            "serviceAccountName": name,
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "terminationGracePeriodSeconds": proxy.spec.shutdown.notice_seconds + proxy.spec.shutdown.grace_seconds + ENDING_SECONDS,
            "securityContext": pods::pod_security(),
            "affinity": pods::apart(labels),
            "topologySpreadConstraints": pods::over_zones(labels),
            "containers": [container],
            "volumes": volumes,
        },
    });
    pods::override_pod(&mut template, &proxy.spec.pod);
    // One pod at a time, and the next one only when the one before is ready. Where a node has room for one, the old one goes first.
    let (surge, unavailable) = if proxy.spec.pod.host_network { (0, 1) } else { (1, 0) };
    let mut deployment = json!({
        "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": surge, "maxUnavailable": unavailable } },
        "progressDeadlineSeconds": PROGRESS_SECONDS,
        "selector": { "matchLabels": labels },
        "template": template,
    });
    if proxy.spec.autoscaling.is_none() {
        deployment["replicas"] = json!(proxy.spec.replicas);
    }
    Ok(deployment)
}

/// With the least that an autoscaler can work with.
fn requested(proxy: &Proxy) -> Resources {
    let mut resources = proxy.spec.resources.clone();
    if proxy.spec.autoscaling.is_some() && !resources.limits.contains_key("cpu") {
        resources.requests.entry("cpu".to_owned()).or_insert_with(|| CPU.to_owned());
    }
    resources
}
