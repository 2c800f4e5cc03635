//! The whole sidecar, put together.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tokio::{
    net::TcpListener,
    time::{Instant, sleep, timeout, timeout_at},
};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use waybill_ops::{
    admin::Admin,
    clock::Clock,
    config::{ConfigError, Live},
    tls::{CertificateError, CertificateSource},
};

use crate::{
    access::Access,
    backend::{BackendMetrics, MessageService, Transport, Voucher},
    config::{Config, ShutdownPolicy, effective, report_changes},
    effective::with_groups,
    grpc::{self, Messaging, Orphans, Parts, Served},
    readiness::Readiness,
    receipts::{DrainPolicy, Policy, Receipts},
    serve::{ClientIo, Limits, ServeMetrics, Tls, incoming},
    session::Sessions,
};

/// What is popped for a client so long after the longest poll is no answer to a poll that began before the client left.
const POLL_MARGIN_MS: i64 = 40_000;
/// How long the server may take to end when its connections are gone.
const CUT_TIME: Duration = Duration::from_secs(1);

/// Where the sidecar listens. Port 0 takes a free one; [`App::grpc_address`] says which.
pub struct Listeners {
    /// For clients.
    pub grpc: TcpListener,
    /// For probes, metrics and the effective configuration. None: not served.
    pub admin: Option<TcpListener>,
}

/// Why a sidecar cannot be put together.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The certificate cannot be used.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The file with the users cannot be used.
    #[error(transparent)]
    Users(#[from] ConfigError),
    /// A listener is broken.
    #[error("cannot listen: {0}")]
    Listen(#[from] io::Error),
    /// The gRPC services cannot be made.
    #[error("cannot describe the services: {0}")]
    Services(#[from] tonic_reflection::server::Error),
}

/// How a sidecar ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Every call was finished and every held message was given back or left to its lease.
    Clean,
    /// The grace time was over before all calls were finished.
    CutShort,
}

/// A sidecar that is ready to run. Generic over how it reaches its brokers, so that tests and `waybill standalone` run
/// the real thing.
pub struct App {
    config: Arc<Live<Config>>,
    started_with: Arc<Config>,
    listeners: Listeners,
    grpc_address: SocketAddr,
    admin_address: Option<SocketAddr>,
    registry: Arc<Mutex<Registry>>,
    messages: MessageService,
    receipts: Receipts,
    sessions: Sessions,
    access: Access,
    orphans: Orphans,
    served: Served,
    serve_metrics: ServeMetrics,
    tls: Tls,
    readiness: Readiness,
    /// From then on clients get nothing new.
    draining: CancellationToken,
    /// Ends long polls, telemetry streams and the acceptance of connections. From then on brokers hear nothing of clients.
    calls_stop: CancellationToken,
    /// Ends everything else, when the calls are finished.
    rest_stop: CancellationToken,
}

impl App {
    /// Puts a sidecar together. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The certificate or the file with the users cannot be used, or a listener is broken.
    pub async fn build(
        config: Arc<Live<Config>>,
        transport: Arc<dyn Transport>,
        clock: Arc<dyn Clock>,
        listeners: Listeners,
    ) -> Result<Self, BuildError> {
        let started_with = config.get();
        let [draining, calls_stop, rest_stop] = std::array::from_fn(|_| CancellationToken::new());
        let tls = tls(&started_with)?;
        let access = Access::new(Arc::clone(&config))?;
        let backend_metrics = BackendMetrics::default();
        let messages = MessageService::new(transport, Arc::clone(&config), Arc::clone(&clock), backend_metrics.clone());
        let receipts = Receipts::start(policy(&started_with), Arc::new(messages.clone()), rest_stop.clone());
        let voucher = Arc::new(Voucher::new(messages.clone()));
        let sessions = Sessions::new(receipts.clone(), voucher, Arc::clone(&config), Arc::clone(&clock));
        let grpc_metrics = grpc::Metrics::default();
        let messaging = Messaging::new(Parts {
            messages: messages.clone(),
            receipts: receipts.clone(),
            sessions: sessions.clone(),
            access: access.clone(),
            config: Arc::clone(&config),
            clock,
            metrics: grpc_metrics.clone(),
            draining: draining.clone(),
            stop: calls_stop.clone(),
        });
        let orphans = Orphans::new(messages.clone(), sessions.clone(), grpc_metrics.clone());
        let served = grpc::router(messaging, &started_with).await?;
        let serve_metrics = ServeMetrics::default();
        let mut registry = Registry::default();
        backend_metrics.register(&mut registry);
        grpc_metrics.register(&mut registry);
        access.register(&mut registry);
        receipts.register_metrics(&mut registry);
        serve_metrics.register(&mut registry);
        config.register(&mut registry);
        let grpc_address = listeners.grpc.local_addr()?;
        let admin_address = listeners.admin.as_ref().map(TcpListener::local_addr).transpose()?;
        Ok(Self {
            config,
            started_with,
            listeners,
            grpc_address,
            admin_address,
            registry: Arc::new(Mutex::new(registry)),
            messages,
            receipts,
            sessions,
            access,
            orphans,
            served,
            serve_metrics,
            tls,
            readiness: Readiness::default(),
            draining,
            calls_stop,
            rest_stop,
        })
    }

    /// Where clients connect to.
    #[must_use]
    pub fn grpc_address(&self) -> SocketAddr {
        self.grpc_address
    }

    /// Where the admin port is, if there is one.
    #[must_use]
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin_address
    }

    /// What the admin port shows, for a process that serves it together with others.
    #[must_use]
    pub fn admin(&self) -> Admin {
        let (started_with, live) = (Arc::clone(&self.started_with), Arc::clone(&self.config));
        let (messages, access, readiness) = (self.messages.clone(), self.access.clone(), self.readiness.clone());
        let config = move || {
            let mut shown = with_groups(effective(&started_with, &live), &live.get(), &messages);
            if let Some(shown) = shown.as_object_mut() {
                shown.insert("users".to_owned(), access.shown());
            }
            shown
        };
        Admin::new(Arc::clone(&self.registry), move || readiness.check(), config)
    }

    /// Serves until `stop` and for `shutdownNoticeSeconds` more, not ready any more; then drains within `grpcShutdownTimeSeconds`: gives nothing out any more but takes acks until clients
    /// hold nothing, finishes calls, and does as `shutdownPolicy` says with what clients hold all the same.
    pub async fn run(self, stop: CancellationToken) -> Ended {
        let admin = self.admin();
        let Self { config, started_with, listeners, receipts, served, readiness, .. } = self;
        let (calls_stop, rest_stop) = (self.calls_stop, self.rest_stop);
        let cut = CancellationToken::new();
        let connections = incoming(
            listeners.grpc,
            self.tls.clone(),
            limits(&started_with),
            self.serve_metrics,
            calls_stop.clone(),
            cut.clone(),
        );
        let mut background = tokio::task::JoinSet::new();
        background.spawn(Arc::clone(&config).watch(rest_stop.clone()));
        background.spawn(report_changes(Arc::clone(&started_with), Arc::clone(&config), rest_stop.clone()));
        background.spawn(follow_policy(Arc::clone(&config), receipts.clone(), rest_stop.clone()));
        background.spawn(self.tls.watch(millis(started_with.tls_cert_watch_interval_ms), rest_stop.clone()));
        // When their streams are cut, clients look gone from here, but are on their way to another sidecar.
        background.spawn(self.sessions.run(calls_stop.clone()));
        background.spawn(self.orphans.run(calls_stop.clone()));
        background.spawn(self.access.watch(rest_stop.clone()));
        background.spawn(readiness.clone().find_brokers(self.messages, rest_stop.clone()));
        if let Some(listener) = listeners.admin {
            background.spawn(admin.serve(listener, rest_stop.clone()));
        }
        tracing::info!(address = %self.grpc_address, "serving clients");

        let mut server = tokio::spawn(serve(served, connections, calls_stop.clone()));
        stop.cancelled().await;
        readiness.draining();
        let notice = Duration::from_secs(config.get().shutdown_notice_seconds.unsigned_abs());
        if !notice.is_zero() {
            tracing::info!(notice_s = notice.as_secs(), "stopping");
            sleep(notice).await;
        }
        tracing::info!("draining");
        self.draining.cancel();
        let grace = Duration::from_secs(config.get().grpc_shutdown_time_seconds.unsigned_abs());
        let deadline = Instant::now() + grace;
        receipts.clients_done(grace * 3 / 4).await;
        calls_stop.cancel();
        let finished = timeout_at(deadline, &mut server).await.is_ok();
        if !finished {
            cut.cancel();
            // Without their connections the calls end at once; nothing here depends on how.
            let _ = timeout(CUT_TIME, server).await;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let policy = match config.get().shutdown_policy {
            ShutdownPolicy::Release => DrainPolicy::Release,
            ShutdownPolicy::Leave => DrainPolicy::LeaveToLease,
        };
        let report = receipts.drain(policy, left).await;
        tracing::info!(calls_finished = finished, ?report, "drained");
        rest_stop.cancel();
        while background.join_next().await.is_some() {}
        if finished { Ended::Clean } else { Ended::CutShort }
    }
}

/// Serves until `stop`, then finishes the calls in progress.
async fn serve(served: Served, connections: ReceiverStream<io::Result<ClientIo>>, stop: CancellationToken) {
    let Served { router, health } = served;
    let told = stop.clone();
    tokio::spawn(async move {
        told.cancelled().await;
        health.set_service_status("", tonic_health::ServingStatus::NotServing).await;
        health.set_service_status(grpc::SERVICE, tonic_health::ServingStatus::NotServing).await;
    });
    if let Err(error) = router.serve_with_incoming_shutdown(connections, stop.cancelled_owned()).await {
        tracing::error!(%error, "the gRPC server ended");
    }
}

fn tls(config: &Config) -> Result<Tls, CertificateError> {
    match (config.tls_cert_path.is_empty(), config.tls_test_mode_enable) {
        (true, false) => Ok(Tls::off()),
        (true, true) => Tls::new(CertificateSource::SelfSigned),
        (false, _) => Tls::new(CertificateSource::Files {
            certificate: config.tls_cert_path.clone().into(),
            key: config.tls_key_path.clone().into(),
        }),
    }
}

fn limits(config: &Config) -> Limits {
    Limits {
        connections: usize::try_from(config.grpc_max_connections).unwrap_or(1),
        handshakes: usize::try_from(config.tls_max_concurrent_handshakes).unwrap_or(1),
        handshake_timeout: millis(config.tls_handshake_timeout_ms),
    }
}

/// What the receipt manager takes from the configuration.
fn policy(config: &Config) -> Policy {
    Policy {
        renew_ahead_ms: config.renew_ahead_time_ms,
        renew_max_time_ms: config.renew_max_time_ms,
        max_renew_retry_times: u32::try_from(config.max_renew_retry_times).unwrap_or_default(),
        clear_invisible_ms: config.invisible_time_ms_when_clear,
        remember_gone_ms: config.grpc_client_consumer_max_long_polling_timeout_ms + POLL_MARGIN_MS,
        max_handles: u32::try_from(config.receipt_handle_max_num).unwrap_or(1),
        max_handles_per_client: u32::try_from(config.receipt_handle_max_num_per_client).unwrap_or(1),
        max_batch: usize::try_from(config.batch_change_invisible_time_max_num).unwrap_or(1),
        // A guard only: a request of the backend ends by itself before, and says what became of each handle.
        request_timeout_ms: config.backend_connect_timeout_ms + 2 * config.backend_request_timeout_ms,
        ..Policy::default()
    }
}

/// Passes changes of the configuration on to the receipt manager.
async fn follow_policy(config: Arc<Live<Config>>, receipts: Receipts, stop: CancellationToken) {
    let mut generations = config.subscribe();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            changed = generations.changed() => if changed.is_err() { return },
        }
        receipts.set_policy(policy(&config.get()));
    }
}

fn millis(value: i64) -> Duration {
    Duration::from_millis(u64::try_from(value).unwrap_or_default())
}
