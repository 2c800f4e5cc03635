//! Resources come to the brokers, once; what differs is put right.

use std::sync::Arc;

use kube::runtime::reflector;
use serde_json::{Value, json};
use waybill_operator::api::{ConditionType, Reason, Topic};
use waybill_operator::reconcile::{Kind, reconcile};
use waybill_protocol::remoting::GroupRetryPolicyType;

use crate::rig::{GROUPS, Rig, START_MS, TOPICS, TestBroker, after, group, nobody, refuse_all, topic};

const STATUS_OF_ORDERS: &str = "PATCH /apis/waybill.dev/v1alpha1/namespaces/default/topics/orders/status";

#[tokio::test]
async fn a_topic_comes_to_every_broker() {
    let (one, two) = (TestBroker::start().await, TestBroker::start().await);
    let rig = Rig::new([one.address.as_str(), &two.address]);
    rig.api.put(&topic(
        "orders",
        json!({ "messageType": "FIFO", "queues": 4, "writeQueues": 3, "permission": "ReadOnly" }),
    ));
    rig.topic("orders").await;
    for broker in [&one, &two] {
        let config = broker.topic("orders").expect("it is there");
        assert_eq!((config.read_queue_nums, config.write_queue_nums, config.perm), (4, 3, 4));
        assert_eq!(config.attributes["message.type"], "FIFO");
    }
    let status = rig.status(TOPICS, "orders");
    assert_eq!((status.observed_generation, status.brokers, status.applied_brokers), (1, 2, 2));
    assert_eq!(status.name, "orders");
    assert_eq!(status.conditions[0].last_transition_time, "2027-01-15T08:00:00Z");
    assert_eq!(
        rig.told(TOPICS, "orders"),
        (ConditionType::Ready, Reason::Applied, "the topic is on 2 of 2 brokers".into())
    );
    assert_eq!(rig.api.events(), [("Applied".into(), "the topic is on 2 of 2 brokers".into())]);
    assert_eq!(rig.api.writes(), [STATUS_OF_ORDERS]);
}

#[tokio::test]
async fn a_group_comes_with_all_its_settings_and_loses_those_that_are_taken_back() {
    let broker = TestBroker::start().await;
    let rig = Rig::new([broker.address.as_str()]);
    let spec = json!({
        "groupName": "Billing_1", "orderly": true, "paused": true, "consumeTimeoutMinutes": 30,
        "retry": { "maxTimes": 3, "exponential": { "initialMs": 1000, "maxMs": 60000, "multiplier": 3 } },
        "leases": { "renew": false, "invisibleMs": 30000, "batchMax": 64 },
    });
    rig.api.put(&group("billing", spec));
    rig.group("billing").await;
    let config = broker.group("Billing_1").expect("it is there");
    assert!(config.consume_message_orderly && !config.consume_enable);
    assert_eq!((config.retry_max_times, config.consume_timeout_minute), (3, 30));
    assert_eq!(config.group_retry_policy.kind, GroupRetryPolicyType::Exponential);
    let formula = config.group_retry_policy.exponential_retry_policy.expect("a formula");
    assert_eq!((formula.initial, formula.max, formula.multiplier), (1_000, 60_000, 3));
    let attributes = |of: &TestBroker| {
        let attributes = of.group("Billing_1").expect("it is there").attributes;
        attributes.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(attributes(&broker), "waybill.batch.max=64 waybill.invisible.time=30000 waybill.renew=false");
    rig.api.put(&group(
        "billing",
        json!({ "groupName": "Billing_1", "leases": { "renew": true }, "retry": { "delaysMs": [5] } }),
    ));
    rig.group("billing").await;
    let config = broker.group("Billing_1").expect("it is there");
    assert!(!config.consume_message_orderly && config.consume_enable);
    assert_eq!(config.group_retry_policy.customized_retry_policy.expect("a list").next, [5]);
    assert_eq!((config.retry_max_times, config.consume_timeout_minute), (16, 15));
    assert_eq!(attributes(&broker), "waybill.renew=true");
    assert_eq!(rig.told(GROUPS, "billing").1, Reason::Applied);
    assert_eq!(rig.status(GROUPS, "billing").observed_generation, 2);
}

#[tokio::test]
async fn what_differs_on_a_broker_is_put_back_and_told() {
    let broker = TestBroker::start().await;
    let rig = Rig::new([broker.address.as_str()]);
    rig.api.put(&topic("orders", json!({ "queues": 4 })));
    rig.topic("orders").await;
    broker.set_queues("orders", 6).await;
    let writes = rig.api.writes().len();
    rig.topic("orders").await;
    assert_eq!(broker.topic("orders").expect("it is there").read_queue_nums, 4);
    let drift = format!("topic orders was put back: {}: it had other settings", broker.address);
    assert!(rig.api.events().contains(&("DriftCorrected".into(), drift)), "{:?}", rig.api.events());
    broker.broker.core().delete_topic("orders").await.expect("deleted");
    rig.topic("orders").await;
    assert_eq!(broker.topic("orders").expect("it is there again").read_queue_nums, 4);
    // It is ready before and after: there is nothing new to tell in its status.
    assert_eq!(rig.api.writes().len(), writes);
    // A change that was asked for is no drift.
    let events = rig.api.events().len();
    rig.api.put(&topic("orders", json!({ "queues": 5 })));
    rig.topic("orders").await;
    assert_eq!(broker.topic("orders").expect("it is there").read_queue_nums, 5);
    assert_eq!(rig.api.events().len(), events, "{:?}", rig.api.events());
}

#[tokio::test]
async fn what_happens_again_is_counted_at_its_event() {
    let broker = TestBroker::start().await;
    let rig = Rig::new([broker.address.as_str()]);
    rig.api.put(&topic("orders", json!({ "queues": 4 })));
    // One operator, which remembers what it has told.
    let kind = Arc::new(Kind { context: rig.context(), known: reflector::store().0 });
    let put_back = async || {
        broker.set_queues("orders", 6).await;
        let orders: Topic = rig.api.typed(TOPICS, "orders");
        reconcile(Arc::new(orders), kind.clone()).await.expect("the API server is well");
    };
    let drifts = || -> Vec<Value> {
        rig.api.all("events").into_iter().filter(|event| event["reason"] == "DriftCorrected").collect()
    };
    rig.topic("orders").await;
    put_back().await;
    let [once] = drifts().try_into().expect("one event");
    assert_eq!((&once["type"], &once["regarding"]["name"]), (&json!("Warning"), &json!("orders")));
    assert!(once["series"].is_null());
    put_back().await;
    put_back().await;
    let [thrice] = drifts().try_into().expect("one event");
    assert_eq!((&thrice["series"]["count"], &thrice["note"]), (&json!(3), &once["note"]));
    // Events go after an hour.
    rig.api.delete("events", thrice["metadata"]["name"].as_str().expect("a name"));
    put_back().await;
    let [anew] = drifts().try_into().expect("one event");
    assert!(anew["series"].is_null() && anew["metadata"]["name"] != thrice["metadata"]["name"]);
}

#[tokio::test]
async fn a_topic_keeps_its_messages_as_long_as_it_says() {
    let broker = TestBroker::start().await;
    let rig = Rig::new([broker.address.as_str()]);
    let hours = || broker.topic("orders").expect("it is there").attributes.get("reserve.time").cloned();
    let put = async |spec| {
        rig.api.put(&topic("orders", spec));
        rig.topic("orders").await;
    };
    put(json!({ "messageType": "DELAY", "retention": { "hours": 12 } })).await;
    assert_eq!((hours().as_deref(), rig.told(TOPICS, "orders").1), (Some("12"), Reason::Applied));
    assert_eq!(broker.topic("orders").expect("it is there").attributes["message.type"], "DELAY");

    for somebody in [Some("6"), Some("-1"), None] {
        let events = rig.api.events().len();
        broker.set_attribute("orders", "reserve.time", somebody).await;
        rig.topic("orders").await;
        assert_eq!(hours().as_deref(), Some("12"), "put back after {somebody:?}");
        assert_eq!(rig.api.events().len(), events + 1, "{:?}", rig.api.events());
        assert_eq!(rig.api.events()[events].0, "DriftCorrected");
    }

    put(json!({ "messageType": "DELAY" })).await;
    assert_eq!(hours(), None, "taken back");
    // Both ways to say that it has no time of its own are one.
    broker.set_attribute("orders", "reserve.time", Some("-1")).await;
    let changes = broker.changes();
    rig.topic("orders").await;
    assert_eq!((broker.changes(), hours().as_deref()), (changes, Some("-1")));

    put(json!({ "messageType": "DELAY", "retention": { "hours": 73 } })).await;
    let (condition, reason, message) = rig.told(TOPICS, "orders");
    assert_eq!((condition, reason), (ConditionType::Degraded, Reason::BrokerRefused));
    let said = "reserve.time is 73 hours, but this broker keeps messages of all topics for 72 hours at most";
    assert!(message.contains(said), "{message}");
    assert_eq!(hours().as_deref(), Some("-1"), "nothing was changed");
    put(json!({ "messageType": "DELAY", "retention": { "hours": 72 } })).await;
    assert_eq!((hours().as_deref(), rig.told(TOPICS, "orders").1), (Some("72"), Reason::Applied));
}

#[tokio::test]
async fn a_bad_edit_is_named_and_its_correction_applied() {
    let broker = TestBroker::start().await;
    let rig = Rig::new([broker.address.as_str()]);
    rig.api.put(&topic("orders", json!({ "queues": 2, "writeQueues": 3 })));
    assert_eq!(rig.topic("orders").await, after(60));
    let (condition, reason, message) = rig.told(TOPICS, "orders");
    assert_eq!((condition, reason), (ConditionType::Degraded, Reason::InvalidSpec));
    assert!(message.contains("spec.writeQueues"), "{message}");
    assert!(broker.topic("orders").is_none());
    rig.api.put(&topic("orders", json!({ "queues": 3, "writeQueues": 3 })));
    rig.topic("orders").await;
    assert_eq!(rig.told(TOPICS, "orders").1, Reason::Applied);
    assert!(broker.topic("orders").is_some());
    rig.api.put(&topic("TBW102", json!({})));
    rig.topic("TBW102").await;
    assert_eq!(rig.told(TOPICS, "TBW102").1, Reason::InvalidSpec);
}

#[tokio::test]
async fn brokers_that_come_later_get_it_and_one_that_is_away_is_waited_for() {
    let broker = TestBroker::start().await;
    let rig = Rig::new([]);
    rig.api.delete("brokers", "main");
    rig.api.put(&group("billing", json!({})));
    rig.group("billing").await;
    let (condition, reason, message) = rig.told(GROUPS, "billing");
    assert_eq!((condition, reason), (ConditionType::Degraded, Reason::BrokerNotFound));
    assert_eq!(message, "there is no Broker main in this namespace");

    let away = nobody().await;
    *rig.addresses.lock() = vec![broker.address.clone(), away.clone()];
    rig.scale(2);
    rig.clock.set(START_MS + 5_000);
    rig.group("billing").await;
    let (condition, reason, message) = rig.told(GROUPS, "billing");
    assert_eq!((condition, reason), (ConditionType::Progressing, Reason::BrokerUnreachable));
    assert_eq!(message, format!("{away}: connection refused"));
    let status = rig.status(GROUPS, "billing");
    assert_eq!((status.brokers, status.applied_brokers), (2, 1));
    assert!(broker.group("billing").is_some(), "the one that is there has it");

    // The longer it fails, the rarer it is tried; and every try reads the same, so nothing is written.
    let writes = rig.api.writes().len();
    for (at, next) in [(5, 5), (20, 20), (1_000, 60)] {
        rig.clock.set(START_MS + at * 1_000);
        assert_eq!(rig.group("billing").await, after(next), "{at} s after the beginning");
    }
    assert_eq!(rig.api.writes().len(), writes);

    let second = TestBroker::start().await;
    *rig.addresses.lock() = vec![broker.address.clone(), second.address.clone()];
    rig.group("billing").await;
    assert_eq!(rig.told(GROUPS, "billing").1, Reason::Applied);
    assert!(second.group("billing").is_some());
    // The times of conditions that did not turn are kept.
    let since: Vec<_> = rig.status(GROUPS, "billing").conditions.into_iter().map(|c| c.last_transition_time).collect();
    assert_eq!(since, ["2027-01-15T08:16:40Z", "2027-01-15T08:16:40Z", "2027-01-15T08:00:05Z"]);
}

#[tokio::test]
async fn a_refusal_is_told_in_the_brokers_words() {
    let broker = TestBroker::start().await;
    let address = refuse_all(waybill_protocol::remoting::codes::response::NO_PERMISSION, "not on a Sunday").await;
    let rig = Rig::new([address.as_str(), &broker.address]);
    rig.api.put(&topic("orders", json!({})));
    assert_eq!(rig.topic("orders").await, after(1));
    let expected = format!("{address}: NO_PERMISSION: not on a Sunday");
    assert_eq!(rig.told(TOPICS, "orders"), (ConditionType::Degraded, Reason::BrokerRefused, expected));
    assert!(broker.topic("orders").is_some(), "the other broker has it");
}
