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
}

#[derive(Default)]
struct Peer {
    language: Option<Language>,
    /// Features that were refused, and when to ask again.
    missing: Vec<(Feature, Instant)>,
}

/// Brokers by name.
#[derive(Default)]
pub(super) struct Peers {
    known: RwLock<HashMap<String, Peer>>,
}

impl Peers {
    /// A broker answered.
    pub(super) fn heard(&self, broker: &str, language: Language) {
        if self.known.read().get(broker).is_some_and(|peer| peer.language == Some(language)) {
            return;
        }
        self.known.write().entry(broker.to_owned()).or_default().language = Some(language);
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

    /// Whether to try a feature.
    pub(super) fn may_have(&self, broker: &str, feature: Feature) -> bool {
        let now = Instant::now();
        !self
            .known
            .read()
            .get(broker)
            .is_some_and(|peer| peer.missing.iter().any(|(missing, ask_again)| *missing == feature && now < *ask_again))
    }

    /// A broker does not have a feature; ask again after `probe`. Returns whether that is news.
    pub(super) fn lacks(&self, broker: &str, feature: Feature, probe: Duration) -> bool {
        let mut known = self.known.write();
        let peer = known.entry(broker.to_owned()).or_default();
        let before = peer.missing.len();
        peer.missing.retain(|(missing, _)| *missing != feature);
        let news = peer.missing.len() == before;
        peer.missing.push((feature, Instant::now() + probe));
        news
    }
}
