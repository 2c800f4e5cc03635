//! What becomes of things on brokers when their resources are deleted; and that resources never stay for ever.

use serde_json::{Value, json};
use std::sync::Arc;

use parking_lot::Mutex;
use waybill_ops::clock::ManualClock;
use waybill_protocol::remoting::Command;
use waybill_protocol::remoting::codes::{own_response, request, response};

use crate::fake_api::{FakeApi, Fault};
use crate::rig::{GROUPS, Rig, START_MS, TOPICS, TestBroker, after, answer_all, group, nobody, refuse_all, topic};

async fn applied(rig: &Rig, spec: Value) {
    rig.api.put(&topic("orders", spec));
    rig.topic("orders").await;
}

fn told(rig: &Rig, reason: &str) -> Vec<String> {
    let events = rig.api.events().into_iter().filter(|(is, _)| is == reason);
    let mut notes: Vec<String> = events.map(|(_, note)| note).collect();
    notes.sort();
    notes
}

#[tokio::test]
async fn what_is_retained_stays_and_holds_nothing_back() {
    let broker = TestBroker::start().await;
    let rig = Rig::new([broker.address.as_str()]);
    applied(&rig, json!({})).await;
    assert!(rig.api.get(TOPICS, "orders").expect("it is there")["metadata"]["finalizers"].is_null());
    rig.api.delete(TOPICS, "orders");
    assert!(rig.api.get(TOPICS, "orders").is_none(), "without the operator");
    assert!(broker.topic("orders").is_some());
}

#[tokio::test]
async fn what_is_to_be_deleted_is_deleted_everywhere() {
    let (one, two) = (TestBroker::start().await, TestBroker::start().await);
    let rig = Rig::new([one.address.as_str(), &two.address]);
    applied(&rig, json!({ "deletionPolicy": "Delete" })).await;
    one.send("orders").await;
    rig.api.put(&group("billing", json!({ "deletionPolicy": "Delete" })));
    rig.group("billing").await;
    rig.api.delete(TOPICS, "orders");
    rig.api.delete(GROUPS, "billing");
    assert!(rig.api.get(TOPICS, "orders").is_some() && rig.api.get(GROUPS, "billing").is_some(), "held back");
    rig.topic("orders").await;
    rig.group("billing").await;
    assert!(rig.api.get(TOPICS, "orders").is_none() && rig.api.get(GROUPS, "billing").is_none());
    for broker in [&one, &two] {
        assert!(broker.topic("orders").is_none() && broker.group("billing").is_none());
    }
    assert_eq!(told(&rig, "Deleted"), ["consumer group billing is deleted", "topic orders is deleted"]);
}

#[tokio::test]
async fn a_topic_with_messages_stays_on_all_brokers_if_only_an_empty_one_may_go() {
    let (one, two) = (TestBroker::start().await, TestBroker::start().await);
    let rig = Rig::new([one.address.as_str(), &two.address]);
    applied(&rig, json!({ "deletionPolicy": "DeleteIfEmpty" })).await;
    two.send("orders").await;
    rig.api.delete(TOPICS, "orders");
    rig.topic("orders").await;
    assert!(rig.api.get(TOPICS, "orders").is_none(), "the resource goes");
    assert!(one.topic("orders").is_some() && two.topic("orders").is_some());
    assert_eq!(
        told(&rig, "Retained"),
        [format!("topic orders stays on the brokers: {} has messages in it", two.address)]
    );

    rig.api.put(&topic("empty", json!({ "deletionPolicy": "DeleteIfEmpty" })));
    rig.topic("empty").await;
    assert!(one.topic("empty").is_some());
    rig.api.delete(TOPICS, "empty");
    rig.topic("empty").await;
    assert!(rig.api.get(TOPICS, "empty").is_none());
    assert!(one.topic("empty").is_none() && two.topic("empty").is_none());
}

#[tokio::test]
async fn the_policy_may_be_changed_at_any_time() {
    let broker = TestBroker::start().await;
    let rig = Rig::new([broker.address.as_str()]);
    applied(&rig, json!({ "deletionPolicy": "Delete" })).await;
    let others =
        |object: &mut Value| object["metadata"]["finalizers"] = json!(["example.org/hook", "waybill.dev/on-brokers"]);
    rig.api.edit(TOPICS, "orders", others);
    rig.api.edit(TOPICS, "orders", |object| object["spec"]["deletionPolicy"] = json!("Retain"));
    rig.topic("orders").await;
    assert_eq!(
        rig.api.get(TOPICS, "orders").expect("it is there")["metadata"]["finalizers"],
        json!(["example.org/hook"])
    );
    rig.api.edit(TOPICS, "orders", |object| object["spec"]["deletionPolicy"] = json!("Delete"));
    rig.topic("orders").await;
    rig.api.delete(TOPICS, "orders");
    rig.api.edit(TOPICS, "orders", |object| object["spec"]["deletionPolicy"] = json!("Retain"));
    rig.topic("orders").await;
    assert!(broker.topic("orders").is_some(), "retained after all");
    assert_eq!(
        rig.api.get(TOPICS, "orders").expect("held by another")["metadata"]["finalizers"],
        json!(["example.org/hook"])
    );
}

#[tokio::test]
async fn without_brokers_the_resource_goes_at_once() {
    let broker = TestBroker::start().await;
    for gone in ["the Broker", "its replicas"] {
        let rig = Rig::new([broker.address.as_str()]);
        applied(&rig, json!({ "deletionPolicy": "DeleteIfEmpty" })).await;
        rig.api.delete(TOPICS, "orders");
        match gone {
            "the Broker" => rig.api.delete("brokers", "main"),
            _replicas => rig.scale(0),
        }
        rig.topic("orders").await;
        assert!(rig.api.get(TOPICS, "orders").is_none(), "{gone}");
    }
}

#[tokio::test]
async fn brokers_that_do_not_answer_or_refuse_are_waited_for_five_minutes() {
    let (away, refuses) = (nobody().await, refuse_all(response::NO_PERMISSION, "no").await);
    for (address, why) in [(away, "connection refused"), (refuses, "NO_PERMISSION: no")] {
        for policy in ["Delete", "DeleteIfEmpty"] {
            let rig = Rig::new([address.as_str()]);
            applied(&rig, json!({ "deletionPolicy": policy })).await;
            rig.api.delete(TOPICS, "orders");
            for (waited, next) in [(0, 1), (30, 30), (299, 60)] {
                rig.clock.set(START_MS + waited * 1_000);
                assert_eq!(rig.topic("orders").await, after(next), "after {waited} s");
                assert!(rig.api.get(TOPICS, "orders").is_some());
            }
            rig.clock.set(START_MS + 300_000);
            rig.topic("orders").await;
            assert!(rig.api.get(TOPICS, "orders").is_none(), "{policy}, {why}");
            assert_eq!(told(&rig, "Retained"), [format!("topic orders may stay on brokers: {address}: {why}")]);
        }
    }
}

#[tokio::test]
async fn the_five_minutes_are_counted_by_one_clock() {
    let away = nobody().await;
    for ahead_s in [300, -86_400] {
        let of_api = Arc::new(ManualClock::new(START_MS - ahead_s * 1_000));
        let rig = Rig { api: FakeApi::new(of_api), ..Rig::new([away.as_str()]) };
        rig.scale(1);
        applied(&rig, json!({ "deletionPolicy": "Delete" })).await;
        rig.api.delete(TOPICS, "orders");
        for (waited, next) in [(0, 1), (30, 30), (299, 60)] {
            rig.clock.set(START_MS + waited * 1_000);
            assert_eq!(rig.topic("orders").await, after(next), "{ahead_s} s ahead, after {waited} s");
        }
        rig.clock.set(START_MS + 300_000);
        rig.topic("orders").await;
        assert!(rig.api.get(TOPICS, "orders").is_none(), "{ahead_s} s ahead");
    }
}

#[tokio::test]
async fn what_comes_between_the_look_and_the_deletion_keeps_the_topic() {
    let deletions: Arc<Mutex<Vec<Option<String>>>> = Arc::default();
    let seen = deletions.clone();
    let address = answer_all(move |asked| match asked.code {
        request::DELETE_TOPIC_IN_BROKER => {
            seen.lock().push(asked.ext.get("onlyIfEmpty").map(str::to_owned));
            Command::response(own_response::TOPIC_NOT_EMPTY, "topic[orders] has messages")
        }
        // It had none when it was looked at.
        _look => Command::response(response::TOPIC_NOT_EXIST, "no such topic"),
    })
    .await;
    let rig = Rig::new([address.as_str()]);
    applied(&rig, json!({ "deletionPolicy": "DeleteIfEmpty" })).await;
    rig.api.delete(TOPICS, "orders");
    rig.topic("orders").await;
    assert!(rig.api.get(TOPICS, "orders").is_none(), "the resource goes");
    assert_eq!(told(&rig, "Retained"), [format!("topic orders stays on the brokers: {address} has messages in it")]);
    assert_eq!(*deletions.lock(), [Some("true".to_owned())]);
}

#[tokio::test]
async fn a_delayed_message_keeps_the_topic() {
    let broker = TestBroker::start().await;
    let rig = Rig::new([broker.address.as_str()]);
    applied(&rig, json!({ "deletionPolicy": "DeleteIfEmpty", "messageType": "DELAY" })).await;
    assert_eq!(broker.send_with("orders", 0, "TIMER_DELAY_SEC\u{1}3600\u{2}").await, response::SUCCESS);
    rig.api.delete(TOPICS, "orders");
    rig.topic("orders").await;
    assert!(rig.api.get(TOPICS, "orders").is_none() && broker.topic("orders").is_some());
}

#[tokio::test]
async fn the_definition_of_brokers_may_be_gone_before_a_topic() {
    let broker = TestBroker::start().await;
    let rig = Rig::new([broker.address.as_str()]);
    applied(&rig, json!({ "deletionPolicy": "Delete" })).await;
    rig.api.delete(TOPICS, "orders");
    // As the API server answers about kinds that it does not know: "404 page not found", which is no Status that says NotFound.
    rig.api.fail(Fault { method: "GET", path: "/brokers/main", code: 404, times: 1 });
    rig.topic("orders").await;
    assert!(rig.api.get(TOPICS, "orders").is_none(), "the resource goes");
    assert_eq!(rig.api.faults_left(), 0);
}
