//! Watches of everything that concerns Proxies, and their controller.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::future;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::core::{NamespaceResourceScope, PartialObjectMeta};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::{Controller, watcher};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::api::{Broker, FIELD_MANAGER, Proxy, Told};
use crate::build::{INJECT, INJECT_NAMESPACE, INJECTION, MANAGED_BY, PROXY, PROXY_NAMESPACE};
use crate::noticed::{Noticed, those};
use crate::reconcile::{Context, Proxies, on_proxy_error, reconcile_proxy, sweep};
use crate::run::{Scope, controller_of, watch_over};

/// How often ConfigMaps that nobody needs are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// Looks after the Proxies of `scope` until `stop`.
pub(crate) async fn look_after_proxies(scope: &Scope, context: &Context, stop: &CancellationToken) {
    let proxies = Arc::new(Proxies { context: context.clone(), scope: scope.clone() });
    let apis = scope.apis::<Proxy>(&context.client).into_iter().enumerate();
    let controllers = apis.map(|(number, api)| {
        let controller = controller_of(api);
        let known = controller.store();
        context.metrics.look_at(known.clone());
        let watches = Watches { proxies: &proxies, number };
        let controller = watches.everywhere::<ConfigMap>(controller, &made_for_proxies(), of_labels);
        let controller = watches.made::<Service>(controller);
        let controller = watches.made::<ServiceAccount>(controller);
        let controller = watches.made::<PodDisruptionBudget>(controller);
        let controller = watches.made::<HorizontalPodAutoscaler>(controller);
        let controller = watches.made::<Deployment>(controller);
        let controller = watches.made::<Pod>(controller);
        let controller = watches.everywhere::<Pod>(controller, INJECT, of_injected);
        let controller = match scope.apis::<Broker>(&context.client).into_iter().nth(number) {
            Some(brokers) => {
                let noticed = Noticed::default();
                controller.watches(brokers, watcher::Config::default(), move |broker| {
                    // One that has another number of brokers concerns the Proxies in front of it.
                    let there = broker.status.as_ref().map_or(0, |status| status.replicas);
                    let matters = (broker.metadata.generation, there);
                    let concerns = noticed.concerns_others(&broker, matters, broker.status.clone());
                    if concerns { of_broker(&known, &broker) } else { Vec::new() }
                })
            }
            None => controller,
        };
        let controller = controller.graceful_shutdown_on(stop.clone().cancelled_owned());
        let reconcile = context.metrics.counted(Proxy::KIND, reconcile_proxy);
        watch_over(controller.run(reconcile, on_proxy_error, proxies.clone()))
    });
    future::join(future::join_all(controllers), sweeping(scope, context, stop)).await;
}

/// The watches of one API, of metadata only: whoever changes anything about an object changes that, too.
struct Watches<'a> {
    proxies: &'a Proxies,
    number: usize,
}

impl Watches<'_> {
    /// What the operator made for Proxies.
    fn made<K>(&self, controller: Controller<Proxy>) -> Controller<Proxy>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + Send
            + 'static,
    {
        let apis: Vec<Api<PartialObjectMeta<K>>> = self.proxies.scope.apis(&self.proxies.context.client);
        match apis.into_iter().nth(self.number) {
            Some(api) => {
                let labels = watcher::Config::default().labels(&made_for_proxies());
                controller.watches(api, labels, move |object| of_labels(&object))
            }
            None => controller,
        }
    }

    /// Pods with a sidecar, and what those read, may be in other namespaces than their Proxy.
    fn everywhere<K>(
        &self,
        controller: Controller<Proxy>,
        labels: &str,
        whose: fn(&PartialObjectMeta<K>) -> Option<ObjectRef<Proxy>>,
    ) -> Controller<Proxy>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + Send
            + 'static,
    {
        let apis: Vec<Api<PartialObjectMeta<K>>> = self.proxies.scope.apis(&self.proxies.context.client);
        // Where each namespace has a controller of its own, it knows no other Proxies.
        let home = match &self.proxies.scope {
            Scope::Cluster => None,
            Scope::Namespaces(names) => names.get(self.number).cloned(),
        };
        apis.into_iter().fold(controller, |controller, api| {
            let home = home.clone();
            controller.watches(api, watcher::Config::default().labels(labels), move |object| {
                whose(&object).filter(|proxy| home.is_none() || proxy.namespace == home)
            })
        })
    }
}

/// The labels of what the operator made for Proxies.
fn made_for_proxies() -> String {
    format!("{MANAGED_BY}={FIELD_MANAGER},app.kubernetes.io/component in ({PROXY},{INJECTION})")
}

/// The Proxy for which the operator made an object.
fn of_labels<K: Resource<DynamicType = ()>>(object: &PartialObjectMeta<K>) -> Option<ObjectRef<Proxy>> {
    let labels = object.metadata.labels.as_ref()?;
    let home = labels.get(PROXY_NAMESPACE).or(object.metadata.namespace.as_ref())?;
    Some(ObjectRef::new(labels.get("app.kubernetes.io/instance")?).within(home))
}

/// The Proxy of which a pod asks for a sidecar.
fn of_injected(pod: &PartialObjectMeta<Pod>) -> Option<ObjectRef<Proxy>> {
    let labels = pod.metadata.labels.as_ref()?;
    let home = labels.get(INJECT_NAMESPACE).or(pod.metadata.namespace.as_ref())?;
    Some(ObjectRef::new(labels.get(INJECT)?).within(home))
}

/// The Proxies in front of a Broker.
fn of_broker(known: &Store<Proxy>, broker: &Broker) -> Vec<ObjectRef<Proxy>> {
    those(known, |proxy| {
        let named = proxy.spec.broker_ref.as_ref().is_some_and(|named| named.name == broker.name_any());
        named && proxy.namespace() == broker.namespace()
    })
}

async fn sweeping(scope: &Scope, context: &Context, stop: &CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(SWEEP_EVERY) => {}
        }
        if let Err(error) = sweep(context, scope).await {
            warn!(%error, "unneeded ConfigMaps could not be looked for, it is tried again");
        }
    }
}
