//! SEND_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE and CONSUMER_SEND_MSG_BACK.

use waybill_protocol::message::{decode_batch, offset_msg_id, properties, sys_flag};
use waybill_protocol::recall::RecallHandle;
use waybill_protocol::remoting::{
    Command, ConsumerSendMsgBackRequestHeader, SendMessageRequestHeader, SendMessageResponseHeader,
};

use super::{Answer, Peer, ack::handle_ref, ok, ok_with};
use crate::Broker;
use crate::core::{Forward, OutgoingMessage, Send, SendBack, Sent};
use crate::error::BrokerError;

/// The version of clients from which on they say how often a message may come again.
const V3_4_9: i32 = 121;

/// How the request is written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Header fields have their full names.
    LongNames,
    /// Header fields are single letters.
    SingleLetters,
    /// Single letters, and the body holds many messages.
    Batch,
}

pub(super) async fn send(broker: &Broker, peer: &Peer, command: &Command, form: Form) -> Answer {
    let header = match form {
        Form::LongNames => SendMessageRequestHeader::decode_v1(&command.ext)?,
        Form::SingleLetters | Form::Batch => SendMessageRequestHeader::decode_v2(&command.ext)?,
    };
    let half = header.sys_flag & sys_flag::TRANSACTION == sys_flag::TRANSACTION_PREPARED;
    let messages = if form == Form::Batch || header.batch == Some(true) {
        decode_batch(command.body.clone())
            .map_err(|error| BrokerError::Illegal(error.to_string()))?
            .into_iter()
            .map(|item| OutgoingMessage { flag: item.flag, body: item.body, properties: item.properties })
            .collect()
    } else {
        let properties = header.properties.unwrap_or_default();
        vec![OutgoingMessage { flag: header.flag, body: command.body.clone(), properties }]
    };
    if half && let Some(name) = messages.iter().find_map(|message| delayed_by(&message.properties)) {
        return Err(BrokerError::Illegal(format!("the message of a transaction cannot be delayed ({name} is set)")));
    }
    let ids: Vec<String> = messages.iter().map(|message| unique_key(&message.properties)).collect();
    let topic = header.topic.clone();
    let send = Send {
        topic: header.topic,
        queue_id: header.queue_id,
        default_queues: header.default_topic_queue_nums,
        sys_flag: header.sys_flag,
        born_timestamp: header.born_timestamp,
        born_host: peer.address,
        reconsume_times: header.reconsume_times.unwrap_or(0),
        messages,
    };
    let sent = match half {
        true => broker.core().send_half(send, &header.producer_group).await?,
        false => broker.core().send(send).await?,
    };
    let offset_ids: Vec<String> =
        sent.positions.iter().map(|position| offset_msg_id(broker.store_host(), position.cast_signed())).collect();
    let mut answer = ok_with(&SendMessageResponseHeader {
        msg_id: offset_ids.join(","),
        queue_id: sent.queue_id.cast_signed(),
        queue_offset: sent.first_offset.cast_signed(),
        transaction_id: ids.first().cloned().filter(|id| !id.is_empty()),
        batch_uniq_id: (ids.len() > 1).then(|| ids.join(",")),
        recall_handle: recall_handle(broker, &topic, &sent, &ids),
    });
    answer.ext.set("MSG_REGION", "DefaultRegion");
    answer.ext.set("TRACE_ON", "true");
    Ok(answer)
}

/// What takes a delayed message back: there is one if it was sent alone, and has an id.
fn recall_handle(broker: &Broker, topic: &str, sent: &Sent, ids: &[String]) -> Option<String> {
    let ([position], [id]) = (sent.positions.as_slice(), ids) else { return None };
    let time_ms = i64::try_from(sent.due_ms?).ok()?;
    (!id.is_empty()).then(|| RecallHandle::text(topic, broker.name(), time_ms, id, Some(*position)))
}

/// A client gives a message back, for later or for good.
pub(super) async fn send_back(broker: &Broker, command: &Command) -> Answer {
    let header: ConsumerSendMsgBackRequestHeader = command.header()?;
    let position = u64::try_from(header.offset)
        .map_err(|_| BrokerError::InvalidParameter(format!("offset {} is below 0", header.offset)))?;
    let handle = match &header.extra_info {
        None => None,
        Some(text) => {
            let handle = text.parse().map_err(|error| BrokerError::Illegal(format!("extraInfo: {error}")))?;
            Some(handle_ref(broker, &handle, handle.queue_id, handle.offset)?)
        }
    };
    let topic = header.origin_topic.unwrap_or_default();
    let forward = Forward { group: header.group, topic, handle, position };
    // Older clients send a number that means nothing.
    let retries = header.max_reconsume_times.filter(|_| command.version >= V3_4_9);
    broker.core().send_back(&SendBack { forward, delay_level: header.delay_level, retries }).await?;
    Ok(ok())
}

fn unique_key(raw: &str) -> String {
    properties::get(raw, properties::UNIQ_KEY).unwrap_or_default().to_owned()
}

/// The property that asks for a delay, if any does.
fn delayed_by(raw: &str) -> Option<&'static str> {
    let timed = [properties::TIMER_DELIVER_MS, properties::TIMER_DELAY_MS, properties::TIMER_DELAY_SEC];
    let leveled = properties::get(raw, properties::DELAY).is_some_and(|level| level != "0");
    if leveled { Some(properties::DELAY) } else { timed.into_iter().find(|name| properties::get(raw, name).is_some()) }
}
