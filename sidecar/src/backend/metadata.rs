//! Settings of topics and consumer groups.

use std::{sync::Arc, time::Duration};

use waybill_protocol::remoting::{
    Command, GetSubscriptionGroupConfigRequestHeader, GetTopicConfigRequestHeader, GroupOverrides, JsonBody,
    SubscriptionGroupConfig, TopicConfig,
    codes::{request, response},
};

use super::{
    error::{BackendError, Subject, from_response, unreadable},
    service::MessageService,
};
use crate::route::{Ages, seconds};

/// How long a broker may take to look up settings.
const LOOKUP: Duration = Duration::from_secs(3);
/// A group that so many brokers do not know does not exist.
const BROKERS_ASKED: usize = 4;

impl MessageService {
    /// A topic's settings (message type and so on). Remembered; see `topicConfigCacheRefreshSeconds`.
    ///
    /// # Errors
    /// `TopicNotFound`, and the temporary ones.
    pub async fn topic_config(&self, topic: &str) -> Result<Arc<TopicConfig>, BackendError> {
        let config = self.inner.config.get();
        let ages = Ages {
            refresh: seconds(config.topic_config_cache_refresh_seconds),
            expire: seconds(config.topic_config_cache_expired_seconds),
        };
        let load = || {
            let (service, topic) = (self.clone(), topic.to_owned());
            async move { service.look_up_topic(&topic).await }
        };
        self.inner.topics.get(topic, ages, load).await
    }

    /// A consumer group's settings. `topic`, one that the group reads, says which brokers to ask; without it those of
    /// the cluster are. Remembered; see `subscriptionGroupConfigCacheRefreshSeconds`.
    ///
    /// # Errors
    /// `GroupNotFound`, and the temporary ones.
    pub async fn group_config(
        &self,
        group: &str,
        topic: Option<&str>,
    ) -> Result<Arc<SubscriptionGroupConfig>, BackendError> {
        let config = self.inner.config.get();
        let ages = Ages {
            refresh: seconds(config.subscription_group_config_cache_refresh_seconds),
            expire: seconds(config.subscription_group_config_cache_expired_seconds),
        };
        let load = || {
            let (service, group, topic) = (self.clone(), group.to_owned(), topic.map(str::to_owned));
            async move { service.look_up_group(&group, topic.as_deref()).await }
        };
        self.inner.groups.get(group, ages, load).await
    }

    /// The most leases of a group that one request may be about, if the group says so, as far as this sidecar knows.
    pub(super) fn batch_max_of_group(&self, group: &str) -> usize {
        let known = self.inner.groups.peek(group);
        let overrides = known.map(|config| GroupOverrides::understood(&config.attributes)).unwrap_or_default();
        overrides.batch_max.unwrap_or(usize::MAX)
    }

    /// The consumer groups whose settings are known here, by name.
    pub(crate) fn known_groups(&self) -> Vec<(String, Arc<SubscriptionGroupConfig>)> {
        let mut groups = self.inner.groups.known();
        groups.sort_by(|(a, _), (b, _)| a.cmp(b));
        groups
    }

    /// Whether any name server or broker of `namesrvAddr` answers.
    ///
    /// # Errors
    /// Why the last one does not.
    pub(crate) async fn reach(&self) -> Result<(), BackendError> {
        match self.inner.routes.cluster().await {
            Err(error @ (BackendError::Unavailable(_) | BackendError::Timeout | BackendError::Busy(_))) => Err(error),
            _answered => Ok(()),
        }
    }

    async fn look_up_topic(&self, topic: &str) -> Result<TopicConfig, BackendError> {
        let route = self.route(topic).await?;
        let header = GetTopicConfigRequestHeader { topic: topic.to_owned(), lo: Some(true) };
        let request = Command::request(request::GET_TOPIC_CONFIG).with_header(&header);
        let brokers = route.queues.iter().map(|queue| queue.broker_name.as_str());
        let subject = Subject::topic(topic);
        self.first_answer(brokers, topic, &request, subject).await
    }

    async fn look_up_group(&self, group: &str, topic: Option<&str>) -> Result<SubscriptionGroupConfig, BackendError> {
        let by_topic = match topic {
            Some(topic) => self.route(topic).await.ok(),
            None => None,
        };
        let brokers = match by_topic {
            Some(route) => route.broker_names(),
            None => self.inner.routes.cluster().await?.names(&self.inner.config.get().cluster_name),
        };
        let header = GetSubscriptionGroupConfigRequestHeader { group: group.to_owned() };
        let request = Command::request(request::GET_SUBSCRIPTIONGROUP_CONFIG).with_header(&header);
        let subject = Subject { topic: topic.unwrap_or_default(), group, by_handle: false };
        self.first_answer(brokers.iter().map(String::as_str), subject.topic, &request, subject).await
    }

    /// Asks one broker after the other until one knows. If none does, a broker that could not be asked counts for more
    /// than one that does not know.
    async fn first_answer<'a, B: JsonBody>(
        &self,
        brokers: impl Iterator<Item = &'a str>,
        topic: &str,
        request: &Command,
        subject: Subject<'_>,
    ) -> Result<B, BackendError> {
        let mut refusal = None;
        let mut failure = None;
        for broker in brokers.take(BROKERS_ASKED) {
            match self.ask(broker, topic, request.clone(), LOOKUP).await {
                Ok(answer) if answer.code == response::SUCCESS => {
                    return B::from_json(&answer.body).map_err(unreadable);
                }
                Ok(answer) => refusal = Some(from_response(&answer, subject)),
                Err(unanswered) => failure = Some(unanswered.error),
            }
        }
        Err(failure.or(refusal).unwrap_or_else(|| BackendError::Unavailable("there is no broker".to_owned())))
    }
}
