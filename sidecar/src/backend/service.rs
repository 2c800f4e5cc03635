//! The service itself: what it is made of, and one question to one broker.

use std::{sync::Arc, time::Duration};

use waybill_ops::{clock::Clock, config::Live};
use waybill_protocol::remoting::{Command, SubscriptionGroupConfig, TopicConfig};

use super::{
    error::BackendError,
    leases::Handed,
    metrics::{BackendMetrics, Outcome},
    peers::{Feature, Peers},
    superseded::Superseded,
    transport::{Transport, TransportError},
};
use crate::{
    batching::{Gatherer, core::Limits},
    config::Config,
    limits,
    route::{Cache, Routes, TopicRoute},
};

/// All that may be asked of brokers. Cheap to clone. Must be used within a tokio runtime.
#[derive(Clone)]
pub struct MessageService {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) transport: Arc<dyn Transport>,
    pub(super) config: Arc<Live<Config>>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) metrics: BackendMetrics,
    pub(super) routes: Routes,
    pub(super) topics: Cache<TopicConfig>,
    pub(super) groups: Cache<SubscriptionGroupConfig>,
    pub(super) peers: Peers,
    pub(super) superseded: Superseded,
    /// Leases that wait to be changed or ended.
    pub(super) gathered: Gatherer<Handed>,
}

/// Why a broker gave no answer.
pub(super) struct Unanswered {
    pub(super) error: BackendError,
    /// Nothing was sent, so another broker may be asked.
    pub(super) not_sent: bool,
}

impl From<Unanswered> for BackendError {
    fn from(unanswered: Unanswered) -> Self {
        unanswered.error
    }
}

impl MessageService {
    /// A service that asks the route sources of `config` where topics are, and their brokers for everything else.
    #[must_use]
    pub fn new(
        transport: Arc<dyn Transport>,
        config: Arc<Live<Config>>,
        clock: Arc<dyn Clock>,
        metrics: BackendMetrics,
    ) -> Self {
        let now = config.get();
        let size = |number: i64| usize::try_from(number).unwrap_or(1);
        let inner = Inner {
            routes: Routes::new(Arc::clone(&transport), Arc::clone(&config), metrics.clone()),
            topics: Cache::new(size(now.topic_config_cache_max_num)),
            groups: Cache::new(size(now.subscription_group_config_cache_max_num)),
            peers: Peers::default(),
            superseded: Superseded::default(),
            gathered: Gatherer::new(Limits {
                of_broker: limits::LEASES_WAITING_OF_BROKER,
                of_all: limits::LEASES_WAITING,
            }),
            transport,
            config,
            clock,
            metrics,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Where a topic lives. Remembered; see `topicRouteServiceCacheRefreshSeconds`.
    ///
    /// # Errors
    /// `TopicNotFound` if nobody knows it; `Unavailable`, `Timeout` if nobody can be asked.
    pub async fn route(&self, topic: &str) -> Result<Arc<TopicRoute>, BackendError> {
        self.inner.routes.topic(topic).await
    }

    /// A better route after a broker refused to take or give messages of `topic`, if the refusal may be due to `used` being
    /// out of date. What the refused request should have done has not been done.
    ///
    /// # Errors
    /// `TopicNotFound` if the topic is gone.
    pub(super) async fn newer_route(
        &self,
        topic: &str,
        used: &TopicRoute,
        refusal: &BackendError,
    ) -> Result<Option<Arc<TopicRoute>>, BackendError> {
        // An illegal queue number is an illegal parameter.
        let moved = matches!(
            refusal,
            BackendError::TopicNotFound(_) | BackendError::NoPermission(_) | BackendError::Illegal(_)
        );
        if !moved {
            return Ok(None);
        }
        self.inner.topics.suspect(topic);
        self.inner.routes.newer_topic(topic, used).await
    }

    /// Asks one broker one thing; any response code is an answer. `topic` is what the broker's name was found by.
    pub(super) async fn ask(
        &self,
        broker: &str,
        topic: &str,
        request: Command,
        timeout: Duration,
    ) -> Result<Command, Unanswered> {
        let code = request.code;
        let address = match self.inner.routes.broker(broker).await {
            Ok(address) => address,
            Err(error) => {
                self.inner.metrics.count(code, Outcome::NotSent);
                return Err(Unanswered { error, not_sent: true });
            }
        };
        match self.inner.transport.call(&address, request, timeout).await {
            Ok(answer) => {
                self.inner.metrics.count(code, Outcome::of(answer.code));
                self.inner.peers.heard(broker, &address, answer.language);
                Ok(answer)
            }
            Err(error) => {
                self.inner.metrics.count(code, Outcome::NoAnswer);
                if matches!(error, TransportError::Unreachable(_) | TransportError::Connection(_)) {
                    self.inner.routes.suspect(broker, topic);
                    self.inner.peers.disconnected(broker);
                }
                let not_sent = matches!(error, TransportError::Unreachable(_) | TransportError::Overloaded);
                Err(Unanswered { error: error.into(), not_sent })
            }
        }
    }

    /// The most entries to send to a broker with one request of a feature; 0 if it does not have it, `usize::MAX` if it may.
    pub(super) fn most(&self, broker: &str, feature: Feature) -> usize {
        self.inner.peers.most(broker, feature, |address| self.inner.transport.connection(address))
    }

    /// A broker takes at most so many entries of a feature, 0 if it does not have it; it is asked again after
    /// `batchProbeIntervalMillis`. Returns whether that is news.
    pub(super) fn learn_most(&self, broker: &str, feature: Feature, most: usize) -> bool {
        let probe = millis(self.inner.config.get().batch_probe_interval_ms);
        self.inner.peers.learn(broker, feature, most, probe, |address| self.inner.transport.connection(address))
    }

    /// How long a broker may take to answer what it does not wait for.
    pub(super) fn request_timeout(&self) -> Duration {
        millis(self.inner.config.get().backend_request_timeout_ms)
    }
}

/// A duration from a number of milliseconds; below zero is zero.
pub(super) fn millis(value: i64) -> Duration {
    Duration::from_millis(u64::try_from(value).unwrap_or_default())
}
