//! From resources to what they ask for: dereference, validate, apply, tell. Nothing is written where nothing is to be changed.

mod consumer_group;
mod events;
mod finalizer;
mod on_brokers;
mod status;
mod topic;

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use kube::runtime::controller::Action;
use kube::runtime::reflector::Store;
use kube::{Client, ResourceExt};
use waybill_ops::clock::Clock;

use crate::admin::Limits;
use crate::api::Broker;

pub use events::Events;
pub use on_brokers::{OnBrokers, on_api_error, reconcile};

/// Tells the addresses (host:port) of the remoting ports of a Broker's brokers, in a fixed order.
pub type Addresses = Arc<dyn Fn(&Broker) -> Vec<String> + Send + Sync>;

/// What every reconciliation needs.
#[derive(Clone)]
pub struct Context {
    /// The API server.
    pub client: Client,
    /// The time, for conditions and for how long a deletion waits.
    pub clock: Arc<dyn Clock>,
    /// How long a broker is waited for.
    pub limits: Limits,
    /// Where brokers are.
    pub addresses: Addresses,
    /// What people are told.
    pub events: Events,
    /// When things are looked at again.
    pub pace: Pace,
}

/// When things are looked at again without an event.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// All is well: brokers are compared again.
    pub resync: Duration,
    /// The first try after a failure; each further one waits as long as it has failed.
    pub retry_min: Duration,
    /// The longest time between two tries.
    pub retry_max: Duration,
    /// How long a deletion waits for brokers that do not answer or refuse. Then the resource goes, and what it stands for stays.
    pub deletion_patience: Duration,
    /// How long what is under way may take when the operator is told to stop.
    pub stopping: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            resync: Duration::from_secs(300),
            retry_min: Duration::from_secs(1),
            retry_max: Duration::from_secs(60),
            deletion_patience: Duration::from_secs(300),
            stopping: Duration::from_secs(10),
        }
    }
}

impl Pace {
    /// When to try again what has failed for `failing`.
    fn retry(&self, failing: Duration) -> Action {
        Action::requeue(failing.clamp(self.retry_min, self.retry_max))
    }

    /// When to compare again; up to a quarter later, so that a thousand resources do not ask all at once.
    fn resync(&self, key: &str) -> Action {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let part = u32::try_from(hasher.finish() % 256).unwrap_or(0);
        Action::requeue(self.resync + self.resync * part / 1024)
    }
}

/// What the reconciliations of one kind need besides.
pub struct Kind<K: kube::Resource<DynamicType = ()> + 'static> {
    /// What all kinds need.
    pub context: Context,
    /// All resources of the kind that are known.
    pub known: Store<K>,
}

impl<K: kube::Resource<DynamicType = ()> + 'static> fmt::Debug for Kind<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kind").field("kind", &K::kind(&())).finish_non_exhaustive()
    }
}

/// The API server did not do what was asked of it. Tried again.
#[derive(Debug, thiserror::Error)]
#[error("{doing}: {source}")]
pub struct ApiError {
    doing: &'static str,
    source: kube::Error,
}

/// Names what failed.
fn while_doing(doing: &'static str) -> impl FnOnce(kube::Error) -> ApiError {
    move |source| ApiError { doing, source }
}

/// `namespace/name`.
fn key(object: &impl ResourceExt) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}
