//! Delayed messages and transactions, sent to brokers as producers of the remoting protocol do, and what was promised of them: a delayed
//! message comes once and not before its time, unless it was recalled; a half comes once if its producer was told that it is committed,
//! and never if it is rolled back or nobody decides; the first decision holds.
//!
//! Nobody reads their topics until the faults are over, so that whatever is there then is seen.

use std::collections::BTreeMap;
use std::sync::Arc;

use waybill_protocol::message::{StoredMessage, properties, sys_flag};
use waybill_protocol::recall::RecallHandle;
use waybill_protocol::remoting::codes::{request, response};
use waybill_protocol::remoting::{
    Command, EndTransactionRequestHeader, PopMessageRequestHeader, RecallMessageRequestHeader,
    SendMessageRequestHeader, SendMessageResponseHeader,
};

use crate::broker::{BrokerNode, PROMISED};
use crate::dice::Dice;
use crate::sim::Sim;

/// Reads them in the end.
pub const READERS: &str = "readers";
/// The producer of halves.
const PRODUCERS: &str = "producers";
/// Tries of a decision whose answer was lost.
const TRIES: usize = 8;
/// The longest delay that is asked for, milliseconds.
const DELAY_MAX_MS: i64 = 25_000;
/// Clocks may be set back by so much in all, and so much later is what a delay ends at.
const LATE_MS: i64 = 120_000;

/// How often a message may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comes {
    /// It was promised.
    Once,
    /// It was promised that it does not.
    Never,
    /// Nobody was told.
    AtMostOnce,
}

/// What was promised of a message, by its body.
#[derive(Debug)]
pub struct Promise {
    comes: Comes,
    /// Not before this time of its broker's clock.
    due_ms: i64,
}

/// What was promised, by body.
pub type Promises = BTreeMap<String, Promise>;

/// Sends delayed messages and halves while there are faults, and says what was promised of each.
pub async fn promise(sim: Arc<Sim>, brokers: Vec<Arc<BrokerNode>>, seed: u64) -> Promises {
    let mut dice = Dice::new(seed);
    let count = sim.plan.promises;
    let pause = sim.plan.chaos_ms / i64::try_from(count).unwrap_or(1).max(1);
    let mut promises = Promises::new();
    for number in 0..count {
        sim.sleep(dice.within(0..=2 * pause)).await;
        let broker = dice.pick(&brokers).clone();
        let body = format!("p{number}");
        let told = match dice.chance(500) {
            true => delayed(&sim, &broker, &mut dice, &body).await,
            false => half(&sim, &broker, &mut dice, &body).await,
        };
        sim.say("promiser", format_args!("{body} at {}: {told:?}", broker.name));
        promises.insert(body, told);
    }
    promises
}

/// A send, as a producer of the remoting protocol does it.
fn send(sim: &Sim, body: &str, more: &[(&str, &str)], flags: i32) -> Command {
    let mut raw = String::new();
    properties::set(&mut raw, properties::UNIQ_KEY, body);
    properties::set(&mut raw, "padding", &"x".repeat(sim.plan.padding / 2));
    for (name, value) in more {
        properties::set(&mut raw, name, value);
    }
    let header = SendMessageRequestHeader {
        producer_group: PRODUCERS.into(),
        topic: PROMISED.into(),
        default_topic: "TBW102".into(),
        default_topic_queue_nums: 1,
        queue_id: -1,
        sys_flag: flags,
        properties: Some(raw),
        ..Default::default()
    };
    Command::request(request::SEND_MESSAGE_V2).with_header(&header).with_body(body.to_owned().into_bytes())
}

/// The code of an answer, if there is one that says how it ended.
fn decided(answer: Option<&Command>) -> Option<i32> {
    const HOW_IT_ENDED: [i32; 4] =
        [response::SUCCESS, response::ILLEGAL_OPERATION, response::QUERY_NOT_FOUND, response::TOPIC_NOT_EXIST];
    answer.map(|answer| answer.code).filter(|code| HOW_IT_ENDED.contains(code))
}

async fn delayed(sim: &Sim, broker: &Arc<BrokerNode>, dice: &mut Dice, body: &str) -> Promise {
    let delay = dice.within(1..=DELAY_MAX_MS).to_string();
    let answer = broker.ask(send(sim, body, &[(properties::TIMER_DELAY_MS, &delay)], 0)).await;
    let handle = answer
        .filter(|answer| answer.code == response::SUCCESS)
        .and_then(|answer| answer.header::<SendMessageResponseHeader>().ok()?.recall_handle);
    let Some(handle) = handle else { return Promise { comes: Comes::AtMostOnce, due_ms: 0 } };
    let due_ms = handle.parse().map_or(0, |handle: RecallHandle| handle.time_ms);
    sim.audit().note("delayed");
    if !dice.chance(300) {
        return Promise { comes: Comes::Once, due_ms };
    }
    sim.sleep(dice.within(0..=DELAY_MAX_MS)).await;
    let header = RecallMessageRequestHeader {
        producer_group: Some(PRODUCERS.into()),
        topic: PROMISED.into(),
        recall_handle: handle,
        broker_name: None,
    };
    let answer = broker.ask(Command::request(request::RECALL_MESSAGE).with_header(&header)).await;
    let comes = match decided(answer.as_ref()) {
        Some(response::SUCCESS) => {
            sim.audit().note("recalled");
            Comes::Never
        }
        // Too late, or not there any more: nobody else recalls it. (A clock that is set back makes it due twice.)
        Some(_) => Comes::Once,
        None => Comes::AtMostOnce,
    };
    Promise { comes, due_ms }
}

async fn half(sim: &Sim, broker: &Arc<BrokerNode>, dice: &mut Dice, body: &str) -> Promise {
    let answer = broker.ask(send(sim, body, &[(properties::TRAN_MSG, "true")], sys_flag::TRANSACTION_PREPARED)).await;
    let sent = answer
        .filter(|answer| answer.code == response::SUCCESS)
        .and_then(|answer| answer.header::<SendMessageResponseHeader>().ok());
    let (decision, otherwise) = match dice.chance(600) {
        true => (sys_flag::TRANSACTION_COMMIT, sys_flag::TRANSACTION_ROLLBACK),
        false => (sys_flag::TRANSACTION_ROLLBACK, sys_flag::TRANSACTION_COMMIT),
    };
    // Nobody decides about what nobody knows to be there, and now and then about what is.
    let Some(sent) = sent.filter(|_| !dice.chance(150)) else { return Promise { comes: Comes::Never, due_ms: 0 } };
    sim.audit().note("halves");
    let end = |decision| {
        let header = EndTransactionRequestHeader {
            producer_group: PRODUCERS.into(),
            tran_state_table_offset: sent.queue_offset,
            commit_log_offset: sent.queue_offset,
            commit_or_rollback: decision,
            from_transaction_check: Some(false),
            msg_id: body.to_owned(),
            ..Default::default()
        };
        Command::request(request::END_TRANSACTION).with_header(&header)
    };
    let mut comes = Comes::AtMostOnce;
    for _ in 0..TRIES {
        sim.sleep(dice.within(0..=3_000)).await;
        match decided(broker.ask(end(decision)).await.as_ref()) {
            Some(response::SUCCESS) => {
                let committed = decision == sys_flag::TRANSACTION_COMMIT;
                sim.audit().note(if committed { "committed" } else { "rolled_back" });
                comes = if committed { Comes::Once } else { Comes::Never };
                break;
            }
            Some(code) => {
                sim.audit().violation(format!("{body}: its first decision, perhaps repeated, is answered {code}"));
                break;
            }
            None => {}
        }
    }
    if comes != Comes::AtMostOnce && dice.chance(500) {
        sim.sleep(dice.within(0..=5_000)).await;
        if decided(broker.ask(end(otherwise)).await.as_ref()) == Some(response::SUCCESS) {
            sim.audit().violation(format!("{body}: decided, and another decision is answered OK"));
        }
    }
    Promise { comes, due_ms: 0 }
}

/// Reads what came, and holds it against what was promised. The faults are over.
pub async fn keep(sim: &Arc<Sim>, brokers: &[Arc<BrokerNode>], promises: Promises) {
    let mut came: BTreeMap<String, u32> = BTreeMap::new();
    let end = sim.now() + DELAY_MAX_MS + LATE_MS;
    loop {
        for broker in brokers {
            while let Some(messages) = read(broker).await {
                for message in messages {
                    let body = String::from_utf8_lossy(&message.body).into_owned();
                    *came.entry(body.clone()).or_default() += 1;
                    let due_ms = promises.get(&body).map_or(0, |promise| promise.due_ms);
                    if message.store_timestamp < due_ms {
                        let early = due_ms - message.store_timestamp;
                        sim.audit().violation(format!("{body} came {early} ms before it was due"));
                    }
                }
            }
        }
        let missing = |(body, promise): &(&String, &Promise)| promise.comes == Comes::Once && !came.contains_key(*body);
        if sim.now() >= end || !promises.iter().any(|promise| missing(&promise)) {
            break;
        }
        sim.sleep(1_000).await;
    }
    for (body, Promise { comes, .. }) in promises {
        let times = came.remove(&body).unwrap_or(0);
        let kept = match comes {
            Comes::Once => times == 1,
            Comes::Never => times == 0,
            Comes::AtMostOnce => times <= 1,
        };
        if !kept {
            sim.audit().violation(format!("{body} came {times} times, promised was: {comes:?}"));
        }
    }
    for body in came.into_keys() {
        sim.audit().violation(format!("{body} came, and nobody sent it"));
    }
}

async fn read(broker: &Arc<BrokerNode>) -> Option<Vec<StoredMessage>> {
    let header = PopMessageRequestHeader {
        consumer_group: READERS.into(),
        topic: PROMISED.into(),
        queue_id: -1,
        max_msg_nums: 32,
        invisible_time: 3_600_000,
        init_mode: 0,
        ..Default::default()
    };
    let answer = broker.ask(Command::request(request::POP_MESSAGE).with_header(&header)).await?;
    (answer.code == response::SUCCESS).then(|| StoredMessage::decode_all(answer.body).unwrap_or_default())
}
