//! Transactions through the requests that clients and sidecars send, on a clock that is moved by hand.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod checks;
mod crash;
mod decisions;
#[path = "../support/process.rs"]
mod process;
#[path = "../support/mod.rs"]
mod support;

use support::{Rig, START_MS};
use waybill_protocol::message::{offset_of_msg_id, properties, sys_flag};
use waybill_protocol::remoting::codes::{request, response};
use waybill_protocol::remoting::{
    Command, EndTransactionRequestHeader, SendMessageRequestHeader, SendMessageResponseHeader,
};

const COMMIT: i32 = sys_flag::TRANSACTION_COMMIT;
const ROLLBACK: i32 = sys_flag::TRANSACTION_ROLLBACK;
/// The producer group of all halves.
const GROUP: &str = "p";

/// A half of topic "t", with one more property.
fn half_with(id: &str, name: &str, value: &str) -> Command {
    let plain = Rig::send_command("t", id, Some("tag"), id);
    let mut header = SendMessageRequestHeader::decode_v2(&plain.ext).unwrap();
    let raw = header.properties.as_mut().unwrap();
    properties::set(raw, properties::TRAN_MSG, "true");
    properties::set(raw, properties::PGROUP, GROUP);
    properties::set(raw, name, value);
    header.sys_flag = sys_flag::TRANSACTION_PREPARED;
    Command::request(request::SEND_MESSAGE_V2).with_header(&header).with_body(plain.body)
}

fn half(id: &str) -> Command {
    half_with(id, "colour", "blue")
}

fn position(sent: &SendMessageResponseHeader) -> i64 {
    offset_of_msg_id(&sent.msg_id).expect("an id that says where the message is")
}

fn end(sent: &SendMessageResponseHeader, decision: i32) -> Command {
    let id = sent.transaction_id.clone().expect("a transaction id");
    Command::request(request::END_TRANSACTION).with_header(&EndTransactionRequestHeader {
        topic: Some("t".into()),
        producer_group: GROUP.into(),
        tran_state_table_offset: sent.queue_offset,
        commit_log_offset: position(sent),
        commit_or_rollback: decision,
        from_transaction_check: Some(false),
        msg_id: id.clone(),
        transaction_id: Some(id),
        broker_name: None,
    })
}

/// Topic "t" with two queues, and group "g".
async fn rig() -> Rig {
    rig_with(|_| {}).await
}

async fn rig_with(change: impl Fn(&mut waybill_broker::BrokerConfig)) -> Rig {
    let rig = Rig::with(change);
    rig.topic("t", 2).await;
    rig.group("g").await;
    rig
}

async fn send(rig: &Rig, half: Command) -> SendMessageResponseHeader {
    rig.ok(half).await.header().unwrap()
}

async fn decide(rig: &Rig, sent: &SendMessageResponseHeader, decision: i32) -> i32 {
    rig.call(end(sent, decision)).await.code
}

/// What group "g" can still get, all of it at once.
async fn delivered(rig: &Rig) -> Vec<String> {
    rig.drain_ids("g", "t").await
}

fn metric(rig: &Rig, name: &str) -> Option<String> {
    let mut text = String::new();
    let registry = rig.broker.metrics().registry();
    prometheus_client::encoding::text::encode(&mut text, &registry.lock()).unwrap();
    text.lines().find_map(|line| line.strip_prefix(name)?.rsplit_once(' ').map(|(_, value)| value.to_owned()))
}
