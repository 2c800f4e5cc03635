//! A row for every request the broker knows: asked as a client asks, and answered in substance, not only with SUCCESS.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use serde_json::{Value, json};
use support::{Got, Rig};
use waybill_protocol::message::{BatchItem, StoredMessage, encode_batch, offset_of_msg_id, properties, sys_flag};
use waybill_protocol::remoting::codes::{own, request, response};
use waybill_protocol::remoting::{
    BatchAck, BatchAckBody, BatchChangeInvisibleBody, BatchChangeInvisibleEntry, BatchChangeInvisibleTimeRequestHeader,
    BitSet, ChangeInvisibleTimeRequestHeader, ChangeInvisibleTimeResponseHeader, Command, ConsumerData,
    ConsumerSendMsgBackRequestHeader, CreateTopicRequestHeader, EndTransactionRequestHeader, HeartbeatData,
    MessageQueue, PopMessageResponseHeader, ProducerData, SendMessageRequestHeader, SendMessageResponseHeader,
    SubscriptionGroupConfig, UNIQUE_KEY_QUERY, VouchBody, queue_table,
};

/// Requests that are answered.
const ROWS: u32 = 46;

/// A request for something new that is added to `dispatch` needs a row here.
#[tokio::test]
async fn every_request_is_answered_in_substance() {
    let known: Vec<_> = request::ALL.iter().chain(own::ALL).collect();
    let (empty, mut rows) = (Rig::new(), 0);
    for (name, code) in known {
        if empty.call(Command::request(*code)).await.code == response::REQUEST_CODE_NOT_SUPPORTED {
            continue;
        }
        assert!(row(*code).await, "{name} is answered, and has no row");
        rows += 1;
    }
    assert_eq!(rows, ROWS);
}

/// Asks with this code and checks the answer and what it did; false if there is no row. Each finds topic "t" with one queue of
/// the messages m000 to m002, which group "g" holds for a minute.
async fn row(code: i32) -> bool {
    let (rig, got) = Rig::with_messages(3).await;
    let ask = Command::request(code);
    match code {
        request::SEND_MESSAGE | request::SEND_MESSAGE_V2 | request::SEND_BATCH_MESSAGE => send(&rig, code).await,
        request::CONSUMER_SEND_MSG_BACK => send_back(&rig, &got[0]).await,
        request::END_TRANSACTION => end_transaction(&rig).await,
        request::RECALL_MESSAGE => recall(&rig).await,
        request::POP_MESSAGE => pop(&rig).await,
        request::NOTIFICATION => {
            let ask = with(ask, &[("consumerGroup", "g"), ("topic", "t"), ("queueId", "-1"), ("pollTime", "0")]);
            assert_eq!(rig.ok(ask.clone()).await.ext.get("hasMsg"), Some("false"), "all are held");
            rig.send("t", "fresh").await;
            assert_eq!(rig.ok(ask).await.ext.get("hasMsg"), Some("true"));
        }
        request::POLLING_INFO => {
            let ask = with(ask, &[("consumerGroup", "g"), ("topic", "t"), ("queueId", "-1")]);
            assert_eq!(rig.ok(ask.clone()).await.ext.get("pollingNum"), Some("0"));
            let ((), _) = tokio::join!(
                async {
                    rig.until_waiting("g", "t", 1).await;
                    assert_eq!(rig.ok(ask).await.ext.get("pollingNum"), Some("1"));
                    rig.send("t", "fresh").await;
                },
                rig.poll("g", "t", 1)
            );
        }
        request::ACK_MESSAGE => {
            assert_eq!(rig.ack("g", "t", &got[1].handle).await, response::SUCCESS);
            rig.clock.advance(60_000);
            assert_eq!(rig.drain_ids("g", "t").await, ["m000", "m002"]);
        }
        request::BATCH_ACK_MESSAGE => batch_ack(&rig, &got).await,
        request::CHANGE_MESSAGE_INVISIBLETIME => change(&rig, &got[0]).await,
        request::BATCH_CHANGE_MESSAGE_INVISIBLETIME => batch_change(&rig, &got).await,
        request::GET_ROUTEINFO_BY_TOPIC => {
            let route = body(&rig.ok(with(ask, &[("topic", "t")])).await);
            assert_eq!(route["brokerDatas"], json!([the_broker()]));
            let queues = json!([{"brokerName": "broker-a", "perm": 6, "readQueueNums": 1, "writeQueueNums": 1, "topicSysFlag": 0}]);
            assert_eq!(route["queueDatas"], queues);
            assert_eq!(route["filterServerTable"], json!({}));
        }
        request::GET_BROKER_CLUSTER_INFO => {
            let info = body(&rig.ok(ask).await);
            assert_eq!(info["brokerAddrTable"], json!({"broker-a": the_broker()}));
            assert_eq!(info["clusterAddrTable"], json!({"DefaultCluster": ["broker-a"]}));
        }
        request::GET_ALL_TOPIC_LIST_FROM_NAMESERVER => {
            rig.topic("u", 1).await;
            assert_eq!(sorted(&body(&rig.ok(ask).await)["topicList"]), ["t", "u"]);
        }
        request::UPDATE_AND_CREATE_TOPIC
        | request::DELETE_TOPIC_IN_BROKER
        | request::DELETE_TOPIC_IN_NAMESRV
        | request::GET_TOPIC_CONFIG
        | request::GET_ALL_TOPIC_CONFIG => topics(&rig, code).await,
        request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        | request::DELETE_SUBSCRIPTIONGROUP
        | request::GET_SUBSCRIPTIONGROUP_CONFIG
        | request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG => groups(&rig, code).await,
        request::HEART_BEAT | request::UNREGISTER_CLIENT | request::GET_CONSUMER_LIST_BY_GROUP => {
            clients(&rig, code).await;
        }
        own::VOUCH_FOR_CLIENTS => {
            let vouch = |sidecar: &str, alive: &[&str], gone: &[&str]| {
                let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
                let body =
                    VouchBody { sidecar_id: sidecar.into(), alive: owned(alive), gone: owned(gone), left: vec![] };
                Command::request(code).with_json(&body)
            };
            rig.ok(vouch("here", &["client-1"], &[])).await;
            rig.ok(vouch("there", &["client-1"], &[])).await;
            let answer = body(&rig.ok(vouch("here", &[], &["client-1"])).await);
            assert_eq!(answer, json!({"elsewhere": ["client-1"], "clientGoneAfter": 30_000}));
        }
        request::QUERY_CONSUMER_OFFSET | request::UPDATE_CONSUMER_OFFSET => offsets(&rig, &got, code).await,
        request::GET_MAX_OFFSET | request::GET_MIN_OFFSET => {
            let answer = rig.ok(with(ask.clone(), &[("topic", "t"), ("queueId", "0")])).await;
            let expected = if code == request::GET_MAX_OFFSET { "3" } else { "0" };
            assert_eq!(answer.ext.get("offset"), Some(expected));
            let absent = rig.call(with(ask, &[("topic", "absent"), ("queueId", "0")])).await;
            assert_eq!(absent.code, response::TOPIC_NOT_EXIST);
        }
        request::SEARCH_OFFSET_BY_TIMESTAMP => {
            rig.clock.advance(1_000);
            rig.send("t", "later").await;
            let at = (support::START_MS + 1_000).to_string();
            let fields = [("topic", "t"), ("queueId", "0"), ("timestamp", at.as_str())];
            assert_eq!(rig.ok(with(ask, &fields)).await.ext.get("offset"), Some("3"));
        }
        request::GET_EARLIEST_MSG_STORETIME => {
            let answer = rig.ok(with(ask, &[("topic", "t"), ("queueId", "0")])).await;
            assert_eq!(answer.ext.get("timestamp"), Some(support::START_MS.to_string().as_str()));
        }
        request::INVOKE_BROKER_TO_RESET_OFFSET => {
            let fields = [("topic", "t"), ("group", "g"), ("timestamp", "-1"), ("isForce", "true"), ("offset", "1")];
            let answer = rig.ok(with(ask, &fields)).await;
            let expected = r#"{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"t"}:1}}"#;
            assert_eq!(answer.body, expected, "as upstream writes it, which is no JSON");
            assert_eq!(rig.drain_ids("g", "t").await, ["m001", "m002"]);
        }
        request::QUERY_MESSAGE => query(&rig, code).await,
        request::VIEW_MESSAGE_BY_ID => {
            let position = got[1].message.physical_offset.to_string();
            let body = rig.ok(with(ask.clone(), &[("offset", position.as_str()), ("topic", "t")])).await.body;
            let message = StoredMessage::decode_all(body).unwrap().remove(0);
            assert_eq!(message, StoredMessage { reconsume_times: 0, ..got[1].message.clone() });
            assert_eq!(rig.call(with(ask, &[("offset", "1")])).await.code, response::SYSTEM_ERROR);
        }
        own::DESCRIBE_MESSAGE => {
            let described = &body(&rig.ok(with(ask, &[("topic", "t"), ("messageId", "m001")])).await)["messages"][0];
            assert_eq!(
                (&described["queueId"], &described["offset"], &described["state"]),
                (&json!(0), &json!(1), &json!("Stored"))
            );
            let group = json!({"group": "g", "state": "Inflight", "holder": "client-1", "attempts": 1,
                "until": got[1].handle.pop_time + 60_000});
            assert_eq!(described["groups"], json!([group]));
        }
        request::GET_CONSUME_STATS => {
            rig.ack("g", "t", &got[0].handle).await;
            let stats = rig.ok(with(ask, &[("consumerGroup", "g"), ("topic", "t")])).await;
            let numbers =
                json!({"brokerOffset": 3, "consumerOffset": 1, "lastTimestamp": support::START_MS, "pullOffset": 3});
            assert_eq!(queue_table::read::<Value>("offsetTable", &stats.body).unwrap(), [(queue_zero(), numbers)]);
        }
        request::GET_TOPIC_STATS_INFO => {
            let stats = rig.ok(with(ask, &[("topic", "t")])).await;
            let numbers = json!({"minOffset": 0, "maxOffset": 3, "lastUpdateTimestamp": support::START_MS});
            assert_eq!(queue_table::read::<Value>("offsetTable", &stats.body).unwrap(), [(queue_zero(), numbers)]);
        }
        request::QUERY_TOPIC_CONSUME_BY_WHO => {
            rig.group("never-read").await;
            assert_eq!(body(&rig.ok(with(ask, &[("topic", "t")])).await)["groupList"], json!(["g"]));
        }
        own::COUNT_MESSAGES => {
            rig.ack("g", "t", &got[0].handle).await;
            rig.send("t", "fresh").await;
            let counts = body(&rig.ok(with(ask, &[("consumerGroup", "g")])).await);
            let of_topic = json!({"topic": "t", "lag": 3, "ready": 1, "inFlight": 2, "waitingRetry": 0, "blocked": 0, "delayed": 0});
            let expected = json!({"groups": [{"group": "g", "deadLetters": 0, "topics": [of_topic], "members": 1}], "truncated": false});
            assert_eq!(counts, expected);
        }
        own::COUNT_LEFT => {
            rig.ack("g", "t", &got[0].handle).await;
            rig.topic("never-read", 1).await;
            rig.send("never-read", "kept").await;
            let left = body(&rig.ok(ask).await);
            let expected = json!({"permission": 6, "unread": 1, "inFlight": 2, "delayed": 0, "half": 0, "deadLetters": 0,
                                  "topics": ["never-read", "t"]});
            assert_eq!(left, expected);
        }
        own::REDRIVE_DEAD_LETTERS => {
            send_back(&rig, &got[0]).await;
            let answer = body(&rig.ok(with(ask, &[("consumerGroup", "g")])).await);
            let letter =
                json!({"messageId": got[0].id(), "topic": "t", "queueId": 0, "offset": 0, "diedAt": support::START_MS});
            assert_eq!((&answer["moved"], &answer["refused"]), (&json!([letter]), &json!([])));
            assert_eq!(rig.drain_ids("g", "t").await, [got[0].id()]);
        }
        own::LIST_LEASES => {
            let list = body(&rig.ok(with(ask, &[("offset", "2")])).await);
            assert_eq!((&list["truncated"], list["leases"].as_array().unwrap().len()), (&json!(false), 1));
            let lease = &list["leases"][0];
            assert_eq!((&lease["group"], &lease["topic"], &lease["offset"]), (&json!("g"), &json!("t"), &json!(2)));
            assert_eq!((&lease["holder"], &lease["invisibleTime"]), (&json!("client-1"), &json!(60_000)));
        }
        _ => return false,
    }
    true
}

fn with(mut command: Command, fields: &[(&str, &str)]) -> Command {
    for (name, value) in fields {
        command.ext.set(name, *value);
    }
    command
}

fn body(answer: &Command) -> Value {
    serde_json::from_slice(&answer.body).expect("a JSON body")
}

fn sorted(list: &Value) -> Vec<&str> {
    let mut names: Vec<&str> = list.as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    names.sort_unstable();
    names
}

fn the_broker() -> Value {
    json!({
        "brokerAddrs": {"0": "127.0.0.1:10911"},
        "brokerName": "broker-a",
        "cluster": "DefaultCluster",
        "enableActingMaster": false
    })
}

async fn send(rig: &Rig, code: i32) {
    let template = Rig::send_command("t", "fresh", None, "body");
    let header = SendMessageRequestHeader::decode_v2(&template.ext).unwrap();
    let mut command = Command::request(code).with_body(template.body.clone());
    let mut sent = vec!["fresh"];
    match code {
        request::SEND_MESSAGE => {
            header.encode_v1(&mut command.ext);
            assert!(command.ext.get("producerGroup").is_some() && command.ext.get("a").is_none(), "long names");
        }
        request::SEND_MESSAGE_V2 => command = command.with_header(&header),
        _ => {
            sent.push("another");
            let items: Vec<BatchItem> = sent
                .iter()
                .map(|id| BatchItem {
                    flag: 0,
                    body: template.body.clone(),
                    properties: properties::encode([(properties::UNIQ_KEY, (*id).to_owned())]).unwrap(),
                })
                .collect();
            command = command.with_header(&header).with_body(encode_batch(&items).unwrap());
        }
    }
    let answer = rig.ok(command).await;
    assert_eq!((answer.ext.get("MSG_REGION"), answer.ext.get("TRACE_ON")), (Some("DefaultRegion"), Some("true")));
    let stored: SendMessageResponseHeader = answer.header().unwrap();
    assert_eq!((stored.queue_id, stored.queue_offset), (0, 3));
    assert_eq!(stored.transaction_id.as_deref(), Some("fresh"));
    assert_eq!(stored.batch_uniq_id, (sent.len() > 1).then(|| sent.join(",")));
    let ids: Vec<&str> = stored.msg_id.split(',').collect();
    assert_eq!(ids.len(), sent.len());
    assert!(ids.iter().all(|id| id.len() == 32 && id.bytes().all(|b| b"0123456789ABCDEF".contains(&b))), "{ids:?}");
    let got = rig.pop("g", "t", 32, 60_000).await;
    assert_eq!(got.iter().map(Got::id).collect::<Vec<_>>(), sent);
    assert!(got.iter().all(|got| got.message.body == template.body && got.message.topic == "t"));
    let at = format!("{:016X}", got[0].message.physical_offset);
    assert!(ids[0].ends_with(&at), "the id {} says where the message lies: {at}", ids[0]);
}

async fn recall(rig: &Rig) {
    let plain = Rig::send_command("t", "later", None, "later");
    let mut header = SendMessageRequestHeader::decode_v2(&plain.ext).unwrap();
    properties::set(header.properties.as_mut().unwrap(), properties::TIMER_DELAY_SEC, "10");
    let send = Command::request(request::SEND_MESSAGE_V2).with_header(&header).with_body(plain.body);
    let sent: SendMessageResponseHeader = rig.ok(send.clone()).await.header().unwrap();
    rig.ok(send).await;
    let handle = sent.recall_handle.unwrap();
    let ask = Command::request(request::RECALL_MESSAGE);
    let ask = with(ask, &[("producerGroup", "p"), ("topic", "t"), ("recallHandle", handle.as_str())]);
    assert_eq!(rig.ok(ask.clone()).await.ext.get("msgId"), Some("later"));
    assert_eq!(rig.call(ask).await.code, response::QUERY_NOT_FOUND);
    rig.clock.advance(10_000);
    assert_eq!(rig.broker.deliver_due().await.unwrap(), 0, "nor does the copy of a repeated send come");
}

fn queue_zero() -> MessageQueue {
    MessageQueue { broker_name: "broker-a".into(), queue_id: 0, topic: "t".into() }
}

async fn query(rig: &Rig, code: i32) {
    let ask = |key: &str, by_id: &str| {
        let fields =
            [("topic", "t"), ("key", key), ("maxNum", "64"), ("beginTimestamp", "0"), (UNIQUE_KEY_QUERY, by_id)];
        with(with(Command::request(code), &fields), &[("endTimestamp", i64::MAX.to_string().as_str())])
    };
    let found = rig.ok(ask("m001", "true")).await;
    assert_eq!(found.ext.get("indexLastUpdateTimestamp"), Some(support::START_MS.to_string().as_str()));
    let found = StoredMessage::decode_all(found.body).unwrap();
    assert_eq!((found.len(), found[0].queue_offset, &found[0].body[..]), (1, 1, &b"m001"[..]));
    assert_eq!(rig.call(ask("m001", "false")).await.code, response::QUERY_NOT_FOUND, "it is no key");
}

async fn send_back(rig: &Rig, got: &Got) {
    let header = ConsumerSendMsgBackRequestHeader {
        offset: got.message.physical_offset,
        group: "g".into(),
        delay_level: -1,
        origin_topic: Some("t".into()),
        extra_info: Some(got.handle.to_string()),
        ..Default::default()
    };
    rig.ok(Command::request(request::CONSUMER_SEND_MSG_BACK).with_header(&header)).await;
    rig.group("undertaker").await;
    assert_eq!(rig.drain_ids("undertaker", "%DLQ%g").await, [got.id()]);
    rig.clock.advance(60_000);
    assert_eq!(rig.drain_ids("g", "t").await.len(), 2, "its lease ended");
}

async fn pop(rig: &Rig) {
    rig.send("t", "fresh").await;
    rig.send("t", "another").await;
    let answer = rig.pop_raw(rig.pop_command("g", "t", 1, 45_000)).await;
    assert_eq!((answer.code, answer.remark.as_deref()), (response::SUCCESS, Some("FOUND")));
    let header: PopMessageResponseHeader = answer.header().unwrap();
    assert!((support::START_MS..support::START_MS + 10).contains(&header.pop_time), "{header:?}");
    assert_eq!((header.invisible_time, header.revive_qid, header.rest_num), (45_000, 0, 1));
    assert_eq!(header.start_offset_info.as_deref(), Some("0 0 3"));
    assert_eq!(header.msg_offset_info.as_deref(), Some("0 0 3"));
    let got = rig.got(&answer);
    assert_eq!((got.len(), got[0].id(), got[0].attempt()), (1, "fresh".to_owned(), 1));
    assert_eq!((got[0].message.queue_id, got[0].message.queue_offset), (0, 3));
}

async fn batch_ack(rig: &Rig, got: &[Got]) {
    let first = &got[0].handle;
    let mut bit_set = BitSet::new();
    for got in &got[..2] {
        bit_set.set(usize::try_from(got.handle.offset - first.start_offset).unwrap()).unwrap();
    }
    let ack = BatchAck {
        consumer_group: "g".into(),
        topic: "t".into(),
        start_offset: first.start_offset,
        queue_id: first.queue_id,
        pop_time: first.pop_time,
        invisible_time: first.invisible_time,
        bit_set,
        ..BatchAck::default()
    };
    let body = BatchAckBody { broker_name: "broker-a".into(), acks: vec![ack] };
    let answer = rig.ok(Command::request(request::BATCH_ACK_MESSAGE).with_json(&body)).await;
    assert!(answer.body.is_empty(), "who does not ask for results gets upstream's answer");
    rig.clock.advance(60_000);
    assert_eq!(rig.drain_ids("g", "t").await, [got[2].id()]);
}

async fn change(rig: &Rig, got: &Got) {
    let header = ChangeInvisibleTimeRequestHeader {
        consumer_group: "g".into(),
        topic: "t".into(),
        queue_id: got.handle.queue_id,
        extra_info: got.handle.to_string(),
        offset: got.handle.offset,
        invisible_time: 90_000,
        ..Default::default()
    };
    rig.clock.advance(20_000);
    let answer = rig.ok(Command::request(request::CHANGE_MESSAGE_INVISIBLETIME).with_header(&header)).await;
    let changed: ChangeInvisibleTimeResponseHeader = answer.header().unwrap();
    assert_eq!((changed.pop_time, changed.revive_qid), (got.handle.pop_time, 0));
    assert_eq!(changed.pop_time + changed.invisible_time, support::START_MS + 20_000 + 90_000);
    rig.clock.advance(89_999);
    assert!(!rig.drain_ids("g", "t").await.contains(&got.id()));
    rig.clock.advance(1);
    assert_eq!(rig.drain_ids("g", "t").await, [got.id()]);
}

async fn batch_change(rig: &Rig, got: &[Got]) {
    let entry = |got: &Got, invisible_time: i64| BatchChangeInvisibleEntry {
        queue_id: got.handle.queue_id,
        extra_info: got.handle.to_string(),
        offset: got.handle.offset,
        invisible_time,
        ..Default::default()
    };
    let entries = vec![entry(&got[0], 90_000), entry(&got[1], -1)];
    let header = BatchChangeInvisibleTimeRequestHeader { consumer_group: "g".into(), topic: "t".into() };
    let command = Command::request(request::BATCH_CHANGE_MESSAGE_INVISIBLETIME)
        .with_header(&header)
        .with_json(&BatchChangeInvisibleBody { entries });
    let answer = body(&rig.ok(command).await);
    let invisible_time = support::START_MS + 90_000 - got[0].handle.pop_time;
    let expected = json!([
        {"code": response::SUCCESS, "popTime": got[0].handle.pop_time, "invisibleTime": invisible_time, "reviveQid": 0},
        {"code": response::INVALID_PARAMETER, "popTime": 0, "invisibleTime": 0, "reviveQid": 0},
    ]);
    assert_eq!(answer["entries"], expected);
    rig.clock.advance(60_000);
    assert_eq!(rig.drain_ids("g", "t").await, [got[1].id(), got[2].id()]);
}

async fn topics(rig: &Rig, code: i32) {
    let ask = Command::request(code);
    let config =
        async |name: &str| rig.call(with(Command::request(request::GET_TOPIC_CONFIG), &[("topic", name)])).await;
    match code {
        request::UPDATE_AND_CREATE_TOPIC => {
            let header = CreateTopicRequestHeader {
                write_queue_nums: 3,
                perm: 4,
                attributes: Some("+message.type=FIFO".into()),
                ..CreateTopicRequestHeader::new("u", 5)
            };
            rig.ok(ask.with_header(&header)).await;
            let made = body(&config("u").await);
            assert_eq!(
                (&made["readQueueNums"], &made["writeQueueNums"], &made["perm"]),
                (&5.into(), &3.into(), &4.into())
            );
            assert_eq!(made["attributes"], json!({"message.type": "FIFO"}));
        }
        request::GET_TOPIC_CONFIG => {
            let kept = body(&config("t").await);
            assert_eq!((&kept["topicName"], &kept["readQueueNums"]), (&json!("t"), &json!(1)));
            assert_eq!((&kept["topicFilterType"], &kept["order"]), (&json!("SINGLE_TAG"), &json!(false)));
            assert_eq!(config("absent").await.code, response::TOPIC_NOT_EXIST);
        }
        request::GET_ALL_TOPIC_CONFIG => {
            rig.topic("u", 7).await;
            let answer = rig.ok(with(ask, &[("topicSeq", "0"), ("maxTopicNum", "0")])).await;
            assert_eq!(answer.ext.get("totalTopicNum"), Some("2"));
            let all = body(&answer);
            assert_eq!(all["topicConfigTable"]["u"], body(&config("u").await));
            assert_eq!(all["topicConfigTable"]["t"], body(&config("t").await));
            assert_eq!(all["topicConfigTable"].as_object().unwrap().len(), 2);
            assert!(all["dataVersion"].is_object(), "{all}");
        }
        request::DELETE_TOPIC_IN_BROKER => {
            rig.ok(with(ask, &[("topic", "t")])).await;
            assert_eq!(config("t").await.code, response::TOPIC_NOT_EXIST);
            let refused = rig.call(Rig::send_command("t", "late", None, "x")).await;
            assert_eq!(refused.code, response::TOPIC_NOT_EXIST);
        }
        // What a name server would forget; the broker, which is its own, forgets a topic when the topic is deleted there.
        _ => {
            rig.ok(with(ask, &[("topic", "t"), ("clusterName", "DefaultCluster")])).await;
            assert_eq!(config("t").await.code, response::SUCCESS);
        }
    }
}

async fn groups(rig: &Rig, code: i32) {
    let ask = Command::request(code);
    let config = async |name: &str| {
        rig.call(with(Command::request(request::GET_SUBSCRIPTIONGROUP_CONFIG), &[("group", name)])).await
    };
    match code {
        request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP => {
            let wanted = SubscriptionGroupConfig {
                group_name: "h".into(),
                retry_max_times: 3,
                ..SubscriptionGroupConfig::default()
            };
            rig.ok(ask.with_json(&wanted)).await;
            assert_eq!(body(&config("h").await)["retryMaxTimes"], json!(3));
        }
        request::DELETE_SUBSCRIPTIONGROUP => {
            rig.ok(with(ask, &[("groupName", "g"), ("cleanOffset", "true")])).await;
            assert_eq!(config("g").await.code, response::SUBSCRIPTION_GROUP_NOT_EXIST);
        }
        request::GET_SUBSCRIPTIONGROUP_CONFIG => {
            let kept = body(&config("g").await);
            assert_eq!((&kept["groupName"], &kept["consumeEnable"]), (&json!("g"), &json!(true)));
            assert_eq!((&kept["retryMaxTimes"], &kept["consumeTimeoutMinute"]), (&json!(16), &json!(15)));
            assert_eq!(kept["groupRetryPolicy"]["type"], json!("CUSTOMIZED"));
            assert_eq!(config("absent").await.code, response::SUBSCRIPTION_GROUP_NOT_EXIST);
        }
        _ => {
            rig.group("h").await;
            let all = body(&rig.ok(with(ask, &[("groupSeq", "0"), ("maxGroupNum", "0")])).await);
            assert_eq!(all["subscriptionGroupTable"]["g"], body(&config("g").await));
            assert_eq!(all["subscriptionGroupTable"]["h"], body(&config("h").await));
            assert_eq!(all["subscriptionGroupTable"].as_object().unwrap().len(), 2);
            assert!(all["forbiddenTable"].is_object() && all["dataVersion"].is_object(), "{all}");
        }
    }
}

async fn end_transaction(rig: &Rig) {
    let plain = Rig::send_command("t", "half", None, "half");
    let header = SendMessageRequestHeader::decode_v2(&plain.ext).unwrap();
    let header = SendMessageRequestHeader { sys_flag: sys_flag::TRANSACTION_PREPARED, ..header };
    let half = Command::request(request::SEND_MESSAGE_V2).with_header(&header).with_body(plain.body);
    let sent: SendMessageResponseHeader = rig.ok(half).await.header().unwrap();
    assert!(rig.pop("g", "t", 32, 60_000).await.is_empty(), "nobody sees it");
    let position = offset_of_msg_id(&sent.msg_id).unwrap();
    let end = |flag: i32| {
        Command::request(request::END_TRANSACTION).with_header(&EndTransactionRequestHeader {
            producer_group: "p".into(),
            tran_state_table_offset: sent.queue_offset,
            commit_log_offset: position,
            commit_or_rollback: flag,
            msg_id: "half".into(),
            ..Default::default()
        })
    };
    rig.ok(end(sys_flag::TRANSACTION_COMMIT)).await;
    assert_eq!(rig.pop("g", "t", 32, 60_000).await[0].id(), "half");
    assert_eq!(rig.call(end(sys_flag::TRANSACTION_ROLLBACK)).await.code, response::ILLEGAL_OPERATION);
}

async fn clients(rig: &Rig, code: i32) {
    let list = || with(Command::request(request::GET_CONSUMER_LIST_BY_GROUP), &[("consumerGroup", "g")]);
    assert_eq!(rig.call(list()).await.code, response::SYSTEM_ERROR, "upstream's answer where there is nobody");
    for client in ["c1", "c2"] {
        let data = HeartbeatData {
            client_id: client.into(),
            producer_data_set: vec![ProducerData { group_name: "p".into() }],
            consumer_data_set: vec![ConsumerData { group_name: "g".into(), ..Default::default() }],
            ..Default::default()
        };
        rig.ok(Command::request(request::HEART_BEAT).with_json(&data)).await;
    }
    assert_eq!(sorted(&body(&rig.ok(list()).await)["consumerIdList"]), ["c1", "c2"]);
    if code == request::UNREGISTER_CLIENT {
        let fields = [("clientID", "c1"), ("producerGroup", "p"), ("consumerGroup", "g")];
        rig.ok(with(Command::request(code), &fields)).await;
        assert_eq!(sorted(&body(&rig.ok(list()).await)["consumerIdList"]), ["c2"]);
    }
}

async fn offsets(rig: &Rig, got: &[Got], code: i32) {
    let query = |group: &str| {
        let fields = [("consumerGroup", group), ("topic", "t"), ("queueId", "0")];
        with(Command::request(request::QUERY_CONSUMER_OFFSET), &fields)
    };
    rig.ack("g", "t", &got.iter().find(|got| got.handle.offset == 0).unwrap().handle).await;
    assert_eq!(rig.ok(query("g")).await.ext.get("offset"), Some("1"));
    rig.group("never-read").await;
    assert_eq!(rig.call(query("never-read")).await.code, response::QUERY_NOT_FOUND);
    if code == request::UPDATE_CONSUMER_OFFSET {
        let fields = [("consumerGroup", "g"), ("topic", "t"), ("queueId", "0"), ("commitOffset", "3")];
        rig.ok(with(Command::request(code), &fields)).await;
        assert_eq!(rig.ok(query("g")).await.ext.get("offset"), Some("3"));
    }
}
