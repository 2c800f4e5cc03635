//! Consumer offsets and the bounds of queues.

use waybill_protocol::remoting::{
    Command, OffsetResponseHeader, QueryConsumerOffsetRequestHeader, QueueRequestHeader, SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
};

use super::{Answer, ok, ok_with, queue_number};
use crate::Broker;
use crate::error::BrokerError;

/// Which end of a queue is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Bound {
    /// The lowest offset that is there.
    Min,
    /// One past the highest.
    Max,
}

pub(super) fn query(broker: &Broker, command: &Command) -> Answer {
    let header: QueryConsumerOffsetRequestHeader = command.header()?;
    let queue = queue_number(header.queue_id)?;
    match broker.core().consumer_offset(&header.consumer_group, &header.topic, queue)? {
        Some(offset) => Ok(ok_with(&OffsetResponseHeader { offset: offset.cast_signed() })),
        None => Err(BrokerError::NotFound(format!(
            "group {} has no offset in queue {queue} of {}",
            header.consumer_group, header.topic
        ))),
    }
}

pub(super) async fn update(broker: &Broker, command: &Command) -> Answer {
    let header: UpdateConsumerOffsetRequestHeader = command.header()?;
    let queue = queue_number(header.queue_id)?;
    let offset = u64::try_from(header.commit_offset)
        .map_err(|_| BrokerError::InvalidParameter(format!("commitOffset {} is below 0", header.commit_offset)))?;
    broker.core().set_consumer_offset(&header.consumer_group, &header.topic, queue, offset).await?;
    Ok(ok())
}

pub(super) fn bound(broker: &Broker, command: &Command, which: Bound) -> Answer {
    let header: QueueRequestHeader = command.header()?;
    let (min, max) = broker.core().bounds(&header.topic, queue_number(header.queue_id)?)?;
    let offset = match which {
        Bound::Min => min,
        Bound::Max => max,
    };
    Ok(ok_with(&OffsetResponseHeader { offset: offset.cast_signed() }))
}

pub(super) fn search(broker: &Broker, command: &Command) -> Answer {
    let header: SearchOffsetRequestHeader = command.header()?;
    let upper = header.boundary_type.is_some_and(|boundary| boundary.eq_ignore_ascii_case("upper"));
    let queue = queue_number(header.queue_id)?;
    let offset = broker.core().search_offset(&header.topic, queue, header.timestamp, upper)?;
    Ok(ok_with(&OffsetResponseHeader { offset: offset.cast_signed() }))
}

/// Upstream answers -1 where there is no message.
pub(super) fn earliest(broker: &Broker, command: &Command) -> Answer {
    let header: QueueRequestHeader = command.header()?;
    let time = broker.core().earliest_store_time(&header.topic, queue_number(header.queue_id)?)?;
    let mut answer = ok();
    answer.ext.set_number("timestamp", time.unwrap_or(-1));
    Ok(answer)
}
