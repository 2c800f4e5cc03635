//! What the kinds have in common that stand for something on brokers.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Condition;

/// Which brokers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct BrokerRef {
    /// The name of a Broker in the same namespace.
    #[schemars(length(min = 1, max = 40), regex(pattern = r"^[a-z]([a-z0-9-]*[a-z0-9])?$"))]
    pub name: String,
}

/// What becomes of the thing on the brokers when the resource is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// It stays.
    #[default]
    Retain,
    /// It is deleted with all messages in it.
    Delete,
    /// It is deleted if no broker has a message in it, and stays otherwise.
    DeleteIfEmpty,
}

/// How far brokers have what was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppliedStatus {
    /// The generation of the resource that all of this is about.
    #[serde(default)]
    pub observed_generation: i64,
    /// The name on the brokers.
    #[serde(default)]
    pub name: String,
    /// How many brokers there are to have it.
    #[serde(default)]
    pub brokers: i32,
    /// How many of them have it.
    #[serde(default)]
    pub applied_brokers: i32,
    /// Ready, Progressing and Degraded.
    #[serde(default)]
    #[schemars(schema_with = "super::schema::conditions")]
    pub conditions: Vec<Condition>,
}
