//! What the rest of Kubernetes does with a StatefulSet: pods that come, get ready, are replaced one by one from the end, and go.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt;
use parking_lot::Mutex;
use serde_json::{Value, json};
use waybill_operator::admin::InForce;
use waybill_operator::hash;
use waybill_operator::reconcile::AskConfiguration;

use crate::fake_api::FakeApi;

const SET: &str = "main-broker";

/// What is wrong with pods, by name: the status of their container.
pub(crate) type Sick = Arc<Mutex<Illness>>;

#[derive(Default)]
pub(crate) struct Illness {
    /// Pods of these revisions, by the image, fail so.
    pub(crate) images: BTreeMap<String, Value>,
    /// What pods say of their configuration, by the address at which they are asked, where they do not have the newest.
    pub(crate) configuration: BTreeMap<String, Result<InForce, String>>,
}

#[derive(Clone)]
pub(crate) struct Cluster {
    pub(crate) api: FakeApi,
    pub(crate) sick: Sick,
}

impl Cluster {
    /// Pods have the newest configuration in force at once.
    pub(crate) fn asked(&self) -> AskConfiguration {
        let Self { api, sick } = self.clone();
        Arc::new(move |address| {
            let text = api.get("configmaps", SET).expect("it is there")["data"]["broker.yaml"].clone();
            let newest =
                InForce { hash: hash::of(text.as_str().expect("text")), error: None, needs_restart: Vec::new() };
            let said = sick.lock().configuration.get(&address).cloned().unwrap_or(Ok(newest));
            async move { said }.boxed()
        })
    }

    /// One step of the controller of StatefulSets and of the kubelet. Whether there was something to do.
    pub(crate) fn acts(&self) -> bool {
        let Some(set) = self.api.get("statefulsets", SET) else { return false };
        let spec = &set["spec"];
        let wanted = spec["replicas"].as_i64().expect("a number");
        let template = &spec["template"];
        let revision = hash::of(&template.to_string());
        let pods: BTreeMap<i64, Value> = self
            .api
            .all("pods")
            .into_iter()
            .map(|pod| {
                let name = pod["metadata"]["name"].as_str().expect("a name").to_owned();
                (name.rsplit('-').next().expect("a number").parse().expect("a number"), pod)
            })
            .collect();
        let mut acted = false;
        for number in pods.keys().filter(|number| **number >= wanted) {
            self.api.delete("pods", &format!("{SET}-{number}"));
            acted = true;
        }
        for number in (0..wanted).filter(|number| !pods.contains_key(number)) {
            self.make(number, template, &revision);
            acted = true;
        }
        let is_updated = |pod: &Value| pod["metadata"]["labels"]["controller-revision-hash"] == revision.as_str();
        // As since Kubernetes 1.35: one that is not ready holds up all others, also if it is itself not what is asked for any more.
        if !acted
            && pods.values().all(is_ready)
            && let Some((number, _)) = pods.iter().rev().find(|(_, pod)| !is_updated(pod))
        {
            self.api.delete("pods", &format!("{SET}-{number}"));
            self.make(*number, template, &revision);
            acted = true;
        }
        let pods = self.api.all("pods");
        let count = |is: &dyn Fn(&Value) -> bool| pods.iter().filter(|pod| is(pod)).count();
        let status = json!({
            "observedGeneration": set["metadata"]["generation"],
            "replicas": pods.len(),
            "readyReplicas": count(&is_ready),
            "updatedReplicas": count(&is_updated),
            "updateRevision": revision,
        });
        if set["status"] != status {
            self.api.edit("statefulsets", SET, |set| set["status"] = status);
            acted = true;
        }
        acted
    }

    fn make(&self, number: i64, template: &Value, revision: &str) {
        let mut labels = template["metadata"]["labels"].clone();
        labels["controller-revision-hash"] = json!(revision);
        let container = &template["spec"]["containers"][0];
        let image = container["image"].as_str().expect("an image");
        let waiting = self.sick.lock().images.get(image).cloned();
        let ready = if waiting.is_some() { "False" } else { "True" };
        let state = waiting.map_or_else(|| json!({ "running": {} }), |waiting| json!({ "waiting": waiting }));
        self.api.put_whole(&json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": format!("{SET}-{number}"), "namespace": "default", "labels": labels },
            "spec": { "containers": [container] },
            "status": {
                "podIP": format!("10.0.0.{number}"),
                "conditions": [{ "type": "Ready", "status": ready }],
                "containerStatuses": [{
                    "name": "broker", "image": image, "imageID": "", "ready": ready == "True", "restartCount": 0, "state": state,
                }],
            },
        }));
    }
}

fn is_ready(pod: &Value) -> bool {
    pod["status"]["conditions"][0]["status"] == "True"
}

/// Where the pod of this number is asked for its configuration.
pub(crate) fn admin_of(number: i32) -> String {
    format!("10.0.0.{number}:10915")
}
