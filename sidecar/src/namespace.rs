//! Namespaces: the same name in two of them is two topics, or two groups.
//!
//! Clients say the namespace beside the name (`resource_namespace`); brokers know one name, `namespace%name`. Requests are rewritten
//! when they come in, so that nothing behind it knows of namespaces, and names are given back to clients as they say them. A name
//! that derives from a group keeps its prefix in front: `%DLQ%namespace%group`. Without a namespace nothing is changed.

use waybill_protocol::{
    grpc::v2::{Message, Resource, Settings, settings::PubSub},
    names::{in_namespace, without_namespace},
};

/// A resource of a request under the name that brokers know; its namespace stays, to be given back.
pub(crate) fn resolve(resource: &mut Resource) {
    // A blank name is refused as such.
    if !resource.resource_namespace.is_empty() && !resource.name.trim().is_empty() {
        resource.name = in_namespace(&resource.resource_namespace, &resource.name);
    }
}

/// The resource of a request that was resolved, as the client calls it.
pub(crate) fn shown(resolved: &Resource) -> Resource {
    let Resource { resource_namespace, name } = resolved;
    Resource { resource_namespace: resource_namespace.clone(), name: without_namespace(resource_namespace, name) }
}

/// Names in a message as a client of that namespace calls them. `topic` is what it asked for, as it calls it.
pub(crate) fn show_message(message: &mut Message, topic: &Resource) {
    if let Some(dead) = message.system_properties.as_mut().and_then(|system| system.dead_letter_queue.as_mut()) {
        dead.topic = without_namespace(&topic.resource_namespace, &dead.topic);
    }
    message.topic = Some(topic.clone());
}

/// Settings that were resolved, as the client calls the names in them.
pub(crate) fn show_settings(settings: &mut Settings) {
    for resource in names_of(settings) {
        *resource = shown(resource);
    }
}

/// The topics in settings, and the consumer's group.
pub(crate) fn names_of(settings: &mut Settings) -> Vec<&mut Resource> {
    match &mut settings.pub_sub {
        Some(PubSub::Publishing(publishing)) => publishing.topics.iter_mut().collect(),
        Some(PubSub::Subscription(subscription)) => {
            let topics = subscription.subscriptions.iter_mut().filter_map(|entry| entry.topic.as_mut());
            subscription.group.iter_mut().chain(topics).collect()
        }
        None => Vec::new(),
    }
}
