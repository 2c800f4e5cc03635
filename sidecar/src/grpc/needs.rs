//! What a request needs: with which topics and groups something is done, and what. Names are those that brokers know.

use waybill_protocol::grpc::v2::{self, Resource, settings::PubSub};

use crate::access::{Action, Need, Resource as Of};

/// A request that does something with topics or groups.
pub(super) trait Needs {
    /// All that the caller must be allowed to. A name that is missing or blank needs nothing: it is refused as such.
    fn needs(&self) -> Vec<Need<'_>>;
}

const PUB: &[Action] = &[Action::Pub];
const SUB: &[Action] = &[Action::Sub];
const EITHER: &[Action] = &[Action::Pub, Action::Sub];

fn name(resource: Option<&Resource>) -> Option<&str> {
    resource.map(|resource| resource.name.as_str()).filter(|name| !name.trim().is_empty())
}

fn topic<'a>(topic: Option<&'a Resource>, any_of: &'static [Action]) -> Option<Need<'a>> {
    name(topic).map(|name| Need { resource: Of::Topic(name), any_of })
}

fn group(group: Option<&Resource>) -> Option<Need<'_>> {
    name(group).map(in_group)
}

/// To consume in a group.
pub(super) fn in_group(name: &str) -> Need<'_> {
    Need { resource: Of::Group(name), any_of: SUB }
}

/// To consume a topic in a group.
pub(super) fn consuming<'a>(topic: &'a str, group: &'a str) -> [Need<'a>; 2] {
    [Need { resource: Of::Topic(topic), any_of: SUB }, in_group(group)]
}

macro_rules! needs {
    ($($request:ident: $($about:ident($field:ident $(, $actions:ident)?)),*;)*) => { $(
        impl Needs for v2::$request {
            fn needs(&self) -> Vec<Need<'_>> {
                [$($about(self.$field.as_ref() $(, $actions)?)),*].into_iter().flatten().collect()
            }
        }
    )* };
}

needs! {
    QueryRouteRequest: topic(topic, EITHER);
    QueryAssignmentRequest: topic(topic, SUB), group(group);
    AckMessageRequest: topic(topic, SUB), group(group);
    ForwardMessageToDeadLetterQueueRequest: topic(topic, SUB), group(group);
    ChangeInvisibleDurationRequest: topic(topic, SUB), group(group);
    SyncLiteSubscriptionRequest: topic(topic, SUB), group(group);
    EndTransactionRequest: topic(topic, PUB);
    RecallMessageRequest: topic(topic, PUB);
    HeartbeatRequest: group(group);
    NotifyClientTerminationRequest: group(group);
}

impl Needs for v2::SendMessageRequest {
    fn needs(&self) -> Vec<Need<'_>> {
        let mut needs: Vec<Need<'_>> = Vec::new();
        // The messages of a call have one topic, or the call is refused.
        for need in self.messages.iter().filter_map(|message| topic(message.topic.as_ref(), PUB)) {
            if needs.last() != Some(&need) {
                needs.push(need);
            }
        }
        needs
    }
}

impl Needs for v2::ReceiveMessageRequest {
    fn needs(&self) -> Vec<Need<'_>> {
        let queue = self.message_queue.as_ref();
        let topic = topic(queue.and_then(|queue| queue.topic.as_ref()), SUB);
        [topic, group(self.group.as_ref())].into_iter().flatten().collect()
    }
}

impl Needs for v2::Settings {
    fn needs(&self) -> Vec<Need<'_>> {
        match &self.pub_sub {
            Some(PubSub::Publishing(publishing)) => {
                publishing.topics.iter().filter_map(|one| topic(Some(one), PUB)).collect()
            }
            Some(PubSub::Subscription(subscription)) => {
                let topics = subscription.subscriptions.iter().filter_map(|entry| topic(entry.topic.as_ref(), SUB));
                topics.chain(group(subscription.group.as_ref())).collect()
            }
            None => Vec::new(),
        }
    }
}
