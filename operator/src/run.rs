//! Watches, and one controller for each kind.

use std::sync::Arc;

use futures::{Stream, StreamExt, future};
use kube::runtime::Controller;
use kube::runtime::controller::{self, Config};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::api::{Broker, ConsumerGroup, Topic};
use crate::reconcile::{Context, Kind, OnBrokers, on_api_error, reconcile};

/// Resources of one kind and namespace that are worked on at once.
const AT_ONCE: u16 = 16;

/// Which resources an operator looks after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Those of all namespaces.
    Cluster,
    /// Those of these namespaces; needs no rights in any other.
    Namespaces(Vec<String>),
}

impl Scope {
    fn apis<K>(&self, client: &Client) -> Vec<Api<K>>
    where
        K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        match self {
            Self::Cluster => vec![Api::all(client.clone())],
            Self::Namespaces(names) => names.iter().map(|name| Api::namespaced(client.clone(), name)).collect(),
        }
    }
}

/// Looks after the resources of `scope` until `stop`; what is under way then is finished, if that takes no longer than
/// [`crate::reconcile::Pace::stopping`].
pub async fn run(scope: Scope, context: Context, stop: CancellationToken) {
    let topics = look_after::<Topic>(&scope, &context, &stop);
    let groups = look_after::<ConsumerGroup>(&scope, &context, &stop);
    info!(?scope, "operator runs");
    let too_long = async {
        stop.cancelled().await;
        tokio::time::sleep(context.pace.stopping).await;
    };
    tokio::select! {
        _ended = future::join(topics, groups) => {}
        // A controller that never got its first list does not end by itself.
        () = too_long => warn!("stopped before everything under way was done"),
    }
}

async fn look_after<K: OnBrokers>(scope: &Scope, context: &Context, stop: &CancellationToken) {
    let pairs = scope.apis::<K>(&context.client).into_iter().zip(scope.apis::<Broker>(&context.client));
    future::join_all(pairs.map(|(api, brokers)| {
        let controller =
            Controller::new(api, watcher::Config::default()).with_config(Config::default().concurrency(AT_ONCE));
        let known = controller.store();
        let affected = known.clone();
        let kind = Arc::new(Kind { context: context.clone(), known });
        let controller = controller
            // A Broker that comes, goes or changes its number concerns all that stands for something on it.
            .watches(brokers, watcher::Config::default(), move |broker| of_broker(&affected, &broker))
            .graceful_shutdown_on(stop.clone().cancelled_owned());
        watch_over(controller.run(reconcile::<K>, on_api_error::<K>, kind))
    }))
    .await;
}

fn of_broker<K: OnBrokers>(known: &Store<K>, broker: &Broker) -> Vec<ObjectRef<K>> {
    let concerns =
        |object: &Arc<K>| object.namespace() == broker.namespace() && object.broker_ref().name == broker.name_any();
    known.state().iter().filter(|object| concerns(object)).map(|object| ObjectRef::from_obj(&**object)).collect()
}

/// Reconciliations that fail are logged where they are tried again; here it is about the watches.
async fn watch_over<T, E, Q>(results: impl Stream<Item = Result<T, controller::Error<E, Q>>>)
where
    E: std::error::Error + 'static,
    Q: std::error::Error + 'static,
{
    results
        .for_each(|result| async move {
            if let Err(controller::Error::QueueError(error)) = result {
                warn!(%error, "a watch failed, it is set up again");
            }
        })
        .await;
}
