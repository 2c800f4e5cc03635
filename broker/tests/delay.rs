//! Delayed messages through the public requests, with a clock that is moved by hand.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use support::{Got, Rig, START_MS};
use waybill_broker::store::Keyspace;
use waybill_protocol::message::properties;
use waybill_protocol::recall::RecallHandle;
use waybill_protocol::remoting::codes::{request, response};
use waybill_protocol::remoting::{
    Command, CreateTopicRequestHeader, DeleteTopicRequestHeader, PopMessageRequestHeader, RecallMessageRequestHeader,
    RecallMessageResponseHeader, SendMessageRequestHeader, SendMessageResponseHeader,
};

const SECOND: i64 = 1_000;
const HOUR: i64 = 3_600 * SECOND;
const DAY: i64 = 24 * HOUR;

/// A broker with topic "t" of one queue and group "g".
async fn rig() -> Rig {
    rig_with(1, 1_000).await
}

async fn rig_with(queues: i32, precision_ms: u64) -> Rig {
    let rig = Rig::with(|config| config.timer_precision_ms = precision_ms);
    rig.topic("t", queues).await;
    rig.group("g").await;
    rig
}

fn send_with(id: &str, more: &[(&str, &str)]) -> Command {
    let command = Rig::send_command("t", id, Some("tag"), id);
    let mut header = SendMessageRequestHeader::decode_v2(&command.ext).unwrap();
    for (name, value) in more {
        properties::set(header.properties.as_mut().unwrap(), name, value);
    }
    Command::request(request::SEND_MESSAGE_V2).with_header(&header).with_body(command.body)
}

async fn send_at(rig: &Rig, id: &str, at_ms: i64) -> SendMessageResponseHeader {
    rig.ok(send_with(id, &[(properties::TIMER_DELIVER_MS, &at_ms.to_string())])).await.header().unwrap()
}

async fn arrived(rig: &Rig) -> Vec<String> {
    rig.broker.deliver_due().await.unwrap();
    rig.drain_in_order("g", "t").await
}

fn recall_command(topic: &str, handle: &str) -> Command {
    Command::request(request::RECALL_MESSAGE).with_header(&RecallMessageRequestHeader {
        producer_group: Some("p".into()),
        topic: topic.into(),
        recall_handle: handle.into(),
        broker_name: None,
    })
}

async fn recall(rig: &Rig, handle: &str) -> i32 {
    rig.call(recall_command("t", handle)).await.code
}

fn delayed(rig: &Rig) -> u64 {
    let core = rig.broker.core();
    core.catalog().topic("t").map_or(0, |topic| core.delayed(&topic))
}

#[tokio::test]
async fn a_day_passes() {
    let rig = rig().await;
    send_at(&rig, "tomorrow", START_MS + DAY).await;
    assert_eq!(delayed(&rig), 1);
    for hour in 0..24 {
        assert_eq!(arrived(&rig).await, [""; 0], "hour {hour}");
        rig.clock.advance(HOUR - i64::from(hour == 23));
    }
    assert_eq!(arrived(&rig).await, [""; 0], "a millisecond before its time");
    rig.clock.advance(1);
    assert_eq!(arrived(&rig).await, ["tomorrow"]);
    assert_eq!(delayed(&rig), 0);
    rig.clock.advance(DAY);
    assert_eq!(arrived(&rig).await, [""; 0], "and once only");
}

#[tokio::test]
async fn it_is_the_same_message_and_says_when_it_was_due() {
    let rig = rig().await;
    let at = START_MS + 5 * SECOND;
    let sent = send_at(&rig, "id-1", at).await;
    let ordinary = rig.ok(send_with("now", &[])).await.header::<SendMessageResponseHeader>().unwrap();
    assert_eq!(ordinary.recall_handle, None);
    assert_eq!(ordinary.queue_offset, 0, "a delayed message takes no place in its queue before its time");
    let handle: RecallHandle = sent.recall_handle.as_deref().unwrap().parse().unwrap();
    assert_eq!((handle.topic.as_str(), handle.broker_name.as_str(), handle.time_ms), ("t", "broker-a", at));
    assert_eq!(handle.message_id, "id-1");
    assert_eq!(sent.transaction_id.as_deref(), Some("id-1"));
    rig.clock.advance(7 * SECOND);
    assert_eq!(rig.broker.deliver_due().await.unwrap(), 1);
    let got = rig.pop("g", "t", 32, 60_000).await;
    let got: &Got = got.iter().find(|got| got.id() == "id-1").expect("it came");
    assert_eq!(got.message.body, "id-1");
    assert_eq!((got.message.queue_offset, got.attempt()), (1, 1));
    assert_eq!(got.message.born_timestamp, START_MS);
    assert_eq!(got.message.store_timestamp, START_MS + 7 * SECOND, "since when it is in its queue");
    let property = |name| properties::get(&got.message.properties, name).map(str::to_owned);
    assert_eq!(property(properties::TIMER_DELIVER_MS), Some(at.to_string()));
    assert_eq!(property(properties::TIMER_OUT_MS), Some(at.to_string()));
    assert_eq!(property(properties::TAGS).as_deref(), Some("tag"));
    assert_eq!(rig.ack("g", "t", &got.handle).await, response::SUCCESS);
}

#[tokio::test]
async fn all_levels_and_all_properties() {
    let rig = rig().await;
    let levels = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h";
    let unit = |text: &str| match text.split_at(text.len() - 1) {
        (n, "s") => n.parse::<i64>().unwrap(),
        (n, "m") => n.parse::<i64>().unwrap() * 60,
        (n, _) => n.parse::<i64>().unwrap() * 3_600,
    };
    let mut expected: Vec<(i64, String)> = Vec::new();
    for (level, text) in (1..).zip(levels.split(' ')) {
        rig.ok(send_with(&format!("level-{level}"), &[(properties::DELAY, &format!("{level}"))])).await;
        expected.push((unit(text), format!("level-{level}")));
    }
    for (id, name, value, seconds) in [
        ("sec", properties::TIMER_DELAY_SEC, "17", 17),
        ("ms", properties::TIMER_DELAY_MS, "18000", 18),
        ("above", properties::DELAY, "99", 7_200),
    ] {
        rig.ok(send_with(id, &[(name, value)])).await;
        expected.push((seconds, id.to_owned()));
    }
    expected.sort_by_key(|(seconds, _)| *seconds);
    let rig = rig.reopen();
    let mut at = 0;
    for (seconds, _) in &expected {
        if *seconds > at {
            rig.clock.advance((seconds - at) * SECOND - 1);
            assert_eq!(rig.broker.deliver_due().await.unwrap(), 0, "before {seconds} s");
            rig.clock.advance(1);
            rig.broker.deliver_due().await.unwrap();
            at = *seconds;
        }
    }
    let ids: Vec<String> = expected.into_iter().map(|(_, id)| id).collect();
    assert_eq!(rig.drain_in_order("g", "t").await, ids, "in the order of their time");
}

/// What is delayed of a deleted topic is gone with it, and keeps nothing in the log until it would have been due.
#[tokio::test]
async fn a_deleted_topic_leaves_nothing_that_waits() {
    let rig = rig().await;
    rig.topic("kept", 1).await;
    for n in 0..1_100 {
        send_at(&rig, &format!("m{n}"), START_MS + DAY + n % 3).await;
    }
    let plain = Rig::send_command("kept", "kept", None, "kept");
    let mut header = SendMessageRequestHeader::decode_v2(&plain.ext).unwrap();
    properties::set(header.properties.as_mut().unwrap(), properties::TIMER_DELAY_SEC, "86400");
    rig.ok(Command::request(request::SEND_MESSAGE_V2).with_header(&header).with_body(plain.body)).await;
    let delete = DeleteTopicRequestHeader { topic: "t".into(), only_if_empty: None };
    rig.ok(Command::request(request::DELETE_TOPIC_IN_BROKER).with_header(&delete)).await;
    rig.topic("t", 1).await;
    let rig = rig.reopen();
    let rows = rig.broker.core().store().scan(Keyspace::Timer, &[]).unwrap();
    assert_eq!(rows.len(), 1, "that of the other topic");
    let counted = |topic: &str| rig.broker.core().delayed(&rig.broker.core().catalog().topic(topic).unwrap());
    assert_eq!((counted("t"), counted("kept")), (0, 1));
}

#[tokio::test]
async fn c20_limits() {
    let rig = rig().await;
    let max = 3 * DAY;
    for (id, at) in [("past", START_MS - 1), ("now", START_MS), ("negative", -5), ("least", i64::MIN)] {
        assert_eq!(send_at(&rig, id, at).await.recall_handle, None, "{id}: at once, so there is nothing to recall");
        assert_eq!(rig.drain_in_order("g", "t").await, [id]);
    }
    send_at(&rig, "most", START_MS + max).await;
    for at in [START_MS + max + 1, 253_402_300_799_999, i64::MAX] {
        let answer = rig.call(send_with("far", &[(properties::TIMER_DELIVER_MS, &at.to_string())])).await;
        assert_eq!(answer.code, response::MESSAGE_ILLEGAL);
        let remark = answer.remark.unwrap();
        assert!(remark.contains("timerMaxDelaySec") && remark.contains(&max.to_string()), "{remark}");
    }
    let odd = rig.call(send_with("odd", &[(properties::TIMER_DELAY_SEC, "soon")])).await;
    assert_eq!(odd.code, response::MESSAGE_ILLEGAL);
    assert_eq!(delayed(&rig), 1, "nothing of what was refused is stored");
    rig.clock.advance(max);
    assert_eq!(arrived(&rig).await, ["most"]);
    rig.clock.advance(1_000 * DAY);
    assert_eq!(arrived(&rig).await, [""; 0]);
    let rig = Rig::with(|config| config.timer_max_delay_sec = 400 * 86_400);
    rig.topic("t", 1).await;
    rig.group("g").await;
    send_at(&rig, "next year", START_MS + 400 * DAY).await;
    rig.clock.advance(400 * DAY - 1);
    assert_eq!(arrived(&rig).await, [""; 0]);
    rig.clock.advance(1);
    assert_eq!(arrived(&rig).await, ["next year"]);
}

#[tokio::test]
async fn never_early_and_at_the_step_after_which_is_half_the_precision_away_at_most() {
    let rig = rig_with(1, 1_000).await;
    send_at(&rig, "early", START_MS + 1_001).await;
    send_at(&rig, "late", START_MS + 1_999).await;
    rig.clock.set(START_MS + 1_499);
    assert_eq!(arrived(&rig).await, [""; 0]);
    rig.clock.set(START_MS + 1_500);
    assert_eq!(arrived(&rig).await, ["early"]);
    rig.clock.set(START_MS + 1_999);
    assert_eq!(arrived(&rig).await, [""; 0]);
    rig.clock.set(START_MS + 2_000);
    assert_eq!(arrived(&rig).await, ["late"]);
    let rig = rig_with(1, 10).await;
    send_at(&rig, "fine", START_MS + 1_001).await;
    rig.clock.set(START_MS + 1_004);
    assert_eq!(arrived(&rig).await, [""; 0]);
    rig.clock.set(START_MS + 1_005);
    assert_eq!(arrived(&rig).await, ["fine"]);
}

#[tokio::test]
async fn c21_what_fell_due_while_the_broker_was_down_comes_in_order() {
    let mut rig = rig_with(1, 10).await;
    let count = 3_000_i64;
    // Not in the order of their time.
    for n in 0..count {
        let n = n * 7 % count;
        send_at(&rig, &format!("m{n:05}"), START_MS + SECOND + n * 10).await;
    }
    let mut seen = Vec::new();
    rig.clock.set(START_MS + SECOND + 499 * 10);
    seen.extend(arrived(&rig).await);
    assert_eq!(seen.len(), 500);
    rig = rig.reopen();
    assert_eq!(delayed(&rig), 2_500);
    // One batch, and the broker stops.
    rig.clock.set(START_MS + DAY);
    assert_eq!(rig.broker.core().deliver_due().await.unwrap(), waybill_broker::core::Step::Moved(1_024));
    rig = rig.reopen();
    rig.broker.deliver_due().await.unwrap();
    seen.extend(rig.drain_in_order("g", "t").await);
    let expected: Vec<String> = (0..count).map(|n| format!("m{n:05}")).collect();
    assert_eq!(seen, expected);
    rig = rig.reopen();
    assert_eq!(arrived(&rig).await, [""; 0]);
    assert_eq!(delayed(&rig), 0);
}

/// C21: a day's delayed messages fell due while the broker was down. What is sent and what falls due now does not wait until all of them
/// are in their queues, and they come in the order of their time all the same.
#[tokio::test]
async fn what_fell_due_while_the_broker_was_down_does_not_hold_up_new_traffic() {
    let mut rig = rig_with(1, 10).await;
    let count = 6_000_i64;
    for n in 0..count {
        let n = n * 7 % count;
        send_at(&rig, &format!("old-{n:05}"), START_MS + SECOND + n * 10).await;
    }
    rig.clock.set(START_MS + DAY);
    rig = rig.reopen();
    rig.topic("new", 1).await;
    let mut send_new = Rig::send_command("new", "due", None, "due");
    let mut header = SendMessageRequestHeader::decode_v2(&send_new.ext).unwrap();
    properties::set(header.properties.as_mut().unwrap(), properties::TIMER_DELAY_MS, "10");
    send_new = Command::request(request::SEND_MESSAGE_V2).with_header(&header).with_body(send_new.body);
    let (mut seen, mut steps) = (Vec::new(), 0);
    while seen.len() < count as usize {
        // Between two batches of them, what is sent is there at once, and what fell due meanwhile with the next batch.
        rig.ok(Rig::send_command("new", &format!("now-{steps}"), None, "now")).await;
        rig.ok(send_new.clone()).await;
        rig.clock.advance(10);
        let step = rig.broker.core().deliver_due().await.unwrap();
        assert!(matches!(step, waybill_broker::core::Step::Moved(_)), "after {} nothing more is due", seen.len());
        assert_eq!(rig.drain_ids("g", "new").await, ["due".to_owned(), format!("now-{steps}")], "in step {steps}");
        seen.extend(rig.drain_in_order("g", "t").await);
        steps += 1;
    }
    assert!(steps > 3, "it was done in {steps} steps");
    let expected: Vec<String> = (0..count).map(|n| format!("old-{n:05}")).collect();
    assert_eq!(seen, expected);
    assert_eq!(delayed(&rig), 0);
}

#[tokio::test]
async fn a_waiting_poll_is_woken() {
    let rig = rig().await;
    send_at(&rig, "m", START_MS + SECOND).await;
    let (answer, ()) = tokio::join!(rig.poll("g", "t", 1), async {
        rig.until_waiting("g", "t", 1).await;
        rig.clock.advance(SECOND);
        rig.broker.deliver_due().await.unwrap();
    });
    assert_eq!(rig.got(&answer)[0].id(), "m");
}

#[tokio::test]
async fn the_broker_does_it_by_itself() {
    let rig = rig_with(1, 10).await;
    let house = tokio::spawn(std::sync::Arc::clone(&rig.broker).keep_house());
    send_at(&rig, "m", START_MS + SECOND).await;
    rig.clock.advance(SECOND);
    // What is due sooner than what the broker waits for wakes it.
    send_at(&rig, "n", START_MS + SECOND + 10).await;
    rig.clock.advance(10);
    let mut got = Vec::new();
    while got.len() < 2 {
        let header = PopMessageRequestHeader { poll_time: support::POLL_MS, ..rig.pop_command("g", "t", 1, 60_000) };
        let answer = rig.woken(Command::request(request::POP_MESSAGE).with_header(&header)).await;
        got.extend(rig.got(&answer).iter().map(Got::id));
    }
    assert_eq!(got, ["m", "n"]);
    rig.broker.close();
    house.await.unwrap();
}

#[tokio::test]
async fn a_topic_that_was_deleted_gets_nothing_nor_does_its_namesake() {
    let rig = rig().await;
    let sent = send_at(&rig, "old", START_MS + SECOND).await;
    rig.ok(Command::request(request::DELETE_TOPIC_IN_BROKER)
        .with_header(&DeleteTopicRequestHeader { topic: "t".into(), only_if_empty: None }))
        .await;
    assert_eq!(recall(&rig, sent.recall_handle.as_deref().unwrap()).await, response::TOPIC_NOT_EXIST);
    rig.topic("t", 1).await;
    assert_eq!(delayed(&rig), 0, "the new topic has none");
    assert_eq!(recall(&rig, sent.recall_handle.as_deref().unwrap()).await, response::QUERY_NOT_FOUND);
    send_at(&rig, "new", START_MS + SECOND).await;
    rig.clock.advance(SECOND);
    assert_eq!(arrived(&rig).await, ["new"]);
    assert_eq!(rig.reopen().broker.deliver_due().await.unwrap(), 0, "nothing is left");
}

#[tokio::test]
async fn a_topic_with_fewer_queues() {
    let rig = rig_with(4, 1_000).await;
    for queue in 0..4 {
        let command = send_with(&format!("q{queue}"), &[(properties::TIMER_DELAY_SEC, "10")]);
        let mut header = SendMessageRequestHeader::decode_v2(&command.ext).unwrap();
        header.queue_id = queue;
        rig.ok(Command::request(request::SEND_MESSAGE_V2).with_header(&header).with_body(command.body)).await;
    }
    for (read, write) in [(4, 1), (1, 1)] {
        rig.ok(Command::request(request::UPDATE_AND_CREATE_TOPIC).with_header(&CreateTopicRequestHeader {
            write_queue_nums: write,
            ..CreateTopicRequestHeader::new("t", read)
        }))
        .await;
    }
    rig.clock.advance(10 * SECOND);
    rig.broker.deliver_due().await.unwrap();
    let got = rig.pop("g", "t", 32, 60_000).await;
    assert_eq!(got.iter().map(Got::id).collect::<Vec<_>>(), ["q0", "q1", "q2", "q3"]);
    for got in got {
        assert_eq!((got.handle.queue_id, got.message.queue_id), (0, 0), "it says where it is, not where it was to go");
        assert_eq!(rig.ack("g", "t", &got.handle).await, response::SUCCESS);
    }
}

#[tokio::test]
async fn what_was_recalled_never_arrives() {
    let rig = rig().await;
    let at = START_MS + 10 * SECOND;
    let sent = send_at(&rig, "gone", at).await;
    send_at(&rig, "stays", at).await;
    let handle = sent.recall_handle.unwrap();
    let answer = rig.ok(recall_command("t", &handle)).await;
    assert_eq!(answer.header::<RecallMessageResponseHeader>().unwrap().msg_id, "gone");
    assert_eq!(delayed(&rig), 1);
    assert_eq!(recall(&rig, &handle).await, response::QUERY_NOT_FOUND, "not twice");
    let rig = rig.reopen();
    assert_eq!(recall(&rig, &handle).await, response::QUERY_NOT_FOUND);
    rig.clock.advance(10 * SECOND);
    assert_eq!(arrived(&rig).await, ["stays"]);
    assert_eq!(recall(&rig, &handle).await, response::ILLEGAL_OPERATION, "too late");
}

#[tokio::test]
async fn a_copy_of_a_send_that_was_repeated_is_recalled_with_it() {
    let rig = rig().await;
    let at = START_MS + 10 * SECOND;
    send_at(&rig, "m", at).await;
    let second = send_at(&rig, "m", at).await;
    send_at(&rig, "n", at).await;
    assert_eq!(recall(&rig, &second.recall_handle.unwrap()).await, response::SUCCESS);
    rig.clock.advance(10 * SECOND);
    assert_eq!(arrived(&rig).await, ["n"]);
}

#[tokio::test]
async fn recalls_without_effect_are_refused() {
    let rig = rig().await;
    let at = START_MS + 10 * SECOND;
    let sent = send_at(&rig, "m", at).await;
    let real: RecallHandle = sent.recall_handle.as_deref().unwrap().parse().unwrap();
    rig.topic("other", 1).await;
    let forged = |change: &dyn Fn(&mut RecallHandle)| {
        let mut handle = real.clone();
        change(&mut handle);
        handle.to_string()
    };
    for (what, handle, code) in [
        ("no handle", "nonsense".to_owned(), response::ILLEGAL_OPERATION),
        ("another topic", forged(&|handle| handle.topic = "other".into()), response::ILLEGAL_OPERATION),
        ("another broker", forged(&|handle| handle.broker_name = "b".into()), response::ILLEGAL_OPERATION),
        ("past", forged(&|handle| handle.time_ms = START_MS), response::ILLEGAL_OPERATION),
        ("negative", forged(&|handle| handle.time_ms = -1), response::ILLEGAL_OPERATION),
        ("another id", forged(&|handle| handle.message_id = "x".into()), response::QUERY_NOT_FOUND),
        ("another time", forged(&|handle| handle.time_ms += 1), response::QUERY_NOT_FOUND),
        ("the end of time", forged(&|handle| handle.time_ms = i64::MAX), response::QUERY_NOT_FOUND),
    ] {
        let answer = rig.call(recall_command("t", &handle)).await;
        assert_eq!(answer.code, code, "{what}: {:?}", answer.remark);
    }
    let elsewhere = forged(&|handle| handle.topic = "other".into());
    assert_eq!(rig.call(recall_command("other", &elsewhere)).await.code, response::QUERY_NOT_FOUND);
    let missing = forged(&|handle| handle.topic = "missing".into());
    assert_eq!(rig.call(recall_command("missing", &missing)).await.code, response::TOPIC_NOT_EXIST);
    // The handle of another broker's making, with five words, and one whose position is not right: the id and the time are.
    let five = forged(&|handle| handle.position = None);
    assert_eq!(recall(&rig, &five).await, response::SUCCESS);
    rig.clock.advance(20 * SECOND);
    assert_eq!(arrived(&rig).await, [""; 0]);
}

/// However many are due at the same time, the one that is recalled is found, and nobody else goes with it.
#[tokio::test]
async fn one_of_many_of_the_same_time() {
    let rig = rig().await;
    let at = START_MS + 10 * SECOND;
    let mut handles = Vec::new();
    for n in 0..3_000 {
        handles.push(send_at(&rig, &format!("m{n:04}"), at).await.recall_handle.unwrap());
    }
    for n in [0, 1_500, 2_999] {
        assert_eq!(recall(&rig, &handles[n]).await, response::SUCCESS);
    }
    rig.clock.advance(10 * SECOND);
    assert_eq!(rig.broker.deliver_due().await.unwrap(), 2_997);
    let seen = rig.drain_in_order("g", "t").await;
    assert_eq!(seen.len(), 2_997);
    assert!(!seen.iter().any(|id| ["m0000", "m1500", "m2999"].contains(&id.as_str())));
}

#[tokio::test]
async fn recalls_and_deliveries_at_the_same_time_agree() {
    for round in 0..50 {
        let rig = rig_with(1, 1).await;
        let at = START_MS + 10;
        let mut handles = Vec::new();
        for n in 0..20 {
            handles.push((format!("m{n}"), send_at(&rig, &format!("m{n}"), at + n % 3).await.recall_handle.unwrap()));
        }
        rig.clock.set(at - 1 + round % 4);
        let recalls = futures::future::join_all(handles.iter().map(|(id, handle)| async {
            let code = rig.call(recall_command("t", handle)).await.code;
            (id.clone(), code)
        }));
        let clock = async {
            tokio::task::yield_now().await;
            rig.clock.set(at + 3);
            rig.broker.deliver_due().await.unwrap();
        };
        let (codes, ()) = tokio::join!(recalls, clock);
        rig.broker.deliver_due().await.unwrap();
        let seen = rig.drain_ids("g", "t").await;
        let mut told: Vec<String> =
            codes.into_iter().filter(|(_, code)| *code != response::SUCCESS).map(|(id, _)| id).collect();
        told.sort();
        assert_eq!(seen, told, "who was told that it is gone does not get it, and who was not does");
    }
}

#[tokio::test]
async fn a_batch_may_hold_delayed_messages() {
    use waybill_protocol::message::{BatchItem, encode_batch};
    let rig = rig().await;
    let items: Vec<BatchItem> = [("now", 0), ("later", 5), ("now too", 0)]
        .into_iter()
        .map(|(id, seconds)| {
            let pairs = [(properties::UNIQ_KEY, id.to_owned()), (properties::TIMER_DELAY_SEC, seconds.to_string())];
            BatchItem { flag: 0, body: id.into(), properties: properties::encode(pairs).unwrap() }
        })
        .collect();
    let mut header = SendMessageRequestHeader::decode_v2(&Rig::send_command("t", "", None, "x").ext).unwrap();
    header.batch = Some(true);
    let command =
        Command::request(request::SEND_BATCH_MESSAGE).with_header(&header).with_body(encode_batch(&items).unwrap());
    let sent: SendMessageResponseHeader = rig.ok(command).await.header().unwrap();
    assert_eq!(sent.msg_id.split(',').count(), 3);
    assert_eq!(rig.drain_in_order("g", "t").await, ["now", "now too"]);
    rig.clock.advance(5 * SECOND);
    assert_eq!(arrived(&rig).await, ["later"]);
}
