//! Many acknowledgements or changes of the invisible duration in one request (issue case C07, C08).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod equal;
#[path = "../support/files.rs"]
mod files;
mod hostile;
mod one_record;
#[path = "../support/mod.rs"]
mod support;

use waybill_protocol::handle::{ReceiptHandle, TopicType};
use waybill_protocol::remoting::codes::request;
use waybill_protocol::remoting::{
    BatchAck, BatchAckBody, BatchChangeInvisibleBody, BatchChangeInvisibleEntry, BatchChangeInvisibleTimeRequestHeader,
    BitSet, Command,
};

/// The ack of some offsets of a pop.
fn ack_entry(group: &str, topic: &str, handle: &ReceiptHandle, offsets: &[i64]) -> BatchAck {
    let mut bits = BitSet::new();
    for offset in offsets {
        bits.set(usize::try_from(offset - handle.start_offset).unwrap()).unwrap();
    }
    BatchAck {
        consumer_group: group.into(),
        topic: topic.into(),
        retry: TopicType::Normal,
        start_offset: handle.start_offset,
        queue_id: handle.queue_id,
        revive_queue_id: 0,
        pop_time: handle.pop_time,
        invisible_time: handle.invisible_time,
        bit_set: bits,
    }
}

/// BATCH_ACK_MESSAGE that asks for one result per message.
fn batch_ack(acks: Vec<BatchAck>) -> Command {
    let mut command = upstream_batch_ack(acks);
    command.ext.set("entryResults", "true");
    command
}

fn upstream_batch_ack(acks: Vec<BatchAck>) -> Command {
    Command::request(request::BATCH_ACK_MESSAGE).with_json(&BatchAckBody { broker_name: "broker-a".into(), acks })
}

fn entry(handle: &ReceiptHandle, invisible_time: i64) -> BatchChangeInvisibleEntry {
    BatchChangeInvisibleEntry {
        queue_id: handle.queue_id,
        extra_info: handle.to_string(),
        offset: handle.offset,
        invisible_time,
        ..Default::default()
    }
}

fn batch_change(entries: Vec<BatchChangeInvisibleEntry>) -> Command {
    Command::request(request::BATCH_CHANGE_MESSAGE_INVISIBLETIME)
        .with_header(&BatchChangeInvisibleTimeRequestHeader { consumer_group: "g".into(), topic: "t".into() })
        .with_json(&BatchChangeInvisibleBody { entries })
}
