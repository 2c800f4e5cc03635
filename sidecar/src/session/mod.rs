//! The clients of this sidecar: their settings, their telemetry streams, and whether they are still there.

mod registry;
mod settings;
mod strangers;
mod vouching;

use std::collections::{BTreeSet, HashMap};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use waybill_ops::{clock::Clock, config::Live};
use waybill_protocol::grpc::v2::{Resource, Settings, TelemetryCommand};

use self::registry::{Departure, Patience, Registry};
pub use self::registry::{Full, Profile};
pub(crate) use self::settings::{carry_over, command as settings_command, is_fifo, max_attempts, merge};
use self::strangers::{Call, Strangers};
use self::vouching::Vouching;
pub use self::vouching::{Heard, Vouch, Words};
use crate::config::Config;
use crate::limits;
use crate::receipts::Receipts;

/// What sends commands to a client's telemetry stream.
pub type CommandSender = mpsc::Sender<Result<TelemetryCommand, tonic::Status>>;

/// The clients that are known. Cheap to clone.
#[derive(Clone)]
pub struct Sessions {
    inner: Arc<Inner>,
}

struct Inner {
    registry: Mutex<Registry<CommandSender>>,
    strangers: Mutex<Strangers>,
    /// Clients that are not here any more but hold something from brokers, these, that have not said whether they are at another
    /// sidecar. They are no more than the messages that are kept.
    undecided: Mutex<HashMap<String, Vec<Arc<str>>>>,
    receipts: Receipts,
    config: Arc<Live<Config>>,
    clock: Arc<dyn Clock>,
    streams: AtomicU64,
    /// Rings when a client has sent settings.
    registered: Notify,
    /// Rings when producers may have come or gone.
    producers: Notify,
    vouching: Vouching,
}

impl Sessions {
    /// Knows nobody yet. [`Sessions::run`] must run for departures to be seen, and for brokers to be told who is alive.
    #[must_use]
    pub fn new(receipts: Receipts, vouch: Arc<dyn Vouch>, config: Arc<Live<Config>>, clock: Arc<dyn Clock>) -> Self {
        let (registry, strangers, undecided) = (Mutex::default(), Mutex::default(), Mutex::default());
        let (streams, vouching) = (AtomicU64::new(0), Vouching::new(vouch));
        let (registered, producers) = (Notify::new(), Notify::new());
        Self {
            inner: Arc::new(Inner {
                registry,
                strangers,
                undecided,
                receipts,
                config,
                clock,
                streams,
                registered,
                producers,
                vouching,
            }),
        }
    }

    /// A number for a new telemetry stream.
    #[must_use]
    pub fn next_stream(&self) -> u64 {
        self.inner.streams.fetch_add(1, Ordering::Relaxed)
    }

    /// The client sent settings over that telemetry stream.
    ///
    /// # Errors
    /// There are too many clients.
    pub fn register(&self, client_id: &str, profile: Profile, stream: u64, sender: CommandSender) -> Result<(), Full> {
        let now_ms = self.inner.clock.now_ms();
        let consumes = profile.group.is_some();
        self.inner.registry.lock().register(now_ms, client_id, profile, (stream, sender))?;
        self.inner.strangers.lock().forget(client_id);
        self.inner.receipts.client_back(client_id);
        if consumes {
            self.inner.vouching.arrived(client_id);
        } else {
            self.inner.producers.notify_one();
        }
        self.inner.registered.notify_waiters();
        Ok(())
    }

    /// What is known of the client as soon as it has sent settings; nothing if it has not after `limit`.
    pub async fn profile_within(&self, client_id: &str, limit: Duration) -> Option<Profile> {
        let known = async {
            loop {
                let mut registered = pin!(self.inner.registered.notified());
                // From here on no registration is missed.
                registered.as_mut().enable();
                if let Some(profile) = self.profile(client_id) {
                    return profile;
                }
                registered.await;
            }
        };
        tokio::time::timeout(limit, known).await.ok()
    }

    /// The telemetry stream with that number closed.
    pub fn stream_closed(&self, client_id: &str, stream: u64) {
        self.inner.registry.lock().stream_closed(self.inner.clock.now_ms(), client_id, stream);
    }

    /// The client called; every call is a sign of life.
    pub fn heard(&self, client_id: &str) {
        let back = self.inner.registry.lock().heard(self.inner.clock.now_ms(), client_id);
        if back {
            self.inner.receipts.client_back(client_id);
            self.inner.vouching.arrived(client_id);
        }
    }

    /// A consumer that sent no settings called. It may hold messages of another sidecar, so brokers are told that it is alive.
    /// True when it has been calling for so long that it is not about to send settings.
    pub fn stranger(&self, client_id: &str) -> bool {
        let now_ms = self.inner.clock.now_ms();
        match self.inner.strangers.lock().heard(now_ms, client_id) {
            Call::Since(first_ms) => now_ms.saturating_sub(first_ms) >= limits::STRANGER_PATIENCE_MS,
            Call::First => {
                self.inner.vouching.arrived(client_id);
                false
            }
            Call::Late => false,
        }
    }

    /// The client is known from now on by what its calls say, as if it had sent settings.
    ///
    /// # Errors
    /// There are too many clients.
    pub fn adopt(&self, client_id: &str, profile: Profile) -> Result<(), Full> {
        self.inner.registry.lock().adopt(self.inner.clock.now_ms(), client_id, profile)?;
        self.inner.strangers.lock().forget(client_id);
        // It may have been thought gone a moment ago.
        self.inner.receipts.client_back(client_id);
        Ok(())
    }

    /// A call of the client waits until the guard is dropped.
    #[must_use]
    pub fn waiting_call(&self, client_id: &str) -> WaitingCall {
        self.inner.registry.lock().call_began(client_id);
        WaitingCall { sessions: self.clone(), client_id: client_id.to_owned() }
    }

    /// What is known of the client; nothing before it has sent settings.
    #[must_use]
    pub fn profile(&self, client_id: &str) -> Option<Profile> {
        self.inner.registry.lock().profile(client_id)
    }

    /// The settings of the client have changed on the server's side; the client is told if it can be. It never waits: a
    /// client that does not read its stream learns of it at its next own settings.
    pub fn settings_changed(&self, client_id: &str, merged: Arc<Settings>) {
        let mut registry = self.inner.registry.lock();
        if let Some(sender) = registry.remerged(client_id, merged.clone())
            && sender.try_send(Ok(settings_command(&merged))).is_err()
        {
            tracing::debug!(client_id, "the client does not read its telemetry stream");
        }
    }

    /// The client says goodbye: it is forgotten and what it holds is given back. False if nobody knew it.
    pub fn terminate(&self, client_id: &str) -> bool {
        // First, so that a call that finds no profile any more is known to be late.
        let stranger = self.inner.strangers.lock().goodbye(self.inner.clock.now_ms(), client_id);
        let known = self.inner.registry.lock().terminate(client_id);
        if known {
            self.inner.producers.notify_one();
            self.inner.receipts.client_gone(client_id, None);
            self.correct(client_id);
        }
        if known || stranger {
            self.inner.vouching.left(client_id);
        }
        known || stranger
    }

    /// The topics that producers here publish to.
    #[must_use]
    pub fn published(&self) -> BTreeSet<String> {
        self.inner.registry.lock().published()
    }

    /// Some of the producers of a topic that can be told something, and how each calls the topic.
    #[must_use]
    pub fn producers_of(&self, topic: &str) -> Vec<(Resource, CommandSender)> {
        self.inner.registry.lock().producers_of(topic)
    }

    /// Until producers may have come or gone.
    pub async fn producers_changed(&self) {
        self.inner.producers.notified().await;
    }

    /// How many clients are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.registry.lock().len()
    }

    /// Whether nobody is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Looks for clients that have left, once. What they hold is given back, unless they are alive at another sidecar.
    pub async fn sweep(&self) {
        let patience = Patience {
            stream_closed_ms: limits::STREAM_CLOSED_GRACE_MS,
            streamless_ms: limits::STREAMLESS_GRACE_MS,
            expired_ms: self.inner.config.get().channel_expired_timeout_ms,
        };
        self.inner.strangers.lock().sweep(self.inner.clock.now_ms());
        let departures = self.inner.registry.lock().sweep(self.inner.clock.now_ms(), patience);
        if !departures.is_empty() {
            self.let_go(departures).await;
        }
    }

    async fn let_go(&self, departures: Vec<Departure>) {
        let consumers = departures.iter().filter(|departure| departure.consumes);
        let consumers: Vec<String> = consumers.map(|departure| departure.client_id.clone()).collect();
        let heard = match consumers.is_empty() {
            true => Heard::default(),
            false => self.inner.vouching.ask(consumers).await,
        };
        for Departure { client_id, forgotten, .. } in departures {
            if self.judge(&client_id, &heard, heard.silent.clone()) {
                tracing::info!(client_id, forgotten, "the client has left");
            }
        }
    }

    /// [`Sessions::sweep`], but where the last look is much longer ago than it can be, the clock was set forward, or the process or its machine stood
    /// still: in that time nobody was silent.
    async fn look(&self, looked_ms: &AtomicI64) {
        let now_ms = self.inner.clock.now_ms();
        let gap_ms = now_ms.saturating_sub(looked_ms.load(Ordering::Relaxed));
        if gap_ms >= limits::LATE_LOOK_MS {
            tracing::warn!(gap_ms, "the clock was set forward or the process stood still, nobody is taken for silent");
            self.inner.registry.lock().forgive(now_ms, gap_ms);
        }
        self.sweep().await;
        // Not before: brokers that do not answer make a sweep long.
        looked_ms.store(self.inner.clock.now_ms(), Ordering::Relaxed);
    }

    /// Decides what becomes of a client that went away: `silent` are the brokers, of those that have messages of it, that did not
    /// say whether it is at another sidecar. They are asked again. True if the client has left, as far as the others know.
    fn judge(&self, client_id: &str, heard: &Heard, silent: Vec<Arc<str>>) -> bool {
        let mut undecided = self.inner.undecided.lock();
        undecided.remove(client_id);
        if heard.elsewhere.contains(client_id) {
            // It may still acknowledge what it got here; its leases are kept alive until the broker says otherwise.
            tracing::info!(client_id, "the client is at another sidecar now");
            return false;
        }
        if self.inner.registry.lock().is_here(client_id) {
            return false;
        }
        if self.inner.receipts.client_gone_but_from(client_id, &silent) > 0 {
            undecided.insert(client_id.to_owned(), silent);
        }
        self.correct(client_id);
        true
    }

    /// A client that came back in the very moment in which it was taken for gone: its own word was perhaps heard first.
    fn correct(&self, client_id: &str) {
        if self.inner.registry.lock().is_here(client_id) {
            self.inner.receipts.client_back(client_id);
        }
    }

    /// Asks once more about clients of which a broker has not said whether they are at another sidecar.
    pub async fn ask_again(&self) {
        let asked = self.inner.undecided.lock().clone();
        if asked.is_empty() {
            return;
        }
        let heard = self.inner.vouching.ask(asked.keys().cloned().collect()).await;
        for (client_id, mut silent) in asked {
            silent.retain(|broker| heard.silent.contains(broker));
            self.judge(&client_id, &heard, silent);
        }
    }

    /// Looks for clients that have left, and tells brokers who is here, until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let present = || {
            let mut present = self.inner.registry.lock().consumers();
            present.extend(self.inner.strangers.lock().names().cloned());
            present
        };
        // Apart, so that a broker that does not answer holds up nobody who has just left.
        let looked_ms = AtomicI64::new(self.inner.clock.now_ms());
        let departures = every_scan(&stop, || self.look(&looked_ms));
        let undecided = every_scan(&stop, || self.ask_again());
        tokio::join!(departures, undecided, self.inner.vouching.run(present, stop.clone()));
    }
}

/// Does something again and again until `stop`.
async fn every_scan<F: Future<Output = ()>>(stop: &CancellationToken, what: impl Fn() -> F) {
    let mut ticks = tokio::time::interval(Duration::from_millis(limits::DEPARTURE_SCAN_MS));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _tick = ticks.tick() => what().await,
        }
    }
}

/// The client is there as long as this lives.
pub struct WaitingCall {
    sessions: Sessions,
    client_id: String,
}

impl Drop for WaitingCall {
    fn drop(&mut self) {
        let inner = &self.sessions.inner;
        inner.registry.lock().call_ended(inner.clock.now_ms(), &self.client_id);
    }
}

#[cfg(test)]
mod tests;
