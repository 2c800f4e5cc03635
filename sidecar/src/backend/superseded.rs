//! Handles that a change has replaced, at brokers where the old one no longer counts.
//!
//! Apache's broker gives a lease a new identity with each change, and answers OK to an ack of the old one, which does
//! nothing. So for its brokers the newest handle of each changed lease is remembered, and every earlier one is taken
//! for it.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use waybill_protocol::handle::{ReceiptHandle, TopicType};

use super::types::LeaseRef;

/// The most leases remembered, about 300 bytes each. More are not remembered; their newest handle still works.
const LEASES_MAX: usize = 100_000;
/// The most earlier handles of one lease; of more, the first and the last are known.
const EARLIER_MAX: usize = 16;
/// How long after its end a lease is remembered, in milliseconds: clocks differ.
const SLACK_MS: i64 = 5_000;

/// A full table is looked through at most so often, in milliseconds.
const SWEEP_PAUSE_MS: i64 = 1_000;

/// A message in a group's hands, whatever the delivery.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Place {
    group: Arc<str>,
    topic: Arc<str>,
    topic_type: TopicType,
    broker: String,
    queue_id: i32,
    offset: i64,
}

#[derive(Debug)]
struct Changed {
    newest: ReceiptHandle,
    /// The pop times of the earlier handles: they tell one delivery from another.
    earlier: Vec<i64>,
}

#[derive(Debug, Default)]
struct Leases {
    changed: HashMap<Place, Changed>,
    /// At this size, what has ended is looked for …
    sweep_at: usize,
    /// … but not again within [`SWEEP_PAUSE_MS`] of this.
    swept_ms: i64,
}

/// The newest handles of changed leases.
#[derive(Debug, Default)]
pub(super) struct Superseded {
    leases: Mutex<Leases>,
}

impl Superseded {
    /// Puts the newest handle into a lease that is named by an earlier one.
    pub(super) fn renew(&self, lease: &mut LeaseRef) {
        let leases = self.leases.lock();
        if leases.changed.is_empty() {
            return;
        }
        if let Some(changed) = leases.changed.get(&place(lease))
            && changed.earlier.contains(&lease.handle.pop_time)
        {
            lease.handle.clone_from(&changed.newest);
        }
    }

    /// A change has replaced the handle of `lease` by `newest`.
    pub(super) fn replaced(&self, lease: &LeaseRef, newest: &ReceiptHandle, now_ms: i64) {
        if newest.pop_time == lease.handle.pop_time {
            return;
        }
        let mut leases = self.leases.lock();
        let place = place(lease);
        let old = lease.handle.pop_time;
        if let Some(changed) = leases.changed.get_mut(&place) {
            if changed.newest.pop_time != old {
                // Another delivery: what was known of the last one is of no use.
                changed.earlier.clear();
            }
            if changed.earlier.len() >= EARLIER_MAX {
                changed.earlier.remove(1);
            }
            changed.earlier.push(old);
            changed.newest.clone_from(newest);
            return;
        }
        leases.make_room(now_ms);
        if leases.changed.len() < LEASES_MAX {
            leases.changed.insert(place, Changed { newest: newest.clone(), earlier: vec![old] });
        }
    }

    /// A lease is finished.
    pub(super) fn finished(&self, lease: &LeaseRef) {
        let mut leases = self.leases.lock();
        if !leases.changed.is_empty() {
            leases.changed.remove(&place(lease));
        }
    }
}

impl Leases {
    /// Forgets what has ended, when twice as much has gathered as was left the last time, or the table is full.
    fn make_room(&mut self, now_ms: i64) {
        const SMALL: usize = 1_024;
        let full = self.changed.len() >= LEASES_MAX;
        let paused = now_ms.saturating_sub(self.swept_ms) < SWEEP_PAUSE_MS;
        if if full { paused } else { self.changed.len() < self.sweep_at.max(SMALL) } {
            return;
        }
        self.changed.retain(|_, changed| changed.newest.next_visible_time().saturating_add(SLACK_MS) > now_ms);
        self.sweep_at = self.changed.len().saturating_mul(2);
        self.swept_ms = now_ms;
    }
}

fn place(lease: &LeaseRef) -> Place {
    let handle = &lease.handle;
    Place {
        group: Arc::clone(&lease.group),
        topic: Arc::clone(&lease.topic),
        topic_type: handle.topic_type,
        broker: handle.broker_name.clone(),
        queue_id: handle.queue_id,
        offset: handle.offset,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A delivery of the message at `offset`, told by its pop time, for a minute.
    fn lease(offset: i64, pop_time: i64) -> LeaseRef {
        let handle = format!("{offset} {pop_time} 60000 0 0 a 0 {offset} 1").parse().unwrap();
        LeaseRef { group: "G".into(), topic: "T".into(), handle }
    }

    fn newest_of(leases: &Superseded, mut lease: LeaseRef) -> i64 {
        leases.renew(&mut lease);
        lease.handle.pop_time
    }

    fn change(leases: &Superseded, offset: i64, from: i64, to: i64) {
        leases.replaced(&lease(offset, from), &lease(offset, to).handle, to);
    }

    #[test]
    fn every_earlier_handle_leads_to_the_newest() {
        let leases = Superseded::default();
        assert_eq!(newest_of(&leases, lease(1, 100)), 100);
        change(&leases, 1, 100, 200);
        change(&leases, 1, 200, 300);
        assert_eq!([100, 200, 300].map(|pop| newest_of(&leases, lease(1, pop))), [300; 3]);
        assert_eq!(newest_of(&leases, lease(1, 50)), 50, "an earlier delivery is not the same lease");
        assert_eq!(newest_of(&leases, lease(2, 100)), 100, "another message");
        let other_group = LeaseRef { group: "H".into(), ..lease(1, 100) };
        assert_eq!(newest_of(&leases, other_group), 100);
        leases.finished(&lease(1, 300));
        assert_eq!(newest_of(&leases, lease(1, 100)), 100);
    }

    #[test]
    fn a_new_delivery_starts_anew() {
        let leases = Superseded::default();
        change(&leases, 1, 100, 200);
        change(&leases, 1, 900, 950);
        assert_eq!(newest_of(&leases, lease(1, 100)), 100);
        assert_eq!(newest_of(&leases, lease(1, 900)), 950);
    }

    #[test]
    fn a_lease_that_keeps_its_identity_is_not_remembered() {
        let leases = Superseded::default();
        change(&leases, 1, 100, 100);
        assert!(leases.leases.lock().changed.is_empty());
    }

    #[test]
    fn of_many_changes_the_first_handle_and_the_last_ones_are_known() {
        let leases = Superseded::default();
        for n in 0..100 {
            change(&leases, 1, 1_000 + n, 1_001 + n);
        }
        assert_eq!([1_000, 1_099, 1_090].map(|pop| newest_of(&leases, lease(1, pop))), [1_100; 3]);
        assert_eq!(newest_of(&leases, lease(1, 1_040)), 1_040);
    }

    #[test]
    fn what_has_ended_is_forgotten_and_there_is_a_limit() {
        let leases = Superseded::default();
        for n in 0..100_000_i64 {
            // A change each 100 ms, leases of a minute: 650 live at a time.
            change(&leases, n, n * 100, n * 100 + 1);
            assert!(leases.leases.lock().changed.len() <= 2_048);
        }
        let leases = Superseded::default();
        for n in 0..(LEASES_MAX as i64 + 10) {
            change(&leases, n, 1, 2);
        }
        assert_eq!(leases.leases.lock().changed.len(), LEASES_MAX);
        change(&leases, 0, 100_000, 100_001);
        change(&leases, -1, 100_000, 100_001);
        assert!(leases.leases.lock().changed.len() <= 2, "all others have ended");
    }
}
