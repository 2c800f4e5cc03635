//! Pods and namespaces that do not go with injection: they hold nobody up, neither themselves nor others.

use serde_json::{Value, json};

use crate::injection::{MAP, Webhook, plain, pod, wants};

fn with(spec: Value) -> Value {
    let mut pod = pod(wants(), json!({ "containers": [{ "name": "app", "image": "app:1" }] }));
    for (name, value) in spec.as_object().expect("an object") {
        pod["spec"][name] = value.clone();
    }
    pod
}

#[tokio::test]
async fn a_pod_that_a_sidecar_would_break_comes_as_it_is() {
    let webhook = Webhook::new(json!({}));
    let mut mirror = plain();
    mirror["metadata"]["annotations"] = json!({ "kubernetes.io/config.mirror": "hash" });
    let container = |name: &str, port: i32| json!([{ "name": name, "ports": [{ "containerPort": port }] }]);
    for (pod, words) in [
        (with(json!({ "containers": container("waybill-sidecar", 80) })), "a container of its own is called"),
        (with(json!({ "volumes": [{ "name": "waybill-sidecar", "emptyDir": {} }] })), "a volume of its own is called"),
        (with(json!({ "containers": container("app", 8081) })), "port 8081"),
        (with(json!({ "containers": container("app", 8082) })), "port 8082"),
        (mirror, "static pod"),
    ] {
        let (after, warnings) = webhook.ask("default", &pod).await;
        assert_eq!(after, pod, "it is as it was");
        assert!(warnings.len() == 1 && warnings[0].contains(words), "{words}: {warnings:?}");
    }
    assert_eq!(webhook.rig.rig.api.writes(), [] as [&str; 0]);
    webhook.rig.put(json!({ "injection": { "port": 9081, "adminPort": 9082 } }));
    let (_, warnings) = webhook.ask("default", &with(json!({ "containers": container("app", 8081) }))).await;
    assert_eq!(warnings, [] as [String; 0]);
}

#[tokio::test]
async fn labels_that_are_no_names_reach_no_path() {
    let webhook = Webhook::new(json!({}));
    for (name, namespace) in [
        ("../../shop/proxies/edge", "default"),
        ("edge?resourceVersion=0", "default"),
        ("?limit=1", "default"),
        ("", "default"),
        ("edge", "default/proxies/edge?"),
        ("edge", ""),
        ("Edge ", "default"),
        ("\u{202e}edge", "default"),
    ] {
        let labels = json!({ "waybill.dev/inject": name, "waybill.dev/inject-namespace": namespace });
        let asks = pod(labels, json!({ "containers": [{ "name": "app" }] }));
        let (after, warnings) = webhook.ask("default", &asks).await;
        assert_eq!(after, asks, "it is as it was");
        assert!(warnings.len() == 1 && warnings[0].contains("is no name"), "{name:?} {namespace:?}: {warnings:?}");
    }
}

#[tokio::test]
async fn a_namespace_that_does_not_take_the_configuration_keeps_it_from_no_other() {
    let webhook = Webhook::new(json!({ "replicas": 0, "injection": { "namespaces": ["*"] } }));
    let labels = json!({ "waybill.dev/inject": "edge", "waybill.dev/inject-namespace": "default" });
    let asked = pod(labels, json!({ "containers": [{ "name": "app", "image": "app:1" }] }));
    let elsewhere = "waybill-sidecar-edge.default";
    for (namespace, name, ip) in [("a-first", "one", "10.2.0.1"), ("z-last", "two", "10.2.0.2")] {
        let (pod, _) = webhook.ask(namespace, &asked).await;
        webhook.runs(namespace, name, &pod, ip);
    }
    let (pod, _) = webhook.ask("default", &plain()).await;
    webhook.runs("default", "own", &pod, "10.2.0.3");
    webhook.rig.reconcile().await;
    webhook.rig.pods_run(&webhook.rig.configuration());
    // Somebody in the first namespace makes it their own.
    webhook.rig.rig.api.put_whole(&json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": elsewhere, "namespace": "a-first" }, "data": { "sidecar.yaml": "theirs" },
    }));
    webhook
        .rig
        .put(json!({ "replicas": 0, "injection": { "namespaces": ["*"] }, "batch": { "enableBatchAck": true } }));
    webhook.rig.reconcile().await;
    let text = |namespace: &str, name: &str| {
        webhook.map(namespace, name).expect("it is there")["data"]["sidecar.yaml"].clone()
    };
    assert_eq!(text("a-first", elsewhere), "theirs", "it is not touched");
    for (namespace, name) in [("default", MAP), ("z-last", elsewhere)] {
        let text = text(namespace, name);
        assert!(text.as_str().expect("text").contains("enableBatchAck: true"), "{namespace}: {text}");
    }
    webhook.rig.pods_run(&webhook.rig.configuration());
    webhook.rig.reconcile().await;
    let (reason, message) = webhook.rig.told();
    assert!(
        reason == "ObjectConflict" && message.contains("a-first/waybill-sidecar-edge.default"),
        "{reason} {message}"
    );
    assert_eq!(webhook.rig.status()["injected"]["count"], json!(3), "all else is told as it is");
    webhook.rig.silent().await;
}
