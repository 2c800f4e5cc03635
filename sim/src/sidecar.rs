//! A sidecar: the real one from the gRPC server down, which may be killed and started again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use waybill_ops::config::Live;
use waybill_sidecar::backend::{BackendMetrics, MessageService, Voucher};
use waybill_sidecar::config::Config;
use waybill_sidecar::grpc::{Messaging, Metrics, Parts, router};
use waybill_sidecar::receipts::{Policy, Receipts};
use waybill_sidecar::session::Sessions;

use crate::clock::{ProcessClock, Wall};
use crate::net::{Net, SimTransport};
use crate::sim::Sim;

/// `renewMaxTimeMillis`: a message that got lost on its way to a client that lives is renewed until then.
pub const RENEW_MAX_MS: i64 = 40_000;
/// The longest lease that a renewal gives.
pub const LONGEST_STEP_MS: i64 = 15_000;

type Incoming = Result<DuplexStream, std::io::Error>;

/// A machine with a sidecar.
pub struct SidecarNode {
    sim: Arc<Sim>,
    net: Arc<Net>,
    /// Its name.
    pub name: String,
    /// The clock on its wall.
    pub wall: Arc<Wall>,
    running: Mutex<Option<Running>>,
    starts: AtomicU64,
}

/// One process.
struct Running {
    incoming: mpsc::Sender<Incoming>,
    transport: Arc<SimTransport>,
    dead: Arc<AtomicBool>,
    stop: CancellationToken,
    tasks: Vec<AbortHandle>,
}

impl SidecarNode {
    /// A machine whose sidecar is not started.
    #[must_use]
    pub fn new(sim: &Arc<Sim>, net: &Arc<Net>, number: usize) -> Arc<Self> {
        let name = format!("sidecar-{number}");
        let (sim, net) = (sim.clone(), net.clone());
        Arc::new(Self { sim, net, name, wall: Arc::default(), running: Mutex::new(None), starts: AtomicU64::new(0) })
    }

    fn config(&self) -> Config {
        let plan = &self.sim.plan;
        let addresses: Vec<_> = self.net.brokers().iter().map(|broker| broker.address.clone()).collect();
        Config {
            namesrv_addr: addresses.join(";"),
            enable_grpc_channel_receipt_handle_renew: plan.renew,
            enable_batch_ack: plan.batch,
            enable_batch_change_invisible_time: plan.batch,
            default_invisible_time_ms: plan.lease_ms,
            renew_ahead_time_ms: 3_000,
            channel_expired_timeout_ms: 30_000,
            min_invisible_time_ms_for_recv: 1_000,
            grpc_client_consumer_min_long_polling_timeout_ms: 1_000,
            ..Config::default()
        }
    }

    /// Starts the sidecar.
    pub async fn start(&self) {
        let config = self.config();
        let policy = Policy {
            renew_ahead_ms: config.renew_ahead_time_ms,
            clear_invisible_ms: config.invisible_time_ms_when_clear,
            request_timeout_ms: config.backend_connect_timeout_ms + 2 * config.backend_request_timeout_ms,
            // Short ones, so that a run sees many renewals.
            renew_steps_ms: vec![self.sim.plan.lease_ms, LONGEST_STEP_MS],
            renew_max_time_ms: RENEW_MAX_MS,
            ..Policy::default()
        };
        let config = Arc::new(Live::fixed(config));
        let clock = Arc::new(ProcessClock::new(&self.sim, &self.wall));
        let (dead, stop) = (Arc::new(AtomicBool::new(false)), CancellationToken::new());
        let transport = Arc::new(SimTransport::new(&self.net, &self.name, dead.clone()));
        let messages = MessageService::new(transport.clone(), config.clone(), clock.clone(), BackendMetrics::default());
        let receipts = Receipts::start(policy, Arc::new(messages.clone()), stop.clone());
        let voucher = Arc::new(Voucher::new(messages.clone()));
        let sessions = Sessions::new(receipts.clone(), voucher, config.clone(), clock.clone());
        let parts = Parts {
            messages,
            receipts,
            sessions: sessions.clone(),
            config: config.clone(),
            clock,
            metrics: Metrics::default(),
            draining: stop.clone(),
            stop: stop.clone(),
        };
        let served = router(Messaging::new(parts), &config.get()).await.expect("the services are built in");
        let (incoming, connections) = mpsc::channel::<Incoming>(64);
        let serving = tokio::spawn(async move {
            // It ends when it is killed.
            let _ = served.router.serve_with_incoming(ReceiverStream::new(connections)).await;
        });
        let watching = tokio::spawn(sessions.run(stop.clone()));
        let tasks = vec![serving.abort_handle(), watching.abort_handle()];
        *self.running.lock() = Some(Running { incoming, transport, dead, stop, tasks });
        let start = self.starts.fetch_add(1, Ordering::SeqCst) + 1;
        self.sim.say(&self.name, format_args!("STARTED {start}"));
    }

    /// Ends the sidecar as `kill -9` does. Whether it ran. What goes on inside reaches nobody any more.
    pub fn kill(&self) -> bool {
        let Some(running) = self.running.lock().take() else { return false };
        self.sim.say(&self.name, format_args!("KILLED"));
        running.dead.store(true, Ordering::SeqCst);
        for task in &running.tasks {
            task.abort();
        }
        running.stop.cancel();
        running.transport.close();
        true
    }

    /// Takes a connection. False if nobody listens. `wire` ends with the sidecar.
    pub fn accept(&self, server_end: DuplexStream, wire: AbortHandle) -> bool {
        let mut running = self.running.lock();
        let Some(running) = running.as_mut() else { return false };
        running.tasks.push(wire);
        running.incoming.try_send(Ok(server_end)).is_ok()
    }

    /// Whether it runs.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.running.lock().is_some()
    }
}
