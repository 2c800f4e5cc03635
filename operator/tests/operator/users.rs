//! Users: their Secrets, and the file that the sidecars of each Proxy read.

use std::sync::Arc;
use std::time::Duration;

use kube::runtime::controller::Action;
use kube::runtime::{reflector, watcher};
use serde_json::{Value, json};
use waybill_operator::Scope;
use waybill_operator::api::{ConditionStatus, ConditionType, Proxy, Reason, User, UserStatus};
use waybill_operator::build::users::{USERS_FILE, users_secret};
use waybill_operator::reconcile::{ApiError, Kind, Proxies, reconcile_proxy_users, reconcile_user};
use waybill_sidecar::access;

use crate::fake_api::Fault;
use crate::rig::Rig;

const USERS: &str = "users";
const PROXIES: &str = "proxies";
const SECRETS: &str = "secrets";

fn user(name: &str, spec: Value) -> Value {
    let mut spec = spec;
    if spec["brokerRef"].is_null() && spec["proxyRef"].is_null() {
        spec["brokerRef"] = json!({ "name": "main" });
    }
    json!({ "apiVersion": "waybill.dev/v1alpha1", "kind": "User", "metadata": { "name": name }, "spec": spec })
}

fn proxy(name: &str, authentication: bool) -> Value {
    json!({ "apiVersion": "waybill.dev/v1alpha1", "kind": "Proxy", "metadata": { "name": name },
            "spec": { "brokerRef": { "name": "main" }, "accessControl": { "authentication": authentication } } })
}

fn secret(name: &str, secret_key: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name },
            "data": { "secretKey": base64(secret_key) } })
}

fn base64(text: &str) -> Value {
    json!(k8s_openapi::ByteString(text.as_bytes().to_vec()))
}

fn text(data: &Value) -> String {
    let bytes: k8s_openapi::ByteString = serde_json::from_value(data.clone()).expect("base64");
    String::from_utf8(bytes.0).expect("text")
}

struct Users {
    rig: Rig,
}

impl Users {
    fn new() -> Self {
        Self { rig: Rig::new([]) }
    }

    fn put(&self, object: &Value) {
        self.rig.api.put(object);
    }

    async fn try_user(&self, name: &str) -> Result<Action, ApiError> {
        let (known, mut writer) = reflector::store();
        for object in self.rig.api.all(USERS) {
            writer.apply_watcher_event(&watcher::Event::Apply(serde_json::from_value(object).expect("a User")));
        }
        let user: User = self.rig.api.typed(USERS, name);
        reconcile_user(Arc::new(user), Arc::new(Kind { context: self.rig.context(), known })).await
    }

    async fn user(&self, name: &str) -> Action {
        self.try_user(name).await.expect("the API server is well")
    }

    async fn try_proxy(&self, name: &str) -> Result<Action, ApiError> {
        let proxy: Proxy = self.rig.api.typed(PROXIES, name);
        let proxies = Proxies { context: self.rig.context(), scope: Scope::Cluster };
        reconcile_proxy_users(Arc::new(proxy), Arc::new(proxies)).await
    }

    async fn proxy(&self, name: &str) -> Action {
        self.try_proxy(name).await.expect("the API server is well")
    }

    /// Both, until nothing is left to do.
    async fn settle(&self) {
        for _round in 0..3 {
            for proxy in self.names(PROXIES) {
                self.proxy(&proxy).await;
            }
            for user in self.names(USERS) {
                self.user(&user).await;
            }
        }
    }

    fn names(&self, plural: &str) -> Vec<String> {
        let name = |object: &Value| object["metadata"]["name"].as_str().expect("a name").to_owned();
        self.rig.api.all(plural).iter().map(name).collect()
    }

    /// The file that the sidecars of the Proxy read.
    fn file(&self, proxy: &str) -> Option<Value> {
        let file = text(&self.rig.api.get(SECRETS, &users_secret(proxy))?["data"][USERS_FILE]);
        assert_eq!(access::mistake(&file), None, "the sidecars take it");
        Some(serde_json::from_str(&file).expect("JSON"))
    }

    fn access_keys(&self, proxy: &str) -> Vec<String> {
        let file = self.file(proxy).expect("a file");
        let users = file["users"].as_array().expect("users").iter();
        users.map(|user| user["accessKey"].as_str().expect("text").to_owned()).collect()
    }

    fn status(&self, name: &str) -> UserStatus {
        serde_json::from_value(self.rig.api.get(USERS, name).expect("it is there")["status"].clone()).expect("a status")
    }

    fn told(&self, name: &str) -> (ConditionType, Reason) {
        let status = self.status(name);
        let mut holding = status.conditions.iter().filter(|condition| condition.status == ConditionStatus::True);
        let one = holding.next().expect("a condition that holds");
        assert!(holding.next().is_none(), "{status:#?}");
        (one.kind, one.reason)
    }

    fn secret_key(&self, name: &str) -> String {
        text(&self.rig.api.get(SECRETS, name).expect("a Secret")["data"]["secretKey"])
    }
}

#[tokio::test]
async fn a_user_gets_credentials_once_and_its_proxies_know_it() {
    let users = Users::new();
    users.put(&proxy("edge", true));
    users.put(&user(
        "shop",
        json!({ "permissions": [{ "topic": "orders*", "actions": ["PUB", "SUB"] }, { "group": "shop" }] }),
    ));
    assert_eq!(users.user("shop").await, Action::requeue(Duration::from_secs(1)));
    assert_eq!(users.told("shop"), (ConditionType::Progressing, Reason::ConfigurationPending));
    users.proxy("edge").await;
    users.user("shop").await;
    assert_eq!(users.told("shop"), (ConditionType::Ready, Reason::Applied));
    let status = users.status("shop");
    let said = (status.access_key.as_str(), status.secret_name.as_str(), status.proxies, status.applied_proxies);
    assert_eq!(said, ("shop", "shop-credentials", 1, 1));

    let secret_key = users.secret_key("shop-credentials");
    assert!(secret_key.len() == 48 && secret_key.bytes().all(|byte| byte.is_ascii_hexdigit()), "{secret_key}");
    let owner = &users.rig.api.get(SECRETS, "shop-credentials").expect("a Secret")["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["name"]), (&json!("User"), &json!("shop")));
    let owner = &users.rig.api.get(SECRETS, "edge-proxy-users").expect("a Secret")["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["name"]), (&json!("Proxy"), &json!("edge")));
    let file = users.file("edge").expect("a file");
    assert_eq!(file["users"][0]["secretKey"], json!(secret_key));
    assert_eq!(file["users"][0]["permissions"][0]["topic"], json!("orders*"));

    let before = users.rig.api.writes().len();
    users.settle().await;
    assert_eq!(users.rig.api.writes().len(), before, "what is as it should be is not written");
    assert_eq!(users.secret_key("shop-credentials"), secret_key);
    let told = format!("{:?} {}", users.rig.api.events(), users.rig.api.get(USERS, "shop").expect("it is there"));
    assert!(!told.contains(&secret_key), "no secret is told");
}

#[tokio::test]
async fn what_changes_arrives_and_who_is_deleted_is_no_user_any_more() {
    let users = Users::new();
    users.put(&proxy("edge", true));
    users.put(&user("shop", json!({})));
    users.put(&user("audit", json!({ "superUser": true })));
    users.settle().await;
    assert_eq!(users.access_keys("edge"), ["audit", "shop"]);
    let revision = users.file("edge").expect("a file")["revision"].clone();

    users.put(&user("shop", json!({ "enabled": false, "accessKey": "AK1" })));
    users.user("shop").await;
    assert_eq!(users.told("shop").1, Reason::ConfigurationPending, "the file has it as it was");
    users.settle().await;
    let file = users.file("edge").expect("a file");
    assert_eq!((&file["users"][0]["accessKey"], &file["users"][0]["enabled"]), (&json!("AK1"), &json!(false)));
    assert_ne!(file["revision"], revision);
    assert_eq!(users.told("shop").1, Reason::Applied);

    users.rig.api.delete(USERS, "shop");
    assert!(users.rig.api.get(USERS, "shop").is_none(), "nothing holds it back");
    users.settle().await;
    assert_eq!(users.access_keys("edge"), ["audit"]);
}

#[tokio::test]
async fn a_given_secret_is_used_and_followed() {
    let users = Users::new();
    users.put(&proxy("edge", true));
    users.put(&user("shop", json!({ "secretRef": { "name": "mine" } })));
    users.settle().await;
    assert_eq!(users.told("shop"), (ConditionType::Degraded, Reason::CredentialsMissing));
    assert_eq!(users.access_keys("edge"), Vec::<String>::new());
    assert!(users.rig.api.get(SECRETS, "mine").is_none(), "it is for somebody else to make");

    for (data, secret_key) in [(json!("given\n"), "given"), (json!("other"), "other")] {
        let made = secret("mine", data.as_str().expect("text"));
        match users.rig.api.get(SECRETS, "mine") {
            None => users.put(&made),
            Some(_) => users.rig.api.edit(SECRETS, "mine", |object| object["data"] = made["data"].clone()),
        }
        users.settle().await;
        assert_eq!(users.told("shop"), (ConditionType::Ready, Reason::Applied));
        assert_eq!(users.file("edge").expect("a file")["users"][0]["secretKey"], json!(secret_key));
    }
}

#[tokio::test]
async fn users_are_for_the_proxies_that_they_name() {
    let users = Users::new();
    for (name, asks) in [("edge", true), ("inner", true), ("open", false)] {
        users.put(&proxy(name, asks));
    }
    let mut elsewhere = proxy("far", true);
    elsewhere["spec"]["brokerRef"] = json!({ "name": "other" });
    users.put(&elsewhere);
    users.put(&user("all", json!({})));
    users.put(&user("one", json!({ "proxyRef": { "name": "inner" } })));
    users.put(&user("none", json!({ "proxyRef": { "name": "open" } })));
    users.settle().await;
    assert_eq!(users.access_keys("edge"), ["all"]);
    assert_eq!(users.access_keys("inner"), ["all", "one"]);
    assert_eq!(users.access_keys("far"), Vec::<String>::new());
    assert!(users.file("open").is_none(), "it does not ask");
    assert_eq!((users.status("all").proxies, users.status("one").proxies), (2, 1));
    assert_eq!(users.told("none"), (ConditionType::Degraded, Reason::ProxyNotFound));
}

#[tokio::test]
async fn an_access_key_belongs_to_the_older_user() {
    let users = Users::new();
    users.put(&proxy("edge", true));
    users.put(&user("first", json!({ "accessKey": "AK" })));
    users.put(&user("second", json!({ "accessKey": "AK", "superUser": true })));
    users.settle().await;
    assert_eq!(users.told("first"), (ConditionType::Ready, Reason::Applied));
    assert_eq!(users.told("second"), (ConditionType::Degraded, Reason::NameConflict));
    assert_eq!(users.file("edge").expect("a file")["users"].as_array().expect("users").len(), 1);
    assert_eq!(users.file("edge").expect("a file")["users"][0]["superUser"], json!(false));
    users.rig.api.delete(USERS, "first");
    users.settle().await;
    assert_eq!(users.file("edge").expect("a file")["users"][0]["superUser"], json!(true));
}

#[tokio::test]
async fn secrets_of_others_are_not_touched() {
    let users = Users::new();
    users.put(&proxy("edge", true));
    users.put(&secret("shop-credentials", "not ours"));
    users.put(&secret("edge-proxy-users", "not ours"));
    users.put(&user("shop", json!({})));
    users.settle().await;
    assert_eq!(users.told("shop"), (ConditionType::Degraded, Reason::ObjectConflict));
    assert_eq!(users.secret_key("shop-credentials"), "not ours");
    assert_eq!(users.secret_key("edge-proxy-users"), "not ours");
    assert!(
        users
            .rig
            .api
            .events()
            .iter()
            .any(|(reason, note)| reason == "ObjectConflict" && note.contains("edge-proxy-users"))
    );
}

#[tokio::test]
async fn what_sidecars_would_not_take_does_not_reach_them() {
    let users = Users::new();
    users.put(&proxy("edge", true));
    users.put(&user("good", json!({})));
    // As if the definition of the kind were an older one.
    users.put(&user("bad", json!({ "permissions": [{ "topic": "a*b", "actions": ["PUB"] }] })));
    users.settle().await;
    assert_eq!(users.told("bad"), (ConditionType::Degraded, Reason::InvalidSpec));
    assert_eq!(users.access_keys("edge"), ["good"]);
}

#[tokio::test]
async fn a_secret_that_cannot_be_read_for_the_moment_locks_nobody_out() {
    let users = Users::new();
    users.put(&proxy("edge", true));
    users.put(&user("shop", json!({})));
    users.settle().await;
    let secret_key = users.secret_key("shop-credentials");
    users.put(&user("later", json!({})));
    users.put(&user("shop", json!({ "superUser": true })));
    users.rig.api.fail(Fault { method: "GET", path: "/secrets/shop-credentials", code: 500, times: 1 });
    assert!(users.try_proxy("edge").await.is_err(), "it is tried again");
    let file = users.file("edge").expect("a file");
    assert_eq!(users.access_keys("edge"), ["later", "shop"], "nobody waits for it");
    assert_eq!((&file["users"][1]["secretKey"], &file["users"][1]["superUser"]), (&json!(secret_key), &json!(true)));
    let before = users.rig.api.writes().len();
    users.proxy("edge").await;
    assert_eq!(users.rig.api.writes().len(), before, "it is the same file as with the Secret");
}

#[tokio::test]
async fn a_secret_that_the_operator_may_not_read_holds_up_no_other_user() {
    let users = Users::new();
    users.put(&proxy("edge", true));
    users.put(&secret("mine", "given"));
    users.put(&secret("another", "another"));
    for name in ["shop", "gone"] {
        users.put(&user(name, json!({ "secretRef": { "name": "mine" } })));
    }
    users.settle().await;
    let forbid = |times| {
        for path in ["/secrets/mine", "/secrets/another"] {
            users.rig.api.fail(Fault { method: "GET", path, code: 403, times });
        }
    };
    forbid(1_000);
    users.rig.api.delete(USERS, "gone");
    users.put(&user("later", json!({})));
    users.put(&user("never", json!({ "secretRef": { "name": "mine" } })));
    users.settle().await;
    assert_eq!(users.access_keys("edge"), ["later", "shop"], "who was let in stays, the others' changes arrive");
    assert_eq!(users.proxy("edge").await, Action::requeue(Duration::from_secs(60)));
    for (name, applied) in [("shop", 1), ("never", 0)] {
        assert_eq!(users.told(name), (ConditionType::Degraded, Reason::CredentialsMissing), "{name}");
        assert_eq!(users.status(name).applied_proxies, applied, "{name}");
        let message = users.status(name).conditions[0].message.clone();
        assert!(message.starts_with("the Secret mine cannot be read: "), "{message}");
    }
    assert_eq!(users.told("later"), (ConditionType::Ready, Reason::Applied));

    // Its key is that of the Secret that it names, and of nobody before it.
    users.put(&user("shop", json!({ "secretRef": { "name": "another" } })));
    users.rig.api.delete(USERS, "later");
    users.put(&user("heir", json!({ "accessKey": "later", "secretRef": { "name": "mine" } })));
    users.settle().await;
    assert_eq!(users.access_keys("edge"), Vec::<String>::new());
}

#[tokio::test]
async fn a_user_without_a_secret_to_be_had_keeps_no_other_from_its_proxies() {
    let users = Users::new();
    users.put(&proxy("edge", true));
    users.put(&user("former", json!({})));
    users.settle().await;
    // As if the definition of the kind were an older one: what is no name must not become part of a path.
    for (name, secret) in [("blank", "a b"), ("query", "?limit=1"), ("path", "../secrets/edge-proxy-users")] {
        users.put(&user(name, json!({ "secretRef": { "name": secret } })));
    }
    users.put(&user(&"long".repeat(61), json!({ "accessKey": "long" })));
    users.rig.api.fail(Fault { method: "POST", path: "/secrets", code: 403, times: 1 });
    users.put(&user("quota", json!({})));
    users.user("quota").await;
    users.rig.api.delete(USERS, "former");
    users.settle().await;
    assert_eq!(users.access_keys("edge"), ["quota"], "who is deleted is out, and who has a secret is in");
    for name in ["blank", "query", "path", &"long".repeat(61)] {
        assert_eq!(users.told(name), (ConditionType::Degraded, Reason::CredentialsMissing), "{name}");
    }
    users.rig.api.delete(SECRETS, "quota-credentials");
    users.rig.api.fail(Fault { method: "POST", path: "/secrets", code: 403, times: 2 });
    users.proxy("edge").await;
    users.user("quota").await;
    assert_eq!(users.access_keys("edge"), Vec::<String>::new(), "its old secret key is void");
    assert_eq!(users.told("quota"), (ConditionType::Degraded, Reason::CredentialsMissing));
}
