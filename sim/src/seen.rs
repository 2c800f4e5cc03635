//! What the seeds of a run have seen: a fault that never happens proves nothing.

use std::collections::BTreeMap;

/// What a thousand seeds must have seen.
const EVERYTHING: [&str; 33] = [
    "acked_in_calm",
    "acks_in_drain",
    "broker_clock_steps",
    "broker_kills",
    "calm_drains",
    "client_kills",
    "committed",
    "cuts",
    "dead_letters",
    "delayed",
    "drains_leave",
    "drains_release",
    "flips_off",
    "flips_on",
    "full_disks",
    "halves",
    "hollow_acks",
    "in_order",
    "in_order_again",
    "kept",
    "kept_over_flip",
    "left_by_drain",
    "moved_handles",
    "power_cuts",
    "recalled",
    "refused_for_space",
    "renewed",
    "renewed_over_flip",
    "returned_by_drain",
    "rolled_back",
    "sidecar_clock_steps",
    "sidecar_kills",
    "slow_disks",
];

/// In how many seeds what was seen.
#[derive(Debug, Default)]
pub(crate) struct Seen(BTreeMap<String, u64>);

impl Seen {
    /// One more seed, which said this of itself.
    pub(crate) fn add(&mut self, counts: &str) {
        for what in counts.split(' ').filter_map(|count| Some(count.split_once('=')?.0)) {
            *self.0.entry(what.to_owned()).or_default() += 1;
        }
    }

    /// In a line.
    pub(crate) fn told(&self) -> String {
        self.0.iter().map(|(what, seeds)| format!("{what} {seeds}")).collect::<Vec<_>>().join(", ")
    }

    /// What no seed has seen, of what many must see.
    pub(crate) fn missed(&self) -> Vec<&'static str> {
        EVERYTHING.into_iter().filter(|what| !self.0.contains_key(*what)).collect()
    }
}
