//! What groups have before them is in their status, and is written when it is another number.

use serde_json::json;
use tokio_util::sync::CancellationToken;
use waybill_broker::core::Pop;
use waybill_operator::api::{GroupCounts, GroupStatus};

use crate::rig::{GROUPS, Rig, START_MS, TOPICS, TestBroker, group, nobody, topic};

async fn with_two_brokers() -> (Rig, TestBroker, TestBroker) {
    let (one, two) = (TestBroker::named("main-broker-0").await, TestBroker::named("main-broker-1").await);
    let rig = Rig::new([one.address.as_str(), &two.address]);
    rig.api.put(&topic("orders", json!({})));
    rig.api.put(&group("billing", json!({ "groupName": "Billing" })));
    rig.topic("orders").await;
    rig.group("billing").await;
    (rig, one, two)
}

/// A consumer asks for one message.
async fn receive(broker: &TestBroker) {
    let pop = Pop {
        group: "Billing".into(),
        topic: "orders".into(),
        queue_id: -1,
        max: 1,
        invisible_ms: 600_000,
        poll_ms: 0,
        born_ms: START_MS,
        expression_type: None,
        expression: None,
        client_id: Some("a consumer".into()),
        attempt_id: None,
        subscribed_topics: None,
    };
    let _one_or_none = broker.broker.core().pop(&pop, &CancellationToken::new()).await;
}

fn told(rig: &Rig) -> GroupCounts {
    let status = rig.api.get(GROUPS, "billing").expect("it is there")["status"].clone();
    serde_json::from_value::<GroupStatus>(status).expect("a status").counts
}

#[tokio::test]
async fn a_group_tells_what_is_before_it_on_all_brokers() {
    let (rig, one, two) = with_two_brokers().await;
    assert_eq!(rig.api.get(GROUPS, "billing").expect("it is there")["status"]["lag"], 0, "told from the start");
    // From its first receive on it reads the topic.
    receive(&one).await;
    receive(&two).await;
    for broker in [&one, &one, &two] {
        broker.send("orders").await;
    }
    receive(&one).await;
    rig.count_groups().await;
    let expected = GroupCounts { members: 1, lag: 3, in_flight: 1, dead_letters: 0 };
    assert_eq!(told(&rig), expected);

    let writes = rig.api.writes().len();
    rig.count_groups().await;
    rig.group("billing").await;
    assert_eq!(rig.api.writes().len(), writes, "nothing new, nothing is written");

    rig.api.put(&group("billing", json!({ "groupName": "Billing", "consumeTimeoutMinutes": 1 })));
    rig.group("billing").await;
    assert_eq!(told(&rig), expected, "they stay when something else is told");
    assert_eq!(rig.status(GROUPS, "billing").observed_generation, 2);
}

#[tokio::test]
async fn when_a_broker_does_not_answer_the_numbers_stay() {
    let (rig, one, two) = with_two_brokers().await;
    receive(&two).await;
    two.send("orders").await;
    rig.count_groups().await;
    assert_eq!(told(&rig).lag, 1);
    two.send("orders").await;
    *rig.addresses.lock() = vec![nobody().await, two.address.clone()];
    rig.count_groups().await;
    assert_eq!(told(&rig).lag, 1, "a part would look like all");
    *rig.addresses.lock() = vec![one.address.clone(), two.address.clone()];
    rig.count_groups().await;
    assert_eq!(told(&rig).lag, 2);
}

#[tokio::test]
async fn a_group_that_another_resource_stands_for_tells_nothing() {
    let (rig, one, _two) = with_two_brokers().await;
    rig.clock.advance(1_000);
    rig.api.put(&group("younger", json!({ "groupName": "Billing" })));
    rig.group("younger").await;
    receive(&one).await;
    one.send("orders").await;
    rig.count_groups().await;
    assert_eq!(told(&rig).lag, 1);
    assert_eq!(rig.api.get(GROUPS, "younger").expect("it is there")["status"]["lag"], 0);
    assert!(rig.api.get(TOPICS, "orders").expect("it is there")["status"]["lag"].is_null());
}
