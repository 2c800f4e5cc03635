//! Proxies: what is made of them, and how changes get to running pods.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use waybill_ops::config::Validate;
use waybill_sidecar::config::Config as SidecarConfig;

use crate::fake_api::Fault;
use crate::proxy_rig::ProxyRig;
use crate::rig::START_MS;

#[tokio::test]
async fn a_proxy_is_a_deployment_with_all_that_belongs_to_it() {
    let rig = ProxyRig::new();
    rig.put(
        json!({ "service": { "type": "LoadBalancer", "annotations": { "a": "b" } }, "tls": { "secretName": "cert" } }),
    );
    rig.reconcile().await;
    assert_eq!(rig.told().0, "RollingOut");
    for plural in ["deployments", "services", "configmaps", "poddisruptionbudgets", "serviceaccounts"] {
        let made = rig.made(plural);
        assert_eq!(made["metadata"]["ownerReferences"][0]["kind"], "Proxy", "{plural}");
        assert_eq!(made["metadata"]["labels"]["app.kubernetes.io/instance"], "edge", "{plural}");
    }
    let service = rig.made("services");
    assert_eq!(
        (&service["spec"]["type"], &service["metadata"]["annotations"]["a"]),
        (&json!("LoadBalancer"), &json!("b"))
    );
    assert_eq!(service["spec"]["ports"][0]["port"], 8081);
    let deployment = rig.made("deployments");
    assert_eq!(deployment["spec"]["replicas"], 2);
    let pod = &deployment["spec"]["template"]["spec"];
    restricted(pod);
    assert_eq!(pod["automountServiceAccountToken"], false);
    let container = &pod["containers"][0];
    assert_eq!(container["image"], "waybill-sidecar:1");
    assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/readyz");
    // Time for the Service to forget it, for its clients to acknowledge, and to end.
    let grace = pod["terminationGracePeriodSeconds"].as_i64().expect("a number");
    assert_eq!(pod["volumes"][1]["secret"]["secretName"], "cert");
    let config: SidecarConfig = serde_json::from_value(yaml(&rig.configuration())).expect("a sidecar understands it");
    assert_eq!(config.validate(), Ok(()));
    assert_eq!(config.namesrv_addr, "one:1;two:2;three:3");
    assert_eq!(config.cluster_name, "default.main");
    let probe = &container["readinessProbe"];
    let noticed = probe["periodSeconds"].as_i64().zip(probe["failureThreshold"].as_i64()).expect("numbers");
    assert!(config.shutdown_notice_seconds > noticed.0 * noticed.1 + 1, "a pod has left the Service before it ends");
    assert!(grace > config.shutdown_notice_seconds + config.grpc_shutdown_time_seconds, "{grace}");
    assert_eq!(config.tls_cert_path, "/etc/waybill-tls/tls.crt");

    rig.pods_run(&rig.configuration());
    rig.reconcile().await;
    assert_eq!(rig.told(), ("PodsReady".to_owned(), "2 of 2 pods are ready".to_owned()));
    let status = rig.status();
    assert_eq!((&status["replicas"], &status["readyReplicas"]), (&json!(2), &json!(2)));
    assert!(status["selector"].as_str().expect("text").contains("app.kubernetes.io/instance=edge"));
    rig.silent().await;
}

#[tokio::test]
async fn where_a_node_has_room_for_one_proxy_the_old_one_goes_first() {
    let rig = ProxyRig::new();
    for (host_network, surge, unavailable) in [(false, 1, 0), (true, 0, 1)] {
        rig.put(json!({ "pod": { "hostNetwork": host_network } }));
        rig.reconcile().await;
        let rolling = rig.made("deployments")["spec"]["strategy"]["rollingUpdate"].clone();
        assert_eq!(rolling, json!({ "maxSurge": surge, "maxUnavailable": unavailable }));
    }
}

#[tokio::test]
async fn a_switch_reaches_running_pods_without_a_restart_and_the_status_says_which_have_it() {
    let rig = ProxyRig::new();
    rig.put(json!({}));
    rig.reconcile().await;
    let before = rig.configuration();
    rig.pods_run(&before);
    rig.reconcile().await;
    let template = rig.made("deployments")["spec"]["template"].clone();

    rig.put(
        json!({ "renewal": { "enableProxyAutoRenew": false }, "batch": { "enableBatchAck": true, "maxEntries": 64 } }),
    );
    rig.reconcile().await;
    let after = rig.configuration();
    for line in ["enableProxyAutoRenew: false\n", "enableBatchAck: true\n", "batchChangeInvisibleTimeMaxNum: 64\n"] {
        assert!(after.contains(line) && !before.contains(line), "{after}");
    }
    assert_eq!(rig.made("deployments")["spec"]["template"], template, "nobody is restarted");
    assert_eq!(rig.told().0, "ConfigurationPending");
    let annotation = |number: i32| {
        let pod = rig.rig.api.get("pods", &format!("edge-proxy-{number}")).expect("it is there");
        pod["metadata"]["annotations"]["waybill.dev/configuration"].clone()
    };
    assert_eq!(
        [annotation(0), annotation(1)],
        [rig.status()["configuration"].clone(), rig.status()["configuration"].clone()]
    );

    // Once, and again only after a while.
    rig.silent().await;
    rig.says("10.1.0.0:8082", &after);
    rig.rig.clock.set(START_MS + 6_000);
    let writes = rig.rig.api.writes().len();
    rig.reconcile().await;
    let again: Vec<String> = rig.rig.api.writes().split_off(writes);
    assert!(again.contains(&"PATCH /api/v1/namespaces/default/pods/edge-proxy-1".to_owned()), "{again:?}");
    assert!(!again.iter().any(|write| write.ends_with("edge-proxy-0")), "{again:?}");
    let generations = |rig: &ProxyRig| -> Vec<(String, Value)> {
        let pods = rig.status()["pods"].clone();
        let pod = |pod: &Value| (pod["name"].as_str().expect("a name").to_owned(), pod["appliedGeneration"].clone());
        pods.as_array().expect("pods").iter().map(pod).collect()
    };
    assert_eq!(generations(&rig), [("edge-proxy-1".to_owned(), json!(1)), ("edge-proxy-0".to_owned(), json!(2))]);
    assert!(rig.told().1.contains("edge-proxy-1") && !rig.told().1.contains("edge-proxy-0"), "{:?}", rig.told());

    rig.says("10.1.0.1:8082", &after);
    rig.reconcile().await;
    assert_eq!(rig.told().0, "PodsReady");
    assert_eq!(generations(&rig), [("edge-proxy-0".to_owned(), json!(2)), ("edge-proxy-1".to_owned(), json!(2))]);
    rig.silent().await;
}

#[tokio::test]
async fn what_counts_at_start_only_replaces_the_pods() {
    let rig = ProxyRig::new();
    let template = async |spec: Value| {
        rig.put(spec);
        rig.reconcile().await;
        rig.made("deployments")["spec"]["template"].clone()
    };
    let plain = template(json!({})).await;
    assert_eq!(template(json!({ "configuration": { "maxMessageSize": 7 } })).await, plain);
    assert_eq!(template(json!({ "configuration": { "grpcMaxConnections": 10_000 } })).await, plain, "the default");
    assert_ne!(template(json!({ "configuration": { "grpcMaxConnections": 10 } })).await, plain);
    assert_eq!(template(json!({})).await, plain);
}

#[tokio::test]
async fn brokers_that_come_and_go_are_asked_without_a_restart() {
    let rig = ProxyRig::new();
    rig.rig.scale(1);
    rig.put(json!({}));
    rig.reconcile().await;
    let template = rig.made("deployments")["spec"]["template"].clone();
    assert!(rig.configuration().contains("namesrvAddr: \"one:1\"\n"), "{}", rig.configuration());
    rig.rig.scale(3);
    rig.reconcile().await;
    assert!(rig.configuration().contains("namesrvAddr: \"one:1;two:2;three:3\"\n"), "{}", rig.configuration());
    // One that is drained is asked until it is gone.
    rig.rig.scale(1);
    rig.rig.api.edit("brokers", "main", |broker| broker["status"]["replicas"] = json!(2));
    rig.reconcile().await;
    assert!(rig.configuration().contains("namesrvAddr: \"one:1;two:2\"\n"), "{}", rig.configuration());
    assert_eq!(rig.made("deployments")["spec"]["template"], template);
    rig.rig.api.delete("brokers", "main");
    rig.reconcile().await;
    assert_eq!(rig.told(), ("BrokerNotFound".to_owned(), "there is no Broker main in this namespace".to_owned()));
    assert!(rig.configuration().contains("two:2"), "what runs is let be");
}

#[tokio::test]
async fn name_servers_of_others_are_asked() {
    let rig = ProxyRig::new();
    rig.put(json!({ "nameServers": ["ns-0:9876", "ns-1:9876"], "configuration": { "rocketMQClusterName": "Apache" } }));
    rig.reconcile().await;
    let text = rig.configuration();
    assert!(
        text.contains("namesrvAddr: \"ns-0:9876;ns-1:9876\"\n") && text.contains("rocketMQClusterName: \"Apache\"\n"),
        "{text}"
    );
}

#[tokio::test]
async fn what_a_sidecar_would_refuse_is_told_by_its_field_and_nothing_is_changed() {
    let rig = ProxyRig::new();
    rig.put(json!({}));
    rig.reconcile().await;
    let before = rig.configuration();
    for (spec, field) in [
        (json!({ "configuration": { "namesrvAddr": "a:1" } }), "spec.configuration.namesrvAddr"),
        (json!({ "configuration": { "enableBatchAck": true } }), "spec.batch.enableBatchAck"),
        (json!({ "configuration": { "enableBatchAk": true } }), "spec.configuration.enableBatchAk"),
        (json!({ "configuration": { "maxMessageSize": "big" } }), "spec.configuration.maxMessageSize"),
        (json!({ "configuration": { "grpcMaxConnections": 0 } }), "spec.configuration.grpcMaxConnections"),
        (
            json!({ "renewal": { "defaultInvisibleTimeMills": 50_000 }, "configuration": { "maxInvisibleTimeMills": 20_000 } }),
            "spec.renewal.defaultInvisibleTimeMills",
        ),
        (json!({ "resources": { "limits": { "cpu": "many" } } }), "spec.resources.limits.cpu"),
    ] {
        rig.put(spec.clone());
        rig.reconcile().await;
        let (reason, message) = rig.told();
        assert_eq!(reason, "InvalidSpec", "{spec}");
        assert!(message.contains(field), "{spec}: {message}");
        assert_eq!(rig.configuration(), before);
    }
    // The correction needs nobody's hands.
    rig.put(json!({ "batch": { "enableBatchAck": true } }));
    rig.reconcile().await;
    assert!(rig.configuration().contains("enableBatchAck: true\n"));
}

#[tokio::test]
async fn an_autoscaler_decides_the_number_of_proxies_alone() {
    let rig = ProxyRig::new();
    rig.put(json!({ "replicas": 5 }));
    rig.reconcile().await;
    rig.rig.api.edit("deployments", "edge-proxy", |deployment| {
        deployment["metadata"]["managedFields"] =
            json!([{ "manager": "waybill-operator", "operation": "Apply", "fieldsV1": { "f:spec": { "f:replicas": {} } } }]);
    });
    rig.put(json!({ "replicas": 5, "autoscaling": { "minReplicas": 2, "maxReplicas": 9, "cpuPercent": 50 } }));
    rig.reconcile().await;
    let autoscaler = rig.made("horizontalpodautoscalers");
    assert_eq!(autoscaler["spec"]["scaleTargetRef"]["name"], "edge-proxy");
    assert_eq!(autoscaler["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 50);
    let handed = rig.rig.api.writes().iter().filter(|write| write.ends_with("/deployments/edge-proxy")).count();
    assert_eq!(handed, 3, "made, handed over, changed");
    // Utilization is of what is requested.
    let pod = rig.made("deployments")["spec"]["template"]["spec"].clone();
    assert_eq!(pod["containers"][0]["resources"]["requests"]["cpu"], "100m");
    rig.rig.api.edit("deployments", "edge-proxy", |deployment| {
        deployment["spec"]["replicas"] = json!(7);
        deployment["metadata"]["managedFields"] = json!([]);
    });
    rig.pods_run(&rig.configuration());
    rig.reconcile().await;
    assert_eq!(rig.made("deployments")["spec"]["replicas"], 7, "it stays as the autoscaler has it");
    assert_eq!(rig.told(), ("PodsReady".to_owned(), "7 of 7 pods are ready".to_owned()));
    rig.silent().await;
    rig.put(json!({ "replicas": 5 }));
    rig.reconcile().await;
    assert_eq!(rig.made("deployments")["spec"]["replicas"], 5);
    assert!(rig.rig.api.get("horizontalpodautoscalers", "edge-proxy").is_none());
}

#[tokio::test]
async fn a_rollout_that_stops_and_a_pod_that_refuses_its_configuration_are_told() {
    let rig = ProxyRig::new();
    rig.put(json!({}));
    rig.reconcile().await;
    rig.pods_run(&rig.configuration());
    rig.rig.api.edit("deployments", "edge-proxy", |deployment| {
        deployment["status"]["readyReplicas"] = json!(1);
    });
    rig.rig.api.edit("pods", "edge-proxy-0", |pod| {
        pod["status"]["conditions"][0]["status"] = json!("False");
        pod["status"]["containerStatuses"][0]["state"] =
            json!({ "waiting": { "reason": "ImagePullBackOff", "message": "no such image" } });
    });
    rig.reconcile().await;
    let (reason, message) = rig.told();
    assert_eq!(reason, "RolloutStopped");
    assert!(message.contains("edge-proxy-0") && message.contains("no such image"), "{message}");
    let refusal = "line 3, enableBatchAck: is no boolean";
    for said in rig.in_force.lock().values_mut() {
        said.error = Some(refusal.to_owned());
    }
    rig.reconcile().await;
    assert_eq!(rig.told().0, "ConfigurationRefused");
    assert!(rig.told().1.contains(refusal), "{:?}", rig.told());
}

#[tokio::test]
async fn what_somebody_changes_is_put_back_and_told_and_what_is_somebody_elses_is_let_be() {
    let rig = ProxyRig::new();
    rig.put(json!({}));
    rig.reconcile().await;
    rig.rig.api.edit("deployments", "edge-proxy", |deployment| deployment["spec"]["replicas"] = json!(9));
    rig.reconcile().await;
    assert_eq!(rig.made("deployments")["spec"]["replicas"], 2);
    assert!(rig.rig.api.events().iter().any(|(reason, _)| reason == "DriftCorrected"));
    rig.rig
        .api
        .edit("services", "edge-proxy", |service| service["metadata"]["ownerReferences"][0]["uid"] = json!("other"));
    rig.reconcile().await;
    assert_eq!(rig.told().0, "ObjectConflict");
}

#[tokio::test]
async fn whatever_request_fails_the_next_try_does_it() {
    for path in ["/deployments/edge-proxy", "/configmaps/edge-proxy", "/proxies/edge/status", "/pods"] {
        for code in [409, 429, 500, 503] {
            let rig = ProxyRig::new();
            rig.put(json!({}));
            let method = if path == "/pods" { "GET" } else { "PATCH" };
            rig.rig.api.fail(Fault { method, path, code, times: 1 });
            assert!(rig.try_reconcile().await.is_err(), "{code} to {path} went unnoticed");
            rig.reconcile().await;
            rig.pods_run(&rig.configuration());
            rig.reconcile().await;
            assert_eq!(rig.told().0, "PodsReady", "{code} to {path}");
        }
    }
}

fn specs() -> impl Strategy<Value = Value> {
    let flag = || prop::option::of(any::<bool>());
    let renewal = (flag(), flag(), prop::option::of(1_000..=40_000_i64), prop::option::of(0..=1_000_i64));
    let renewal = renewal.prop_map(|(renew, grpc, invisible, retries)| {
        let mut renewal = json!({});
        set(&mut renewal, "enableProxyAutoRenew", renew);
        set(&mut renewal, "enableGrpcChannelReceiptHandleRenew", grpc);
        set(&mut renewal, "defaultInvisibleTimeMills", invisible);
        set(&mut renewal, "maxRenewRetryTimes", retries);
        renewal
    });
    let batch = (flag(), flag(), prop::option::of(1..=10_000_i64)).prop_map(|(ack, change, most)| {
        let mut batch = json!({});
        set(&mut batch, "enableBatchAck", ack);
        set(&mut batch, "enableBatchChangeInvisibleTime", change);
        set(&mut batch, "maxEntries", most);
        batch
    });
    let amount = prop::sample::select(vec!["1", "500m", "1.5", "2Gi", "1000m"]);
    let amounts = prop::collection::btree_map(prop::sample::select(vec!["cpu", "memory"]), amount, 0..2);
    let service = prop::sample::select(vec!["ClusterIP", "NodePort", "LoadBalancer"]);
    let policy = prop::sample::select(vec!["Leave", "Release"]);
    let scaling = prop::option::of((1..=5_i32, 5..=500_i32, 1..=100_i32));
    let rest = (policy, 0..=3_600_i64, any::<bool>(), any::<bool>(), scaling);
    (0..=500_i32, renewal, batch, amounts, service, rest).prop_map(
        |(replicas, renewal, batch, requests, service, (policy, grace, tls, more, scaling))| {
            let mut spec = json!({
                "replicas": replicas, "renewal": renewal, "batch": batch, "service": { "type": service },
                "resources": { "requests": requests }, "shutdown": { "policy": policy, "graceSeconds": grace, "noticeSeconds": grace / 10 },
            });
            if tls {
                spec["tls"] = json!({ "secretName": "cert" });
            }
            if more {
                spec["pod"] = json!({ "annotations": { "a": "b" }, "labels": { "c": "d" }, "tolerations": [{ "operator": "Exists" }] });
                spec["configuration"] = json!({ "maxMessageSize": 1_000, "grpcMaxConnections": 7 });
            }
            if let Some((min, max, percent)) = scaling {
                spec["autoscaling"] = json!({ "minReplicas": min, "maxReplicas": max, "cpuPercent": percent });
            }
            spec
        },
    )
}

fn set<T: Into<Value>>(object: &mut Value, key: &str, value: Option<T>) {
    if let Some(value) = value {
        object[key] = value.into();
    }
}

#[test]
fn a_converged_proxy_causes_no_write() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut runner = TestRunner::new(Config { cases: 96, failure_persistence: None, ..Config::default() });
    let rig = ProxyRig::new();
    let result = runner.run(&specs(), |spec| {
        runtime.block_on(async {
            rig.put(spec);
            rig.reconcile().await;
            prop_assert_eq!(rig.told().0, "RollingOut");
            let config: SidecarConfig =
                serde_json::from_value(yaml(&rig.configuration())).expect("a sidecar understands it");
            prop_assert_eq!(config.validate(), Ok(()));
            let deployment = rig.made("deployments");
            restricted(&deployment["spec"]["template"]["spec"]);
            // As Kubernetes adds its own.
            rig.rig
                .api
                .edit("deployments", "edge-proxy", |deployment| deployment["spec"]["revisionHistoryLimit"] = json!(10));
            // As a cluster of both families has it.
            rig.rig.api.edit("services", "edge-proxy", |service| {
                let spec = &mut service["spec"];
                assert_eq!(spec["ipFamilyPolicy"], "PreferDualStack");
                spec["ipFamilies"] = json!(["IPv4", "IPv6"]);
                spec["clusterIP"] = json!("10.96.0.7");
                spec["clusterIPs"] = json!(["10.96.0.7", "fd00:10:96::7"]);
            });
            let (writes, events) = (rig.rig.api.writes().len(), rig.rig.api.events().len());
            rig.reconcile().await;
            prop_assert_eq!(&rig.rig.api.writes()[writes..], &[] as &[String]);
            prop_assert_eq!(rig.rig.api.events().len(), events);
            Ok(())
        })
    });
    result.expect("silent");
}

fn yaml(text: &str) -> Value {
    serde_yaml::from_str(text).expect("YAML")
}

/// The rules of the restricted Pod Security Standard that concern what is built here.
pub(crate) fn restricted(pod: &Value) {
    for field in ["hostNetwork", "hostPID", "hostIPC"] {
        assert!(pod[field].is_null());
    }
    for container in pod["containers"].as_array().expect("containers") {
        let says = |field: &str| {
            if container["securityContext"][field].is_null() {
                &pod["securityContext"][field]
            } else {
                &container["securityContext"][field]
            }
        };
        assert_eq!(says("runAsNonRoot"), true);
        assert_eq!(says("seccompProfile")["type"], "RuntimeDefault");
        assert_eq!(says("allowPrivilegeEscalation"), false);
        assert_eq!(says("readOnlyRootFilesystem"), true);
        assert_eq!(says("capabilities")["drop"], json!(["ALL"]));
        for port in container["ports"].as_array().expect("ports") {
            assert!(port["hostPort"].is_null());
        }
    }
    for volume in pod["volumes"].as_array().expect("volumes") {
        assert!(["configMap", "secret", "projected"].iter().any(|kind| volume[*kind].is_object()), "{volume}");
    }
}
