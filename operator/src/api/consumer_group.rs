//! ConsumerGroup: a consumer group on all brokers of a Broker.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AppliedStatus, BrokerRef, Condition, Told};

/// A consumer group, which every broker of the named Broker gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "waybill.dev",
    version = "v1alpha1",
    kind = "ConsumerGroup",
    shortname = "wgroup",
    category = "waybill",
    namespaced,
    status = "GroupStatus",
    derive = "PartialEq",
    doc = "A consumer group, which every broker of the named Broker gets.",
    validation = Rule::new("has(self.spec.groupName) || self.metadata.name.matches('^[a-z0-9-]{1,120}$')")
        .message("a name with dots or of more than 120 characters cannot be that of a group: give spec.groupName"),
    printcolumn(name = "Group", type_ = "string", json_path = ".status.name"),
    printcolumn(name = "Broker", type_ = "string", json_path = ".spec.brokerRef.name"),
    printcolumn(name = "Orderly", type_ = "boolean", json_path = ".spec.orderly"),
    printcolumn(name = "Paused", type_ = "boolean", json_path = ".spec.paused"),
    printcolumn(name = "Members", type_ = "integer", json_path = ".status.members"),
    printcolumn(name = "Lag", type_ = "integer", json_path = ".status.lag"),
    printcolumn(name = "In Flight", type_ = "integer", json_path = ".status.inFlight", priority = 1),
    printcolumn(name = "Dead Letters", type_ = "integer", json_path = ".status.deadLetters", priority = 1),
    printcolumn(name = "Applied", type_ = "integer", json_path = ".status.appliedBrokers"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.groupName) == has(oldSelf.groupName) && (!has(self.groupName) || self.groupName == oldSelf.groupName)")
    .message("groupName cannot be changed: make another ConsumerGroup"))]
pub struct ConsumerGroupSpec {
    /// Which brokers get it. Cannot be changed.
    #[x_kube(validation = Rule::new("self == oldSelf").message("brokerRef cannot be changed: make another ConsumerGroup"))]
    pub broker_ref: BrokerRef,
    /// The group's name on the brokers; if absent, the name of the resource. Letters, digits, `_`, `-`, `%` and `|`. Cannot be
    /// changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 120), regex(pattern = r"^[A-Za-z0-9_%|-]+$"))]
    #[x_kube(validation = Rule::new("!self.startsWith('CID_RMQ_SYS_')").message("this name belongs to the system"))]
    pub group_name: Option<String>,
    /// Whether the messages of a message group are delivered in order.
    #[serde(default)]
    pub orderly: bool,
    /// How often and when a message is tried again.
    #[serde(default)]
    pub retry: Retry,
    /// How long a push consumer may work on a message, minutes.
    #[serde(default = "consume_timeout_minutes")]
    #[schemars(range(min = 1, max = 1440))]
    pub consume_timeout_minutes: i32,
    /// What the group decides about its leases before the configuration of the sidecars.
    #[serde(default)]
    pub leases: Leases,
    /// Whether its consumers get no messages for now.
    #[serde(default)]
    pub paused: bool,
    /// What becomes of the group on the brokers when this resource is deleted.
    #[serde(default)]
    pub deletion_policy: GroupDeletionPolicy,
}

/// What becomes of the group on the brokers when the resource is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum GroupDeletionPolicy {
    /// It stays.
    #[default]
    Retain,
    /// It is deleted with its leases and its progress.
    Delete,
}

/// How often and when a message is tried again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.delaysMs) || !has(self.exponential)")
    .message("there is delaysMs or exponential, not both"))]
pub struct Retry {
    /// Attempts after the first; a message that used them up goes to the dead-letter topic.
    #[serde(default = "max_times")]
    #[schemars(range(min = 0, max = 1000))]
    pub max_times: i32,
    /// Milliseconds before each further attempt; the last counts for all that follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), inner(range(min = 0, max = 86_400_000)))]
    pub delays_ms: Option<Vec<i64>>,
    /// Delays by a formula: the least of maxMs and initialMs · multiplier^n.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exponential: Option<RetryExponential>,
}

/// Delays by a formula.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.initialMs <= self.maxMs").message("initialMs is at most maxMs"))]
pub struct RetryExponential {
    /// The first delay, milliseconds.
    #[serde(default = "initial_ms")]
    #[schemars(range(min = 1, max = 86_400_000))]
    pub initial_ms: i64,
    /// The longest delay, milliseconds.
    #[serde(default = "max_ms")]
    #[schemars(range(min = 1, max = 86_400_000))]
    pub max_ms: i64,
    /// What a delay is multiplied by to get the next.
    #[serde(default = "multiplier")]
    #[schemars(range(min = 1, max = 1000))]
    pub multiplier: i64,
}

/// What a group decides about its leases before the configuration of the sidecars. What is absent is left to it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Leases {
    /// Whether sidecars renew the leases of push consumers; else they take messages for the whole time to consume. Before
    /// enableGrpcChannelReceiptHandleRenew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renew: Option<bool>,
    /// How long messages that are renewed are invisible at first, milliseconds. Before defaultInvisibleTimeMills.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1_000, max = 86_400_000))]
    pub invisible_ms: Option<i64>,
    /// The most acks or changes in one request to a broker. Before batchChangeInvisibleTimeMaxNum, where that is more.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub batch_max: Option<i64>,
}

/// How far brokers have the group, and what is before it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupStatus {
    /// How far brokers have it.
    #[serde(flatten)]
    pub applied: AppliedStatus,
    /// What is before it.
    #[serde(flatten)]
    pub counts: GroupCounts,
}

/// What a group has before it on all brokers, as it was at most half a minute ago if they answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupCounts {
    /// Clients that consume in it, at the broker that sees the most.
    pub members: i64,
    /// Messages that it is not done with.
    pub lag: i64,
    /// Those of the lag that consumers hold.
    pub in_flight: i64,
    /// Messages that it gave up on and that were not sent back.
    pub dead_letters: i64,
}

fn consume_timeout_minutes() -> i32 {
    15
}

fn max_times() -> i32 {
    16
}

fn initial_ms() -> i64 {
    5_000
}

fn max_ms() -> i64 {
    7_200_000
}

fn multiplier() -> i64 {
    2
}

impl Default for Retry {
    fn default() -> Self {
        Self { max_times: max_times(), delays_ms: None, exponential: None }
    }
}

impl Told for ConsumerGroup {
    const KIND: &'static str = "ConsumerGroup";

    fn conditions(&self) -> &[Condition] {
        self.status.as_ref().map_or(&[], |status| &status.applied.conditions)
    }
}
