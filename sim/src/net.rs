//! The network: what goes between sidecars and brokers, and between clients and sidecars, may be slow, lost or cut.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use waybill_broker::{Channel, Peer};
use waybill_protocol::remoting::{Command, FLAG_ONEWAY};
use waybill_sidecar::backend::{Transport, TransportError};

use crate::broker::BrokerNode;
use crate::sim::Sim;

/// How long a connection may take to be made.
const CONNECT_MS: i64 = 1_500;

/// How a link fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Connections are refused, and those there are break.
    Refused,
    /// Nothing comes through and nobody is told.
    Silent,
}

/// A connection of a sidecar to a broker.
struct Connection {
    number: u64,
    broker_process: u64,
    peer: Peer,
}

/// The network.
pub struct Net {
    sim: Arc<Sim>,
    brokers: Vec<Arc<BrokerNode>>,
    cuts: Mutex<BTreeMap<(String, String), Cut>>,
    numbers: AtomicU64,
}

impl Net {
    /// A network that works.
    #[must_use]
    pub fn new(sim: &Arc<Sim>, brokers: Vec<Arc<BrokerNode>>) -> Arc<Self> {
        Arc::new(Self { sim: sim.clone(), brokers, cuts: Mutex::default(), numbers: AtomicU64::new(0) })
    }

    /// All brokers.
    #[must_use]
    pub fn brokers(&self) -> &[Arc<BrokerNode>] {
        &self.brokers
    }

    /// Cuts the link between two, or mends it.
    pub fn cut(&self, from: &str, to: &str, cut: Option<Cut>) {
        self.sim.say("net", format_args!("{from} <-> {to}: {cut:?}"));
        let link = (from.to_owned(), to.to_owned());
        match cut {
            Some(cut) => self.cuts.lock().insert(link, cut),
            None => self.cuts.lock().remove(&link),
        };
    }

    /// How the link between two fails, if it does.
    #[must_use]
    pub fn state(&self, from: &str, to: &str) -> Option<Cut> {
        self.cuts.lock().get(&(from.to_owned(), to.to_owned())).copied()
    }

    /// Mends everything.
    pub fn heal(&self) {
        self.cuts.lock().clear();
    }
}

/// How one process of a sidecar reaches brokers.
pub struct SimTransport {
    net: Arc<Net>,
    sidecar: String,
    dead: Arc<AtomicBool>,
    connections: Mutex<BTreeMap<String, Connection>>,
}

impl SimTransport {
    /// Reaches them until `dead` is set: then nothing comes back any more.
    #[must_use]
    pub fn new(net: &Arc<Net>, sidecar: &str, dead: Arc<AtomicBool>) -> Self {
        Self { net: net.clone(), sidecar: sidecar.to_owned(), dead, connections: Mutex::default() }
    }

    /// The process ends: brokers see its connections close.
    pub fn close(&self) {
        for connection in std::mem::take(&mut *self.connections.lock()).into_values() {
            connection.peer.gone.cancel();
        }
    }

    /// The connection to a broker's process, made if need be.
    fn connect(&self, broker: &BrokerNode) -> Option<Peer> {
        let process = broker.process()?;
        let mut connections = self.connections.lock();
        if let Some(known) = connections.get(&broker.address).filter(|known| known.broker_process == process) {
            return Some(known.peer.clone());
        }
        let number = self.net.numbers.fetch_add(1, Ordering::SeqCst) + 1;
        let (address, gone) = (([10, 0, 0, 1], 40_000).into(), CancellationToken::new());
        let peer = Peer { address, connection: number, gone, channel: Channel::none() };
        connections.insert(broker.address.clone(), Connection { number, broker_process: process, peer: peer.clone() });
        Some(peer)
    }

    fn disconnect(&self, broker: &BrokerNode) {
        if let Some(connection) = self.connections.lock().remove(&broker.address) {
            connection.peer.gone.cancel();
        }
    }

    /// Sends a request on its way.
    async fn depart(
        &self,
        address: &str,
        request: Command,
        patience: Duration,
    ) -> Result<oneshot::Receiver<Result<Command, TransportError>>, TransportError> {
        let sim = &self.net.sim;
        let Some(broker) = self.net.brokers.iter().find(|broker| broker.address == address).cloned() else {
            return Err(TransportError::Unreachable("no such host".into()));
        };
        match self.net.state(&self.sidecar, &broker.name) {
            Some(Cut::Refused) => {
                self.disconnect(&broker);
                sim.sleep(1).await;
                return Err(TransportError::Unreachable("refused".into()));
            }
            Some(Cut::Silent) if !self.connections.lock().contains_key(address) => {
                sim.sleep(CONNECT_MS).await;
                return Err(TransportError::Unreachable("no answer".into()));
            }
            Some(Cut::Silent) | None => {}
        }
        let Some(peer) = self.connect(&broker) else {
            sim.sleep(1).await;
            return Err(TransportError::Unreachable("refused".into()));
        };
        let (sender, arrival) = oneshot::channel();
        tokio::spawn(fly(self.net.clone(), self.sidecar.clone(), broker, peer, request, patience, sender));
        Ok(arrival)
    }
}

type Arrival = oneshot::Sender<Result<Command, TransportError>>;

/// The way of a request to a broker, and of the answer back.
async fn fly(
    net: Arc<Net>,
    sidecar: String,
    broker: Arc<BrokerNode>,
    peer: Peer,
    request: Command,
    patience: Duration,
    arrival: Arrival,
) {
    if !net.leg(&sidecar, &broker.name, "request").await {
        return keep_waiting(arrival, patience).await;
    }
    let broken = || Err(TransportError::Connection("reset".into()));
    // A send that nobody listens to is no failure.
    let Some(answer) = broker.deliver(peer, request) else {
        let _ = arrival.send(broken());
        return;
    };
    let Ok(answer) = answer.await else {
        let _ = arrival.send(broken());
        return;
    };
    if !net.leg(&sidecar, &broker.name, "answer").await {
        return keep_waiting(arrival, patience).await;
    }
    let _ = arrival.send(Ok(answer));
}

/// What was lost: who waits is not told.
async fn keep_waiting(arrival: Arrival, patience: Duration) {
    tokio::time::sleep(patience).await;
    drop(arrival);
}

impl Net {
    /// One direction. Whether it arrives.
    async fn leg(&self, sidecar: &str, broker: &str, what: &str) -> bool {
        let sim = &self.sim;
        sim.sleep_within(0..=sim.plan.delay_ms).await;
        let lost = !sim.is_healed() && sim.dice().chance(sim.plan.loss);
        if lost {
            sim.audit().trouble(&[sidecar, broker], 4_000);
        }
        if lost || self.state(sidecar, broker).is_some() {
            sim.say("net", format_args!("lost {what} {sidecar} <-> {broker}"));
            return false;
        }
        true
    }
}

#[async_trait]
impl Transport for SimTransport {
    async fn call(&self, address: &str, request: Command, timeout: Duration) -> Result<Command, TransportError> {
        if self.dead.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        let flight = async {
            match self.depart(address, request, timeout).await?.await {
                Ok(arrived) => arrived,
                Err(_) => Err(TransportError::Timeout),
            }
        };
        let result = tokio::time::timeout(timeout, flight).await.unwrap_or(Err(TransportError::Timeout));
        if self.dead.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        result
    }

    async fn oneway(&self, address: &str, mut request: Command, timeout: Duration) -> Result<(), TransportError> {
        if self.dead.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        request.flag |= FLAG_ONEWAY;
        self.depart(address, request, timeout).await.map(drop)
    }

    fn connection(&self, address: &str) -> u64 {
        self.connections.lock().get(address).map_or(0, |connection| connection.number)
    }
}
