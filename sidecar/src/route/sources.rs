//! Those who are asked for routes. What one of them knows is missing from the answers while it is silent, so one that falls
//! silent is watched until it speaks again; then everything is looked up again when it is next used.

use std::{
    collections::HashSet,
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use waybill_protocol::remoting::{Command, codes::request};

use super::{Inner, LOOKUP};
use crate::backend::Outcome;

/// The pause between two questions to one that is silent.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// All sources, and which of them are watched.
pub(super) struct Sources {
    all: Vec<String>,
    watched: Mutex<HashSet<String>>,
}

impl Sources {
    pub(super) fn new(all: Vec<String>) -> Self {
        Self { all, watched: Mutex::default() }
    }

    pub(super) fn all(&self) -> &[String] {
        &self.all
    }

    /// `source` did not answer. One task watches it, which ends with the routes.
    pub(super) fn silent(&self, routes: &Arc<Inner>, source: &str) {
        if self.watched.lock().insert(source.to_owned()) {
            tokio::spawn(watch(Arc::downgrade(routes), source.to_owned()));
        }
    }
}

/// Asks until there is an answer, whatever it says.
async fn watch(routes: Weak<Inner>, source: String) {
    loop {
        tokio::time::sleep(ASK_AGAIN).await;
        let Some(routes) = routes.upgrade() else { return };
        let request = Command::request(request::GET_BROKER_CLUSTER_INFO);
        let answer = routes.transport.call(&source, request, LOOKUP).await;
        let outcome = answer.as_ref().map_or(Outcome::NoAnswer, |answer| Outcome::of(answer.code));
        routes.metrics.count(request::GET_BROKER_CLUSTER_INFO, outcome);
        if answer.is_ok() {
            routes.sources.watched.lock().remove(&source);
            routes.topics.outdate_all();
            tracing::info!(source, "a source of routes answers again");
            return;
        }
    }
}
