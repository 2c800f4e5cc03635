//! From resources to what they ask for: dereference, validate, apply, tell. Nothing is written where nothing is to be changed.

mod broker;
mod claims;
mod compare;
mod consumer_group;
mod credentials;
mod deleting;
mod drain;
mod events;
mod finalizer;
mod group_counts;
mod injection;
mod objects;
mod on_brokers;
mod pods;
mod proxy;
mod proxy_users;
mod secured;
mod shared_users;
mod status;
mod topic;
mod user;

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use kube::runtime::controller::Action;
use kube::runtime::reflector::Store;
use kube::{Api, Client, ResourceExt};
use waybill_ops::clock::Clock;

use crate::admin::{Hanging, InForce, Limits};
use crate::api::Broker;
use crate::build::Images;
use crate::metrics::Metrics;
use crate::term::Term;

pub use broker::{on_broker_error, reconcile_broker};
pub use deleting::Deleting;
pub use events::Events;
pub use group_counts::count_groups;
pub(crate) use injection::provide;
pub use injection::sweep;
pub use on_brokers::{OnBrokers, on_api_error, reconcile};
pub use proxy::{Proxies, on_proxy_error, reconcile_proxy};
pub use proxy_users::{on_proxy_users_error, reconcile_proxy_users};
pub use user::{on_user_error, reconcile_user};

/// Tells the address (host:port) of the remoting port of a Broker's broker, by its number.
pub type Address = Arc<dyn Fn(&Broker, i32) -> String + Send + Sync>;

/// Asks a program at host:port, its admin port, which configuration it has in force; an error is for people.
pub type AskConfiguration = Arc<dyn Fn(String) -> BoxFuture<'static, Result<InForce, String>> + Send + Sync>;

/// What every reconciliation needs.
#[derive(Clone)]
pub struct Context {
    /// The API server.
    pub client: Client,
    /// The time, for conditions and for how long a deletion waits.
    pub clock: Arc<dyn Clock>,
    /// How long a broker is waited for.
    pub limits: Limits,
    /// Which brokers are not worth being waited for by many.
    pub hanging: Hanging,
    /// What is to go and cannot yet.
    pub deleting: Deleting,
    /// For how long this operator certainly leads.
    pub term: Term,
    /// Where brokers are.
    pub address: Address,
    /// How pods are asked which configuration they have.
    pub configuration: AskConfiguration,
    /// Which images pods have where their resource does not say it.
    pub images: Images,
    /// What people are told.
    pub events: Events,
    /// What is counted.
    pub metrics: Metrics,
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
    /// How long a deletion waits for brokers that do not answer or refuse, from this operator's first try on. Then the resource goes, and what it
    /// stands for stays.
    pub deletion_patience: Duration,
    /// Something is under way in the cluster (pods start, brokers drain): it is looked at again.
    pub under_way: Duration,
    /// Between two looks at a broker that is to go and has nothing left.
    pub settling: Duration,
    /// Between two counts of what groups have before them.
    pub counting: Duration,
    /// How long what is under way may take when the operator is told to stop.
    pub stopping: Duration,
    /// How long the webhook answers after that: a Service needs about so long to notice that a pod is to go.
    pub leaving: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            resync: Duration::from_secs(300),
            retry_min: Duration::from_secs(1),
            retry_max: Duration::from_secs(60),
            deletion_patience: Duration::from_secs(300),
            under_way: Duration::from_secs(2),
            settling: Duration::from_secs(1),
            counting: Duration::from_secs(30),
            stopping: Duration::from_secs(10),
            leaving: Duration::from_secs(4),
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

impl ApiError {
    /// What the API server says, where the operator has no right to what it asked for; no other try helps then.
    fn forbidden(&self) -> Option<&str> {
        match &self.source {
            kube::Error::Api(status) if status.code == 403 => Some(&status.message),
            _other => None,
        }
    }
}

/// When to try again what the API server did not do.
fn after_api_error(error: &ApiError, pace: Pace) -> Action {
    match &error.source {
        // It was read before it changed; the change is on its way here.
        kube::Error::Api(status) if status.code == 409 => Action::requeue(pace.retry_min / 4),
        _other => Action::requeue(pace.retry_min * 5),
    }
}

/// The Broker of this name, if there is one.
async fn broker_of(context: &Context, namespace: &str, name: &str) -> Result<Option<Broker>, ApiError> {
    match Api::namespaced(context.client.clone(), namespace).get_opt(name).await {
        Ok(broker) => Ok(broker),
        // The definition of the kind is gone, and all Brokers with it: what is to be deleted must not wait for one.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(while_doing("look up the Broker")(error)),
    }
}

/// Names what failed.
fn while_doing(doing: &'static str) -> impl FnOnce(kube::Error) -> ApiError {
    move |source| ApiError { doing, source }
}

/// `namespace/name`.
pub(crate) fn key(object: &impl ResourceExt) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}
