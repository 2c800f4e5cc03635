//! What is counted of refusals, and said of them in the log.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::{counter::Counter, family::Family};
use prometheus_client::registry::Registry;

use super::Refusal;

/// A line for each reason at most so often; what comes in between is counted.
const EVERY: Duration = Duration::from_secs(5);

/// Names and meanings of what is shown of the file with the users.
pub(super) const OF_THE_FILE: [(&str, &str); 4] = [
    ("waybill_users_reloads", "Changes of the file with the users that took effect"),
    ("waybill_users_reload_failures", "Changes of the file with the users that were refused"),
    ("waybill_users_generation", "Number of the state of the file with the users that is in force"),
    ("waybill_users_in_force", "1 while the file with the users as it is now is in force"),
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    reason: &'static str,
}

/// When a reason was last in the log, and how often it has come up since.
#[derive(Debug)]
struct Said {
    at: Instant,
    since: u64,
}

/// Counters. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Metrics {
    refused: Family<Labels, Counter>,
    said: Arc<Mutex<HashMap<&'static str, Said>>>,
}

impl Metrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        let help = "Calls of clients refused by access control, by reason";
        registry.register("waybill_access_refused", help, self.refused.clone());
    }

    /// A call was refused.
    pub(super) fn refused(&self, refusal: &Refusal) {
        let reason = refusal.reason();
        self.refused.get_or_create(&Labels { reason }).inc();
        let Some(unsaid) = self.to_be_said(reason, Instant::now()) else { return };
        tracing::warn!(reason, unsaid, "a call is refused: {refusal}");
    }

    /// How many were not said since the last line about the reason, if it is time for one.
    fn to_be_said(&self, reason: &'static str, now: Instant) -> Option<u64> {
        let mut said = self.said.lock();
        match said.get_mut(reason) {
            Some(last) if now.duration_since(last.at) < EVERY => {
                last.since += 1;
                None
            }
            Some(last) => {
                last.at = now;
                Some(std::mem::take(&mut last.since))
            }
            None => {
                said.insert(reason, Said { at: now, since: 0 });
                Some(0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_not_flooded_and_nothing_is_forgotten() {
        let metrics = Metrics::default();
        let start = Instant::now();
        let said = |reason, seconds| metrics.to_be_said(reason, start + Duration::from_secs(seconds));
        assert_eq!(said("unsigned", 0), Some(0));
        assert_eq!((said("unsigned", 1), said("unsigned", 4)), (None, None));
        assert_eq!(said("forbidden", 4), Some(0), "each reason has its own line");
        assert_eq!(said("unsigned", 5), Some(2));
        assert_eq!((said("unsigned", 9), said("unsigned", 10)), (None, Some(1)));
    }
}
