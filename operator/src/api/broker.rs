//! Broker: brokers that share their topics and groups.

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

/// Brokers that share their topics and groups.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "waybill.dev",
    version = "v1alpha1",
    kind = "Broker",
    shortname = "wbroker",
    category = "waybill",
    namespaced,
    derive = "PartialEq",
    doc = "Brokers that share their topics and groups."
)]
#[serde(rename_all = "camelCase")]
pub struct BrokerSpec {
    /// How many brokers there are.
    #[serde(default = "replicas")]
    #[schemars(range(min = 0, max = 100))]
    pub replicas: i32,
}

fn replicas() -> i32 {
    1
}
