//! Headers against the names of the wire.

use proptest::prelude::*;
use waybill_protocol::remoting::*;

use crate::support::seeds;

/// Fields in the notation `name=value`, in order.
fn written(header: &impl Header) -> Vec<String> {
    let mut ext = ExtFields::new();
    header.encode(&mut ext);
    ext.iter().map(|(name, value)| format!("{name}={value}")).collect()
}

fn fields(text: &str) -> ExtFields {
    text.split_whitespace().filter_map(|field| field.split_once('=')).collect()
}

/// Reads fields, writes them again, and expects the same text; then misses each required field.
fn exact<H: Header + std::fmt::Debug>(all: &str, required: &[&str]) {
    let header = H::decode(&fields(all)).unwrap();
    assert_eq!(written(&header).join(" "), all);
    let names: Vec<_> = all.split(' ').filter_map(|f| f.split_once('=')).map(|(name, _)| name.to_owned()).collect();
    for name in &names {
        let less: ExtFields = fields(all).iter().filter(|(n, _)| n != name).collect();
        match H::decode(&less) {
            Ok(_) => assert!(!required.contains(&name.as_str()), "{name} is required"),
            Err(error) => {
                assert!(required.contains(&name.as_str()), "{name} is not required");
                assert!(matches!(error, HeaderError::Missing(missing) if missing == name));
            }
        }
    }
}

#[test]
fn names_and_what_is_required() {
    exact::<SendMessageRequestHeader>(
        "a=pg b=t c=TBW102 d=4 e=-1 f=1 g=5 h=6 i=p j=1 k=false l=16 m=true n=broker",
        &["a", "b", "c", "d", "e", "f", "g", "h"],
    );
    exact::<SendMessageResponseHeader>(
        "msgId=x queueId=1 queueOffset=2 transactionId=t batchUniqId=b recallHandle=r",
        &["msgId", "queueId", "queueOffset"],
    );
    exact::<ConsumerSendMsgBackRequestHeader>(
        "offset=1 group=g delayLevel=-1 originMsgId=m originTopic=t unitMode=false maxReconsumeTimes=3 extraInfo=h",
        &["offset", "group", "delayLevel"],
    );
    exact::<EndTransactionRequestHeader>(
        "topic=t producerGroup=p tranStateTableOffset=1 commitLogOffset=2 commitOrRollback=8 fromTransactionCheck=true msgId=m transactionId=m bname=b",
        &["producerGroup", "tranStateTableOffset", "commitLogOffset", "commitOrRollback", "msgId"],
    );
    exact::<CheckTransactionStateRequestHeader>(
        "topic=t tranStateTableOffset=1 commitLogOffset=2 msgId=m transactionId=m offsetMsgId=o bname=b",
        &["tranStateTableOffset", "commitLogOffset"],
    );
    exact::<RecallMessageRequestHeader>("producerGroup=p topic=t recallHandle=h bname=b", &["topic", "recallHandle"]);
    exact::<RecallMessageResponseHeader>("msgId=m", &["msgId"]);
    exact::<PopMessageRequestHeader>(
        "consumerGroup=g topic=t queueId=-1 maxMsgNums=32 invisibleTime=60000 pollTime=1 bornTime=2 initMode=1 expType=TAG exp=* order=true attemptId=a clientId=c",
        &["consumerGroup", "topic", "queueId", "maxMsgNums", "invisibleTime", "pollTime", "initMode"],
    );
    exact::<PopMessageResponseHeader>(
        "popTime=1 invisibleTime=2 reviveQid=3 restNum=4 startOffsetInfo=s msgOffsetInfo=m orderCountInfo=o",
        &["popTime", "invisibleTime", "reviveQid", "restNum"],
    );
    let ack = ["consumerGroup", "topic", "queueId", "extraInfo", "offset"];
    exact::<AckMessageRequestHeader>("consumerGroup=g topic=t queueId=1 extraInfo=h offset=2", &ack);
    exact::<ChangeInvisibleTimeRequestHeader>(
        "consumerGroup=g topic=t queueId=1 extraInfo=h offset=2 invisibleTime=3 liteTopic=l suspend=true",
        &["consumerGroup", "topic", "queueId", "extraInfo", "offset", "invisibleTime"],
    );
    let change = ["popTime", "invisibleTime", "reviveQid"];
    exact::<ChangeInvisibleTimeResponseHeader>("popTime=1 invisibleTime=2 reviveQid=3", &change);
    exact::<BatchChangeInvisibleTimeRequestHeader>("consumerGroup=g topic=t", &["consumerGroup", "topic"]);
    exact::<NotificationRequestHeader>(
        "consumerGroup=g topic=t queueId=-1 pollTime=1 bornTime=2 order=false attemptId=a",
        &["consumerGroup", "topic", "queueId", "pollTime"],
    );
    exact::<NotificationResponseHeader>("hasMsg=true pollingFull=false", &["hasMsg"]);
    exact::<QueryConsumerOffsetRequestHeader>(
        "consumerGroup=g topic=t queueId=1 setZeroIfNotFound=false",
        &["consumerGroup", "topic", "queueId"],
    );
    exact::<UpdateConsumerOffsetRequestHeader>(
        "consumerGroup=g topic=t queueId=1 commitOffset=9",
        &["consumerGroup", "topic", "queueId", "commitOffset"],
    );
    exact::<OffsetResponseHeader>("offset=-1", &["offset"]);
    exact::<QueueRequestHeader>("topic=t queueId=0", &["topic", "queueId"]);
    exact::<SearchOffsetRequestHeader>(
        "topic=t queueId=0 timestamp=5 boundaryType=upper",
        &["topic", "queueId", "timestamp"],
    );
    exact::<UnregisterClientRequestHeader>("clientID=c producerGroup=p consumerGroup=g", &["clientID"]);
    exact::<GetConsumerListByGroupRequestHeader>("consumerGroup=g", &["consumerGroup"]);
    exact::<GetRouteInfoRequestHeader>("topic=t acceptStandardJsonOnly=true", &["topic"]);
    exact::<CreateTopicRequestHeader>(
        "topic=t defaultTopic=TBW102 readQueueNums=8 writeQueueNums=8 perm=6 topicFilterType=SINGLE_TAG topicSysFlag=0 order=false attributes=+message.type=FIFO force=true",
        &["topic", "defaultTopic", "readQueueNums", "writeQueueNums", "perm", "topicFilterType", "order"],
    );
    exact::<DeleteTopicRequestHeader>("topic=t onlyIfEmpty=true", &["topic"]);
    exact::<GetTopicConfigRequestHeader>("topic=t lo=true", &["topic"]);
    exact::<GetSubscriptionGroupConfigRequestHeader>("group=g", &["group"]);
    exact::<DeleteSubscriptionGroupRequestHeader>("groupName=g cleanOffset=true", &["groupName"]);
}

#[test]
fn a_send_has_long_names_in_the_first_version() {
    let header = seeds::send_header();
    let mut long = ExtFields::new();
    header.encode_v1(&mut long);
    let names: Vec<_> = long.iter().map(|(name, _)| name).collect();
    assert_eq!(
        names,
        [
            "producerGroup",
            "topic",
            "defaultTopic",
            "defaultTopicQueueNums",
            "queueId",
            "sysFlag",
            "bornTimestamp",
            "flag",
            "properties",
            "reconsumeTimes",
            "unitMode",
            "batch",
            "bname"
        ]
    );
    assert_eq!(SendMessageRequestHeader::decode_v1(&long), Ok(header.clone()));
    let mut short = ExtFields::new();
    header.encode(&mut short);
    assert_eq!(SendMessageRequestHeader::decode_v2(&short), Ok(header));
    assert_eq!(SendMessageRequestHeader::decode_v1(&short), Err(HeaderError::Missing("producerGroup")));
}

#[test]
fn values_that_are_none() {
    let queue = |value: &str| QueueRequestHeader::decode(&[("topic", "t"), ("queueId", value)].into_iter().collect());
    assert_eq!(queue("7"), Ok(QueueRequestHeader { topic: "t".to_owned(), queue_id: 7 }));
    for bad in ["", "x", "1.0", " 1", "2147483648", "-2147483649"] {
        assert_eq!(queue(bad), Err(HeaderError::Invalid { name: "queueId", value: bad.to_owned() }));
    }
    let Err(HeaderError::Invalid { value, .. }) = queue(&"ü".repeat(1_000_000)) else { panic!("accepted") };
    assert_eq!(value.chars().count(), 64, "an error does not carry a megabyte");
}

#[test]
fn booleans_as_in_java() {
    let has =
        |value: &str| NotificationResponseHeader::decode(&[("hasMsg", value)].into_iter().collect()).unwrap().has_msg;
    assert!(has("true") && has("TRUE") && has("True"));
    assert!(!has("false") && !has("1") && !has("yes") && !has(""));
}

#[test]
fn a_header_leaves_other_fields_alone() {
    let mut command = Command::request(codes::request::GET_MAX_OFFSET);
    command.ext.set("bname", "broker-a");
    command.ext.set("queueId", "1");
    let command = command.with_header(&QueueRequestHeader { topic: "t".to_owned(), queue_id: 2 });
    assert_eq!(command.ext.get("bname"), Some("broker-a"));
    assert_eq!(command.header::<QueueRequestHeader>().unwrap().queue_id, 2);
}

proptest! {
    #[test]
    fn numbers_and_text_go_there_and_back(
        group in ".*", extra in ".*", queue_id in any::<i32>(), offset in any::<i64>(), time in any::<i64>(),
        lite in proptest::option::of(".*"), suspend in proptest::option::of(any::<bool>()),
    ) {
        let header = ChangeInvisibleTimeRequestHeader {
            consumer_group: group, topic: extra.clone(), queue_id, extra_info: extra, offset, invisible_time: time,
            lite_topic: lite, suspend,
        };
        let command = Command::request(1).with_header(&header);
        prop_assert_eq!(command.header::<ChangeInvisibleTimeRequestHeader>(), Ok(header));
    }
}
