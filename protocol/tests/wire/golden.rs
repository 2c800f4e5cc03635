//! Bytes taken from Apache RocketMQ 5.5.0 (`tests/golden/README.md` says how). `index.json` has what an independent decoder
//! read in them.

use std::fs;
use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use serde_json::Value;
use waybill_protocol::handle::{ReceiptHandle, TopicType};
use waybill_protocol::message::{
    StoredMessage, decode_batch, encode_batch, offset_msg_id, peek_properties, properties,
};
use waybill_protocol::remoting::*;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn file(name: &str) -> Bytes {
    fs::read(path(name)).unwrap_or_else(|error| panic!("{name}: {error}")).into()
}

fn index() -> serde_json::Map<String, Value> {
    serde_json::from_slice(&file("index.json")).unwrap()
}

fn frame(name: &str) -> Command {
    let mut bytes = BytesMut::from(&file(name)[..]);
    let command = decode(&mut bytes, DEFAULT_MAX_FRAME).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(bytes.is_empty(), "{name} is one frame");
    command.unwrap_or_else(|| panic!("{name} is not whole"))
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn every_frame_reads_as_the_index_says() {
    let mut frames = 0;
    for (name, expected) in index().iter().filter(|(_, e)| e.get("messages").is_none()) {
        let command = frame(name);
        let binary = expected["serialize"] == "ROCKETMQ";
        assert_eq!(command.serialize, if binary { SerializeType::RocketMq } else { SerializeType::Json }, "{name}");
        // The independent decoder does not restore cut codes.
        let code = if binary { i64::from(command.code as i16) } else { i64::from(command.code) };
        assert_eq!(code, number(&expected["code"]), "{name}");
        let language = &expected["language"];
        let language = language
            .as_str()
            .map_or_else(|| Language::from_number(u8::try_from(number(language)).unwrap()), Language::from_name);
        assert_eq!(command.language, language, "{name}");
        for (ours, key) in [(command.version, "version"), (command.opaque, "opaque"), (command.flag, "flag")] {
            assert_eq!(i64::from(ours), number(&expected[key]), "{name} {key}");
        }
        assert_eq!(command.remark.as_deref(), expected["remark"].as_str(), "{name}");
        // The independent decoder reads an empty text of the binary form as none.
        let fields: serde_json::Map<_, _> = command
            .ext
            .iter()
            .map(|(n, v)| (n.to_owned(), if binary && v.is_empty() { Value::Null } else { v.into() }))
            .collect();
        let theirs = expected["ext"].as_object().unwrap().clone();
        let without_nulls = |map: serde_json::Map<String, Value>| -> serde_json::Map<String, Value> {
            map.into_iter().filter(|(_, v)| !v.is_null() && (!binary || v != "")).collect()
        };
        assert_eq!(without_nulls(fields), without_nulls(theirs), "{name}");
        assert_eq!(command.body.len() as i64, number(&expected["body_bytes"]), "{name}");
        assert_eq!(i64::from(crc32fast::hash(&command.body)), number(&expected["body_crc32"]), "{name}");
        frames += 1;
    }
    assert!(frames > 100, "only {frames} frames");
}

/// Binary headers are written as Apache writes them, and so are the JSON headers of Java processes: same keys in the same order,
/// same escapes. Only an empty `extFields` is left out by us.
#[test]
fn frames_are_written_to_the_same_bytes() {
    let (mut binary, mut json) = (0, 0);
    for (name, expected) in index().iter().filter(|(_, e)| e.get("messages").is_none()) {
        let bytes = file(name);
        let from_java = expected["language"] == "JAVA";
        let empty_ext = bytes.windows(14).any(|w| w == b"\"extFields\":{}");
        let count = match expected["serialize"] == "ROCKETMQ" {
            true => &mut binary,
            false if from_java && !empty_ext => &mut json,
            false => continue,
        };
        let mut out = BytesMut::new();
        encode(&frame(name), &mut out);
        assert_eq!(out, bytes, "{name}: {:?}", String::from_utf8_lossy(&out));
        *count += 1;
    }
    assert!(binary >= 18 && json >= 50, "{binary} binary and {json} JSON frames");
}

#[test]
fn messages_read_as_the_index_says_and_are_written_to_the_same_bytes() {
    let mut messages = 0;
    for (name, expected) in index().iter().filter(|(_, e)| e.get("messages").is_some()) {
        let bytes = file(name);
        let read = StoredMessage::decode_all(bytes.clone()).unwrap_or_else(|error| panic!("{name}: {error}"));
        let expected = expected["messages"].as_array().unwrap();
        assert_eq!(read.len(), expected.len(), "{name}");
        let mut out = BytesMut::new();
        for (ours, theirs) in read.iter().zip(expected) {
            check_message(name, ours, theirs);
            ours.encode(&mut out).unwrap();
            messages += 1;
        }
        assert_eq!(out, bytes, "{name}");
        assert_eq!(peek_properties(&bytes), Ok(read[0].properties.as_str()), "{name}");
    }
    assert!(messages >= 7, "only {messages} messages");
}

fn check_message(name: &str, ours: &StoredMessage, theirs: &Value) {
    assert_eq!(ours.topic, theirs["topic"].as_str().unwrap(), "{name}");
    for (ours, key) in [
        (i64::from(ours.queue_id), "queue_id"),
        (i64::from(ours.flag), "flag"),
        (ours.queue_offset, "queue_offset"),
        (ours.physical_offset, "physical_offset"),
        (i64::from(ours.sys_flag), "sys_flag"),
        (ours.born_timestamp, "born_timestamp"),
        (ours.store_timestamp, "store_timestamp"),
        (i64::from(ours.reconsume_times), "reconsume_times"),
        (ours.prepared_transaction_offset, "prepared_transaction_offset"),
    ] {
        assert_eq!(ours, number(&theirs[key]), "{name} {key}");
    }
    assert_eq!(ours.born_host.to_string(), theirs["born_host"].as_str().unwrap(), "{name}");
    assert_eq!(ours.store_host.to_string(), theirs["store_host"].as_str().unwrap(), "{name}");
    assert_eq!(STANDARD.encode(&ours.body), theirs["body"].as_str().unwrap(), "{name}");
    assert_eq!(STANDARD.encode(&ours.properties), theirs["properties_text"].as_str().unwrap(), "{name}");
    let table = theirs["properties"].as_object().unwrap();
    assert_eq!(properties::iter(&ours.properties).count(), table.len(), "{name}");
    for (property, value) in table {
        assert_eq!(properties::get(&ours.properties, property), value.as_str(), "{name} {property}");
    }
}

#[test]
fn a_pop_and_its_answer() {
    let ask: PopMessageRequestHeader = frame("json-pop-message.request.bin").header().unwrap();
    assert_eq!((ask.consumer_group.as_str(), ask.topic.as_str()), ("golden-group", "golden-trio"));
    assert_eq!((ask.queue_id, ask.max_msg_nums, ask.invisible_time, ask.order), (-1, 3, 60_000, Some(false)));
    // Apache's proxy leaves the time of birth to the broker.
    let proxy: PopMessageRequestHeader = frame("proxy-pop-message.request.bin").header().unwrap();
    assert_eq!((proxy.born_time, proxy.init_mode, proxy.max_msg_nums), (0, 1, 32));

    let answer = frame("json-pop-message.response.bin");
    let header: PopMessageResponseHeader = answer.header().unwrap();
    assert_eq!((header.invisible_time, header.rest_num, header.revive_qid), (60_000, 0, 2));
    let starts = pop_info::decode_start_offsets(header.start_offset_info.as_deref().unwrap()).unwrap();
    assert_eq!(starts, [pop_info::StartOffset { kind: TopicType::Normal, queue_id: 0, offset: 0 }]);
    let offsets = pop_info::decode_msg_offsets(header.msg_offset_info.as_deref().unwrap()).unwrap();
    let messages = StoredMessage::decode_all(answer.body).unwrap();
    assert_eq!(offsets[0].offsets, messages.iter().map(|m| m.queue_offset).collect::<Vec<_>>());

    // Nothing found: the lists are empty, not absent.
    let none: PopMessageResponseHeader = frame("json-pop-message-none.response.bin").header().unwrap();
    assert_eq!(none.start_offset_info.as_deref(), Some(""));
    assert_eq!(pop_info::decode_msg_offsets(none.msg_offset_info.as_deref().unwrap()), Ok(vec![]));
}

#[test]
fn a_redelivered_message_has_its_handle_inside() {
    let header: PopMessageResponseHeader = frame("json-pop-message-retry.response.bin").header().unwrap();
    let message = StoredMessage::decode(&mut file("message-ipv4-retry.bin")).unwrap();
    let handle: ReceiptHandle = properties::get(&message.properties, properties::POP_CK).unwrap().parse().unwrap();
    assert_eq!((handle.pop_time, handle.revive_queue_id), (header.pop_time, header.revive_qid));
    assert_eq!((handle.topic_type, handle.commit_log_offset), (TopicType::RetryV1, None));
    assert_eq!(handle.real_topic("golden-group", "golden-topic"), "%RETRY%golden-group_golden-topic");
    assert_eq!(message.reconsume_times, 1);
    assert!(properties::is_reserved(properties::POP_CK) && properties::is_reserved(properties::ORIGIN_GROUP));
}

#[test]
fn acks_and_changes() {
    let eight: AckMessageRequestHeader = frame("json-ack-message.request.bin").header().unwrap();
    let handle: ReceiptHandle = eight.extra_info.parse().unwrap();
    assert_eq!((handle.to_string(), handle.commit_log_offset), (eight.extra_info, None));
    let nine: AckMessageRequestHeader = frame("proxy-ack-message.request.bin").header().unwrap();
    let handle: ReceiptHandle = nine.extra_info.parse().unwrap();
    assert_eq!((handle.offset, handle.commit_log_offset), (nine.offset, Some(3_764)));
    assert_eq!(handle.to_string(), nine.extra_info);

    let change: ChangeInvisibleTimeRequestHeader = frame("proxy-change-invisible-time.request.bin").header().unwrap();
    assert_eq!((change.invisible_time, change.suspend, change.lite_topic.as_deref()), (30_000, Some(false), Some("")));
    let changed: ChangeInvisibleTimeResponseHeader =
        frame("proxy-change-invisible-time.response.bin").header().unwrap();
    assert_eq!((changed.invisible_time, changed.revive_qid), (30_000, 2));

    for (name, start, bit) in
        [("json-batch-ack-message.request.bin", 0, 2), ("proxy-batch-ack-message.request.bin", 0, 0)]
    {
        let body: BatchAckBody = frame(name).json().unwrap();
        assert_eq!(body.broker_name, "broker-a");
        assert_eq!((body.acks[0].start_offset, body.acks[0].retry), (start, TopicType::Normal), "{name}");
        assert_eq!(body.acks[0].offsets().collect::<Vec<_>>(), [start + bit], "{name}");
    }
    let back: ConsumerSendMsgBackRequestHeader = frame("proxy-consumer-send-msg-back.request.bin").header().unwrap();
    assert_eq!((back.offset, back.delay_level, back.max_reconsume_times, back.extra_info), (3_764, -1, Some(0), None));
}

#[test]
fn sends() {
    for name in
        ["json-send-message-v2.request.bin", "binary-send-message-v2.request.bin", "proxy-send-message-v2.request.bin"]
    {
        let header: SendMessageRequestHeader = frame(name).header().unwrap();
        let raw = header.properties.unwrap();
        assert_eq!(properties::get(&raw, "greeting"), Some("Grüße 你好 🚚"), "{name}");
        assert_eq!(properties::get(&raw, properties::KEYS), Some("k1 k2"), "{name}");
        assert_eq!((header.batch, header.default_topic_queue_nums), (Some(false), 4), "{name}");
    }
    let answer: SendMessageResponseHeader = frame("json-send-message-v2.response.bin").header().unwrap();
    let stored = StoredMessage::decode(&mut file("message-ipv4-2.bin")).unwrap();
    assert_eq!(answer.msg_id, offset_msg_id(stored.store_host, stored.physical_offset));
    assert_eq!((answer.queue_id, answer.queue_offset), (stored.queue_id, stored.queue_offset));

    let batch = frame("proxy-send-batch-message.request.bin");
    assert_eq!(batch.header::<SendMessageRequestHeader>().unwrap().batch, Some(true));
    let items = decode_batch(batch.body.clone()).unwrap();
    assert_eq!(items.iter().map(|i| &i.body[..]).collect::<Vec<_>>(), [&b"two"[..], b"three"]);
    assert_eq!(encode_batch(&items).unwrap(), batch.body);
    let answer: SendMessageResponseHeader = frame("proxy-send-batch-message.response.bin").header().unwrap();
    assert_eq!(answer.msg_id.split(',').count(), 2);
}

#[test]
fn routes_and_settings() {
    // Each captured with a port of its own.
    for name in [
        "json-get-route.response.bin",
        "json-get-route-old-client.response.bin",
        "namesrv-get-route.response.bin",
        "binary-get-route.response.bin",
    ] {
        let command = frame(name);
        let route: TopicRouteData = command.json().unwrap();
        assert_eq!(route.broker_datas[0].broker_name, "broker-a", "{name}");
        let address = &route.broker_datas[0].broker_addrs[&0];
        assert!(address.starts_with("127.0.0."), "{name}: {address}");
        assert_eq!(route.queue_datas.len(), 1, "{name}");
        assert_eq!(TopicRouteData::from_json(&route.to_json()).unwrap(), route, "{name}");
    }
    let old = frame("json-get-route-old-client.response.bin").body;
    assert!(old.windows(5).any(|w| w == b"{0:\"1"), "keys without quotes are what this is about");

    let cluster: ClusterInfo = frame("json-get-cluster-info.response.bin").json().unwrap();
    assert_eq!(cluster.cluster_addr_table["DefaultCluster"], ["broker-a"]);
    assert!(cluster.broker_addr_table["broker-a"].broker_addrs.contains_key(&0));

    let topic: TopicConfig = frame("json-get-topic-config.response.bin").json().unwrap();
    assert_eq!((topic.topic_name.as_str(), topic.perm, topic.read_queue_nums), ("golden-topic", 6, 1));
    assert_eq!(topic.attributes["message.type"], "NORMAL");
    let create: CreateTopicRequestHeader = frame("tool-update-topic.request.bin").header().unwrap();
    assert_eq!(
        (create.attributes.as_deref(), create.read_queue_nums, create.force),
        (Some("+message.type=FIFO"), 8, Some(false))
    );

    let group: SubscriptionGroupConfig = frame("json-get-group-config.response.bin").json().unwrap();
    assert_eq!(group.group_name, "golden-group");
    assert_eq!(group.group_retry_policy.customized_retry_policy.unwrap().next, [1_000, 2_000, 3_000]);
    let tool: SubscriptionGroupConfig = frame("tool-update-group.request.bin").json().unwrap();
    assert!(!tool.consume_broadcast_enable && tool.group_retry_policy.customized_retry_policy.is_none());

    let beat: HeartbeatData = frame("proxy-heart-beat.request.bin").json().unwrap();
    assert_eq!(beat.producer_data_set[0].group_name, "CLIENT_INNER_PRODUCER");
    assert_eq!(beat.consumer_data_set[0].message_model, "BROADCASTING");
    assert_eq!(beat.consumer_data_set[0].subscription_data_set[0].sub_string, "*");
}

/// What we write for a topic or a group is what Apache writes, whatever the order of the keys.
#[test]
fn settings_are_written_as_apache_writes_them() {
    let same = |ours: Bytes, theirs: Bytes| {
        let [ours, theirs] = [ours, theirs].map(|text| serde_json::from_slice::<Value>(&text).unwrap());
        assert_eq!(ours, theirs);
    };
    let topic = frame("json-get-topic-config.response.bin");
    same(topic.json::<TopicConfig>().unwrap().to_json(), topic.body);
    let group = frame("json-get-group-config.response.bin");
    same(group.json::<SubscriptionGroupConfig>().unwrap().to_json(), group.body);
    let route = frame("json-get-route.response.bin");
    same(route.json::<TopicRouteData>().unwrap().to_json(), route.body);
    let beat = frame("proxy-heart-beat.request.bin");
    same(beat.json::<HeartbeatData>().unwrap().to_json(), beat.body);
    let ack = frame("proxy-batch-ack-message.request.bin");
    same(ack.json::<BatchAckBody>().unwrap().to_json(), ack.body);
}
