//! Where things are in a cluster: names that stay, never addresses of pods.

use kube::ResourceExt;

use crate::api::Broker;

/// The remoting port of a broker.
pub const REMOTING_PORT: u16 = 10911;

/// The name of a Broker's StatefulSet and of its headless Service.
#[must_use]
pub fn broker_set(broker: &str) -> String {
    format!("{broker}-broker")
}

/// The addresses of the remoting ports of a Broker's brokers, in order of their numbers.
#[must_use]
pub fn addresses(broker: &Broker) -> Vec<String> {
    let (set, namespace) = (broker_set(&broker.name_any()), broker.namespace().unwrap_or_default());
    (0..broker.spec.replicas).map(|number| format!("{set}-{number}.{set}.{namespace}.svc:{REMOTING_PORT}")).collect()
}
