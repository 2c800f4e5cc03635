//! The HTTPS server that the API server asks.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};
use waybill_ops::listen::canonical;

use super::bounds::{Bounds, is_bounded};
use super::keeper::{CERTIFICATE, KEY};
use super::review::answer;
use super::{Source, Webhook};
use crate::metrics::Admission;
use crate::reconcile::Context;
use crate::run::Scope;

/// Where questions about pods go.
const PATH: &str = "/inject";
/// Connections at the same time; more wait. [`Bounds`] says how many of them one address may have.
const CONNECTIONS: usize = 256;
/// A connection that does not come to speak TLS by then is closed.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// How long an answer may take; the API server does not wait much longer.
const PATIENCE: Duration = Duration::from_secs(4);
/// How long answers under way may take when the operator is told to stop.
const STOPPING: Duration = Duration::from_secs(5);
/// How often it is looked whether there is another certificate: until there is one, and then.
const LOOK: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));

/// The certificate that new connections get.
#[derive(Debug, Default)]
struct Current {
    key: ArcSwapOption<CertifiedKey>,
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.key.load_full()
    }
}

/// Answers the API server's questions until `stop`, and for [`crate::reconcile::Pace::leaving`] more, each then as the last of its
/// connection: the API server goes over to other operators, and no question is lost. While there is no certificate, connections fail,
/// and pods come without sidecar; `ready` becomes true when there is one.
///
/// # Errors
/// TLS cannot be spoken at all: a defect.
pub async fn serve(
    listener: TcpListener,
    context: Context,
    scope: Scope,
    webhook: Webhook,
    ready: Arc<AtomicBool>,
    stop: CancellationToken,
) -> Result<(), rustls::Error> {
    let current = Arc::new(Current::default());
    let resolver: Arc<dyn ResolvesServerCert> = current.clone();
    let mut tls = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(resolver);
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let asked = Arc::new(Asked { context: context.clone(), scope, bounds: Bounds::default() });
    let (connections, room) = (TaskTracker::new(), Arc::new(Semaphore::new(CONNECTIONS)));
    let follow = follow(&current, &context, &webhook, &ready);
    let (closing, leaving) = (CancellationToken::new(), context.pace.leaving);
    let accept = async {
        loop {
            let Ok(place) = room.clone().acquire_owned().await else { return };
            match listener.accept().await {
                Ok((socket, peer)) => {
                    let Some(seat) = asked.bounds.seat(peer.ip()) else {
                        debug!(peer = %canonical(peer), "a connection is closed: the address has too many");
                        continue;
                    };
                    let serving = connection(socket, acceptor.clone(), asked.clone(), stop.clone(), closing.clone());
                    connections.spawn(async move {
                        serving.await;
                        drop((place, seat));
                    });
                }
                Err(error) => {
                    warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    };
    let left = async {
        stop.cancelled().await;
        tokio::time::sleep(leaving).await;
    };
    tokio::select! {
        () = left => {}
        () = accept => {}
        () = follow => {}
    }
    closing.cancel();
    connections.close();
    let _all_or_too_long = timeout(STOPPING, connections.wait()).await;
    Ok(())
}

/// Who answers.
struct Asked {
    context: Context,
    scope: Scope,
    bounds: Bounds,
}

async fn connection(
    socket: TcpStream,
    acceptor: TlsAcceptor,
    asked: Arc<Asked>,
    stop: CancellationToken,
    closing: CancellationToken,
) {
    let stream = match timeout(HANDSHAKE, acceptor.accept(socket)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return debug!(%error, "a connection does not speak TLS"),
        Err(_late) => return debug!("a connection does not speak TLS in time"),
    };
    let service = service_fn(move |request| {
        let (asked, stop) = (asked.clone(), stop.clone());
        async move {
            let mut response = respond(request, &asked).await;
            if stop.is_cancelled() {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response)
        }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new());
    let mut serving = std::pin::pin!(server.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = closing.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        debug!(%error, "a connection of the webhook broke");
    }
}

async fn respond(request: Request<Incoming>, asked: &Asked) -> Response<Full<Bytes>> {
    if request.uri().path() != PATH || request.method() != Method::POST {
        return plain(StatusCode::NOT_FOUND, "there is POST /inject\n");
    }
    match answered(request, asked).await {
        Ok(answer) => {
            let mut response = Response::new(Full::new(Bytes::from(answer.to_string())));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
        Err((status, reason)) => {
            asked.context.metrics.admission(Admission::Failed);
            plain(status, &format!("{reason}\n"))
        }
    }
}

async fn answered(request: Request<Incoming>, asked: &Asked) -> Result<Value, (StatusCode, String)> {
    let late = |status: StatusCode, why: &str| (status, why.to_owned());
    let question = timeout(PATIENCE, asked.bounds.read(request))
        .await
        .map_err(|_late| late(StatusCode::REQUEST_TIMEOUT, "the question does not come in time"))?
        .map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()))?;
    timeout(PATIENCE, look_into(&question.body, asked))
        .await
        .map_err(|_late| late(StatusCode::GATEWAY_TIMEOUT, "the API server does not answer the operator in time"))?
        .map_err(|reason| (StatusCode::BAD_REQUEST, reason))
}

async fn look_into(question: &[u8], asked: &Asked) -> Result<Value, String> {
    let _turn = asked.bounds.turn().await;
    if !is_bounded(question) {
        return Err("the question has too many parts".to_owned());
    }
    let review = serde_json::from_slice(question).map_err(|error| format!("the question is no JSON: {error}"))?;
    answer(&review, &asked.context, &asked.scope).await
}

fn plain(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text.to_owned())));
    *response.status_mut() = status;
    response
}

/// Takes the certificate that there is, again and again.
async fn follow(current: &Current, context: &Context, webhook: &Webhook, ready: &AtomicBool) {
    let mut seen: Option<(Vec<u8>, Vec<u8>)> = None;
    loop {
        match pair(context, webhook).await {
            Ok(pair) if seen.as_ref() == Some(&pair) => {}
            Ok(pair) => match certified(&pair) {
                Ok(key) => {
                    current.key.store(Some(Arc::new(key)));
                    ready.store(true, Ordering::Relaxed);
                    info!("the webhook has a certificate");
                    seen = Some(pair);
                }
                Err(error) => warn!("the webhook's certificate cannot be used: {error}"),
            },
            Err(error) if seen.is_none() => debug!("the webhook has no certificate yet: {error}"),
            Err(error) => warn!("the webhook's certificate cannot be read, the old one stays: {error}"),
        }
        tokio::time::sleep(if seen.is_none() { LOOK.0 } else { LOOK.1 }).await;
    }
}

/// Certificate and key, PEM.
async fn pair(context: &Context, webhook: &Webhook) -> Result<(Vec<u8>, Vec<u8>), String> {
    match &webhook.source {
        Source::Own => {
            let api: Api<Secret> = Api::namespaced(context.client.clone(), &webhook.namespace);
            let secret = api.get(&webhook.secret).await.map_err(|error| error.to_string())?;
            let mut data = secret.data.unwrap_or_default();
            let mut take =
                |name: &str| data.remove(name).map(|bytes| bytes.0).ok_or(format!("{name} is not in the Secret"));
            Ok((take(CERTIFICATE)?, take(KEY)?))
        }
        Source::Directory(directory) => {
            let read = async |name: &str| {
                let path = directory.join(name);
                tokio::fs::read(&path).await.map_err(|error| format!("{}: {error}", Path::display(&path)))
            };
            Ok((read(CERTIFICATE).await?, read(KEY).await?))
        }
    }
}

fn certified((certificate, key): &(Vec<u8>, Vec<u8>)) -> Result<CertifiedKey, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
    let chain = chain.map_err(|error| format!("{CERTIFICATE}: {error}"))?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| format!("{KEY}: {error}"))?;
    let certified = CertifiedKey::new(chain, any_supported_type(&key).map_err(|error| error.to_string())?);
    match certified.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => Ok(certified),
        Err(error) => Err(error.to_string()),
    }
}
