//! The clients of this sidecar: their settings, their telemetry streams, and whether they are still there.

mod registry;
mod settings;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use waybill_ops::{clock::Clock, config::Live};
use waybill_protocol::grpc::v2::{Settings, TelemetryCommand};

pub use self::registry::{Full, Profile};
use self::registry::{Patience, Registry};
pub(crate) use self::settings::{carry_over, command as settings_command, is_fifo, max_attempts, merge};
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
    receipts: Receipts,
    config: Arc<Live<Config>>,
    clock: Arc<dyn Clock>,
    streams: AtomicU64,
}

impl Sessions {
    /// Knows nobody yet. [`Sessions::run`] must run for departures to be seen.
    #[must_use]
    pub fn new(receipts: Receipts, config: Arc<Live<Config>>, clock: Arc<dyn Clock>) -> Self {
        let registry = Mutex::new(Registry::default());
        Self { inner: Arc::new(Inner { registry, receipts, config, clock, streams: AtomicU64::new(0) }) }
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
        self.inner.registry.lock().register(now_ms, client_id, profile, (stream, sender))?;
        self.inner.receipts.client_back(client_id);
        Ok(())
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
        }
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
        let known = self.inner.registry.lock().terminate(client_id);
        if known {
            self.inner.receipts.client_gone(client_id, None);
        }
        known
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

    /// Looks for clients that have left, once.
    pub fn sweep(&self) {
        let patience = Patience {
            stream_closed_ms: limits::STREAM_CLOSED_GRACE_MS,
            expired_ms: self.inner.config.get().channel_expired_timeout_ms,
        };
        let departures = self.inner.registry.lock().sweep(self.inner.clock.now_ms(), patience);
        for departure in departures {
            tracing::info!(client_id = departure.client_id, forgotten = departure.forgotten, "the client has left");
            self.inner.receipts.client_gone(&departure.client_id, None);
        }
    }

    /// Looks for clients that have left until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(Duration::from_millis(limits::DEPARTURE_SCAN_MS));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _tick = ticks.tick() => self.sweep(),
            }
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
