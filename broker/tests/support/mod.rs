//! A broker in this process whose clock is moved by hand, and the requests that tests send it.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub, missing_docs)]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use waybill_broker::{Broker, BrokerConfig, Peer};
use waybill_ops::clock::ManualClock;
use waybill_protocol::handle::{ReceiptHandle, TopicType};
use waybill_protocol::message::{StoredMessage, properties};
use waybill_protocol::remoting::codes::{request, response};
use waybill_protocol::remoting::pop_info::decode_msg_offsets;
use waybill_protocol::remoting::{
    AckMessageRequestHeader, ChangeInvisibleTimeRequestHeader, ChangeInvisibleTimeResponseHeader, Command,
    CreateTopicRequestHeader, JsonBody, PopMessageRequestHeader, PopMessageResponseHeader, SendMessageRequestHeader,
    SendMessageResponseHeader, SubscriptionGroupConfig,
};

pub const START_MS: i64 = 1_800_000_000_000;
/// How long a poll of [`Rig::poll`] may wait; if nothing wakes it, it looks again only at its end.
pub const POLL_MS: i64 = 60_000;
/// Far more than something that is woken needs, and less than a poll may wait.
pub const LIMIT: Duration = Duration::from_secs(20);

pub struct Rig {
    pub dir: Arc<tempfile::TempDir>,
    pub clock: Arc<ManualClock>,
    pub broker: Arc<Broker>,
    pub peer: Peer,
}

#[derive(Debug, Clone)]
pub struct Got {
    pub handle: ReceiptHandle,
    pub message: StoredMessage,
}

impl Got {
    pub fn id(&self) -> String {
        properties::get(&self.message.properties, properties::UNIQ_KEY).unwrap_or_default().to_owned()
    }
    pub fn attempt(&self) -> i32 {
        self.message.reconsume_times + 1
    }
}

pub fn config(dir: &std::path::Path) -> BrokerConfig {
    BrokerConfig {
        store_path_root_dir: dir.to_owned(),
        mapped_file_size_commit_log: 16 << 20,
        // The disk of the machine that the tests run on is none of theirs.
        disk_max_used_space_ratio: 100,
        ..BrokerConfig::default()
    }
}

impl Rig {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn with(change: impl Fn(&mut BrokerConfig)) -> Self {
        Self::within(tempfile::tempdir().unwrap(), change)
    }

    pub fn within(dir: tempfile::TempDir, change: impl Fn(&mut BrokerConfig)) -> Self {
        let dir = Arc::new(dir);
        let clock = Arc::new(ManualClock::new(START_MS));
        let mut config = config(dir.path());
        change(&mut config);
        let broker = Broker::open_with_clock(config, clock.clone()).unwrap();
        Self { dir, clock, broker, peer: Peer::local() }
    }

    /// One whose topic "t" has one queue of `count` messages, all of them held by group "g" for a minute.
    pub async fn with_messages(count: usize) -> (Self, Vec<Got>) {
        let rig = Self::new();
        rig.topic("t", 1).await;
        rig.group("g").await;
        for n in 0..count {
            rig.send("t", &format!("m{n:03}")).await;
        }
        let mut got = Vec::new();
        while got.len() < count {
            got.extend(rig.pop("g", "t", 32, 60_000).await);
        }
        (rig, got)
    }

    /// Stops the broker and opens another on the same directory, at the same time of the clock.
    pub fn reopen(self) -> Self {
        self.broker.close();
        let config = self.broker.config().clone();
        drop(self.broker);
        let broker = Broker::open_with_clock(config, self.clock.clone()).unwrap();
        Self { broker, ..self }
    }

    pub fn clock_now(&self) -> i64 {
        waybill_ops::clock::Clock::now_ms(self.clock.as_ref())
    }

    pub async fn call(&self, command: Command) -> Command {
        self.broker.handle(&self.peer, command).await.expect("an answer")
    }

    pub async fn ok(&self, command: Command) -> Command {
        let answer = self.call(command).await;
        assert_eq!(answer.code, response::SUCCESS, "{:?}", answer.remark);
        answer
    }

    pub async fn topic(&self, name: &str, queues: i32) {
        self.ok(Command::request(request::UPDATE_AND_CREATE_TOPIC)
            .with_header(&CreateTopicRequestHeader::new(name, queues)))
            .await;
    }

    pub async fn group(&self, name: &str) {
        self.group_with(SubscriptionGroupConfig { group_name: name.into(), ..Default::default() }).await;
    }

    pub async fn group_with(&self, config: SubscriptionGroupConfig) {
        self.ok(Command::request(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP).with_body(config.to_json())).await;
    }

    pub fn send_command(topic: &str, id: &str, tag: Option<&str>, body: &str) -> Command {
        let mut raw = String::new();
        properties::set(&mut raw, properties::UNIQ_KEY, id);
        if let Some(tag) = tag {
            properties::set(&mut raw, properties::TAGS, tag);
        }
        Command::request(request::SEND_MESSAGE_V2)
            .with_header(&SendMessageRequestHeader {
                producer_group: "p".into(),
                topic: topic.into(),
                default_topic: "TBW102".into(),
                default_topic_queue_nums: 4,
                queue_id: -1,
                sys_flag: 0,
                born_timestamp: START_MS,
                flag: 0,
                properties: Some(raw),
                ..Default::default()
            })
            .with_body(Bytes::copy_from_slice(body.as_bytes()))
    }

    pub async fn send(&self, topic: &str, id: &str) -> SendMessageResponseHeader {
        self.ok(Self::send_command(topic, id, None, id)).await.header().unwrap()
    }

    /// A message of a message group, in the queue that all of its group go to.
    pub async fn send_in_group(&self, topic: &str, id: &str, message_group: &str) {
        let mut command = Self::send_command(topic, id, None, id);
        let mut header = SendMessageRequestHeader::decode_v2(&command.ext).unwrap();
        properties::set(header.properties.as_mut().unwrap(), properties::SHARDING_KEY, message_group);
        header.queue_id = 0;
        command = Command::request(request::SEND_MESSAGE_V2).with_header(&header).with_body(command.body);
        self.ok(command).await;
    }

    pub async fn send_tagged(&self, topic: &str, id: &str, tag: &str) {
        self.ok(Self::send_command(topic, id, Some(tag), id)).await;
    }

    pub fn pop_command(&self, group: &str, topic: &str, max: i32, invisible_ms: i64) -> PopMessageRequestHeader {
        PopMessageRequestHeader {
            consumer_group: group.into(),
            topic: topic.into(),
            queue_id: -1,
            max_msg_nums: max,
            invisible_time: invisible_ms,
            poll_time: 0,
            born_time: 0,
            init_mode: 1,
            client_id: Some("client-1".into()),
            ..Default::default()
        }
    }

    pub async fn pop(&self, group: &str, topic: &str, max: i32, invisible_ms: i64) -> Vec<Got> {
        let answer = self.pop_raw(self.pop_command(group, topic, max, invisible_ms)).await;
        if answer.code == response::POLLING_TIMEOUT {
            return Vec::new();
        }
        self.got(&answer)
    }

    pub async fn pop_raw(&self, header: PopMessageRequestHeader) -> Command {
        self.call(Command::request(request::POP_MESSAGE).with_header(&header)).await
    }

    /// A pop that waits, and has to be woken.
    pub async fn poll(&self, group: &str, topic: &str, max: i32) -> Command {
        let header = PopMessageRequestHeader { poll_time: POLL_MS, ..self.pop_command(group, topic, max, 10_000) };
        self.woken(Command::request(request::POP_MESSAGE).with_header(&header)).await
    }

    /// The answer to a request that may wait for [`POLL_MS`], and has to be woken.
    pub async fn woken(&self, command: Command) -> Command {
        tokio::time::timeout(LIMIT, self.call(command)).await.expect("what waits was not woken")
    }

    /// Until so many wait.
    pub async fn until_waiting(&self, group: &str, topic: &str, count: usize) {
        let waiting = async {
            while self.broker.core().polling(group, topic).unwrap() != count {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(LIMIT, waiting).await.expect("they do not wait");
    }

    pub fn got(&self, answer: &Command) -> Vec<Got> {
        got(answer)
    }

    pub async fn ack(&self, group: &str, topic: &str, handle: &ReceiptHandle) -> i32 {
        self.call(Command::request(request::ACK_MESSAGE).with_header(&AckMessageRequestHeader {
            consumer_group: group.into(),
            topic: topic.into(),
            queue_id: handle.queue_id,
            extra_info: handle.to_string(),
            offset: handle.offset,
        }))
        .await
        .code
    }

    pub async fn change(
        &self,
        group: &str,
        topic: &str,
        handle: &ReceiptHandle,
        invisible_ms: i64,
    ) -> Result<ReceiptHandle, i32> {
        let answer = self
            .call(Command::request(request::CHANGE_MESSAGE_INVISIBLETIME).with_header(
                &ChangeInvisibleTimeRequestHeader {
                    consumer_group: group.into(),
                    topic: topic.into(),
                    queue_id: handle.queue_id,
                    extra_info: handle.to_string(),
                    offset: handle.offset,
                    invisible_time: invisible_ms,
                    ..Default::default()
                },
            ))
            .await;
        if answer.code != response::SUCCESS {
            return Err(answer.code);
        }
        let header: ChangeInvisibleTimeResponseHeader = answer.header().unwrap();
        Ok(ReceiptHandle { pop_time: header.pop_time, invisible_time: header.invisible_time, ..handle.clone() })
    }

    /// Takes and acknowledges one message after the other.
    pub async fn drain_in_order(&self, group: &str, topic: &str) -> Vec<String> {
        let mut ids = Vec::new();
        while let Some(got) = self.pop(group, topic, 1, 3_600_000).await.pop() {
            assert_eq!(self.ack(group, topic, &got.handle).await, response::SUCCESS);
            ids.push(got.id());
        }
        ids
    }

    pub async fn drain_ids(&self, group: &str, topic: &str) -> Vec<String> {
        let mut ids = Vec::new();
        loop {
            let got = self.pop(group, topic, 32, 3_600_000).await;
            if got.is_empty() {
                ids.sort();
                return ids;
            }
            ids.extend(got.iter().map(Got::id));
        }
    }
}

/// Builds handles from the answer as the Java client does: by the index of a message's offset among its queue's.
pub fn got(answer: &Command) -> Vec<Got> {
    assert_eq!(answer.code, response::SUCCESS, "{:?}", answer.remark);
    let header: PopMessageResponseHeader = answer.header().unwrap();
    let offsets = decode_msg_offsets(header.msg_offset_info.as_deref().unwrap_or("")).unwrap();
    StoredMessage::decode_all(answer.body.clone())
        .unwrap()
        .into_iter()
        .map(|message| {
            let queue = offsets.iter().find(|entry| entry.queue_id == message.queue_id).expect("its queue is listed");
            assert!(queue.offsets.contains(&message.queue_offset), "{queue:?} {}", message.queue_offset);
            let handle = ReceiptHandle {
                start_offset: queue.offsets[0],
                pop_time: header.pop_time,
                invisible_time: header.invisible_time,
                revive_queue_id: header.revive_qid,
                topic_type: TopicType::Normal,
                broker_name: "broker-a".into(),
                queue_id: message.queue_id,
                offset: message.queue_offset,
                commit_log_offset: Some(message.physical_offset),
            };
            Got { handle, message }
        })
        .collect()
}
