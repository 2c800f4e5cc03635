//! Leases as a client sees them, through the remoting requests of a real broker on a real store, with a clock that is moved.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use support::{Got, Rig};
use waybill_protocol::message::properties;
use waybill_protocol::remoting::codes::response;
use waybill_protocol::remoting::{PopMessageRequestHeader, SubscriptionGroupConfig};

async fn ten(rig: &Rig) {
    rig.topic("t", 1).await;
    rig.group("g").await;
    for n in 0..10 {
        rig.send("t", &format!("m{n}")).await;
    }
}

fn by_id<'a>(got: &'a [Got], id: &str) -> &'a Got {
    got.iter().find(|got| got.id() == id).expect("it was delivered")
}

/// C01: shorten one lease, ack it with either handle; it never returns, the others do, with the attempt raised.
#[tokio::test]
async fn an_ack_with_either_handle_of_a_changed_lease_is_final() {
    for use_new_handle in [true, false] {
        let rig = Rig::new();
        ten(&rig).await;
        let got = rig.pop("g", "t", 10, 30_000).await;
        assert_eq!(got.len(), 10);
        let five = by_id(&got, "m5");
        let changed = rig.change("g", "t", &five.handle, 10_000).await.unwrap();
        assert_eq!(changed.pop_time, five.handle.pop_time, "a change keeps the identity of the delivery");
        let handle = if use_new_handle { &changed } else { &five.handle };
        assert_eq!(rig.ack("g", "t", handle).await, response::SUCCESS);
        rig.clock.advance(35_000);
        let rig = rig.reopen();
        let again = rig.pop("g", "t", 32, 30_000).await;
        let mut ids: Vec<String> = again.iter().map(Got::id).collect();
        ids.sort();
        assert_eq!(ids, ["m0", "m1", "m2", "m3", "m4", "m6", "m7", "m8", "m9"]);
        assert!(again.iter().all(|got| got.attempt() == 2), "the attempt is raised");
        assert_eq!(rig.ack("g", "t", handle).await, response::SUCCESS, "a repeated ack is harmless");
    }
}

#[tokio::test]
async fn a_handle_of_a_past_delivery_is_refused() {
    let rig = Rig::new();
    ten(&rig).await;
    let first = rig.pop("g", "t", 1, 10_000).await.remove(0);
    rig.clock.advance(10_000);
    assert_eq!(rig.change("g", "t", &first.handle, 10_000).await, Err(response::NO_MESSAGE), "its time is over");
    let second = rig.pop("g", "t", 1, 10_000).await.remove(0);
    assert_eq!(second.id(), first.id());
    assert!(second.handle.pop_time > first.handle.pop_time);
    assert_eq!(rig.ack("g", "t", &first.handle).await, response::NO_MESSAGE);
    assert_eq!(rig.change("g", "t", &first.handle, 10_000).await, Err(response::NO_MESSAGE));
    assert_eq!(rig.ack("g", "t", &second.handle).await, response::SUCCESS);
}

#[tokio::test]
async fn an_extended_lease_outlives_the_first_deadline_and_a_restart() {
    let rig = Rig::new();
    rig.topic("t", 1).await;
    rig.group("g").await;
    rig.send("t", "m").await;
    let got = rig.pop("g", "t", 1, 10_000).await.remove(0);
    rig.clock.advance(9_999);
    rig.change("g", "t", &got.handle, 60_000).await.unwrap();
    let rig = rig.reopen();
    rig.clock.advance(59_999);
    assert!(rig.pop("g", "t", 1, 10_000).await.is_empty(), "honoured to the last millisecond, also after a restart");
    rig.clock.advance(1);
    let again = rig.pop("g", "t", 1, 10_000).await;
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].message.body, got.message.body);
    assert_eq!(again[0].message.properties, got.message.properties);
    assert_eq!(again[0].message.born_timestamp, got.message.born_timestamp);
}

#[tokio::test]
async fn a_long_poll_is_answered_by_an_arrival() {
    let rig = Rig::new();
    rig.topic("t", 4).await;
    rig.group("g").await;
    let (answer, ()) = tokio::join!(rig.poll("g", "t", 1), async {
        rig.until_waiting("g", "t", 1).await;
        rig.send("t", "late").await;
    });
    assert_eq!(rig.got(&answer)[0].id(), "late");
}

#[tokio::test]
async fn a_long_poll_is_answered_by_a_release() {
    let rig = Rig::new();
    rig.topic("t", 1).await;
    rig.group("g").await;
    rig.send("t", "m").await;
    let held = rig.pop("g", "t", 1, 3_600_000).await.remove(0);
    let (answer, changed) = tokio::join!(rig.poll("g", "t", 1), async {
        rig.until_waiting("g", "t", 1).await;
        rig.change("g", "t", &held.handle, 0).await
    });
    assert!(changed.is_ok());
    let got = rig.got(&answer);
    assert_eq!((got[0].id(), got[0].attempt()), ("m".to_owned(), 2));
}

#[tokio::test]
async fn tags_are_compared_by_string() {
    let rig = Rig::new();
    rig.topic("t", 2).await;
    rig.group("g").await;
    for (id, tag) in [("1", "AaAa"), ("2", "BBBB"), ("3", "AaAa"), ("4", "C")] {
        rig.send_tagged("t", id, tag).await;
    }
    let header = PopMessageRequestHeader {
        exp_type: Some("TAG".into()),
        exp: Some("AaAa||C".into()),
        ..rig.pop_command("g", "t", 32, 10_000)
    };
    let mut ids: Vec<String> = rig.got(&rig.pop_raw(header).await).iter().map(Got::id).collect();
    ids.sort();
    assert_eq!(ids, ["1", "3", "4"]);
    assert!(rig.pop("g", "t", 32, 10_000).await.is_empty(), "what was filtered out is done for this group");
}

#[tokio::test]
async fn a_condition_decides_by_properties() {
    let rig = Rig::new();
    rig.topic("t", 2).await;
    rig.group("g").await;
    for (id, tag) in [("1", "A"), ("2", "B"), ("3", "C"), ("4", "A")] {
        rig.send_tagged("t", id, tag).await;
    }
    let header = |exp: &str| PopMessageRequestHeader {
        exp_type: Some("SQL92".into()),
        exp: Some(exp.into()),
        ..rig.pop_command("g", "t", 32, 10_000)
    };
    let refused = rig.pop_raw(header("TAGS >>> 5")).await;
    assert_eq!(refused.code, response::SUBSCRIPTION_PARSE_FAILED);
    assert!(refused.remark.expect("says why").contains("character 7"), "where the mistake is");
    let mut ids: Vec<String> =
        rig.got(&rig.pop_raw(header("TAGS IN ('A', 'C') AND x IS NULL")).await).iter().map(Got::id).collect();
    ids.sort();
    assert_eq!(ids, ["1", "3", "4"]);
    assert!(rig.pop("g", "t", 32, 10_000).await.is_empty(), "what was filtered out is done for this group");
}

#[tokio::test]
async fn after_the_last_attempt_there_is_one_copy_in_the_dead_letter_topic() {
    let rig = Rig::new();
    rig.topic("t", 1).await;
    rig.group_with(SubscriptionGroupConfig { group_name: "g".into(), retry_max_times: 1, ..Default::default() }).await;
    rig.group("undertaker").await;
    rig.send("t", "m").await;
    for attempt in 1..=2 {
        let got = rig.pop("g", "t", 1, 10_000).await;
        assert_eq!(got[0].attempt(), attempt);
        rig.clock.advance(10_000);
    }
    assert!(rig.pop("g", "t", 1, 10_000).await.is_empty());
    let rig = rig.reopen();
    assert!(rig.pop("g", "t", 1, 10_000).await.is_empty());
    let dead = rig.pop("undertaker", "%DLQ%g", 32, 10_000).await;
    assert_eq!(dead.iter().map(Got::id).collect::<Vec<_>>(), ["m"]);
    let raw = &dead[0].message.properties;
    assert_eq!(properties::get(raw, properties::DLQ_ORIGIN_TOPIC), Some("t"));
    assert_eq!(properties::get(raw, properties::DLQ_ORIGIN_MESSAGE_ID), Some("m"));
}

#[tokio::test]
async fn the_in_flight_limit_holds_and_an_ack_makes_room() {
    let rig = Rig::with(|config| config.pop_inflight_message_threshold = 3);
    ten(&rig).await;
    let got = rig.pop("g", "t", 10, 30_000).await;
    assert_eq!(got.len(), 3);
    assert!(rig.pop("g", "t", 10, 30_000).await.is_empty());
    let (answer, acked) = tokio::join!(rig.poll("g", "t", 10), async {
        rig.until_waiting("g", "t", 1).await;
        rig.ack("g", "t", &got[0].handle).await
    });
    assert_eq!(acked, response::SUCCESS);
    assert_eq!(rig.got(&answer).len(), 1);
}

#[tokio::test]
async fn a_deleted_and_recreated_topic_shows_nothing_of_the_old_one() {
    let rig = Rig::new();
    ten(&rig).await;
    rig.pop("g", "t", 4, 10_000).await;
    let delete = waybill_protocol::remoting::DeleteTopicRequestHeader { topic: "t".into(), only_if_empty: None };
    let code = waybill_protocol::remoting::codes::request::DELETE_TOPIC_IN_BROKER;
    rig.ok(waybill_protocol::remoting::Command::request(code).with_header(&delete)).await;
    let gone = rig.pop_raw(rig.pop_command("g", "t", 1, 10_000)).await;
    assert_eq!(gone.code, response::TOPIC_NOT_EXIST);
    rig.topic("t", 1).await;
    let rig = rig.reopen();
    rig.clock.advance(60_000);
    assert!(rig.pop("g", "t", 32, 10_000).await.is_empty());
    rig.send("t", "new").await;
    assert_eq!(rig.drain_ids("g", "t").await, ["new"]);
}
