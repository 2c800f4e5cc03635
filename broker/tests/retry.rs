//! Consumption retry through the requests of a real broker on a real store, with a clock that is moved: when a message comes back,
//! what decides it, how its attempts are counted, and where it ends. Cases C18 and C19.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use support::{Got, Rig};
use waybill_protocol::message::{offset_of_msg_id, properties, sys_flag};
use waybill_protocol::remoting::codes::{own, request, response};
use waybill_protocol::remoting::{
    Command, ConsumerSendMsgBackRequestHeader, EndTransactionRequestHeader, RetrySchedule, SendMessageRequestHeader,
    SendMessageResponseHeader, SubscriptionGroupConfig, VouchBody,
};

const LEASE_MS: i64 = 30_000;

fn group(retry_max_times: i32) -> SubscriptionGroupConfig {
    SubscriptionGroupConfig { group_name: "g".into(), retry_max_times, ..Default::default() }
}

/// A topic "t" with one queue, a group "g" and one that looks at its dead letters.
async fn rig(config: SubscriptionGroupConfig) -> Rig {
    let rig = Rig::with(|config| config.client_gone_after = 30_000);
    rig.topic("t", 1).await;
    rig.group_with(config).await;
    rig.group("undertaker").await;
    rig
}

async fn one(rig: &Rig) -> Option<Got> {
    let mut got = rig.pop("g", "t", 32, LEASE_MS).await;
    assert!(got.len() <= 1, "{got:?}");
    got.pop()
}

/// What must be the same in each delivery.
fn identity(got: &Got) -> (String, String, String, i64, i64, i32, i64) {
    let message = &got.message;
    (
        message.topic.clone(),
        message.properties.clone(),
        String::from_utf8(message.body.to_vec()).unwrap(),
        message.born_timestamp,
        message.store_timestamp,
        message.queue_id,
        message.queue_offset,
    )
}

async fn the_only_dead_letter(rig: &Rig) -> Got {
    let mut dead = rig.pop("undertaker", "%DLQ%g", 32, LEASE_MS).await;
    assert_eq!(dead.len(), 1, "{dead:?}");
    dead.remove(0)
}

/// The documented ladder of an unordered group, step by step: 16 retries after 10 s, 30 s, 1 min … 2 h, never a millisecond early, and
/// after the seventeenth delivery the dead-letter topic. The broker starts anew in every wait.
#[tokio::test]
async fn the_ladder_of_sixteen_steps() {
    let config = group(16);
    let schedule = RetrySchedule::of(&config);
    let mut rig = rig(config).await;
    rig.send_tagged("t", "m", "tag").await;
    let first = one(&rig).await.expect("a message");
    let mut now = first.clone();
    let mut waited_s = Vec::new();
    for failures in 1..=16 {
        let delay = schedule.delay_ms(failures);
        waited_s.push(delay / 1_000);
        rig.change("g", "t", &now.handle, delay).await.expect("it is held");
        rig = rig.reopen();
        rig.clock.advance(delay - 1);
        assert!(one(&rig).await.is_none(), "early after failure {failures}");
        rig.clock.advance(1);
        now = one(&rig).await.expect("it is back");
        assert_eq!((identity(&now), now.attempt()), (identity(&first), i32::try_from(failures).unwrap() + 1));
    }
    assert_eq!(waited_s, [10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200, 1_800, 3_600, 7_200]);
    rig.change("g", "t", &now.handle, schedule.delay_ms(17)).await.expect("it is held");
    rig.clock.advance(schedule.delay_ms(17));
    assert!(one(&rig).await.is_none());
    assert_eq!(the_only_dead_letter(&rig).await.id(), "m");
}

/// A way in which a delivery fails.
#[derive(Debug, Clone, Copy)]
enum Failure {
    /// The client says so, and when it wants the message again.
    Answer,
    /// Nobody says anything.
    TimeOut,
    /// The client dies; its sidecar tells the broker that it is gone.
    DeadClient,
    /// The client dies together with its sidecar, so that nobody vouches for it any more.
    DeadSidecar,
}

async fn vouch(rig: &Rig, alive: &[&str], gone: &[&str]) {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let body = VouchBody { sidecar_id: "s".into(), alive: owned(alive), gone: owned(gone), left: Vec::new() };
    rig.ok(Command::request(own::VOUCH_FOR_CLIENTS).with_json(&body)).await;
}

async fn pass(rig: &Rig, seconds: i64) {
    for _ in 0..seconds {
        rig.clock.advance(1_000);
        rig.broker.release_gone_clients().await.unwrap();
    }
}

/// Lets a delivery fail; afterwards the message can be taken again, or is dead.
async fn fail(rig: &Rig, got: &Got, how: Failure) {
    match how {
        Failure::Answer => {
            rig.change("g", "t", &got.handle, 10_000).await.expect("it is held");
            rig.clock.advance(10_000);
        }
        Failure::TimeOut => {
            rig.clock.advance(LEASE_MS);
        }
        Failure::DeadClient => {
            vouch(rig, &["client-1"], &[]).await;
            // The sidecar extends what its client holds, so that the end of the lease decides nothing here.
            rig.change("g", "t", &got.handle, 3_600_000).await.expect("it is held");
            vouch(rig, &[], &["client-1"]).await;
            rig.change("g", "t", &got.handle, 0).await.expect("the sidecar gives it back");
        }
        Failure::DeadSidecar => {
            vouch(rig, &["client-1"], &[]).await;
            rig.change("g", "t", &got.handle, 3_600_000).await.expect("it is held");
            pass(rig, 31).await;
        }
    }
}

/// Three retries are four deliveries, however they fail, in every mixture of ways; then one copy is in the dead-letter topic and says
/// where it comes from.
#[tokio::test]
async fn attempts_are_counted_the_same_however_they_fail() {
    use Failure::{Answer, DeadClient, DeadSidecar, TimeOut};
    let ways = [Answer, TimeOut, DeadClient, DeadSidecar];
    let mixed = [[TimeOut, DeadSidecar, Answer, DeadClient], [DeadClient, Answer, DeadSidecar, TimeOut]];
    for failures in ways.map(|way| [way; 4]).into_iter().chain(mixed) {
        let mut rig = rig(group(3)).await;
        rig.send_tagged("t", "m", "tag").await;
        for (failure, attempt) in failures.into_iter().zip(1..) {
            let got = one(&rig).await.unwrap_or_else(|| panic!("delivery {attempt} of {failures:?}"));
            assert_eq!(got.attempt(), attempt, "{failures:?}");
            fail(&rig, &got, failure).await;
            rig = rig.reopen();
        }
        assert!(one(&rig).await.is_none(), "{failures:?}");
        rig.clock.advance(86_400_000);
        assert!(one(&rig).await.is_none(), "{failures:?}");
        let dead = the_only_dead_letter(&rig).await;
        let property = |name: &str| properties::get(&dead.message.properties, name).map(str::to_owned);
        assert_eq!(property(properties::DLQ_ORIGIN_TOPIC).as_deref(), Some("t"));
        assert_eq!(property(properties::DLQ_ORIGIN_MESSAGE_ID).as_deref(), Some("m"));
        assert_eq!((dead.id(), property(properties::TAGS).as_deref()), ("m".to_owned(), Some("tag")));
        assert_eq!(dead.message.body, "m");
    }
}

/// C18: limits of one and three attempts with clients that do nothing, for three minutes.
#[tokio::test]
async fn c18_the_limit_is_kept_when_messages_run_out_of_time() {
    for limit in [1, 3] {
        let rig = rig(group(limit - 1)).await;
        rig.send_tagged("t", "m", "tag").await;
        let mut deliveries = 0;
        for _ in 0..180 {
            deliveries += rig.pop("g", "t", 32, 10_000).await.len();
            rig.clock.advance(1_000);
        }
        assert_eq!(deliveries, usize::try_from(limit).unwrap());
        let dead = the_only_dead_letter(&rig).await;
        assert_eq!((dead.id().as_str(), &dead.message.body[..]), ("m", &b"m"[..]));
        assert_eq!(properties::get(&dead.message.properties, properties::TAGS), Some("tag"));
    }
}

/// C18: a client gives a message up twice, and once more after a restart.
#[tokio::test]
async fn c18_a_second_forward_adds_no_copy() {
    let mut rig = rig(group(16)).await;
    rig.send_tagged("t", "m", "tag").await;
    let got = one(&rig).await.expect("a message");
    let header = ConsumerSendMsgBackRequestHeader {
        offset: got.message.physical_offset,
        group: "g".into(),
        delay_level: -1,
        origin_msg_id: Some("m".into()),
        origin_topic: Some("t".into()),
        max_reconsume_times: Some(0),
        extra_info: Some(got.handle.to_string()),
        ..Default::default()
    };
    for _ in 0..2 {
        for _ in 0..2 {
            rig.ok(Command::request(request::CONSUMER_SEND_MSG_BACK).with_header(&header)).await;
        }
        rig = rig.reopen();
    }
    rig.clock.advance(86_400_000);
    assert!(one(&rig).await.is_none());
    assert_eq!(the_only_dead_letter(&rig).await.id(), "m");
}

fn send_back(got: &Got, delay_level: i32, handle: bool) -> Command {
    let header = ConsumerSendMsgBackRequestHeader {
        offset: got.message.physical_offset,
        group: "g".into(),
        delay_level,
        origin_msg_id: Some(got.id()),
        origin_topic: Some("t".into()),
        max_reconsume_times: Some(3),
        extra_info: handle.then(|| got.handle.to_string()),
        ..Default::default()
    };
    Command::request(request::CONSUMER_SEND_MSG_BACK).with_header(&header)
}

/// With the handle of the delivery the message itself comes again: level 0 when the group's policy says, another when the level says;
/// after so many retries as the consumer allows it is dead at once.
#[tokio::test]
async fn what_is_sent_back_with_its_handle_comes_again_after_its_level() {
    let rig = rig(group(16)).await;
    rig.send("t", "m").await;
    for (attempt, level, seconds) in [(1, 0, 10), (2, 5, 60), (3, 99, 7_200)] {
        let got = one(&rig).await.expect("a message");
        assert_eq!((got.id().as_str(), got.attempt()), ("m", attempt));
        rig.ok(send_back(&got, level, true)).await;
        rig.clock.advance(seconds * 1_000 - 1);
        assert!(one(&rig).await.is_none(), "level {level}: early");
        rig.clock.advance(1);
    }
    let got = one(&rig).await.expect("a message");
    assert_eq!(got.attempt(), 4);
    rig.ok(send_back(&got, 1, true)).await;
    assert_eq!(the_only_dead_letter(&rig).await.id(), "m");
    rig.ok(send_back(&got, 1, true)).await;
    assert!(rig.pop("undertaker", "%DLQ%g", 32, LEASE_MS).await.is_empty(), "what is done already is not done again");
}

/// Consumers of 4.x have no handles. A copy comes into the retry topic of their group, and knows how often it was tried.
#[tokio::test]
async fn what_is_sent_back_without_a_handle_comes_again_in_the_retry_topic() {
    let rig = rig(group(16)).await;
    rig.send_tagged("t", "m", "tag").await;
    let first = one(&rig).await.expect("a message");
    assert_eq!(rig.ack("g", "t", &first.handle).await, response::SUCCESS);
    let mut got = first.clone();
    for (earlier, level, seconds) in [(1, 0, 10), (2, 0, 30), (3, 3, 10)] {
        rig.ok(send_back(&got, level, false)).await;
        rig.clock.advance(seconds * 1_000 - 1);
        rig.broker.deliver_due().await.unwrap();
        assert!(rig.pop("g", "%RETRY%g", 32, LEASE_MS).await.is_empty(), "level {level}: early");
        rig.clock.advance(1);
        rig.broker.deliver_due().await.unwrap();
        got = rig.pop("g", "%RETRY%g", 32, LEASE_MS).await.remove(0);
        assert_eq!(rig.ack("g", "%RETRY%g", &got.handle).await, response::SUCCESS);
        assert_eq!(got.message.reconsume_times, earlier);
        let property = |name| properties::get(&got.message.properties, name);
        assert_eq!(property(properties::RETRY_TOPIC), Some("t"));
        assert_eq!(property(properties::UNIQ_KEY), Some("m"));
        assert_eq!(property(properties::TAGS), Some("tag"));
        assert_eq!(
            (&got.message.body, got.message.born_timestamp),
            (&first.message.body, first.message.born_timestamp)
        );
    }
    rig.ok(send_back(&got, 0, false)).await;
    assert_eq!(the_only_dead_letter(&rig).await.id(), "m");
    assert!(rig.broker.core().delayed(&rig.broker.core().catalog().topic("%RETRY%g").unwrap()) == 0);
}

/// Nobody has it yet, whatever position a client names.
#[tokio::test]
async fn what_was_not_delivered_cannot_be_sent_back() {
    let rig = rig(group(16)).await;
    let mut later = SendMessageRequestHeader::decode_v2(&Rig::send_command("t", "m", None, "m").ext).unwrap();
    properties::set(later.properties.as_mut().unwrap(), properties::TIMER_DELAY_SEC, "60");
    let mut half = SendMessageRequestHeader::decode_v2(&Rig::send_command("t", "m", None, "m").ext).unwrap();
    half.sys_flag = sys_flag::TRANSACTION_PREPARED;
    for header in [later, half] {
        let send = Command::request(request::SEND_MESSAGE_V2).with_header(&header).with_body(&b"m"[..]);
        let sent: SendMessageResponseHeader = rig.ok(send).await.header().unwrap();
        for delay_level in [-1, 3] {
            let back = ConsumerSendMsgBackRequestHeader {
                offset: sent.queue_offset,
                group: "g".into(),
                delay_level,
                origin_topic: Some("t".into()),
                ..Default::default()
            };
            let answer = rig.call(Command::request(request::CONSUMER_SEND_MSG_BACK).with_header(&back)).await;
            assert_eq!(answer.code, response::QUERY_NOT_FOUND, "{:?}", answer.remark);
        }
    }
}

/// A place in the log says nothing of who may have what lies there: another topic's messages, those that the group has not come to, and
/// what never came into a queue are not copied for it.
#[tokio::test]
async fn what_the_group_cannot_have_received_cannot_be_sent_back() {
    let rig = rig(group(16)).await;
    rig.topic("secret", 1).await;
    rig.group("h").await;
    let place = |sent: &SendMessageResponseHeader| offset_of_msg_id(&sent.msg_id).expect("a place");
    let refused = async |position: i64, why: &str| {
        for delay_level in [-1, 3] {
            let back = ConsumerSendMsgBackRequestHeader {
                offset: position,
                group: "g".into(),
                delay_level,
                origin_topic: Some("t".into()),
                ..Default::default()
            };
            let answer = rig.call(Command::request(request::CONSUMER_SEND_MSG_BACK).with_header(&back)).await;
            assert_eq!(answer.code, response::QUERY_NOT_FOUND, "{why}: {:?}", answer.remark);
        }
    };
    let secret = rig.send("secret", "secret").await;
    let unread = rig.send("t", "unread").await;
    assert_eq!(rig.drain_ids("h", "secret").await, ["secret"]);
    refused(place(&secret), "of a topic that another group reads").await;
    refused(place(&unread), "not read yet").await;
    refused(place(&unread) + 1, "no message").await;

    let mut half = SendMessageRequestHeader::decode_v2(&Rig::send_command("t", "half", None, "half").ext).unwrap();
    half.sys_flag = sys_flag::TRANSACTION_PREPARED;
    let half_sent: SendMessageResponseHeader = rig
        .ok(Command::request(request::SEND_MESSAGE_V2).with_header(&half).with_body(&b"half"[..]))
        .await
        .header()
        .unwrap();
    let end = EndTransactionRequestHeader {
        producer_group: "p".into(),
        tran_state_table_offset: half_sent.queue_offset,
        commit_log_offset: half_sent.queue_offset,
        commit_or_rollback: sys_flag::TRANSACTION_ROLLBACK,
        msg_id: "half".into(),
        ..Default::default()
    };
    rig.ok(Command::request(request::END_TRANSACTION).with_header(&end)).await;
    assert_eq!(rig.drain_ids("g", "t").await, ["unread"]);
    refused(half_sent.queue_offset, "rolled back").await;
    // What it has received it may send back, whoever holds it now.
    let back = ConsumerSendMsgBackRequestHeader {
        offset: place(&unread),
        group: "g".into(),
        delay_level: -1,
        origin_topic: Some("t".into()),
        ..Default::default()
    };
    rig.ok(Command::request(request::CONSUMER_SEND_MSG_BACK).with_header(&back)).await;
    assert_eq!(the_only_dead_letter(&rig).await.id(), "unread");
}

/// C19: a hundred messages are put back for 3 s; then three rounds of a back-off of 1 s, 5 s and 10 s.
#[tokio::test]
async fn c19_what_is_put_back_comes_when_it_was_asked_for_and_as_it_was() {
    let rig = rig(group(16)).await;
    for n in 0..100 {
        rig.send_tagged("t", &format!("m{n:03}"), "tag").await;
    }
    let all = async |expected: i32| {
        let mut got = Vec::new();
        loop {
            let some = rig.pop("g", "t", 32, LEASE_MS).await;
            if some.is_empty() {
                got.sort_by_key(Got::id);
                assert!(got.iter().all(|got| got.attempt() == expected), "attempt {expected}");
                return got;
            }
            got.extend(some);
        }
    };
    let first = all(1).await;
    assert_eq!(first.len(), 100);
    let mut held = first.clone();
    for (delay, attempt) in [(3_000, 2), (1_000, 3), (5_000, 4), (10_000, 5)] {
        for got in &held {
            rig.change("g", "t", &got.handle, delay).await.expect("it is held");
        }
        rig.clock.advance(delay - 1);
        assert!(all(attempt).await.is_empty(), "early");
        rig.clock.advance(1);
        held = all(attempt).await;
        let identities = |got: &[Got]| got.iter().map(identity).collect::<Vec<_>>();
        assert_eq!(identities(&held), identities(&first), "attempt {attempt}");
    }
}

/// The interval of a SimpleConsumer is what is left of the invisible duration; a change counts from its call, at once, in either
/// direction; and it is refused once the time is over or a result is there.
#[tokio::test]
async fn a_change_counts_from_the_call_and_ends_with_the_delivery() {
    let rig = rig(group(16)).await;
    rig.send("t", "m").await;
    let got = one(&rig).await.expect("a message");
    rig.clock.advance(20_000);
    let got = rig.change("g", "t", &got.handle, 15_000).await.expect("it is held");
    rig.clock.advance(14_999);
    assert!(one(&rig).await.is_none(), "later than the first end");
    let got = rig.change("g", "t", &got, 60_000).await.expect("it is held");
    rig.change("g", "t", &got, 1).await.expect("it is held");
    rig.clock.advance(1);
    assert_eq!(rig.change("g", "t", &got, 60_000).await, Err(response::NO_MESSAGE), "its time is over");
    let again = one(&rig).await.expect("at once");
    assert_eq!(rig.ack("g", "t", &again.handle).await, response::SUCCESS);
    assert_eq!(rig.change("g", "t", &again.handle, 60_000).await, Err(response::NO_MESSAGE), "it is done");
}

/// A message comes back when its own time is over, whatever the others of its queue do.
#[tokio::test]
async fn redelivery_waits_for_no_other_message() {
    let rig = rig(group(16)).await;
    for n in 0..5 {
        rig.send("t", &format!("m{n}")).await;
    }
    let got = rig.pop("g", "t", 5, 3_600_000).await;
    for (at, seconds) in [(2, 20), (4, 10), (3, 40)] {
        rig.change("g", "t", &got[at].handle, seconds * 1_000).await.expect("it is held");
    }
    rig.ack("g", "t", &got[1].handle).await;
    for (seconds, id) in [(10, "m4"), (10, "m2"), (20, "m3")] {
        rig.clock.advance(seconds * 1_000 - 1);
        assert!(rig.pop("g", "t", 32, 3_600_000).await.is_empty());
        rig.clock.advance(1);
        let ids: Vec<String> = rig.pop("g", "t", 32, 3_600_000).await.iter().map(Got::id).collect();
        assert_eq!(ids, [id]);
    }
}

/// A message whose producer gave it no id (a plain remoting producer may not) is known by its place: so it is in the dead letter.
#[tokio::test]
async fn a_dead_letter_of_a_message_without_an_id_names_its_place() {
    let rig = rig(group(0)).await;
    let plain = Rig::send_command("t", "", None, "body");
    let mut header = SendMessageRequestHeader::decode_v2(&plain.ext).unwrap();
    header.properties = Some(String::new());
    let sent = Command::request(request::SEND_MESSAGE_V2).with_header(&header).with_body(plain.body);
    let sent: SendMessageResponseHeader = rig.ok(sent).await.header().unwrap();
    one(&rig).await.expect("a message");
    rig.clock.advance(LEASE_MS);
    assert!(one(&rig).await.is_none());
    let dead = the_only_dead_letter(&rig).await;
    let origin = properties::get(&dead.message.properties, properties::DLQ_ORIGIN_MESSAGE_ID);
    assert_eq!(origin, Some(sent.msg_id.as_str()));
}
