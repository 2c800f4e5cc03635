//! Transactions as producers see them: what is sent to brokers, and what their answers become.
#![allow(clippy::expect_used, clippy::panic, reason = "tests say what they expect")]

mod grpc_common;

use grpc_common::broker::Fault;
use grpc_common::*;
use waybill_protocol::grpc::v2::{self, Code, MessageType, TransactionResolution, TransactionSource};
use waybill_protocol::message::{properties, sys_flag};
use waybill_protocol::remoting::{
    EndTransactionRequestHeader, SendMessageRequestHeader,
    codes::{request, response},
};
use waybill_protocol::transaction::TransactionId;

fn half(id: &str) -> v2::Message {
    let mut message = message(id);
    message.topic = Some(resource("trans"));
    message.system_properties.as_mut().expect("system properties").set_message_type(MessageType::Transaction);
    message
}

fn end(message_id: &str, transaction_id: &str, resolution: TransactionResolution) -> v2::EndTransactionRequest {
    v2::EndTransactionRequest {
        topic: Some(resource("trans")),
        message_id: message_id.into(),
        transaction_id: transaction_id.into(),
        resolution: resolution.into(),
        source: TransactionSource::SourceClient.into(),
        ..Default::default()
    }
}

async fn world() -> (World, Peer) {
    let world = World::new().await;
    world.brokers.topic("trans", "TRANSACTION", 2);
    let peer = world.peer("c").await;
    (world, peer)
}

async fn ended(peer: &mut Peer, request: v2::EndTransactionRequest) -> (Code, String) {
    let request = peer.request(request);
    let status = peer.client.end_transaction(request).await.expect("an answer").into_inner().status;
    let status = status.expect("a status");
    (status.code(), status.message)
}

#[tokio::test]
async fn a_half_says_that_it_is_one_and_its_id_says_where_it_is() {
    let (world, mut peer) = world().await;
    let mut first = half("M0");
    first.system_properties.as_mut().expect("system properties").orphaned_transaction_recovery_duration =
        Some(duration(1_500));
    let answer = peer.send(vec![first, half("M1")]).await;
    assert_eq!(code(answer.status), Code::Ok);
    let sent = world.brokers.seen(request::SEND_MESSAGE_V2);
    assert_eq!(sent.len(), 2, "each is a transaction of its own");
    for (command, immunity) in sent.iter().zip([Some("2"), None]) {
        let header: SendMessageRequestHeader = command.header().expect("a send header");
        assert_eq!(header.sys_flag & sys_flag::TRANSACTION, sys_flag::TRANSACTION_PREPARED);
        let raw = header.properties.unwrap_or_default();
        let property = |name: &str| properties::get(&raw, name);
        assert_eq!((property("TRAN_MSG"), property("PGROUP")), (Some("true"), Some("trans")));
        assert_eq!(property("CHECK_IMMUNITY_TIME_IN_SECONDS"), immunity, "whole seconds, none too early");
    }
    let stored = world.brokers.stored("trans");
    for (entry, stored) in answer.entries.iter().zip(&stored) {
        let id: TransactionId = entry.transaction_id.parse().expect("an id of ours");
        assert_eq!((id.topic.as_str(), id.tran_state_table_offset), ("trans", stored.queue_offset));
        assert!(["broker-a", "broker-b"].contains(&id.broker_name.as_str()));
    }
    assert_eq!(answer.entries.iter().map(|entry| entry.message_id.as_str()).collect::<Vec<_>>(), ["M0", "M1"]);
}

#[tokio::test]
async fn an_end_goes_to_the_broker_that_the_id_names() {
    let (world, mut peer) = world().await;
    let entry = peer.send(vec![half("M")]).await.entries.remove(0);
    for (resolution, flag, source) in [
        (TransactionResolution::Commit, sys_flag::TRANSACTION_COMMIT, TransactionSource::SourceClient),
        (TransactionResolution::Rollback, sys_flag::TRANSACTION_ROLLBACK, TransactionSource::SourceServerCheck),
    ] {
        world.brokers.fail(request::END_TRANSACTION, Fault::Code(response::SUCCESS));
        let request =
            v2::EndTransactionRequest { source: source.into(), ..end("M", &entry.transaction_id, resolution) };
        assert_eq!(ended(&mut peer, request).await.0, Code::Ok);
        let command = world.brokers.seen(request::END_TRANSACTION).pop().expect("it was sent");
        let header: EndTransactionRequestHeader = command.header().expect("a header");
        let id: TransactionId = entry.transaction_id.parse().expect("an id of ours");
        assert_eq!(header.commit_or_rollback, flag);
        assert_eq!(header.from_transaction_check, Some(source == TransactionSource::SourceServerCheck));
        assert_eq!((header.producer_group.as_str(), header.msg_id.as_str()), ("trans", "M"));
        assert_eq!(header.commit_log_offset, id.commit_log_offset);
        assert_eq!(header.tran_state_table_offset, id.tran_state_table_offset);
        assert_eq!(header.broker_name, Some(id.broker_name));
    }
    let unknown = end("M", &entry.transaction_id, TransactionResolution::Unspecified);
    assert_eq!(ended(&mut peer, unknown).await.0, Code::Ok);
    assert_eq!(world.brokers.seen(request::END_TRANSACTION).len(), 2, "not known yet: the broker will ask");
}

#[tokio::test]
async fn every_refusal_has_its_code() {
    let (world, mut peer) = world().await;
    let entry = peer.send(vec![half("M")]).await.entries.remove(0);
    let id = entry.transaction_id.as_str();
    let commit = |id: &str| end("M", id, TransactionResolution::Commit);
    for (answer, expected) in [
        (response::ILLEGAL_OPERATION, Code::PreconditionFailed),
        (response::QUERY_NOT_FOUND, Code::InvalidTransactionId),
        (response::TOPIC_NOT_EXIST, Code::TopicNotFound),
        (response::SYSTEM_BUSY, Code::TooManyRequests),
        (response::SYSTEM_ERROR, Code::InternalServerError),
    ] {
        world.brokers.fail(request::END_TRANSACTION, Fault::Code(answer));
        assert_eq!(ended(&mut peer, commit(id)).await.0, expected);
    }
    let before = world.brokers.seen(request::END_TRANSACTION).len();
    let nowhere = TransactionId { broker_name: "gone".into(), ..id.parse().expect("an id of ours") }.to_string();
    for bad in [" ", "M", "garbage", &nowhere] {
        assert_eq!(ended(&mut peer, commit(bad)).await.0, Code::InvalidTransactionId, "{bad}");
    }
    let other = v2::EndTransactionRequest { topic: Some(resource("t")), ..commit(id) };
    assert_eq!(ended(&mut peer, other).await.0, Code::InvalidTransactionId);
    let nameless = v2::EndTransactionRequest { topic: Some(resource(" ")), ..commit(id) };
    assert_eq!(ended(&mut peer, nameless).await.0, Code::IllegalTopic);
    assert_eq!(world.brokers.seen(request::END_TRANSACTION).len(), before, "no broker was asked");
}

#[tokio::test]
async fn a_transaction_cannot_be_delayed_and_needs_its_topic() {
    let (world, mut peer) = world().await;
    let mut delayed = half("M");
    delayed.system_properties.as_mut().expect("system properties").delivery_timestamp =
        Some(prost_types::Timestamp { seconds: START / 1_000 + 60, nanos: 0 });
    let mut elsewhere = half("M");
    elsewhere.topic = Some(resource("t"));
    for message in [delayed, elsewhere] {
        assert_eq!(code(peer.send(vec![message]).await.status), Code::MessagePropertyConflictWithType);
    }
    assert_eq!(world.brokers.stored("trans").len() + world.brokers.stored("t").len(), 0);
}
