//! JSON bodies as others write them, and as we do.

use proptest::prelude::*;
use serde_json::json;
use waybill_protocol::handle::TopicType;
use waybill_protocol::remoting::*;

use crate::support::seeds;

fn text(body: &impl JsonBody) -> serde_json::Value {
    serde_json::from_slice(&body.to_json()).unwrap()
}

#[test]
fn a_route_with_and_without_quotes() {
    let with = br#"{"brokerDatas":[{"brokerAddrs":{"0":"h:1","-5":"h:2","12":"{1:2}"},"brokerName":"b","cluster":"c","enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":4}]}"#;
    let without = String::from_utf8(with.to_vec())
        .unwrap()
        .replace("\"0\":", "0:")
        .replace("\"-5\":", "-5 :")
        .replace("\"12\":", " 12:");
    let route = TopicRouteData::from_json(with).unwrap();
    assert_eq!(TopicRouteData::from_json(without.as_bytes()).unwrap(), route);
    let broker = &route.broker_datas[0];
    assert_eq!(broker.broker_addrs[&0], "h:1");
    assert_eq!(broker.broker_addrs[&12], "{1:2}", "text that looks like a key stays");
    assert_eq!((route.queue_datas[0].read_queue_nums, route.queue_datas[0].write_queue_nums), (8, 4));
    // Written with quotes and without nulls, the table old clients want included.
    assert_eq!(text(&route), serde_json::from_slice::<serde_json::Value>(with).unwrap());
}

#[test]
fn missing_unknown_and_null() {
    let config =
        TopicConfig::from_json(br#"{"topicName":"t","attributes":null,"mappingDetail":null,"later":{"x":[1]}}"#)
            .unwrap();
    assert_eq!(config, TopicConfig { topic_name: "t".to_owned(), ..Default::default() });
    assert_eq!((config.perm, config.read_queue_nums, config.topic_filter_type.as_str()), (6, 16, "SINGLE_TAG"));

    let group = SubscriptionGroupConfig::from_json(br#"{"groupName":"g","consumeMessageOrderly":true}"#).unwrap();
    assert!(group.consume_enable && group.consume_message_orderly && group.consume_from_min_enable);
    assert_eq!((group.retry_max_times, group.consume_timeout_minute, group.retry_queue_nums), (16, 15, 1));
    assert_eq!(group.group_retry_policy.kind, GroupRetryPolicyType::Customized);

    assert_eq!(TopicRouteData::from_json(b"{}").unwrap(), TopicRouteData::default());
}

#[test]
fn what_is_not_the_json_expected() {
    for bad in ["", "null", "[]", "{", r#"{"queueDatas":{}}"#, r#"{"queueDatas":[{"perm":"x"}]}"#, "{0:1}x"] {
        assert!(TopicRouteData::from_json(bad.as_bytes()).is_err(), "{bad}");
    }
    assert!(HeartbeatData::from_json(b"{\"clientID\":\"\xFF\"}").is_err());
}

/// What a broker has left decides whether it may go: half an answer is none.
#[test]
fn what_is_left_is_said_in_full() {
    let all = json!({"permission": 4, "unread": 1, "inFlight": 0, "delayed": 0, "half": 0, "deadLetters": 0, "topics": ["t"]});
    let left = LeftBody::from_json(all.to_string().as_bytes()).unwrap();
    assert_eq!(text(&left), all);
    assert!(!left.is_nothing() && !left.takes_more());
    for key in all.as_object().unwrap().keys() {
        let mut less = all.clone();
        less.as_object_mut().unwrap().remove(key);
        assert!(LeftBody::from_json(less.to_string().as_bytes()).is_err(), "without {key}");
    }
    assert!(LeftBody { permission: 6, ..Default::default() }.takes_more());
    assert!(LeftBody { topics: vec!["t".into()], ..Default::default() }.is_nothing());
    for key in ["unread", "inFlight", "delayed", "half", "deadLetters"] {
        let mut one = json!(LeftBody::default());
        one[key] = json!(1);
        assert!(!LeftBody::from_json(one.to_string().as_bytes()).unwrap().is_nothing(), "{key}");
    }
}

#[test]
fn retry_policies() {
    let custom =
        GroupRetryPolicy::from_json(br#"{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1000,2000]}}"#).unwrap();
    assert_eq!(custom.customized_retry_policy.as_ref().unwrap().next, [1_000, 2_000]);
    assert_eq!(text(&custom), json!({"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1000, 2000]}}));
    let exponential =
        GroupRetryPolicy::from_json(br#"{"type":"EXPONENTIAL","exponentialRetryPolicy":{"initial":1}}"#).unwrap();
    assert_eq!(exponential.kind, GroupRetryPolicyType::Exponential);
    let expected = ExponentialRetryPolicy { initial: 1, max: 7_200_000, multiplier: 2 };
    assert_eq!(exponential.exponential_retry_policy, Some(expected));
    let list = CustomizedRetryPolicy::default().next;
    assert_eq!((list.len(), list[0], list[2], list[17]), (18, 1_000, 10_000, 7_200_000));
}

#[test]
fn delays_between_attempts() {
    let group = |orderly: bool, policy: &str| SubscriptionGroupConfig {
        consume_message_orderly: orderly,
        group_retry_policy: GroupRetryPolicy::from_json(policy.as_bytes()).unwrap(),
        ..Default::default()
    };
    let delays = |group: &SubscriptionGroupConfig, retries: std::ops::RangeInclusive<u32>| {
        retries.map(|n| RetrySchedule::of(group).delay_ms(n)).collect::<Vec<_>>()
    };
    let minutes = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120, 120, 120].map(|n| n * 60_000);
    let documented = [&[10_000, 30_000][..], &minutes].concat();
    assert_eq!(delays(&group(false, "{}"), 1..=18), documented);
    assert_eq!(delays(&group(true, "{}"), 1..=3), [1_000; 3], "ordered: fixed");
    let listed = r#"{"customizedRetryPolicy":{"next":[1500,2500]}}"#;
    assert_eq!(delays(&group(false, listed), 1..=4), [1_500, 2_500, 2_500, 2_500]);
    assert_eq!(delays(&group(true, listed), 1..=2), [1_500, 2_500], "what the group says counts");
    let formula = r#"{"type":"EXPONENTIAL","exponentialRetryPolicy":{"initial":1000,"max":10000,"multiplier":3}}"#;
    assert_eq!(delays(&group(false, formula), 1..=4), [1_000, 3_000, 9_000, 10_000]);
    let endless = RetrySchedule::of(&group(false, formula)).delay_ms(u32::MAX);
    assert_eq!((endless, RetrySchedule::of(&group(false, formula)).delay_ms(0)), (10_000, 1_000));
}

#[test]
fn batch_acks_with_short_and_long_names() {
    let body = seeds::batch_ack();
    let short = json!({"brokerName": "broker-a", "acks": [
        {"c": "g", "t": "orders", "r": "1", "so": 100, "q": 1, "rq": 2, "pt": 1796017995585i64, "it": 60000, "b": "CQAC"},
        {"c": "g", "t": "orders", "r": "1", "so": 100, "q": 2, "rq": 2, "pt": 1796017995585i64, "it": 60000, "b": "CQAC"},
    ]});
    assert_eq!(text(&body), short);
    assert_eq!(body.acks[0].offsets().collect::<Vec<_>>(), [100, 103, 117]);
    let long = r#"{"brokerName":"broker-a","acks":[{"consumerGroup":"g","topic":"orders","retry":"1","startOffset":100,"queueId":1,
        "reviveQueueId":2,"popTime":1796017995585,"invisibleTime":60000,"bitSet":"CQAC"}]}"#;
    assert_eq!(BatchAckBody::from_json(long.as_bytes()).unwrap().acks[0], body.acks[0]);
    for bad in [r#"{"acks":[{"r":"3"}]}"#, r#"{"acks":[{"b":"?"}]}"#] {
        assert!(BatchAckBody::from_json(bad.as_bytes()).is_err(), "{bad}");
    }
    assert_eq!(BatchAckBody::from_json(b"{\"acks\":null}").unwrap(), BatchAckBody::default());
}

#[test]
fn offsets_at_the_end_of_numbers() {
    let mut ack = BatchAck { start_offset: i64::MAX - 1, ..seeds::batch_ack().acks[0].clone() };
    for bit in 0..20 {
        ack.bit_set.set(bit).unwrap();
    }
    assert_eq!(ack.offsets().collect::<Vec<_>>(), [i64::MAX - 1, i64::MAX]);
}

#[test]
fn batch_changes() {
    let body = seeds::batch_change();
    let handle = seeds::handle().to_string();
    assert_eq!(
        text(&body),
        json!({"entries": [
            {"consumerGroup": "", "topic": "", "queueId": 1, "extraInfo": handle, "offset": 77, "invisibleTime": 30000, "suspend": false},
            {"consumerGroup": "", "topic": "", "queueId": 1, "extraInfo": handle, "offset": 77, "invisibleTime": 30000, "liteTopic": "l", "suspend": true},
        ]})
    );
    let odd = BatchChangeInvisibleBody::from_json(br#"{"entries":[null,{"topic":null,"offset":5}]}"#).unwrap();
    assert_eq!(odd.entries[0], BatchChangeInvisibleEntry::default());
    assert_eq!(odd.entries[1].offset, 5);
    for none in ["{}", r#"{"entries":null}"#, r#"{"entries":[]}"#] {
        assert!(BatchChangeInvisibleBody::from_json(none.as_bytes()).unwrap().entries.is_empty());
    }
    let result = BatchChangeInvisibleResult {
        entries: vec![BatchChangeInvisibleResultEntry { code: 208, pop_time: 1, invisible_time: 2, revive_qid: 3 }],
    };
    assert_eq!(text(&result), json!({"entries": [{"code": 208, "popTime": 1, "invisibleTime": 2, "reviveQid": 3}]}));
    let codes = EntryCodes { entries: vec![EntryCode { code: 0 }, EntryCode { code: 208 }] };
    assert_eq!(text(&codes), json!({"entries": [{"code": 0}, {"code": 208}]}));
}

#[test]
fn bodies_travel_in_commands() {
    let list = ConsumerList { consumer_id_list: vec!["a".to_owned()] };
    let command = Command::response(0, "").with_json(&list);
    assert_eq!(&command.body[..], br#"{"consumerIdList":["a"]}"#);
    assert_eq!(command.json::<ConsumerList>().unwrap(), list);
    assert!(command.with_body("{").json::<ConsumerList>().is_err());
}

proptest! {
    #[test]
    fn bit_sets_go_there_and_back(bits in proptest::collection::btree_set(0..BitSet::MAX_BITS, 0..100)) {
        let mut set = BitSet::new();
        for bit in &bits {
            set.set(*bit).unwrap();
        }
        prop_assert!(set.iter().eq(bits.iter().copied()));
        prop_assert_eq!(set.len(), bits.len());
        prop_assert_eq!(BitSet::from_base64(&set.to_base64()), Ok(set));
    }

    #[test]
    fn entries_go_there_and_back(
        text in ".*", numbers in any::<(i32, i64, i64)>(), lite in proptest::option::of(".*"), suspend in any::<bool>(),
    ) {
        let entry = BatchChangeInvisibleEntry {
            consumer_group: text.clone(), topic: text.clone(), extra_info: text, queue_id: numbers.0, offset: numbers.1,
            invisible_time: numbers.2, lite_topic: lite, suspend, changed_by: None,
        };
        let body = BatchChangeInvisibleBody { entries: vec![entry] };
        prop_assert_eq!(BatchChangeInvisibleBody::from_json(&body.to_json()).unwrap(), body);
    }

    #[test]
    fn routes_go_there_and_back(
        names in proptest::collection::vec(".*", 0..4), ids in proptest::collection::btree_map(any::<i64>(), ".*", 0..4),
        numbers in any::<(i32, i32, i32)>(), conf in proptest::option::of(".*"),
    ) {
        let route = TopicRouteData {
            order_topic_conf: conf,
            queue_datas: names.iter().map(|name| QueueData {
                broker_name: name.clone(), read_queue_nums: numbers.0, write_queue_nums: numbers.1, perm: numbers.2, topic_sys_flag: 0,
            }).collect(),
            broker_datas: names.iter().map(|name| BrokerData {
                broker_name: name.clone(), broker_addrs: ids.clone(), ..Default::default()
            }).collect(),
            ..Default::default()
        };
        prop_assert_eq!(TopicRouteData::from_json(&route.to_json()).unwrap(), route);
    }

    #[test]
    fn topic_types_are_digits(kind in 0usize..3) {
        let kind = [TopicType::Normal, TopicType::RetryV1, TopicType::RetryV2][kind];
        prop_assert_eq!(TopicType::from_marker(kind.marker()), Some(kind));
    }
}
