//! The webhook as the API server meets it: by HTTPS, with an authority that it was told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;
use waybill_operator::inject::{Source, Webhook, keep, serve};
use waybill_operator::reconcile::Context;
use waybill_ops::clock::{Clock, SystemClock};

use crate::injection::{admitted, pod, review};
use crate::proxy_rig::ProxyRig;

const CONFIGURATION: &str = "waybill-system";

pub(crate) fn webhook(source: Source) -> Webhook {
    Webhook {
        namespace: "default".to_owned(),
        service: "waybill-operator".to_owned(),
        configuration: Some(CONFIGURATION.to_owned()),
        secret: "waybill-operator-webhook".to_owned(),
        source,
    }
}

/// As the chart makes it, with an entry of somebody else.
pub(crate) fn configuration() -> Value {
    let entry = |name: &str, service: &str| json!({ "name": name, "sideEffects": "NoneOnDryRun", "clientConfig": { "service": { "namespace": "default", "name": service, "path": "/inject" } } });
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": { "name": CONFIGURATION }, "webhooks": [entry("inject.waybill.dev", "waybill-operator"), entry("x.y.z", "other")],
    })
}

/// One question, as the API server asks it.
pub(crate) async fn ask(port: u16, bundle: &str, path: &str, body: &str) -> Result<(u16, String), String> {
    ask_over(port, bundle, path, body, "close").await
}

/// The same; `connection` says what is to become of the connection. There is no answer before the server has closed it.
async fn ask_over(port: u16, bundle: &str, path: &str, body: &str, connection: &str) -> Result<(u16, String), String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(certificate.expect("a certificate")).expect("an authority");
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("TLS");
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let stream = TcpStream::connect(("127.0.0.1", port)).await.map_err(|error| error.to_string())?;
    let name = ServerName::try_from("waybill-operator.default.svc").expect("a name");
    let connected = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    let mut stream = connected.map_err(|error| error.to_string())?;
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: waybill-operator.default.svc\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: {connection}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
    let mut answer = Vec::new();
    let _closed = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| answer.clone())?;
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or_else(|| head.to_owned())?;
    Ok((code, body.to_owned()))
}

pub(crate) struct Server {
    pub(crate) port: u16,
    ready: Arc<AtomicBool>,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<Result<(), rustls::Error>>,
}

impl Server {
    pub(crate) async fn start(rig: &ProxyRig, source: Source) -> Self {
        Self::start_in(rig.context(), rig, source).await
    }

    async fn start_in(context: Context, rig: &ProxyRig, source: Source) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (ready, stop) = (Arc::<AtomicBool>::default(), CancellationToken::new());
        let serving = serve(listener, context, rig.scope.clone(), webhook(source), ready.clone(), stop.clone());
        Self { port, ready, stop, task: tokio::spawn(serving) }
    }

    pub(crate) async fn until_ready(&self) {
        let waiting = async {
            while !self.ready.load(Ordering::Relaxed) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("a certificate");
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.task.await.expect("it ends by itself").expect("TLS");
    }
}

#[tokio::test]
async fn the_api_server_gets_its_answers_by_https_from_an_authority_that_it_was_told() {
    let rig = ProxyRig::new();
    rig.rig.clock.set(SystemClock::new().now_ms());
    rig.put(json!({}));
    rig.rig.api.put_whole(&configuration());
    let server = Server::start(&rig, Source::Own).await;
    let kept = webhook(Source::Own);
    keep(&rig.context(), &kept).await.expect("certificates");
    server.until_ready().await;
    let entries =
        rig.rig.api.get("mutatingwebhookconfigurations", CONFIGURATION).expect("it is there")["webhooks"].clone();
    assert!(entries[1]["clientConfig"]["caBundle"].is_null(), "somebody else's is let be");
    let bundle = STANDARD.decode(entries[0]["clientConfig"]["caBundle"].as_str().expect("text")).expect("base64");
    let bundle = String::from_utf8(bundle).expect("PEM");

    let asks = pod(json!({ "waybill.dev/inject": "edge" }), json!({ "containers": [{ "name": "app" }] }));
    let (code, body) =
        ask(server.port, &bundle, "/inject", &review("default", &asks).to_string()).await.expect("an answer");
    assert_eq!(code, 200);
    let (pod, warnings) = admitted(&asks, &serde_json::from_str(&body).expect("JSON"));
    assert_eq!(pod["spec"]["initContainers"][0]["name"], "waybill-sidecar");
    assert_eq!(warnings, [] as [String; 0]);
    for (path, body, code) in [("/inject", "{", 400), ("/inject", "{}", 400), ("/other", "{}", 404)] {
        assert_eq!(ask(server.port, &bundle, path, body).await.expect("an answer").0, code, "{path} {body}");
    }
    // It is not for those who speak something else, and goes on.
    let mut plain = TcpStream::connect(("127.0.0.1", server.port)).await.expect("a connection");
    plain.write_all(b"POST /inject HTTP/1.1\r\n\r\n").await.expect("sent");
    let _closed = plain.read_to_end(&mut Vec::new()).await;
    assert_eq!(ask(server.port, &bundle, "/other", "").await.expect("an answer").0, 404);

    // All is well: nothing is written.
    let writes = rig.rig.api.writes().len();
    keep(&rig.context(), &kept).await.expect("certificates");
    assert_eq!(rig.rig.api.writes().len(), writes);
    // What was lost comes back.
    rig.rig.api.put_whole(&configuration());
    keep(&rig.context(), &kept).await.expect("certificates");
    let entries =
        rig.rig.api.get("mutatingwebhookconfigurations", CONFIGURATION).expect("it is there")["webhooks"].clone();
    assert_eq!(entries[0]["clientConfig"]["caBundle"], STANDARD.encode(&bundle));
    rig.rig.api.delete("secrets", "waybill-operator-webhook");
    keep(&rig.context(), &kept).await.expect("certificates");
    let entries =
        rig.rig.api.get("mutatingwebhookconfigurations", CONFIGURATION).expect("it is there")["webhooks"].clone();
    assert_ne!(entries[0]["clientConfig"]["caBundle"], STANDARD.encode(&bundle));
    server.stop().await;
}

#[tokio::test]
async fn certificates_that_somebody_else_makes_are_served() {
    let rig = ProxyRig::new();
    rig.put(json!({}));
    let made = rcgen::generate_simple_self_signed(["waybill-operator.default.svc".to_owned()]).expect("a certificate");
    let directory = tempfile::tempdir().expect("a directory");
    let server = Server::start(&rig, Source::Directory(directory.path().to_owned())).await;
    let refused = ask(server.port, &made.cert.pem(), "/other", "").await;
    assert!(refused.is_err(), "there is none yet: {refused:?}");
    assert!(!server.ready.load(Ordering::Relaxed));
    std::fs::write(directory.path().join("tls.crt"), made.cert.pem()).expect("written");
    std::fs::write(directory.path().join("tls.key"), made.signing_key.serialize_pem()).expect("written");
    server.until_ready().await;
    assert_eq!(ask(server.port, &made.cert.pem(), "/other", "").await.expect("an answer").0, 404);
    server.stop().await;
    assert_eq!(rig.rig.api.writes(), [] as [&str; 0]);
}

#[tokio::test]
async fn told_to_stop_it_answers_until_nobody_is_sent_to_it_any_more_and_keeps_no_connection() {
    let rig = ProxyRig::new();
    let mut context = rig.context();
    context.pace.leaving = Duration::from_secs(3_600);
    let made = rcgen::generate_simple_self_signed(["waybill-operator.default.svc".to_owned()]).expect("a certificate");
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("tls.crt"), made.cert.pem()).expect("written");
    std::fs::write(directory.path().join("tls.key"), made.signing_key.serialize_pem()).expect("written");
    let trusted = made.cert.pem();
    let server = Server::start_in(context, &rig, Source::Directory(directory.path().to_owned())).await;
    server.until_ready().await;
    server.stop.cancel();
    for _question in 0..2 {
        let asked = ask_over(server.port, &trusted, "/other", "", "keep-alive");
        let answer = tokio::time::timeout(Duration::from_secs(60), asked).await.expect("it closes the connection");
        assert_eq!(answer.expect("an answer").0, 404);
    }
    assert!(!server.task.is_finished());
    server.task.abort();
}
