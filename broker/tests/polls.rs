//! Long polls that nobody wakes but the end of a lease, or a change of one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::time::Duration;

use support::Rig;
use waybill_protocol::remoting::codes::{request, response};
use waybill_protocol::remoting::{Command, PopMessageRequestHeader, SendMessageRequestHeader};

/// How long a poll may wait; if nothing wakes it, it looks again only at its end.
const POLL_MS: i64 = 60_000;
/// Far more than a poll that is woken needs, and less than it may wait.
const LIMIT: Duration = Duration::from_secs(20);
/// Until the poll certainly waits. If it does not yet, it finds the message at its first look, and the test says less.
const UNTIL_IT_WAITS: Duration = Duration::from_millis(50);

async fn one_message(rig: &Rig) {
    rig.topic("t", 2).await;
    rig.group("g").await;
    rig.send("t", "m").await;
}

async fn poll(rig: &Rig) -> Command {
    let header = PopMessageRequestHeader { poll_time: POLL_MS, ..rig.pop_command("g", "t", 1, 10_000) };
    tokio::time::timeout(LIMIT, rig.pop_raw(header)).await.expect("the poll was not woken")
}

fn assert_second_attempt(rig: &Rig, answer: &Command) {
    let got = rig.got(answer);
    assert_eq!((got[0].id(), got[0].attempt()), ("m".to_owned(), 2));
}

#[tokio::test]
async fn a_long_poll_is_answered_when_a_lease_ends_by_itself() {
    let rig = Rig::new();
    one_message(&rig).await;
    assert_eq!(rig.pop("g", "t", 1, 300).await.len(), 1);
    let (answer, ()) = tokio::join!(poll(&rig), async {
        tokio::time::sleep(UNTIL_IT_WAITS).await;
        // Only the clock moves: no request comes.
        rig.clock.advance(300);
    });
    assert_second_attempt(&rig, &answer);
}

#[tokio::test]
async fn a_long_poll_is_answered_when_a_lease_that_was_shortened_ends() {
    let rig = Rig::new();
    one_message(&rig).await;
    let held = rig.pop("g", "t", 1, 3_600_000).await.remove(0);
    let (answer, ()) = tokio::join!(poll(&rig), async {
        tokio::time::sleep(UNTIL_IT_WAITS).await;
        rig.change("g", "t", &held.handle, 300).await.unwrap();
        tokio::time::sleep(UNTIL_IT_WAITS).await;
        rig.clock.advance(300);
    });
    assert_second_attempt(&rig, &answer);
    assert_eq!(rig.ack("g", "t", &held.handle).await, response::NO_MESSAGE);
}

/// The poll began when the topic had one queue.
#[tokio::test]
async fn a_poll_that_waits_gets_a_message_of_a_queue_that_was_added_meanwhile() {
    let rig = Rig::new();
    rig.topic("t", 1).await;
    rig.group("g").await;
    let header = PopMessageRequestHeader { poll_time: 20_000, ..rig.pop_command("g", "t", 1, 10_000) };
    let (answer, ()) = tokio::join!(rig.pop_raw(header), async {
        while rig.broker.core().polling("g", "t").unwrap() == 0 {
            tokio::task::yield_now().await;
        }
        rig.topic("t", 2).await;
        let command = Rig::send_command("t", "late", None, "late");
        let mut header = SendMessageRequestHeader::decode_v2(&command.ext).unwrap();
        header.queue_id = 1;
        rig.ok(Command::request(request::SEND_MESSAGE_V2).with_header(&header).with_body(command.body)).await;
    });
    assert_eq!(rig.got(&answer)[0].id(), "late");
}
