//! Where topics live: routes asked from name servers and brokers, merged and remembered.

mod cache;
mod topic;

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::future::join_all;
use parking_lot::RwLock;
use waybill_ops::config::Live;
use waybill_protocol::remoting::{
    Command, GetRouteInfoRequestHeader, JsonBody, TopicRouteData,
    codes::{request, response},
};

pub(crate) use self::cache::{Ages, Cache};
pub use self::topic::{MASTER, TopicRoute, WriteQueue};
use crate::{
    backend::{BackendError, BackendMetrics, Outcome, Subject, Transport, from_response},
    config::{Config, addresses},
};

/// How long a route source may take.
const LOOKUP: Duration = Duration::from_secs(3);

/// Finds topics and brokers. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Routes {
    inner: Arc<Inner>,
}

struct Inner {
    transport: Arc<dyn Transport>,
    config: Arc<Live<Config>>,
    metrics: BackendMetrics,
    sources: Vec<String>,
    topics: Cache<TopicRoute>,
    brokers: RwLock<HashMap<String, BrokerAddress>>,
}

struct BrokerAddress {
    address: String,
    /// A connection there failed: ask for the route again before it is used.
    suspect: bool,
}

impl Routes {
    pub(crate) fn new(transport: Arc<dyn Transport>, config: Arc<Live<Config>>, metrics: BackendMetrics) -> Self {
        let now = config.get();
        let sources = addresses(&now.namesrv_addr);
        let topics = Cache::new(usize::try_from(now.topic_route_service_cache_max_num).unwrap_or(1));
        Self { inner: Arc::new(Inner { transport, config, metrics, sources, topics, brokers: RwLock::default() }) }
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

    /// The address of the broker named `name`. A name never heard of is asked for as a topic: every broker has a topic
    /// of its own name.
    pub(crate) async fn broker(&self, name: &str) -> Result<String, BackendError> {
        let known = self.known(name, false);
        if let Some(address) = known {
            return Ok(address);
        }
        match self.topic(name).await {
            // Taken out of all routes.
            Err(BackendError::TopicNotFound(_)) => {
                self.inner.brokers.write().remove(name);
                Err(BackendError::UnknownBroker(name.to_owned()))
            }
            looked_up => match (self.known(name, true), looked_up) {
                (Some(address), _) => Ok(address),
                (None, Ok(_)) => Err(BackendError::UnknownBroker(name.to_owned())),
                (None, Err(error)) => Err(error),
            },
        }
    }

    /// The names of all brokers that any route has named, sorted.
    pub(crate) fn known_brokers(&self) -> Vec<String> {
        let mut names: Vec<String> = self.inner.brokers.read().keys().cloned().collect();
        names.sort_unstable();
        names
    }

    /// A connection to this broker failed: its address may have changed.
    pub(crate) fn suspect(&self, broker: &str, topic: &str) {
        if let Some(known) = self.inner.brokers.write().get_mut(broker) {
            known.suspect = true;
        }
        self.inner.topics.suspect(broker);
        self.inner.topics.suspect(topic);
    }

    fn known(&self, name: &str, even_suspect: bool) -> Option<String> {
        let brokers = self.inner.brokers.read();
        brokers.get(name).filter(|known| even_suspect || !known.suspect).map(|known| known.address.clone())
    }

    async fn look_up(&self, topic: &str) -> Result<TopicRoute, BackendError> {
        let answers = join_all(self.inner.sources.iter().map(|source| self.ask(source, topic))).await;
        let mut found = Vec::new();
        let mut failure = None;
        for answer in answers {
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
                let route = TopicRoute::merge(found);
                self.learn(&route);
                Ok(route)
            }
        }
    }

    async fn ask(&self, source: &str, topic: &str) -> Result<TopicRouteData, BackendError> {
        let header = GetRouteInfoRequestHeader { topic: topic.to_owned(), accept_standard_json_only: Some(true) };
        let request = Command::request(request::GET_ROUTEINFO_BY_TOPIC).with_header(&header);
        let answer = self.inner.transport.call(source, request, LOOKUP).await;
        let outcome = answer.as_ref().map_or(Outcome::NoAnswer, |answer| Outcome::of(answer.code));
        self.inner.metrics.count(request::GET_ROUTEINFO_BY_TOPIC, outcome);
        let answer = answer?;
        if answer.code != response::SUCCESS {
            return Err(from_response(&answer, Subject::topic(topic)));
        }
        TopicRouteData::from_json(&answer.body).map_err(|error| {
            tracing::warn!(source, topic, %error, "a route cannot be read");
            BackendError::Other { code: response::SYSTEM_ERROR, remark: format!("route from {source}: {error}") }
        })
    }

    fn learn(&self, route: &TopicRoute) {
        let mut brokers = self.inner.brokers.write();
        for broker in &route.brokers {
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
