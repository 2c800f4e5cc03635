//! Whoever reaches the webhook's port beside the API server: it keeps answering, and keeps little of what they send.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use waybill_operator::inject::{Source, keep};
use waybill_ops::clock::{Clock, SystemClock};

use crate::injection::{plain, review};
use crate::proxy_rig::ProxyRig;
use crate::webhook::{Server, ask, configuration, webhook};

/// A server that the API server trusts, and the authority.
async fn serving(rig: &ProxyRig) -> (Server, String) {
    rig.rig.clock.set(SystemClock::new().now_ms());
    rig.put(json!({}));
    rig.rig.api.put_whole(&configuration());
    let server = Server::start(rig, Source::Own).await;
    keep(&rig.context(), &webhook(Source::Own)).await.expect("certificates");
    server.until_ready().await;
    let entries = rig.rig.api.get("mutatingwebhookconfigurations", "waybill-system").expect("it is there");
    let bundle = entries["webhooks"][0]["clientConfig"]["caBundle"].as_str().expect("text").to_owned();
    (server, String::from_utf8(STANDARD.decode(bundle).expect("base64")).expect("PEM"))
}

#[tokio::test]
async fn questions_that_no_pod_could_be_are_not_kept() {
    let rig = ProxyRig::new();
    let (server, bundle) = serving(&rig).await;
    let asked = |body: String| {
        let bundle = bundle.clone();
        async move { ask(server.port, &bundle, "/inject", &body).await }
    };
    let mut large = review("default", &plain());
    large["request"]["object"]["metadata"]["annotations"]["big"] = json!("[{,:".repeat(700 << 10));
    assert_eq!(asked(large.to_string()).await.expect("an answer").0, 200, "a large pod is a pod");
    let mut many = review("default", &plain());
    many["request"]["object"]["more"] = json!(vec![0; 100_000]);
    let (code, words) = asked(many.to_string()).await.expect("an answer");
    assert!(code == 400 && words.contains("too many parts"), "{code} {words}");
    let mut larger = review("default", &plain());
    larger["request"]["object"]["metadata"]["annotations"]["big"] = json!("x".repeat(4 << 20));
    // Who sends more than is read may find the connection gone instead.
    assert!(asked(larger.to_string()).await.map_or(true, |(code, _)| code == 400));
    assert_eq!(asked(review("default", &plain()).to_string()).await.expect("an answer").0, 200);
    server.stop().await;
}

#[tokio::test]
async fn what_somebody_broke_in_the_secret_is_put_back() {
    let rig = ProxyRig::new();
    let (server, bundle) = serving(&rig).await;
    let secret = || rig.rig.api.get("secrets", "waybill-operator-webhook").expect("it is there")["data"].clone();
    let before = secret();
    for key in ["tls.crt", "tls.key", "ca.crt"] {
        rig.rig.api.edit("secrets", "waybill-operator-webhook", |secret| {
            secret["data"][key] = json!(STANDARD.encode("broken"))
        });
        keep(&rig.context(), &webhook(Source::Own)).await.expect("certificates");
        assert_eq!(secret(), before, "{key}");
    }
    let writes = rig.rig.api.writes().len();
    keep(&rig.context(), &webhook(Source::Own)).await.expect("certificates");
    assert_eq!(rig.rig.api.writes().len(), writes);
    assert_eq!(ask(server.port, &bundle, "/other", "").await.expect("an answer").0, 404);
    server.stop().await;
}
