//! Moving a group to another place.

use waybill_protocol::remoting::queue_table;
use waybill_protocol::remoting::{Command, MessageQueue, ResetOffsetRequestHeader};

use super::{Answer, ok, queue_number};
use crate::Broker;
use crate::core::{Reset, ResetTo};

/// INVOKE_BROKER_TO_RESET_OFFSET. Upstream's `isForce` is of clients that keep their offsets themselves, and is not looked at.
pub(super) async fn reset(broker: &Broker, command: &Command) -> Answer {
    let header: ResetOffsetRequestHeader = command.header()?;
    let queue = header.queue_id.filter(|queue| *queue != -1).map(queue_number).transpose()?;
    let to = match header.offset.and_then(|offset| u64::try_from(offset).ok()) {
        Some(offset) => ResetTo::Offset(offset),
        None if header.timestamp < 0 => ResetTo::Latest,
        None => ResetTo::Time(header.timestamp),
    };
    let reset = Reset { group: header.group, topic: header.topic, queue, to };
    let offsets = broker.core().reset(&reset).await?;
    let rows: Vec<(MessageQueue, u64)> = offsets
        .into_iter()
        .map(|(queue, offset)| {
            let queue_id = queue.cast_signed();
            (MessageQueue { broker_name: broker.name().to_owned(), queue_id, topic: reset.topic.clone() }, offset)
        })
        .collect();
    Ok(ok().with_body(queue_table::write("offsetTable", &rows, &[])?))
}
