//! The objects of a Broker: the same each time, as the restricted Pod Security Standard wants them, and understood by brokers.

use proptest::prelude::*;
use serde_json::{Value, json};
use waybill_broker::{BrokerConfig, DYNAMIC};
use waybill_operator::api::{Broker, ImagePullPolicy};
use waybill_operator::build::{self, BROKER_KEYS, BrokerKeyTakes, BrokerObjects, Images, Standing};
use waybill_ops::config::Validate;

/// Specifications of Brokers that are valid.
pub(crate) fn specs() -> impl Strategy<Value = Value> {
    let amount = prop::sample::select(vec!["1", "500m", "1.5", "2Gi", "1000m", "1024Mi"]);
    let amounts = prop::collection::btree_map(prop::sample::select(vec!["cpu", "memory"]), amount, 0..2);
    let pod =
        (prop::collection::btree_map("[a-z]{1,8}", "[a-z]{0,8}", 0..3), any::<bool>()).prop_map(|(said, more)| {
            let mut pod = json!({ "annotations": said, "labels": said, "nodeSelector": said });
            if more {
                pod["tolerations"] = json!([{ "operator": "Exists" }]);
                pod["topologySpreadConstraints"] =
                    json!([{ "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway" }]);
                pod["affinity"] = json!({ "nodeAffinity": {} });
                pod["priorityClassName"] = json!("high");
                pod["imagePullSecrets"] = json!(["pull"]);
            }
            pod
        });
    let sizes = prop::sample::select(vec!["1Gi", "1024Mi", "10G"]);
    let storage = (sizes, prop::option::of("[a-z]{1,5}"), any::<bool>(), any::<bool>()).prop_map(
        |(size, class, delete, ephemeral)| {
            let mut storage =
                json!({ "size": size, "reclaim": if delete { "Delete" } else { "Retain" }, "ephemeral": ephemeral });
            if let Some(class) = class {
                storage["className"] = json!(class);
            }
            storage
        },
    );
    let retention = (prop::option::of(1..=876_000_i64), prop::option::of(10..=100_i64)).prop_map(|(hours, percent)| {
        let mut retention = json!({});
        if let Some(hours) = hours {
            retention["hours"] = json!(hours);
        }
        if let Some(percent) = percent {
            retention["diskMaxPercent"] = json!(percent);
        }
        retention
    });
    let tls = prop::option::of(prop::sample::select(vec!["Permissive", "Enforcing"]));
    let rest = (any::<bool>(), prop::option::of(1..=16_384), any::<bool>(), retention, tls);
    (0..=5_i32, "[a-z/:.]{1,20}", storage, amounts, pod, rest).prop_map(
        |(replicas, image, storage, requests, pod, (asynchronous, batch, further, retention, tls))| {
            let configuration =
                if further { json!({ "clientGoneAfter": 5000, "popPollingSize": 7 }) } else { json!({}) };
            let mut spec = json!({
                "replicas": replicas, "image": image, "storage": storage, "resources": { "requests": requests },
                "pod": pod, "flush": if asynchronous { "Async" } else { "Sync" }, "retention": retention,
                "configuration": configuration,
            });
            if let Some(batch) = batch {
                spec["batchMaxEntries"] = json!(batch);
            }
            if let Some(mode) = tls {
                spec["tls"] = json!({ "secretName": "cert", "mode": mode });
            }
            spec
        },
    )
}

fn broker(spec: Value) -> Broker {
    let object = json!({ "apiVersion": "waybill.dev/v1alpha1", "kind": "Broker",
                         "metadata": { "name": "main", "namespace": "default", "uid": "uid-1" }, "spec": spec });
    serde_json::from_value(object).expect("a Broker")
}

fn images() -> Images {
    Images { broker: "waybill-broker:1".into(), sidecar: String::new(), pull_policy: ImagePullPolicy::IfNotPresent }
}

fn built(spec: Value) -> BrokerObjects {
    let broker = broker(spec);
    let replicas = broker.spec.replicas;
    build::broker(&broker, &images(), &Standing::default(), replicas).expect("valid")
}

fn around<'a>(objects: &'a BrokerObjects, kind: &str) -> &'a Value {
    &objects.around.iter().find(|object| object.value["kind"] == kind).expect("it is among them").value
}

fn configuration(objects: &BrokerObjects) -> BrokerConfig {
    let text = around(objects, "ConfigMap")["data"]["broker.yaml"].as_str().expect("text");
    serde_json::from_str(text).expect("a broker understands it")
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

    #[test]
    fn a_valid_broker_gives_the_same_good_objects_each_time(spec in specs()) {
        let objects = built(spec.clone());
        prop_assert_eq!(&objects, &built(spec.clone()));
        for object in objects.around.iter().chain([&objects.set]) {
            prop_assert_eq!(&object.value["metadata"]["ownerReferences"][0]["uid"], "uid-1");
            prop_assert_eq!(&object.value["metadata"]["labels"]["app.kubernetes.io/managed-by"], "waybill-operator");
            prop_assert_eq!(&object.value["metadata"]["name"], "main-broker");
            prop_assert!(!object.value.to_string().contains("null"), "{}", object.value);
        }
        let set = &objects.set.value;
        prop_assert_eq!(&set["spec"]["replicas"], &spec["replicas"]);
        // What it selects is what its pods are labelled with, whatever else is said of them.
        for (key, value) in set["spec"]["selector"]["matchLabels"].as_object().expect("labels") {
            prop_assert_eq!(&set["spec"]["template"]["metadata"]["labels"][key], value);
        }
        prop_assert_eq!(&set["spec"]["serviceName"], &around(&objects, "Service")["metadata"]["name"]);
        restricted(&set["spec"]["template"]["spec"]);
        let config = configuration(&objects);
        prop_assert!(config.validate().is_ok(), "{:?}", config.validate());
        prop_assert_eq!(config.broker_cluster_name, "default.main");
    }
}

/// The rules of the restricted Pod Security Standard that concern what is built here.
fn restricted(pod: &Value) {
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_ne!(pod["securityContext"]["runAsUser"], 0);
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    for field in ["hostNetwork", "hostPID", "hostIPC"] {
        assert!(pod[field].is_null());
    }
    for container in pod["containers"].as_array().expect("containers") {
        let security = &container["securityContext"];
        assert_eq!(security["allowPrivilegeEscalation"], false);
        assert_eq!(security["readOnlyRootFilesystem"], true);
        assert_eq!(security["capabilities"]["drop"], json!(["ALL"]));
        assert!(security["capabilities"]["add"].is_null() && security["privileged"].is_null());
        for port in container["ports"].as_array().expect("ports") {
            assert!(port["hostPort"].is_null());
        }
    }
    for volume in pod["volumes"].as_array().expect("volumes") {
        let kinds = ["configMap", "emptyDir", "secret"];
        assert!(kinds.iter().any(|kind| volume[kind].is_object()), "{volume}");
    }
}

#[test]
fn a_broker_in_recovery_is_let_be_and_its_pods_are_found_by_names_that_stay() {
    let objects = built(json!({}));
    let template = &objects.set.value["spec"]["template"]["spec"];
    let container = &template["containers"][0];
    let startup = &container["startupProbe"];
    let patience = startup["periodSeconds"].as_i64().expect("s") * startup["failureThreshold"].as_i64().expect("times");
    assert_eq!(patience, 86_400);
    assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/healthz");
    assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/readyz");
    assert_eq!(
        (&container["image"], &container["imagePullPolicy"]),
        (&json!("waybill-broker:1"), &json!("IfNotPresent"))
    );
    let args: Vec<&str> = container["args"].as_array().expect("args").iter().filter_map(Value::as_str).collect();
    assert_eq!(args[2..6], ["--name", "$(POD_NAME)", "--host", "$(POD_NAME).main-broker.default.svc"]);
    let addresses = waybill_operator::place::addresses(&broker(json!({ "replicas": 2 })));
    let expected = ["main-broker-0.main-broker.default.svc:10911", "main-broker-1.main-broker.default.svc:10911"];
    assert_eq!(addresses, expected);
    assert_eq!(around(&objects, "Service")["spec"]["publishNotReadyAddresses"], true);
    assert_eq!(template["automountServiceAccountToken"], false);
    assert_eq!(template["topologySpreadConstraints"][0]["topologyKey"], "topology.kubernetes.io/zone");
    let own = built(json!({ "pod": { "topologySpreadConstraints": [{ "topologyKey": "rack" }] } }));
    assert_eq!(
        own.set.value["spec"]["template"]["spec"]["topologySpreadConstraints"],
        json!([{ "topologyKey": "rack" }])
    );
    assert_eq!(around(&objects, "PodDisruptionBudget")["spec"]["maxUnavailable"], 1);
    // Longer than the broker itself takes.
    assert_eq!(template["terminationGracePeriodSeconds"], 40);
    let slow = built(json!({ "configuration": { "shutdownGraceSeconds": 100 } }));
    assert_eq!(slow.set.value["spec"]["template"]["spec"]["terminationGracePeriodSeconds"], 130);
}

#[test]
fn brokers_announce_a_name_that_stays_on_the_nodes_network_too_or_the_one_that_is_said() {
    let of = |spec: Value| built(spec).set.value["spec"]["template"]["spec"].clone();
    let pod = of(json!({ "pod": { "hostNetwork": true } }));
    assert_eq!((&pod["hostNetwork"], &pod["dnsPolicy"]), (&json!(true), &json!("ClusterFirstWithHostNet")));
    assert_eq!(pod["containers"][0]["args"][5], "$(POD_NAME).main-broker.default.svc");
    let pod = of(json!({ "announcedHost": "{pod}.brokers.example", "pod": { "hostNetwork": false } }));
    assert_eq!(pod["containers"][0]["args"][5], "$(POD_NAME).brokers.example");
    assert!(pod["hostNetwork"].is_null() && pod["dnsPolicy"].is_null());
    assert_eq!(of(json!({ "announcedHost": "2001:db8::1" }))["containers"][0]["args"][5], "2001:db8::1");
    let with_port = broker(json!({ "announcedHost": "broker.example:10911" }));
    let refused = build::broker(&with_port, &images(), &Standing::default(), 1).expect_err("it is no host");
    assert!(refused.to_string().contains("spec.announcedHost"), "{refused}");
}

#[test]
fn only_what_counts_at_the_start_of_a_broker_restarts_its_pods() {
    let of = |spec: Value| {
        let objects = built(spec);
        (objects.set.value["spec"]["template"].clone(), objects.configuration)
    };
    let (template, hash) = of(json!({}));
    for dynamic in [
        json!({ "batchMaxEntries": 7 }),
        json!({ "retention": { "hours": 1, "diskMaxPercent": 50, "logBytesMax": 1 << 30 } }),
        json!({ "configuration": { "maxMessageSize": 1000, "brokerPermission": 4 } }),
    ] {
        let (other, changed) = of(dynamic.clone());
        assert_eq!(other, template, "{dynamic}");
        assert_ne!(changed, hash, "{dynamic}");
    }
    assert_eq!(of(json!({ "replicas": 5 })).0, template);
    for fixed in [json!({ "flush": "Async" }), json!({ "configuration": { "transactionTimeOut": 5 } })] {
        assert_ne!(of(fixed.clone()).0, template, "{fixed}");
    }
}

#[test]
fn brokers_that_are_to_go_are_named_until_they_are_gone() {
    let resource = broker(json!({ "replicas": 1 }));
    let read_only = |pods| {
        let standing = Standing { pods, ..Standing::default() };
        configuration(&build::broker(&resource, &images(), &standing, pods).expect("valid")).read_only_brokers
    };
    assert_eq!(read_only(3), ["main-broker-1", "main-broker-2"]);
    assert_eq!(read_only(2), ["main-broker-1"]);
    assert!(read_only(1).is_empty() && read_only(0).is_empty());
}

#[test]
fn a_volume_that_is_there_keeps_the_size_of_its_template() {
    let resource = broker(json!({ "storage": { "size": "2Gi", "className": "fast", "reclaim": "Delete" } }));
    let size = |there: Option<&str>| {
        let standing = Standing { pods: 1, volume_size: there.map(str::to_owned) };
        let set = build::broker(&resource, &images(), &standing, 1).expect("valid").set.value;
        assert_eq!(
            set["spec"]["persistentVolumeClaimRetentionPolicy"],
            json!({ "whenDeleted": "Delete", "whenScaled": "Delete" })
        );
        let claim = set["spec"]["volumeClaimTemplates"][0]["spec"].clone();
        assert_eq!(claim["storageClassName"], "fast");
        claim["resources"]["requests"]["storage"].clone()
    };
    assert_eq!((size(None), size(Some("1Gi"))), (json!("2Gi"), json!("1Gi")));
}

#[test]
fn what_cannot_be_is_refused_by_its_field() {
    for (field, value, told) in [
        ("configuration", json!({ "brokerName": "x" }), "spec.configuration.brokerName"),
        ("configuration", json!({ "brokerNam": "x" }), "spec.configuration.brokerNam"),
        ("configuration", json!({ "flushDiskType": "SYNC_FLUSH" }), "spec.configuration.flushDiskType"),
        ("configuration", json!({ "readOnlyBrokers": [] }), "spec.configuration.readOnlyBrokers"),
        ("configuration", json!({ "defaultTopicQueueNums": 0 }), "spec.configuration.defaultTopicQueueNums"),
        ("configuration", json!({ "autoCreateTopicEnable": "true" }), "spec.configuration.autoCreateTopicEnable"),
        ("configuration", json!({ "mappedFileSizeCommitLog": 1 << 20 }), "spec.configuration.mappedFileSizeCommitLog"),
        (
            "configuration",
            json!({ "mappedFileSizeCommitLog": 1 << 20, "maxMessageSize": 1 << 20 }),
            "spec.configuration.maxMessageSize",
        ),
        ("retention", json!({ "logBytesMax": 1 }), "spec.retention.logBytesMax"),
        ("storage", json!({ "size": "abc" }), "spec.storage.size"),
        ("storage", json!({ "size": "0" }), "spec.storage.size"),
        ("resources", json!({ "limits": { "cpu": "many" } }), "spec.resources.limits.cpu"),
        ("resources", json!({ "requests": { "cpu": "2" }, "limits": { "cpu": "1500m" } }), "spec.resources.limits.cpu"),
    ] {
        let resource = broker(json!({ field: value }));
        let invalid = build::broker(&resource, &images(), &Standing::default(), 1).expect_err("refused");
        assert_eq!(invalid.field, told, "{invalid}");
    }
    let none = Images { broker: String::new(), ..images() };
    let invalid = build::broker(&broker(json!({})), &none, &Standing::default(), 1).expect_err("refused");
    assert_eq!(invalid.field, "spec.image");
}

/// A configuration file with this one key.
fn broker_takes(key: &str, value: &Value) -> bool {
    let mut file = json!({ "mappedFileSizeCommitLog": 1 << 30 });
    file[key] = value.clone();
    serde_json::from_value::<BrokerConfig>(file).is_ok_and(|config| config.validate().is_ok())
}

#[test]
fn the_table_of_keys_is_the_brokers() {
    let defaults = serde_json::to_value(BrokerConfig::default()).expect("JSON");
    let mut theirs: Vec<&str> = defaults.as_object().expect("keys").keys().map(String::as_str).collect();
    let mut ours: Vec<&str> = BROKER_KEYS.iter().map(|key| key.name).collect();
    theirs.sort_unstable();
    ours.sort_unstable();
    assert_eq!(ours, theirs);
    for key in BROKER_KEYS {
        assert_eq!(key.dynamic, DYNAMIC.contains(&key.name), "{}", key.name);
        let (good, bad): (Vec<Value>, Vec<Value>) = match key.takes {
            BrokerKeyTakes::Elsewhere(_) => continue,
            // How many may be in flight has no bound of the broker's.
            BrokerKeyTakes::Number(low, high) if key.name == "popInflightMessageThreshold" => {
                (vec![json!(low), json!(high)], vec![json!(low - 1)])
            }
            BrokerKeyTakes::Number(low, high) => (vec![json!(low), json!(high)], vec![json!(low - 1), json!(high + 1)]),
            BrokerKeyTakes::ZeroOr(low, high) => {
                (vec![json!(0), json!(low), json!(high)], vec![json!(low - 1), json!(high + 1)])
            }
            BrokerKeyTakes::Bool => (vec![json!(true), json!(false)], vec![json!(1), json!("yes")]),
            BrokerKeyTakes::Word(words) => (words.iter().map(|word| json!(word)).collect(), vec![json!("OTHER")]),
            BrokerKeyTakes::OneOf(numbers) => (numbers.iter().map(|n| json!(n)).collect(), vec![json!(1), json!(7)]),
        };
        for value in good {
            assert!(key.name.starts_with("mapped") || broker_takes(key.name, &value), "{} {value}", key.name);
        }
        for value in bad {
            assert!(!broker_takes(key.name, &value), "{} {value}", key.name);
        }
    }
}
