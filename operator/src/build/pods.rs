//! What all pods have in common.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::Invalid;
use crate::api::{PodOverrides, Resources};
use crate::quantity;

/// The user and group that everything runs as; nobody's on usual systems.
const USER: i64 = 65_532;

/// As the restricted Pod Security Standard wants it.
pub(crate) fn pod_security() -> Value {
    json!({
        "runAsNonRoot": true,
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": { "type": "RuntimeDefault" },
    })
}

/// As the restricted Pod Security Standard wants it, and nothing to write to but volumes.
pub(crate) fn container_security() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": { "drop": ["ALL"] },
        "runAsNonRoot": true,
    })
}

/// A probe that asks the port named `admin`.
pub(crate) fn probe(path: &str, period_seconds: i32, failures: i32) -> Value {
    json!({
        "httpGet": { "path": path, "port": "admin" },
        "periodSeconds": period_seconds,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    })
}

/// The amounts of a container; None for none. `field` is where they are said, such as `spec.resources`.
///
/// # Errors
/// An amount is none, or a limit is below what is requested.
pub(crate) fn resources(field: &str, resources: &Resources) -> Result<Option<Value>, Invalid> {
    let mut said = Map::new();
    for (which, amounts) in [("requests", &resources.requests), ("limits", &resources.limits)] {
        for (name, amount) in amounts {
            let field = || format!("{field}.{which}.{name}");
            let value = quantity::parse(amount)
                .filter(|value| *value >= 0)
                .ok_or_else(|| Invalid::new(field(), format!("is {amount:?}, no amount")))?;
            let least = resources.requests.get(name).and_then(|request| quantity::parse(request));
            if which == "limits" && least.is_some_and(|least| least > value) {
                return Err(Invalid::new(field(), format!("is {amount}, less than what is requested")));
            }
        }
        if !amounts.is_empty() {
            said.insert(which.to_owned(), json!(amounts));
        }
    }
    Ok((!said.is_empty()).then_some(Value::Object(said)))
}

/// Away from each other's nodes, where there are others.
pub(crate) fn apart(labels: &BTreeMap<String, String>) -> Value {
    json!({ "podAntiAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [{
        "weight": 100,
        "podAffinityTerm": { "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchLabels": labels } },
    }] } })
}

/// Spread over zones, where there are several.
pub(crate) fn over_zones(labels: &BTreeMap<String, String>) -> Value {
    json!([{
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": { "matchLabels": labels },
    }])
}

/// Puts into a pod template (`metadata` and `spec`) what was said beside. Labels and annotations that are there already stay.
pub(crate) fn override_pod(template: &mut Value, pod: &PodOverrides) {
    for (part, said) in [("labels", &pod.labels), ("annotations", &pod.annotations)] {
        for (key, value) in said {
            let there = &mut template["metadata"][part];
            if there.get(key).is_none() {
                there[key] = json!(value);
            }
        }
    }
    let spec = &mut template["spec"];
    if !pod.node_selector.is_empty() {
        spec["nodeSelector"] = json!(pod.node_selector);
    }
    if let Some(affinity) = &pod.affinity {
        spec["affinity"] = affinity.clone();
    }
    if !pod.tolerations.is_empty() {
        spec["tolerations"] = json!(pod.tolerations);
    }
    if !pod.topology_spread_constraints.is_empty() {
        spec["topologySpreadConstraints"] = json!(pod.topology_spread_constraints);
    }
    if let Some(class) = &pod.priority_class_name {
        spec["priorityClassName"] = json!(class);
    }
    if !pod.image_pull_secrets.is_empty() {
        let secrets: Vec<Value> = pod.image_pull_secrets.iter().map(|name| json!({ "name": name })).collect();
        spec["imagePullSecrets"] = json!(secrets);
    }
    if pod.host_network {
        spec["hostNetwork"] = json!(true);
        // Names of the cluster are to be known there, too.
        spec["dnsPolicy"] = json!("ClusterFirstWithHostNet");
    }
}
