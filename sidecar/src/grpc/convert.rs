//! Messages between the form of the gRPC interface and the form that brokers store.

use bytes::Bytes;
use md5::{Digest as _, Md5};
use prost_types::Timestamp;
use waybill_protocol::{
    grpc::v2::{DeadLetterQueue, Digest, DigestType, Encoding, Message, MessageType, Resource, SystemProperties},
    message::{StoredMessage, host_text, properties, properties::PropertyError, sys_flag},
};

use super::errors::Problem;
use super::{body, validate};
use crate::backend::{OutgoingMessage, PoppedMessage};

/// The stored form of a message. `peer` is the client's host, for messages that do not name theirs.
pub(super) fn outgoing(message: Message, peer: &str) -> Result<OutgoingMessage, Problem> {
    let system = message.system_properties.unwrap_or_default();
    let born_host = if system.born_host.is_empty() { peer } else { &system.born_host };
    let keys = system.keys.iter().filter(|key| !key.is_empty()).map(String::as_str).collect::<Vec<_>>().join(" ");
    let delivery_ms = validate::delivery_ms(&system).map(|ms| ms.to_string()).unwrap_or_default();
    let attempt = system.delivery_attempt.filter(|attempt| *attempt > 0).map(|n| n.to_string()).unwrap_or_default();

    let transaction = system.message_type() == MessageType::Transaction;
    // As in Apache's proxy: producers of the new protocol have no group, so the topic stands for it.
    let group = message.topic.as_ref().filter(|_| transaction).map_or("", |topic| &topic.name);
    let recovery = system.orphaned_transaction_recovery_duration.as_ref().filter(|_| transaction);
    let recovery = recovery.map(|d| d.seconds.saturating_add(i64::from(d.nanos > 0)).to_string()).unwrap_or_default();

    let own = [
        (properties::TRAN_MSG, if transaction { "true" } else { "" }),
        (properties::PGROUP, group),
        (properties::CHECK_IMMUNITY_TIME_IN_SECONDS, &recovery),
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
    let properties = properties::encode(all).map_err(|error| match error {
        PropertyError::TooLong(_) => Problem::PropertiesTooLarge,
        PropertyError::EmptyName | PropertyError::Separator(_) => Problem::TextControl("a property"),
    })?;
    Ok(OutgoingMessage { body: message.body, properties })
}

/// The flags of a message to be stored.
#[must_use]
pub(super) fn sys_flag_of(system: &SystemProperties) -> i32 {
    let compressed = if system.body_encoding() == Encoding::Gzip { sys_flag::COMPRESSED } else { 0 };
    let half = if system.message_type() == MessageType::Transaction { sys_flag::TRANSACTION_PREPARED } else { 0 };
    compressed | half
}

/// When a message was made, in milliseconds since the epoch; now, if the client does not say.
#[must_use]
pub(super) fn born_ms(system: &SystemProperties, now_ms: i64) -> i64 {
    let Some(born) = &system.born_timestamp else { return now_ms };
    let ms = born.seconds.saturating_mul(1_000).saturating_add(i64::from(born.nanos / 1_000_000));
    if ms > 0 { ms } else { now_ms }
}

/// The form in which a client gets a message. `body_max`: see [`message`].
#[must_use]
pub(super) fn incoming(popped: PoppedMessage, body_max: usize) -> Message {
    let PoppedMessage { message: stored, handle, message_id } = popped;
    let mut message = message(stored, message_id, body_max);
    if let Some(system) = &mut message.system_properties {
        system.receipt_handle = Some(handle.to_string());
    }
    message
}

/// The same of a message that is not delivered. The body stays as it is stored and is labelled with its encoding; but what clients cannot
/// read is decompressed, if that makes at most `body_max` bytes.
#[must_use]
pub(super) fn message(stored: StoredMessage, message_id: String, body_max: usize) -> Message {
    let (body, encoding) = readable(&stored, &message_id, body_max);
    let mut system = SystemProperties {
        message_id,
        body_digest: Some(digest(&body)),
        body_encoding: encoding.into(),
        message_type: MessageType::Normal.into(),
        born_timestamp: Some(timestamp(stored.born_timestamp)),
        store_timestamp: Some(timestamp(stored.store_timestamp)),
        store_host: host_text(stored.store_host),
        queue_id: stored.queue_id,
        queue_offset: Some(stored.queue_offset),
        delivery_attempt: Some(stored.reconsume_times.saturating_add(1)),
        ..SystemProperties::default()
    };
    let topic = Some(Resource { resource_namespace: String::new(), name: stored.topic.clone() });
    let mut message = Message { topic, body, ..Message::default() };
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
            // Set by this sidecar, not by the user.
            properties::CHECK_IMMUNITY_TIME_IN_SECONDS if stored.sys_flag & sys_flag::TRANSACTION != 0 => {}
            properties::TIMER_DELIVER_MS => {
                delayed = true;
                system.delivery_timestamp = value.parse().ok().map(timestamp).or(system.delivery_timestamp);
            }
            // When the broker took it to be due; the producer's own word goes before it.
            properties::TIMER_OUT_MS => {
                delayed = true;
                system.delivery_timestamp = system.delivery_timestamp.or(value.parse().ok().map(timestamp));
            }
            properties::DELAY | properties::TIMER_DELAY_SEC | properties::TIMER_DELAY_MS => delayed = true,
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
    let mut digits = [0; 2 * 16];
    // Sixteen bytes have thirty-two digits, which are ASCII: nothing of this can fail.
    let _fits = hex::encode_to_slice(Md5::digest(body), &mut digits);
    digits.make_ascii_uppercase();
    let checksum = std::str::from_utf8(&digits).unwrap_or_default().to_owned();
    Digest { r#type: DigestType::Md5.into(), checksum }
}

/// The body as it goes to a client, and its encoding. What nobody can make readable goes as it is, under the only label there is for it:
/// the client says that it is corrupt, and it ends as a dead letter instead of being lost.
fn readable(stored: &StoredMessage, message_id: &str, body_max: usize) -> (Bytes, Encoding) {
    if stored.sys_flag & sys_flag::COMPRESSED == 0 {
        return (stored.body.clone(), Encoding::Identity);
    }
    match body::decompressed(&stored.body, body_max) {
        Ok(Some(body)) => (body, Encoding::Identity),
        Ok(None) => (stored.body.clone(), Encoding::Gzip),
        Err(error) => {
            tracing::warn!(topic = stored.topic, message_id, %error, "a compressed body goes to clients as it is");
            (stored.body.clone(), Encoding::Gzip)
        }
    }
}

/// A moment from milliseconds since the epoch.
#[must_use]
pub(super) fn timestamp(ms: i64) -> Timestamp {
    let nanos = i32::try_from(ms.rem_euclid(1_000)).unwrap_or_default() * 1_000_000;
    Timestamp { seconds: ms.div_euclid(1_000), nanos }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(pairs: &[(&str, &str)]) -> PoppedMessage {
        let message = StoredMessage {
            topic: "t".into(),
            queue_id: 2,
            flag: 0,
            queue_offset: 7,
            physical_offset: 42,
            sys_flag: 0,
            born_timestamp: 1_700_000_000_123,
            born_host: "10.0.0.1:5000".parse().expect("an address"),
            store_timestamp: 1_700_000_000_456,
            store_host: "10.0.0.2:10911".parse().expect("an address"),
            reconsume_times: 2,
            prepared_transaction_offset: 0,
            body: "hello".into(),
            properties: properties::encode(pairs.iter().copied()).expect("properties"),
        };
        let handle = "7 1700000000000 60000 0 0 broker-a 2 7 42".parse().expect("a handle");
        PoppedMessage { message, handle, message_id: "ID".into() }
    }

    fn system(pairs: &[(&str, &str)]) -> SystemProperties {
        incoming(stored(pairs), 5).system_properties.expect("system properties")
    }

    #[test]
    fn a_message_comes_back_as_it_was_sent() {
        let system = SystemProperties {
            tag: Some("T".into()),
            keys: vec!["k1".into(), String::new(), "k 2".into()],
            message_id: "ID".into(),
            born_host: "host-1".into(),
            message_group: Some("g".into()),
            trace_context: Some("00-abc".into()),
            ..Default::default()
        };
        let user_properties = [("größe", "中=1"), ("a/b", ""), ("", "dropped")];
        let sent = Message {
            topic: Some(Resource { resource_namespace: String::new(), name: "t".into() }),
            user_properties: user_properties.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
            system_properties: Some(system),
            body: "hello".into(),
        };
        let out = outgoing(sent, "10.0.0.9").expect("it can be sent");
        let mut popped = stored(&[]);
        popped.message.properties = out.properties;
        let got = incoming(popped, 5);
        assert_eq!(got.topic.map(|topic| topic.name), Some("t".into()));
        assert_eq!(got.user_properties, [("größe", "中=1"), ("a/b", "")].map(|(k, v)| (k.into(), v.into())).into());
        let system = got.system_properties.expect("system properties");
        assert_eq!(system.tag(), "T");
        assert_eq!(system.keys, ["k1", "k", "2"], "keys are stored joined by spaces");
        assert_eq!(system.message_id, "ID");
        assert_eq!(system.born_host, "host-1");
        assert_eq!(system.message_group(), "g");
        assert_eq!(system.trace_context(), "00-abc");
        assert_eq!(system.message_type(), MessageType::Fifo);
    }

    #[test]
    fn what_the_broker_knows() {
        let system = system(&[]);
        assert_eq!(system.message_id, "ID");
        let digest = system.body_digest.clone().expect("a digest");
        assert_eq!((digest.r#type(), digest.checksum.as_str()), (DigestType::Md5, "5D41402ABC4B2A76B9719D911017C592"));
        assert_eq!(system.body_encoding(), Encoding::Identity);
        assert_eq!(system.message_type(), MessageType::Normal);
        assert_eq!(system.born_timestamp, Some(Timestamp { seconds: 1_700_000_000, nanos: 123_000_000 }));
        assert_eq!(system.store_timestamp, Some(Timestamp { seconds: 1_700_000_000, nanos: 456_000_000 }));
        assert_eq!(system.born_host, "10.0.0.1");
        assert_eq!(system.store_host, "10.0.0.2:10911");
        assert_eq!(system.receipt_handle(), "7 1700000000000 60000 0 0 broker-a 2 7 42");
        assert_eq!((system.queue_id, system.queue_offset()), (2, 7));
        assert_eq!(system.delivery_attempt(), 3);
        assert_eq!(system.invisible_duration, None);
    }

    #[test]
    fn types_and_times() {
        let delay = system(&[("TIMER_DELIVER_MS", "1700000000000")]);
        assert_eq!(delay.message_type(), MessageType::Delay);
        assert_eq!(delay.delivery_timestamp, Some(Timestamp { seconds: 1_700_000_000, nanos: 0 }));
        let odd = system(&[("TIMER_DELIVER_MS", "soon")]);
        assert_eq!((odd.message_type(), odd.delivery_timestamp), (MessageType::Delay, None));
        assert_eq!(system(&[("DELAY", "3")]).message_type(), MessageType::Delay);
        for order in [[0, 1], [1, 0]] {
            let both = [("TIMER_OUT_MS", "1700000001000"), ("TIMER_DELIVER_MS", "1700000000500")];
            let said = system(&order.map(|at| both[at])).delivery_timestamp;
            assert_eq!(said, Some(Timestamp { seconds: 1_700_000_000, nanos: 500_000_000 }), "as the producer said it");
        }
        let relative = system(&[("TIMER_DELAY_SEC", "5"), ("TIMER_OUT_MS", "1700000001000")]);
        assert_eq!(relative.message_type(), MessageType::Delay);
        assert_eq!(relative.delivery_timestamp, Some(Timestamp { seconds: 1_700_000_001, nanos: 0 }));
        assert_eq!(system(&[("TRAN_MSG", "true"), ("DELAY", "3")]).message_type(), MessageType::Transaction);
        assert_eq!(system(&[("TRAN_MSG", "false")]).message_type(), MessageType::Normal);
    }

    #[test]
    fn dead_letters_say_where_they_come_from() {
        let dead = system(&[("DLQ_ORIGIN_TOPIC", "t"), ("DLQ_ORIGIN_MESSAGE_ID", "M")]).dead_letter_queue;
        assert_eq!(dead, Some(DeadLetterQueue { topic: "t".into(), message_id: "M".into() }));
        assert_eq!(system(&[("DLQ_ORIGIN_TOPIC", "t")]).dead_letter_queue, None);
    }

    #[test]
    fn gzip_is_labelled_and_left_alone_and_what_clients_cannot_read_is_decompressed() {
        let gzip = SystemProperties { body_encoding: Encoding::Gzip.into(), ..Default::default() };
        assert_eq!(sys_flag_of(&gzip), sys_flag::COMPRESSED);
        let gzip = "1f8b0800000000000003cb48cdc9c9070086a6103605000000";
        let zlib = "785ecb48cdc9c90700062c0215";
        let got = |flag: i32, digits: &str, body_max: usize| {
            let mut popped = stored(&[]);
            popped.message.sys_flag = flag;
            popped.message.body = hex::decode(digits).expect("digits").into();
            let got = incoming(popped, body_max);
            let system = got.system_properties.expect("system properties");
            assert_eq!(system.body_digest, Some(digest(&got.body)), "of what is transmitted");
            (hex::encode(&got.body), system.body_encoding())
        };
        let hello = hex::encode("hello");
        assert_eq!(got(sys_flag::COMPRESSED, gzip, 5), (gzip.to_owned(), Encoding::Gzip));
        for flag in [sys_flag::COMPRESSED | sys_flag::COMPRESSION_ZLIB, sys_flag::COMPRESSED] {
            assert_eq!(got(flag, zlib, 5), (hello.clone(), Encoding::Identity), "new and old producers");
        }
        assert_eq!(got(sys_flag::COMPRESSED, zlib, 4), (zlib.to_owned(), Encoding::Gzip), "too large");
        assert_eq!(got(sys_flag::COMPRESSED, &hello, 5), (hello.clone(), Encoding::Gzip), "in no format");
        assert_eq!(got(0, zlib, 5), (zlib.to_owned(), Encoding::Identity), "nobody says that it is compressed");
    }

    #[test]
    fn strange_numbers_do_no_harm() {
        let mut popped = stored(&[]);
        popped.message.reconsume_times = i32::MAX;
        popped.message.born_timestamp = i64::MIN;
        popped.message.store_timestamp = i64::MAX;
        let system = incoming(popped, 5).system_properties.expect("system properties");
        assert_eq!(system.delivery_attempt(), i32::MAX);
        assert!(system.born_timestamp.is_some_and(|at| at.nanos >= 0));
        assert_eq!(born_ms(&SystemProperties { born_timestamp: Some(timestamp(-5)), ..Default::default() }, 9), 9);
        assert_eq!(born_ms(&SystemProperties { born_timestamp: Some(timestamp(5)), ..Default::default() }, 9), 5);
        assert_eq!(born_ms(&SystemProperties::default(), 9), 9);
    }

    #[test]
    fn properties_must_fit_into_sixteen_bits() {
        let with = |bytes: usize| {
            let system = SystemProperties { trace_context: Some("x".repeat(bytes)), ..Default::default() };
            outgoing(Message { system_properties: Some(system), ..Default::default() }, "")
        };
        assert!(with(32_000).is_ok());
        assert_eq!(with(33_000).map(|out| out.properties.len()), Err(Problem::PropertiesTooLarge));
    }
}
