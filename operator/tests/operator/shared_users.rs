//! Sidecars in other namespaces that ask for users: they have them there, if the Proxy says so, and as long as they are needed.

use std::sync::Arc;

use serde_json::{Value, json};
use waybill_operator::build::users::USERS_FILE;
use waybill_operator::inject::answer;
use waybill_operator::reconcile::{Proxies, reconcile_proxy_users};
use waybill_sidecar::access;

use crate::fake_api::Fault;
use crate::injection::{admitted, pod, review};
use crate::proxy_rig::{PROXIES, ProxyRig};

/// Of the ConfigMap and of the Secret.
const NAME: &str = "waybill-sidecar-edge.default";

fn spec(namespaces: Value, share: bool) -> Value {
    json!({ "replicas": 0, "accessControl": { "authentication": true },
            "injection": { "namespaces": namespaces, "shareUsers": share } })
}

/// The Proxy "edge" in the namespace "default", with its users.
struct Shared {
    rig: ProxyRig,
}

impl Shared {
    async fn new() -> Self {
        let shared = Self { rig: ProxyRig::new() };
        shared.user("alice");
        shared.rig.put(spec(json!(["shop"]), true));
        shared.write().await;
        shared
    }

    fn user(&self, name: &str) {
        let secret_key = k8s_openapi::ByteString(format!("of-{name}").into_bytes());
        let api = &self.rig.rig.api;
        api.put(&json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": format!("{name}-given") },
                         "data": { "secretKey": secret_key } }));
        api.put(&json!({ "apiVersion": "waybill.dev/v1alpha1", "kind": "User", "metadata": { "name": name },
                         "spec": { "brokerRef": { "name": "main" }, "secretRef": { "name": format!("{name}-given") } } }));
    }

    /// What the controller of the users does.
    async fn write(&self) {
        let proxies = Proxies { context: self.rig.context(), scope: self.rig.scope.clone() };
        let proxy = Arc::new(self.rig.rig.api.typed(PROXIES, "edge"));
        reconcile_proxy_users(proxy, Arc::new(proxies)).await.expect("the API server is well");
    }

    /// A pod of a namespace asks for a sidecar; the pod, and the warnings.
    async fn ask(&self, namespace: &str) -> (Value, Vec<String>) {
        let labels = json!({ "waybill.dev/inject": "edge", "waybill.dev/inject-namespace": "default" });
        let pod = pod(labels, json!({ "containers": [{ "name": "app", "image": "app:1" }] }));
        let said = answer(&review(namespace, &pod), &self.rig.context(), &self.rig.scope).await.expect("an answer");
        admitted(&pod, &said)
    }

    fn made(&self, plural: &str, namespace: &str) -> Option<Value> {
        self.rig.rig.api.get_in(namespace, plural, NAME)
    }

    /// The access keys of the users that sidecars in "shop" know; none: there is no file.
    fn known(&self) -> Option<Vec<String>> {
        let secret = self.made("secrets", "shop").expect("it is there");
        let file: k8s_openapi::ByteString =
            serde_json::from_value(secret["data"].get(USERS_FILE)?.clone()).expect("base64");
        let file = String::from_utf8(file.0).expect("text");
        assert_eq!(access::mistake(&file), None, "sidecars take it");
        let file: Value = serde_json::from_str(&file).expect("JSON");
        let users = file["users"].as_array().expect("users").iter();
        Some(users.map(|user| user["accessKey"].as_str().expect("text").to_owned()).collect())
    }
}

#[tokio::test]
async fn users_are_there_before_the_pod_and_follow_those_of_the_proxy() {
    let shared = Shared::new().await;
    assert_eq!(shared.made("secrets", "shop"), None, "nobody needs them yet");
    let (admitted, warnings) = shared.ask("shop").await;
    assert_eq!(warnings, [] as [String; 0]);
    let sources = json!([{ "configMap": { "name": NAME } }, { "secret": { "name": NAME, "optional": false } }]);
    assert_eq!(admitted["spec"]["volumes"][0]["projected"]["sources"], sources);
    let map = shared.made("configmaps", "shop").expect("the configuration");
    let text = map["data"]["sidecar.yaml"].as_str().expect("text");
    assert!(text.contains("usersFilePath: \"/etc/waybill/users.yaml\"\n"), "{text}");
    assert_eq!(shared.known().as_deref(), Some(&["alice".to_owned()][..]));
    // It goes with the ConfigMap, which goes when no pod has needed it for a minute.
    let owners = shared.made("secrets", "shop").expect("it is there")["metadata"]["ownerReferences"].clone();
    assert_eq!(owners.as_array().map(Vec::len), Some(1));
    assert_eq!((&owners[0]["kind"], &owners[0]["uid"]), (&json!("ConfigMap"), &map["metadata"]["uid"]));

    let mut running = admitted.clone();
    running["metadata"]["name"] = json!("app-1");
    running["metadata"]["namespace"] = json!("shop");
    shared.rig.rig.api.put_whole(&running);
    shared.user("bob");
    shared.write().await;
    assert_eq!(shared.known().as_deref(), Some(&["alice".to_owned(), "bob".to_owned()][..]));
    let told = shared.rig.rig.api.get_in("shop", "pods", "app-1").expect("it is there");
    let version = &shared.made("secrets", "shop").expect("it is there")["metadata"]["resourceVersion"];
    assert_eq!(&told["metadata"]["annotations"]["waybill.dev/users"], version, "its kubelet looks at once");
    let writes = shared.rig.rig.api.writes().len();
    shared.write().await;
    shared.ask("shop").await;
    assert_eq!(shared.rig.rig.api.writes().len(), writes, "nothing is written that is so already");
}

#[tokio::test]
async fn a_proxy_that_does_not_share_them_gives_them_to_nobody() {
    let shared = Shared::new().await;
    let (_, warnings) = shared.ask("bank").await;
    assert!(warnings[0].contains("does not have bank"), "{warnings:?}");
    shared.ask("shop").await;
    assert!(shared.known().is_some());

    // Withdrawn, from the namespace or from all: the keys go, and no pod gets a sidecar that could not ask.
    for withdrawn in [spec(json!(["bank"]), true), spec(json!(["shop"]), false), spec(json!([]), true)] {
        shared.rig.put(withdrawn);
        shared.write().await;
        assert_eq!(shared.known(), None);
        let (admitted, warnings) = shared.ask("shop").await;
        assert!(admitted["spec"]["initContainers"].is_null() && warnings.len() == 1, "{warnings:?}");
        assert_eq!(shared.known(), None);
        shared.rig.put(spec(json!(["shop"]), true));
        shared.write().await;
        assert!(shared.known().is_some(), "and come back");
    }
}

#[tokio::test]
async fn a_secret_of_somebody_else_is_not_touched() {
    let shared = Shared::new().await;
    let theirs =
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": NAME, "namespace": "shop" }, "data": {} });
    shared.rig.rig.api.put_whole(&theirs);
    let (admitted, warnings) = shared.ask("shop").await;
    assert!(admitted["spec"]["initContainers"].is_null(), "it would have no users");
    assert!(warnings[0].contains("Secret shop/waybill-sidecar-edge.default belongs to somebody else"), "{warnings:?}");
    shared.write().await;
    assert_eq!(shared.known(), None);
    assert!(shared.rig.rig.api.events().iter().any(|(reason, _)| reason == "ObjectConflict"));
}

#[tokio::test]
async fn a_namespace_that_takes_no_secret_holds_up_no_other() {
    let shared = Shared::new().await;
    shared.rig.put(spec(json!(["bank", "shop"]), true));
    for namespace in ["bank", "shop"] {
        assert_eq!(shared.ask(namespace).await.1, [] as [String; 0]);
    }
    shared.user("bob");
    let api = &shared.rig.rig.api;
    api.fail(Fault { method: "PATCH", path: "/namespaces/bank/secrets/", code: 403, times: 1 });
    shared.write().await;
    assert_eq!(api.faults_left(), 0);
    assert_eq!(shared.known().map(|known| known.len()), Some(2), "the other one has both");
    let told = |(_, note): &(String, String)| note.contains("Secret bank/waybill-sidecar-edge.default");
    assert!(api.events().iter().any(told), "{:?}", api.events());
}
