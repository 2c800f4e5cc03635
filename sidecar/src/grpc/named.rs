//! Which topics and groups a request names: where its namespace is put into them.

use waybill_protocol::{
    grpc::v2::{self, Resource},
    names::validate_namespace,
};

use super::errors::{Kind, Problem};
use crate::namespace;

/// A request that names topics or groups.
pub(super) trait Named {
    /// The topics.
    fn topics(&mut self) -> Vec<&mut Resource>;
    /// The groups.
    fn groups(&mut self) -> Vec<&mut Resource> {
        Vec::new()
    }

    /// Puts the namespace of each into its name. One that says none is in `namespace`, which the call says for all: the published
    /// Node client says it of topics that it sends to, and of nothing else.
    fn resolve(&mut self, namespace: &str) -> Result<(), Problem> {
        for topic in self.topics() {
            fill_in(topic, namespace);
            validate_namespace(&topic.resource_namespace)
                .map_err(|error| Problem::of_namespace(&topic.resource_namespace, Kind::Topic, error))?;
            namespace::resolve(topic);
        }
        for group in self.groups() {
            fill_in(group, namespace);
            validate_namespace(&group.resource_namespace)
                .map_err(|error| Problem::of_namespace(&group.resource_namespace, Kind::Group, error))?;
            namespace::resolve(group);
        }
        Ok(())
    }
}

fn fill_in(resource: &mut Resource, namespace: &str) {
    if resource.resource_namespace.is_empty() {
        namespace.clone_into(&mut resource.resource_namespace);
    }
}

macro_rules! named {
    ($($request:ident: $topic:ident $(, $group:ident)?;)*) => { $(
        impl Named for v2::$request {
            fn topics(&mut self) -> Vec<&mut Resource> {
                self.$topic.iter_mut().collect()
            }

            $(fn groups(&mut self) -> Vec<&mut Resource> {
                self.$group.iter_mut().collect()
            })?
        }
    )* };
}

named! {
    QueryRouteRequest: topic;
    QueryAssignmentRequest: topic, group;
    AckMessageRequest: topic, group;
    ForwardMessageToDeadLetterQueueRequest: topic, group;
    EndTransactionRequest: topic;
    ChangeInvisibleDurationRequest: topic, group;
    RecallMessageRequest: topic;
    SyncLiteSubscriptionRequest: topic, group;
}

impl Named for v2::SendMessageRequest {
    fn topics(&mut self) -> Vec<&mut Resource> {
        self.messages.iter_mut().filter_map(|message| message.topic.as_mut()).collect()
    }
}

impl Named for v2::ReceiveMessageRequest {
    fn topics(&mut self) -> Vec<&mut Resource> {
        self.message_queue.iter_mut().filter_map(|queue| queue.topic.as_mut()).collect()
    }

    fn groups(&mut self) -> Vec<&mut Resource> {
        self.group.iter_mut().collect()
    }
}

impl Named for v2::HeartbeatRequest {
    fn topics(&mut self) -> Vec<&mut Resource> {
        Vec::new()
    }

    fn groups(&mut self) -> Vec<&mut Resource> {
        self.group.iter_mut().collect()
    }
}

impl Named for v2::NotifyClientTerminationRequest {
    fn topics(&mut self) -> Vec<&mut Resource> {
        Vec::new()
    }

    fn groups(&mut self) -> Vec<&mut Resource> {
        self.group.iter_mut().collect()
    }
}

impl Named for v2::Settings {
    fn topics(&mut self) -> Vec<&mut Resource> {
        namespace::names_of(self)
    }
}
