//! Watches, and one controller for each kind.

use std::sync::Arc;

use futures::{Stream, StreamExt, TryStreamExt, future};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::runtime::controller::{self, Config};
use kube::runtime::reflector::{self, ObjectRef, Store, reflector};
use kube::runtime::{Controller, WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::api::{Broker, ConsumerGroup, FIELD_MANAGER, Told, Topic};
use crate::build::MANAGED_BY;
use crate::noticed::{Noticed, those};
use crate::proxies::look_after_proxies;
use crate::reconcile::{Context, Kind, OnBrokers, on_api_error, on_broker_error, reconcile, reconcile_broker};
use crate::resync::resync;
use crate::users::look_after_users;

/// Resources of one kind and namespace that are worked on at once.
pub(crate) const AT_ONCE: u16 = 8;
/// Resources that the API server tells in one answer when a watch begins.
const PAGE: u32 = 25;
/// The annotation in which kubectl keeps a copy of what was applied.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Which resources an operator looks after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Those of all namespaces.
    Cluster,
    /// Those of these namespaces; needs no rights in any other.
    Namespaces(Vec<String>),
}

impl Scope {
    /// Whether it has this namespace.
    #[must_use]
    pub fn has(&self, namespace: &str) -> bool {
        match self {
            Self::Cluster => true,
            Self::Namespaces(names) => names.iter().any(|name| name == namespace),
        }
    }

    /// One API for each namespace, or one for all.
    pub(crate) fn apis<K>(&self, client: &Client) -> Vec<Api<K>>
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
    let brokers = look_after_brokers(&scope, &context, &stop);
    let proxies = look_after_proxies(&scope, &context, &stop);
    let topics = look_after::<Topic>(&scope, &context, &stop);
    let groups = look_after::<ConsumerGroup>(&scope, &context, &stop);
    let users = look_after_users(&scope, &context, &stop);
    info!(?scope, "operator runs");
    let too_long = async {
        stop.cancelled().await;
        tokio::time::sleep(context.pace.stopping).await;
    };
    tokio::select! {
        _ended = future::join5(brokers, proxies, topics, groups, users) => {}
        // A controller that never got its first list does not end by itself.
        () = too_long => warn!("stopped before everything under way was done"),
    }
}

/// A controller of the resources of one API, all of which are kept in memory: so without what only the API server needs, which is
/// most of a small resource.
pub(crate) fn controller_of<K>(api: Api<K>) -> Controller<K>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + Sync + 'static,
{
    let (known, writer) = reflector::store();
    let objects = reflector(writer, lighter(api)).applied_objects();
    Controller::for_stream(objects, known).with_config(Config::default().concurrency(AT_ONCE))
}

/// The same of a kind of which there may be thousands: what is there when a watch begins is not all looked at at once. That all of it
/// was listed is told, and [`resync`] goes through it.
fn controller_of_many<K>(api: Api<K>) -> (Controller<K>, Arc<Notify>)
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + Sync + 'static,
{
    let (known, writer) = reflector::store();
    let listed = Arc::<Notify>::default();
    let tell = listed.clone();
    let changed = reflector(writer, lighter(api)).try_filter_map(move |event| {
        let changed = match event {
            watcher::Event::Apply(object) => Some(object),
            watcher::Event::InitDone => {
                tell.notify_one();
                None
            }
            watcher::Event::Init | watcher::Event::InitApply(_) | watcher::Event::Delete(_) => None,
        };
        future::ready(Ok(changed))
    });
    let controller = Controller::for_stream(changed, known);
    (controller.with_config(Config::default().concurrency(AT_ONCE)), listed)
}

/// Watches resources, without what is not needed of them.
fn lighter<K>(api: Api<K>) -> impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send + 'static
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + Sync + 'static,
{
    watcher(api, watcher::Config::default().page_size(PAGE)).modify(|object: &mut K| {
        object.managed_fields_mut().clear();
        object.annotations_mut().remove(LAST_APPLIED);
    })
}

/// What the operator made for brokers. Of these objects only the metadata is watched, and nothing is kept.
fn made_for_brokers() -> watcher::Config {
    watcher::Config::default().labels(&format!("{MANAGED_BY}={FIELD_MANAGER},app.kubernetes.io/component=broker"))
}

async fn look_after_brokers(scope: &Scope, context: &Context, stop: &CancellationToken) {
    let mut sets = scope.apis::<StatefulSet>(&context.client).into_iter();
    let mut configs = scope.apis::<ConfigMap>(&context.client).into_iter();
    let mut services = scope.apis::<Service>(&context.client).into_iter();
    let mut accounts = scope.apis::<ServiceAccount>(&context.client).into_iter();
    let mut budgets = scope.apis::<PodDisruptionBudget>(&context.client).into_iter();
    let controllers = scope.apis::<Broker>(&context.client).into_iter().map(|api| {
        let mut controller = controller_of(api);
        context.metrics.look_at(controller.store());
        controller = owning(controller, sets.next());
        controller = owning(controller, configs.next());
        controller = owning(controller, services.next());
        controller = owning(controller, accounts.next());
        controller = owning(controller, budgets.next());
        let controller = controller.graceful_shutdown_on(stop.clone().cancelled_owned());
        let reconcile = context.metrics.counted(Broker::KIND, reconcile_broker);
        watch_over(controller.run(reconcile, on_broker_error, Arc::new(context.clone())))
    });
    future::join_all(controllers).await;
}

fn owning<K>(controller: Controller<Broker>, api: Option<Api<K>>) -> Controller<Broker>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    match api {
        Some(api) => controller.owns(api, made_for_brokers()),
        None => controller,
    }
}

async fn look_after<K: OnBrokers>(scope: &Scope, context: &Context, stop: &CancellationToken) {
    let pairs = scope.apis::<K>(&context.client).into_iter().zip(scope.apis::<Broker>(&context.client));
    future::join_all(pairs.map(|(api, brokers)| {
        let (controller, listed) = controller_of_many(api);
        let known = controller.store();
        context.metrics.look_at(known.clone());
        let affected = known.clone();
        let noticed = Noticed::default();
        let again = resync(known.clone(), listed, context.pace.resync);
        let kind = Arc::new(Kind { context: context.clone(), known });
        let beside = K::beside(kind.clone(), stop.clone());
        let controller = controller
            .reconcile_on(again)
            .watches(brokers, watcher::Config::default(), move |broker| {
                // One that changes its number, or has another number of brokers there or ready, concerns all that stands for something on it.
                let there = broker.status.as_ref().map_or((0, 0), |status| (status.replicas, status.ready_replicas));
                let matters = (broker.metadata.generation, there);
                let concerns = noticed.concerns_others(&broker, matters, broker.status.clone());
                if concerns { of_broker(&affected, &broker) } else { Vec::new() }
            })
            .graceful_shutdown_on(stop.clone().cancelled_owned());
        let reconcile = context.metrics.counted(K::KIND, reconcile::<K>);
        future::join(watch_over(controller.run(reconcile, on_api_error::<K>, kind)), beside)
    }))
    .await;
}

fn of_broker<K: OnBrokers>(known: &Store<K>, broker: &Broker) -> Vec<ObjectRef<K>> {
    those(known, |object| object.namespace() == broker.namespace() && object.broker_ref().name == broker.name_any())
}

/// Reconciliations that fail are logged where they are tried again; here it is about the watches.
pub(crate) async fn watch_over<T, E, Q>(results: impl Stream<Item = Result<T, controller::Error<E, Q>>>)
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
