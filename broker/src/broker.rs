//! The broker: a core, the clients that announced themselves, and the ports.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::{Mutex, MutexGuard};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};
use waybill_ops::address::with_port;
use waybill_ops::clock::{Clock, SystemClock};
use waybill_ops::config::{Invalid, Validate};
use waybill_ops::tls::Acceptor;
use waybill_protocol::remoting::{Command, VouchBody};

use crate::clients::Clients;
use crate::config::{BrokerConfig, InForce};
use crate::core::{Core, Question, Step, store_options};
use crate::error::BrokerError;
use crate::limits;
use crate::liveness::Liveness;
use crate::metrics::Metrics;
use crate::retention::Memory;
use crate::server::{self, Peer};
use crate::store::{Health, Options};

/// How often the health of the store and silent clients are looked after.
const HOUSEKEEPING: Duration = Duration::from_secs(1);

/// How often it is looked whether the certificate has changed.
const CERTIFICATE_LOOK: Duration = Duration::from_secs(1);

/// One broker. Its requests come over TCP ([`Broker::serve`]) or from this process ([`Broker::handle`]).
pub struct Broker {
    /// As it was started.
    config: Arc<BrokerConfig>,
    /// As it is now, which is another one in some keys.
    in_force: InForce,
    store_options: Options,
    clock: Arc<dyn Clock>,
    pub(crate) metrics: Arc<Metrics>,
    core: ArcSwap<Core>,
    clients: Mutex<Clients>,
    /// None: leases are never given back before their time.
    liveness: Option<Mutex<Liveness>>,
    retention: Mutex<Memory>,
    port: AtomicU16,
    tls: Option<Acceptor>,
    stop: CancellationToken,
}

impl std::fmt::Debug for Broker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Broker").field("name", &self.config.broker_name).finish_non_exhaustive()
    }
}

impl Broker {
    /// Opens the store and everything in it.
    ///
    /// # Errors
    /// A bad configuration; a store that is in use by another process, damaged or unreadable.
    pub fn open(config: BrokerConfig) -> Result<Arc<Self>, BrokerError> {
        Self::open_with_clock(config, Arc::new(SystemClock::new()))
    }

    /// The same with a clock of the caller's, so that tests can move the time.
    ///
    /// # Errors
    /// As [`Broker::open`].
    pub fn open_with_clock(config: BrokerConfig, clock: Arc<dyn Clock>) -> Result<Arc<Self>, BrokerError> {
        Self::open_with(config, clock, |_| {})
    }

    /// The same with changes to how the store is opened, for tests and simulation: with a disk that fails, say.
    ///
    /// # Errors
    /// As [`Broker::open`].
    pub fn open_with(
        config: BrokerConfig,
        clock: Arc<dyn Clock>,
        adjust: impl FnOnce(&mut Options),
    ) -> Result<Arc<Self>, BrokerError> {
        config
            .validate()
            .map_err(|invalid| BrokerError::InvalidParameter(format!("{} {}", invalid.key, invalid.reason)))?;
        let tls = config.tls().map_err(|error| BrokerError::InvalidParameter(format!("tlsServerCertPath: {error}")))?;
        let config = Arc::new(config);
        let metrics = Arc::new(Metrics::default());
        let mut store_options = store_options(&config);
        adjust(&mut store_options);
        let in_force: InForce = Arc::new(ArcSwap::new(Arc::clone(&config)));
        let core = Core::open(
            Arc::clone(&in_force),
            Arc::clone(&clock),
            Arc::clone(&metrics),
            config.listen_port,
            store_options.clone(),
        )?;
        let liveness = watch(&config, clock.now_ms(), &core);
        let broker = Arc::new(Self {
            port: AtomicU16::new(config.listen_port),
            tls,
            config,
            in_force,
            store_options,
            clock,
            metrics,
            core: ArcSwap::from_pointee(core),
            clients: Mutex::default(),
            liveness,
            retention: Mutex::default(),
            stop: CancellationToken::new(),
        });
        broker.metrics.watch_store(&broker);
        Ok(broker)
    }

    /// Serves the remoting port until `stop`, then answers what is in hand and closes the store.
    pub async fn serve(self: &Arc<Self>, listener: TcpListener, stop: CancellationToken) {
        if let Ok(address) = listener.local_addr() {
            self.port.store(address.port(), Ordering::Relaxed);
            info!(name = self.config.broker_name, %address, announced = self.announced_address(), "broker listens");
        }
        let housekeeping = tokio::spawn(Arc::clone(self).keep_house());
        if let Some(tls) = self.tls.clone() {
            tokio::spawn(tls.watch(CERTIFICATE_LOOK, stop.clone()));
        }
        let accepting = CancellationToken::new();
        let grace = Duration::from_secs(self.config.shutdown_grace_seconds);
        let serving = tokio::spawn(server::serve(Arc::clone(self), listener, accepting.clone(), grace));
        stop.cancelled().await;
        // Long polls end first, so that the requests in hand are short ones.
        self.stop.cancel();
        self.core().stop_polls();
        accepting.cancel();
        if let Err(error) = serving.await {
            error!(%error, "the listener failed");
        }
        housekeeping.abort();
        self.close();
    }

    /// Writes what is left to write and gives the store's directory back. Later requests are answered SERVICE_NOT_AVAILABLE.
    pub fn close(&self) {
        self.stop.cancel();
        self.core().stop_polls();
        match self.core().store().close() {
            Ok(()) => info!("the store is closed"),
            Err(error) => warn!(%error, "the store could not be closed cleanly; it recovers when it is opened"),
        }
    }

    /// Answers one request; `None` for one that wants no answer.
    pub async fn handle(&self, peer: &Peer, request: Command) -> Option<Command> {
        let oneway = request.is_oneway();
        let answer = server::dispatch(self, peer, &request).await;
        (!oneway).then_some(answer)
    }

    /// Whether the broker can serve.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn ready(&self) -> Result<(), String> {
        if self.is_stopping() {
            return Err("the broker is stopping".into());
        }
        match self.core().store().health() {
            // With a full disk it still delivers and takes acknowledgements; being taken out of service would end that, too.
            Health::Ok | Health::DiskFull => Ok(()),
            Health::Failed(reason) => Err(format!("the store failed: {reason}")),
        }
    }

    /// The configuration that the broker was started with.
    pub fn config(&self) -> &BrokerConfig {
        &self.config
    }

    /// The configuration that counts now.
    pub fn in_force(&self) -> Arc<BrokerConfig> {
        self.in_force.load_full()
    }

    /// Puts the keys of `file` in force that need no restart ([`crate::DYNAMIC`]). Answers those of the others that differ.
    ///
    /// # Errors
    /// What does not fit together with what the broker was started with; nothing is changed.
    pub fn reconfigure(&self, file: &BrokerConfig) -> Result<Vec<String>, Invalid> {
        let wanted = self.config.with_dynamic_keys_of(file);
        wanted.validate()?;
        self.in_force.store(Arc::new(wanted));
        Ok(self.config.needs_restart(file))
    }

    /// The counters.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// The address that routes tell clients to connect to.
    pub fn announced_address(&self) -> String {
        let port = match self.config.announced_port {
            0 => self.port.load(Ordering::Relaxed),
            port => port,
        };
        with_port(&self.config.broker_host, port)
    }

    /// The core of this moment. After a failure of the store another one takes its place, so it is not to be kept.
    pub fn core(&self) -> Arc<Core> {
        self.core.load_full()
    }

    pub(crate) fn name(&self) -> &str {
        &self.config.broker_name
    }

    pub(crate) fn now(&self) -> i64 {
        self.clock.now_ms()
    }

    /// What accepts TLS connections, if there is a certificate.
    pub(crate) fn tls(&self) -> Option<&Acceptor> {
        self.tls.as_ref()
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Cancelled when the broker stops.
    pub(crate) fn stopping(&self) -> &CancellationToken {
        &self.stop
    }

    pub(crate) fn retention(&self) -> &Mutex<Memory> {
        &self.retention
    }

    pub(crate) fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock()
    }

    /// The address inside message ids.
    pub(crate) fn store_host(&self) -> SocketAddr {
        self.core().store_host()
    }

    pub(crate) fn connection_closed(&self, peer: &Peer) {
        self.clients.lock().connection_closed(peer.connection);
    }

    /// A client asked for messages through a sidecar.
    pub(crate) fn client_seen(&self, client: &str) {
        if let Some(liveness) = &self.liveness
            && !liveness.lock().seen(self.now(), client)
        {
            self.metrics.client_not_watched();
        }
    }

    /// A sidecar speaks for its clients. Answers which of those it takes for gone are alive elsewhere.
    ///
    /// # Errors
    /// The broker watches no clients.
    pub(crate) fn vouch(&self, said: VouchBody) -> Result<Vec<String>, BrokerError> {
        let Some(liveness) = &self.liveness else {
            return Err(BrokerError::NotSupported("clientGoneAfter is 0: the broker does not watch clients".into()));
        };
        let now = self.now();
        let sidecar: Arc<str> = said.sidecar_id.into();
        let mut liveness = liveness.lock();
        for client in &said.alive {
            if !client.is_empty() && !liveness.vouch(now, &sidecar, client) {
                self.metrics.client_not_watched();
            }
        }
        for client in &said.left {
            liveness.goodbye(now, &sidecar, client);
        }
        Ok(said.gone.into_iter().filter(|client| liveness.leave(now, &sidecar, client)).collect())
    }

    /// Gives back what clients hold that nobody has vouched for long enough. Answers how many leases that were.
    ///
    /// # Errors
    /// The store takes no writes; the clients are taken up again, and the next call tries once more.
    pub async fn release_gone_clients(&self) -> Result<u64, BrokerError> {
        let Some(liveness) = &self.liveness else { return Ok(0) };
        let gone = liveness.lock().sweep(self.now());
        if gone.is_empty() {
            return Ok(0);
        }
        match self.core().release_clients(&gone).await {
            Ok(leases) => {
                self.metrics.clients_gone(gone.len() as u64, leases);
                if leases > 0 {
                    info!(
                        clients = gone.len(),
                        leases, "nobody vouches for these clients; what they held is given back"
                    );
                }
                Ok(leases)
            }
            Err(error) => {
                let mut liveness = liveness.lock();
                let since = self.now().saturating_sub(liveness.gone_after_ms());
                for client in &gone {
                    liveness.holds(since, client);
                }
                Err(error)
            }
        }
    }

    /// Asks producers about transactions that are open for long, and gives up those about which they were asked often enough. Answers how
    /// many questions were asked.
    ///
    /// # Errors
    /// The store takes no writes; the next call tries once more.
    pub async fn check_transactions(&self) -> Result<u64, BrokerError> {
        let mut told = 0;
        loop {
            let core = self.core();
            let due = core.transactions_due(limits::CHECKS_PER_BATCH).await?;
            if due.is_empty() {
                return Ok(told);
            }
            let (mut asked, mut postponed) = (Vec::new(), Vec::new());
            // It may have been decided meanwhile.
            for question in due.iter().filter(|question| core.open_half(question.position).is_some()) {
                let list = if self.ask(question) { &mut asked } else { &mut postponed };
                list.push(question.position);
            }
            self.metrics.transaction_checks(asked.len() as u64);
            self.metrics.nobody_to_ask(postponed.len() as u64);
            told += asked.len() as u64;
            // What nobody was told does not count as a question. (After a crash right here one is asked once more than is counted.)
            core.asked(&asked, &postponed).await?;
        }
    }

    /// Asks a producer what became of a transaction. False if none can be told.
    fn ask(&self, question: &Question) -> bool {
        let producers = self.clients().producers(&question.producer_group);
        let Some(request) = server::question(self, question).filter(|_| !producers.is_empty()) else { return false };
        // Another one each time, as far as there are others.
        let first = question.checks as usize % producers.len();
        producers[first..].iter().chain(&producers[..first]).any(|producer| producer.tell(request.clone()))
    }

    /// Those of these clients that are watched, and when somebody last vouched for them, milliseconds since 1970.
    pub(crate) fn vouched_for<'a>(&self, clients: impl Iterator<Item = &'a str>) -> BTreeMap<String, i64> {
        let Some(liveness) = &self.liveness else { return BTreeMap::new() };
        let clients: BTreeSet<&str> = clients.collect();
        let liveness = liveness.lock();
        let last = clients.into_iter().filter_map(|client| Some((client.to_owned(), liveness.last_ms(client)?)));
        last.collect()
    }

    /// Whether this client is watched: somebody vouched for it, or it asked for messages, not long ago.
    pub(crate) fn is_watched(&self, client: &str) -> bool {
        self.liveness.as_ref().is_some_and(|liveness| liveness.lock().last_ms(client).is_some())
    }

    /// Clients whose life is watched.
    pub(crate) fn clients_watched(&self) -> usize {
        self.liveness.as_ref().map_or(0, |liveness| liveness.lock().len())
    }

    /// Moves the delayed messages that are due now to their queues. Answers how many that were.
    ///
    /// # Errors
    /// The store takes no writes, or cannot be read; the next call goes on with the same messages.
    pub async fn deliver_due(&self) -> Result<usize, BrokerError> {
        let mut messages = 0;
        loop {
            match self.core().deliver_due().await? {
                Step::Moved(more) => messages += more,
                Step::Wait(_) => return Ok(messages),
            }
        }
    }

    /// Delivers delayed messages when they are due, drops old ones, and looks after the store and after silent clients once a second,
    /// until the broker stops. [`Broker::serve`] does it; whoever only calls [`Broker::handle`] runs it beside.
    pub async fn keep_house(self: Arc<Self>) {
        tokio::join!(self.deliver_delayed(), self.keep_log_short(), self.look_after());
    }

    /// One batch after the other while messages are due, and other work between them.
    async fn deliver_delayed(&self) {
        while !self.is_stopping() {
            let core = self.core();
            let wait = match core.deliver_due().await {
                Ok(Step::Moved(_)) => {
                    tokio::task::yield_now().await;
                    continue;
                }
                Ok(Step::Wait(None)) => HOUSEKEEPING,
                Ok(Step::Wait(Some(at))) => {
                    let now = u64::try_from(self.now()).unwrap_or(0);
                    Duration::from_millis(at.saturating_sub(now)).min(HOUSEKEEPING)
                }
                Err(error) => {
                    if !self.is_stopping() {
                        warn!(%error, "delayed messages could not be delivered; tried again in a second");
                    }
                    HOUSEKEEPING
                }
            };
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = core.until_sooner(wait) => {}
            }
        }
    }

    async fn look_after(&self) {
        let expiry = i64::try_from(self.config.channel_expired_timeout).unwrap_or(i64::MAX);
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = tokio::time::sleep(HOUSEKEEPING) => {}
            }
            let now = self.now();
            self.clients.lock().expire(now, expiry);
            match self.core().store().health() {
                Health::Failed(reason) => self.reopen(&reason),
                // What is written to files without a name is lost.
                Health::Ok | Health::DiskFull if !self.store_options.is_there() => self.reopen("its directory is gone"),
                Health::Ok | Health::DiskFull => {}
            }
            if let Err(error) = self.release_gone_clients().await {
                warn!(%error, "what gone clients hold could not be given back; tried again in a second");
            }
            if let Err(error) = self.check_transactions().await {
                warn!(%error, "producers could not be asked about open transactions; tried again in a second");
            }
        }
    }

    /// The store failed: what is in memory may be ahead of what is on disk, so all of it is read again.
    fn reopen(&self, reason: &str) {
        error!(reason, "the store failed and is opened again");
        let failed = self.core();
        failed.stop_polls();
        if let Err(error) = failed.store().close() {
            warn!(%error, "closing the failed store");
        }
        let port = self.port.load(Ordering::Relaxed);
        let options = self.store_options.clone();
        if !options.is_there() {
            // A new one in its place would make everybody believe that there was never a message.
            error!(dir = %options.dir.display(), "the store is not there any more; the next try is in a second");
            return;
        }
        match Core::open(Arc::clone(&self.in_force), Arc::clone(&self.clock), Arc::clone(&self.metrics), port, options)
        {
            Ok(core) => {
                self.core.store(Arc::new(core));
                self.metrics.store_reopened();
                info!("the store is open again");
            }
            Err(error) => error!(%error, "the store could not be opened again; the next try is in a second"),
        }
    }
}

/// Everybody who holds something from before gets the full time to be vouched for.
fn watch(config: &BrokerConfig, now_ms: i64, core: &Core) -> Option<Mutex<Liveness>> {
    let gone_after = i64::try_from(config.client_gone_after).unwrap_or(i64::MAX);
    if gone_after == 0 {
        return None;
    }
    let mut liveness = Liveness::new(now_ms, gone_after);
    for holder in core.holders() {
        liveness.holds(now_ms, &holder);
    }
    Some(Mutex::new(liveness))
}
