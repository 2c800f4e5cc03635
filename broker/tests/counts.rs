//! Counts of groups, held against what happened.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::Value;
use support::{Got, Rig};
use waybill_protocol::remoting::codes::{own, request};
use waybill_protocol::remoting::{Command, SubscriptionGroupConfig};

const ATTEMPTS: i32 = 2;

#[derive(Debug, Clone)]
enum Op {
    Send(u8),
    Pop { max: i32, invisible_ms: i64 },
    Ack(usize),
    GiveBack(usize, i64),
    Extend(usize, i64),
    Wait(i64),
    Redrive(u8),
    Restart,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (1_u8..6).prop_map(Op::Send),
        4 => (1..5_i32, 1_000..4_000_i64).prop_map(|(max, invisible_ms)| Op::Pop { max, invisible_ms }),
        3 => (0..8_usize).prop_map(Op::Ack),
        2 => (0..8_usize, 1..3_000_i64).prop_map(|(which, ms)| Op::GiveBack(which, ms)),
        2 => (0..8_usize, 1..3_000_i64).prop_map(|(which, ms)| Op::Extend(which, ms)),
        3 => (1..3_000_i64).prop_map(Op::Wait),
        1 => (1_u8..4).prop_map(Op::Redrive),
        1 => Just(Op::Restart),
    ]
}

/// A message as this test knows it.
#[derive(Debug, Clone)]
struct Open {
    got: Got,
    until: i64,
    given_back: bool,
}

#[derive(Debug, Default)]
struct Model {
    /// Never given out.
    fresh: u64,
    /// Given out and not done, by id.
    open: BTreeMap<String, Open>,
    dead: u64,
}

impl Model {
    fn counts(&self, now: i64) -> [u64; 5] {
        let count =
            |is: fn(&Open) -> bool| self.open.values().filter(|open| open.until > now && is(open)).count() as u64;
        let (held, waiting) = (count(|open| !open.given_back), count(|open| open.given_back));
        let lag = self.fresh + self.open.len() as u64;
        [lag, lag - held - waiting, held, waiting, self.dead]
    }
}

async fn counted(rig: &Rig) -> [u64; 5] {
    let mut command = Command::request(own::COUNT_MESSAGES);
    command.ext.set("consumerGroup", "g");
    command.ext.set("topic", "t");
    let body: Value = serde_json::from_slice(&rig.ok(command).await.body).unwrap();
    let group = &body["groups"][0];
    let number = |value: &Value| value.as_u64().expect("a number that is not negative");
    let of_topic = |name: &str| group["topics"].get(0).map_or(0, |topic| number(&topic[name]));
    let [lag, ready, in_flight, waiting] = ["lag", "ready", "inFlight", "waitingRetry"].map(of_topic);
    [lag, ready, in_flight, waiting, number(&group["deadLetters"])]
}

async fn live(ops: Vec<Op>) {
    let mut rig = Rig::new();
    rig.topic("t", 3).await;
    let group = SubscriptionGroupConfig { group_name: "g".into(), retry_max_times: ATTEMPTS - 1, ..Default::default() };
    rig.group_with(group).await;
    // From its first receive on it is a reader of the topic.
    assert!(rig.pop("g", "t", 1, 1_000).await.is_empty());
    let (mut model, mut sent) = (Model::default(), 0);
    for op in ops {
        let now = rig.clock_now();
        match op {
            Op::Send(count) => {
                for _ in 0..count {
                    sent += 1;
                    rig.send("t", &format!("m{sent}")).await;
                }
                model.fresh += u64::from(count);
            }
            Op::Pop { max, invisible_ms } => {
                for got in rig.pop("g", "t", max, invisible_ms).await {
                    if !model.open.contains_key(&got.id()) {
                        model.fresh -= 1;
                    }
                    let until = got.handle.pop_time + got.handle.invisible_time;
                    model.open.insert(got.id(), Open { got, until, given_back: false });
                }
                // Those whose attempts were used up may have gone to the dead letters with this pop.
                let ready: Vec<String> =
                    model.open.iter().filter(|(_, open)| open.until <= now).map(|(id, _)| id.clone()).collect();
                for id in ready {
                    let open = model.open[&id].clone();
                    let key = &open.got.handle;
                    let leases = rig.broker.core().leases(&Default::default(), 1_000).unwrap();
                    let is_there = leases.iter().any(|lease| {
                        lease.topic == "t"
                            && (i64::from(lease.queue_id), lease.offset as i64) == (i64::from(key.queue_id), key.offset)
                    });
                    if !is_there {
                        assert_eq!(open.got.attempt(), ATTEMPTS, "only what used up its attempts goes");
                        model.open.remove(&id);
                        model.dead += 1;
                    }
                }
            }
            Op::Ack(which) => {
                if let Some(open) = model.open.values().nth(which).cloned() {
                    rig.ack("g", "t", &open.got.handle).await;
                    model.open.remove(&open.got.id());
                }
            }
            Op::GiveBack(which, ms) | Op::Extend(which, ms) => {
                let given_back = matches!(op, Op::GiveBack(..));
                if let Some(open) = model.open.values_mut().nth(which)
                    && open.until > now
                {
                    let command = change(&open.got, ms, if given_back { "client" } else { "extension" });
                    rig.ok(command).await;
                    (open.until, open.given_back) = (now + ms, given_back);
                }
            }
            Op::Wait(ms) => {
                rig.clock.advance(ms);
            }
            Op::Redrive(max) => {
                let mut command = Command::request(own::REDRIVE_DEAD_LETTERS);
                command.ext.set("consumerGroup", "g");
                command.ext.set("max", max.to_string());
                let answer: Value = serde_json::from_slice(&rig.ok(command).await.body).unwrap();
                let moved = answer["moved"].as_array().unwrap().len() as u64;
                assert_eq!(moved, model.dead.min(u64::from(max)));
                model.dead -= moved;
                model.fresh += moved;
            }
            Op::Restart => rig = rig.reopen(),
        }
        assert_eq!(counted(&rig).await, model.counts(rig.clock_now()), "lag, ready, in flight, waiting, dead");
    }
}

fn change(got: &Got, ms: i64, on_behalf_of: &str) -> Command {
    let mut command = Command::request(request::CHANGE_MESSAGE_INVISIBLETIME);
    for (name, value) in [("consumerGroup", "g"), ("topic", "t"), ("changedBy", on_behalf_of)] {
        command.ext.set(name, value);
    }
    command.ext.set_number("queueId", got.handle.queue_id);
    command.ext.set_number("offset", got.handle.offset);
    command.ext.set_number("invisibleTime", ms);
    command.ext.set("extraInfo", got.handle.to_string());
    command
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn counts_are_exact_through_random_lives(ops in proptest::collection::vec(op(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(live(ops));
    }
}

/// A queue that nobody asked for a message yet is behind, too.
#[tokio::test]
async fn queues_that_were_added_count() {
    let rig = Rig::new();
    rig.topic("t", 1).await;
    rig.group("g").await;
    assert!(rig.pop("g", "t", 1, 1_000).await.is_empty());
    rig.topic("t", 4).await;
    for n in 0..8 {
        rig.send("t", &format!("m{n}")).await;
    }
    assert_eq!(counted(&rig).await, [8, 8, 0, 0, 0]);
}
