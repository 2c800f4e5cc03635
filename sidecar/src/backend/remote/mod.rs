//! Brokers over TCP: one multiplexed connection per address, made when it is needed and made again when it broke.

mod connection;
mod socket;
mod tls;

use std::{
    collections::HashMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};
use waybill_ops::tls::Stream;
use waybill_protocol::remoting::{Command, FLAG_ONEWAY};

use self::connection::{Connection, NotSent};
pub use self::tls::{TlsNow, tls_of};
use super::{
    from_brokers::{FromBrokers, OnRequest},
    transport::{Transport, TransportError},
};
use crate::config::Config;

/// The first wait after a failed connect; each further failure doubles it up to [`BACKOFF_MAX`]. During the wait
/// requests fail at once.
const BACKOFF_MIN: Duration = Duration::from_millis(50);
/// Short, so that a broker that is back is used again soon. Nothing is tried while nothing is asked for.
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// Limits of a [`RemoteTransport`].
#[derive(Clone, Copy, Debug)]
pub struct RemoteOptions {
    /// How long a connection may take to be made, name resolution included.
    pub connect_timeout: Duration,
    /// Requests that wait for their answer on one connection; at least 1.
    pub max_in_flight: usize,
    /// The largest frame accepted, in bytes.
    pub max_frame: usize,
}

impl RemoteOptions {
    /// The limits that the configuration asks for.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        Self {
            connect_timeout: Duration::from_millis(
                u64::try_from(config.backend_connect_timeout_ms).unwrap_or_default(),
            ),
            max_in_flight: usize::try_from(config.backend_max_in_flight_requests).unwrap_or(1),
            max_frame: usize::try_from(config.backend_max_frame_size).unwrap_or_default(),
        }
    }
}

/// Talks to brokers and name servers over TCP.
///
/// Must be used within a tokio runtime. When it is dropped, its connections are closed.
pub struct RemoteTransport {
    options: RemoteOptions,
    tls: TlsNow,
    peers: Mutex<HashMap<String, Arc<Peer>>>,
    /// Connections made so far.
    made: AtomicU64,
    from_brokers: FromBrokers,
}

/// One address.
#[derive(Default)]
struct Peer {
    current: Mutex<Option<Arc<Connection>>>,
    /// The number of the connection that was made last.
    number: AtomicU64,
    /// Held while connecting: one connects, the others wait for the outcome.
    connecting: tokio::sync::Mutex<Backoff>,
}

#[derive(Default)]
struct Backoff {
    failures: u32,
    /// Until when not to try again, and why the last try failed.
    down: Option<(Instant, String)>,
}

impl RemoteTransport {
    /// A transport without connections, which will not be TLS.
    #[must_use]
    pub fn new(options: RemoteOptions) -> Self {
        Self {
            options,
            tls: Arc::new(|| Ok(None)),
            peers: Mutex::default(),
            made: AtomicU64::new(0),
            from_brokers: FromBrokers::default(),
        }
    }

    /// The same, with connections as `tls` says at the time when each is made.
    #[must_use]
    pub fn with_tls(self, tls: TlsNow) -> Self {
        Self { tls, ..self }
    }

    fn peer(&self, address: &str) -> Arc<Peer> {
        let mut peers = self.peers.lock();
        if let Some(peer) = peers.get(address) {
            return Arc::clone(peer);
        }
        // Brokers come and go, pods above all: forget the addresses that nobody uses and that have no connection.
        peers.retain(|_, peer| Arc::strong_count(peer) > 1 || peer.open().is_some());
        Arc::clone(peers.entry(address.to_owned()).or_default())
    }

    /// The open connection to `address`, made if there is none.
    async fn connection(&self, peer: &Peer, address: &str) -> Result<Arc<Connection>, TransportError> {
        if let Some(connection) = peer.open() {
            return Ok(connection);
        }
        let mut backoff = peer.connecting.lock().await;
        if let Some(connection) = peer.open() {
            return Ok(connection);
        }
        if let Some((until, reason)) = &backoff.down
            && Instant::now() < *until
        {
            return Err(TransportError::Unreachable(reason.clone()));
        }
        match self.connect(address).await {
            Ok(stream) => {
                if backoff.failures > 0 {
                    tracing::info!(address, "connected again");
                }
                *backoff = Backoff::default();
                let connection = Connection::start(address, stream, &self.options, self.from_brokers.clone());
                peer.number.store(self.made.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                *peer.current.lock() = Some(Arc::clone(&connection));
                Ok(connection)
            }
            Err(error) => {
                let reason = format!("{address}: {error}");
                if backoff.failures == 0 {
                    tracing::warn!(address, %error, "cannot connect");
                }
                let wait = BACKOFF_MIN.saturating_mul(1 << backoff.failures.min(8)).min(BACKOFF_MAX);
                backoff.failures = backoff.failures.saturating_add(1);
                backoff.down = Some((Instant::now() + wait, reason.clone()));
                Err(TransportError::Unreachable(reason))
            }
        }
    }

    async fn connect(&self, address: &str) -> io::Result<Stream> {
        let tls = (self.tls)().map_err(io::Error::other)?;
        socket::connect(address, tls.as_ref(), self.options.connect_timeout).await
    }

    /// Runs `step` on the connection to `address`; once more on a new one if the first turned out to be closed before
    /// anything was sent.
    async fn on_connection<T, F>(&self, address: &str, mut request: Command, step: F) -> Result<T, TransportError>
    where
        F: AsyncFn(&Connection, Command) -> Result<T, NotSent>,
    {
        let peer = self.peer(address);
        for _ in 0..2 {
            let connection = self.connection(&peer, address).await?;
            match step(&connection, request).await {
                Ok(done) => return Ok(done),
                Err(NotSent::Overloaded) => return Err(TransportError::Overloaded),
                Err(NotSent::Closed(unsent)) => request = *unsent,
            }
        }
        Err(TransportError::Unreachable(format!("{address}: closes connections at once")))
    }
}

impl Peer {
    fn open(&self) -> Option<Arc<Connection>> {
        self.current.lock().as_ref().filter(|connection| connection.is_open()).cloned()
    }
}

#[async_trait]
impl Transport for RemoteTransport {
    async fn call(&self, address: &str, request: Command, timeout: Duration) -> Result<Command, TransportError> {
        let deadline = Instant::now() + timeout;
        let sent = self.on_connection(address, request, async |connection, request| connection.send(request).await);
        let waiting = timeout_at(deadline, sent).await.map_err(|_late| not_sent_in_time(address))??;
        timeout_at(deadline, waiting.answer()).await.map_err(|_late| TransportError::Timeout)?
    }

    fn connection(&self, address: &str) -> u64 {
        self.peers.lock().get(address).map_or(0, |peer| peer.number.load(Ordering::Relaxed))
    }

    fn on_request(&self, take: OnRequest) {
        self.from_brokers.listen(take);
    }

    async fn oneway(&self, address: &str, mut request: Command, timeout: Duration) -> Result<(), TransportError> {
        request.flag |= FLAG_ONEWAY;
        let sent = self.on_connection(address, request, async |connection, request| connection.post(request).await);
        timeout_at(Instant::now() + timeout, sent).await.map_err(|_late| not_sent_in_time(address))?
    }
}

fn not_sent_in_time(address: &str) -> TransportError {
    TransportError::Unreachable(format!("{address}: no connection in time"))
}
