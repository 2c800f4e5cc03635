//! The admin port: is it alive, is it ready, how does it do, what is it set to.
//!
//! - `/healthz`: 200 while the process can answer at all.
//! - `/readyz`: 200 when it can serve, else 503 with the reason.
//! - `/metrics`: OpenMetrics text, which Prometheus reads.
//! - `/config`: the effective configuration as JSON. Whoever supplies it leaves secrets out.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use parking_lot::Mutex;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::exposition;
use crate::process::ProcessMetrics;

/// Answers whether the process can serve; an error is the reason why not, for people.
pub type Readiness = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// Shows the effective configuration, without secrets.
pub type ConfigView = Arc<dyn Fn() -> serde_json::Value + Send + Sync>;

/// The text of the metrics, without those of the process and without the end mark.
type MetricsView = Arc<dyn Fn() -> Result<String, fmt::Error> + Send + Sync>;

/// How long an answer under way may take once the process is asked to stop.
const GRACE: Duration = Duration::from_secs(1);

/// What the admin port shows.
#[derive(Clone)]
pub struct Admin {
    metrics: MetricsView,
    ready: Readiness,
    config: ConfigView,
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin").finish_non_exhaustive()
    }
}

impl Admin {
    /// Process metrics are added to those of `registry` by themselves.
    pub fn new(
        registry: Arc<Mutex<Registry>>,
        ready: impl Fn() -> Result<(), String> + Send + Sync + 'static,
        config: impl Fn() -> serde_json::Value + Send + Sync + 'static,
    ) -> Self {
        let metrics = Arc::new(move || exposition::of(&registry.lock()));
        Self { metrics, ready: Arc::new(ready), config: Arc::new(config) }
    }

    /// One admin port for several parts of a process: ready when all are; the metrics of all, with the label `part`;
    /// configurations by the part's name.
    #[must_use]
    pub fn joined(parts: impl IntoIterator<Item = (&'static str, Self)>) -> Self {
        let parts: Arc<[(&'static str, Self)]> = parts.into_iter().collect();
        let (measured, configured, asked) = (parts.clone(), parts.clone(), parts);
        Self {
            metrics: Arc::new(move || {
                let texts = measured.iter().map(|(name, part)| Ok((*name, (part.metrics)()?)));
                Ok(exposition::joined(&texts.collect::<Result<Vec<_>, fmt::Error>>()?))
            }),
            ready: Arc::new(move || {
                asked.iter().try_for_each(|(name, part)| part.ready().map_err(|reason| format!("{name}: {reason}")))
            }),
            config: Arc::new(move || {
                let views = configured.iter().map(|(name, part)| ((*name).to_owned(), (part.config)()));
                serde_json::Value::Object(views.collect())
            }),
        }
    }

    fn metrics_text(&self) -> Result<String, fmt::Error> {
        let mut process = Registry::default();
        process.register_collector(Box::new(ProcessMetrics));
        let mut body = (self.metrics)()?;
        text::encode_registry(&mut body, &process)?;
        text::encode_eof(&mut body)?;
        Ok(body)
    }

    /// Whether the process can serve, as `/readyz` says it.
    ///
    /// # Errors
    /// The reason why not, for people.
    pub fn ready(&self) -> Result<(), String> {
        (self.ready)()
    }

    /// Serves HTTP/1 until `stop`; answers under way get a second to end.
    pub async fn serve(self, listener: TcpListener, stop: CancellationToken) {
        let router = Router::new()
            .route("/healthz", get(|| async { "ok\n" }))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .route("/config", get(config))
            .with_state(self);
        let server = axum::serve(listener, router).with_graceful_shutdown(stop.clone().cancelled_owned());
        tokio::select! {
            // axum's server never ends with an error of its own: it goes on accepting after a failed accept.
            _ended = server.into_future() => {}
            () = async { stop.cancelled().await; tokio::time::sleep(GRACE).await } => {}
        }
    }
}

async fn readyz(State(admin): State<Admin>) -> Response {
    match admin.ready() {
        Ok(()) => "ready\n".into_response(),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {reason}\n")).into_response(),
    }
}

async fn metrics(State(admin): State<Admin>) -> Response {
    const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    match admin.metrics_text() {
        Ok(body) => ([(header::CONTENT_TYPE, OPEN_METRICS)], body).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("cannot write metrics: {error}\n")).into_response(),
    }
}

async fn config(State(admin): State<Admin>) -> Response {
    let body = format!("{:#}\n", (admin.config)());
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    use prometheus_client::metrics::counter::Counter;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    async fn get(address: std::net::SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.expect("connect");
        let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("write");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("read");
        answer
    }

    #[test]
    fn joined_parts_answer_as_one() {
        let part = |name: &'static str, ready: &Arc<AtomicBool>| {
            let mut registry = Registry::default();
            registry.register(name, "A test", Counter::<u64>::default());
            let ready = ready.clone();
            let check = move || if ready.load(Ordering::SeqCst) { Ok(()) } else { Err("not yet".to_owned()) };
            Admin::new(Arc::new(Mutex::new(registry)), check, move || serde_json::json!({ "is": name }))
        };
        let ready = [Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false))];
        let admin = Admin::joined([("broker", part("one", &ready[0])), ("sidecar", part("two", &ready[1]))]);
        assert_eq!(admin.ready(), Err("sidecar: not yet".to_owned()));
        ready[1].store(true, Ordering::SeqCst);
        assert_eq!(admin.ready(), Ok(()));
        ready[0].store(false, Ordering::SeqCst);
        assert_eq!(admin.ready(), Err("broker: not yet".to_owned()));
        assert_eq!((admin.config)(), serde_json::json!({"broker": {"is": "one"}, "sidecar": {"is": "two"}}));
        let metrics = admin.metrics_text().expect("text");
        for wanted in ["one_total{part=\"broker\"} 0\n", "two_total{part=\"sidecar\"} 0\n"] {
            assert!(metrics.contains(wanted), "{wanted} is missing in {metrics}");
        }
    }

    #[tokio::test]
    async fn answers_each_question_and_stops() {
        let mut registry = Registry::default();
        let counter = Counter::<u64>::default();
        registry.register("waybill_test", "A test", counter.clone());
        counter.inc_by(7);
        let ready = Arc::new(AtomicBool::new(false));
        let seen = ready.clone();
        let admin = Admin::new(
            Arc::new(Mutex::new(registry)),
            move || if seen.load(Ordering::SeqCst) { Ok(()) } else { Err("the store is being read".into()) },
            || serde_json::json!({"flush": "sync"}),
        );
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address = listener.local_addr().expect("address");
        let stop = CancellationToken::new();
        let server = tokio::spawn(admin.serve(listener, stop.clone()));

        assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 200"));
        let answer = get(address, "/readyz").await;
        assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("the store is being read"), "{answer}");
        ready.store(true, Ordering::SeqCst);
        assert!(get(address, "/readyz").await.starts_with("HTTP/1.1 200"));

        let metrics = get(address, "/metrics").await;
        assert!(metrics.contains("application/openmetrics-text"), "{metrics}");
        for wanted in ["waybill_test_total 7", "process_resident_memory_bytes ", "process_cpu_seconds_total "] {
            assert!(metrics.contains(wanted), "{wanted} is missing in {metrics}");
        }
        assert!(metrics.ends_with("# EOF\n"));
        assert_eq!(metrics.matches("# EOF").count(), 1);

        assert!(get(address, "/config").await.ends_with("{\n  \"flush\": \"sync\"\n}\n"));
        assert!(get(address, "/nothing").await.starts_with("HTTP/1.1 404"));

        stop.cancel();
        server.await.expect("the server ends");
        assert!(TcpStream::connect(address).await.is_err(), "the port is closed");
    }
}
