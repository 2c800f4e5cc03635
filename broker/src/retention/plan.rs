//! Which segments of the log may go.

use crate::store::{DiskUsage, SegmentInfo};

/// This part of the disk the log may always take, whatever others have of it: dropping that little would not help.
const OWN_SHARE: u64 = 20;

/// What was held has so long to be received once it is in its queue, in milliseconds, wherever in the log it lies: where space is short, its
/// place would go with the next look.
const ARRIVAL_MS: i64 = 10 * 60_000;
/// And so long while nothing can be stored at all any more, in milliseconds.
const ARRIVAL_ON_FULL_DISK_MS: i64 = 60_000;
/// Messages that were taken at the same time may enter the log so far apart, in milliseconds.
const APART_MS: i64 = 1_000;

/// What is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Messages older than this go, in milliseconds.
    pub age_ms: i64,
    /// How full the disk may be, in percent; 100 = as full as it gets.
    pub disk_max_percent: u64,
    /// How long the log may be, in bytes; 0 = as long as the disk allows.
    pub log_bytes_max: u64,
}

/// Why a segment goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Its messages are too old.
    Age,
    /// There is too little space.
    Disk,
}

/// What a message is promised for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum By {
    /// A consumer holds it.
    Lease,
    /// It is delayed.
    Timer,
    /// It waits for the end of its transaction.
    Half,
    /// It was delayed or half of a transaction, and came into its queue a short while ago.
    Arrival,
}

impl By {
    /// All of them.
    pub const ALL: [By; 4] = [By::Lease, By::Timer, By::Half, By::Arrival];

    /// As labels of metrics and log lines say it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            By::Lease => "lease",
            By::Timer => "timer",
            By::Half => "half",
            By::Arrival => "arrival",
        }
    }
}

/// The first message in the log that is promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Promise {
    /// Its position in the log.
    pub position: u64,
    /// What for.
    pub by: By,
}

/// What may go, and what may not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// What goes, the oldest first.
    pub drop: Vec<(SegmentInfo, Cause)>,
    /// Segments that would go if nothing were promised.
    pub held_back: usize,
    /// Bytes that are still too many when all that may go is gone.
    pub excess: u64,
    /// The disk is fuller than it may be without any of the log.
    pub filled_by_others: bool,
}

impl Plan {
    /// Where the log is to start, if anything goes.
    #[must_use]
    pub fn start(&self) -> Option<u64> {
        self.drop.last().map(|(segment, _)| segment.end)
    }

    /// Bytes that go.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.drop.iter().map(|(segment, _)| size(segment)).sum()
    }
}

/// The first segment, of those in order, into which a message came a short while ago that had been held: its newest message is younger than
/// the first one behind it.
#[must_use]
pub fn arrival(now_ms: i64, is_full: bool, segments: &[SegmentInfo]) -> Option<Promise> {
    let grace_ms = if is_full { ARRIVAL_ON_FULL_DISK_MS } else { ARRIVAL_MS };
    // Of each segment, when the first message behind it was taken.
    let mut behind_ms = None;
    let mut first = None;
    for segment in segments.iter().rev() {
        let is_late = |newest_ms: i64| {
            behind_ms.is_some_and(|behind_ms| newest_ms > behind_ms + APART_MS)
                && now_ms.saturating_sub(newest_ms) < grace_ms
        };
        if segment.newest_ms.is_some_and(is_late) {
            first = Some(Promise { position: segment.base, by: By::Arrival });
        }
        behind_ms = segment.first_ms.or(behind_ms);
    }
    first
}

/// Decides. `segments` in order, of which the last one is being written and stays; `disk` is `None` if it does not matter or is not known.
#[must_use]
pub fn plan(
    now_ms: i64,
    policy: Policy,
    segments: &[SegmentInfo],
    disk: Option<DiskUsage>,
    promise: Option<Promise>,
) -> Plan {
    let log_bytes: u64 = segments.iter().map(size).sum();
    let too_long = match policy.log_bytes_max {
        0 => 0,
        max => log_bytes.saturating_sub(max),
    };
    let mut plan = Plan { excess: too_long, ..Plan::default() };
    if let Some(disk) = disk {
        let allowed = (u128::from(disk.total) * u128::from(policy.disk_max_percent) / 100) as u64;
        let others = disk.used.saturating_sub(log_bytes);
        plan.filled_by_others = others > allowed;
        let room = allowed.saturating_sub(others).max(disk.total / OWN_SHARE);
        plan.excess = plan.excess.max(log_bytes.saturating_sub(room));
    }
    let Some((_, closed)) = segments.split_last() else { return plan };
    let oldest_ms = now_ms.saturating_sub(policy.age_ms);
    let mut excess = plan.excess;
    for segment in closed {
        // One without messages goes with those before it.
        let cause = match segment.newest_ms {
            newest if newest.is_none_or(|newest_ms| newest_ms < oldest_ms) => Cause::Age,
            _ if excess > 0 => Cause::Disk,
            _ => break,
        };
        excess = excess.saturating_sub(size(segment));
        if promise.is_some_and(|promise| promise.position < segment.end) {
            plan.held_back += 1;
        } else {
            plan.excess = excess;
            plan.drop.push((*segment, cause));
        }
    }
    plan
}

fn size(segment: &SegmentInfo) -> u64 {
    segment.end.saturating_sub(segment.base)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR: i64 = 3_600_000;
    const POLICY: Policy = Policy { age_ms: 72 * HOUR, disk_max_percent: 75, log_bytes_max: 0 };

    /// Segments of 100 bytes whose newest messages are that many hours old.
    fn segments(hours: &[i64]) -> Vec<SegmentInfo> {
        let bases = (0..).step_by(100);
        let all = bases.zip(hours).map(|(base, hours)| SegmentInfo {
            base,
            end: base + 100,
            first_ms: Some(-hours * HOUR),
            newest_ms: Some(-hours * HOUR),
            messages: 1,
        });
        all.collect()
    }

    fn causes(plan: &Plan) -> Vec<Cause> {
        plan.drop.iter().map(|(_, cause)| *cause).collect()
    }

    fn disk(used: u64) -> Option<DiskUsage> {
        Some(DiskUsage { used, total: 1000 })
    }

    #[test]
    fn what_is_too_old_goes_and_never_the_last() {
        let old = segments(&[100, 80, 73, 72, 71, 1]);
        let found = plan(0, POLICY, &old, None, None);
        assert_eq!(causes(&found), [Cause::Age; 3]);
        assert_eq!((found.start(), found.bytes()), (Some(300), 300));
        let found = plan(100 * HOUR, POLICY, &old, None, None);
        assert_eq!(causes(&found), [Cause::Age; 5]);
        assert_eq!(plan(0, POLICY, &segments(&[71, 1]), None, None), Plan::default());
        assert_eq!(plan(0, POLICY, &[], None, None), Plan::default());
    }

    #[test]
    fn a_younger_segment_keeps_the_older_ones_after_it() {
        let found = plan(0, POLICY, &segments(&[100, 1, 100, 1]), None, None);
        assert_eq!(found.drop.len(), 1);
    }

    #[test]
    fn one_without_messages_goes_with_those_before_it() {
        let mut old = segments(&[100, 100, 1, 1]);
        (old[0].newest_ms, old[1].newest_ms) = (None, None);
        assert_eq!(plan(0, POLICY, &old, None, None).drop.len(), 2);
    }

    #[test]
    fn too_full_a_disk_takes_younger_ones_as_far_as_it_is_too_full() {
        let young = segments(&[5, 4, 3, 2, 1]);
        assert_eq!(plan(0, POLICY, &young, disk(750), None), Plan::default());
        let found = plan(0, POLICY, &young, disk(751), None);
        assert_eq!((causes(&found), found.excess), (vec![Cause::Disk], 0));
        let found = plan(0, POLICY, &young, disk(920), None);
        assert_eq!((causes(&found), found.excess), (vec![Cause::Disk; 2], 0));
        // What is too old frees space, too.
        let found = plan(0, POLICY, &segments(&[80, 4, 3, 1]), disk(910), None);
        assert_eq!(causes(&found), [Cause::Age, Cause::Disk]);
    }

    #[test]
    fn what_others_have_filled_is_not_paid_for_with_messages() {
        let disk = |used| Some(DiskUsage { used, total: 10_000 });
        // Others have more than the 7500, and 500 are always ours.
        let found = plan(0, POLICY, &segments(&[5, 4, 3, 2, 1]), disk(8_100), None);
        assert_eq!((found.drop.len(), found.filled_by_others), (0, true));
        let found = plan(0, POLICY, &segments(&[7, 6, 5, 4, 3, 2, 1]), disk(8_300), None);
        assert_eq!((found.drop.len(), found.filled_by_others), (2, true));
        // They come near it: ours does not shrink to nothing.
        let found = plan(0, POLICY, &segments(&[5, 4, 3, 2, 1]), disk(7_990), None);
        assert_eq!((found.drop.len(), found.filled_by_others), (0, false));
    }

    #[test]
    fn the_log_has_a_length_of_its_own() {
        let found = plan(0, Policy { log_bytes_max: 250, ..POLICY }, &segments(&[5, 4, 3, 2]), None, None);
        assert_eq!((causes(&found), found.excess), (vec![Cause::Disk; 2], 0));
        let found = plan(0, Policy { log_bytes_max: 10, ..POLICY }, &segments(&[5, 4]), None, None);
        assert_eq!((found.drop.len(), found.excess), (1, 90));
    }

    #[test]
    fn what_is_promised_stays_and_what_comes_after_it() {
        let old = segments(&[100, 99, 98, 97, 1]);
        for (position, dropped) in [(0, 0), (99, 0), (100, 1), (250, 2), (399, 3), (400, 4), (480, 4)] {
            let promise = Promise { position, by: By::Timer };
            let found = plan(0, POLICY, &old, None, Some(promise));
            assert_eq!((found.drop.len(), found.held_back), (dropped, 4 - dropped), "{position}");
        }
        let promise = Promise { position: 150, by: By::Lease };
        let found = plan(0, POLICY, &segments(&[4, 3, 2, 1]), disk(1000), Some(promise));
        assert_eq!((found.drop.len(), found.held_back, found.excess), (1, 2, 150));
    }

    #[test]
    fn what_was_held_is_promised_for_a_while_after_it_came_into_its_queue() {
        const MINUTE: i64 = 60_000;
        let now = -HOUR;
        let mut all = segments(&[5, 4, 3, 2]);
        assert_eq!(arrival(now, false, &all), None, "each came where it lies");
        all[1].newest_ms = Some(now - MINUTE);
        all[2].newest_ms = Some(now - MINUTE);
        assert_eq!(arrival(now, false, &all), Some(Promise { position: 100, by: By::Arrival }));
        assert_eq!(arrival(now + 9 * MINUTE - 1, false, &all).map(|promise| promise.position), Some(100));
        assert_eq!(arrival(now + 9 * MINUTE, false, &all), None, "its time is over");
        assert_eq!(arrival(now, true, &all), None, "one minute, where nothing can be stored any more");
        assert_eq!(arrival(now - 1, true, &all).map(|promise| promise.position), Some(100));
        all[2].first_ms = None;
        assert_eq!(
            arrival(now, false, &all).map(|promise| promise.position),
            Some(100),
            "one without messages says nothing"
        );
        all[3].newest_ms = Some(now);
        assert_eq!(arrival(now + 20 * MINUTE, false, &all), None, "the last one stays anyway");
    }

    proptest! {
        #[test]
        fn no_promise_is_broken_and_nothing_young_goes_without_need(
            hours in prop::collection::vec(prop_oneof![Just(None), (0..200i64).prop_map(Some)], 0..12),
            used in 0..2000u64,
            log_bytes_max in 0..1500u64,
            promised in prop::option::of(0..1300u64),
        ) {
            let mut all = segments(&hours.iter().map(|hours| hours.unwrap_or(0)).collect::<Vec<_>>());
            for (segment, hours) in all.iter_mut().zip(&hours) {
                segment.newest_ms = segment.newest_ms.filter(|_| hours.is_some());
            }
            let policy = Policy { log_bytes_max, ..POLICY };
            let promise = promised.map(|position| Promise { position, by: By::Half });
            let found = plan(0, policy, &all, disk(used), promise);
            prop_assert!(found.drop.len() < all.len().max(1));
            prop_assert!(found.drop.iter().map(|(segment, _)| segment).eq(all.iter().take(found.drop.len())));
            if let (Some(start), Some(position)) = (found.start(), promised) {
                prop_assert!(start <= position);
            }
            let mut free = 0;
            for (segment, cause) in &found.drop {
                match cause {
                    Cause::Age => prop_assert!(segment.newest_ms.is_none_or(|newest| newest < -72 * HOUR)),
                    Cause::Disk => {
                        let log = 100 * all.len() as u64;
                        let room = 750_u64.saturating_sub(used.saturating_sub(log)).max(50);
                        prop_assert!((log_bytes_max > 0 && log > log_bytes_max + free) || log > room + free);
                    }
                }
                free += 100;
            }
        }
    }
}
