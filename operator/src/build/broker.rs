//! The objects of a Broker: a StatefulSet with a volume for each pod, a headless Service that gives pods names that stay, a
//! ConfigMap, a ServiceAccount without rights, and a budget of disruptions.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::broker_keys::{self, SHUTDOWN_GRACE};
use super::{IP_FAMILIES, Images, Invalid, Object, RESTART_CONFIGURATION, labels, metadata, object, pods};
use crate::api::{Broker, Flush, ImagePullPolicy, Reclaim, TlsMode};
use crate::place::{BROKER_ADMIN_PORT, REMOTING_PORT, broker_host, broker_name, broker_set, cluster_name};
use crate::{hash, quantity};

const CONFIGURATION_DIR: &str = "/etc/waybill";
const CONFIGURATION_FILE: &str = "broker.yaml";
const DATA_DIR: &str = "/data";
/// Below the root of the volume, where file systems have things of their own.
const STORE_DIR: &str = "/data/store";
/// Where the certificate of the remoting port is.
const TLS_DIR: &str = "/etc/waybill-tls";
/// What a broker needs to close its store, beyond the time for requests in hand, seconds.
const CLOSING_SECONDS: i64 = 30;
/// For requests in hand, seconds, where the configuration does not say it.
const GRACE_SECONDS: i64 = 10;
/// A broker that reads its log again does not answer yet, and is not to be killed for it: a day of probes, one each second.
const STARTUP_FAILURES: i32 = 86_400;
/// Bytes of a segment of the log, where the configuration does not say it.
const SEGMENT_BYTES: i64 = 64 << 20;

/// What a Broker comes to.
#[derive(Debug, Clone, PartialEq)]
pub struct BrokerObjects {
    /// What the pods need, in the order in which it is to be applied; the ConfigMap is among it.
    pub around: Vec<Object>,
    /// The pods.
    pub set: Object,
    /// The hash of the configuration, as brokers tell it.
    pub configuration: String,
}

/// What is there already and decides what comes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Standing {
    /// How many pods the StatefulSet has, those that end included.
    pub pods: i32,
    /// The size in the StatefulSet's template of volumes, which cannot be changed. None: there is no StatefulSet.
    pub volume_size: Option<String>,
}

/// The names of the brokers that are to go, if there are so many pods.
#[must_use]
pub fn leaving(broker: &Broker, pods: i32) -> Vec<String> {
    (broker.spec.replicas.max(0)..pods).map(|number| broker_name(&broker.name_any(), number)).collect()
}

/// The objects of `broker` with so many `replicas`.
///
/// # Errors
/// The resource asks for what cannot be.
pub fn broker(broker: &Broker, images: &Images, standing: &Standing, replicas: i32) -> Result<BrokerObjects, Invalid> {
    let set = broker_set(&broker.name_any());
    let labels = labels("broker", &broker.name_any());
    let metadata = metadata(&set, &labels, broker);
    let configuration = configuration(broker, standing)?;
    let text = text_of(&configuration);
    let stateful_set = stateful_set(broker, images, standing, replicas, &configuration)?;
    let service = json!({ "spec": {
        "clusterIP": "None",
        "ipFamilyPolicy": IP_FAMILIES,
        // A broker's name is there before the broker is ready: its clients wait for it under that name.
        "publishNotReadyAddresses": true,
        "selector": labels,
        "ports": [
            { "name": "remoting", "port": REMOTING_PORT, "targetPort": "remoting", "protocol": "TCP" },
            { "name": "admin", "port": BROKER_ADMIN_PORT, "targetPort": "admin", "protocol": "TCP" },
        ],
    } });
    let budget = json!({ "spec": { "maxUnavailable": 1, "selector": { "matchLabels": labels } } });
    Ok(BrokerObjects {
        configuration: hash::of(&text),
        around: vec![
            object::<ServiceAccount>(&metadata, json!({ "automountServiceAccountToken": false })),
            object::<ConfigMap>(&metadata, json!({ "data": { CONFIGURATION_FILE: text } })),
            object::<Service>(&metadata, service),
            object::<PodDisruptionBudget>(&metadata, budget),
        ],
        set: object::<StatefulSet>(&metadata, json!({ "spec": stateful_set })),
    })
}

/// The configuration that all pods share; what differs from pod to pod is on their command lines.
fn configuration(broker: &Broker, standing: &Standing) -> Result<BTreeMap<String, Value>, Invalid> {
    let spec = &broker.spec;
    for (key, value) in &spec.configuration {
        broker_keys::check(key, value)?;
    }
    let mut all: BTreeMap<String, Value> =
        spec.configuration.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    let flush = match spec.flush {
        Flush::Sync => "SYNC_FLUSH",
        Flush::Async => "ASYNC_FLUSH",
    };
    let cluster = cluster_name(&broker.namespace().unwrap_or_default(), &broker.name_any());
    let mut set = |key: &str, value: Value| drop(all.insert(key.to_owned(), value));
    set("brokerClusterName", json!(cluster));
    set("listenPort", json!(REMOTING_PORT));
    set("adminListen", json!(format!("[::]:{BROKER_ADMIN_PORT}")));
    set("storePathRootDir", json!(STORE_DIR));
    set("flushDiskType", json!(flush));
    if let Some(tls) = &spec.tls {
        let mode = match tls.mode {
            TlsMode::Permissive => "permissive",
            TlsMode::Enforcing => "enforcing",
        };
        set("tlsServerMode", json!(mode));
        set("tlsServerCertPath", json!(format!("{TLS_DIR}/tls.crt")));
        set("tlsServerKeyPath", json!(format!("{TLS_DIR}/tls.key")));
    }
    for (key, value) in [
        ("fileReservedTime", spec.retention.hours),
        ("diskMaxUsedSpaceRatio", spec.retention.disk_max_percent),
        ("logBytesMax", spec.retention.log_bytes_max),
        ("batchMaxEntries", spec.batch_max_entries.map(i64::from)),
    ] {
        if let Some(value) = value {
            set(key, json!(value));
        }
    }
    let leaving = leaving(broker, standing.pods);
    if !leaving.is_empty() {
        set("readOnlyBrokers", json!(leaving));
    }
    fits_together(&all)?;
    Ok(all)
}

/// What the broker would refuse of values that are allowed one by one.
fn fits_together(all: &BTreeMap<String, Value>) -> Result<(), Invalid> {
    let number = |key: &str| all.get(key).and_then(Value::as_i64);
    let segment = number("mappedFileSizeCommitLog").unwrap_or(SEGMENT_BYTES);
    if number("maxMessageSize").is_some_and(|size| size > segment / 2) {
        let reason = format!("is more than half of mappedFileSizeCommitLog, {segment}");
        return Err(Invalid::new("spec.configuration.maxMessageSize", reason));
    }
    if segment / 2 < 4 << 20 && number("maxMessageSize").is_none() {
        let reason = format!("is {segment}: say a maxMessageSize of at most half of that, too");
        return Err(Invalid::new("spec.configuration.mappedFileSizeCommitLog", reason));
    }
    if number("logBytesMax").is_some_and(|bytes| bytes != 0 && bytes < 4 * segment) {
        let reason = format!("is less than four times mappedFileSizeCommitLog, {segment}");
        return Err(Invalid::new("spec.retention.logBytesMax", reason));
    }
    Ok(())
}

/// As it is in the file: JSON, which is YAML, a key on each line.
fn text_of(configuration: &BTreeMap<String, Value>) -> String {
    let lines: Vec<String> = configuration.iter().map(|(key, value)| format!("  {}: {value}", json!(key))).collect();
    format!("{{\n{}\n}}\n", lines.join(",\n"))
}

/// The hash of what only counts at the start of a broker.
fn restart_hash(configuration: &BTreeMap<String, Value>) -> String {
    let fixed = configuration.iter().filter(|(key, _)| !broker_keys::is_dynamic(key));
    hash::of(&text_of(&fixed.map(|(key, value)| (key.clone(), value.clone())).collect()))
}

fn stateful_set(
    broker: &Broker,
    images: &Images,
    standing: &Standing,
    replicas: i32,
    configuration: &BTreeMap<String, Value>,
) -> Result<Value, Invalid> {
    let spec = &broker.spec;
    let set = broker_set(&broker.name_any());
    let labels = labels("broker", &broker.name_any());
    let grace = configuration.get(SHUTDOWN_GRACE).and_then(Value::as_i64).unwrap_or(GRACE_SECONDS);
    let mut template = json!({
        "metadata": { "labels": labels, "annotations": { RESTART_CONFIGURATION: restart_hash(configuration) } },
        "spec": {
            "serviceAccountName": set,
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "terminationGracePeriodSeconds": grace + CLOSING_SECONDS,
            "securityContext": pods::pod_security(),
            "affinity": pods::apart(&labels),
            "topologySpreadConstraints": pods::over_zones(&labels),
            "containers": [container(broker, images)?],
            "volumes": [{ "name": "configuration", "configMap": { "name": set } }],
        },
    });
    if spec.storage.ephemeral
        && let Some(volumes) = template["spec"]["volumes"].as_array_mut()
    {
        volumes.push(json!({ "name": "data", "emptyDir": { "sizeLimit": spec.storage.size } }));
    }
    if let Some(tls) = &spec.tls
        && let Some(volumes) = template["spec"]["volumes"].as_array_mut()
    {
        volumes.push(json!({ "name": "tls", "secret": { "secretName": tls.secret_name } }));
    }
    pods::override_pod(&mut template, &spec.pod);
    let mut stateful_set = json!({
        "replicas": replicas,
        "serviceName": set,
        // After an outage of all, no broker waits for another; and one that cannot start does not hold up its own correction.
        // Updates are one at a time all the same.
        "podManagementPolicy": "Parallel",
        "updateStrategy": { "type": "RollingUpdate" },
        "selector": { "matchLabels": labels },
        "template": template,
    });
    if !spec.storage.ephemeral {
        let reclaim = match spec.storage.reclaim {
            Reclaim::Retain => "Retain",
            Reclaim::Delete => "Delete",
        };
        stateful_set["persistentVolumeClaimRetentionPolicy"] = json!({ "whenDeleted": reclaim, "whenScaled": reclaim });
        stateful_set["volumeClaimTemplates"] =
            json!([{ "metadata": { "name": "data", "labels": labels }, "spec": claim(broker, standing)? }]);
    }
    Ok(stateful_set)
}

fn claim(broker: &Broker, standing: &Standing) -> Result<Value, Invalid> {
    let storage = &broker.spec.storage;
    if quantity::parse(&storage.size).is_none_or(|size| size <= 0) {
        return Err(Invalid::new("spec.storage.size", format!("is {:?}, no size", storage.size)));
    }
    // The template cannot be changed; claims that are there are grown one by one.
    let size = standing.volume_size.as_ref().unwrap_or(&storage.size);
    let mut claim = json!({
        "accessModes": ["ReadWriteOnce"],
        "resources": { "requests": { "storage": size } },
    });
    if let Some(class) = &storage.class_name {
        claim["storageClassName"] = json!(class);
    }
    Ok(claim)
}

fn container(broker: &Broker, images: &Images) -> Result<Value, Invalid> {
    let spec = &broker.spec;
    let image = spec.image.as_ref().unwrap_or(&images.broker);
    if image.is_empty() {
        return Err(Invalid::new("spec.image", "is absent, and the operator was started without --broker-image"));
    }
    let policy: ImagePullPolicy = spec.image_pull_policy.unwrap_or(images.pull_policy);
    let namespace = broker.namespace().unwrap_or_default();
    let host = spec.announced_host.clone().unwrap_or_else(|| {
        broker_host(&namespace, &broker.name_any(), 0).replacen(&broker_name(&broker.name_any(), 0), "{pod}", 1)
    });
    if host.contains(':') && host.parse::<Ipv6Addr>().is_err() {
        let reason = format!("is {host:?}, neither a name nor an address; its port is always {REMOTING_PORT}");
        return Err(Invalid::new("spec.announcedHost", reason));
    }
    let mut container = json!({
        "name": "broker",
        "image": image,
        "imagePullPolicy": policy.word(),
        "args": [
            "--config", format!("{CONFIGURATION_DIR}/{CONFIGURATION_FILE}"),
            "--name", "$(POD_NAME)",
            // Kubernetes replaces $(POD_NAME).
            "--host", host.replace("{pod}", "$(POD_NAME)"),
            "--log-format", "json",
        ],
        "env": [{ "name": "POD_NAME", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } }],
        "ports": [
            { "name": "remoting", "containerPort": REMOTING_PORT, "protocol": "TCP" },
            { "name": "admin", "containerPort": BROKER_ADMIN_PORT, "protocol": "TCP" },
        ],
        "securityContext": pods::container_security(),
        // What a broker says last, such as which key it refuses, is in the status of its pod.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "startupProbe": pods::probe("/readyz", 1, STARTUP_FAILURES),
        // Alive is not ready: a full disk or a store that is opened again makes a broker unready, and is no reason to kill it.
        "livenessProbe": pods::probe("/healthz", 10, 6),
        "readinessProbe": pods::probe("/readyz", 5, 2),
        "volumeMounts": [
            { "name": "data", "mountPath": DATA_DIR },
            { "name": "configuration", "mountPath": CONFIGURATION_DIR, "readOnly": true },
        ],
    });
    if spec.tls.is_some()
        && let Some(mounts) = container["volumeMounts"].as_array_mut()
    {
        mounts.push(json!({ "name": "tls", "mountPath": TLS_DIR, "readOnly": true }));
    }
    if let Some(resources) = pods::resources("spec.resources", &spec.resources)? {
        container["resources"] = resources;
    }
    Ok(container)
}
