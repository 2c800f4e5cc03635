//! A connection of a client to a sidecar: two ends, and what carries bytes between them.

use std::sync::Arc;

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex, split};
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

use crate::net::{Cut, Net};
use crate::sidecar::SidecarNode;
use crate::sim::Sim;

/// Bytes on their way in one direction.
const ROOM: usize = 64 * 1024;

/// A channel that connects when it is used, and again when the connection is lost.
pub(super) fn channel(sim: &Arc<Sim>, net: &Arc<Net>, sidecar: &Arc<SidecarNode>, client: &str) -> Channel {
    let (sim, net, sidecar, client) = (sim.clone(), net.clone(), sidecar.clone(), client.to_owned());
    let connect = move |_: Uri| {
        let (sim, net, sidecar, client) = (sim.clone(), net.clone(), sidecar.clone(), client.clone());
        async move { dial(&sim, &net, &sidecar, &client).await.map(TokioIo::new) }
    };
    Endpoint::from_static("http://sidecar").connect_with_connector_lazy(service_fn(connect))
}

async fn dial(
    sim: &Arc<Sim>,
    net: &Arc<Net>,
    sidecar: &Arc<SidecarNode>,
    client: &str,
) -> Result<DuplexStream, std::io::Error> {
    let refused = || std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
    sim.sleep(1).await;
    if net.state(client, &sidecar.name).is_some() || !sidecar.is_up() {
        return Err(refused());
    }
    let (client_end, near) = duplex(ROOM);
    let (far, server_end) = duplex(ROOM);
    let wire = Wire { sim: sim.clone(), net: net.clone(), client: client.to_owned(), sidecar: sidecar.name.clone() };
    let wire = tokio::spawn(wire.carry(near, far)).abort_handle();
    if sidecar.accept(server_end, wire.clone()) {
        return Ok(client_end);
    }
    wire.abort();
    Err(refused())
}

struct Wire {
    sim: Arc<Sim>,
    net: Arc<Net>,
    client: String,
    sidecar: String,
}

impl Wire {
    /// Carries until one side closes; then the other sees it closed, too.
    async fn carry(self, near: DuplexStream, far: DuplexStream) {
        let (near_reader, near_writer) = split(near);
        let (far_reader, far_writer) = split(far);
        let there = std::pin::pin!(self.pump(near_reader, far_writer));
        let back = std::pin::pin!(self.pump(far_reader, near_writer));
        futures::future::select(there, back).await;
    }

    async fn pump(&self, mut from: ReadHalf<DuplexStream>, mut to: WriteHalf<DuplexStream>) {
        let mut buffer = vec![0; 16 * 1024];
        loop {
            let Ok(read @ 1..) = from.read(&mut buffer).await else { return };
            self.sim.sleep_within(0..=1).await;
            loop {
                match self.net.state(&self.client, &self.sidecar) {
                    None => break,
                    Some(Cut::Refused) => return,
                    Some(Cut::Silent) => self.sim.sleep(100).await,
                }
            }
            if to.write_all(&buffer[..read]).await.is_err() {
                return;
            }
        }
    }
}
