//! The ledger: acknowledge, change, reset, count. Giving out is in `pop`.

use super::queue::Queue;
use super::types::{
    AckOutcome, Change, ChangeArgs, ChangeOutcome, ChangedBy, Counts, Lease, LeaseRef, MAX_COUNT, MAX_MS, Progress,
    Source,
};
use std::collections::BTreeMap;
use std::ops::Range;

/// The leases of one consumer group on one topic.
#[derive(Clone, Debug)]
pub struct Ledger {
    pub(super) ordered: bool,
    pub(super) queues: BTreeMap<u32, Queue>,
    pub(super) pops: u64,
    /// Where the next pass over the queues starts, by kind of message and by the place of the pass in its pop.
    pub(super) cursors: [[u32; 3]; 2],
    /// Rows taken while consumption was not ordered, whose group is looked up by the next pop.
    pub(super) groupless: Vec<(u32, u64)>,
    clock_ms: i64,
}

impl Ledger {
    /// An empty ledger. `ordered`: messages of one message group are given out one after the other (`consumeMessageOrderly`).
    #[must_use]
    pub fn new(ordered: bool) -> Self {
        Self { ordered, queues: BTreeMap::new(), pops: 0, cursors: [[0; 3]; 2], groupless: Vec::new(), clock_ms: 0 }
    }

    /// The ledger that has written these rows: (queue, progress) and (queue, offset, lease). A change of `ordered` is made this way, too.
    #[must_use]
    pub fn restore(
        ordered: bool,
        progress: impl IntoIterator<Item = (u32, Progress)>,
        leases: impl IntoIterator<Item = (u32, u64, Lease)>,
    ) -> Self {
        let mut ledger = Self::new(ordered);
        for (id, progress) in progress {
            ledger.queues.insert(id, Queue::new(progress, ordered));
        }
        for (id, offset, lease) in leases {
            let queue = ledger.queues.entry(id).or_insert_with(|| Queue::new(Progress::default(), ordered));
            // A row never lies beyond the progress written with it; if the store says so all the same, the message must not be given out twice.
            queue.progress.next = queue.progress.next.max(offset.saturating_add(1));
            queue.last_pop_ms = queue.last_pop_ms.max(lease.pop_time_ms);
            queue.put(offset, lease);
            if ordered && lease.order_group.is_none() {
                ledger.groupless.push((id, offset));
            }
        }
        ledger
    }

    /// Whether consumption is ordered.
    #[must_use]
    pub fn is_ordered(&self) -> bool {
        self.ordered
    }

    /// Acknowledges a delivery that is live, or ran out but was not given out again.
    pub fn ack(&mut self, now_ms: i64, lease: LeaseRef, changes: &mut Vec<Change>) -> AckOutcome {
        let now = self.tick(now_ms);
        let Some(queue) = self.queues.get_mut(&lease.queue) else { return AckOutcome::Unknown };
        queue.advance(now);
        match find(queue, lease) {
            Found::Open(_) => {
                let freed = queue.remove(lease.offset).is_some_and(|(_, available)| available);
                changes.push(Change::Delete(lease.queue, lease.offset));
                AckOutcome::Acked { wake: freed | std::mem::take(&mut queue.limited) }
            }
            Found::Stale => AckOutcome::Stale,
            Found::Done => AckOutcome::AlreadyDone,
            Found::Unknown => AckOutcome::Unknown,
        }
    }

    /// Acknowledges several: the same as single calls in order, one outcome each.
    pub fn ack_many(&mut self, now_ms: i64, leases: &[LeaseRef], changes: &mut Vec<Change>) -> Vec<AckOutcome> {
        leases.iter().map(|lease| self.ack(now_ms, *lease, changes)).collect()
    }

    /// Sets the deadline of a live delivery to now + `invisible_ms`; the pop time stays, so all its handles stay valid.
    pub fn change(&mut self, now_ms: i64, args: ChangeArgs, changes: &mut Vec<Change>) -> ChangeOutcome {
        let now = self.tick(now_ms);
        let LeaseRef { queue: id, offset, .. } = args.lease;
        let Some(queue) = self.queues.get_mut(&id) else { return ChangeOutcome::Unknown };
        queue.advance(now);
        let mut lease = match find(queue, args.lease) {
            Found::Open(lease) if lease.is_live(now) => lease,
            Found::Open(_) => return ChangeOutcome::Expired,
            Found::Stale => return ChangeOutcome::Stale,
            Found::Done => return ChangeOutcome::AlreadyDone,
            Found::Unknown => return ChangeOutcome::Unknown,
        };
        lease.invisible_ms = now + args.invisible_ms.clamp(0, MAX_MS) - lease.pop_time_ms;
        lease.changes = (lease.changes + 1).min(MAX_COUNT);
        lease.uncounted = !args.count;
        lease.changed_by = args.by;
        if args.by == ChangedBy::Renewal {
            lease.renewals = lease.renewals.saturating_add(1);
        }
        queue.put(offset, lease);
        changes.push(Change::Put(id, offset, lease));
        ChangeOutcome::Changed { pop_time_ms: lease.pop_time_ms, invisible_ms: lease.invisible_ms }
    }

    /// Changes several: the same as single calls in order (of equal entries the last one wins), one outcome each.
    pub fn change_many(&mut self, now_ms: i64, args: &[ChangeArgs], changes: &mut Vec<Change>) -> Vec<ChangeOutcome> {
        args.iter().map(|args| self.change(now_ms, *args, changes)).collect()
    }

    /// Gives back all live leases of clients that are gone: visible again `invisible_ms` from now, or earlier if they would be anyway.
    /// `gone` is asked about each holder. Answers how many were changed. Costs a look at every open row.
    pub fn release_held_by(
        &mut self,
        now_ms: i64,
        gone: impl Fn(u32) -> bool,
        invisible_ms: i64,
        changes: &mut Vec<Change>,
    ) -> usize {
        let now = self.tick(now_ms);
        let until = now + invisible_ms.clamp(0, MAX_MS);
        let held: Vec<ChangeArgs> = self
            .iter()
            .filter(|(_, _, lease)| lease.deadline_ms() > until && gone(lease.holder))
            .map(|(queue, offset, lease)| ChangeArgs {
                lease: LeaseRef { queue, offset, pop_time_ms: lease.pop_time_ms },
                invisible_ms,
                count: !lease.uncounted,
                by: ChangedBy::Broker,
            })
            .collect();
        self.change_many(now, &held, changes);
        held.len()
    }

    /// Lets the group go on at `offset` of the queue. Everything open there is forgotten, and handles from before name nothing.
    /// (This takes for granted that the clock does not go back over a restart, which takes longer than pop times can run ahead of it:
    /// a millisecond for each delivery of one message within one millisecond.)
    pub fn reset(&mut self, now_ms: i64, queue: u32, offset: u64, changes: &mut Vec<Change>) {
        let now = self.tick(now_ms);
        let mut progress = Progress { next: offset, pop_floor_ms: 0 };
        if let Some(old) = self.queues.get(&queue) {
            changes.extend(old.iter().map(|(offset, _)| Change::Delete(queue, offset)));
            progress.pop_floor_ms = now.max(old.last_pop_ms).max(old.progress.pop_floor_ms);
        }
        changes.push(Change::Progress(queue, progress));
        self.queues.insert(queue, Queue::new(progress, self.ordered));
    }

    /// Retention is about to take what lies below these offsets (queue, offset): of that nothing is given out that was not yet, and what
    /// nobody holds is done. What somebody holds stays, and stays takeable when it is given back. Answers whether there is nothing left.
    pub fn leave_behind(&mut self, now_ms: i64, mins: &[(u32, u64)], changes: &mut Vec<Change>) -> bool {
        let now = self.tick(now_ms);
        let mut left = false;
        for (id, min) in mins {
            let Some(queue) = self.queues.get_mut(id) else { continue };
            queue.advance(now);
            let below: Vec<(u64, bool)> = queue
                .iter()
                .take_while(|(offset, _)| offset < min)
                .map(|(offset, lease)| (offset, lease.is_live(now)))
                .collect();
            for (offset, live) in below {
                left |= live;
                if !live {
                    queue.remove(offset);
                    changes.push(Change::Delete(*id, offset));
                }
            }
            if queue.progress.next < *min {
                queue.progress.next = *min;
                changes.push(Change::Progress(*id, queue.progress));
            }
        }
        !left
    }

    /// When a poll that found nothing at `now_ms` should look again: the earliest deadline later than that.
    #[must_use]
    pub fn next_deadline(&self, now_ms: i64, queues: Range<u32>) -> Option<i64> {
        self.range(queues).filter_map(|(_, queue)| queue.next_deadline(now_ms)).min()
    }

    /// How much a pop could take now at most: expired leases that are not held back, and offsets never considered.
    pub fn rest(&mut self, now_ms: i64, queues: Range<u32>, in_flight_max: usize, source: &mut dyn Source) -> u64 {
        let now = self.tick(now_ms);
        self.find_groups(source);
        let mut rest = 0_u64;
        for id in queues {
            let (min, end) = source.bounds(id);
            rest = rest.saturating_add(match self.queues.get_mut(&id) {
                Some(queue) => {
                    queue.advance(now);
                    takeable(queue, end.saturating_sub(queue.progress.next.max(min)), in_flight_max)
                }
                None => end.saturating_sub(source.start(id).max(min)).min(in_flight_max as u64),
            });
        }
        rest
    }

    /// First offset of the queue never considered; `None` for a queue never read.
    #[must_use]
    pub fn next(&self, queue: u32) -> Option<u64> {
        self.queues.get(&queue).map(|queue| queue.progress.next)
    }

    /// The offset below which everything is done (upstream's consumer offset); `None` for a queue never read.
    #[must_use]
    pub fn committed(&self, queue: u32) -> Option<u64> {
        let queue = self.queues.get(&queue)?;
        Some(queue.iter().next().map_or(queue.progress.next, |(offset, _)| offset))
    }

    /// The open row of a message.
    #[must_use]
    pub fn get(&self, queue: u32, offset: u64) -> Option<&Lease> {
        self.queues.get(&queue)?.get(offset)
    }

    /// What somebody holds, as (queue, offset), in order.
    pub fn live(&self, now_ms: i64) -> impl Iterator<Item = (u32, u64)> {
        self.queues.iter().flat_map(move |(id, queue)| queue.live(now_ms).map(|offset| (*id, offset)))
    }

    /// All open rows as (queue, offset, lease), in order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u64, &Lease)> {
        self.queues.iter().flat_map(|(id, queue)| queue.iter().map(|(offset, lease)| (*id, offset, lease)))
    }

    /// All queues ever read and their progress, in order.
    pub fn progress(&self) -> impl Iterator<Item = (u32, Progress)> {
        self.queues.iter().map(|(id, queue)| (*id, queue.progress))
    }

    /// Counts over all queues ever read and the first `queues`, of which those never read are read from their beginning; `bounds` as of
    /// [`Source::bounds`]. Costs a look at every open row.
    pub fn counts(&mut self, now_ms: i64, queues: u32, bounds: impl Fn(u32) -> (u64, u64)) -> Counts {
        let now = self.tick(now_ms);
        let mut counts = Counts::default();
        for (id, queue) in &mut self.queues {
            queue.advance(now);
            let blocked = queue.blocked_rows();
            let waiting = queue.iter().filter(|(_, lease)| lease.is_live(now) && lease.is_given_back()).count();
            let (min, end) = bounds(*id);
            counts.blocked += blocked as u64;
            counts.ready += queue.expired().saturating_sub(blocked) as u64;
            counts.in_flight += (queue.in_flight() - waiting) as u64;
            counts.waiting += waiting as u64;
            counts.lag += queue.open_len() as u64 + end.saturating_sub(queue.progress.next.max(min));
        }
        for queue in (0..queues).filter(|queue| !self.queues.contains_key(queue)) {
            let (min, end) = bounds(queue);
            counts.lag += end.saturating_sub(min);
        }
        counts
    }

    /// The time, in range and never before one that was seen already.
    pub(super) fn tick(&mut self, now_ms: i64) -> i64 {
        self.clock_ms = self.clock_ms.max(now_ms.clamp(0, MAX_MS));
        self.clock_ms
    }

    pub(super) fn range(&self, queues: Range<u32>) -> impl Iterator<Item = (&u32, &Queue)> {
        // `BTreeMap::range` does not take a range that ends before it starts.
        let queues = if queues.start <= queues.end { queues } else { 0..0 };
        self.queues.range(queues)
    }
}

/// What a pop could take from the queue now at most, of which `unread` offsets were never considered.
pub(super) fn takeable(queue: &Queue, unread: u64, in_flight_max: usize) -> u64 {
    let fresh = unread.min(in_flight_max.saturating_sub(queue.open_len()) as u64);
    fresh.saturating_add(queue.available_rows() as u64).min(in_flight_max.saturating_sub(queue.in_flight()) as u64)
}

enum Found {
    Open(Lease),
    Stale,
    Done,
    Unknown,
}

fn find(queue: &Queue, lease: LeaseRef) -> Found {
    match queue.get(lease.offset) {
        // A deferred row was never given out, whatever pop time a handle claims.
        Some(open) if open.pop_time_ms == lease.pop_time_ms && !open.is_deferred() => Found::Open(*open),
        Some(_) => Found::Stale,
        None if lease.offset < queue.progress.next => Found::Done,
        None => Found::Unknown,
    }
}
