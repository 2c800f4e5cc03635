//! Accepting connections: how many, for how long they may be silent, and what they turn out to be.

use std::{future::Future, io, net::SocketAddr, pin::Pin, sync::Arc, task::Context, time::Duration};

use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::{sleep, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use waybill_ops::{listen::canonical, tls::TLS_HANDSHAKE};

use super::{io::ClientIo, tls::Tls};

/// After a failed accept (mostly: too many open files) it is not tried again at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Connections that are ready and wait for the server to take them.
const READY: usize = 64;

/// Limits of [`incoming`].
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at the same time; more are closed at once.
    pub connections: usize,
    /// TLS handshakes at the same time; more wait.
    pub handshakes: usize,
    /// From the accept to the end of the handshake, and of HTTP/2's first words.
    pub handshake_timeout: Duration,
}

/// What is counted about connections. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct ServeMetrics {
    open: Gauge,
    refused: Counter,
    failed: Counter,
}

impl ServeMetrics {
    /// Adds the metrics to `registry`.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("waybill_sidecar_connections", "Connections of clients that are open", self.open.clone());
        registry.register(
            "waybill_sidecar_connections_refused",
            "Connections of clients that were closed because there were too many",
            self.refused.clone(),
        );
        registry.register(
            "waybill_sidecar_handshakes_failed",
            "Connections of clients that did not come to speak HTTP/2 in time",
            self.failed.clone(),
        );
    }
}

/// One of the permitted connections, and its share in the count. Free again when it is dropped.
pub(super) struct Place {
    open: Gauge,
    _permit: OwnedSemaphorePermit,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Place {
    fn new(permit: OwnedSemaphorePermit, open: &Gauge, cut: CancellationToken) -> Self {
        open.inc();
        Self { open: open.clone(), _permit: permit, cut: Box::pin(cut.cancelled_owned()) }
    }

    /// Whether the connection has to end now; if not, the task is woken when it has to.
    pub(super) fn cut(&mut self, context: &mut Context<'_>) -> bool {
        self.cut.as_mut().poll(context).is_ready()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.open.dec();
    }
}

/// What a new connection needs to become a [`ClientIo`].
struct Door {
    tls: Tls,
    handshakes: Semaphore,
    limits: Limits,
    metrics: ServeMetrics,
    ready: mpsc::Sender<io::Result<ClientIo>>,
    cut: CancellationToken,
}

/// Connections from `listener`, ready for the gRPC server, until `stop`. `cut` ends those that are still open.
pub fn incoming(
    listener: TcpListener,
    tls: Tls,
    limits: Limits,
    metrics: ServeMetrics,
    stop: CancellationToken,
    cut: CancellationToken,
) -> ReceiverStream<io::Result<ClientIo>> {
    let (ready, connections) = mpsc::channel(READY);
    let handshakes = Semaphore::new(limits.handshakes.clamp(1, Semaphore::MAX_PERMITS));
    let door = Arc::new(Door { tls, handshakes, limits, metrics, ready, cut });
    tokio::spawn(async move {
        tokio::select! {
            () = accept_loop(listener, door) => {}
            () = stop.cancelled() => {}
        }
    });
    ReceiverStream::new(connections)
}

async fn accept_loop(listener: TcpListener, door: Arc<Door>) {
    let places = Arc::new(Semaphore::new(door.limits.connections.clamp(1, Semaphore::MAX_PERMITS)));
    loop {
        let (socket, peer) = match listener.accept().await {
            Ok((socket, peer)) => (socket, canonical(peer)),
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&places).try_acquire_owned() else {
            door.metrics.refused.inc();
            tracing::debug!(%peer, "too many connections");
            continue;
        };
        let place = Place::new(permit, &door.metrics.open, door.cut.clone());
        let door = Arc::clone(&door);
        tokio::spawn(async move {
            match timeout(door.limits.handshake_timeout, door.admit(socket, peer, place)).await {
                Ok(Ok(client)) => {
                    // If the server is gone, so is the connection.
                    let _ = door.ready.send(Ok(client)).await;
                }
                Ok(Err(error)) => door.refuse(peer, &error.to_string()),
                Err(_late) => door.refuse(peer, "too slow"),
            }
        });
    }
}

impl Door {
    fn refuse(&self, peer: SocketAddr, reason: &str) {
        self.metrics.failed.inc();
        tracing::debug!(%peer, reason, "connection closed before its first call");
    }

    async fn admit(&self, socket: TcpStream, peer: SocketAddr, place: Place) -> io::Result<ClientIo> {
        socket.set_nodelay(true)?;
        let mut first = [0];
        if socket.peek(&mut first).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if first != [TLS_HANDSHAKE] {
            return ClientIo::plain(socket, peer, place).await;
        }
        let socket = {
            let _handshake = self.handshakes.acquire().await.map_err(io::Error::other)?;
            self.tls.accept(socket).await?
        };
        ClientIo::tls(socket, peer, place).await
    }
}
