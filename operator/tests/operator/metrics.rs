//! What an operator counts, as it is shown on its admin port.

use std::collections::BTreeMap;

use http::{Request, Response};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tower::{Layer, Service};
use waybill_operator::inject::answer;
use waybill_operator::metrics::Metrics;
use waybill_operator::{Scope, run};

use crate::fake_api::Fault;
use crate::injection::{pod, review};
use crate::rig::{GROUPS, Rig, TOPICS, TestBroker, group, topic};

/// Samples by their name with labels.
fn shown(metrics: &Metrics) -> BTreeMap<String, f64> {
    let mut registry = Registry::default();
    metrics.register(&mut registry);
    let mut page = String::new();
    encode(&mut page, &registry).expect("a page");
    let samples = page.lines().filter(|line| !line.starts_with('#'));
    samples
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').expect("a sample");
            (name.to_owned(), value.parse().expect("a number"))
        })
        .collect()
}

#[tokio::test]
async fn resources_are_counted_by_what_they_tell_and_reconciliations_by_how_they_end() {
    let broker = TestBroker::start().await;
    let rig = Rig::new([broker.address.as_str()]);
    let context = rig.context();
    let metrics = context.metrics.clone();
    rig.api.put(&topic("one", json!({})));
    rig.api.put(&topic("two", json!({})));
    rig.api.put(&group("lost", json!({ "brokerRef": { "name": "nobody" } })));
    rig.api.fail(Fault { method: "PATCH", path: "/topics/two/status", code: 500, times: 1 });
    let stop = CancellationToken::new();
    let running = tokio::spawn(run(Scope::Cluster, context, stop.clone()));
    for name in ["one", "two"] {
        let told = |api: &crate::fake_api::FakeApi| {
            api.get(TOPICS, name).is_some_and(|topic| topic["status"]["appliedBrokers"] == 1)
        };
        rig.api.until(&format!("{name} is applied"), told).await;
    }
    let told = |api: &crate::fake_api::FakeApi| {
        api.get(GROUPS, "lost").is_some_and(|group| group["status"]["conditions"][0]["reason"] == "BrokerNotFound")
    };
    rig.api.until("the group tells", told).await;
    let wanted = [
        (r#"waybill_operator_resources{kind="Topic",state="ready",reason="Applied"}"#, 2.0),
        (r#"waybill_operator_resources{kind="ConsumerGroup",state="degraded",reason="BrokerNotFound"}"#, 1.0),
    ];
    // What a watch brings is there a moment after it was written.
    rig.api
        .until("it is counted", |_api| wanted.iter().all(|(name, number)| shown(&metrics).get(*name) == Some(number)))
        .await;
    let shown = shown(&metrics);
    let count = |name: &str| shown.get(name).copied().unwrap_or_default();
    assert!(count(r#"waybill_operator_reconciliations_total{controller="Topic",outcome="done"}"#) >= 2.0, "{shown:#?}");
    assert!(
        count(r#"waybill_operator_reconciliations_total{controller="Topic",outcome="failed"}"#) >= 1.0,
        "{shown:#?}"
    );
    assert!(count(r#"waybill_operator_reconciliation_seconds_count{controller="Topic"}"#) >= 3.0, "{shown:#?}");
    stop.cancel();
    running.await.expect("it ends by itself");
}

#[tokio::test]
async fn requests_to_the_api_server_are_counted_by_method_and_code() {
    let metrics = Metrics::default();
    let api = tower::service_fn(|request: Request<()>| async move {
        match request.uri().path() {
            "/away" => Err("nobody answers"),
            path => {
                Ok(Response::builder().status(if path == "/there" { 200 } else { 404 }).body(()).expect("an answer"))
            }
        }
    });
    let mut counted = metrics.requests().layer(api);
    for (method, path) in
        [("GET", "/there"), ("GET", "/there"), ("PATCH", "/not"), ("DELETE", "/away"), ("BREW", "/there")]
    {
        let request = Request::builder().method(method).uri(path).body(()).expect("a request");
        let _answer = counted.call(request).await;
    }
    let shown = shown(&metrics);
    for (method, code, number) in
        [("GET", "200", 2.0), ("PATCH", "404", 1.0), ("DELETE", "none", 1.0), ("other", "200", 1.0)]
    {
        let name = format!(r#"waybill_operator_api_requests_total{{method="{method}",code="{code}"}}"#);
        assert_eq!(shown.get(&name), Some(&number), "{name}: {shown:#?}");
    }
}

#[tokio::test]
async fn pods_are_counted_by_what_became_of_them() {
    let rig = crate::proxy_rig::ProxyRig::new();
    rig.put(json!({}));
    let context = rig.context();
    for labels in [json!({ "waybill.dev/inject": "edge" }), json!({ "waybill.dev/inject": "nobody" }), json!({})] {
        let pod = pod(labels, json!({ "containers": [{ "name": "app" }] }));
        answer(&review("default", &pod), &context, &Scope::Cluster).await.expect("a question");
    }
    let shown = shown(&context.metrics);
    for what in ["injected", "missed", "unchanged"] {
        let name = format!(r#"waybill_operator_admissions_total{{answer="{what}"}}"#);
        assert_eq!(shown.get(&name), Some(&1.0), "{what}: {shown:#?}");
    }
}
