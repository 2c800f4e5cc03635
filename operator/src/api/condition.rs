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
    /// All pods are ready and have the configuration.
    PodsReady,
    /// Pods are made, or replaced one by one.
    RollingOut,
    /// Pods that are as they should be are not ready.
    PodsNotReady,
    /// A pod does not come, and the others are not touched.
    RolloutStopped,
    /// Running pods have not taken the changed configuration yet.
    ConfigurationPending,
    /// A running pod refuses the configuration.
    ConfigurationRefused,
    /// Brokers that are to go still hold what somebody waits for.
    DrainingBroker,
    /// An object of a name that the operator needs belongs to somebody else.
    ObjectConflict,
    /// The API server refuses an object.
    ObjectRefused,
    /// A User has no secret key: its Secret is not there, or does not hold one.
    CredentialsMissing,
    /// No Proxy that a User is for asks for users.
    ProxyNotFound,
    /// Pods that ask for a sidecar have none.
    InjectionMissed,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 18] = [
        Self::Applied,
        Self::BrokerNotFound,
        Self::BrokerUnreachable,
        Self::BrokerRefused,
        Self::InvalidSpec,
        Self::NameConflict,
        Self::PodsReady,
        Self::RollingOut,
        Self::PodsNotReady,
        Self::RolloutStopped,
        Self::ConfigurationPending,
        Self::ConfigurationRefused,
        Self::DrainingBroker,
        Self::ObjectConflict,
        Self::ObjectRefused,
        Self::CredentialsMissing,
        Self::ProxyNotFound,
        Self::InjectionMissed,
    ];

    /// Whether `condition` holds where this is the reason.
    #[must_use]
    pub fn holds(self, condition: ConditionType) -> bool {
        let place = match self {
            Self::Applied | Self::PodsReady => ConditionType::Ready,
            Self::BrokerUnreachable
            | Self::RollingOut
            | Self::PodsNotReady
            | Self::ConfigurationPending
            | Self::DrainingBroker => ConditionType::Progressing,
            Self::BrokerNotFound
            | Self::BrokerRefused
            | Self::InvalidSpec
            | Self::NameConflict
            | Self::RolloutStopped
            | Self::ConfigurationRefused
            | Self::ObjectConflict
            | Self::ObjectRefused
            | Self::CredentialsMissing
            | Self::ProxyNotFound
            | Self::InjectionMissed => ConditionType::Degraded,
        };
        place == condition
    }
}

/// A kind that tells how it does.
pub trait Told {
    /// Its name.
    const KIND: &'static str;
    /// What it tells.
    fn conditions(&self) -> &[Condition];
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
