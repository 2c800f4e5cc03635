//! Messages between the form of the gRPC interface and the form that brokers store.

use md5::{Digest as _, Md5};
use prost_types::Timestamp;
use waybill_protocol::{
    grpc::v2::{DeadLetterQueue, Digest, DigestType, Encoding, Message, MessageType, Resource, SystemProperties},
    message::{StoredMessage, properties, sys_flag},
};

use super::errors::Problem;
use super::validate;
use crate::backend::{OutgoingMessage, PoppedMessage};
use crate::limits;

/// The stored form of a message. `peer` is the client's host, for messages that do not name theirs.
pub(super) fn outgoing(message: Message, peer: &str) -> Result<OutgoingMessage, Problem> {
    let system = message.system_properties.unwrap_or_default();
    let born_host = if system.born_host.is_empty() { peer } else { &system.born_host };
    let keys = system.keys.iter().filter(|key| !key.is_empty()).map(String::as_str).collect::<Vec<_>>().join(" ");
    let delivery_ms = validate::delivery_ms(&system).map(|ms| ms.to_string()).unwrap_or_default();
    let attempt = system.delivery_attempt.filter(|attempt| *attempt > 0).map(|n| n.to_string()).unwrap_or_default();

    let own = [
        (properties::TAGS, system.tag()),
        (properties::KEYS, &keys),
        (properties::UNIQ_KEY, &system.message_id),
        (properties::TIMER_DELIVER_MS, &delivery_ms),
        (properties::RECONSUME_TIME, &attempt),
        (properties::SHARDING_KEY, system.message_group()),
        (properties::TRACE_CONTEXT, system.trace_context()),
        (properties::BORN_HOST, born_host),
    ];
    let user = message.user_properties.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    // An empty name cannot be stored, and an empty value of our own means "not set".
    let user = user.filter(|(key, _)| !key.is_empty());
    let all = user.chain(own.into_iter().filter(|(_, value)| !value.is_empty()));
    let properties = properties::encode(all).map_err(|_| Problem::TextControl("a property"))?;
    if properties.len() > limits::PROPERTIES_BYTES {
        return Err(Problem::PropertiesTooLarge);
    }
    Ok(OutgoingMessage { body: message.body, properties })
}

/// The flags of a message to be stored.
#[must_use]
pub(super) fn sys_flag_of(system: &SystemProperties) -> i32 {
    if system.body_encoding() == Encoding::Gzip { sys_flag::COMPRESSED } else { 0 }
}

/// When a message was made, in milliseconds since the epoch; now, if the client does not say.
#[must_use]
pub(super) fn born_ms(system: &SystemProperties, now_ms: i64) -> i64 {
    let Some(born) = &system.born_timestamp else { return now_ms };
    let ms = born.seconds.saturating_mul(1_000).saturating_add(i64::from(born.nanos / 1_000_000));
    if ms > 0 { ms } else { now_ms }
}

/// The form in which a client gets a message. The body stays as it is stored and is labelled with its encoding.
#[must_use]
pub(super) fn incoming(popped: PoppedMessage) -> Message {
    let PoppedMessage { message: stored, handle, message_id } = popped;
    let mut message = Message {
        topic: Some(Resource { resource_namespace: String::new(), name: stored.topic.clone() }),
        body: stored.body.clone(),
        ..Message::default()
    };
    let mut system = SystemProperties {
        message_id,
        body_digest: Some(digest(&stored.body)),
        body_encoding: encoding(stored.sys_flag).into(),
        message_type: MessageType::Normal.into(),
        born_timestamp: Some(timestamp(stored.born_timestamp)),
        store_timestamp: Some(timestamp(stored.store_timestamp)),
        store_host: stored.store_host.to_string(),
        receipt_handle: Some(handle.to_string()),
        queue_id: stored.queue_id,
        queue_offset: Some(stored.queue_offset),
        delivery_attempt: Some(stored.reconsume_times.saturating_add(1)),
        ..SystemProperties::default()
    };
    read_properties(&stored, &mut message, &mut system);
    if system.born_host.is_empty() {
        system.born_host = stored.born_host.ip().to_string();
    }
    message.system_properties = Some(system);
    message
}

fn read_properties(stored: &StoredMessage, message: &mut Message, system: &mut SystemProperties) {
    let (mut prepared, mut delayed) = (false, false);
    let mut dead = DeadLetterQueue::default();
    for (name, value) in properties::iter(&stored.properties) {
        match name {
            properties::TAGS => system.tag = Some(value.to_owned()),
            properties::KEYS => {
                system.keys = value.split(' ').filter(|key| !key.is_empty()).map(str::to_owned).collect()
            }
            properties::SHARDING_KEY => system.message_group = Some(value.to_owned()),
            properties::TRACE_CONTEXT => system.trace_context = Some(value.to_owned()),
            properties::BORN_HOST => system.born_host = value.to_owned(),
            properties::TRAN_MSG => prepared = value == "true",
            properties::TIMER_DELIVER_MS => {
                delayed = true;
                system.delivery_timestamp = value.parse().ok().map(timestamp);
            }
            properties::DELAY | properties::TIMER_DELAY_SEC => delayed = true,
            properties::DLQ_ORIGIN_TOPIC => dead.topic = value.to_owned(),
            properties::DLQ_ORIGIN_MESSAGE_ID => dead.message_id = value.to_owned(),
            _ if validate::is_reserved(name) => {}
            _ => {
                message.user_properties.insert(name.to_owned(), value.to_owned());
            }
        }
    }
    let message_type = match (prepared, delayed, &system.message_group) {
        (true, _, _) => MessageType::Transaction,
        (_, true, _) => MessageType::Delay,
        (_, _, Some(_)) => MessageType::Fifo,
        _ => MessageType::Normal,
    };
    system.set_message_type(message_type);
    if !dead.topic.is_empty() && !dead.message_id.is_empty() {
        system.dead_letter_queue = Some(dead);
    }
}

/// MD5 over the body as it is transmitted, in upper-case digits: all clients check it, one insists that it is there.
fn digest(body: &[u8]) -> Digest {
    Digest { r#type: DigestType::Md5.into(), checksum: hex::encode_upper(Md5::digest(body)) }
}

fn encoding(flag: i32) -> Encoding {
    if flag & sys_flag::COMPRESSED != 0 { Encoding::Gzip } else { Encoding::Identity }
}

/// A moment from milliseconds since the epoch.
#[must_use]
pub(super) fn timestamp(ms: i64) -> Timestamp {
    let nanos = i32::try_from(ms.rem_euclid(1_000)).unwrap_or_default() * 1_000_000;
    Timestamp { seconds: ms.div_euclid(1_000), nanos }
}
