//! Topic: a topic on all brokers of a Broker.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AppliedStatus, BrokerRef, Condition, DeletionPolicy, Told};

/// A topic, which every broker of the named Broker gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "waybill.dev",
    version = "v1alpha1",
    kind = "Topic",
    shortname = "wtopic",
    category = "waybill",
    namespaced,
    status = "AppliedStatus",
    derive = "PartialEq",
    doc = "A topic, which every broker of the named Broker gets.",
    validation = Rule::new("has(self.spec.topicName) || self.metadata.name.matches('^[a-z0-9-]{1,127}$')")
        .message("a name with dots or of more than 127 characters cannot be that of a topic: give spec.topicName"),
    printcolumn(name = "Topic", type_ = "string", json_path = ".status.name"),
    printcolumn(name = "Broker", type_ = "string", json_path = ".spec.brokerRef.name"),
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.messageType"),
    printcolumn(name = "Queues", type_ = "integer", json_path = ".spec.queues"),
    printcolumn(name = "Applied", type_ = "integer", json_path = ".status.appliedBrokers"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.topicName) == has(oldSelf.topicName) && (!has(self.topicName) || self.topicName == oldSelf.topicName)")
    .message("topicName cannot be changed: make another Topic"))]
#[x_kube(validation = Rule::new("!has(self.writeQueues) || self.writeQueues <= self.queues")
    .message("writeQueues is at most queues"))]
pub struct TopicSpec {
    /// Which brokers get it. Cannot be changed.
    #[x_kube(validation = Rule::new("self == oldSelf").message("brokerRef cannot be changed: make another Topic"))]
    pub broker_ref: BrokerRef,
    /// The topic's name on the brokers; if absent, the name of the resource. Letters, digits, `_`, `-`, `%` and `|`. Cannot be
    /// changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 127), regex(pattern = r"^[A-Za-z0-9_%|-]+$"))]
    #[x_kube(validation = Rule::new("!self.startsWith('rmq_sys_') && !(self in ['TBW102', 'SCHEDULE_TOPIC_XXXX', 'BenchmarkTest', 'RMQ_SYS_TRANS_HALF_TOPIC', 'RMQ_SYS_TRACE_TOPIC', 'RMQ_SYS_TRANS_OP_HALF_TOPIC', 'TRANS_CHECK_MAX_TIME_TOPIC', 'SELF_TEST_TOPIC', 'OFFSET_MOVED_EVENT', 'CHECKPOINT_TOPIC'])")
        .message("this name belongs to the system"))]
    pub topic_name: Option<String>,
    /// Which messages it takes.
    #[serde(default)]
    pub message_type: MessageType,
    /// How many queues it has on each broker, to read and, if writeQueues is absent, to write.
    #[serde(default = "queues")]
    #[schemars(range(min = 1, max = 1024))]
    pub queues: i32,
    /// How many of the queues are written to. To have fewer queues without hiding what is in them: lower this, let consumers
    /// finish, then lower `queues`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub write_queues: Option<i32>,
    /// What clients may do with it.
    #[serde(default)]
    pub permission: Permission,
    /// How long its messages are kept. Absent: as long as the brokers keep those of all topics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<TopicRetention>,
    /// What becomes of the topic on the brokers when this resource is deleted.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

/// Which messages a topic takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum MessageType {
    /// Messages without order or delay.
    #[default]
    Normal,
    /// Messages delivered in order within their message group.
    Fifo,
    /// Messages delivered at a later time.
    Delay,
    /// Messages that become visible when a transaction commits.
    Transaction,
    /// All of them.
    Mixed,
}

/// What clients may do with a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum Permission {
    /// Send and receive.
    #[default]
    ReadWrite,
    /// Receive only.
    ReadOnly,
    /// Send only.
    WriteOnly,
}

/// How long the messages of a topic are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TopicRetention {
    /// Hours after which they go, consumed or not. No more than retention.hours of the Broker, which counts for all topics: brokers refuse it.
    #[schemars(range(min = 1, max = 876_000))]
    pub hours: i64,
}

fn queues() -> i32 {
    8
}

impl MessageType {
    /// As brokers write it.
    #[must_use]
    pub fn on_broker(self) -> &'static str {
        match self {
            Self::Normal => "NORMAL",
            Self::Fifo => "FIFO",
            Self::Delay => "DELAY",
            Self::Transaction => "TRANSACTION",
            Self::Mixed => "MIXED",
        }
    }
}

impl Told for Topic {
    const KIND: &'static str = "Topic";

    fn conditions(&self) -> &[Condition] {
        self.status.as_ref().map_or(&[], |status| &status.conditions)
    }
}
