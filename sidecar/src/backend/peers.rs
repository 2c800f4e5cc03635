//! What this process has learnt about each broker it spoke with.

use std::{collections::HashMap, time::Duration};

use parking_lot::RwLock;
use tokio::time::Instant;
use waybill_protocol::remoting::Language;

/// A request that not every broker knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Feature {
    /// BATCH_CHANGE_MESSAGE_INVISIBLETIME.
    BatchChange,
    /// BATCH_ACK_MESSAGE answered with one result per entry.
    BatchAckResults,
    /// VOUCH_FOR_CLIENTS.
    HolderLiveness,
}

/// A broker takes at most so many entries of a feature; 0: it does not have it. Until when to believe that.
struct Learnt {
    feature: Feature,
    most: usize,
    ask_again: Instant,
}

#[derive(Default)]
struct Peer {
    /// Empty: it was never heard.
    address: String,
    language: Option<Language>,
    learnt: Vec<Learnt>,
    /// The connection over which it was learnt.
    connection: u64,
}

/// Brokers by name. What was learnt over one connection does not count for the next: it may be another program.
#[derive(Default)]
pub(super) struct Peers {
    known: RwLock<HashMap<String, Peer>>,
}

impl Peers {
    /// A broker answered.
    pub(super) fn heard(&self, broker: &str, address: &str, language: Language) {
        let same = |peer: &Peer| peer.language == Some(language) && peer.address == address;
        if self.known.read().get(broker).is_some_and(same) {
            return;
        }
        let peer = Peer { address: address.to_owned(), language: Some(language), ..Peer::default() };
        self.known.write().insert(broker.to_owned(), peer);
    }

    /// The connection to a broker failed. It may be another program when it is back.
    pub(super) fn disconnected(&self, broker: &str) {
        self.known.write().remove(broker);
    }

    /// Whether this broker answers OK to the ack of a lease that is over, and delivers the message all the same.
    /// Apache's does.
    ///
    /// All brokers of Apache are Java, and say so in each answer; Waybill refuses such an ack itself, by its own clock.
    pub(super) fn confirms_expired_leases(&self, broker: &str) -> bool {
        self.known.read().get(broker).is_some_and(|peer| peer.language == Some(Language::Java))
    }

    /// The most entries to send with one request of a feature; 0 if the broker does not have it, `usize::MAX` if it may
    /// have it. `connection` tells the number of the connection to an address.
    pub(super) fn most(&self, broker: &str, feature: Feature, connection: impl Fn(&str) -> u64) -> usize {
        let known = self.known.read();
        let learnt = |peer: &Peer| {
            let learnt = peer.learnt.iter().find(|learnt| learnt.feature == feature)?;
            let counts = Instant::now() < learnt.ask_again && connection(&peer.address) == peer.connection;
            counts.then_some(learnt.most)
        };
        known.get(broker).and_then(learnt).unwrap_or(usize::MAX)
    }

    /// A broker takes at most so many entries of a feature, 0 if it does not have it; ask again after `probe`. Returns
    /// whether that is news.
    pub(super) fn learn(
        &self,
        broker: &str,
        feature: Feature,
        most: usize,
        probe: Duration,
        connection: impl Fn(&str) -> u64,
    ) -> bool {
        let mut known = self.known.write();
        let peer = known.entry(broker.to_owned()).or_default();
        let connection = connection(&peer.address);
        if connection != peer.connection {
            peer.connection = connection;
            peer.learnt.clear();
        }
        let news = !peer.learnt.iter().any(|learnt| learnt.feature == feature && learnt.most == most);
        peer.learnt.retain(|learnt| learnt.feature != feature);
        peer.learnt.push(Learnt { feature, most, ask_again: Instant::now() + probe });
        news
    }
}
