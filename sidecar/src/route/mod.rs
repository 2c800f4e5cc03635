//! Where topics live: routes asked from name servers and brokers, merged and remembered.

mod cache;
mod cluster;
mod namesakes;
mod sources;
mod topic;

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::future::join_all;
use parking_lot::RwLock;
use waybill_ops::config::Live;
use waybill_protocol::remoting::{
    BrokerData, ClusterInfo, Command, GetRouteInfoRequestHeader, JsonBody, TopicRouteData,
    codes::{request, response},
};

pub use self::topic::{MASTER, TopicRoute, WriteQueue};
pub(crate) use self::{
    cache::{Ages, Cache},
    cluster::Cluster,
};
use self::{namesakes::Namesakes, sources::Sources};
use crate::{
    backend::{BackendError, BackendMetrics, Outcome, Subject, Transport, from_response},
    config::Config,
};

/// How long a route source may take.
const LOOKUP: Duration = Duration::from_secs(3);

/// How long the list of all brokers is believed.
const CLUSTER_AGE: Duration = Duration::from_secs(1);

/// Finds topics and brokers. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Routes {
    inner: Arc<Inner>,
}

struct Inner {
    transport: Arc<dyn Transport>,
    config: Arc<Live<Config>>,
    metrics: BackendMetrics,
    sources: Sources,
    topics: Cache<TopicRoute>,
    cluster: Cache<Cluster>,
    brokers: RwLock<HashMap<String, BrokerAddress>>,
    namesakes: Namesakes,
}

struct BrokerAddress {
    address: String,
    /// A connection there failed: ask the sources before it is used again.
    suspect: bool,
}

impl Routes {
    pub(crate) fn new(transport: Arc<dyn Transport>, config: Arc<Live<Config>>, metrics: BackendMetrics) -> Self {
        let now = config.get();
        let (generations, sources) = (config.subscribe(), Sources::default());
        let topics = Cache::new(usize::try_from(now.topic_route_service_cache_max_num).unwrap_or(1));
        let cluster = Cache::new(1);
        let (brokers, namesakes) = (RwLock::default(), Namesakes::default());
        let inner = Arc::new(Inner { transport, config, metrics, sources, topics, cluster, brokers, namesakes });
        tokio::spawn(sources::follow(Arc::downgrade(&inner), generations));
        Self { inner }
    }

    /// The route of `topic`. `TopicNotFound` if every source says so.
    pub(crate) async fn topic(&self, topic: &str) -> Result<Arc<TopicRoute>, BackendError> {
        let config = self.inner.config.get();
        let ages = Ages {
            refresh: seconds(config.topic_route_service_cache_refresh_seconds),
            expire: seconds(config.topic_route_service_cache_expired_seconds),
        };
        let load = || {
            let (routes, topic) = (self.clone(), topic.to_owned());
            async move { routes.look_up(&topic).await }
        };
        self.inner.topics.get(topic, ages, load).await
    }

    /// The address of the broker named `name`. For a name never heard of, the sources are asked for all brokers, at most
    /// once a second: names come from clients, and asking for a route could create a topic.
    pub(crate) async fn broker(&self, name: &str) -> Result<String, BackendError> {
        if let Some(address) = self.known(name, false) {
            return Ok(address);
        }
        let failure = match self.cluster().await {
            Ok(cluster) if cluster.has(name) => None,
            Ok(cluster) => match &cluster.silent {
                Some(error) => Some(error.clone()),
                None => {
                    // No longer a broker of this cluster.
                    self.inner.brokers.write().remove(name);
                    None
                }
            },
            Err(error) => Some(error),
        };
        let unknown = || failure.unwrap_or_else(|| BackendError::UnknownBroker(name.to_owned()));
        self.known(name, true).ok_or_else(unknown)
    }

    /// All brokers, as of this second.
    pub(crate) async fn cluster(&self) -> Result<Arc<Cluster>, BackendError> {
        let ages = Ages { refresh: CLUSTER_AGE, expire: CLUSTER_AGE };
        let load = || {
            let routes = self.clone();
            async move { routes.look_up_cluster().await }
        };
        self.inner.cluster.get("", ages, load).await
    }

    /// The names of all brokers that any route has named, sorted.
    pub(crate) fn known_brokers(&self) -> Vec<String> {
        let mut names: Vec<String> = self.inner.brokers.read().keys().cloned().collect();
        names.sort_unstable();
        names
    }

    /// The route of `topic`, looked up again unless that was done within the last second: a broker refused what `used` led
    /// to, so it may be out of date. `None` if it is not, or if nothing newer can be had.
    ///
    /// # Errors
    /// `TopicNotFound` if the topic is gone.
    pub(crate) async fn newer_topic(
        &self,
        topic: &str,
        used: &TopicRoute,
    ) -> Result<Option<Arc<TopicRoute>>, BackendError> {
        self.inner.topics.suspect(topic);
        match self.topic(topic).await {
            Ok(route) => Ok(Some(route).filter(|route| !route.leads_to_the_same(used))),
            Err(gone @ BackendError::TopicNotFound(_)) => Err(gone),
            Err(_) => Ok(None),
        }
    }

    /// The name of the broker at this address, if any route has named it.
    pub(crate) fn broker_at(&self, address: &str) -> Option<String> {
        let brokers = self.inner.brokers.read();
        brokers.iter().find(|(_, known)| known.address == address).map(|(name, _)| name.clone())
    }

    /// A connection to this broker failed: its address may have changed.
    pub(crate) fn suspect(&self, broker: &str, topic: &str) {
        if let Some(known) = self.inner.brokers.write().get_mut(broker) {
            known.suspect = true;
        }
        self.inner.topics.suspect(topic);
    }

    fn known(&self, name: &str, even_suspect: bool) -> Option<String> {
        let brokers = self.inner.brokers.read();
        brokers.get(name).filter(|known| even_suspect || !known.suspect).map(|known| known.address.clone())
    }

    async fn look_up(&self, topic: &str) -> Result<TopicRoute, BackendError> {
        let header = GetRouteInfoRequestHeader { topic: topic.to_owned(), accept_standard_json_only: Some(true) };
        let request = Command::request(request::GET_ROUTEINFO_BY_TOPIC).with_header(&header);
        let mut found: Vec<TopicRouteData> = Vec::new();
        let mut failure = None;
        for answer in self.ask_all(&request, Subject::topic(topic)).await {
            match answer {
                Ok(route) => found.push(route),
                Err(BackendError::TopicNotFound(_)) => {}
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            // A source that could not be asked may be the only one that knows the topic.
            Some(error) if found.is_empty() => Err(error),
            _ if found.is_empty() => Err(BackendError::TopicNotFound(topic.to_owned())),
            _ => {
                self.tell_apart(found.iter().flat_map(|route| &route.broker_datas));
                let mut route = TopicRoute::merge(found);
                if let Some(older) = self.inner.topics.peek(topic) {
                    route.go_on_from(&older);
                }
                if route.left_out() > 0 {
                    let queues = route.left_out();
                    self.inner.metrics.left_out(queues);
                    tracing::warn!(topic, queues, "a route has more queues than a sidecar uses, these are left out");
                }
                self.learn(&route.brokers);
                Ok(route)
            }
        }
    }

    async fn look_up_cluster(&self) -> Result<Cluster, BackendError> {
        let request = Command::request(request::GET_BROKER_CLUSTER_INFO);
        let mut found: Vec<ClusterInfo> = Vec::new();
        let mut silent = None;
        for answer in self.ask_all(&request, Subject::topic("")).await {
            match answer {
                Ok(info) => found.push(info),
                Err(error) => silent = Some(error),
            }
        }
        match silent {
            Some(error) if found.is_empty() => Err(error),
            silent => {
                self.tell_apart(found.iter().flat_map(|info| info.broker_addr_table.values()));
                let cluster = Cluster::merge(found, silent);
                self.learn(&cluster.brokers);
                Ok(cluster)
            }
        }
    }

    /// What every source says.
    async fn ask_all<B: JsonBody>(&self, request: &Command, subject: Subject<'_>) -> Vec<Result<B, BackendError>> {
        let sources = self.inner.all_sources();
        join_all(sources.iter().map(|source| self.ask(source, request, subject))).await
    }

    /// One name must stand for one broker: what is sent to the others of that name would be lost to those who ask by name.
    fn tell_apart<'a>(&self, said: impl IntoIterator<Item = &'a BrokerData>) {
        for (name, used, other) in namesakes::find(said) {
            self.inner.metrics.namesake();
            if self.inner.namesakes.is_new(name, used, other) {
                tracing::warn!(
                    broker = name,
                    used,
                    other,
                    "two brokers have the same brokerName, only the first is used: give each a name of its own"
                );
            }
        }
    }

    async fn ask<B: JsonBody>(&self, source: &str, request: &Command, subject: Subject<'_>) -> Result<B, BackendError> {
        let answer = self.inner.transport.call(source, request.clone(), LOOKUP).await;
        let outcome = answer.as_ref().map_or(Outcome::NoAnswer, |answer| Outcome::of(answer.code));
        self.inner.metrics.count(request.code, outcome);
        if answer.is_err() {
            self.inner.sources.silent(&self.inner, source);
        }
        let answer = answer?;
        if answer.code != response::SUCCESS {
            return Err(from_response(&answer, subject));
        }
        B::from_json(&answer.body).map_err(|error| {
            tracing::warn!(source, topic = subject.topic, %error, "an answer about routes cannot be read");
            BackendError::Other { code: response::SYSTEM_ERROR, remark: format!("answer of {source}: {error}") }
        })
    }

    fn learn(&self, found: &[BrokerData]) {
        let mut brokers = self.inner.brokers.write();
        for broker in found {
            let Some(address) = topic::address_of(broker) else { continue };
            match brokers.get_mut(&broker.broker_name) {
                Some(known) => {
                    if known.address != address {
                        tracing::info!(broker = broker.broker_name, from = known.address, to = address, "broker moved");
                        known.address = address.to_owned();
                    }
                    known.suspect = false;
                }
                None => {
                    let known = BrokerAddress { address: address.to_owned(), suspect: false };
                    brokers.insert(broker.broker_name.clone(), known);
                }
            }
        }
    }
}

pub(crate) fn seconds(value: i64) -> Duration {
    Duration::from_secs(u64::try_from(value).unwrap_or_default())
}
