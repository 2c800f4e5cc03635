//! A group that goes on elsewhere: where, what becomes of what its members hold, and what survives.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use support::{Got, LIMIT, Rig, START_MS};
use waybill_protocol::remoting::codes::{request, response};
use waybill_protocol::remoting::{Command, MessageQueue, ResetOffsetRequestHeader, queue_table};

fn ask(timestamp: i64, queue: Option<i32>, offset: Option<i64>) -> Command {
    Command::request(request::INVOKE_BROKER_TO_RESET_OFFSET).with_header(&ResetOffsetRequestHeader {
        topic: "t".into(),
        group: "g".into(),
        timestamp,
        is_force: true,
        queue_id: queue,
        offset,
    })
}

/// The offsets that a reset answers, by queue.
async fn reset(rig: &Rig, command: Command) -> Vec<(i32, u64)> {
    let answer = rig.ok(command).await;
    let rows: Vec<(MessageQueue, u64)> = queue_table::read("offsetTable", &answer.body).unwrap();
    assert!(rows.iter().all(|(queue, _)| queue.broker_name == "broker-a" && queue.topic == "t"));
    rows.into_iter().map(|(queue, offset)| (queue.queue_id, offset)).collect()
}

/// Topic "t" of one queue with a message each ten seconds: m0 at START_MS.
async fn a_message_each_ten_seconds(count: usize) -> Rig {
    let rig = Rig::new();
    rig.topic("t", 1).await;
    rig.group("g").await;
    for n in 0..count {
        rig.send("t", &format!("m{n}")).await;
        rig.clock.advance(10_000);
    }
    rig
}

async fn taken(rig: &Rig) -> Vec<String> {
    rig.pop("g", "t", 32, 60_000).await.iter().map(Got::id).collect()
}

#[tokio::test]
async fn a_group_goes_to_the_oldest_the_newest_a_time_or_an_offset() {
    let rig = a_message_each_ten_seconds(5).await;
    assert_eq!(taken(&rig).await.len(), 5);
    for (command, offset) in [
        (ask(0, None, None), 0),
        (ask(-1, None, None), 5),
        (ask(START_MS, None, None), 0),
        (ask(START_MS + 20_000, None, None), 2),
        (ask(START_MS + 20_001, Some(-1), Some(-1)), 3),
        (ask(i64::MAX, None, None), 5),
        (ask(-1, Some(0), Some(4)), 4),
        (ask(-1, Some(0), Some(5)), 5),
    ] {
        assert_eq!(reset(&rig, command).await, [(0, offset)]);
        let expected: Vec<String> = (offset..5).map(|n| format!("m{n}")).collect();
        assert_eq!(taken(&rig).await, expected);
    }
    for (command, code) in [
        (ask(-1, Some(0), Some(6)), response::INVALID_PARAMETER),
        (ask(-1, Some(1), None), response::INVALID_PARAMETER),
        (ask(-1, Some(-2), None), response::INVALID_PARAMETER),
    ] {
        assert_eq!(rig.call(command).await.code, code);
    }
    let mut command = ask(0, None, None);
    command.ext.set("group", "absent");
    assert_eq!(rig.call(command).await.code, response::SUBSCRIPTION_GROUP_NOT_EXIST);
    let mut command = ask(0, None, None);
    command.ext.set("topic", "absent");
    assert_eq!(rig.call(command).await.code, response::TOPIC_NOT_EXIST);
}

#[tokio::test]
async fn a_reset_survives_a_restart_also_of_a_group_that_never_read() {
    let rig = a_message_each_ten_seconds(5).await;
    assert_eq!(reset(&rig, ask(START_MS + 30_000, None, None)).await, [(0, 3)]);
    let rig = rig.reopen();
    assert_eq!(taken(&rig).await, ["m3", "m4"]);
    reset(&rig, ask(START_MS + 40_000, None, None)).await;
    let rig = rig.reopen();
    assert_eq!(taken(&rig).await, ["m4"]);
    rig.clock.advance(60_000);
    assert_eq!(taken(&rig).await, ["m4"], "no lease of before the reset came back");
}

/// What is documented for messages that are held: behind the new place they come again, before it they are done, and whatever their
/// holders do with their handles changes nothing.
#[tokio::test]
async fn handles_of_before_a_reset_name_nothing() {
    let rig = a_message_each_ten_seconds(4).await;
    let old = rig.pop("g", "t", 32, 3_600_000).await;
    assert_eq!(old.len(), 4);
    reset(&rig, ask(-1, Some(0), Some(2))).await;
    for got in &old {
        rig.ack("g", "t", &got.handle).await;
        assert!(rig.change("g", "t", &got.handle, 0).await.is_err(), "{got:?}");
    }
    let again = rig.pop("g", "t", 32, 60_000).await;
    assert_eq!(
        again.iter().map(|got| (got.id(), got.attempt())).collect::<Vec<_>>(),
        [("m2".to_owned(), 1), ("m3".to_owned(), 1)]
    );
    for got in &old {
        rig.ack("g", "t", &got.handle).await;
        assert!(rig.change("g", "t", &got.handle, 0).await.is_err(), "{got:?}");
    }
    rig.clock.advance(60_000);
    assert_eq!(taken(&rig).await, ["m2", "m3"], "the late acks did not end the new leases");
}

#[tokio::test]
async fn who_waits_is_woken_by_a_reset() {
    let rig = a_message_each_ten_seconds(1).await;
    let got = rig.pop("g", "t", 1, 60_000).await;
    rig.ack("g", "t", &got[0].handle).await;
    let work = async {
        let (answer, ()) = tokio::join!(rig.poll("g", "t", 1), async {
            rig.until_waiting("g", "t", 1).await;
            reset(&rig, ask(0, None, None)).await;
        });
        assert_eq!(support::got(&answer)[0].id(), "m0");
    };
    tokio::time::timeout(LIMIT, work).await.expect("woken");
}

#[tokio::test]
async fn one_queue_is_moved_and_the_others_stay() {
    let rig = Rig::new();
    rig.topic("t", 3).await;
    rig.group("g").await;
    for n in 0..6 {
        rig.send("t", &format!("m{n}")).await;
    }
    assert_eq!(rig.drain_ids("g", "t").await.len(), 6);
    assert_eq!(reset(&rig, ask(0, Some(1), None)).await, [(1, 0)]);
    let again = rig.pop("g", "t", 32, 60_000).await;
    assert_eq!(again.iter().map(|got| got.message.queue_id).collect::<Vec<_>>(), [1, 1]);
    assert_eq!(reset(&rig, ask(-1, None, None)).await, [(0, 2), (1, 2), (2, 2)]);
    rig.clock.advance(3_600_000);
    assert!(taken(&rig).await.is_empty());
}

/// A pull consumer's own offset is moved, too.
#[tokio::test]
async fn committed_offsets_follow() {
    let rig = a_message_each_ten_seconds(3).await;
    let with = |code, fields: &[(&str, &str)]| {
        let mut command = Command::request(code);
        for (name, value) in fields {
            command.ext.set(name, *value);
        }
        command
    };
    let names = [("consumerGroup", "g"), ("topic", "t"), ("queueId", "0")];
    rig.ok(with(request::UPDATE_CONSUMER_OFFSET, &[&names[..], &[("commitOffset", "3")]].concat())).await;
    reset(&rig, ask(START_MS + 10_000, None, None)).await;
    assert_eq!(rig.ok(with(request::QUERY_CONSUMER_OFFSET, &names)).await.ext.get("offset"), Some("1"));
}

/// Many store times, many probes: what the search finds is what a look at each message finds.
#[tokio::test]
async fn offsets_by_time_are_exact() {
    let rig = Rig::new();
    rig.topic("t", 1).await;
    let mut times = Vec::new();
    for n in 0..700_i64 {
        rig.clock.advance(n % 7 % 3);
        times.push(rig.clock_now());
        rig.send("t", "m").await;
    }
    for time in (START_MS - 2..rig.clock_now() + 3).step_by(3) {
        let search = async |boundary: &str| {
            let mut command = Command::request(request::SEARCH_OFFSET_BY_TIMESTAMP);
            for (name, value) in [("topic", "t"), ("queueId", "0"), ("boundaryType", boundary)] {
                command.ext.set(name, value);
            }
            command.ext.set_number("timestamp", time);
            rig.ok(command).await.ext.get("offset").unwrap().parse::<usize>().unwrap()
        };
        assert_eq!(search("lower").await, times.iter().take_while(|t| **t < time).count());
        assert_eq!(search("upper").await, times.iter().take_while(|t| **t <= time).count().saturating_sub(1));
    }
}
