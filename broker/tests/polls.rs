//! Who waits: long polls that nobody wakes but the end of a lease or a change of one, and those who only want to be told.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use support::{POLL_MS, Rig};
use waybill_broker::limits;
use waybill_protocol::remoting::codes::{request, response};
use waybill_protocol::remoting::{
    Command, NotificationRequestHeader, NotificationResponseHeader, PopMessageRequestHeader, SendMessageRequestHeader,
};

async fn one_message(rig: &Rig) {
    rig.topic("t", 2).await;
    rig.group("g").await;
    rig.send("t", "m").await;
}

async fn send_to(rig: &Rig, id: &str, queue: i32) {
    let command = Rig::send_command("t", id, None, id);
    let mut header = SendMessageRequestHeader::decode_v2(&command.ext).unwrap();
    header.queue_id = queue;
    rig.ok(Command::request(request::SEND_MESSAGE_V2).with_header(&header).with_body(command.body)).await;
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
    let (answer, ()) = tokio::join!(rig.poll("g", "t", 1), async {
        rig.until_waiting("g", "t", 1).await;
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
    let (answer, ()) = tokio::join!(rig.poll("g", "t", 1), async {
        rig.until_waiting("g", "t", 1).await;
        rig.change("g", "t", &held.handle, 300).await.unwrap();
        // The poll, which is in the same task, has its turn: it sets its timer anew.
        tokio::task::yield_now().await;
        rig.clock.advance(300);
    });
    assert_second_attempt(&rig, &answer);
    assert_eq!(rig.ack("g", "t", &held.handle).await, response::NO_MESSAGE);
}

#[tokio::test]
async fn a_poll_of_one_queue_is_woken_although_another_queue_had_an_end_before() {
    let rig = Rig::new();
    rig.topic("t", 2).await;
    rig.group("g").await;
    let of_queue = |queue_id, poll_time, lease_ms| {
        let header = PopMessageRequestHeader { queue_id, poll_time, ..rig.pop_command("g", "t", 1, lease_ms) };
        Command::request(request::POP_MESSAGE).with_header(&header)
    };
    send_to(&rig, "other", 0).await;
    send_to(&rig, "m", 1).await;
    let other = rig.got(&rig.ok(of_queue(0, 0, 200)).await).remove(0);
    let held = rig.got(&rig.ok(of_queue(1, 0, 3_600_000)).await).remove(0);
    let stays = rig.call(of_queue(0, POLL_MS, 10_000));
    let changes = async {
        rig.until_waiting("g", "t", 2).await;
        rig.change("g", "t", &other.handle, 3_600_000).await.unwrap();
        rig.change("g", "t", &held.handle, 300).await.unwrap();
        tokio::task::yield_now().await;
        rig.clock.advance(300);
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        answer = rig.woken(of_queue(1, POLL_MS, 10_000)) => assert_second_attempt(&rig, &answer),
        _answer = stays => panic!("its message is held for an hour"),
        () = changes => {}
    }
}

/// The poll began when the topic had one queue.
#[tokio::test]
async fn a_poll_that_waits_gets_a_message_of_a_queue_that_was_added_meanwhile() {
    let rig = Rig::new();
    rig.topic("t", 1).await;
    rig.group("g").await;
    let (answer, ()) = tokio::join!(rig.poll("g", "t", 1), async {
        rig.until_waiting("g", "t", 1).await;
        rig.topic("t", 2).await;
        send_to(&rig, "late", 1).await;
    });
    assert_eq!(rig.got(&answer)[0].id(), "late");
}

fn notification(queue_id: i32, poll_time: i64) -> Command {
    let header = NotificationRequestHeader {
        consumer_group: "g".into(),
        topic: "t".into(),
        queue_id,
        poll_time,
        ..Default::default()
    };
    Command::request(request::NOTIFICATION).with_header(&header)
}

/// (hasMsg, pollingFull)
fn told(answer: &Command) -> (bool, Option<bool>) {
    assert_eq!(answer.code, response::SUCCESS, "{:?}", answer.remark);
    let header: NotificationResponseHeader = answer.header().unwrap();
    (header.has_msg, header.polling_full)
}

#[tokio::test]
async fn an_arrival_is_told_to_all_who_asked_and_its_wake_up_stays_with_the_poll() {
    let rig = Rig::new();
    rig.topic("t", 2).await;
    rig.group("g").await;
    let (one, other, answer, ()) = tokio::join!(
        rig.woken(notification(-1, POLL_MS)),
        rig.woken(notification(-1, POLL_MS)),
        rig.poll("g", "t", 1),
        async {
            rig.until_waiting("g", "t", 3).await;
            // Two messages, so that there is one to tell of even if the poll takes the other first.
            rig.send("t", "a").await;
            rig.send("t", "b").await;
        }
    );
    assert_eq!((told(&one), told(&other)), ((true, Some(false)), (true, Some(false))));
    assert_eq!(rig.got(&answer).len(), 1);
    rig.until_waiting("g", "t", 0).await;
}

#[tokio::test]
async fn what_is_given_back_and_what_runs_out_is_told() {
    for given_back in [true, false] {
        let rig = Rig::new();
        one_message(&rig).await;
        let held = rig.pop("g", "t", 1, 300).await.remove(0);
        let (answer, ()) = tokio::join!(rig.woken(notification(-1, POLL_MS)), async {
            rig.until_waiting("g", "t", 1).await;
            if given_back {
                rig.change("g", "t", &held.handle, 0).await.unwrap();
            } else {
                rig.clock.advance(300);
            }
        });
        assert_eq!(told(&answer), (true, Some(false)), "given back: {given_back}");
    }
}

/// A poll of another queue looks again before that end; who waits to be told has to look, too.
#[tokio::test]
async fn an_end_that_comes_nearer_is_told_although_another_queue_has_one_before_it() {
    let rig = Rig::new();
    rig.topic("t", 2).await;
    rig.group("g").await;
    send_to(&rig, "m", 0).await;
    let held = rig.pop("g", "t", 1, 3_600_000).await.remove(0);
    send_to(&rig, "n", 1).await;
    assert_eq!(rig.pop("g", "t", 1, 200).await.len(), 1);
    let header = PopMessageRequestHeader { queue_id: 1, poll_time: POLL_MS, ..rig.pop_command("g", "t", 1, 10_000) };
    let poll = Command::request(request::POP_MESSAGE).with_header(&header);
    let (answer, polled, ()) = tokio::join!(rig.woken(notification(0, POLL_MS)), rig.woken(poll), async {
        rig.until_waiting("g", "t", 2).await;
        rig.change("g", "t", &held.handle, 300).await.unwrap();
        tokio::task::yield_now().await;
        rig.clock.advance(300);
    });
    assert_eq!(told(&answer), (true, Some(false)));
    assert_eq!(rig.got(&polled)[0].id(), "n");
}

#[tokio::test]
async fn those_who_wait_to_be_told_count_and_too_many_are_told_so() {
    let rig = Rig::with(|config| config.pop_polling_size = 3);
    rig.topic("t", 2).await;
    rig.group("g").await;
    let info = Command::request(request::POLLING_INFO).with_header(&rig.pop_command("g", "t", 1, 10_000));
    let (answers, polled, ()) = tokio::join!(
        futures::future::join_all((0..2).map(|_| rig.woken(notification(-1, POLL_MS)))),
        rig.poll("g", "t", 1),
        async {
            rig.until_waiting("g", "t", 3).await;
            assert_eq!(rig.ok(info).await.ext.get("pollingNum"), Some("3"));
            assert_eq!(told(&rig.woken(notification(-1, POLL_MS)).await), (false, Some(true)));
            assert_eq!(rig.poll("g", "t", 1).await.code, response::POLLING_FULL);
            assert_eq!(told(&rig.call(notification(-1, 0)).await), (false, Some(false)), "who does not wait may ask");
            rig.send("t", "a").await;
            rig.send("t", "b").await;
        }
    );
    assert!(answers.iter().all(|answer| told(answer) == (true, Some(false))), "{answers:?}");
    assert_eq!(polled.code, response::SUCCESS);
    // All of them have left.
    rig.until_waiting("g", "t", 0).await;
    let rig = Rig::with(|config| config.max_pop_polling_size = 1);
    rig.topic("t", 1).await;
    rig.group("g").await;
    rig.group("h").await;
    let (answer, ()) = tokio::join!(rig.woken(notification(-1, POLL_MS)), async {
        rig.until_waiting("g", "t", 1).await;
        assert_eq!(rig.poll("h", "t", 1).await.code, response::POLLING_FULL, "the limit is the whole broker's");
        rig.send("t", "a").await;
    });
    assert_eq!(told(&answer), (true, Some(false)));
}

/// Neither a long `pollTime` nor a time of asking that is yet to come makes a request wait longer than the bound.
#[tokio::test]
async fn no_request_waits_longer_than_the_bound() {
    const HOUR_MS: i64 = 3_600_000;
    for born_time in [0, support::START_MS + HOUR_MS] {
        for kind in [request::POP_MESSAGE, request::NOTIFICATION] {
            let rig = Rig::new();
            one_message(&rig).await;
            let held = rig.pop("g", "t", 1, 2 * HOUR_MS).await.remove(0);
            let header = PopMessageRequestHeader { poll_time: i64::MAX, born_time, ..rig.pop_command("g", "t", 1, 1) };
            let (answer, ()) = tokio::join!(rig.woken(Command::request(kind).with_header(&header)), async {
                rig.until_waiting("g", "t", 1).await;
                rig.clock.advance(limits::POLL_MS_MAX);
                // Makes it look at the clock, for nobody moves the one that its timer goes by.
                rig.change("g", "t", &held.handle, HOUR_MS).await.unwrap();
            });
            match kind {
                request::POP_MESSAGE => assert_eq!(answer.code, response::POLLING_TIMEOUT),
                _ => assert_eq!(told(&answer), (false, Some(false))),
            }
        }
    }
}
