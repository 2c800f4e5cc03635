//! What the fuzz targets run, one function each. `fuzz/` feeds them what libFuzzer invents, `tests/mutations.rs` a bounded,
//! repeatable stream of damaged valid inputs. Each panics if a promise of the crate is broken: nothing else may panic.

use bytes::{Bytes, BytesMut};
use waybill_protocol::filter::{Condition, FilterError};
use waybill_protocol::handle::ReceiptHandle;
use waybill_protocol::message::{self, StoredMessage, properties};
use waybill_protocol::remoting::{self, Command, ExtFields, Header, JsonBody, SerializeType, pop_info};

/// A target and its name.
pub type Target = (&'static str, fn(&[u8]));

/// All targets; `fuzz/fuzz_targets` has one file for each.
pub const ALL: &[Target] = &[
    ("frame", frame),
    ("stored_message", stored_message),
    ("batch", batch),
    ("receipt_handle", receipt_handle),
    ("properties", property_text),
    ("pop_info", pop_lists),
    ("batch_ack", batch_ack),
    ("batch_change", batch_change),
    ("bodies", bodies),
    ("header", header),
    ("filter", filter),
];

const MAX_FRAME: usize = 1 << 20;

/// A stream of frames: what is read can be written in both forms and reads the same again.
pub fn frame(data: &[u8]) {
    let mut buf = BytesMut::from(data);
    loop {
        let before = buf.len();
        match remoting::decode(&mut buf, MAX_FRAME) {
            Ok(Some(command)) => {
                assert!(before - buf.len() >= 8 + command.body.len(), "a frame is its head and its body");
                rewrite(&command);
            }
            Ok(None) => {
                assert_eq!(buf.len(), before, "nothing is taken before a frame is whole");
                return;
            }
            Err(_) => return,
        }
    }
}

fn rewrite(command: &Command) {
    let mut out = BytesMut::new();
    remoting::encode(command, &mut out);
    let again = remoting::decode(&mut out, usize::MAX).expect("own frames are frames").expect("and whole");
    assert!(out.is_empty());
    let mut expected = command.clone();
    expected.serialize = again.serialize;
    if again.serialize == SerializeType::RocketMq && expected.remark.as_deref() == Some("") {
        expected.remark = None; // the binary form does not tell them apart
    }
    assert_eq!(again, expected);
}

/// A stored message: what is read can be written and reads the same again; it can be patched in place.
pub fn stored_message(data: &[u8]) {
    let mut buf = Bytes::copy_from_slice(data);
    let peeked = message::peek_properties(data).map(str::to_owned);
    let Ok(read) = StoredMessage::decode(&mut buf) else {
        let _ = StoredMessage::decode_all(Bytes::copy_from_slice(data));
        return;
    };
    if let Ok(peeked) = peeked {
        assert_eq!(peeked, read.properties);
    }
    let mut out = BytesMut::new();
    if read.encode(&mut out).is_err() {
        // Only replacement characters can make the properties longer than they were.
        assert!(read.properties.contains(char::REPLACEMENT_CHARACTER));
        return;
    }
    let mut patched = out.clone();
    let again = StoredMessage::decode(&mut out.freeze()).expect("own messages are messages");
    assert_eq!(again, read);

    let delivery = message::Delivery {
        queue_id: 7,
        queue_offset: 11,
        physical_offset: 22,
        store_timestamp: 44,
        reconsume_times: 33,
    };
    message::patch_delivery(&mut patched, &delivery).expect("a message can be patched");
    let patched = StoredMessage::decode(&mut patched.freeze()).expect("and is one afterwards");
    assert_eq!(
        patched,
        StoredMessage {
            queue_id: 7,
            queue_offset: 11,
            physical_offset: 22,
            store_timestamp: 44,
            reconsume_times: 33,
            ..read
        }
    );
}

/// The body of a batch.
pub fn batch(data: &[u8]) {
    if let Ok(items) = message::decode_batch(Bytes::copy_from_slice(data)) {
        let written = message::encode_batch(&items).expect("what was read can be written");
        assert_eq!(written.len(), data.len());
        assert_eq!(message::decode_batch(written), Ok(items));
    }
}

/// A receipt handle.
pub fn receipt_handle(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(handle) = text.parse::<ReceiptHandle>() {
        let _ = handle.next_visible_time();
        let _ = handle.real_topic("group", "topic");
        assert_eq!(handle.to_string().parse(), Ok(handle));
    }
}

/// Properties: reading, changing and writing agree with each other.
pub fn property_text(data: &[u8]) {
    let Ok(raw) = std::str::from_utf8(data) else { return };
    for (name, value) in properties::iter(raw) {
        assert!(properties::get(raw, name).is_some(), "what is listed is found");
        assert!(!value.contains('\u{2}'));
    }
    let mut changed = raw.to_owned();
    properties::set(&mut changed, "POP_CK", "new value");
    assert_eq!(properties::get(&changed, "POP_CK"), Some("new value"));
    let others = |raw: &str| {
        let pairs = properties::iter(raw).filter(|(name, _)| *name != "POP_CK");
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect::<Vec<_>>()
    };
    assert_eq!(others(&changed), others(raw), "no other property changes");
    properties::remove(&mut changed, "POP_CK");
    assert_eq!(properties::get(&changed, "POP_CK"), None);
    if let Ok(written) = properties::encode(properties::iter(raw)) {
        assert!(properties::iter(&written).eq(properties::iter(raw)));
    }
}

/// The three lists in the answer to a pop.
pub fn pop_lists(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(list) = pop_info::decode_start_offsets(text) {
        assert_eq!(pop_info::decode_start_offsets(&pop_info::encode_start_offsets(&list)), Ok(list));
    }
    if let Ok(list) = pop_info::decode_msg_offsets(text) {
        assert_eq!(pop_info::decode_msg_offsets(&pop_info::encode_msg_offsets(&list)), Ok(list));
    }
    if let Ok(list) = pop_info::decode_order_counts(text) {
        assert_eq!(pop_info::decode_order_counts(&pop_info::encode_order_counts(&list)), Ok(list));
    }
}

/// The body of a batch ack.
pub fn batch_ack(data: &[u8]) {
    body::<remoting::BatchAckBody>(data);
    if let Ok(body) = remoting::BatchAckBody::from_json(data) {
        for ack in &body.acks {
            assert!(ack.offsets().count() <= ack.bit_set.len());
        }
    }
}

/// The body of a batch change and of its answer.
pub fn batch_change(data: &[u8]) {
    body::<remoting::BatchChangeInvisibleBody>(data);
    body::<remoting::BatchChangeInvisibleResult>(data);
    body::<remoting::EntryCodes>(data);
}

/// All other bodies.
pub fn bodies(data: &[u8]) {
    body::<remoting::TopicRouteData>(data);
    body::<remoting::ClusterInfo>(data);
    body::<remoting::TopicList>(data);
    body::<remoting::TopicConfig>(data);
    body::<remoting::TopicConfigTable>(data);
    body::<remoting::TopicConfigList>(data);
    body::<remoting::SubscriptionGroupConfig>(data);
    body::<remoting::SubscriptionGroupTable>(data);
    body::<remoting::SubscriptionGroupList>(data);
    body::<remoting::HeartbeatData>(data);
    body::<remoting::ConsumerList>(data);
}

fn body<B: JsonBody + PartialEq + std::fmt::Debug>(data: &[u8]) {
    if let Ok(read) = B::from_json(data) {
        let again = B::from_json(&read.to_json()).expect("own JSON is JSON");
        assert_eq!(again, read);
    }
}

/// Every header, from fields written like properties (`name` 0x01 `value` 0x02).
pub fn header(data: &[u8]) {
    let Ok(raw) = std::str::from_utf8(data) else { return };
    let ext: ExtFields = properties::iter(raw).collect();
    macro_rules! each {
        ($($header:ident)*) => { $( typed::<remoting::$header>(&ext); )* };
    }
    each! {
        SendMessageRequestHeader SendMessageResponseHeader ConsumerSendMsgBackRequestHeader
        PopMessageRequestHeader PopMessageResponseHeader AckMessageRequestHeader ChangeInvisibleTimeRequestHeader
        ChangeInvisibleTimeResponseHeader BatchChangeInvisibleTimeRequestHeader NotificationRequestHeader
        NotificationResponseHeader GetRouteInfoRequestHeader CreateTopicRequestHeader DeleteTopicRequestHeader
        GetTopicConfigRequestHeader GetSubscriptionGroupConfigRequestHeader DeleteSubscriptionGroupRequestHeader
        QueryConsumerOffsetRequestHeader UpdateConsumerOffsetRequestHeader OffsetResponseHeader QueueRequestHeader
        SearchOffsetRequestHeader UnregisterClientRequestHeader GetConsumerListByGroupRequestHeader
    }
    if let Ok(long) = remoting::SendMessageRequestHeader::decode_v1(&ext) {
        let mut out = ExtFields::new();
        long.encode_v1(&mut out);
        assert_eq!(remoting::SendMessageRequestHeader::decode_v1(&out), Ok(long));
    }
}

fn typed<H: Header + PartialEq + std::fmt::Debug>(ext: &ExtFields) {
    if let Ok(read) = H::decode(ext) {
        let mut out = ExtFields::new();
        read.encode(&mut out);
        assert_eq!(H::decode(&out), Ok(read));
    }
}

/// A filter: read or refused with a place in it; what was read judges any message.
pub fn filter(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match Condition::parse(&text) {
        Ok(condition) => {
            for value in ["", "5", "true", "x"] {
                let _ = condition.matches([("a", value), ("b", value), ("TAGS", value)]);
            }
            let _ = condition.matches([]);
        }
        Err(FilterError::Syntax { at, .. }) => assert!(at <= text.chars().count() + 1),
        Err(FilterError::TooLong(bytes)) => assert_eq!(bytes, text.len()),
        Err(FilterError::TooMany(operands)) => assert!(operands <= text.len()),
    }
}
