//! Converged means silent, for whatever resources there can be.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use waybill_operator::api::Reason;

use crate::rig::{GROUPS, Rig, TOPICS, TestBroker, group, topic};

fn topics() -> impl Strategy<Value = Value> {
    let types = prop::sample::select(vec!["NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"]);
    let permissions = prop::sample::select(vec!["ReadWrite", "ReadOnly", "WriteOnly"]);
    let policies = prop::sample::select(vec!["Retain", "Delete", "DeleteIfEmpty"]);
    let queues = (1..=1024).prop_flat_map(|queues| (Just(queues), prop::option::of(1..=queues)));
    let name = prop::option::of("[A-Za-z0-9_%|-]{1,127}");
    let hours = prop::option::of(1..=72_i64);
    (types, permissions, policies, queues, name, hours).prop_map(
        |(kind, permission, policy, (queues, write), name, hours)| {
            let mut spec =
                json!({ "messageType": kind, "permission": permission, "deletionPolicy": policy, "queues": queues });
            set(&mut spec, "writeQueues", write);
            set(&mut spec, "topicName", name);
            set(&mut spec, "retention", hours.map(|hours| json!({ "hours": hours })));
            spec
        },
    )
}

fn groups() -> impl Strategy<Value = Value> {
    let day = 86_400_000_i64;
    let formula = (1..=day, 1..=day, 1..=1_000_i64).prop_map(|(a, b, multiplier)| {
        json!({ "exponential": { "initialMs": a.min(b), "maxMs": a.max(b), "multiplier": multiplier } })
    });
    let list = prop::collection::vec(0..=day, 1..=64).prop_map(|delays| json!({ "delaysMs": delays }));
    let retry = (prop_oneof![Just(json!({})), formula, list], 0..=1_000_i32).prop_map(|(mut retry, times)| {
        retry["maxTimes"] = json!(times);
        retry
    });
    let leases = (prop::option::of(any::<bool>()), prop::option::of(1_000..=day), prop::option::of(1..=10_000_i64))
        .prop_map(|(renew, invisible, batch)| {
            let mut leases = json!({});
            set(&mut leases, "renew", renew);
            set(&mut leases, "invisibleMs", invisible);
            set(&mut leases, "batchMax", batch);
            leases
        });
    let flags = (any::<bool>(), any::<bool>(), 1..=1_440_i32);
    (flags, retry, leases, prop::option::of("[A-Za-z0-9_%|-]{1,120}")).prop_map(
        |((orderly, paused, minutes), retry, leases, name)| {
            let mut spec = json!({ "orderly": orderly, "paused": paused, "consumeTimeoutMinutes": minutes,
                                   "retry": retry, "leases": leases });
            set(&mut spec, "groupName", name);
            spec
        },
    )
}

fn set<T: Into<Value>>(object: &mut Value, key: &str, value: Option<T>) {
    if let Some(value) = value {
        object[key] = value.into();
    }
}

/// Applies one after the other to the same resource, and looks that a second reconciliation of each says and does nothing.
fn silent(specs: impl Strategy<Value = Value>, plural: &'static str) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let broker = runtime.block_on(TestBroker::start());
    let rig = Rig::new([broker.address.as_str()]);
    let mut runner = TestRunner::new(Config { cases: 64, failure_persistence: None, ..Config::default() });
    let result = runner.run(&specs, |spec| {
        runtime.block_on(async {
            let resource = if plural == TOPICS { topic("one", spec) } else { group("one", spec) };
            rig.api.put(&resource);
            let reconcile = async || if plural == TOPICS { rig.topic("one").await } else { rig.group("one").await };
            let next = reconcile().await;
            prop_assert_eq!(rig.told(plural, "one").1, Reason::Applied, "{:?}", rig.told(plural, "one"));
            let (writes, events) = (rig.api.writes().len(), rig.api.events().len());
            let catalog = broker.changes();
            prop_assert_eq!(reconcile().await, next);
            prop_assert_eq!(rig.api.writes().len(), writes);
            prop_assert_eq!(rig.api.events().len(), events);
            prop_assert_eq!(broker.changes(), catalog);
            Ok(())
        })
    });
    result.expect("silent");
}

#[test]
fn a_converged_topic_causes_no_write() {
    silent(topics(), TOPICS);
}

#[test]
fn a_converged_group_causes_no_write() {
    silent(groups(), GROUPS);
}
