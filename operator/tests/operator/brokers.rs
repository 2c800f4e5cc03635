//! A Broker becomes pods, and what it says of them is so.

use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use waybill_operator::admin::InForce;
use waybill_operator::api::{ConditionType, Reason};

use crate::broker_objects::specs;
use crate::cluster::admin_of;
use crate::fake_api::Fault;
use crate::rig::{Rig, after};

const SET: &str = "main-broker";

/// The resource "main" with this specification; the rig has made one already.
fn put(rig: &Rig, spec: &Value) {
    rig.api.put(&json!({ "apiVersion": "waybill.dev/v1alpha1", "kind": "Broker", "metadata": { "name": "main" }, "spec": spec }));
}

fn rig(spec: &Value) -> Rig {
    let rig = Rig::new([]);
    put(&rig, spec);
    rig
}

fn told(rig: &Rig) -> (Reason, String) {
    let (_condition, reason, message) = rig.told("brokers", "main");
    (reason, message)
}

fn status(rig: &Rig) -> Value {
    rig.api.get("brokers", "main").expect("it is there")["status"].clone()
}

#[tokio::test]
async fn the_smallest_broker_becomes_a_pod_and_then_nothing_is_written_any_more() {
    let rig = rig(&json!({}));
    rig.broker().await;
    assert_eq!(told(&rig), (Reason::RollingOut, "0 of 1 pods are as they should be, 0 of 1 pods are ready".into()));
    rig.settle().await;
    assert_eq!(rig.told("brokers", "main"), (ConditionType::Ready, Reason::PodsReady, "1 of 1 pods are ready".into()));
    let status = status(&rig);
    assert_eq!(
        (&status["replicas"], &status["readyReplicas"], &status["updatedReplicas"]),
        (&json!(1), &json!(1), &json!(1))
    );
    assert_eq!(
        status["observedGeneration"],
        rig.api.get("brokers", "main").expect("it is there")["metadata"]["generation"]
    );
    let pod = &status["pods"][0];
    assert_eq!((&pod["name"], &pod["ready"]), (&json!("main-broker-0"), &json!(true)));
    assert_eq!(
        (&pod["configuration"], &pod["appliedGeneration"]),
        (&status["configuration"], &status["observedGeneration"])
    );
    let writes = rig.api.writes().len();
    rig.broker().await;
    assert_eq!(rig.api.writes().len(), writes, "{:?}", rig.api.writes());
}

#[test]
fn a_converged_broker_causes_no_write() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let mut runner = TestRunner::new(Config { cases: 48, failure_persistence: None, ..Config::default() });
    let result = runner.run(&specs(), |spec| {
        let rig = rig(&spec);
        runtime.block_on(async {
            let next = rig.settle().await;
            proptest::prop_assert_eq!(told(&rig).0, Reason::PodsReady, "{:?}", told(&rig));
            // As a cluster of IPv4 alone has it.
            rig.api.edit("services", "main-broker", |service| {
                assert_eq!(service["spec"]["ipFamilyPolicy"], "PreferDualStack");
                service["spec"]["ipFamilies"] = json!(["IPv4"]);
                service["spec"]["clusterIPs"] = json!(["None"]);
            });
            let (writes, events) = (rig.api.writes().len(), rig.api.events().len());
            proptest::prop_assert_eq!(rig.broker().await, next);
            proptest::prop_assert_eq!(rig.api.writes().len(), writes);
            proptest::prop_assert_eq!(rig.api.events().len(), events);
            Ok(())
        })
    });
    result.expect("silent");
}

#[tokio::test]
async fn amounts_that_the_server_writes_in_another_way_are_the_same() {
    let rig = rig(&json!({ "resources": { "requests": { "cpu": "1000m" } } }));
    rig.settle().await;
    rig.api.edit("statefulsets", SET, |set| {
        set["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("1");
    });
    let writes = rig.api.writes().len();
    rig.broker().await;
    let more: Vec<_> =
        rig.api.writes().into_iter().skip(writes).filter(|write| write.contains("statefulsets")).collect();
    assert!(more.is_empty(), "{more:?}");
}

#[tokio::test]
async fn what_somebody_changed_or_deleted_is_put_back_and_told() {
    let rig = rig(&json!({ "replicas": 2 }));
    rig.settle().await;
    rig.api.edit("services", SET, |service| service["spec"]["publishNotReadyAddresses"] = json!(false));
    rig.api.delete("poddisruptionbudgets", SET);
    rig.api.edit("statefulsets", SET, |set| set["spec"]["replicas"] = json!(1));
    rig.broker().await;
    assert_eq!(rig.api.get("statefulsets", SET).expect("it is there")["spec"]["replicas"], 2);
    assert_eq!(rig.api.get("services", SET).expect("it is there")["spec"]["publishNotReadyAddresses"], true);
    assert!(rig.api.get("poddisruptionbudgets", SET).is_some());
    let drift = ("DriftCorrected".to_owned(), "Service main-broker was changed by somebody and put back".to_owned());
    assert!(rig.api.events().contains(&drift), "{:?}", rig.api.events());
    // Brokers that were added by hand may have taken messages, so they do not just go.
    rig.settle().await;
    rig.api.edit("statefulsets", SET, |set| set["spec"]["replicas"] = json!(3));
    rig.broker().await;
    assert_eq!(rig.api.get("statefulsets", SET).expect("it is there")["spec"]["replicas"], 3);
    assert_eq!(told(&rig).0, Reason::DrainingBroker);
}

#[tokio::test]
async fn a_changed_limit_reaches_running_pods_without_a_restart() {
    let rig = rig(&json!({ "replicas": 2 }));
    rig.settle().await;
    let template = |rig: &Rig| rig.api.get("statefulsets", SET).expect("it is there")["spec"]["template"].clone();
    let (before, old) = (template(&rig), status(&rig)["configuration"].as_str().expect("a hash").to_owned());
    // The pods have the old file until the kubelet has brought the new one.
    for number in 0..2 {
        let has = InForce { hash: old.clone(), ..InForce::default() };
        rig.sick.lock().configuration.insert(admin_of(number), Ok(has));
    }
    put(&rig, &json!({ "replicas": 2, "batchMaxEntries": 7 }));
    assert_eq!(rig.broker().await, after(2));
    let (reason, message) = told(&rig);
    assert_eq!(reason, Reason::ConfigurationPending);
    assert!(message.ends_with("main-broker-0, main-broker-1"), "{message}");
    let wanted = status(&rig)["configuration"].clone();
    for number in 0..2 {
        let pod = rig.api.get("pods", &format!("main-broker-{number}")).expect("it is there");
        assert_eq!(pod["metadata"]["annotations"]["waybill.dev/configuration"], wanted, "the kubelet is to hurry");
    }
    let writes = rig.api.writes().len();
    rig.broker().await;
    assert_eq!(rig.api.writes().len(), writes, "each is told once");
    rig.sick.lock().configuration.clear();
    rig.broker().await;
    assert_eq!(told(&rig).0, Reason::PodsReady);
    assert_eq!(template(&rig), before);
    let status = status(&rig);
    assert_eq!(status["pods"][1]["appliedGeneration"], status["observedGeneration"]);
}

#[tokio::test]
async fn a_pod_that_refuses_or_does_not_tell_its_configuration_is_named() {
    let rig = rig(&json!({}));
    rig.settle().await;
    let refuses = InForce { hash: "old".into(), error: Some("broker.yaml line 2: no".into()), ..InForce::default() };
    rig.sick.lock().configuration.insert(admin_of(0), Ok(refuses));
    rig.broker().await;
    assert_eq!(told(&rig), (Reason::ConfigurationRefused, "main-broker-0: broker.yaml line 2: no".into()));
    rig.sick.lock().configuration.insert(admin_of(0), Err("connection refused".into()));
    rig.broker().await;
    assert_eq!(told(&rig).0, Reason::ConfigurationPending);
}

#[tokio::test]
async fn a_rollout_stops_at_the_first_pod_that_does_not_come_and_its_correction_needs_no_hands() {
    let rig = rig(&json!({ "replicas": 3 }));
    rig.settle().await;
    let image = |number: i32| {
        let pod = rig.api.get("pods", &format!("main-broker-{number}")).expect("it is there");
        pod["spec"]["containers"][0]["image"].as_str().expect("an image").to_owned()
    };
    let backs_off = json!({ "reason": "ImagePullBackOff", "message": "there is no such image" });
    rig.sick.lock().images.insert("wrong:1".into(), backs_off);
    put(&rig, &json!({ "replicas": 3, "image": "wrong:1" }));
    rig.settle().await;
    let expected = "main-broker-2: broker: ImagePullBackOff: there is no such image".to_owned();
    assert_eq!(told(&rig), (Reason::RolloutStopped, expected));
    assert_eq!(
        (image(0), image(1), image(2)),
        ("waybill-broker:1".into(), "waybill-broker:1".into(), "wrong:1".into())
    );
    let pods = status(&rig)["pods"].clone();
    assert_eq!((&pods[1]["problem"], &pods[2]["ready"]), (&Value::Null, &json!(false)));

    put(&rig, &json!({ "replicas": 3, "image": "right:2" }));
    rig.settle().await;
    assert_eq!(told(&rig).0, Reason::PodsReady);
    assert_eq!((image(0), image(1), image(2)), ("right:2".into(), "right:2".into(), "right:2".into()));
}

#[tokio::test]
async fn a_bad_edit_is_named_and_changes_nothing_and_its_correction_is_applied() {
    let rig = rig(&json!({}));
    rig.settle().await;
    let before = rig.api.get("statefulsets", SET);
    put(&rig, &json!({ "configuration": { "batchMaxEntrys": 5 } }));
    assert_eq!(rig.broker().await, after(60));
    let (reason, message) = told(&rig);
    assert_eq!(reason, Reason::InvalidSpec);
    assert!(message.contains("spec.configuration.batchMaxEntrys"), "{message}");
    assert_eq!(rig.api.get("statefulsets", SET), before);
    assert_eq!(status(&rig)["pods"][0]["ready"], true, "what is there is still told");
    put(&rig, &json!({ "batchMaxEntries": 5 }));
    rig.settle().await;
    assert_eq!(told(&rig).0, Reason::PodsReady);
}

#[tokio::test]
async fn what_belongs_to_somebody_else_is_not_touched() {
    let rig = rig(&json!({}));
    let theirs = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": SET }, "data": { "a": "b" } });
    rig.api.put_whole(&theirs);
    rig.broker().await;
    assert_eq!(told(&rig), (Reason::ObjectConflict, "ConfigMap main-broker belongs to somebody else".into()));
    assert_eq!(rig.api.get("configmaps", SET).expect("it is there")["data"], json!({ "a": "b" }));
    assert!(rig.api.get("statefulsets", SET).is_none());
}

#[tokio::test]
async fn what_was_left_behind_without_an_owner_is_taken_up_again() {
    let rig = rig(&json!({}));
    rig.settle().await;
    // As `kubectl delete broker main --cascade=orphan` and another `kubectl apply` leave it.
    let kinds = ["serviceaccounts", "configmaps", "services", "poddisruptionbudgets", "statefulsets"];
    for kind in kinds {
        rig.api.edit(kind, SET, |object| object["metadata"]["ownerReferences"] = json!([]));
    }
    rig.settle().await;
    assert_eq!(told(&rig).0, Reason::PodsReady);
    for kind in kinds {
        let owner = &rig.api.get(kind, SET).expect("it is there")["metadata"]["ownerReferences"][0]["name"];
        assert_eq!(*owner, "main", "{kind}");
    }
}

#[tokio::test]
async fn a_refusal_of_the_server_is_told_in_its_words_also_that_the_namespace_goes() {
    let rig = rig(&json!({}));
    rig.api.fail(Fault { method: "PATCH", path: "/statefulsets", code: 403, times: 1 });
    assert_eq!(rig.broker().await, after(60));
    let (reason, message) = told(&rig);
    assert_eq!(reason, Reason::ObjectRefused);
    assert!(message.starts_with("StatefulSet main-broker: "), "{message}");
    rig.settle().await;
    assert_eq!(told(&rig).0, Reason::PodsReady);
    // Nothing holds the resource back when it is deleted, and its end is none of the operator's work.
    rig.api.delete("brokers", "main");
    assert!(rig.api.get("brokers", "main").is_none());
}

#[tokio::test]
async fn whatever_request_fails_the_next_try_does_it() {
    let paths = [
        "/serviceaccounts",
        "/configmaps",
        "/services",
        "/poddisruptionbudgets",
        "/statefulsets",
        "/brokers/main/status",
    ];
    for path in paths {
        for code in [409, 410, 429, 500, 503] {
            let rig = rig(&json!({}));
            rig.api.fail(Fault { method: "PATCH", path, code, times: 1 });
            assert!(rig.broker_or_error().await.is_err(), "{code} to {path} went unnoticed");
            rig.settle().await;
            assert_eq!(told(&rig).0, Reason::PodsReady, "{code} to {path}");
        }
    }
    for path in ["/statefulsets", "/configmaps", "/pods"] {
        let rig = rig(&json!({}));
        rig.api.fail(Fault { method: "GET", path, code: 500, times: 1 });
        assert!(rig.broker_or_error().await.is_err(), "{path}");
        rig.settle().await;
        assert_eq!(told(&rig).0, Reason::PodsReady);
    }
}

#[tokio::test]
async fn claims_grow_where_the_size_of_the_resource_is_larger_than_that_of_the_template() {
    let rig = rig(&json!({ "storage": { "size": "1Gi" } }));
    rig.settle().await;
    let claim = |name: &str, size: &str| {
        let labels = waybill_operator::build::labels("broker", "main");
        json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": name, "labels": labels },
                "spec": { "resources": { "requests": { "storage": size } } } })
    };
    rig.api.put_whole(&claim("data-main-broker-0", "1Gi"));
    put(&rig, &json!({ "storage": { "size": "2Gi" } }));
    rig.settle().await;
    let size = |rig: &Rig| {
        let claim = rig.api.get("persistentvolumeclaims", "data-main-broker-0").expect("it is there");
        claim["spec"]["resources"]["requests"]["storage"].clone()
    };
    assert_eq!(size(&rig), "2Gi");
    let set = rig.api.get("statefulsets", SET).expect("it is there");
    assert_eq!(
        set["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"], "1Gi",
        "it cannot be changed"
    );
    let writes = rig.api.writes().len();
    rig.broker().await;
    assert_eq!(rig.api.writes().len(), writes);
    rig.api.put_whole(&claim("data-main-broker-0", "1Gi"));
    rig.api.fail(Fault { method: "PATCH", path: "/persistentvolumeclaims", code: 403, times: 1 });
    rig.broker().await;
    assert_eq!(told(&rig).0, Reason::ObjectRefused);
}
