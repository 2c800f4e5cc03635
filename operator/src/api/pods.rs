//! What the kinds that make pods have in common.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// When an image is pulled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ImagePullPolicy {
    /// At each start.
    Always,
    /// If the node does not have it.
    IfNotPresent,
    /// Never; the node has it.
    Never,
}

impl ImagePullPolicy {
    /// As Kubernetes writes it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::IfNotPresent => "IfNotPresent",
            Self::Never => "Never",
        }
    }
}

/// Amounts of resources by name, such as cpu: 500m and memory: 1Gi.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Resources {
    /// What is reserved.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "super::schema::amounts")]
    pub requests: BTreeMap<String, String>,
    /// What may not be exceeded.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "super::schema::amounts")]
    pub limits: BTreeMap<String, String>,
}

/// What is said of pods beside what the operator says.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PodOverrides {
    /// Further annotations.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Further labels; those of the operator keep their values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Which nodes, by label.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// As in a pod; if absent, pods keep away from nodes that have one of the same resource already where they can.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::any_object")]
    pub affinity: Option<Value>,
    /// As in a pod.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "super::schema::any_objects")]
    pub tolerations: Vec<Value>,
    /// As in a pod.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "super::schema::any_objects")]
    pub topology_spread_constraints: Vec<Value>,
    /// The priority class.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub priority_class_name: Option<String>,
    /// Names of Secrets with which the image is pulled.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub image_pull_secrets: Vec<String>,
    /// Whether pods use the network of their node. Their ports are ports of the node then: a node has room for one of them, whoever reaches
    /// the node reaches them, network policies do not count, and a namespace that enforces a Pod Security Standard refuses them.
    pub host_network: bool,
}

/// How one pod is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PodState {
    /// Its name.
    pub name: String,
    /// Whether it is ready.
    pub ready: bool,
    /// The hash of the configuration that is in force in it, as its admin port says. Absent while nobody knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configuration: Option<String>,
    /// The newest generation of the resource whose configuration it was seen to have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applied_generation: Option<i64>,
    /// What is wrong with it, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}
