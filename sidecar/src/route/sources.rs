//! Those who are asked for routes. What one of them knows is missing from the answers while it is silent, so one that falls
//! silent is watched until it speaks again; then everything is looked up again when it is next used.

use std::{
    collections::HashSet,
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::watch;
use waybill_protocol::remoting::{Command, codes::request};

use super::{Inner, LOOKUP};
use crate::{backend::Outcome, config::addresses};

/// The pause between two questions to one that is silent.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Which sources are watched. All of them are in the configuration, which changes.
#[derive(Default)]
pub(super) struct Sources {
    watched: Mutex<HashSet<String>>,
}

impl Sources {
    /// `source` did not answer. One task watches it, which ends with the routes.
    pub(super) fn silent(&self, routes: &Arc<Inner>, source: &str) {
        if self.watched.lock().insert(source.to_owned()) {
            tokio::spawn(watch(Arc::downgrade(routes), source.to_owned()));
        }
    }
}

impl Inner {
    /// Those who are asked now.
    pub(super) fn all_sources(&self) -> Vec<String> {
        addresses(&self.config.get().namesrv_addr)
    }
}

/// Looks everything up again, when it is next used, each time that others are to be asked.
pub(super) async fn follow(routes: Weak<Inner>, mut generations: watch::Receiver<u64>) {
    let Some(mut asked) = routes.upgrade().map(|routes| routes.all_sources()) else { return };
    while generations.changed().await.is_ok() {
        let Some(routes) = routes.upgrade() else { return };
        let now = routes.all_sources();
        if now != asked {
            tracing::info!(sources = now.join(";"), "others are asked for routes from now on");
            asked = now;
            routes.topics.outdate_all();
        }
    }
}

/// Asks until there is an answer, whatever it says, or the source is none any more.
async fn watch(routes: Weak<Inner>, source: String) {
    loop {
        tokio::time::sleep(ASK_AGAIN).await;
        let Some(routes) = routes.upgrade() else { return };
        if !routes.all_sources().contains(&source) {
            routes.sources.watched.lock().remove(&source);
            return;
        }
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
