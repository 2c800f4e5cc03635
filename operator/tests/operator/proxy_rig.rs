//! A Proxy "edge", and the rest of Kubernetes as far as it concerns it.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt;
use kube::runtime::controller::Action;
use parking_lot::Mutex;
use serde_json::{Value, json};
use waybill_operator::Scope;
use waybill_operator::admin::InForce;
use waybill_operator::hash;
use waybill_operator::reconcile::{ApiError, Context, Proxies, reconcile_proxy, sweep};

use crate::rig::Rig;

pub(crate) const PROXIES: &str = "proxies";

pub(crate) struct ProxyRig {
    pub(crate) rig: Rig,
    /// What sidecars say at these addresses; at others nobody is.
    pub(crate) in_force: Arc<Mutex<BTreeMap<String, InForce>>>,
    pub(crate) scope: Scope,
}

impl ProxyRig {
    /// Two brokers of the Broker "main".
    pub(crate) fn new() -> Self {
        Self { rig: Rig::new(["one:1", "two:2", "three:3"]), in_force: Arc::default(), scope: Scope::Cluster }
    }

    pub(crate) fn context(&self) -> Context {
        let in_force = self.in_force.clone();
        let mut context = self.rig.context();
        context.configuration = Arc::new(move |address| {
            let said = in_force.lock().get(&address).cloned().ok_or_else(|| "connection refused".to_owned());
            async move { said }.boxed()
        });
        context
    }

    /// What a person applies.
    pub(crate) fn put(&self, mut spec: Value) {
        if spec["brokerRef"].is_null() && spec["nameServers"].is_null() {
            spec["brokerRef"] = json!({ "name": "main" });
        }
        self.rig.api.put(&json!({
            "apiVersion": "waybill.dev/v1alpha1", "kind": "Proxy", "metadata": { "name": "edge" }, "spec": spec,
        }));
    }

    pub(crate) async fn try_reconcile(&self) -> Result<Action, ApiError> {
        let proxies = Proxies { context: self.context(), scope: self.scope.clone() };
        reconcile_proxy(Arc::new(self.rig.api.typed(PROXIES, "edge")), Arc::new(proxies)).await
    }

    pub(crate) async fn reconcile(&self) -> Action {
        self.try_reconcile().await.expect("the API server is well")
    }

    pub(crate) async fn sweep(&self) {
        sweep(&self.context(), &self.scope).await.expect("the API server is well");
    }

    pub(crate) fn status(&self) -> Value {
        self.rig.api.get(PROXIES, "edge").expect("it is there")["status"].clone()
    }

    /// The reason of the condition that holds, and its message.
    pub(crate) fn told(&self) -> (String, String) {
        let (_condition, reason, message) = self.rig.told(PROXIES, "edge");
        (format!("{reason:?}"), message)
    }

    /// An object of the Proxy.
    pub(crate) fn made(&self, plural: &str) -> Value {
        self.rig.api.get(plural, "edge-proxy").unwrap_or_else(|| panic!("no {plural}"))
    }

    /// The configuration of the proxies.
    pub(crate) fn configuration(&self) -> String {
        self.made("configmaps")["data"]["sidecar.yaml"].as_str().expect("text").to_owned()
    }

    /// All pods of the Deployment are there and ready, and have this configuration.
    pub(crate) fn pods_run(&self, text: &str) {
        let deployment = self.made("deployments");
        let replicas = deployment["spec"]["replicas"].as_i64().unwrap_or(1);
        for number in 0..replicas {
            let name = format!("edge-proxy-{number}");
            let address = format!("10.1.0.{number}");
            if self.rig.api.get("pods", &name).is_none() {
                self.rig.api.put_whole(&json!({
                    "apiVersion": "v1", "kind": "Pod",
                    "metadata": { "name": name, "namespace": "default", "labels": deployment["spec"]["template"]["metadata"]["labels"] },
                    "spec": deployment["spec"]["template"]["spec"],
                    "status": {
                        "phase": "Running", "podIP": address, "conditions": [{ "type": "Ready", "status": "True" }],
                        "containerStatuses": [{
                            "name": "proxy", "image": "", "imageID": "", "ready": true, "started": true, "restartCount": 0,
                            "state": { "running": {} },
                        }],
                    },
                }));
            }
            self.says(&format!("{address}:8082"), text);
        }
        let generation = deployment["metadata"]["generation"].clone();
        self.rig.api.edit("deployments", "edge-proxy", |deployment| {
            deployment["status"] = json!({
                "observedGeneration": generation, "replicas": replicas, "readyReplicas": replicas, "updatedReplicas": replicas,
            });
        });
    }

    /// The sidecar at this address has this configuration in force.
    pub(crate) fn says(&self, address: &str, text: &str) {
        let in_force = InForce { hash: hash::of(text), error: None, needs_restart: Vec::new() };
        self.in_force.lock().insert(address.to_owned(), in_force);
    }

    /// Nothing is written, whatever happens next.
    pub(crate) async fn silent(&self) {
        let (writes, events) = (self.rig.api.writes().len(), self.rig.api.events().len());
        self.reconcile().await;
        assert_eq!(self.rig.api.writes()[writes..], [] as [&str; 0]);
        assert_eq!(self.rig.api.events().len(), events);
    }
}
