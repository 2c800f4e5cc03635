//! Answers to the API server's questions about new pods. A pod is always let in; if it cannot have its sidecar, with a warning.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tracing::{info, warn};

use super::patch::{has, patch};
use crate::api::Proxy;
use crate::build::{self, INJECT, INJECT_NAMESPACE, SIDECAR, Sidecar};
use crate::metrics::Admission;
use crate::reconcile::{Context, provide};
use crate::run::Scope;

/// What kubelets write on pods that show what they run by files of their own.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Answers `review`, an AdmissionReview (v1).
///
/// # Errors
/// It is none, so there is nothing to answer to.
pub async fn answer(review: &Value, context: &Context, scope: &Scope) -> Result<Value, String> {
    let request = &review["request"];
    let uid = request["uid"].as_str().ok_or("there is no request.uid")?;
    let mut response = json!({ "uid": uid, "allowed": true });
    match changes(request, context, scope).await {
        Ok(changes) if changes.is_empty() => context.metrics.admission(Admission::Unchanged),
        Ok(changes) => {
            context.metrics.admission(Admission::Injected);
            response["patchType"] = json!("JSONPatch");
            response["patch"] = json!(STANDARD.encode(json!(changes).to_string()));
        }
        Err(reason) => {
            let name = request["object"]["metadata"]["generateName"].as_str().or(request["name"].as_str());
            context.metrics.admission(Admission::Missed);
            warn!(namespace = request["namespace"].as_str(), pod = name, "a pod stays without a sidecar: {reason}");
            response["warnings"] = json!([format!("waybill: this pod has no sidecar: {reason}")]);
        }
    }
    Ok(json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response }))
}

/// What is to be changed in the pod; why it cannot have a sidecar otherwise.
async fn changes(request: &Value, context: &Context, scope: &Scope) -> Result<Vec<Value>, String> {
    let pod = &request["object"];
    if pod["kind"] != "Pod" || !pod["spec"]["containers"].is_array() {
        return Err("what the API server asks about is no pod".to_owned());
    }
    let namespace = request["namespace"].as_str().ok_or("the API server does not say its namespace")?;
    let label = |name: &str| pod["metadata"]["labels"][name].as_str();
    // The configuration of the webhook asks for it; without it there is nothing to do.
    let Some(name) = label(INJECT) else { return Ok(Vec::new()) };
    let home = label(INJECT_NAMESPACE).unwrap_or(namespace);
    // Labels are looked at by the API server only after this, and these become part of a path.
    if let Some(none) = [name, home].into_iter().find(|name| !is_name(name)) {
        return Err(format!("{none:?} is no name of a Proxy or a namespace"));
    }
    fits(pod)?;
    let (proxy, sidecar) = sidecar(home, name, namespace, context, scope).await?;
    free(pod, &proxy)?;
    let changes = patch(pod, &sidecar);
    // The sidecar could not start without its configuration, and the pod would wait.
    let is_new = |change: &Value| [&change["value"], &change["value"][0]].iter().any(|added| added["name"] == SIDECAR);
    if request["dryRun"] != true && changes.iter().any(is_new) {
        provide(&proxy, namespace, context).await?;
        info!(namespace, proxy = name, "a pod gets a sidecar");
    }
    Ok(changes)
}

/// Whether a sidecar can be in such a pod.
fn fits(pod: &Value) -> Result<(), String> {
    if pod["spec"]["hostNetwork"] == true {
        return Err("its ports would be those of the node (hostNetwork)".to_owned());
    }
    if pod["spec"]["os"]["name"].as_str().is_some_and(|os| os != "linux") {
        return Err("it is not for Linux".to_owned());
    }
    if !pod["metadata"]["annotations"][MIRROR].is_null() {
        return Err("it is a static pod, which runs as its node's file says".to_owned());
    }
    // The API server would refuse a pod with two containers of a name, and a sidecar could not start without its own volume.
    if has(&pod["spec"]["containers"], SIDECAR) {
        return Err(format!("a container of its own is called {SIDECAR}"));
    }
    if has(&pod["spec"]["volumes"], SIDECAR) && !has(&pod["spec"]["initContainers"], SIDECAR) {
        return Err(format!("a volume of its own is called {SIDECAR}"));
    }
    Ok(())
}

/// Whether the ports are free that the sidecar would take before the application starts.
fn free(pod: &Value, proxy: &Proxy) -> Result<(), String> {
    let injection = &proxy.spec.injection;
    let items = |list: &Value| list.as_array().cloned().unwrap_or_default();
    let ports = items(&pod["spec"]["containers"]).into_iter().flat_map(|container| items(&container["ports"]));
    let taken = ports.filter_map(|port| port["containerPort"].as_i64());
    match taken.into_iter().find(|port| [injection.port, injection.admin_port].map(i64::from).contains(port)) {
        Some(port) => Err(format!("a container of its own has port {port}: give the sidecar another (spec.injection)")),
        None => Ok(()),
    }
}

/// Whether it can be the name of a Proxy or a namespace.
fn is_name(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len()) && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

async fn sidecar(
    home: &str,
    name: &str,
    namespace: &str,
    context: &Context,
    scope: &Scope,
) -> Result<(Proxy, Sidecar), String> {
    if !scope.has(home) || !scope.has(namespace) {
        return Err("the operator does not look after this namespace".to_owned());
    }
    let proxies: Api<Proxy> = Api::namespaced(context.client.clone(), home);
    let proxy = match proxies.get_opt(name).await {
        Ok(Some(proxy)) => proxy,
        Ok(None) => return Err(format!("there is no Proxy {name} in the namespace {home}")),
        Err(error) => return Err(format!("the Proxy {name} cannot be read: {error}")),
    };
    let injection = &proxy.spec.injection;
    if !injection.enabled {
        return Err(format!("spec.injection.enabled of the Proxy {name} is false"));
    }
    if !injection.allows(home, namespace) {
        return Err(format!("spec.injection.namespaces of the Proxy {name} in {home} does not have {namespace}"));
    }
    let sidecar = build::sidecar(&proxy, namespace, &context.images)
        .map_err(|invalid| format!("the Proxy {} cannot be used: {invalid}", proxy.name_any()))?;
    Ok((proxy, sidecar))
}
