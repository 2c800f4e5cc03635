//! The remoting requests beside pop and ack: batches, routes, topics, groups, clients, offsets, and what is refused.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use support::{Got, Rig};
use waybill_ops::clock::Clock;
use waybill_protocol::message::encode_batch;
use waybill_protocol::message::{BatchItem, properties, sys_flag};
use waybill_protocol::remoting::codes::{own, request, response};
use waybill_protocol::remoting::{
    BatchAck, BatchAckBody, BatchChangeInvisibleBody, BatchChangeInvisibleEntry, BatchChangeInvisibleTimeRequestHeader,
    BitSet, ChangeInvisibleTimeRequestHeader, Command, ConsumerData, ConsumerList, ConsumerSendMsgBackRequestHeader,
    EndTransactionRequestHeader, GetConsumerListByGroupRequestHeader, GetRouteInfoRequestHeader,
    GetSubscriptionGroupConfigRequestHeader, GetTopicConfigRequestHeader, Header, HeartbeatData, JsonBody,
    NotificationRequestHeader, NotificationResponseHeader, OffsetResponseHeader, PopMessageRequestHeader,
    QueryConsumerOffsetRequestHeader, QueueRequestHeader, SendMessageRequestHeader, SendMessageResponseHeader,
    SubscriptionGroupConfig, TopicConfig, TopicRouteData, UpdateConsumerOffsetRequestHeader,
};

/// Clients of the remoting protocol keep the handle of a delivery in the message's properties, and some send it on.
#[tokio::test]
async fn a_message_that_is_sent_on_does_not_carry_the_handle_of_its_delivery() {
    let rig = Rig::new();
    rig.topic("t", 1).await;
    rig.group("g").await;
    for half in [false, true] {
        let plain = Rig::send_command("t", "m", None, "m");
        let mut header = SendMessageRequestHeader::decode_v2(&plain.ext).unwrap();
        let raw = header.properties.as_mut().unwrap();
        properties::set(raw, properties::POP_CK, "0 1700000000000 60000 0 0 broker-a 0 7");
        properties::set(raw, "colour", "blue");
        header.sys_flag = if half { sys_flag::TRANSACTION_PREPARED } else { 0 };
        let send = Command::request(request::SEND_MESSAGE_V2).with_header(&header).with_body(plain.body);
        let sent: SendMessageResponseHeader = rig.ok(send).await.header().unwrap();
        if half {
            let end = EndTransactionRequestHeader {
                producer_group: header.producer_group,
                tran_state_table_offset: sent.queue_offset,
                commit_log_offset: sent.queue_offset,
                commit_or_rollback: sys_flag::TRANSACTION_COMMIT,
                msg_id: "m".into(),
                ..Default::default()
            };
            rig.ok(Command::request(request::END_TRANSACTION).with_header(&end)).await;
        }
        let got = rig.pop("g", "t", 1, 60_000).await.remove(0);
        assert_eq!(properties::get(&got.message.properties, properties::POP_CK), None, "half: {half}");
        assert_eq!(properties::get(&got.message.properties, "colour"), Some("blue"));
    }
}

#[tokio::test]
async fn a_batch_of_messages_lies_side_by_side_in_one_queue() {
    let rig = Rig::new();
    rig.topic("t", 4).await;
    rig.group("g").await;
    let items: Vec<BatchItem> = (0..3)
        .map(|n| BatchItem {
            flag: 0,
            body: bytes::Bytes::from(format!("body {n}")),
            properties: properties::encode([(properties::UNIQ_KEY, format!("id{n}"))]).unwrap(),
        })
        .collect();
    let template = Rig::send_command("t", "x", None, "x");
    let header = SendMessageRequestHeader::decode_v2(&template.ext).unwrap();
    let body = encode_batch(&items).unwrap();
    let command = Command::request(request::SEND_BATCH_MESSAGE).with_header(&header).with_body(body);
    let answer: SendMessageResponseHeader = rig.ok(command).await.header().unwrap();
    assert_eq!(answer.msg_id.split(',').count(), 3);
    assert_eq!(answer.batch_uniq_id.as_deref(), Some("id0,id1,id2"));
    let got = rig.pop("g", "t", 32, 10_000).await;
    let offsets: Vec<i64> = got.iter().map(|got| got.handle.offset).collect();
    assert_eq!(offsets, [0, 1, 2]);
    assert!(got.iter().all(|got| got.handle.queue_id == answer.queue_id));
}

#[tokio::test]
async fn what_is_too_large_or_empty_is_refused_and_not_stored() {
    let rig = Rig::new();
    rig.topic("t", 1).await;
    rig.group("g").await;
    let large = "x".repeat((4 << 20) + 1);
    for body in [large.as_str(), ""] {
        assert_eq!(rig.call(Rig::send_command("t", "m", None, body)).await.code, response::MESSAGE_ILLEGAL);
    }
    let mut command = Rig::send_command("t", "m", None, "x");
    command.ext.set("i", format!("K\u{1}{}\u{2}", "v".repeat(32_800)));
    assert_eq!(rig.call(command).await.code, response::MESSAGE_ILLEGAL);
    assert_eq!(rig.call(Rig::send_command("absent", "m", None, "x")).await.code, response::TOPIC_NOT_EXIST);
    assert!(rig.drain_ids("g", "t").await.is_empty());
}

#[tokio::test]
async fn the_largest_messages_come_a_few_at_a_time() {
    let rig = Rig::new();
    rig.topic("t", 1).await;
    rig.group("g").await;
    let body = "x".repeat(4 << 20);
    for n in 0..5 {
        rig.ok(Rig::send_command("t", &format!("m{n}"), None, &body)).await;
    }
    let first = rig.pop("g", "t", 32, 60_000).await;
    assert_eq!(first.len(), 2, "an answer stays below the size of a frame");
    assert_eq!(rig.drain_ids("g", "t").await.len(), 3);
}

#[tokio::test]
async fn forwarding_twice_makes_one_dead_letter() {
    let (rig, got) = Rig::with_messages(1).await;
    rig.group("undertaker").await;
    let header = ConsumerSendMsgBackRequestHeader {
        offset: got[0].message.physical_offset,
        group: "g".into(),
        delay_level: -1,
        origin_topic: Some("t".into()),
        extra_info: Some(got[0].handle.to_string()),
        ..Default::default()
    };
    for _ in 0..2 {
        rig.ok(Command::request(request::CONSUMER_SEND_MSG_BACK).with_header(&header)).await;
    }
    rig.clock.advance(60_000);
    assert!(rig.drain_ids("g", "t").await.is_empty(), "its lease ended with the copy");
    assert_eq!(rig.drain_ids("undertaker", "%DLQ%g").await, ["m000"]);
}

#[tokio::test]
async fn a_broker_answers_the_route_of_its_topics_and_of_its_own_name() {
    let rig = Rig::new();
    rig.topic("t", 3).await;
    for (name, queues) in [("t", 3), ("broker-a", 1), ("DefaultCluster", 1)] {
        let header = GetRouteInfoRequestHeader { topic: name.into(), ..Default::default() };
        let answer = rig.ok(Command::request(request::GET_ROUTEINFO_BY_TOPIC).with_header(&header)).await;
        let route: TopicRouteData = answer.json().unwrap();
        assert_eq!((route.queue_datas[0].read_queue_nums, route.queue_datas[0].perm), (queues, 6));
        assert_eq!(route.broker_datas[0].broker_addrs, BTreeMap::from([(0, "127.0.0.1:10911".to_owned())]));
    }
    let header = GetRouteInfoRequestHeader { topic: "absent".into(), ..Default::default() };
    let answer = rig.call(Command::request(request::GET_ROUTEINFO_BY_TOPIC).with_header(&header)).await;
    assert_eq!(answer.code, response::TOPIC_NOT_EXIST);
}

#[tokio::test]
async fn topics_and_groups_come_into_being_on_first_use_only_if_told() {
    let rig = Rig::new();
    let route = |name: &str| {
        let header = GetRouteInfoRequestHeader { topic: name.into(), ..Default::default() };
        Command::request(request::GET_ROUTEINFO_BY_TOPIC).with_header(&header)
    };
    rig.topic("there", 1).await;
    let absent = rig.pop_raw(rig.pop_command("new-group", "there", 1, 10_000)).await;
    assert_eq!(absent.code, response::SUBSCRIPTION_GROUP_NOT_EXIST);
    let rig = Rig::with(|config| {
        config.auto_create_topic_enable = true;
        config.auto_create_subscription_group = true;
        config.auto_create_topic_message_type = "MIXED".into();
    });
    rig.ok(route("fresh")).await;
    rig.ok(Rig::send_command("fresh", "m", None, "x")).await;
    assert_eq!(rig.drain_ids("new-group", "fresh").await, ["m"]);
    let header = GetTopicConfigRequestHeader { topic: "fresh".into(), ..Default::default() };
    let config: TopicConfig =
        rig.ok(Command::request(request::GET_TOPIC_CONFIG).with_header(&header)).await.json().unwrap();
    assert_eq!(config.attributes.get("message.type").map(String::as_str), Some("MIXED"));
    assert_eq!(rig.call(route("not a name")).await.code, response::TOPIC_NOT_EXIST);
    assert_eq!(rig.call(route("%DLQ%g")).await.code, response::TOPIC_NOT_EXIST, "only the broker makes those");
}

#[tokio::test]
async fn group_settings_are_kept_over_a_restart() {
    let rig = Rig::new();
    let config = SubscriptionGroupConfig {
        group_name: "g".into(),
        retry_max_times: 3,
        consume_timeout_minute: 7,
        consume_message_orderly: true,
        ..Default::default()
    };
    rig.group_with(config.clone()).await;
    let rig = rig.reopen();
    let header = GetSubscriptionGroupConfigRequestHeader { group: "g".into() };
    let command = Command::request(request::GET_SUBSCRIPTIONGROUP_CONFIG).with_header(&header);
    let kept: SubscriptionGroupConfig = rig.ok(command).await.json().unwrap();
    assert_eq!(kept, config);
    let bad = SubscriptionGroupConfig { group_name: "no spaces here".into(), ..Default::default() };
    let answer =
        rig.call(Command::request(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP).with_body(bad.to_json())).await;
    assert_eq!(answer.code, response::INVALID_PARAMETER);
}

#[tokio::test]
async fn clients_are_known_from_their_heartbeat_to_their_leave() {
    let rig = Rig::new();
    let consumers = |group: &str| {
        let header = GetConsumerListByGroupRequestHeader { consumer_group: group.into() };
        Command::request(request::GET_CONSUMER_LIST_BY_GROUP).with_header(&header)
    };
    let data = HeartbeatData {
        client_id: "c1".into(),
        consumer_data_set: vec![ConsumerData { group_name: "g".into(), ..Default::default() }],
        ..Default::default()
    };
    rig.ok(Command::request(request::HEART_BEAT).with_json(&data)).await;
    let list: ConsumerList = rig.ok(consumers("g")).await.json().unwrap();
    assert_eq!(list.consumer_id_list, ["c1"]);
    let mut leave = Command::request(request::UNREGISTER_CLIENT);
    leave.ext.set("clientID", "c1");
    leave.ext.set("consumerGroup", "g");
    rig.ok(leave).await;
    assert_eq!(rig.call(consumers("g")).await.code, response::SYSTEM_ERROR);
}

fn query_offset() -> Command {
    let header = QueryConsumerOffsetRequestHeader {
        consumer_group: "g".into(),
        topic: "t".into(),
        queue_id: 0,
        ..Default::default()
    };
    Command::request(request::QUERY_CONSUMER_OFFSET).with_header(&header)
}

#[tokio::test]
async fn offsets_follow_what_is_done_and_what_a_pull_consumer_says() {
    let (rig, got) = Rig::with_messages(4).await;
    let offset = |answer: Command| OffsetResponseHeader::decode(&answer.ext).unwrap().offset;
    assert_eq!(offset(rig.ok(query_offset()).await), 0);
    let in_order = |n: i64| got.iter().find(|got| got.handle.offset == n).unwrap();
    rig.ack("g", "t", &in_order(1).handle).await;
    assert_eq!(offset(rig.ok(query_offset()).await), 0, "an earlier one is still open");
    rig.ack("g", "t", &in_order(0).handle).await;
    assert_eq!(offset(rig.ok(query_offset()).await), 2);
    let max =
        Command::request(request::GET_MAX_OFFSET).with_header(&QueueRequestHeader { topic: "t".into(), queue_id: 0 });
    assert_eq!(offset(rig.ok(max).await), 4);
    let header = UpdateConsumerOffsetRequestHeader {
        consumer_group: "g".into(),
        topic: "t".into(),
        queue_id: 0,
        commit_offset: 3,
    };
    rig.ok(Command::request(request::UPDATE_CONSUMER_OFFSET).with_header(&header)).await;
    let rig = rig.reopen();
    assert_eq!(offset(rig.ok(query_offset()).await), 3);
}

#[tokio::test]
async fn leases_are_listed_with_their_holder() {
    let (rig, got) = Rig::with_messages(2).await;
    rig.change("g", "t", &got[1].handle, 90_000).await.unwrap();
    let rig = rig.reopen();
    let mut command = Command::request(own::LIST_LEASES);
    command.ext.set("consumerGroup", "g");
    let answer = rig.ok(command).await;
    let text = std::str::from_utf8(&answer.body).unwrap();
    assert_eq!(text.matches("\"holder\":\"client-1\"").count(), 2, "{text}");
    assert!(text.contains("\"changes\":1") && text.contains("\"truncated\":false"), "{text}");
}

/// How each lease came to its end is known, also after the broker was started again.
#[tokio::test]
async fn leases_say_by_whom_they_were_changed() {
    let (rig, got) = Rig::with_messages(6).await;
    let single = |got: &Got, by: Option<&str>| {
        let header = ChangeInvisibleTimeRequestHeader {
            consumer_group: "g".into(),
            topic: "t".into(),
            queue_id: got.handle.queue_id,
            extra_info: got.handle.to_string(),
            offset: got.handle.offset,
            invisible_time: 90_000,
            lite_topic: None,
            suspend: None,
        };
        let mut command = Command::request(request::CHANGE_MESSAGE_INVISIBLETIME).with_header(&header);
        if let Some(by) = by {
            command.ext.set("changedBy", by);
        }
        command
    };
    for by in ["renewal", "renewal"] {
        rig.ok(single(&got[0], Some(by))).await;
    }
    for by in ["renewal", "client"] {
        rig.ok(single(&got[1], Some(by))).await;
    }
    rig.ok(single(&got[2], None)).await;
    rig.ok(single(&got[3], Some("broker"))).await;
    let header = BatchChangeInvisibleTimeRequestHeader { consumer_group: "g".into(), topic: "t".into() };
    let entry = BatchChangeInvisibleEntry {
        queue_id: got[4].handle.queue_id,
        extra_info: got[4].handle.to_string(),
        offset: got[4].handle.offset,
        invisible_time: 90_000,
        changed_by: Some("operator".to_owned()),
        ..Default::default()
    };
    let body = BatchChangeInvisibleBody { entries: vec![entry] };
    let batch = Command::request(request::BATCH_CHANGE_MESSAGE_INVISIBLETIME).with_header(&header).with_json(&body);
    rig.ok(batch).await;
    let listed = async |rig: &Rig| {
        let answer = rig.ok(Command::request(own::LIST_LEASES)).await;
        let list = serde_json::from_slice::<serde_json::Value>(&answer.body).unwrap();
        got.iter()
            .map(|got| {
                let is = |lease: &&serde_json::Value| lease["offset"] == got.handle.offset;
                let lease = list["leases"].as_array().unwrap().iter().find(is).unwrap();
                (lease["changes"].clone(), lease["renewals"].clone(), lease.get("changedBy").cloned())
            })
            .collect::<Vec<_>>()
    };
    let said = |changes: u32, renewals: u32, by: Option<&str>| (changes.into(), renewals.into(), by.map(Into::into));
    let wanted = [
        said(2, 2, Some("renewal")),
        said(2, 1, Some("client")),
        said(1, 0, None),
        said(1, 0, None),
        said(1, 0, Some("operator")),
        said(0, 0, None),
    ];
    assert_eq!(listed(&rig).await, wanted);
    let rig = rig.reopen();
    assert_eq!(listed(&rig).await, wanted, "it is kept");
}

#[tokio::test]
async fn leases_are_found_by_what_is_said_of_them() {
    let rig = Rig::new();
    for topic in ["t", "u"] {
        rig.topic(topic, 2).await;
    }
    for group in ["g", "h"] {
        rig.group(group).await;
    }
    for topic in ["t", "u"] {
        for id in ["a", "b"] {
            rig.send(topic, id).await;
        }
    }
    for (group, topic, client) in [("g", "t", "one"), ("g", "u", "two"), ("h", "t", "two")] {
        let mut got = 0;
        while got < 2 {
            let header = rig.pop_command(group, topic, 32, 60_000);
            let answer = rig.pop_raw(PopMessageRequestHeader { client_id: Some(client.into()), ..header }).await;
            got += rig.got(&answer).len();
        }
    }
    let find = async |fields: &[(&str, &str)]| {
        let mut command = Command::request(own::LIST_LEASES);
        for (name, value) in fields {
            command.ext.set(name, value);
        }
        let answer = rig.ok(command).await;
        serde_json::from_slice::<serde_json::Value>(&answer.body).unwrap()
    };
    let count = async |fields: &[(&str, &str)]| find(fields).await["leases"].as_array().unwrap().len();
    assert_eq!(count(&[]).await, 6, "of all groups");
    assert_eq!(count(&[("consumerGroup", "g")]).await, 4);
    assert_eq!(count(&[("topic", "t")]).await, 4);
    assert_eq!(count(&[("clientId", "two")]).await, 4);
    assert_eq!(count(&[("clientId", "two"), ("topic", "t")]).await, 2);
    assert_eq!(count(&[("clientId", "three")]).await, 0);
    let all = find(&[]).await;
    assert_eq!((&all["now"], &all["brokerName"]), (&rig.clock.now_ms().into(), &"broker-a".into()));
    assert_eq!(all["watched"], serde_json::json!({"one": all["now"], "two": all["now"]}));
    for (position, last) in all["leases"].as_array().unwrap().iter().enumerate() {
        let number = |key: &str| last[key].to_string();
        let (group, topic) = (last["group"].as_str().unwrap(), last["topic"].as_str().unwrap());
        let (queue, offset) = (number("queueId"), number("offset"));
        let one = [("consumerGroup", group), ("topic", topic), ("queueId", &queue), ("offset", &offset)];
        assert_eq!(find(&one).await["leases"], serde_json::json!([last]));
        let after = [("afterGroup", group), ("afterTopic", topic), ("afterQueueId", &queue), ("afterOffset", &offset)];
        assert_eq!(count(&after).await, 5 - position, "the list goes on behind each of them");
    }
    let mut wrong = Command::request(own::LIST_LEASES);
    wrong.ext.set("queueId", "x");
    assert_eq!(rig.call(wrong).await.code, response::INVALID_PARAMETER);
}

/// A script whose variable is empty must not be shown, or go on to end, the leases of everybody.
#[tokio::test]
async fn an_empty_name_does_not_stand_for_all() {
    let (rig, _got) = Rig::with_messages(1).await;
    let names = ["consumerGroup", "topic", "clientId", "queueId", "offset", "afterGroup", "afterTopic"];
    let of_leases = names.map(|name| (own::LIST_LEASES, name));
    let of_counts = ["consumerGroup", "topic"].map(|name| (own::COUNT_MESSAGES, name));
    for (code, name) in of_leases.into_iter().chain(of_counts) {
        rig.ok(Command::request(code)).await;
        let mut command = Command::request(code);
        command.ext.set(name, "");
        let answer = rig.call(command).await;
        assert_eq!(answer.code, response::INVALID_PARAMETER, "{code} {name}");
        assert!(answer.remark.unwrap_or_default().contains(name));
    }
}

#[tokio::test]
async fn unknown_codes_missing_fields_and_absurd_numbers_get_an_answer() {
    let rig = Rig::new();
    rig.topic("t", 1).await;
    rig.group("g").await;
    let mut unknown = Command::request(123_456);
    unknown.opaque = 77;
    let answer = rig.call(unknown).await;
    assert_eq!((answer.code, answer.opaque), (response::REQUEST_CODE_NOT_SUPPORTED, 77));
    let answer = rig.call(Command::request(request::POP_MESSAGE)).await;
    assert_eq!(answer.code, response::INVALID_PARAMETER);
    assert!(answer.remark.unwrap().contains("consumerGroup"), "the missing field is named");
    let good = rig.pop_command("g", "t", 1, 10_000);
    for bad in [
        PopMessageRequestHeader { max_msg_nums: 33, ..good.clone() },
        PopMessageRequestHeader { max_msg_nums: -1, ..good.clone() },
        PopMessageRequestHeader { queue_id: 1, ..good.clone() },
        PopMessageRequestHeader { invisible_time: 0, ..good.clone() },
        PopMessageRequestHeader { invisible_time: i64::MAX, ..good.clone() },
    ] {
        assert_eq!(rig.pop_raw(bad.clone()).await.code, response::INVALID_PARAMETER, "{bad:?}");
    }
    for absurd in ["abc", "2147483648", ""] {
        let mut command = Command::request(request::POP_MESSAGE).with_header(&good);
        command.ext.set("queueId", absurd);
        command.opaque = 78;
        let answer = rig.call(command).await;
        assert_eq!((answer.code, answer.opaque), (response::INVALID_PARAMETER, 78), "C29: queueId {absurd:?}");
        assert!(answer.remark.unwrap().contains("queueId"));
    }
    let late = PopMessageRequestHeader { born_time: support::START_MS - 10_000, poll_time: 1_000, ..good.clone() };
    assert_eq!(rig.pop_raw(late).await.code, response::POLLING_TIMEOUT);
    let bad_filter = PopMessageRequestHeader { exp_type: Some("TAG".into()), exp: Some("||".into()), ..good };
    assert_eq!(rig.pop_raw(bad_filter).await.code, response::SUBSCRIPTION_PARSE_FAILED);
}

#[tokio::test]
async fn pop_codes_cut_to_sixteen_bits_are_understood() {
    let rig = Rig::new();
    rig.topic("t", 1).await;
    rig.group("g").await;
    rig.send("t", "m").await;
    let command = Command::request(3442).with_header(&rig.pop_command("g", "t", 1, 10_000));
    assert_eq!(rig.got(&rig.call(command).await)[0].id(), "m");
}

#[tokio::test]
async fn a_notification_tells_of_messages_without_taking_them() {
    let rig = Rig::new();
    rig.topic("t", 1).await;
    rig.group("g").await;
    let notification = |topic: &str| {
        let header = NotificationRequestHeader {
            consumer_group: "g".into(),
            topic: topic.into(),
            queue_id: -1,
            poll_time: 0,
            ..Default::default()
        };
        Command::request(request::NOTIFICATION).with_header(&header)
    };
    let has = |answer: Command| answer.header::<NotificationResponseHeader>().unwrap().has_msg;
    assert!(!has(rig.ok(notification("t")).await));
    rig.send("t", "m").await;
    assert!(has(rig.ok(notification("t")).await));
    assert_eq!(rig.pop("g", "t", 1, 60_000).await.len(), 1, "it was not taken");
    assert!(!has(rig.ok(notification("t")).await), "nor is one that is leased told of");
    assert_eq!(rig.call(notification("absent")).await.code, response::TOPIC_NOT_EXIST);
}

#[tokio::test]
async fn the_metrics_say_what_each_group_has_before_it() {
    let (rig, got) = Rig::with_messages(5).await;
    rig.ack("g", "t", &got[0].handle).await;
    rig.change("g", "t", &got[1].handle, 0).await.unwrap();
    rig.send("t", "one-more").await;
    let text = metrics(&rig);
    for (name, value) in [("lag", 5), ("inflight", 3), ("ready", 2)] {
        let line = format!("rocketmq_consumer_{name}_messages{{topic=\"t\",consumer_group=\"g\"}} {value}");
        assert!(text.contains(&line), "{line} is missing in\n{text}");
    }
    assert!(text.contains("waybill_store_disk_full 0"));
}

/// One batch of many entries is one record in the log and one sync, and an operator can see it.
#[tokio::test]
async fn the_metrics_count_a_batch_as_one_record_and_one_sync() {
    let (rig, got) = Rig::with_messages(100).await;
    let counted = |name: &str| -> u64 {
        let page = metrics(&rig);
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name} is missing in\n{page}")).parse().unwrap()
    };
    let both = || (counted("waybill_store_records_total"), counted("waybill_store_syncs_total"));
    let entries = got.iter().map(|got| BatchChangeInvisibleEntry {
        queue_id: got.handle.queue_id,
        extra_info: got.handle.to_string(),
        offset: got.handle.offset,
        invisible_time: 120_000,
        ..Default::default()
    });
    let header = BatchChangeInvisibleTimeRequestHeader { consumer_group: "g".into(), topic: "t".into() };
    let change = Command::request(request::BATCH_CHANGE_MESSAGE_INVISIBLETIME)
        .with_header(&header)
        .with_json(&BatchChangeInvisibleBody { entries: entries.collect() });
    let acks = got.iter().map(|got| BatchAck {
        consumer_group: "g".into(),
        topic: "t".into(),
        start_offset: got.handle.offset,
        queue_id: got.handle.queue_id,
        pop_time: got.handle.pop_time,
        bit_set: {
            let mut first = BitSet::new();
            first.set(0).unwrap();
            first
        },
        ..BatchAck::default()
    });
    let body = BatchAckBody { broker_name: "broker-a".into(), acks: acks.collect() };
    let ack = Command::request(request::BATCH_ACK_MESSAGE).with_json(&body);
    for command in [change, ack] {
        let code = command.code;
        let before = both();
        rig.ok(command).await;
        let after = both();
        assert_eq!((after.0 - before.0, after.1 - before.1), (1, 1), "request {code} of 100 entries");
    }
    rig.clock.advance(120_000);
    assert!(rig.drain_ids("g", "t").await.is_empty(), "all of them were changed and acknowledged");
}

/// The page that Prometheus reads.
fn metrics(rig: &Rig) -> String {
    let registry = rig.broker.metrics().registry();
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry.lock()).unwrap();
    text
}

/// A volume that went away: a new store in its place would make everybody believe that there was never a message.
#[tokio::test]
async fn a_store_that_is_gone_is_not_replaced_by_an_empty_one() {
    let rig = Rig::new();
    rig.topic("t", 1).await;
    rig.send("t", "m").await;
    let house = tokio::spawn(Arc::clone(&rig.broker).keep_house());
    let elsewhere = rig.dir.path().with_extension("elsewhere");
    std::fs::rename(rig.dir.path(), &elsewhere).unwrap();
    let failed = async {
        while rig.broker.ready().is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), failed).await.expect("it is noticed");
    // Longer than between two tries.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert!(rig.broker.ready().is_err());
    assert_ne!(rig.call(Rig::send_command("t", "n", None, "n")).await.code, response::SUCCESS);
    std::fs::rename(&elsewhere, rig.dir.path()).unwrap();
    let back = async {
        while rig.broker.ready().is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), back).await.expect("it is there again");
    rig.group("g").await;
    assert_eq!(rig.pop("g", "t", 32, 10_000).await.len(), 1, "and nothing is lost");
    house.abort();
}
