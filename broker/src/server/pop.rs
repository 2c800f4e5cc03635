//! POP_MESSAGE, NOTIFICATION and POLLING_INFO.

use std::collections::BTreeMap;

use waybill_protocol::handle::TopicType;
use waybill_protocol::remoting::codes::response;
use waybill_protocol::remoting::pop_info::{MsgOffsets, StartOffset, encode_msg_offsets, encode_start_offsets};
use waybill_protocol::remoting::{
    Command, NotificationRequestHeader, NotificationResponseHeader, PopMessageRequestHeader, PopMessageResponseHeader,
    QueueRequestHeader, SUBSCRIBED_TOPICS,
};

use super::{Answer, Peer, ok_with};
use crate::Broker;
use crate::core::{Notice, Pop, PopAnswer};
use crate::limits;

pub(super) async fn pop(broker: &Broker, peer: &Peer, command: &Command) -> Answer {
    let header: PopMessageRequestHeader = command.header()?;
    let pop = Pop {
        group: header.consumer_group,
        topic: header.topic,
        queue_id: header.queue_id,
        max: usize::try_from(header.max_msg_nums).unwrap_or(0),
        invisible_ms: header.invisible_time,
        poll_ms: header.poll_time.min(limits::POLL_MS_MAX),
        born_ms: born(broker, header.born_time),
        expression_type: header.exp_type,
        expression: header.exp,
        client_id: header.client_id,
        attempt_id: header.attempt_id,
        subscribed_topics: command.ext.get(SUBSCRIBED_TOPICS).map(str::to_owned),
    };
    if let Some(client) = &pop.client_id {
        broker.client_seen(client);
    }
    let answer = broker.core().pop(&pop, &peer.gone).await?;
    Ok(found(&answer))
}

pub(super) async fn notification(broker: &Broker, peer: &Peer, command: &Command) -> Answer {
    let header: NotificationRequestHeader = command.header()?;
    let pop = Pop {
        group: header.consumer_group,
        topic: header.topic,
        queue_id: header.queue_id,
        max: 1,
        invisible_ms: 1,
        poll_ms: header.poll_time.min(limits::POLL_MS_MAX),
        born_ms: born(broker, header.born_time),
        expression_type: None,
        expression: None,
        client_id: None,
        attempt_id: None,
        subscribed_topics: None,
    };
    let notice = broker.core().notice(&pop, &peer.gone).await?;
    Ok(ok_with(&NotificationResponseHeader {
        has_msg: notice == Notice::Messages,
        polling_full: Some(notice == Notice::Full),
    }))
}

pub(super) fn polling_info(broker: &Broker, command: &Command) -> Answer {
    let header: QueueRequestHeader = command.header()?;
    let group = command.ext.get("consumerGroup").unwrap_or_default();
    let waiting = broker.core().polling(group, &header.topic)?;
    let mut answer = super::ok();
    answer.ext.set("pollingNum", waiting.to_string());
    Ok(answer)
}

/// When a request was made, as far as its sender can be believed: not after it came.
fn born(broker: &Broker, born_ms: i64) -> i64 {
    let now = broker.now();
    if born_ms <= 0 { now } else { born_ms.min(now) }
}

fn found(answer: &PopAnswer) -> Command {
    let mut by_queue: BTreeMap<u32, Vec<i64>> = BTreeMap::new();
    for message in &answer.messages {
        by_queue.entry(message.queue).or_default().push(message.offset.cast_signed());
    }
    let mut starts = Vec::with_capacity(by_queue.len());
    let mut offsets = Vec::with_capacity(by_queue.len());
    for (queue, mut delivered) in by_queue {
        delivered.sort_unstable();
        let queue_id = queue.cast_signed();
        starts.push(StartOffset { kind: TopicType::Normal, queue_id, offset: delivered.first().copied().unwrap_or(0) });
        offsets.push(MsgOffsets { kind: TopicType::Normal, queue_id, offsets: delivered });
    }
    let header = PopMessageResponseHeader {
        pop_time: answer.pop_time_ms,
        invisible_time: answer.invisible_ms,
        revive_qid: 0,
        rest_num: i64::try_from(answer.rest).unwrap_or(i64::MAX),
        start_offset_info: Some(encode_start_offsets(&starts)),
        msg_offset_info: Some(encode_msg_offsets(&offsets)),
        order_count_info: None,
    };
    Command::response(response::SUCCESS, "FOUND").with_header(&header).with_body(answer.body.clone())
}
