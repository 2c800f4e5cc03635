//! Calls to a broker over remoting, without a sidecar: Waybill's or Apache's.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use waybill_ops::clock::{self, SystemClock};
use waybill_ops::config::Live;
use waybill_protocol::handle::ReceiptHandle;
use waybill_protocol::message::properties;
use waybill_protocol::remoting::codes::{request, response};
use waybill_protocol::remoting::{
    AckMessageRequestHeader, BatchChangeInvisibleBody, BatchChangeInvisibleEntry, BatchChangeInvisibleResult,
    BatchChangeInvisibleTimeRequestHeader, ChangeInvisibleTimeRequestHeader, ChangeInvisibleTimeResponseHeader,
    Command, SendMessageRequestHeader,
};
use waybill_sidecar::backend::{
    BackendError, BackendMetrics, Filter, FilterKind, LeaseRef, MessageService, OutgoingMessage, PopRequest,
    PoppedMessage, RemoteOptions, RemoteTransport, SendRequest, Transport, TransportError,
};
use waybill_sidecar::config::Config;
use waybill_sidecar::route::MASTER;

use super::load::Problem;
use super::options::Load;
use crate::exit::Failure;
use crate::grpc::MessageIds;

/// The property that says when a message is due, milliseconds since 1970; brokers leave it alone.
pub(crate) const DUE: &str = "due";
/// How long a broker may take for one call.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long messages stay invisible: longer than any run.
const INVISIBLE_MS: i64 = 3_600_000;
/// How long a pop waits for messages that were sent just before.
const POLL_MS: i64 = 3_000;
/// Pops without a message before the topic is held to be empty.
const EMPTY_POPS_MAX: usize = 5;
/// Messages of one send and of one pop, while a measurement is prepared.
const AT_ONCE: usize = 32;
/// Acknowledgements under way at once, where they are not measured.
const ACKS: usize = 64;

/// A broker, and connections to it.
pub(crate) struct Direct {
    links: Vec<RemoteTransport>,
    address: String,
    /// Sends and pops while a measurement is prepared.
    service: MessageService,
    topic: String,
    group: String,
    ids: MessageIds,
    body: Bytes,
}

/// A message that was given out: where it is, and its newest handle.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    real_topic: String,
    handle: ReceiptHandle,
}

impl Direct {
    /// Finds the broker of the topic by a name server (or a broker of Waybill, which answers like one). The topic has one broker.
    pub(crate) async fn open(namesrv: &str, load: &Load) -> Result<Self, Failure> {
        // Where acknowledgements are not measured, they are to be cheap.
        let config = Config { namesrv_addr: namesrv.to_owned(), enable_batch_ack: true, ..Config::default() };
        let link = || RemoteTransport::new(RemoteOptions::of(&config));
        let links = (0..load.connections).map(|_| link()).collect();
        let (metrics, clock) = (BackendMetrics::default(), Arc::new(SystemClock::new()));
        let service = MessageService::new(Arc::new(link()), Arc::new(Live::fixed(config.clone())), clock, metrics);
        let route = service.route(&load.topic).await.map_err(refused)?;
        let [broker] = route.brokers.as_slice() else {
            return Err(Failure::failed(format!("the topic {} is not at one broker", load.topic)));
        };
        let Some(address) = broker.broker_addrs.get(&MASTER).cloned() else {
            return Err(Failure::failed(format!("the broker of the topic {} has no address", load.topic)));
        };
        let (topic, group) = (load.topic.clone(), load.group.clone());
        let body = Bytes::from(vec![b'x'; load.size as usize]);
        Ok(Self { links, address, service, topic, group, ids: MessageIds::new(), body })
    }

    /// Sends messages and takes them. The topic is emptied of others before; the group is known then, too.
    pub(crate) async fn hold(&self, count: usize) -> Result<Vec<Held>, Failure> {
        loop {
            let left = self.pop(0).await?;
            if left.is_empty() {
                break;
            }
            self.release(left).await;
        }
        for first in (0..count).step_by(AT_ONCE) {
            self.fill(AT_ONCE.min(count - first)).await?;
        }
        let (mut held, mut empty) = (Vec::new(), 0);
        while held.len() < count && empty < EMPTY_POPS_MAX {
            let popped = self.pop(POLL_MS).await?;
            empty = if popped.is_empty() { empty + 1 } else { 0 };
            held.extend(popped);
        }
        if held.len() != count {
            return Err(Failure::failed(format!("sent {count} messages, but received {}", held.len())));
        }
        Ok(held)
    }

    /// Acknowledges what is not needed any more. What fails comes back after its time, and the next run empties the topic.
    pub(crate) async fn release(&self, held: Vec<Held>) {
        for some in held.chunks(ACKS) {
            let _answers = join_all(some.iter().enumerate().map(|(number, one)| self.ack(number, one))).await;
        }
    }

    async fn fill(&self, count: usize) -> Result<(), Failure> {
        self.send_many(count, None).await
    }

    /// Sends messages with one request, all of one message group or of none.
    pub(crate) async fn send_many(&self, count: usize, message_group: Option<String>) -> Result<(), Failure> {
        let group: Vec<_> = message_group.iter().map(|group| (properties::SHARDING_KEY, group.as_str())).collect();
        let properties = || self.properties(&group);
        let messages = (0..count).map(|_| OutgoingMessage { body: self.body.clone(), properties: properties() });
        let request = SendRequest {
            topic: self.topic.clone(),
            messages: messages.collect(),
            sys_flag: 0,
            born_timestamp: clock::now_ms(),
            message_group,
            timeout: TIMEOUT,
        };
        self.service.send(request).await.map(drop).map_err(refused)
    }

    fn properties(&self, more: &[(&str, &str)]) -> String {
        let mut raw = String::new();
        properties::set(&mut raw, properties::UNIQ_KEY, &self.ids.next());
        for (name, value) in more {
            properties::set(&mut raw, name, value);
        }
        raw
    }

    async fn pop(&self, poll_ms: i64) -> Result<Vec<Held>, Failure> {
        let popped = self.receive(poll_ms, INVISIBLE_MS, false).await?;
        Ok(popped.into_iter().map(|message| self.held(&message)).collect())
    }

    /// What is needed to go on with a message that was received.
    pub(crate) fn held(&self, message: &PoppedMessage) -> Held {
        Held { real_topic: message.handle.real_topic(&self.group, &self.topic), handle: message.handle.clone() }
    }

    /// Receives up to 32 messages.
    pub(crate) async fn receive(
        &self,
        poll_ms: i64,
        invisible_ms: i64,
        fifo: bool,
    ) -> Result<Vec<PoppedMessage>, Failure> {
        let request = PopRequest {
            // Nobody vouches for this client; leases without a holder are kept until they end.
            client_id: String::new(),
            group: self.group.clone(),
            topic: self.topic.clone(),
            broker_name: None,
            max_messages: AT_ONCE as i32,
            invisible_ms,
            poll_ms,
            filter: Filter { kind: FilterKind::Tag, expression: "*".to_owned() },
            fifo,
            attempt_id: None,
            subscribed_topics: None,
        };
        Ok(self.service.pop(request).await.map_err(refused)?.messages)
    }

    /// Acknowledges what was received, with as few requests as the broker takes.
    pub(crate) async fn ack_all(&self, messages: &[PoppedMessage]) -> Result<(), Failure> {
        let (group, topic): (Arc<str>, Arc<str>) = (self.group.as_str().into(), self.topic.as_str().into());
        let lease = |message: &PoppedMessage| LeaseRef {
            group: group.clone(),
            topic: topic.clone(),
            handle: message.handle.clone(),
        };
        let results = self.service.ack(messages.iter().map(lease).collect()).await;
        results.into_iter().collect::<Result<(), _>>().map_err(refused)
    }

    /// Takes all that is there and acknowledges it; the group is known then, too.
    pub(crate) async fn empty(&self) -> Result<(), Failure> {
        loop {
            let left = self.receive(0, INVISIBLE_MS, false).await?;
            if left.is_empty() {
                return Ok(());
            }
            self.ack_all(&left).await?;
        }
    }

    /// Sends one message over one of the connections: workers are dealt out over them by their numbers.
    pub(crate) async fn send(&self, worker: usize) -> Result<(), Problem> {
        self.send_due(worker, None).await
    }

    /// The same, of a message that is due at a time, milliseconds since 1970.
    pub(crate) async fn send_due(&self, worker: usize, due_ms: Option<i64>) -> Result<(), Problem> {
        let due = due_ms.map(|due_ms| due_ms.to_string());
        let due: Vec<_> =
            due.iter().flat_map(|due| [(properties::TIMER_DELIVER_MS, due.as_str()), (DUE, due.as_str())]).collect();
        let header = SendMessageRequestHeader {
            producer_group: self.group.clone(),
            topic: self.topic.clone(),
            queue_id: -1,
            born_timestamp: clock::now_ms(),
            properties: Some(self.properties(&due)),
            ..Default::default()
        };
        let request = Command::request(request::SEND_MESSAGE_V2).with_header(&header).with_body(self.body.clone());
        self.call(worker, request).await.map(drop)
    }

    pub(crate) async fn ack(&self, worker: usize, held: &Held) -> Result<(), Problem> {
        let header = AckMessageRequestHeader {
            consumer_group: self.group.clone(),
            topic: held.real_topic.clone(),
            queue_id: held.handle.queue_id,
            extra_info: held.handle.to_string(),
            offset: held.handle.offset,
        };
        self.call(worker, Command::request(request::ACK_MESSAGE).with_header(&header)).await.map(drop)
    }

    /// Extends one lease.
    pub(crate) async fn change(&self, worker: usize, held: &mut Held) -> Result<(), Problem> {
        let header = ChangeInvisibleTimeRequestHeader {
            consumer_group: self.group.clone(),
            topic: held.real_topic.clone(),
            queue_id: held.handle.queue_id,
            extra_info: held.handle.to_string(),
            offset: held.handle.offset,
            invisible_time: INVISIBLE_MS,
            lite_topic: None,
            suspend: None,
        };
        let request = Command::request(request::CHANGE_MESSAGE_INVISIBLETIME).with_header(&header);
        let answer: ChangeInvisibleTimeResponseHeader =
            self.call(worker, request).await?.header().map_err(|error| unreadable(&error))?;
        held.changed(answer.pop_time, answer.invisible_time, answer.revive_qid);
        Ok(())
    }

    /// Extends leases of one real topic with one request; the code of each that failed.
    pub(crate) async fn change_all(&self, worker: usize, all: &mut [Held]) -> Result<Vec<Problem>, Problem> {
        let Some(first) = all.first() else { return Ok(Vec::new()) };
        let header = BatchChangeInvisibleTimeRequestHeader {
            consumer_group: self.group.clone(),
            topic: first.real_topic.clone(),
        };
        let entries = all.iter().map(|held| BatchChangeInvisibleEntry {
            consumer_group: self.group.clone(),
            topic: held.real_topic.clone(),
            queue_id: held.handle.queue_id,
            extra_info: held.handle.to_string(),
            offset: held.handle.offset,
            invisible_time: INVISIBLE_MS,
            ..Default::default()
        });
        let body = BatchChangeInvisibleBody { entries: entries.collect() };
        let request =
            Command::request(request::BATCH_CHANGE_MESSAGE_INVISIBLETIME).with_header(&header).with_json(&body);
        let answer: BatchChangeInvisibleResult =
            self.call(worker, request).await?.json().map_err(|error| unreadable(&error))?;
        if answer.entries.len() != all.len() {
            return Err(unreadable(&format!("{} results for {} entries", answer.entries.len(), all.len())));
        }
        let mut failed = Vec::new();
        for (held, result) in all.iter_mut().zip(answer.entries) {
            match result.code {
                response::SUCCESS => held.changed(result.pop_time, result.invisible_time, result.revive_qid),
                code => failed.push(answered(code, "")),
            }
        }
        Ok(failed)
    }

    async fn call(&self, worker: usize, request: Command) -> Result<Command, Problem> {
        let Some(link) = self.links.get(worker % self.links.len().max(1)) else {
            return Err(unreadable(&"there is no connection"));
        };
        let answer = link.call(&self.address, request, TIMEOUT).await.map_err(unanswered)?;
        match answer.code {
            response::SUCCESS => Ok(answer),
            code => Err(answered(code, answer.remark.as_deref().unwrap_or_default())),
        }
    }
}

impl Held {
    fn changed(&mut self, pop_time: i64, invisible_time: i64, revive_queue_id: i32) {
        self.handle.start_offset = self.handle.offset;
        self.handle.pop_time = pop_time;
        self.handle.invisible_time = invisible_time;
        self.handle.revive_queue_id = revive_queue_id;
    }
}

fn answered(code: i32, remark: &str) -> Problem {
    let label = response::name(code).map_or_else(|| code.to_string(), str::to_owned);
    Problem { failure: Failure::failed(format!("the broker answered {label}: {remark}")), label }
}

fn unanswered(error: TransportError) -> Problem {
    let label = match error {
        TransportError::Timeout => "no answer in time",
        TransportError::Overloaded => "too many requests",
        TransportError::Unreachable(_) | TransportError::Connection(_) => "no connection",
    };
    Problem { label: label.to_owned(), failure: Failure::unavailable(error.to_string()) }
}

fn unreadable(why: &impl ToString) -> Problem {
    Problem { label: "unreadable".to_owned(), failure: Failure::failed(why.to_string()) }
}

fn refused(error: BackendError) -> Failure {
    Failure::failed(format!("the broker cannot be used: {error}"))
}
