//! The custom resources of group `waybill.dev`, one file for each kind. `crds/` is generated from them.

// KubeSchema repeats the types inside of functions, `pub` and all.
#![allow(unreachable_pub)]

mod applied;
mod broker;
mod condition;
mod consumer_group;
mod pods;
mod proxy;
mod schema;
mod topic;
mod user;

pub use applied::{AppliedStatus, BrokerRef, DeletionPolicy};
pub use broker::{Broker, BrokerSpec, BrokerStatus, BrokerTls, Flush, Reclaim, Retention, Storage, TlsMode};
pub use condition::{Condition, ConditionStatus, ConditionType, Reason, Told};
pub use consumer_group::{
    ConsumerGroup, ConsumerGroupSpec, GroupCounts, GroupDeletionPolicy, GroupStatus, Leases, Retry, RetryExponential,
};
pub use pods::{ImagePullPolicy, PodOverrides, PodState, Resources};
pub use proxy::{
    Autoscaling, Batch, InjectedStatus, Injection, Proxy, ProxyService, ProxySpec, ProxyStatus, ProxyTls, Renewal,
    ServiceType, Shutdown, ShutdownPolicy,
};
pub use topic::{MessageType, Permission, Topic, TopicRetention, TopicSpec};
pub use user::{ProxyRef, SecretRef, User, UserAction, UserDecision, UserPermission, UserSpec, UserStatus};

/// The group of all kinds.
pub const GROUP: &str = "waybill.dev";
/// The version of all kinds.
pub const VERSION: &str = "v1alpha1";
/// Who owns the fields that the operator writes: one name for all of its writes.
pub const FIELD_MANAGER: &str = "waybill-operator";
/// Holds a resource back until what it stands for is deleted from the brokers; only set where that was asked for.
pub const FINALIZER: &str = "waybill.dev/on-brokers";
