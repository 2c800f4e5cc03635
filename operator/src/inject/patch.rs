//! What is to be changed in a pod for it to have its sidecar. Pure.

use serde_json::{Value, json};

use crate::build::{ENDPOINTS, SIDECAR, Sidecar};

/// The changes (RFC 6902) that give `pod` its sidecar: the sidecar as the first init container, its volume, and where it is found in
/// the environment of each application container that does not say it. Nothing, if the pod has all of it: it may be asked about
/// several times.
#[must_use]
pub fn patch(pod: &Value, sidecar: &Sidecar) -> Vec<Value> {
    let spec = &pod["spec"];
    let mut changes = Vec::new();
    if !has(&spec["initContainers"], SIDECAR) {
        // The first: it runs when the others start, those that prepare something as well.
        add_to(&mut changes, "/spec/initContainers", &spec["initContainers"], "0", &sidecar.container);
    }
    if !has(&spec["volumes"], SIDECAR) {
        add_to(&mut changes, "/spec/volumes", &spec["volumes"], "-", &sidecar.volume);
    }
    let variable = json!({ "name": ENDPOINTS, "value": sidecar.endpoints });
    for (number, container) in spec["containers"].as_array().into_iter().flatten().enumerate() {
        if !has(&container["env"], ENDPOINTS) {
            let path = format!("/spec/containers/{number}/env");
            add_to(&mut changes, &path, &container["env"], "-", &variable);
        }
    }
    changes
}

/// Whether a list has an item of this name.
pub(super) fn has(list: &Value, name: &str) -> bool {
    list.as_array().is_some_and(|items| items.iter().any(|item| item["name"] == name))
}

/// Adds an item to a list that may not be there yet.
fn add_to(changes: &mut Vec<Value>, path: &str, list: &Value, place: &str, item: &Value) {
    changes.push(if list.is_array() {
        json!({ "op": "add", "path": format!("{path}/{place}"), "value": item })
    } else {
        json!({ "op": "add", "path": path, "value": [item] })
    });
}
