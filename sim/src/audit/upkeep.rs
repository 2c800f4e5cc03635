//! What must hold while operators flip the renewal switch and stop sidecars in good order.

use std::collections::{BTreeMap, BTreeSet};

use super::Audit;
use super::client::Got;
use crate::plan::CONSUME_TIMEOUT_MS;

/// A position of the switch at one sidecar, and until when it may have been the one in force.
#[derive(Debug)]
struct Position {
    renew: bool,
    until: i64,
}

/// What the auditor knows of operators.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    positions: BTreeMap<String, Vec<Position>>,
    draining: BTreeSet<String>,
}

impl Audit {
    /// A sidecar's configuration says so from now on; when it sees that is not known.
    pub fn switch_may_be(&mut self, sidecar: &str, renew: bool) {
        let positions = self.upkeep.positions.entry(sidecar.to_owned()).or_default();
        positions.push(Position { renew, until: i64::MAX });
    }

    /// A sidecar has its switch this way.
    pub fn switch_is(&mut self, sidecar: &str, renew: bool) {
        let now = self.now;
        let positions = self.upkeep.positions.entry(sidecar.to_owned()).or_default();
        for position in positions.iter_mut().filter(|position| position.renew != renew && position.until == i64::MAX) {
            position.until = now;
        }
        if !positions.iter().any(|position| position.until == i64::MAX) {
            positions.push(Position { renew, until: i64::MAX });
        }
    }

    /// Which way the switch of a sidecar is, if that is sure.
    pub(super) fn switch_of(&self, sidecar: &str) -> Option<bool> {
        let open = |position: &&Position| position.until == i64::MAX;
        let mut ways = self.upkeep.positions.get(sidecar)?.iter().filter(open).map(|position| position.renew);
        let first = ways.next()?;
        ways.all(|way| way == first).then_some(first)
    }

    /// A push consumer received a message through a sidecar that it asked at `since`: the lease is what the switch promises.
    pub fn promised(&mut self, client: &str, sidecar: &str, since: i64, got: &Got) {
        let Some(lease) = self.story(&got.place, &got.group).popped_for(got.handle.pop_time) else { return };
        let lease_ms = self.lease_ms;
        let promises = |position: &Position| if position.renew { lease_ms } else { CONSUME_TIMEOUT_MS };
        let positions = self.upkeep.positions.get(sidecar);
        let may_be: BTreeSet<i64> =
            positions.into_iter().flatten().filter(|position| position.until >= since).map(promises).collect();
        self.note(if lease == CONSUME_TIMEOUT_MS { "kept" } else { "renewed" });
        if !may_be.contains(&lease) {
            let place = &got.place;
            self.violation(format!("{client} got {place} for {lease} ms, and the switch of {sidecar} says {may_be:?}"));
        }
    }

    /// A sidecar was told to stop and still serves its clients (true), or does so no longer.
    pub fn drains(&mut self, sidecar: &str, drains: bool) {
        if drains {
            self.upkeep.draining.insert(sidecar.to_owned());
        } else {
            self.upkeep.draining.remove(sidecar);
        }
    }

    /// Whether a sidecar gives nothing out any more and still takes acks.
    #[must_use]
    pub fn is_draining(&self, sidecar: &str) -> bool {
        self.upkeep.draining.contains(sidecar)
    }

    /// Whether anything has failed since then, anywhere.
    #[must_use]
    pub fn anything_failed(&self, since: i64) -> bool {
        self.troubles.iter().any(|trouble| trouble.until >= since)
    }

    /// Whether anything has failed since then besides this one's own end.
    #[must_use]
    pub fn anything_failed_but(&self, since: i64, name: &str) -> bool {
        self.troubles.iter().any(|trouble| trouble.until >= since && trouble.hit != [name])
    }
}
