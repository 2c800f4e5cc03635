//! A transport that answers by a function, without sockets; and what the functions need.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::BytesMut;
use futures::{FutureExt, future::BoxFuture};
use parking_lot::Mutex;
use waybill_ops::{
    clock::{Clock, ManualClock},
    config::Live,
};
use waybill_protocol::{
    handle::ReceiptHandle,
    message::StoredMessage,
    remoting::{
        BrokerData, ClusterInfo, Command, JsonBody, Language, QueueData, TopicRouteData,
        codes::{request, response},
    },
};
use waybill_sidecar::{
    backend::{BackendMetrics, LeaseRef, MessageService, Transport, TransportError},
    config::Config,
};

pub(crate) type Answer = Result<Command, TransportError>;
type Handler = dyn Fn(String, Command) -> BoxFuture<'static, Answer> + Send + Sync;

/// Everything that was asked: address and request.
pub(crate) struct Scripted {
    handler: Box<Handler>,
    seen: Mutex<Vec<(String, Command)>>,
    /// The number of the connection to every address.
    pub(crate) connection: AtomicU64,
}

impl Scripted {
    /// Answers by a function that need not wait.
    pub(crate) fn new(handler: impl Fn(&str, &Command) -> Answer + Send + Sync + 'static) -> Arc<Self> {
        Self::waiting(move |address, command| std::future::ready(handler(&address, &command)).boxed())
    }

    pub(crate) fn waiting(
        handler: impl Fn(String, Command) -> BoxFuture<'static, Answer> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self { handler: Box::new(handler), seen: Mutex::default(), connection: AtomicU64::new(1) })
    }

    /// All requests of a kind, in order.
    pub(crate) fn asked(&self, code: i32) -> Vec<(String, Command)> {
        self.seen.lock().iter().filter(|(_, command)| command.code == code).cloned().collect()
    }

    pub(crate) fn count(&self, code: i32) -> usize {
        self.asked(code).len()
    }
}

#[async_trait]
impl Transport for Scripted {
    async fn call(&self, address: &str, request: Command, timeout: Duration) -> Answer {
        self.seen.lock().push((address.to_owned(), request.clone()));
        tokio::time::timeout(timeout, (self.handler)(address.to_owned(), request))
            .await
            .unwrap_or(Err(TransportError::Timeout))
    }

    fn connection(&self, _address: &str) -> u64 {
        self.connection.load(Ordering::Relaxed)
    }

    async fn oneway(&self, address: &str, request: Command, _timeout: Duration) -> Result<(), TransportError> {
        self.seen.lock().push((address.to_owned(), request));
        Ok(())
    }
}

/// A service, its clock (at 1,000,000 ms) and its configuration.
pub(crate) struct Setup {
    pub(crate) service: MessageService,
    pub(crate) clock: Arc<ManualClock>,
}

pub(crate) fn service(transport: Arc<dyn Transport>, change: impl FnOnce(&mut Config)) -> Setup {
    let mut config = Config { namesrv_addr: "ns:9876".into(), ..Config::default() };
    change(&mut config);
    let clock = Arc::new(ManualClock::new(1_000_000));
    let shared: Arc<dyn Clock> = clock.clone();
    let service = MessageService::new(transport, Arc::new(Live::fixed(config)), shared, BackendMetrics::default());
    Setup { service, clock }
}

pub(crate) fn ok() -> Command {
    Command::response(response::SUCCESS, "")
}

pub(crate) fn refuse(code: i32, remark: &str) -> Answer {
    Ok(Command::response(code, remark))
}

/// As a broker of Apache would say it.
pub(crate) fn java(mut answer: Command) -> Command {
    answer.language = Language::Java;
    answer
}

/// One broker's part of a route.
pub(crate) fn route_of(broker: &str, queues: i32, perm: i32) -> TopicRouteData {
    TopicRouteData {
        queue_datas: vec![QueueData {
            broker_name: broker.into(),
            read_queue_nums: queues,
            write_queue_nums: queues,
            perm,
            ..QueueData::default()
        }],
        broker_datas: vec![BrokerData {
            cluster: "DefaultCluster".into(),
            broker_name: broker.into(),
            broker_addrs: BTreeMap::from([(0, format!("{broker}:10911"))]),
            ..BrokerData::default()
        }],
        ..TopicRouteData::default()
    }
}

/// A route over several brokers, each with `queues` queues.
pub(crate) fn route(brokers: &[&str], queues: i32) -> Answer {
    let mut all = TopicRouteData::default();
    for broker in brokers {
        let part = route_of(broker, queues, 6);
        all.queue_datas.extend(part.queue_datas);
        all.broker_datas.extend(part.broker_datas);
    }
    Ok(ok().with_body(all.to_json()))
}

/// A route over broker `a` at an address, or the list of all brokers with it alone.
pub(crate) fn route_to(code: i32, address: std::net::SocketAddr) -> Answer {
    let mut part = route_of("a", 4, 6);
    for data in &mut part.broker_datas {
        data.broker_addrs = BTreeMap::from([(0, address.to_string())]);
    }
    let body = match code {
        request::GET_BROKER_CLUSTER_INFO => {
            let mut info = ClusterInfo::default();
            info.broker_addr_table.extend(part.broker_datas.into_iter().map(|data| ("a".into(), data)));
            info.cluster_addr_table.entry("DefaultCluster".into()).or_default().push("a".into());
            info.to_json()
        }
        _ => part.to_json(),
    };
    Ok(ok().with_body(body))
}

/// The list of all brokers.
pub(crate) fn cluster(brokers: &[&str]) -> Answer {
    let mut info = ClusterInfo::default();
    for broker in brokers {
        info.broker_addr_table
            .extend(route_of(broker, 1, 6).broker_datas.into_iter().map(|data| ((*broker).into(), data)));
        info.cluster_addr_table.entry("DefaultCluster".into()).or_default().push((*broker).into());
    }
    Ok(ok().with_body(info.to_json()))
}

/// Answers routes with brokers `a` and `b`, everything else by `rest`.
pub(crate) fn two_brokers(rest: impl Fn(&str, &Command) -> Answer + Send + Sync + 'static) -> Arc<Scripted> {
    Scripted::new(move |address, command| match command.code {
        request::GET_ROUTEINFO_BY_TOPIC if command.ext.get("topic") == Some("T") => route(&["a", "b"], 4),
        request::GET_BROKER_CLUSTER_INFO => cluster(&["a", "b"]),
        request::GET_ROUTEINFO_BY_TOPIC => refuse(response::TOPIC_NOT_EXIST, "No topic route info"),
        _ => rest(address, command),
    })
}

/// A lease that ends long after the clock of [`service`].
pub(crate) fn handle(broker: &str, offset: i64) -> ReceiptHandle {
    format!("{offset} 990000 60000 0 0 {broker} 0 {offset} 4711").parse().expect("a handle")
}

pub(crate) fn lease(broker: &str, offset: i64) -> LeaseRef {
    LeaseRef { group: "G".into(), topic: "T".into(), handle: handle(broker, offset) }
}

/// A message as a broker delivers it.
pub(crate) fn stored(topic: &str, queue_id: i32, offset: i64, properties: &str) -> StoredMessage {
    let host = "127.0.0.1:10911".parse().expect("address");
    StoredMessage {
        topic: topic.into(),
        queue_id,
        flag: 0,
        queue_offset: offset,
        physical_offset: 5_000 + offset,
        sys_flag: 0,
        born_timestamp: 1,
        born_host: host,
        store_timestamp: 2,
        store_host: host,
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body: "hello".into(),
        properties: properties.into(),
    }
}

/// The answer to a pop.
pub(crate) fn popped(messages: &[StoredMessage], lists: &[(&str, &str)]) -> Command {
    let mut body = BytesMut::new();
    for message in messages {
        message.encode(&mut body).expect("encodes");
    }
    let mut answer = ok().with_body(body.freeze());
    for (name, value) in [("popTime", "990000"), ("invisibleTime", "60000"), ("reviveQid", "3"), ("restNum", "0")] {
        answer.ext.set(name, value);
    }
    for (name, value) in lists {
        answer.ext.set(name, value);
    }
    answer
}
