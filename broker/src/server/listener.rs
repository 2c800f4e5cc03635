//! The remoting listener: accepts connections until it is told to stop, then waits for what is in hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};
use waybill_ops::listen::canonical;

use super::connection;
use super::door::Door;
use crate::Broker;
use crate::limits;

static CONNECTIONS: AtomicU64 = AtomicU64::new(1);

/// Serves remoting requests until `stop`, then lets requests in hand finish for at most `grace`.
pub(crate) async fn serve(broker: Arc<Broker>, listener: TcpListener, stop: CancellationToken, grace: Duration) {
    let slots = Arc::new(Semaphore::new(limits::CONNECTIONS_MAX));
    let tasks = TaskTracker::new();
    let door = Arc::new(Door::new(broker.tls().cloned()));
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, address) = match accepted {
            Ok((stream, address)) => (stream, canonical(address)),
            Err(error) => {
                // Out of file descriptors, most often: accepting again at once would spin.
                warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else {
            broker.metrics.connection_refused();
            warn!(%address, limit = limits::CONNECTIONS_MAX, "too many connections, this one is closed");
            continue;
        };
        let id = CONNECTIONS.fetch_add(1, Ordering::Relaxed);
        let (broker, door, stop) = (Arc::clone(&broker), Arc::clone(&door), stop.clone());
        tasks.spawn(async move {
            if let Err(error) = stream.set_nodelay(true) {
                debug!(%address, %error, "TCP_NODELAY could not be set");
            }
            let mode = broker.in_force().tls_server_mode;
            if let Some(stream) = door.let_in(stream, address, mode, &broker.metrics, &stop).await {
                connection::serve(stream, address, id, broker, stop).await;
            }
            drop(slot);
        });
    }
    drop(listener);
    tasks.close();
    if tokio::time::timeout(grace, tasks.wait()).await.is_err() {
        warn!(connections = tasks.len(), "stopped with requests in hand, the grace time is over");
    } else {
        info!("every request in hand was answered");
    }
}
