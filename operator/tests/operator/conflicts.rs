//! Two resources for one thing.

use serde_json::json;
use waybill_operator::api::{ConditionType, Reason};

use crate::rig::{GROUPS, Rig, TOPICS, TestBroker, group, topic};

#[tokio::test]
async fn the_older_resource_has_the_name() {
    let broker = TestBroker::start().await;
    let rig = Rig::new([broker.address.as_str()]);
    rig.api.put(&topic("orders", json!({ "queues": 3 })));
    rig.api.put(&topic("another", json!({ "topicName": "orders", "queues": 7, "deletionPolicy": "Delete" })));
    for _round in 0..2 {
        rig.topic("another").await;
        rig.topic("orders").await;
    }
    assert_eq!(broker.topic("orders").expect("it is there").read_queue_nums, 3);
    assert_eq!(rig.told(TOPICS, "orders").1, Reason::Applied);
    let message = "Topic orders has the topic orders on these brokers".to_owned();
    assert_eq!(rig.told(TOPICS, "another"), (ConditionType::Degraded, Reason::NameConflict, message));

    // What it never had it does not take along.
    rig.api.delete(TOPICS, "another");
    rig.topic("another").await;
    assert!(rig.api.get(TOPICS, "another").is_none() && broker.topic("orders").is_some());
}

#[tokio::test]
async fn names_of_other_kinds_brokers_and_namespaces_are_no_conflict() {
    let broker = TestBroker::start().await;
    let rig = Rig::new([broker.address.as_str()]);
    rig.api.put(&topic("orders", json!({})));
    rig.api.put(&group("orders", json!({})));
    rig.api.put(&topic("other", json!({ "topicName": "orders", "brokerRef": { "name": "other" } })));
    let mut elsewhere = topic("orders", json!({}));
    elsewhere["metadata"]["namespace"] = json!("elsewhere");
    rig.api.put(&elsewhere);
    rig.topic("orders").await;
    rig.group("orders").await;
    rig.topic("other").await;
    assert_eq!(rig.told(TOPICS, "orders").1, Reason::Applied);
    assert_eq!(rig.told(GROUPS, "orders").1, Reason::Applied);
    assert_eq!(rig.told(TOPICS, "other").1, Reason::BrokerNotFound);
}

#[tokio::test]
async fn what_another_resource_asks_for_too_stays_when_the_first_goes() {
    let broker = TestBroker::start().await;
    let rig = Rig::new([broker.address.as_str()]);
    rig.api.put(&topic("orders", json!({ "queues": 3, "deletionPolicy": "Delete" })));
    rig.api.put(&topic("another", json!({ "topicName": "orders", "queues": 3, "deletionPolicy": "Delete" })));
    rig.topic("orders").await;
    rig.topic("another").await;
    broker.send("orders").await;
    rig.api.delete(TOPICS, "orders");
    rig.topic("orders").await;
    assert!(rig.api.get(TOPICS, "orders").is_none() && broker.topic("orders").is_some());
    let told = ("Retained".to_owned(), "topic orders stays on the brokers: Topic another stands for it".to_owned());
    assert!(rig.api.events().contains(&told), "{:?}", rig.api.events());
    rig.topic("another").await;
    assert_eq!(rig.told(TOPICS, "another").1, Reason::Applied);
    // Two that go together leave nothing.
    rig.api.put(&topic("orders", json!({ "deletionPolicy": "Delete" })));
    rig.topic("orders").await;
    rig.api.delete(TOPICS, "another");
    rig.api.delete(TOPICS, "orders");
    rig.topic("another").await;
    rig.topic("orders").await;
    assert!(broker.topic("orders").is_none() && rig.api.get(TOPICS, "another").is_none());
}
