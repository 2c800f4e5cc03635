//! Valid inputs for each target: what mutations and the corpus of the fuzzer start from.

use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use waybill_protocol::handle::{ReceiptHandle, TopicType};
use waybill_protocol::message::{BatchItem, StoredMessage, encode_batch, properties};
use waybill_protocol::remoting::codes::request;
use waybill_protocol::remoting::{
    BatchAck, BatchAckBody, BatchChangeInvisibleBody, BatchChangeInvisibleEntry, BitSet, BrokerData, Command,
    ExtFields, Header, HeartbeatData, JsonBody, PopMessageRequestHeader, QueueData, SendMessageRequestHeader,
    SerializeType, SubscriptionGroupConfig, TopicConfig, TopicRouteData, encode,
};

/// Valid inputs of a target.
pub fn of(target: &str) -> Vec<Vec<u8>> {
    match target {
        "frame" => frames(),
        "stored_message" => messages().iter().map(encoded).collect(),
        "batch" => vec![batch()],
        "receipt_handle" => handles(),
        "properties" => vec![property_text().into_bytes(), b"a\x01b".to_vec(), b"\x01\x02\x02k\x01\x02".to_vec()],
        "pop_info" => [&b"0 0 7;2 3 9"[..], b"1 0 1,2,5;0 1 9", b"0 qo2%11 3;0 2 0"].map(<[u8]>::to_vec).to_vec(),
        "batch_ack" => vec![batch_ack().to_json().to_vec()],
        "batch_change" => vec![batch_change().to_json().to_vec()],
        "bodies" => bodies(),
        "header" => vec![send_fields(), pop_fields()],
        "filter" => [
            "(a > 5 AND b = 'Grüße') OR NOT (c IS NOT NULL AND TAGS IN ('C', 'it''s'))",
            "a NOT BETWEEN -1.5e3 AND 3L AND b <> TRUE",
        ]
        .map(|text| text.as_bytes().to_vec())
        .to_vec(),
        other => panic!("no seeds for {other}"),
    }
}

pub fn property_text() -> String {
    properties::encode([("KEYS", "k1 k2"), ("TAGS", "TagA"), ("greeting", "Grüße 你好 🚚"), ("UNIQ_KEY", "01AA")])
        .unwrap()
}

pub fn send_header() -> SendMessageRequestHeader {
    SendMessageRequestHeader {
        producer_group: "p".to_owned(),
        topic: "orders".to_owned(),
        default_topic: "TBW102".to_owned(),
        default_topic_queue_nums: 4,
        queue_id: -1,
        sys_flag: 0,
        born_timestamp: 1_796_017_994_566,
        flag: 7,
        properties: Some(property_text()),
        reconsume_times: Some(0),
        unit_mode: Some(false),
        max_reconsume_times: None,
        batch: Some(false),
        broker_name: Some("broker-a".to_owned()),
    }
}

pub fn pop_header() -> PopMessageRequestHeader {
    PopMessageRequestHeader {
        consumer_group: "g".to_owned(),
        topic: "orders".to_owned(),
        queue_id: -1,
        max_msg_nums: 32,
        invisible_time: 60_000,
        poll_time: 15_000,
        born_time: 1_796_017_994_566,
        init_mode: 0,
        exp_type: Some("TAG".to_owned()),
        exp: Some("*".to_owned()),
        order: Some(false),
        attempt_id: None,
        client_id: Some("pod-1@1@2".to_owned()),
    }
}

fn frames() -> Vec<Vec<u8>> {
    let mut send = Command::request(request::SEND_MESSAGE_V2).with_header(&send_header()).with_body("body".as_bytes());
    send.opaque = 42;
    let pop = Command::request(request::POP_MESSAGE).with_header(&pop_header());
    let response = Command::response(17, "topic[\"x\"] does not exist\n").reply_to(&send);
    let mut all = Vec::new();
    let mut stream = BytesMut::new();
    for mut command in [send, pop, response] {
        for serialize in [SerializeType::Json, SerializeType::RocketMq] {
            command.serialize = serialize;
            let mut out = BytesMut::new();
            encode(&command, &mut out);
            stream.extend_from_slice(&out);
            all.push(out.to_vec());
        }
    }
    all.push(stream.to_vec());
    all
}

pub fn messages() -> Vec<StoredMessage> {
    let v4: SocketAddr = "10.1.2.3:40000".parse().unwrap();
    let v6: SocketAddr = "[2001:db8::1]:10911".parse().unwrap();
    let message = StoredMessage {
        topic: "orders".to_owned(),
        queue_id: 3,
        flag: 5,
        queue_offset: 1_000,
        physical_offset: 1 << 40,
        sys_flag: 0,
        born_timestamp: 1_796_017_994_566,
        born_host: v4,
        store_timestamp: 1_796_017_994_572,
        store_host: v4,
        reconsume_times: 1,
        prepared_transaction_offset: 0,
        body: Bytes::from_static(b"hello"),
        properties: property_text(),
    };
    let long = StoredMessage { topic: "t".repeat(200), sys_flag: 0x20, store_host: v6, ..message.clone() };
    let bare = StoredMessage {
        sys_flag: 0x10,
        born_host: v6,
        body: Bytes::new(),
        properties: String::new(),
        ..message.clone()
    };
    vec![message, long, bare]
}

fn encoded(message: &StoredMessage) -> Vec<u8> {
    let mut out = BytesMut::new();
    message.encode(&mut out).unwrap();
    out.to_vec()
}

fn batch() -> Vec<u8> {
    let item = |body: &'static str| BatchItem {
        flag: 1,
        body: Bytes::from_static(body.as_bytes()),
        properties: property_text(),
    };
    encode_batch(&[item("one"), item(""), item("three")]).unwrap().to_vec()
}

pub fn handle() -> ReceiptHandle {
    ReceiptHandle {
        start_offset: 0,
        pop_time: 1_796_017_995_585,
        invisible_time: 60_000,
        revive_queue_id: 2,
        topic_type: TopicType::RetryV2,
        broker_name: "broker-a".to_owned(),
        queue_id: 1,
        offset: 77,
        commit_log_offset: Some(863),
    }
}

fn handles() -> Vec<Vec<u8>> {
    let nine = handle();
    let eight = ReceiptHandle { commit_log_offset: None, ..nine.clone() };
    vec![nine.to_string().into_bytes(), eight.to_string().into_bytes(), format!("{nine} more words").into_bytes()]
}

pub fn batch_ack() -> BatchAckBody {
    let mut bit_set = BitSet::new();
    for bit in [0, 3, 17] {
        bit_set.set(bit).unwrap();
    }
    let ack = BatchAck {
        consumer_group: "g".to_owned(),
        topic: "orders".to_owned(),
        retry: TopicType::RetryV1,
        start_offset: 100,
        queue_id: 1,
        revive_queue_id: 2,
        pop_time: 1_796_017_995_585,
        invisible_time: 60_000,
        bit_set,
    };
    BatchAckBody { broker_name: "broker-a".to_owned(), acks: vec![ack.clone(), BatchAck { queue_id: 2, ..ack }] }
}

pub fn batch_change() -> BatchChangeInvisibleBody {
    let entry = BatchChangeInvisibleEntry {
        extra_info: handle().to_string(),
        queue_id: 1,
        offset: 77,
        invisible_time: 30_000,
        ..Default::default()
    };
    let lite = BatchChangeInvisibleEntry { lite_topic: Some("l".to_owned()), suspend: true, ..entry.clone() };
    BatchChangeInvisibleBody { entries: vec![entry, lite] }
}

fn bodies() -> Vec<Vec<u8>> {
    let route = TopicRouteData {
        queue_datas: vec![QueueData { broker_name: "broker-a".to_owned(), perm: 6, ..Default::default() }],
        broker_datas: vec![BrokerData {
            broker_addrs: [(0, "127.0.0.1:10911".to_owned())].into(),
            ..Default::default()
        }],
        ..Default::default()
    };
    let unquoted = String::from_utf8(route.to_json().to_vec()).unwrap().replace("\"0\":", "0:");
    vec![
        route.to_json().to_vec(),
        unquoted.into_bytes(),
        TopicConfig { attributes: [("message.type".to_owned(), "FIFO".to_owned())].into(), ..Default::default() }
            .to_json()
            .to_vec(),
        SubscriptionGroupConfig::default().to_json().to_vec(),
        HeartbeatData { consumer_data_set: vec![Default::default()], ..Default::default() }.to_json().to_vec(),
    ]
}

fn as_property_text(header: &impl Header) -> Vec<u8> {
    let mut ext = ExtFields::new();
    header.encode(&mut ext);
    // The properties of a message contain separators themselves; any text will do.
    properties::encode(ext.iter().map(|(name, value)| (name, value.replace(['\u{1}', '\u{2}'], "-"))))
        .unwrap()
        .into_bytes()
}

fn send_fields() -> Vec<u8> {
    as_property_text(&send_header())
}

fn pop_fields() -> Vec<u8> {
    as_property_text(&pop_header())
}
