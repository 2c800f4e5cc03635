//! Sidecars in pods: what a pod gets, which may have one, and the ConfigMaps that they read.

use serde_json::{Value, json};
use waybill_operator::Scope;
use waybill_operator::inject::answer;

use crate::fake_api::Fault;
use crate::proxies::restricted;
use crate::proxy_rig::ProxyRig;
use crate::rig::START_MS;

pub(crate) const MAP: &str = "waybill-sidecar-edge";

pub(crate) fn pod(labels: Value, spec: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "generateName": "app-", "labels": labels }, "spec": spec })
}

/// A question of the API server.
pub(crate) fn review(namespace: &str, pod: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": { "uid": "u-1", "namespace": namespace, "operation": "CREATE", "dryRun": false, "object": pod },
    })
}

/// The pod as it comes out, and the warnings.
pub(crate) fn admitted(pod: &Value, answer: &Value) -> (Value, Vec<String>) {
    let response = &answer["response"];
    assert_eq!((&response["uid"], &response["allowed"]), (&json!("u-1"), &json!(true)), "always let in: {answer}");
    let mut pod = pod.clone();
    if let Some(patch) = response["patch"].as_str() {
        assert_eq!(response["patchType"], "JSONPatch");
        use base64::Engine;
        let patch = base64::engine::general_purpose::STANDARD.decode(patch).expect("base64");
        let patch: json_patch::Patch = serde_json::from_slice(&patch).expect("a patch");
        json_patch::patch(&mut pod, &patch).expect("it fits the pod");
    }
    let warnings = response["warnings"].as_array().cloned().unwrap_or_default();
    (pod, warnings.iter().map(|warning| warning.as_str().expect("text").to_owned()).collect())
}

pub(crate) struct Webhook {
    pub(crate) rig: ProxyRig,
}

impl Webhook {
    /// In front of a Proxy "edge" in the namespace "default".
    pub(crate) fn new(spec: Value) -> Self {
        let rig = ProxyRig::new();
        rig.put(spec);
        Self { rig }
    }

    pub(crate) async fn ask(&self, namespace: &str, pod: &Value) -> (Value, Vec<String>) {
        let said = answer(&review(namespace, pod), &self.rig.context(), &self.rig.scope).await.expect("an answer");
        admitted(pod, &said)
    }

    pub(crate) fn map(&self, namespace: &str, name: &str) -> Option<Value> {
        self.rig.rig.api.get_in(namespace, "configmaps", name)
    }

    /// The pod runs, with its sidecar at this address.
    pub(crate) fn runs(&self, namespace: &str, name: &str, pod: &Value, ip: &str) {
        let mut pod = pod.clone();
        pod["metadata"]["name"] = json!(name);
        pod["metadata"]["namespace"] = json!(namespace);
        pod["status"] = json!({
            "phase": "Running", "podIP": ip, "conditions": [{ "type": "Ready", "status": "True" }],
            "initContainerStatuses": [{
                "name": "waybill-sidecar", "image": "", "imageID": "", "ready": true, "started": true, "restartCount": 0,
                "state": { "running": {} },
            }],
        });
        self.rig.rig.api.put_whole(&pod);
    }
}

pub(crate) fn wants() -> Value {
    json!({ "waybill.dev/inject": "edge" })
}

pub(crate) fn plain() -> Value {
    pod(wants(), json!({ "containers": [{ "name": "app", "image": "app:1" }] }))
}

#[tokio::test]
async fn a_pod_gets_a_sidecar_that_starts_before_its_application_and_stops_after_it() {
    let webhook = Webhook::new(json!({ "injection": { "resources": { "requests": { "cpu": "10m" } } } }));
    let (pod, warnings) = webhook.ask("default", &plain()).await;
    assert_eq!(warnings, [] as [String; 0]);
    let sidecar = &pod["spec"]["initContainers"][0];
    assert_eq!((&sidecar["name"], &sidecar["restartPolicy"]), (&json!("waybill-sidecar"), &json!("Always")));
    assert_eq!(sidecar["startupProbe"]["httpGet"], json!({ "path": "/healthz", "port": 8082 }));
    assert_eq!(sidecar["image"], "waybill-sidecar:1");
    assert_eq!(sidecar["resources"]["requests"]["cpu"], "10m");
    let env = &pod["spec"]["containers"][0]["env"];
    assert_eq!(*env, json!([{ "name": "ROCKETMQ_ENDPOINTS", "value": "127.0.0.1:8081" }]));
    // Nobody is asked who it is. When that is switched on, the users come into the volume of a pod that runs, where its sidecar looks for them
    // when it starts again.
    let users = json!({ "name": "edge-proxy-users", "optional": true });
    let sources = json!([{ "configMap": { "name": MAP } }, { "secret": users }]);
    assert_eq!(pod["spec"]["volumes"][0]["projected"]["sources"], sources);
    restricted(&json!({ "containers": [sidecar], "volumes": pod["spec"]["volumes"] }));
    let text = webhook.map("default", MAP).expect("it is there before the pod")["data"]["sidecar.yaml"].clone();
    let text = text.as_str().expect("text");
    for line in
        ["grpcServerHost: \"127.0.0.1\"\n", "shutdownPolicy: \"release\"\n", "namesrvAddr: \"one:1;two:2;three:3\"\n"]
    {
        assert!(text.contains(line), "{text}");
    }
    // Asked again, after others have changed the pod, it adds only what they left open.
    let writes = webhook.rig.rig.api.writes().len();
    let (again, _) = webhook.ask("default", &pod).await;
    assert_eq!(again, pod);
    let mut more = pod.clone();
    more["spec"]["containers"].as_array_mut().expect("containers").push(json!({ "name": "other", "image": "o" }));
    let (more, _) = webhook.ask("default", &more).await;
    assert_eq!(more["spec"]["initContainers"], pod["spec"]["initContainers"]);
    assert_eq!(more["spec"]["containers"][1]["env"], *env);
    assert_eq!(webhook.rig.rig.api.writes().len(), writes, "the ConfigMap is there");
}

#[tokio::test]
async fn what_a_pod_has_of_its_own_stays() {
    let webhook = Webhook::new(json!({ "injection": { "port": 9081, "adminPort": 9082 } }));
    let job = pod(
        wants(),
        json!({
            "restartPolicy": "Never",
            "initContainers": [{ "name": "prepare", "image": "p" }, { "name": "mesh", "image": "m", "restartPolicy": "Always" }],
            "volumes": [{ "name": "data", "emptyDir": {} }],
            "containers": [
                { "name": "own", "image": "a", "env": [{ "name": "ROCKETMQ_ENDPOINTS", "value": "elsewhere:1" }] },
                { "name": "app", "image": "a", "env": [{ "name": "A", "value": "b" }] },
            ],
        }),
    );
    let (pod, _) = webhook.ask("default", &job).await;
    let names = |list: &Value| -> Vec<String> {
        list.as_array().expect("a list").iter().map(|item| item["name"].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(names(&pod["spec"]["initContainers"]), ["waybill-sidecar", "prepare", "mesh"]);
    assert_eq!(names(&pod["spec"]["volumes"]), ["data", "waybill-sidecar"]);
    assert_eq!(pod["spec"]["containers"][0], job["spec"]["containers"][0], "it says where it finds its sidecar itself");
    let env = json!([{ "name": "A", "value": "b" }, { "name": "ROCKETMQ_ENDPOINTS", "value": "127.0.0.1:9081" }]);
    assert_eq!(pod["spec"]["containers"][1]["env"], env);
    assert_eq!(pod["spec"]["initContainers"][0]["startupProbe"]["httpGet"]["port"], 9082);
    assert_eq!(pod["spec"]["restartPolicy"], "Never");
}

#[tokio::test]
async fn a_pod_that_cannot_have_a_sidecar_is_let_in_with_a_warning() {
    let webhook = Webhook::new(json!({ "injection": { "namespaces": ["shop"] } }));
    let elsewhere = |namespace: &str| {
        let labels = json!({ "waybill.dev/inject": "edge", "waybill.dev/inject-namespace": namespace });
        pod(labels, json!({ "containers": [{ "name": "app" }] }))
    };
    let host = pod(wants(), json!({ "hostNetwork": true, "containers": [{ "name": "app" }] }));
    let windows = pod(wants(), json!({ "os": { "name": "windows" }, "containers": [{ "name": "app" }] }));
    for (namespace, pod, words) in [
        (
            "default",
            pod(json!({ "waybill.dev/inject": "other" }), json!({ "containers": [{ "name": "app" }] })),
            "no Proxy other",
        ),
        ("shop", plain(), "no Proxy edge in the namespace shop"),
        ("bank", elsewhere("default"), "does not have bank"),
        ("default", host, "hostNetwork"),
        ("default", windows, "Linux"),
        ("default", pod(wants(), json!({})), "no pod"),
        ("default", json!("nonsense"), "no pod"),
    ] {
        let (after, warnings) = webhook.ask(namespace, &pod).await;
        assert_eq!(after, pod, "it is as it was");
        assert!(warnings.len() == 1 && warnings[0].contains(words), "{words}: {warnings:?}");
    }
    assert!(!webhook.rig.rig.api.writes().iter().any(|write| write.contains("configmaps")));
    // Where it may.
    let (after, warnings) = webhook.ask("shop", &elsewhere("default")).await;
    assert_eq!(warnings, [] as [String; 0]);
    let sources = &after["spec"]["volumes"][0]["projected"]["sources"];
    assert_eq!(sources[0]["configMap"]["name"], "waybill-sidecar-edge.default");
    assert_eq!(sources[1]["secret"], json!({ "name": "waybill-sidecar-edge.default", "optional": true }));
    assert!(webhook.map("shop", "waybill-sidecar-edge.default").is_some());
    // Without the label there is nothing to say.
    let unlabelled = pod(json!({ "app": "x" }), json!({ "containers": [{ "name": "app" }] }));
    assert_eq!(webhook.ask("default", &unlabelled).await, (unlabelled.clone(), Vec::new()));
    // A namespace that is none of this operator's.
    let only = Webhook { rig: ProxyRig { scope: Scope::Namespaces(vec!["shop".to_owned()]), ..webhook.rig } };
    let (_, warnings) = only.ask("default", &plain()).await;
    assert!(warnings[0].contains("does not look after"), "{warnings:?}");
}

#[tokio::test]
async fn switched_off_unreadable_and_unusable_proxies_hold_no_pod_up() {
    let webhook = Webhook::new(json!({ "injection": { "enabled": false } }));
    assert!(webhook.ask("default", &plain()).await.1[0].contains("enabled"));
    webhook.rig.put(json!({ "configuration": { "nonsense": 1 } }));
    let (after, warnings) = webhook.ask("default", &plain()).await;
    assert!(after == plain() && warnings[0].contains("spec.configuration.nonsense"), "{warnings:?}");
    webhook.rig.put(json!({}));
    webhook.rig.rig.api.fail(Fault { method: "GET", path: "/proxies/edge", code: 500, times: 1 });
    assert!(webhook.ask("default", &plain()).await.1[0].contains("cannot be read"));
    webhook.rig.rig.api.fail(Fault { method: "PATCH", path: "/configmaps", code: 403, times: 1 });
    let (after, warnings) = webhook.ask("default", &plain()).await;
    assert!(after == plain() && warnings.len() == 1, "it would wait for its ConfigMap: {warnings:?}");
    webhook.rig.rig.api.put_whole(&json!({ "kind": "ConfigMap", "metadata": { "name": MAP }, "data": { "mine": "" } }));
    let (after, warnings) = webhook.ask("default", &plain()).await;
    assert!(after == plain() && warnings[0].contains("belongs to somebody else"), "{warnings:?}");
    webhook.rig.rig.api.delete("configmaps", MAP);
    // A Broker that is not there yet is one whose name is known.
    webhook.rig.rig.api.delete("brokers", "main");
    let (after, warnings) = webhook.ask("default", &plain()).await;
    assert!(after != plain() && warnings.is_empty(), "{warnings:?}");
    let text = webhook.map("default", MAP).expect("it is there")["data"]["sidecar.yaml"].clone();
    assert!(text.as_str().expect("text").contains("main-broker-0.main-broker.default.svc:10911"), "{text}");
}

#[tokio::test]
async fn a_dry_run_changes_nothing_in_the_cluster() {
    let webhook = Webhook::new(json!({}));
    let mut question = review("default", &plain());
    question["request"]["dryRun"] = json!(true);
    let said = answer(&question, &webhook.rig.context(), &webhook.rig.scope).await.expect("an answer");
    assert_ne!(admitted(&plain(), &said).0, plain());
    assert_eq!(webhook.rig.rig.api.writes(), [] as [&str; 0]);
    let nameless = json!({ "request": { "object": plain() } });
    assert!(answer(&nameless, &webhook.rig.context(), &webhook.rig.scope).await.is_err());
}

#[tokio::test]
async fn injected_sidecars_get_changes_and_lose_their_configuration_when_nobody_needs_it() {
    let webhook = Webhook::new(json!({ "replicas": 0, "injection": { "namespaces": ["*"] } }));
    let (mine, _) = webhook.ask("default", &plain()).await;
    let labels = json!({ "waybill.dev/inject": "edge", "waybill.dev/inject-namespace": "default" });
    let asked = pod(labels, json!({ "containers": [{ "name": "app", "image": "app:1" }] }));
    let (theirs, _) = webhook.ask("shop", &asked).await;
    webhook.runs("default", "app-1", &mine, "10.2.0.1");
    webhook.runs("shop", "app-2", &theirs, "10.2.0.2");
    let text =
        || webhook.map("default", MAP).expect("it is there")["data"]["sidecar.yaml"].as_str().expect("text").to_owned();
    let elsewhere = "waybill-sidecar-edge.default";
    let has = |ip: &str, text: &str| webhook.rig.says(&format!("{ip}:8082"), text);
    has("10.2.0.1", &text());
    has("10.2.0.2", &text());
    webhook.rig.reconcile().await;
    webhook.rig.pods_run(&webhook.rig.configuration());
    webhook.rig.reconcile().await;
    assert_eq!(webhook.rig.told(), ("PodsReady".to_owned(), "0 of 0 pods are ready; 2 pods have a sidecar".to_owned()));
    let injected = || webhook.rig.status()["injected"].clone();
    assert_eq!((&injected()["count"], &injected()["applied"]), (&json!(2), &json!(2)));
    webhook.rig.silent().await;

    let before = text();
    webhook
        .rig
        .put(json!({ "replicas": 0, "injection": { "namespaces": ["*"] }, "batch": { "enableBatchAck": true } }));
    webhook.rig.reconcile().await;
    assert!(text() != before && webhook.map("shop", elsewhere).expect("it is there")["data"]["sidecar.yaml"] == text());
    assert_eq!(webhook.rig.told().0, "ConfigurationPending");
    for (namespace, name) in [("default", "app-1"), ("shop", "app-2")] {
        let pod = webhook.rig.rig.api.get_in(namespace, "pods", name).expect("it is there");
        assert_eq!(pod["metadata"]["annotations"]["waybill.dev/configuration"], injected()["configuration"]);
    }
    has("10.2.0.1", &text());
    has("10.2.0.2", &text());
    webhook.rig.reconcile().await;
    assert_eq!(
        (webhook.rig.told().0, &injected()["pods"][1]["appliedGeneration"]),
        ("PodsReady".to_owned(), &json!(2))
    );

    // Used ones stay; one that nobody needs goes after a minute; one that is needed again in the meantime stays.
    webhook.rig.sweep().await;
    webhook.rig.rig.api.delete("pods", "app-1");
    webhook.rig.sweep().await;
    webhook.rig.rig.clock.set(START_MS + 59_000);
    webhook.rig.sweep().await;
    assert!(webhook.map("default", MAP).is_some());
    webhook.ask("default", &plain()).await;
    webhook.rig.rig.clock.set(START_MS + 61_000);
    webhook.rig.sweep().await;
    assert!(webhook.map("default", MAP).is_some(), "a pod is on its way");
    webhook.rig.rig.clock.set(START_MS + 125_000);
    webhook.rig.sweep().await;
    assert!(webhook.map("default", MAP).is_none(), "it did not come");
    // A Proxy that is gone leaves it to the pods that have it.
    webhook.rig.rig.api.delete("proxies", "edge");
    webhook.rig.sweep().await;
    webhook.rig.rig.clock.set(START_MS + 300_000);
    webhook.rig.sweep().await;
    assert!(webhook.map("shop", elsewhere).is_some());
}

#[tokio::test]
async fn pods_that_came_without_their_sidecar_are_told() {
    let webhook = Webhook::new(json!({ "replicas": 0 }));
    webhook.rig.reconcile().await;
    webhook.rig.pods_run(&webhook.rig.configuration());
    webhook.rig.reconcile().await;
    assert_eq!(webhook.rig.told().0, "PodsReady");
    webhook.runs("default", "app-1", &plain(), "10.2.0.1");
    let mut done = plain();
    done["metadata"]["name"] = json!("job-1");
    done["status"] = json!({ "phase": "Succeeded" });
    webhook.rig.rig.api.put_whole(&done);
    webhook.runs("shop", "not-mine", &plain(), "10.2.0.2");
    webhook.rig.reconcile().await;
    let (reason, message) = webhook.rig.told();
    assert_eq!(reason, "InjectionMissed");
    assert!(
        message.contains("default/app-1") && !message.contains("job-1") && !message.contains("not-mine"),
        "{message}"
    );
    assert_eq!(webhook.rig.status()["injected"]["missedPods"], json!(["default/app-1"]));
    webhook.rig.silent().await;
    webhook.rig.rig.api.delete("pods", "app-1");
    webhook.rig.reconcile().await;
    assert_eq!(webhook.rig.told().0, "PodsReady");
}
