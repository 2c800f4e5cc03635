//! Two brokers in memory, behind a [`Transport`]: as much of them as the gRPC room needs, with stable handles (D5) and
//! a clock that is moved by hand. They compare hashes of tags only and bury nothing by themselves, as Apache's do.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::sync::Notify;
use waybill_ops::clock::{Clock, ManualClock};
use waybill_protocol::handle::{ReceiptHandle, TopicType};
use waybill_protocol::message::{StoredMessage, decode_batch, java_hash, offset_msg_id, properties};
use waybill_protocol::names::dlq_topic;
use waybill_protocol::remoting::{
    AckMessageRequestHeader, BrokerData, ChangeInvisibleTimeRequestHeader, ChangeInvisibleTimeResponseHeader,
    ClusterInfo, Command, ConsumerSendMsgBackRequestHeader, GetRouteInfoRequestHeader,
    GetSubscriptionGroupConfigRequestHeader, GetTopicConfigRequestHeader, PopMessageRequestHeader,
    PopMessageResponseHeader, QueueData, SendMessageRequestHeader, SendMessageResponseHeader, SubscriptionGroupConfig,
    TopicConfig, TopicRouteData, VouchAnswer, VouchBody,
    codes::{own, request, response},
    pop_info::{MsgOffsets, StartOffset, encode_msg_offsets, encode_start_offsets},
};
use waybill_sidecar::backend::{Transport, TransportError};

pub(crate) const BROKERS: [&str; 2] = ["broker-a", "broker-b"];
const QUEUES: i32 = 4;

/// What the next request of a kind gets instead of an answer of its own.
#[derive(Clone)]
pub(crate) enum Fault {
    Code(i32),
    Timeout,
}

/// A message of one queue of one topic on one broker, and what became of it for each group.
struct Kept {
    broker: usize,
    message: StoredMessage,
    leases: HashMap<String, Lease>,
    acked: HashSet<String>,
    /// Deliveries so far, by group.
    deliveries: HashMap<String, i32>,
}

#[derive(Clone, Copy)]
struct Lease {
    pop_time: i64,
    deadline: i64,
}

#[derive(Default)]
struct State {
    topics: BTreeMap<String, (TopicConfig, usize)>,
    groups: BTreeMap<String, SubscriptionGroupConfig>,
    messages: BTreeMap<String, Vec<Kept>>,
    last_pop_time: i64,
    faults: HashMap<i32, VecDeque<Fault>>,
    seen: Vec<Command>,
    hold_polls: bool,
    elsewhere: HashSet<String>,
}

pub(crate) struct FakeBrokers {
    state: Mutex<State>,
    clock: Arc<ManualClock>,
    changed: Notify,
}

impl FakeBrokers {
    pub(crate) fn new(clock: Arc<ManualClock>) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), clock, changed: Notify::new() })
    }

    /// A topic of that type on so many brokers.
    pub(crate) fn topic(&self, name: &str, kind: &str, brokers: usize) {
        let mut config = TopicConfig { topic_name: name.into(), read_queue_nums: QUEUES, ..Default::default() };
        config.write_queue_nums = QUEUES;
        if !kind.is_empty() {
            config.attributes.insert("message.type".into(), kind.into());
        }
        self.state.lock().topics.insert(name.into(), (config, brokers));
    }

    pub(crate) fn group(&self, config: SubscriptionGroupConfig) {
        self.state.lock().groups.insert(config.group_name.clone(), config);
    }

    /// Makes the next request of a kind fail; several are used up one by one.
    pub(crate) fn fail(&self, code: i32, fault: Fault) {
        self.state.lock().faults.entry(code).or_default().push_back(fault);
    }

    /// Another sidecar vouches for this client.
    pub(crate) fn is_elsewhere(&self, client: &str) {
        self.state.lock().elsewhere.insert(client.into());
    }

    /// Polls without a message wait, until a message comes or they are held no longer.
    pub(crate) fn hold_polls(&self, hold: bool) {
        self.state.lock().hold_polls = hold;
        self.changed.notify_waiters();
    }

    /// The requests of a kind so far.
    pub(crate) fn seen(&self, code: i32) -> Vec<Command> {
        self.state.lock().seen.iter().filter(|command| command.code == code).cloned().collect()
    }

    /// The leases of a group that are alive, as the broker sees it.
    pub(crate) fn leased(&self, group: &str) -> usize {
        let now = self.clock.now_ms();
        let state = self.state.lock();
        let kept = state.messages.values().flatten();
        kept.filter(|kept| kept.leases.get(group).is_some_and(|lease| lease.deadline > now)).count()
    }

    /// Messages that a group has acknowledged.
    pub(crate) fn acked(&self, group: &str) -> usize {
        self.state.lock().messages.values().flatten().filter(|kept| kept.acked.contains(group)).count()
    }

    /// Messages of a topic.
    pub(crate) fn stored(&self, topic: &str) -> Vec<StoredMessage> {
        let state = self.state.lock();
        state.messages.get(topic).map(|kept| kept.iter().map(|k| k.message.clone()).collect()).unwrap_or_default()
    }

    fn answer(&self, broker: usize, command: &Command) -> Option<Command> {
        let mut state = self.state.lock();
        let answer = match command.code {
            request::GET_ROUTEINFO_BY_TOPIC => state.route(command),
            request::GET_BROKER_CLUSTER_INFO => cluster_info(),
            request::GET_TOPIC_CONFIG => state.topic_config(command),
            request::GET_SUBSCRIPTIONGROUP_CONFIG => state.group_config(command),
            request::SEND_MESSAGE_V2 | request::SEND_BATCH_MESSAGE => state.send(broker, command, self.clock.now_ms()),
            request::POP_MESSAGE => {
                let answer = state.pop(broker, command, self.clock.now_ms());
                if state.hold_polls && answer.code == response::POLLING_TIMEOUT {
                    return None;
                }
                answer
            }
            own::VOUCH_FOR_CLIENTS => state.vouch(command),
            request::ACK_MESSAGE => state.ack(broker, command, self.clock.now_ms()),
            request::CHANGE_MESSAGE_INVISIBLETIME => state.change(broker, command, self.clock.now_ms()),
            request::CONSUMER_SEND_MSG_BACK => state.send_back(broker, command, self.clock.now_ms()),
            _ => Command::response(response::REQUEST_CODE_NOT_SUPPORTED, "not in this fake"),
        };
        Some(answer)
    }
}

#[async_trait]
impl Transport for FakeBrokers {
    async fn call(&self, address: &str, command: Command, _: Duration) -> Result<Command, TransportError> {
        let broker = BROKERS.iter().position(|name| address.starts_with(name)).unwrap_or(0);
        let fault = {
            let mut state = self.state.lock();
            state.seen.push(command.clone());
            state.faults.get_mut(&command.code).and_then(VecDeque::pop_front)
        };
        match fault {
            Some(Fault::Code(code)) => return Ok(Command::response(code, "as told")),
            Some(Fault::Timeout) => return Err(TransportError::Timeout),
            None => {}
        }
        loop {
            let changed = self.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            if let Some(answer) = self.answer(broker, &command) {
                if matches!(command.code, request::SEND_MESSAGE_V2 | request::SEND_BATCH_MESSAGE) {
                    self.changed.notify_waiters();
                }
                return Ok(answer);
            }
            changed.await;
        }
    }

    async fn oneway(&self, _: &str, _: Command, _: Duration) -> Result<(), TransportError> {
        Ok(())
    }
}

fn ok() -> Command {
    Command::response(response::SUCCESS, "")
}

fn cluster_info() -> Command {
    let mut info = ClusterInfo::default();
    for name in BROKERS {
        let broker_addrs = [(0, format!("{name}:10911"))].into();
        let data = BrokerData { broker_name: name.into(), broker_addrs, ..Default::default() };
        info.broker_addr_table.insert(name.into(), data);
    }
    ok().with_json(&info)
}

impl State {
    fn vouch(&self, command: &Command) -> Command {
        let body: VouchBody = command.json().expect("a body");
        let elsewhere = body.gone.into_iter().filter(|client| self.elsewhere.contains(client)).collect();
        Command::response(response::SUCCESS, "").with_json(&VouchAnswer { elsewhere, client_gone_after: 30_000 })
    }

    fn route(&self, command: &Command) -> Command {
        let header: GetRouteInfoRequestHeader = command.header().expect("a route header");
        // As every broker has a topic of its own name, and every cluster too.
        let brokers = match self.topics.get(&header.topic) {
            Some((_, brokers)) => *brokers,
            None if BROKERS.contains(&header.topic.as_str()) || header.topic == "DefaultCluster" => BROKERS.len(),
            None => return Command::response(response::TOPIC_NOT_EXIST, "no route"),
        };
        let mut route = TopicRouteData::default();
        for name in BROKERS.iter().take(brokers) {
            let config = self.topics.get(&header.topic).map(|(config, _)| config.clone()).unwrap_or_default();
            route.queue_datas.push(QueueData {
                broker_name: (*name).into(),
                read_queue_nums: config.read_queue_nums,
                write_queue_nums: config.write_queue_nums,
                perm: config.perm,
                ..Default::default()
            });
            let broker_addrs = [(0, format!("{name}:10911"))].into();
            route.broker_datas.push(BrokerData { broker_name: (*name).into(), broker_addrs, ..Default::default() });
        }
        ok().with_json(&route)
    }

    fn topic_config(&self, command: &Command) -> Command {
        let header: GetTopicConfigRequestHeader = command.header().expect("a topic header");
        match self.topics.get(&header.topic) {
            Some((config, _)) => ok().with_json(config),
            None => Command::response(response::TOPIC_NOT_EXIST, "no topic"),
        }
    }

    fn group_config(&self, command: &Command) -> Command {
        let header: GetSubscriptionGroupConfigRequestHeader = command.header().expect("a group header");
        match self.groups.get(&header.group) {
            Some(config) => ok().with_json(config),
            None => Command::response(response::SUBSCRIPTION_GROUP_NOT_EXIST, "no group"),
        }
    }

    fn send(&mut self, broker: usize, command: &Command, now: i64) -> Command {
        let header: SendMessageRequestHeader = command.header().expect("a send header");
        let items = match command.code {
            request::SEND_BATCH_MESSAGE => decode_batch(command.body.clone()).expect("a batch"),
            _ => vec![waybill_protocol::message::BatchItem {
                flag: header.flag,
                body: command.body.clone(),
                properties: header.properties.clone().unwrap_or_default(),
            }],
        };
        let mut ids = Vec::new();
        let mut first = None;
        for item in items {
            let (offset, id) = self.keep(broker, &header, item.body, item.properties, now);
            first.get_or_insert(offset);
            ids.push(id);
        }
        ok().with_header(&SendMessageResponseHeader {
            msg_id: ids.join(","),
            queue_id: header.queue_id,
            queue_offset: first.unwrap_or_default(),
            transaction_id: None,
            batch_uniq_id: None,
            recall_handle: None,
        })
    }

    fn keep(
        &mut self,
        broker: usize,
        header: &SendMessageRequestHeader,
        body: Bytes,
        properties: String,
        now: i64,
    ) -> (i64, String) {
        let physical_offset = self.messages.values().map(Vec::len).sum::<usize>() as i64;
        let kept = self.messages.entry(header.topic.clone()).or_default();
        let in_queue = kept.iter().filter(|k| k.broker == broker && k.message.queue_id == header.queue_id).count();
        let message = StoredMessage {
            topic: header.topic.clone(),
            queue_id: header.queue_id,
            flag: header.flag,
            queue_offset: in_queue as i64,
            physical_offset,
            sys_flag: header.sys_flag,
            born_timestamp: header.born_timestamp,
            born_host: "127.0.0.1:1".parse().expect("an address"),
            store_timestamp: now,
            store_host: "127.0.0.1:10911".parse().expect("an address"),
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body,
            properties,
        };
        let id = offset_msg_id(message.store_host, physical_offset);
        let (leases, acked, deliveries) = Default::default();
        kept.push(Kept { broker, message, leases, acked, deliveries });
        (in_queue as i64, id)
    }

    fn pop(&mut self, broker: usize, command: &Command, now: i64) -> Command {
        let header: PopMessageRequestHeader = command.header().expect("a pop header");
        if !self.groups.contains_key(&header.consumer_group) {
            return Command::response(response::SUBSCRIPTION_GROUP_NOT_EXIST, "no group");
        }
        if header.exp_type.as_deref() == Some("SQL92") && header.exp.as_deref().is_some_and(|exp| exp.contains(">>>")) {
            return Command::response(response::SUBSCRIPTION_PARSE_FAILED, "broken condition");
        }
        self.last_pop_time = now.max(self.last_pop_time + 1);
        let lease = Lease { pop_time: self.last_pop_time, deadline: self.last_pop_time + header.invisible_time };
        let expression = header.exp.clone().unwrap_or_default();
        let hashes = expression.split("||").map(|tag| java_hash(tag.trim())).collect::<Vec<_>>();
        let wanted = |message: &StoredMessage| {
            let tag = properties::get(&message.properties, properties::TAGS).unwrap_or_default();
            expression == "*" || header.exp_type.as_deref() != Some("TAG") || hashes.contains(&java_hash(tag))
        };
        let mut body = BytesMut::new();
        let mut offsets: BTreeMap<i32, Vec<i64>> = BTreeMap::new();
        let mut count = 0;
        for kept in self.messages.get_mut(&header.topic).into_iter().flatten() {
            let free = kept.leases.get(&header.consumer_group).is_none_or(|lease| lease.deadline <= now);
            let open = kept.broker == broker && free && !kept.acked.contains(&header.consumer_group);
            if !open || !wanted(&kept.message) || count == header.max_msg_nums {
                continue;
            }
            count += 1;
            kept.leases.insert(header.consumer_group.clone(), lease);
            let deliveries = kept.deliveries.entry(header.consumer_group.clone()).or_default();
            let message = StoredMessage { reconsume_times: *deliveries, ..kept.message.clone() };
            *deliveries += 1;
            message.encode(&mut body).expect("it fits");
            offsets.entry(message.queue_id).or_default().push(message.queue_offset);
        }
        if count == 0 {
            return Command::response(response::POLLING_TIMEOUT, "nothing");
        }
        let start = |(queue_id, offsets): (&i32, &Vec<i64>)| StartOffset {
            kind: TopicType::Normal,
            queue_id: *queue_id,
            offset: offsets.iter().copied().min().unwrap_or_default(),
        };
        let starts = offsets.iter().map(start).collect::<Vec<_>>();
        let messages =
            offsets.into_iter().map(|(queue_id, offsets)| MsgOffsets { kind: TopicType::Normal, queue_id, offsets });
        ok().with_body(body.freeze()).with_header(&PopMessageResponseHeader {
            pop_time: lease.pop_time,
            invisible_time: header.invisible_time,
            revive_qid: 0,
            rest_num: 0,
            start_offset_info: Some(encode_start_offsets(&starts)),
            msg_offset_info: Some(encode_msg_offsets(&messages.collect::<Vec<_>>())),
            order_count_info: None,
        })
    }

    fn find(&mut self, broker: usize, topic: &str, handle: &ReceiptHandle) -> Option<&mut Kept> {
        self.messages.get_mut(topic)?.iter_mut().find(|kept| {
            let message = &kept.message;
            kept.broker == broker && message.queue_id == handle.queue_id && message.queue_offset == handle.offset
        })
    }

    fn ack(&mut self, broker: usize, command: &Command, now: i64) -> Command {
        let header: AckMessageRequestHeader = command.header().expect("an ack header");
        self.finish(broker, &header.topic, &header.consumer_group, &header.extra_info, now)
    }

    fn finish(&mut self, broker: usize, topic: &str, group: &str, handle: &str, now: i64) -> Command {
        if !self.topics.contains_key(topic) {
            return Command::response(response::TOPIC_NOT_EXIST, "no topic");
        }
        let handle: ReceiptHandle = handle.parse().expect("a handle");
        let Some(kept) = self.find(broker, topic, &handle) else {
            return Command::response(response::NO_MESSAGE, "no");
        };
        let alive = kept.leases.get(group).is_some_and(|l| l.pop_time == handle.pop_time && l.deadline > now);
        if !alive && !kept.acked.contains(group) {
            return Command::response(response::NO_MESSAGE, "no such delivery");
        }
        kept.acked.insert(group.to_owned());
        kept.leases.remove(group);
        ok()
    }

    fn change(&mut self, broker: usize, command: &Command, now: i64) -> Command {
        let header: ChangeInvisibleTimeRequestHeader = command.header().expect("a change header");
        if !self.topics.contains_key(&header.topic) {
            return Command::response(response::TOPIC_NOT_EXIST, "no topic");
        }
        let handle: ReceiptHandle = header.extra_info.parse().expect("a handle");
        let group = header.consumer_group;
        let Some(kept) = self.find(broker, &header.topic, &handle) else {
            return Command::response(response::NO_MESSAGE, "no");
        };
        let Some(lease) = kept.leases.get_mut(&group).filter(|l| l.pop_time == handle.pop_time && l.deadline > now)
        else {
            return Command::response(response::NO_MESSAGE, "no such delivery");
        };
        lease.deadline = now + header.invisible_time;
        let invisible_time = lease.deadline - lease.pop_time;
        if header.suspend == Some(true) {
            kept.deliveries.entry(group).and_modify(|count| *count -= 1);
        }
        ok().with_header(&ChangeInvisibleTimeResponseHeader {
            pop_time: handle.pop_time,
            invisible_time,
            revive_qid: 0,
        })
    }

    fn send_back(&mut self, broker: usize, command: &Command, now: i64) -> Command {
        let header: ConsumerSendMsgBackRequestHeader = command.header().expect("a send-back header");
        let topic = header.origin_topic.unwrap_or_default();
        let handle = header.extra_info.unwrap_or_default();
        let before = self.acked_by(&topic, &header.group);
        let answer = self.finish(broker, &topic, &header.group, &handle, now);
        if answer.code == response::SUCCESS && self.acked_by(&topic, &header.group) > before {
            let original = self.messages.values().flatten().find(|k| k.message.physical_offset == header.offset);
            let dead = original.map(|kept| kept.message.clone()).expect("the original");
            let name = dlq_topic(&header.group);
            let config = TopicConfig { topic_name: name.clone(), ..Default::default() };
            self.topics.entry(name.clone()).or_insert((config, 1));
            let send = SendMessageRequestHeader { topic: name, queue_id: 0, sys_flag: dead.sys_flag, ..blank_send() };
            self.keep(broker, &send, dead.body, dead.properties, now);
        }
        answer
    }

    fn acked_by(&self, topic: &str, group: &str) -> usize {
        self.messages.get(topic).into_iter().flatten().filter(|kept| kept.acked.contains(group)).count()
    }
}

fn blank_send() -> SendMessageRequestHeader {
    SendMessageRequestHeader {
        producer_group: String::new(),
        topic: String::new(),
        default_topic: String::new(),
        default_topic_queue_nums: 0,
        queue_id: 0,
        sys_flag: 0,
        born_timestamp: 0,
        flag: 0,
        properties: None,
        reconsume_times: None,
        unit_mode: None,
        max_reconsume_times: None,
        batch: None,
        broker_name: None,
    }
}
