//! Stored messages, properties and batches.

use std::net::{IpAddr, SocketAddr};

use bytes::{BufMut, Bytes, BytesMut};
use proptest::prelude::*;
use waybill_protocol::message::properties::{self, PropertyError};
use waybill_protocol::message::{
    BatchItem, Delivery, MAX_PROPERTIES, MessageError, StoredMessage, decode_batch, encode_batch, patch_delivery,
    peek_properties, sys_flag,
};

use crate::support::seeds;

fn encoded(message: &StoredMessage) -> BytesMut {
    let mut out = BytesMut::new();
    message.encode(&mut out).unwrap();
    out
}

fn read(bytes: &[u8]) -> Result<StoredMessage, MessageError> {
    StoredMessage::decode(&mut Bytes::copy_from_slice(bytes))
}

#[test]
fn the_first_form_byte_for_byte() {
    let message = &seeds::messages()[0];
    let mut expected = BytesMut::new();
    expected.put_i32(0); // size, below
    expected.put_u32(0xDAA3_20A7);
    expected.put_u32(0x3610_A686 & 0x7FFF_FFFF); // CRC32 of "hello"
    expected.put_i32(3);
    expected.put_i32(5);
    expected.put_i64(1_000);
    expected.put_i64(1 << 40);
    expected.put_i32(0);
    expected.put_i64(1_796_017_994_566);
    expected.put_slice(&[10, 1, 2, 3, 0, 0, 0x9C, 0x40]);
    expected.put_i64(1_796_017_994_572);
    expected.put_slice(&[10, 1, 2, 3, 0, 0, 0x9C, 0x40]);
    expected.put_i32(1);
    expected.put_i64(0);
    expected.put_slice(b"\0\0\0\x05hello\x06orders");
    expected.put_u16(u16::try_from(message.properties.len()).unwrap());
    expected.put_slice(message.properties.as_bytes());
    let size = u32::try_from(expected.len()).unwrap();
    expected[..4].copy_from_slice(&size.to_be_bytes());
    assert_eq!(encoded(message), expected);
    assert_eq!(read(&expected).as_ref(), Ok(message));
}

#[test]
fn the_second_form_is_for_long_topics_and_hosts_choose_their_bits() {
    for (len, magic) in [(127, 0xDAA3_20A7u32), (128, 0xDAA3_20AB), (32_767, 0xDAA3_20AB)] {
        let message = StoredMessage { topic: "t".repeat(len), ..seeds::messages()[0].clone() };
        let bytes = encoded(&message);
        assert_eq!(bytes[4..8], magic.to_be_bytes());
        assert_eq!(read(&bytes), Ok(message));
    }
    let v6: SocketAddr = "[2001:db8::1]:65535".parse().unwrap();
    let message = StoredMessage {
        born_host: v6,
        sys_flag: sys_flag::STORE_V6 | sys_flag::COMPRESSED,
        ..seeds::messages()[0].clone()
    };
    let again = read(&encoded(&message)).unwrap();
    assert_eq!(again.sys_flag, sys_flag::BORN_V6 | sys_flag::COMPRESSED);
    assert_eq!((again.born_host, again.store_host), (v6, message.store_host));
}

#[test]
fn what_does_not_fit_is_refused_and_leaves_no_trace() {
    let fits = seeds::messages()[0].clone();
    let refused = |message: StoredMessage| {
        let mut out = BytesMut::from(&b"before"[..]);
        let error = message.encode(&mut out).unwrap_err();
        assert_eq!(&out[..], b"before");
        error
    };
    let topic = StoredMessage { topic: "t".repeat(32_768), ..fits.clone() };
    assert_eq!(refused(topic), MessageError::TooLong { field: "topic", len: 32_768, max: 32_767 });
    let properties = StoredMessage { properties: "p".repeat(32_768), ..fits };
    assert_eq!(refused(properties), MessageError::TooLong { field: "properties", len: 32_768, max: 32_767 });
}

#[test]
fn many_messages_share_their_memory() {
    let mut all = BytesMut::new();
    for message in seeds::messages() {
        message.encode(&mut all).unwrap();
    }
    let all = all.freeze();
    let range = all.as_ptr_range();
    let messages = StoredMessage::decode_all(all.clone()).unwrap();
    assert_eq!(messages, seeds::messages());
    assert!(range.contains(&messages[0].body.as_ptr()));
    assert_eq!(StoredMessage::decode_all(Bytes::new()), Ok(vec![]));
    assert!(StoredMessage::decode_all(all.slice(..all.len() - 1)).is_err());
}

#[test]
fn lengths_that_lie() {
    let good = encoded(&seeds::messages()[0]);
    let (body, topic, properties) = (84, 93, 100);
    assert_eq!(good[body + 3], 5, "the positions below are right");
    assert_eq!(good[topic], 6);
    let lied = |at: usize, bytes: &[u8]| {
        let mut bad = good.clone();
        bad[at..at + bytes.len()].copy_from_slice(bytes);
        read(&bad).unwrap_err()
    };
    let minus_one = |field| MessageError::BadNumber { field, value: -1 };
    assert_eq!(lied(0, &[0xFF; 4]), minus_one("size"));
    assert_eq!(lied(body, &[0xFF; 4]), minus_one("body"));
    assert_eq!(lied(topic, &[0xFF]), minus_one("topic"));
    assert_eq!(lied(properties, &[0xFF; 2]), minus_one("properties"));
    for (at, field) in [(0, "bytes"), (body, "body")] {
        assert_eq!(lied(at, &[0x7F, 0xFF, 0xFF, 0xFF]), MessageError::Truncated(field));
    }
    assert_eq!(lied(topic, &[0x7F]), MessageError::Truncated("topic"));
    assert_eq!(lied(properties, &[0x7F, 0xFF]), MessageError::Truncated("properties"));
    assert!(matches!(lied(properties, &[0, 3]), MessageError::SizeMismatch { .. }));
    assert_eq!(lied(4, &[0; 4]), MessageError::BadMagic(0));
    assert_eq!(lied(52, &[0, 1, 0, 0]), MessageError::BadNumber { field: "port", value: 65_536 });
    assert_eq!(lied(88, b"j"), MessageError::BodyChecksum);
    assert_eq!(lied(94, &[0xFF]), MessageError::NotUtf8("topic"));
    // Hosts that are longer than the message has room for.
    assert!(matches!(
        lied(39, &[0x30]),
        MessageError::Truncated(_) | MessageError::BadNumber { .. } | MessageError::SizeMismatch { .. }
    ));
    for size in 0..good.len() {
        let mut bad = BytesMut::from(&good[..size]);
        assert!(read(&bad).is_err(), "cut at {size}");
        if size >= 4 {
            bad[..4].copy_from_slice(&u32::try_from(size).unwrap().to_be_bytes());
            assert!(read(&bad).is_err(), "cut at {size} with a matching size");
        }
    }
}

#[test]
fn odd_but_harmless() {
    let mut message = encoded(&seeds::messages()[0]);
    message[8..12].copy_from_slice(&[0; 4]);
    assert!(read(&message).is_ok(), "no checksum");
    let last = message.len() - 3;
    message[last] = 0xFF;
    assert!(read(&message).unwrap().properties.contains('\u{FFFD}'), "one message must not block its queue");
    assert_eq!(peek_properties(&message), Err(MessageError::NotUtf8("properties")));
}

#[test]
fn patching_changes_what_differs_between_deliveries_only() {
    let delivery =
        Delivery { queue_id: 9, queue_offset: -1, physical_offset: i64::MAX, store_timestamp: 5, reconsume_times: 7 };
    for message in seeds::messages() {
        let mut bytes = encoded(&message);
        bytes.put_slice(b"what lies behind");
        patch_delivery(&mut bytes, &delivery).unwrap();
        assert!(bytes.ends_with(b"what lies behind"));
        assert_eq!(peek_properties(&bytes), Ok(message.properties.as_str()));
        let patched = read(&bytes).unwrap();
        assert_eq!(
            patched,
            StoredMessage {
                queue_id: 9,
                queue_offset: -1,
                physical_offset: i64::MAX,
                store_timestamp: 5,
                reconsume_times: 7,
                ..message
            }
        );
    }
    assert_eq!(patch_delivery(&mut [0; 100], &delivery), Err(MessageError::Truncated("magic")));
    assert_eq!(peek_properties(&[]), Err(MessageError::Truncated("size")));
}

#[test]
fn properties_are_read_and_changed() {
    let mut raw = "a\u{1}1\u{2}b\u{1}\u{2}a\u{1}2\u{2}nonsense\u{2}\u{1}x\u{2}c\u{1}3".to_owned();
    assert_eq!(properties::get(&raw, "a"), Some("2"), "the last counts");
    assert_eq!(properties::get(&raw, "b"), Some(""));
    assert_eq!(properties::get(&raw, "c"), Some("3"), "the last separator may be missing");
    assert_eq!(properties::get(&raw, "nonsense"), None);
    assert_eq!(properties::iter(&raw).collect::<Vec<_>>(), [("a", "1"), ("b", ""), ("a", "2"), ("c", "3")]);
    properties::set(&mut raw, "a", "new");
    assert_eq!(raw, "b\u{1}\u{2}nonsense\u{2}\u{1}x\u{2}c\u{1}3\u{2}a\u{1}new\u{2}");
    properties::remove(&mut raw, "c");
    properties::remove(&mut raw, "not there");
    assert_eq!(raw, "b\u{1}\u{2}nonsense\u{2}\u{1}x\u{2}a\u{1}new\u{2}");
    properties::set(&mut raw, "k\u{2}ey", "v\u{1}\u{2}al");
    assert_eq!(properties::get(&raw, "key"), Some("val"), "separators cannot be smuggled in");
    let mut empty = String::new();
    properties::set(&mut empty, "k", "v");
    assert_eq!(empty, "k\u{1}v\u{2}");
}

#[test]
fn properties_are_written() {
    assert_eq!(properties::encode([("KEYS", "k1 k2"), ("e", "")]).as_deref(), Ok("KEYS\u{1}k1 k2\u{2}e\u{1}\u{2}"));
    assert_eq!(properties::encode([("", "v")]), Err(PropertyError::EmptyName));
    assert_eq!(properties::encode([("n", "\u{1}")]), Err(PropertyError::Separator("n".to_owned())));
    assert_eq!(properties::encode([("n\u{2}", "")]), Err(PropertyError::Separator("n\u{2}".to_owned())));
    assert!(properties::encode([("n", "v".repeat(MAX_PROPERTIES - 3))]).is_ok());
    assert_eq!(
        properties::encode([("n", "v".repeat(MAX_PROPERTIES - 2))]),
        Err(PropertyError::TooLong(MAX_PROPERTIES + 1))
    );
}

#[test]
fn reserved_names() {
    for reserved in [
        "KEYS",
        "TAGS",
        "UNIQ_KEY",
        "POP_CK",
        "1ST_POP_TIME",
        "__BORNHOST",
        "__CRC32#",
        "DLQ_ORIGIN_MESSAGE_ID",
        "ORIGIN_GROUP",
    ] {
        assert!(properties::is_reserved(reserved), "{reserved}");
    }
    for free in [
        "__SHARDINGKEY",
        "TRACE_CONTEXT",
        "INNER_NUM",
        "__transactionId__",
        "CHECK_IMMUNITY_TIME_IN_SECONDS",
        "keys",
        "",
        "mine",
    ] {
        assert!(!properties::is_reserved(free), "{free}");
    }
    assert_eq!(properties::SHARDING_KEY, "__SHARDINGKEY");
}

#[test]
fn a_batch_byte_for_byte() {
    let items = [
        BatchItem { flag: 1, body: Bytes::from_static(b"ab"), properties: "K\u{1}V\u{2}".to_owned() },
        BatchItem::default(),
    ];
    let bytes = encode_batch(&items).unwrap();
    let first = b"\0\0\0\x1C\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\x02ab\0\x04K\x01V\x02";
    let second = b"\0\0\0\x16\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    assert_eq!(bytes, [&first[..], &second[..]].concat());
    assert_eq!(decode_batch(bytes.clone()), Ok(items.to_vec()));
    for end in (0..bytes.len()).filter(|end| *end != 0 && *end != first.len()) {
        assert!(decode_batch(bytes.slice(..end)).is_err(), "cut at {end}");
    }
    for at in [0, 16, 22] {
        for lie in [[0xFF; 4], [0x7F, 0xFF, 0xFF, 0xFF], [0x80, 0, 0, 0], [0, 0, 0, 0]] {
            let mut bad = bytes.to_vec();
            let width = if at == 22 { 2 } else { 4 };
            bad[at..at + width].copy_from_slice(&lie[..width]);
            assert!(decode_batch(bad.into()).is_err(), "{at} {lie:?}");
        }
    }
    let long = BatchItem { properties: "p".repeat(32_768), ..Default::default() };
    assert!(matches!(encode_batch(&[long]), Err(MessageError::TooLong { field: "properties", .. })));
}

fn any_host() -> impl Strategy<Value = SocketAddr> {
    (any::<IpAddr>(), any::<u16>()).prop_map(|(ip, port)| SocketAddr::new(ip, port))
}

fn any_message() -> impl Strategy<Value = StoredMessage> {
    let text = (".{0,200}", ".{0,300}", proptest::collection::vec(any::<u8>(), 0..300));
    (any::<[i32; 4]>(), any::<[i64; 5]>(), any_host(), any_host(), text).prop_map(
        |([queue_id, flag, bits, reconsume_times], longs, born_host, store_host, (topic, properties, body))| {
            StoredMessage {
                topic,
                queue_id,
                flag,
                queue_offset: longs[0],
                physical_offset: longs[1],
                sys_flag: (bits & !0x30)
                    | if born_host.is_ipv6() { 0x10 } else { 0 }
                    | if store_host.is_ipv6() { 0x20 } else { 0 },
                born_timestamp: longs[2],
                born_host,
                store_timestamp: longs[3],
                store_host,
                reconsume_times,
                prepared_transaction_offset: longs[4],
                body: body.into(),
                properties,
            }
        },
    )
}

proptest! {
    #[test]
    fn messages_go_there_and_back(messages in proptest::collection::vec(any_message(), 1..4)) {
        let mut out = BytesMut::new();
        for message in &messages {
            message.encode(&mut out).unwrap();
        }
        prop_assert_eq!(peek_properties(&out), Ok(messages[0].properties.as_str()));
        prop_assert_eq!(StoredMessage::decode_all(out.freeze()), Ok(messages));
    }

    #[test]
    fn properties_go_there_and_back(pairs in proptest::collection::vec(("[^\u{1}\u{2}]{1,20}", "[^\u{1}\u{2}]{0,20}"), 0..10)) {
        let raw = properties::encode(pairs.iter().map(|(n, v)| (n, v))).unwrap();
        prop_assert!(properties::iter(&raw).eq(pairs.iter().map(|(n, v)| (n.as_str(), v.as_str()))));
        for (name, _) in &pairs {
            let last = pairs.iter().rev().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
            prop_assert_eq!(properties::get(&raw, name), last);
        }
    }

    #[test]
    fn batches_go_there_and_back(parts in proptest::collection::vec((any::<i32>(), proptest::collection::vec(any::<u8>(), 0..50), ".{0,50}"), 0..6)) {
        let items: Vec<_> = parts.into_iter().map(|(flag, body, properties)| BatchItem { flag, body: body.into(), properties }).collect();
        prop_assert_eq!(decode_batch(encode_batch(&items).unwrap()), Ok(items));
    }

    #[test]
    fn any_bytes_are_survived(data in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&data);
        let _ = peek_properties(&data);
        let _ = decode_batch(data.into());
    }
}
