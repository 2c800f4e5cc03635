//! TLS between brokers and those who ask them: what pods get, when sidecars follow, and how the operator itself speaks.

use std::path::Path;

use serde_json::{Value, json};
use waybill_broker::TlsServerMode;
use waybill_operator::api::Reason;
use waybill_ops::config::Validate;
use waybill_sidecar::config::Config as SidecarConfig;

use crate::proxy_rig::ProxyRig;
use crate::rig::{Rig, TOPICS, TestBroker, topic};

/// A certificate for 127.0.0.1 that is its own authority: PEM, and its key.
fn certificate() -> (String, String) {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    (made.cert.pem(), made.signing_key.serialize_pem())
}

/// A broker that takes nothing but TLS, and its authority.
async fn broker(dir: &Path) -> (TestBroker, String) {
    let (certificate, key) = certificate();
    let (certificate_path, key_path) = (dir.join("tls.crt"), dir.join("tls.key"));
    std::fs::write(&certificate_path, &certificate).expect("write");
    std::fs::write(&key_path, key).expect("write");
    let broker = TestBroker::with("broker-a", |config| {
        config.tls_server_mode = TlsServerMode::Enforcing;
        config.tls_server_cert_path = certificate_path;
        config.tls_server_key_path = key_path;
    });
    (broker.await, certificate)
}

fn put_secret(rig: &Rig, authority: Option<&str>) {
    let mut data = json!({});
    if let Some(text) = authority {
        data["ca.crt"] = json!(k8s_openapi::ByteString(text.as_bytes().to_vec()));
    }
    let metadata = json!({ "name": "cert", "namespace": "default" });
    rig.api.put_whole(&json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data }));
}

/// What a person applies.
fn put_broker(rig: &Rig, replicas: usize, tls: Value) {
    let mut resource = crate::rig::broker("main", replicas);
    if !tls.is_null() {
        resource["spec"]["tls"] = tls;
    }
    rig.api.put(&resource);
}

fn speaks_tls(rig: &Rig) -> bool {
    rig.api.get("brokers", "main").expect("it is there")["status"]["tls"] == true
}

fn set_speaks_tls(rig: &Rig) {
    rig.api.edit("brokers", "main", |broker| broker["status"] = json!({ "tls": true, "replicas": 1 }));
}

#[tokio::test]
async fn brokers_have_the_certificate_and_are_said_to_speak_tls_once_all_do() {
    let rig = Rig::new(["one:1", "two:2"]);
    put_broker(&rig, 2, Value::Null);
    rig.settle().await;
    assert!(!speaks_tls(&rig));

    put_broker(&rig, 2, json!({ "secretName": "cert" }));
    rig.broker().await;
    assert!(!speaks_tls(&rig), "no pod has it yet");
    assert!(rig.cluster().acts());
    rig.broker().await;
    assert!(!speaks_tls(&rig), "one pod has it");
    rig.settle().await;
    assert!(speaks_tls(&rig));
    let config = || {
        let map = rig.api.get("configmaps", "main-broker").expect("it is there");
        serde_json::from_str::<Value>(map["data"]["broker.yaml"].as_str().expect("text")).expect("JSON")
    };
    assert_eq!(config()["tlsServerMode"], "permissive");
    assert_eq!(config()["tlsServerCertPath"], "/etc/waybill-tls/tls.crt");
    assert_eq!(config()["tlsServerKeyPath"], "/etc/waybill-tls/tls.key");
    let template = || rig.api.get("statefulsets", "main-broker").expect("it is there")["spec"]["template"].clone();
    let volumes = template()["spec"]["volumes"].as_array().expect("volumes").clone();
    assert!(volumes.contains(&json!({ "name": "tls", "secret": { "secretName": "cert" } })), "{volumes:?}");

    // A mode restarts nobody, and what restarts brokers later makes nobody turn back to plain text.
    let before = template();
    put_broker(&rig, 2, json!({ "secretName": "cert", "mode": "Enforcing" }));
    rig.settle().await;
    assert_eq!((&config()["tlsServerMode"], template()), (&json!("enforcing"), before));
    rig.api.edit("brokers", "main", |broker| broker["spec"]["image"] = json!("waybill-broker:2"));
    rig.broker().await;
    assert_eq!(rig.told("brokers", "main").1, Reason::RollingOut);
    assert!(speaks_tls(&rig));

    put_broker(&rig, 2, Value::Null);
    rig.broker().await;
    assert!(!speaks_tls(&rig), "at once: the first broker without a certificate speaks plain text only");
}

#[tokio::test]
async fn the_operator_speaks_tls_with_brokers_and_believes_only_whom_the_authority_vouches_for() {
    let dir = tempfile::tempdir().expect("a directory");
    let (broker, authority) = broker(dir.path()).await;
    let rig = Rig::new([broker.address.as_str()]);
    put_broker(&rig, 1, json!({ "secretName": "cert" }));
    rig.api.put(&topic("orders", json!({})));
    let told = async || {
        rig.topic("orders").await;
        let (_, reason, message) = rig.told(TOPICS, "orders");
        (reason, message)
    };
    assert_eq!(told().await.0, Reason::BrokerUnreachable, "it is not said to speak TLS, and speaks nothing else");

    set_speaks_tls(&rig);
    let (reason, message) = told().await;
    assert_eq!(reason, Reason::BrokerUnreachable);
    assert!(message.contains("there is no Secret cert"), "{message}");

    put_secret(&rig, Some(&certificate().0));
    let (reason, message) = told().await;
    assert_eq!(reason, Reason::BrokerUnreachable);
    assert!(message.contains("certificate"), "{message}");
    put_secret(&rig, Some("no certificate"));
    assert!(told().await.1.contains("ca.crt of the Secret cert"));
    assert!(broker.topic("orders").is_none());

    put_secret(&rig, Some(&authority));
    assert_eq!(told().await.0, Reason::Applied);
    assert!(broker.topic("orders").is_some());
    put_secret(&rig, None);
    broker.set_queues("orders", 3).await;
    assert_eq!(told().await.0, Reason::Applied, "without an authority every broker is believed");
}

#[tokio::test]
async fn sidecars_follow_the_broker_and_get_its_authority_but_never_its_key() {
    let proxies = ProxyRig::new();
    let rig = &proxies.rig;
    put_broker(rig, 1, json!({ "secretName": "cert" }));
    put_secret(rig, Some(&certificate().0));
    proxies.put(json!({}));
    proxies.reconcile().await;
    let template = proxies.made("deployments")["spec"]["template"].clone();
    let config =
        || -> SidecarConfig { serde_yaml::from_str(&proxies.configuration()).expect("a sidecar understands it") };
    assert!(!config().tls_enable, "not all brokers speak it");

    set_speaks_tls(rig);
    proxies.reconcile().await;
    assert!(config().tls_enable);
    assert_eq!(config().tls_client_trust_cert_path, "/etc/waybill/broker-ca.crt");
    assert_eq!(config().validate(), Ok(()));
    let data = proxies.made("configmaps")["data"].clone();
    assert!(data["broker-ca.crt"].as_str().is_some_and(|text| text.contains("BEGIN CERTIFICATE")));
    assert_eq!(
        proxies.made("deployments")["spec"]["template"],
        template,
        "nobody is restarted, and no Secret is mounted"
    );

    // A renewed authority arrives; one that is gone does not make anybody be believed.
    let (renewed, _) = certificate();
    put_secret(rig, Some(&renewed));
    proxies.reconcile().await;
    assert_eq!(proxies.made("configmaps")["data"]["broker-ca.crt"], json!(renewed));
    rig.api.delete("secrets", "cert");
    proxies.reconcile().await;
    let (reason, message) = proxies.told();
    assert_eq!(reason, "InvalidSpec");
    assert!(message.contains("there is no Secret cert"), "{message}");
    assert_eq!(proxies.made("configmaps")["data"]["broker-ca.crt"], json!(renewed), "what is there stays");

    put_secret(rig, None);
    proxies.reconcile().await;
    assert!(config().tls_enable && config().tls_client_trust_cert_path.is_empty());
    assert!(proxies.made("configmaps")["data"]["broker-ca.crt"].is_null());
}

#[tokio::test]
async fn what_follows_from_the_broker_cannot_be_said_beside() {
    let proxies = ProxyRig::new();
    for (key, value) in [("tlsEnable", json!(true)), ("tlsClientTrustCertPath", json!("/ca.crt"))] {
        proxies.put(json!({ "configuration": { key: value } }));
        proxies.reconcile().await;
        let (reason, message) = proxies.told();
        assert_eq!(reason, "InvalidSpec");
        assert!(message.contains(key) && message.contains("spec.tls of the Broker"), "{message}");
    }
    // Name servers elsewhere have no Broker that would tell.
    proxies.put(json!({ "nameServers": ["names:9876"], "configuration": { "tlsEnable": true } }));
    proxies.reconcile().await;
    assert!(proxies.configuration().contains("tlsEnable: true"), "{}", proxies.configuration());
}
