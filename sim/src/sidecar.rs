//! A sidecar: the real one from the gRPC server down, which may be killed, or stopped in good order, and started again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use waybill_ops::config::Live;
use waybill_sidecar::access::Access;
use waybill_sidecar::backend::{BackendMetrics, MessageService, Voucher};
use waybill_sidecar::config::Config;
use waybill_sidecar::grpc::{Messaging, Metrics, Parts, router};
use waybill_sidecar::receipts::{Changer, DrainPolicy, Policy, Receipts};
use waybill_sidecar::session::Sessions;

use crate::clock::{ProcessClock, Wall};
use crate::museum::{Bug, WrongChanger};
use crate::net::{Net, SimTransport};
use crate::plan::Plan;
use crate::sim::Sim;

/// `renewMaxTimeMillis`: a message that got lost on its way to a client that lives is renewed until then.
pub const RENEW_MAX_MS: i64 = 40_000;
/// The longest lease that a renewal gives.
pub const LONGEST_STEP_MS: i64 = 15_000;
/// `grpcShutdownTimeSeconds`.
const GRACE: Duration = Duration::from_secs(8);
/// How long those who were served by a sidecar that has ended need to find another one.
const AFTERMATH_MS: i64 = 8_000;
/// What the configuration file is, and what it says with the renewal switch on and off: as with a mounted ConfigMap a link is turned.
const FILE: &str = "sidecar.yaml";

type Incoming = Result<DuplexStream, std::io::Error>;

/// A machine with a sidecar.
pub struct SidecarNode {
    sim: Arc<Sim>,
    net: Arc<Net>,
    /// Its name.
    pub name: String,
    /// The clock on its wall.
    pub wall: Arc<Wall>,
    dir: PathBuf,
    bug: Option<Bug>,
    running: Mutex<Option<Running>>,
    starts: AtomicU64,
}

/// One process.
struct Running {
    incoming: mpsc::Sender<Incoming>,
    transport: Arc<SimTransport>,
    dead: Arc<AtomicBool>,
    receipts: Receipts,
    /// Nothing is given out any more.
    draining: CancellationToken,
    /// Calls end.
    calls_stop: CancellationToken,
    /// Everything ends.
    stop: CancellationToken,
    tasks: Vec<AbortHandle>,
}

impl SidecarNode {
    /// A machine whose sidecar is not started. Its configuration file is in `dir`.
    ///
    /// # Panics
    /// If there is no memory for the file.
    #[must_use]
    pub fn new(sim: &Arc<Sim>, net: &Arc<Net>, number: usize, dir: &Path, bug: Option<Bug>) -> Arc<Self> {
        let name = format!("sidecar-{number}");
        let dir = dir.join(&name);
        std::fs::create_dir_all(&dir).expect("a directory in memory");
        for renew in [false, true] {
            let text = format!("enableGrpcChannelReceiptHandleRenew: {renew}\n");
            std::fs::write(dir.join(renew.to_string()), text).expect("a file in memory");
        }
        let node = Self {
            sim: sim.clone(),
            net: net.clone(),
            name,
            wall: Arc::default(),
            dir,
            bug,
            running: Mutex::new(None),
            starts: AtomicU64::new(0),
        };
        node.point_at(sim.plan.renew);
        Arc::new(node)
    }

    /// Turns the link that is the configuration file.
    fn point_at(&self, renew: bool) {
        let new = self.dir.join("new");
        std::os::unix::fs::symlink(renew.to_string(), &new).expect("a link in memory");
        std::fs::rename(new, self.dir.join(FILE)).expect("a link in memory");
        self.sim.audit().switch_may_be(&self.name, renew);
    }

    /// The renewal switch is set the other way in the configuration file. The sidecar sees that a while later.
    pub fn flip(&self) {
        let now = std::fs::read_link(self.dir.join(FILE)).expect("a link in memory");
        let renew = now != Path::new("true");
        self.sim.say(&self.name, format_args!("FLIPPED renew={renew}"));
        self.sim.audit().note(if renew { "flips_on" } else { "flips_off" });
        self.point_at(renew);
    }

    /// Starts the sidecar.
    ///
    /// # Panics
    /// If the run itself cannot be made.
    pub async fn start(&self) {
        let addresses: Vec<_> = self.net.brokers().iter().map(|broker| broker.address.clone()).collect();
        let fixed = (addresses.join(";"), self.sim.plan.clone());
        let live = Live::load_adjusted(self.dir.join(FILE), move |config: &mut Config| adjust(config, &fixed));
        let live = Arc::new(live.expect("a good file"));
        let config = live.get();
        let policy = Policy {
            renew_ahead_ms: config.renew_ahead_time_ms,
            clear_invisible_ms: config.invisible_time_ms_when_clear,
            request_timeout_ms: config.backend_connect_timeout_ms + 2 * config.backend_request_timeout_ms,
            // Short ones, so that a run sees many renewals.
            renew_steps_ms: vec![self.sim.plan.lease_ms, LONGEST_STEP_MS],
            renew_max_time_ms: RENEW_MAX_MS,
            ..Policy::default()
        };
        let clock = Arc::new(ProcessClock::new(&self.sim, &self.wall));
        let dead = Arc::new(AtomicBool::new(false));
        let [draining, calls_stop, stop] = std::array::from_fn(|_| CancellationToken::new());
        let transport = Arc::new(SimTransport::new(&self.net, &self.name, dead.clone()));
        let messages = MessageService::new(transport.clone(), live.clone(), clock.clone(), BackendMetrics::default());
        let changer: Arc<dyn Changer> = match self.bug {
            Some(Bug::FlipStopsRenewal) => Arc::new(WrongChanger::new(messages.clone(), live.clone())),
            _ => Arc::new(messages.clone()),
        };
        let receipts = Receipts::start(policy, changer, stop.clone());
        let voucher = Arc::new(Voucher::new(messages.clone()));
        let sessions = Sessions::new(receipts.clone(), voucher, live.clone(), clock.clone());
        let parts = Parts {
            messages,
            receipts: receipts.clone(),
            sessions: sessions.clone(),
            access: Access::new(live.clone()).expect("nobody is asked who it is"),
            config: live.clone(),
            clock,
            metrics: Metrics::default(),
            draining: draining.clone(),
            stop: calls_stop.clone(),
        };
        let served = router(Messaging::new(parts), &config).await.expect("the services are built in");
        let (incoming, connections) = mpsc::channel::<Incoming>(64);
        let ends = calls_stop.clone().cancelled_owned();
        let serving = tokio::spawn(async move {
            // However it ends.
            let _ = served.router.serve_with_incoming_shutdown(ReceiverStream::new(connections), ends).await;
        });
        let watching = tokio::spawn(sessions.run(calls_stop.clone()));
        let following = tokio::spawn(follow(self.sim.clone(), self.name.clone(), live.clone()));
        let reading = tokio::spawn(live.watch(stop.clone()));
        let tasks = [serving.abort_handle(), watching.abort_handle(), following.abort_handle(), reading.abort_handle()];
        *self.running.lock() =
            Some(Running { incoming, transport, dead, receipts, draining, calls_stop, stop, tasks: tasks.to_vec() });
        let start = self.starts.fetch_add(1, Ordering::SeqCst) + 1;
        self.sim.say(&self.name, format_args!("STARTED {start}"));
    }

    /// Ends the sidecar as `kill -9` does. Whether it ran. What goes on inside reaches nobody any more.
    pub fn kill(&self) -> bool {
        let Some(running) = self.running.lock().take() else { return false };
        self.sim.say(&self.name, format_args!("KILLED"));
        self.sim.audit().drains(&self.name, false);
        end(&running);
        true
    }

    /// Ends the sidecar as SIGTERM does, in the steps of `App::run`. Whether it came to its end by itself.
    pub async fn drain(&self, policy: DrainPolicy) -> bool {
        let started = self.starts.load(Ordering::SeqCst);
        let (receipts, draining, calls_stop) = {
            let running = self.running.lock();
            let Some(running) = running.as_ref() else { return false };
            (running.receipts.clone(), running.draining.clone(), running.calls_stop.clone())
        };
        let is_here = || self.is_up() && self.starts.load(Ordering::SeqCst) == started;
        let (began, deadline) = (self.sim.now(), Instant::now() + GRACE);
        self.sim.say(&self.name, format_args!("DRAINS {policy:?}"));
        self.sim.audit().drains(&self.name, true);
        draining.cancel();
        receipts.clients_done(GRACE * 3 / 4).await;
        if !is_here() {
            return false;
        }
        let calm = !self.sim.audit().anything_failed(began);
        self.sim.audit().drains(&self.name, false);
        self.sim.audit().trouble(&[&self.name], GRACE.as_millis().try_into().unwrap_or(0) + AFTERMATH_MS);
        calls_stop.cancel();
        let cut = self.sim.now();
        // Streams end when their calls do; then what is held is looked at.
        let _ = timeout_at(deadline - Duration::from_secs(1), self.calls_ended()).await;
        // What clients held that were gone before goes on its way, whatever the policy.
        let on_the_way = receipts.stats().returning;
        let report = receipts.drain(policy, deadline.saturating_duration_since(Instant::now())).await;
        if !is_here() {
            return false;
        }
        let stats = receipts.stats();
        let held = stats.held - stats.let_go;
        self.sim.say(&self.name, format_args!("DRAINED {report:?} held={held}"));
        let calm = calm && !self.sim.audit().anything_failed_but(cut, &self.name);
        self.judge(policy, calm, held, (report.returned, on_the_way));
        if let Some(running) = self.running.lock().take() {
            end(&running);
        }
        true
    }

    /// Waits until the server has ended.
    async fn calls_ended(&self) {
        let serving = self.running.lock().as_ref().and_then(|running| running.tasks.first().cloned());
        while serving.as_ref().is_some_and(|serving| !serving.is_finished()) {
            self.sim.sleep(50).await;
        }
    }

    fn judge(&self, policy: DrainPolicy, calm: bool, held: u64, (returned, on_the_way): (u64, u64)) {
        let mut audit = self.sim.audit();
        let name = &self.name;
        if calm {
            audit.note("calm_drains");
        }
        match policy {
            DrainPolicy::Release => {
                audit.note("drains_release");
                (0..returned).for_each(|_| audit.note("returned_by_drain"));
                if calm && held > 0 {
                    audit.violation(format!("{name} ended with {held} messages that it was to return"));
                }
            }
            DrainPolicy::LeaveToLease => {
                audit.note("drains_leave");
                (0..held).for_each(|_| audit.note("left_by_drain"));
                if returned > on_the_way {
                    audit
                        .violation(format!("{name} returned {returned} messages that it was to leave to their leases"));
                }
            }
        }
    }

    /// Takes a connection. False if nobody listens. `wire` ends with the sidecar.
    pub fn accept(&self, server_end: DuplexStream, wire: AbortHandle) -> bool {
        let mut running = self.running.lock();
        let Some(running) = running.as_mut().filter(|running| !running.calls_stop.is_cancelled()) else { return false };
        running.tasks.push(wire);
        running.incoming.try_send(Ok(server_end)).is_ok()
    }

    /// Whether it runs.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.running.lock().is_some()
    }
}

fn end(running: &Running) {
    running.dead.store(true, Ordering::SeqCst);
    for task in &running.tasks {
        task.abort();
    }
    for token in [&running.draining, &running.calls_stop, &running.stop] {
        token.cancel();
    }
    running.transport.close();
}

/// What is not in the file.
fn adjust(config: &mut Config, (brokers, plan): &(String, Plan)) {
    *config = Config {
        namesrv_addr: brokers.clone(),
        enable_grpc_channel_receipt_handle_renew: config.enable_grpc_channel_receipt_handle_renew,
        enable_batch_ack: plan.batch,
        enable_batch_change_invisible_time: plan.batch,
        default_invisible_time_ms: plan.lease_ms,
        renew_ahead_time_ms: 3_000,
        channel_expired_timeout_ms: 30_000,
        min_invisible_time_ms_for_recv: 1_000,
        grpc_client_consumer_min_long_polling_timeout_ms: 1_000,
        ..Config::default()
    };
}

/// Tells the auditor which way the switch is.
async fn follow(sim: Arc<Sim>, name: String, config: Arc<Live<Config>>) {
    let mut generations = config.subscribe();
    loop {
        let renew = config.get().enable_grpc_channel_receipt_handle_renew;
        sim.audit().switch_is(&name, renew);
        sim.say(&name, format_args!("renews={renew}"));
        if generations.changed().await.is_err() {
            return;
        }
    }
}
