//! Questions to producers about transactions that are open for long.

use std::sync::Arc;

use parking_lot::Mutex;
use waybill_broker::{Channel, Peer};
use waybill_protocol::message::StoredMessage;
use waybill_protocol::remoting::{CheckTransactionStateRequestHeader, HeartbeatData, JsonBody, ProducerData};

use super::*;

/// A producer that keeps what it is asked.
struct Producer {
    asked: Arc<Mutex<Vec<Command>>>,
}

impl Producer {
    async fn new(rig: &Rig, id: &str, groups: &[&str], listens: bool) -> Self {
        let asked: Arc<Mutex<Vec<Command>>> = Arc::default();
        let kept = Arc::clone(&asked);
        let channel = Channel::new(move |command| {
            kept.lock().push(command);
            listens
        });
        let producer_data_set = groups.iter().map(|group| ProducerData { group_name: (*group).into() }).collect();
        let beat = HeartbeatData { client_id: id.into(), producer_data_set, ..Default::default() };
        let beat = Command::request(request::HEART_BEAT).with_body(beat.to_json());
        let answer = rig.broker.handle(&Peer::local_with(channel), beat).await.unwrap();
        assert_eq!(answer.code, response::SUCCESS);
        Self { asked }
    }

    fn take(&self) -> Vec<Command> {
        std::mem::take(&mut self.asked.lock())
    }
}

async fn check(rig: &Rig) -> u64 {
    rig.broker.check_transactions().await.unwrap()
}

#[tokio::test]
async fn a_question_says_all_that_an_answer_needs() {
    let rig = rig().await;
    let producer = Producer::new(&rig, "c", &[GROUP], true).await;
    let sent = send(&rig, half("m")).await;
    rig.clock.advance(5_999);
    assert_eq!(check(&rig).await, 0);
    rig.clock.advance(1);
    assert_eq!(check(&rig).await, 1);
    let asked = producer.take().remove(0);
    assert_eq!((asked.code, asked.is_oneway()), (request::CHECK_TRANSACTION_STATE, true));
    let header: CheckTransactionStateRequestHeader = asked.header().unwrap();
    assert_eq!(header.commit_log_offset, position(&sent));
    assert_eq!(header.tran_state_table_offset, sent.queue_offset);
    assert_eq!((header.msg_id.as_deref(), header.transaction_id.as_deref()), (Some("m"), Some("m")));
    assert_eq!((header.offset_msg_id, header.broker_name.as_deref()), (Some(sent.msg_id.clone()), Some("broker-a")));
    let message = StoredMessage::decode(&mut asked.body.clone()).unwrap();
    assert_eq!((message.topic.as_str(), &message.body[..], message.queue_id), ("t", &b"m"[..], sent.queue_id));
    assert_eq!(message.sys_flag & sys_flag::TRANSACTION, sys_flag::TRANSACTION_PREPARED);
    assert_eq!(properties::get(&message.properties, properties::TRAN_MSG), Some("true"));
    assert_eq!(message.born_timestamp, START_MS);
    assert_eq!(decide(&rig, &sent, COMMIT).await, response::SUCCESS);
    assert_eq!(delivered(&rig).await, ["m"]);
}

#[tokio::test]
async fn questions_come_at_their_times_and_end() {
    let mut rig = rig_with(|config| config.transaction_check_max = 4).await;
    let mut producer = Producer::new(&rig, "c", &[GROUP], true).await;
    let sent = send(&rig, half("m")).await;
    let mut at = Vec::new();
    for second in 1..=200 {
        rig.clock.advance(1_000);
        let told = check(&rig).await;
        assert_eq!(producer.take().len() as u64, told);
        if told > 0 {
            at.push(second);
        }
        if second % 50 == 0 {
            // How often it was asked outlives a restart; the producer has to come back.
            rig = rig.reopen();
            producer = Producer::new(&rig, "c", &[GROUP], true).await;
        }
    }
    assert_eq!(at, [6, 36, 66, 96]);
    assert_eq!(delivered(&rig).await, [""; 0]);
    let answer = rig.call(end(&sent, COMMIT)).await;
    assert_eq!(answer.code, response::ILLEGAL_OPERATION);
    assert!(answer.remark.unwrap_or_default().contains("nobody said"));
    assert_eq!(delivered(&rig).await, [""; 0]);
    // What was given up can be looked at.
    let given_up = rig.pop("g", "TRANS_CHECK_MAX_TIME_TOPIC", 32, 60_000).await;
    assert_eq!(
        given_up.iter().map(|got| (got.id(), &got.message.body[..])).collect::<Vec<_>>(),
        [("m".into(), &b"m"[..])]
    );
    assert_eq!(rig.ack("g", "TRANS_CHECK_MAX_TIME_TOPIC", &given_up[0].handle).await, response::SUCCESS);
}

/// A producer that is here but reads too slowly to be told did not hear the question; it was not asked.
#[tokio::test]
async fn what_could_not_be_told_is_no_question() {
    let rig = rig_with(|config| config.transaction_check_max = 2).await;
    let _deaf = Producer::new(&rig, "c", &[GROUP], false).await;
    let sent = send(&rig, half("m")).await;
    for _ in 0..5 {
        rig.clock.advance(30_000);
        assert_eq!(check(&rig).await, 0);
    }
    let rig = rig.reopen();
    let listening = Producer::new(&rig, "c", &[GROUP], true).await;
    rig.clock.advance(30_000);
    assert_eq!((check(&rig).await, listening.take().len()), (1, 1));
    assert_eq!(decide(&rig, &sent, COMMIT).await, response::SUCCESS);
    assert_eq!(delivered(&rig).await, ["m"]);
}

/// C25 (c): the producer commits while it is being asked, and then answers the question otherwise.
#[tokio::test]
async fn an_answer_that_comes_after_the_decision_changes_nothing() {
    let rig = rig().await;
    let producer = Producer::new(&rig, "c", &[GROUP], true).await;
    let sent = send(&rig, half("m")).await;
    rig.clock.advance(6_000);
    assert_eq!(check(&rig).await, 1);
    assert_eq!(decide(&rig, &sent, COMMIT).await, response::SUCCESS);
    let rig = rig.reopen();
    assert_eq!(decide(&rig, &sent, ROLLBACK).await, response::ILLEGAL_OPERATION);
    for _ in 0..180 {
        rig.clock.advance(1_000);
        assert_eq!(check(&rig).await, 0);
    }
    assert_eq!(producer.take().len(), 1);
    assert_eq!(delivered(&rig).await, ["m"]);
}

#[tokio::test]
async fn nobody_there_is_no_question_and_who_comes_is_asked() {
    let rig = rig_with(|config| (config.transaction_check_max, config.transaction_give_up_after) = (1, 600_000)).await;
    let sent = send(&rig, half("m")).await;
    let stranger = Producer::new(&rig, "other", &["q"], true).await;
    for _ in 0..300 {
        rig.clock.advance(1_000);
        assert_eq!(check(&rig).await, 0);
    }
    let metric_of = |name: &str| metric(&rig, name).and_then(|value| value.parse::<u64>().ok());
    assert_eq!(metric_of("waybill_broker_transaction_checks_unheard_total"), Some(10), "once in an interval");
    let deaf = Producer::new(&rig, "a", &[GROUP], false).await;
    let producer = Producer::new(&rig, "b", &[GROUP], true).await;
    rig.clock.advance(30_000);
    assert_eq!(check(&rig).await, 1);
    assert_eq!((deaf.take().len(), producer.take().len(), stranger.take().len()), (1, 1, 0), "the next one is told");
    assert_eq!(metric_of("waybill_broker_transaction_checks_total"), Some(1));
    assert_eq!(decide(&rig, &sent, COMMIT).await, response::SUCCESS);

    let lonely = send(&rig, half_with("lonely", "PGROUP", "nobody")).await;
    for _ in 0..20 {
        assert_eq!(rig.broker.core().open_halves().len(), 1);
        rig.clock.advance(30_000);
        assert_eq!(check(&rig).await, 0);
    }
    rig.clock.advance(30_000);
    assert_eq!(check(&rig).await, 0);
    assert!(rig.broker.core().open_halves().is_empty(), "too old");
    let mut late: EndTransactionRequestHeader = end(&lonely, COMMIT).header().unwrap();
    late.producer_group = "nobody".into();
    let late = rig.call(Command::request(request::END_TRANSACTION).with_header(&late)).await;
    assert_eq!(late.code, response::ILLEGAL_OPERATION);
}

#[tokio::test]
async fn producers_of_a_group_are_asked_in_turn() {
    let rig = rig().await;
    let producers = [Producer::new(&rig, "a", &[GROUP], true).await, Producer::new(&rig, "b", &[GROUP], true).await];
    send(&rig, half("m")).await;
    let mut turns = Vec::new();
    for wait in [6_000, 30_000, 30_000, 30_000] {
        rig.clock.advance(wait);
        assert_eq!(check(&rig).await, 1);
        turns.push(producers.iter().map(|producer| producer.take().len()).collect::<Vec<_>>());
    }
    assert_eq!(turns, [[1, 0], [0, 1], [1, 0], [0, 1]]);
}

#[tokio::test]
async fn the_message_says_when_it_is_first_asked_about() {
    let rig = rig().await;
    let producer = Producer::new(&rig, "c", &[GROUP], true).await;
    for (id, seconds) in [("soon", "1"), ("late", "60"), ("odd", "soon"), ("negative", "-1")] {
        send(&rig, half_with(id, properties::CHECK_IMMUNITY_TIME_IN_SECONDS, seconds)).await;
    }
    let mut asked = Vec::new();
    for second in 1..=60 {
        rig.clock.advance(1_000);
        check(&rig).await;
        let ids = producer.take().into_iter().map(|command| command.ext.get("msgId").unwrap().to_owned());
        asked.extend(ids.map(|id| (second, id)));
    }
    let first = |id: &str| asked.iter().find(|(_, asked)| asked == id).map(|(second, _)| *second);
    assert_eq!(["soon", "late", "odd", "negative"].map(first), [Some(1), Some(60), Some(6), Some(6)]);
}

#[tokio::test]
async fn many_open_transactions_are_all_asked_about() {
    let rig = rig().await;
    let producer = Producer::new(&rig, "c", &[GROUP], true).await;
    let halves: Vec<_> = (0..600).map(|n| half(&format!("m{n:03}"))).collect();
    futures::future::join_all(halves.into_iter().map(|half| send(&rig, half))).await;
    rig.clock.advance(6_000);
    assert_eq!(check(&rig).await, 600);
    let mut asked: Vec<_> =
        producer.take().iter().map(|command| command.ext.get("msgId").unwrap().to_owned()).collect();
    asked.sort();
    asked.dedup();
    assert_eq!(asked.len(), 600);
    assert_eq!(check(&rig).await, 0);
}
