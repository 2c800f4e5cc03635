//! Conditions: what is to be known about a resource, with a closed set of reasons.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a condition is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum ConditionType {
    /// What was asked for is there.
    Ready,
    /// The operator goes on working towards it by itself.
    Progressing,
    /// Somebody has to do something about it.
    Degraded,
}

/// Whether a condition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// It cannot be told.
    Unknown,
}

/// Why. The set is closed; docs/operator-conditions.md says of each what it means and what helps, and a test holds that page
/// against this list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Reason {
    /// All brokers have it as it is asked for.
    Applied,
    /// There is no Broker of the name in `brokerRef` in the namespace.
    BrokerNotFound,
    /// A broker does not answer; it is tried again.
    BrokerUnreachable,
    /// A broker answered that it will not have it so.
    BrokerRefused,
    /// The resource asks for what cannot be.
    InvalidSpec,
    /// An older resource of the namespace stands for the same thing on the same brokers.
    NameConflict,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Applied,
        Self::BrokerNotFound,
        Self::BrokerUnreachable,
        Self::BrokerRefused,
        Self::InvalidSpec,
        Self::NameConflict,
    ];

    /// Whether `condition` holds where this is the reason.
    #[must_use]
    pub fn holds(self, condition: ConditionType) -> bool {
        let place = match self {
            Self::Applied => ConditionType::Ready,
            Self::BrokerUnreachable => ConditionType::Progressing,
            Self::BrokerNotFound | Self::BrokerRefused | Self::InvalidSpec | Self::NameConflict => {
                ConditionType::Degraded
            }
        };
        place == condition
    }
}

/// One thing that is to be known about a resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What it is about.
    #[serde(rename = "type")]
    pub kind: ConditionType,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// Why, for programs.
    pub reason: Reason,
    /// Why, for people.
    pub message: String,
    /// When `status` last changed.
    #[schemars(extend("format" = "date-time"))]
    pub last_transition_time: String,
    /// The generation of the resource that it is about.
    #[serde(default)]
    pub observed_generation: i64,
}
