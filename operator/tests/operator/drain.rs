//! A broker that is to go takes nothing along.

use serde_json::json;
use tokio_util::sync::CancellationToken;
use waybill_broker::BrokerConfig;
use waybill_broker::core::{HandleRef, Pop};
use waybill_operator::api::Reason;
use waybill_protocol::message::sys_flag;
use waybill_protocol::remoting::codes::response;
use waybill_protocol::remoting::{SubscriptionGroupConfig, TopicConfig};

use crate::rig::{self, GROUPS, Rig, START_MS, TOPICS, TestBroker, after, nobody};

const SET: &str = "main-broker";

/// Two brokers with topic "t" of one queue and group "g"; the second is to go.
struct Two {
    rig: Rig,
    stays: TestBroker,
    goes: TestBroker,
}

impl Two {
    async fn start() -> Self {
        let (stays, goes) = (TestBroker::named("main-broker-0").await, TestBroker::named("main-broker-1").await);
        for broker in [&stays, &goes] {
            topic(broker, "t").await;
            let group = SubscriptionGroupConfig { group_name: "g".into(), ..Default::default() };
            broker.broker.core().put_group("g", |_| Ok(group)).await.expect("a group");
        }
        let rig = Rig::new([stays.address.as_str(), &goes.address]);
        let two = Self { rig, stays, goes };
        two.rig.settle().await;
        assert_eq!(two.told().0, Reason::PodsReady);
        two
    }

    fn told(&self) -> (Reason, String) {
        let (_condition, reason, message) = self.rig.told("brokers", "main");
        (reason, message)
    }

    /// One reconciliation, by an operator that was started just now: none of them remembers anything. Answers how many brokers there are
    /// to be.
    async fn step(&self) -> i64 {
        self.rig.broker().await;
        self.rig.cluster().acts();
        self.rig.api.get("statefulsets", SET).expect("it is there")["spec"]["replicas"].as_i64().expect("a number")
    }

    /// The brokers read their file again.
    fn read_file(&self) {
        let config = self.rig.api.get("configmaps", SET).expect("it is there");
        let text = config["data"]["broker.yaml"].as_str().expect("text");
        let mut file: BrokerConfig = serde_json::from_str(text).expect("a configuration");
        // The brokers of these tests have small segments.
        file.max_message_size = 1 << 16;
        for broker in [&self.stays, &self.goes] {
            broker.broker.reconfigure(&file).expect("it fits");
        }
    }

    /// What the broker that is to go gives out to group "g".
    async fn receive(&self) -> Vec<HandleRef> {
        let pop = Pop {
            group: "g".into(),
            topic: "t".into(),
            queue_id: -1,
            max: 32,
            invisible_ms: 600_000,
            poll_ms: 0,
            born_ms: START_MS,
            expression_type: None,
            expression: None,
            client_id: None,
            attempt_id: None,
            subscribed_topics: None,
        };
        let answer = self.goes.broker.core().pop(&pop, &CancellationToken::new()).await.expect("messages");
        let handle = |queue, offset| HandleRef { queue, offset, pop_time_ms: answer.pop_time_ms };
        answer.messages.iter().map(|message| handle(message.queue, message.offset)).collect()
    }

    async fn ack(&self, handles: &[HandleRef]) {
        self.goes.broker.core().ack("g", "t", handles).await.expect("acknowledged");
    }
}

async fn topic(broker: &TestBroker, name: &str) {
    let topic = TopicConfig { topic_name: name.into(), read_queue_nums: 1, write_queue_nums: 1, ..Default::default() };
    broker.broker.core().put_topic(name, |_| Ok(topic)).await.expect("a topic");
}

#[tokio::test]
async fn the_last_broker_goes_when_nobody_waits_for_anything_in_it() {
    let two = Two::start().await;
    for _message in 0..3 {
        two.goes.send("t").await;
    }
    let held = two.receive().await;
    assert_eq!(held.len(), 3);
    two.goes.send("t").await;
    assert_eq!(two.goes.send_with("t", 0, "TIMER_DELAY_SEC\u{1}600\u{2}").await, response::SUCCESS);
    assert_eq!(
        two.goes.send_with("t", sys_flag::TRANSACTION_PREPARED, "TRAN_MSG\u{1}true\u{2}").await,
        response::SUCCESS
    );

    two.rig.scale(1);
    assert_eq!(two.step().await, 2);
    let (reason, message) = two.told();
    assert_eq!(reason, Reason::DrainingBroker);
    assert_eq!(message, "main-broker-1 is to go, and does not know yet that it takes no new messages");
    two.read_file();
    assert_eq!(two.step().await, 2);
    let left = "main-broker-1 is to go, and still has 1 unread, 3 in flight, 1 delayed, 1 of open transactions (in t)";
    assert_eq!(two.told().1, left);
    // It takes nothing any more, and the other one does.
    assert_eq!(two.goes.send_with("t", 0, "").await, response::NO_PERMISSION);
    assert_eq!(two.stays.send_with("t", 0, "").await, response::SUCCESS);
    // Deliveries and acknowledgements go on.
    two.ack(&held).await;
    two.ack(&two.receive().await).await;
    assert_eq!(two.step().await, 2);
    assert_eq!(two.told().1, "main-broker-1 is to go, and still has 1 delayed, 1 of open transactions (in t)");
    // Somebody deletes the topic, with what is left.
    two.goes.broker.core().delete_topic("t").await.expect("deleted");
    assert_eq!(two.step().await, 1);
    let drained = ("BrokerDrained".to_owned(), "nothing is left in main-broker-1: it goes".to_owned());
    assert!(two.rig.api.events().contains(&drained), "{:?}", two.rig.api.events());
    two.rig.settle().await;
    assert_eq!(two.told(), (Reason::PodsReady, "1 of 1 pods are ready".into()));
    let file = two.rig.api.get("configmaps", SET).expect("it is there")["data"].to_string();
    assert!(!file.contains("readOnlyBrokers"), "nobody is to go any more: {file}");
}

#[tokio::test]
async fn messages_that_no_group_has_ever_read_are_waited_for() {
    let two = Two::start().await;
    topic(&two.goes, "unread").await;
    two.goes.send("unread").await;
    two.rig.scale(1);
    two.step().await;
    two.read_file();
    assert_eq!(two.step().await, 2);
    assert_eq!(two.told().1, "main-broker-1 is to go, and still has 1 unread (in unread)");
}

#[tokio::test]
async fn a_broker_that_does_not_answer_stays_and_one_that_is_abandoned_goes() {
    let two = Two::start().await;
    two.rig.addresses.lock()[1] = nobody().await;
    two.rig.scale(1);
    assert_eq!(two.step().await, 2);
    let (reason, message) = two.told();
    assert_eq!(reason, Reason::DrainingBroker);
    assert_eq!(message, "main-broker-1 is to go, and does not say what is left in it: connection refused");
    assert_eq!(two.rig.broker().await, after(2));
    let name = |name: &str| {
        let name = json!({ "waybill.dev/abandon": name });
        two.rig.api.edit("brokers", "main", |broker| broker["metadata"]["annotations"] = name);
    };
    name("main-broker-0");
    assert_eq!(two.step().await, 2, "another one is named");
    name("main-broker-1");
    assert_eq!(two.step().await, 1);
    assert!(two.rig.api.events().iter().any(|(reason, _)| reason == "BrokerAbandoned"));
}

#[tokio::test]
async fn more_replicas_take_it_back() {
    let two = Two::start().await;
    two.goes.send("t").await;
    two.rig.scale(1);
    two.step().await;
    two.read_file();
    assert_eq!(two.goes.send_with("t", 0, "").await, response::NO_PERMISSION);
    two.rig.scale(2);
    two.step().await;
    two.read_file();
    assert_eq!(two.goes.send_with("t", 0, "").await, response::SUCCESS);
    assert_eq!(two.told().0, Reason::PodsReady);
}

#[tokio::test]
async fn a_broker_that_is_to_go_hears_of_changes_and_may_be_gone_already() {
    let two = Two::start().await;
    two.rig.api.put(&rig::group("g", json!({ "paused": true })));
    two.rig.api.put(&rig::topic("orders", json!({ "deletionPolicy": "Delete" })));
    two.rig.group("g").await;
    two.rig.topic("orders").await;
    two.rig.scale(1);
    assert_eq!(two.step().await, 2);
    let enabled = |broker: &TestBroker| broker.group("g").expect("it is there").consume_enable;
    assert!(!enabled(&two.goes) && two.goes.topic("orders").is_some());
    // Else nobody could ever empty it.
    two.rig.api.put(&rig::group("g", json!({})));
    two.rig.group("g").await;
    assert!(enabled(&two.stays) && enabled(&two.goes));
    assert_eq!(two.rig.status(GROUPS, "g").brokers, 2);
    two.rig.api.delete(TOPICS, "orders");
    two.rig.topic("orders").await;
    assert!(two.stays.topic("orders").is_none() && two.goes.topic("orders").is_none());
    two.rig.addresses.lock()[1] = nobody().await;
    two.rig.group("g").await;
    assert_eq!(two.rig.told(GROUPS, "g").1, Reason::Applied);
    assert_eq!(two.rig.status(GROUPS, "g").brokers, 1);
}

#[tokio::test]
async fn a_stateful_set_that_somebody_deletes_meanwhile_comes_back_with_the_broker_that_is_to_go() {
    let two = Two::start().await;
    two.goes.send("t").await;
    two.rig.scale(1);
    two.step().await;
    two.read_file();
    assert_eq!(two.step().await, 2);
    // With --cascade=orphan the pods stay, and the next set has them.
    two.rig.api.delete("statefulsets", SET);
    assert_eq!(two.step().await, 2, "what is in it is not left behind");
    let file = two.rig.api.get("configmaps", SET).expect("it is there")["data"].to_string();
    assert!(file.contains("readOnlyBrokers"), "it goes on draining: {file}");
    two.step().await;
    assert_eq!(two.told().1, "main-broker-1 is to go, and still has 1 unread (in t)");
    two.ack(&two.receive().await).await;
    assert_eq!(two.step().await, 1);
}
