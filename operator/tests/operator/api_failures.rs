//! An API server that fails: everything is done in the end, once.

use serde_json::json;
use waybill_operator::api::{Reason, Topic};

use crate::fake_api::Fault;
use crate::rig::{Rig, TOPICS, TestBroker, topic};

#[tokio::test]
async fn whatever_request_fails_the_next_try_does_it() {
    let broker = TestBroker::start().await;
    let faults = [("GET", "/brokers/main"), ("PATCH", "/topics/orders"), ("PATCH", "/topics/orders/status")];
    for (method, path) in faults {
        for code in [409, 410, 429, 500, 503] {
            let rig = Rig::new([broker.address.as_str()]);
            rig.api.put(&topic("orders", json!({ "deletionPolicy": "Delete" })));
            rig.api.fail(Fault { method, path, code, times: 1 });
            let failed = rig.reconcile::<Topic>(TOPICS, "orders").await;
            assert!(failed.is_err(), "{code} to {method} {path} went unnoticed");
            rig.topic("orders").await;
            assert_eq!(rig.told(TOPICS, "orders").1, Reason::Applied, "{code} to {method} {path}");
            rig.api.delete(TOPICS, "orders");
            rig.topic("orders").await;
            assert!(rig.api.get(TOPICS, "orders").is_none() && broker.topic("orders").is_none());
        }
    }
}

#[tokio::test]
async fn events_that_cannot_be_written_hold_nothing_up() {
    let broker = TestBroker::start().await;
    let rig = Rig::new([broker.address.as_str()]);
    rig.api.put(&topic("orders", json!({})));
    rig.api.fail(Fault { method: "POST", path: "/events", code: 403, times: 100 });
    rig.topic("orders").await;
    assert_eq!(rig.told(TOPICS, "orders").1, Reason::Applied);
    assert_eq!(rig.api.faults_left(), 99);
}

#[tokio::test]
async fn a_resource_that_changed_since_it_was_read_keeps_what_others_wrote() {
    let broker = TestBroker::start().await;
    let rig = Rig::new([broker.address.as_str()]);
    rig.api.put(&topic("orders", json!({ "deletionPolicy": "Delete" })));
    let stale: Topic = rig.api.typed(TOPICS, "orders");
    rig.api.edit(TOPICS, "orders", |object| object["metadata"]["finalizers"] = json!(["example.org/hook"]));
    assert!(rig.reconcile_this(stale).await.is_err(), "a conflict");
    rig.topic("orders").await;
    let finalizers = &rig.api.get(TOPICS, "orders").expect("it is there")["metadata"]["finalizers"];
    assert_eq!(*finalizers, json!(["example.org/hook", "waybill.dev/on-brokers"]));
}
