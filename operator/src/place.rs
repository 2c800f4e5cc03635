//! Where things are in a cluster: names that stay, never addresses of pods.

use kube::ResourceExt;

use crate::api::Broker;

/// The remoting port of a broker.
pub const REMOTING_PORT: u16 = 10911;

/// The admin port of a broker.
pub const BROKER_ADMIN_PORT: u16 = 10915;

/// The name of a Broker's StatefulSet, of its headless Service and of all else that belongs to it.
#[must_use]
pub fn broker_set(broker: &str) -> String {
    format!("{broker}-broker")
}

/// The name of broker `number` of a Broker: that of its pod, and the one in receipt handles.
#[must_use]
pub fn broker_name(broker: &str, number: i32) -> String {
    format!("{}-{number}", broker_set(broker))
}

/// The host of broker `number`: a name that stays, whatever addresses its pods get.
#[must_use]
pub fn broker_host(namespace: &str, broker: &str, number: i32) -> String {
    format!("{}.{}.{namespace}.svc", broker_name(broker, number), broker_set(broker))
}

/// The name that brokers give their cluster (`brokerClusterName`) and sidecars are to ask for (`rocketMQClusterName`): no two
/// Brokers of one Kubernetes have the same.
#[must_use]
pub fn cluster_name(namespace: &str, broker: &str) -> String {
    format!("{namespace}.{broker}")
}

/// The address of the remoting port of broker `number`.
#[must_use]
pub fn remoting(broker: &Broker, number: i32) -> String {
    let namespace = broker.namespace().unwrap_or_default();
    format!("{}:{REMOTING_PORT}", broker_host(&namespace, &broker.name_any(), number))
}

/// The addresses of the remoting ports of a Broker's brokers, in order of their numbers.
#[must_use]
pub fn addresses(broker: &Broker) -> Vec<String> {
    (0..broker.spec.replicas).map(|number| remoting(broker, number)).collect()
}

/// The port of a sidecar that clients connect to.
pub const SIDECAR_PORT: u16 = 8081;

/// The admin port of a sidecar.
pub const SIDECAR_ADMIN_PORT: u16 = 8082;

/// Where pods have their configuration: a ConfigMap as a directory, so that changes arrive.
pub const CONFIGURATION_DIR: &str = "/etc/waybill";

/// The file of a sidecar's configuration there.
pub const SIDECAR_FILE: &str = "sidecar.yaml";

/// The name of a Proxy's Deployment, of its Service and of all else that belongs to it.
#[must_use]
pub fn proxy_name(proxy: &str) -> String {
    format!("{proxy}-proxy")
}

/// The name of the ConfigMap of injected sidecars in `namespace`, of the Proxy of this name in the namespace `home`. Those of Proxies
/// of other namespaces have a dot, so that two of one name do not meet.
#[must_use]
pub fn injected_configuration(home: &str, proxy: &str, namespace: &str) -> String {
    let of = format!("waybill-sidecar-{proxy}");
    if home == namespace { of } else { format!("{of}.{home}") }
}
