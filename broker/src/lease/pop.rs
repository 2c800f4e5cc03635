//! Giving out messages.

use super::ledger::{Ledger, takeable};
use super::queue::Queue;
use super::types::{
    Change, ChangedBy, Lease, MAX_COUNT, MAX_MS, NO_GROUP, PopArgs, Popped, Progress, Source, Taken, Verdict,
};
use std::collections::BTreeMap;
use std::ops::Range;

/// Every such pop looks for new messages first, the others for expired leases.
const NEW_FIRST_EVERY: u64 = 4;

#[derive(Clone, Copy)]
enum Kind {
    Expired = 0,
    New = 1,
}

/// One pop at work.
struct Pop<'a> {
    args: &'a PopArgs,
    source: &'a mut dyn Source,
    changes: &'a mut Vec<Change>,
    number: u64,
    now: i64,
    deadline: i64,
    /// Later than the clock if a message was given out in this very millisecond before.
    pop_time: i64,
    taken: Vec<(u32, u64, Lease)>,
    dead: Vec<Taken>,
    examined: usize,
    stopped: bool,
    more: bool,
}

impl Ledger {
    /// Gives out at most `args.max` messages under one pop time.
    pub fn pop(&mut self, args: &PopArgs, source: &mut dyn Source, changes: &mut Vec<Change>) -> Popped {
        let now = self.tick(args.now_ms);
        self.find_groups(source);
        self.look(now, args.queues.clone(), source);
        self.pops += 1;
        let mut pop = Pop {
            args,
            source,
            changes,
            number: self.pops,
            now,
            deadline: now + args.invisible_ms.clamp(1, MAX_MS),
            pop_time: now,
            taken: Vec::with_capacity(args.max.min(64)),
            dead: Vec::new(),
            examined: 0,
            stopped: false,
            more: false,
        };
        if pop.is_repetition(&self.queues) {
            for id in args.queues.clone() {
                if let Some(queue) = self.queues.get_mut(&id) {
                    pop.take_again(id, queue);
                }
            }
        }
        if !pop.taken.is_empty() {
            return self.finish(pop);
        }
        // New ones once more at the end: dead letters may have made room under the in-flight limit.
        let passes: &[Kind] = if self.pops.is_multiple_of(NEW_FIRST_EVERY) {
            &[Kind::New, Kind::Expired, Kind::New]
        } else {
            &[Kind::Expired, Kind::New]
        };
        for (place, kind) in passes.iter().enumerate() {
            self.pass(place, *kind, &mut pop);
        }
        self.finish(pop)
    }

    /// Looks up the message groups of rows that were taken while consumption was not ordered.
    pub(super) fn find_groups(&mut self, source: &mut dyn Source) {
        for (id, offset) in std::mem::take(&mut self.groupless) {
            let Some(queue) = self.queues.get_mut(&id) else { continue };
            if queue.get(offset).is_some_and(|lease| lease.order_group.is_none())
                && let Some((mut lease, _)) = queue.remove(offset)
            {
                lease.order_group = Some(source.message_group(id, offset).unwrap_or(NO_GROUP));
                queue.put(offset, lease);
            }
        }
    }

    /// Makes the queues known and up to date: bounds and clock.
    fn look(&mut self, now: i64, queues: Range<u32>, source: &mut dyn Source) {
        for id in queues {
            let (min, end) = source.bounds(id);
            let ordered = self.ordered;
            let queue = self.queues.entry(id).or_insert_with(|| {
                let mut queue = Queue::new(Progress { next: source.start(id), pop_floor_ms: 0 }, ordered);
                queue.dirty = true;
                queue
            });
            queue.end = end;
            queue.advance(now);
            if queue.progress.next < min {
                queue.progress.next = min;
                queue.dirty = true;
            }
        }
    }

    fn pass(&mut self, place: usize, kind: Kind, pop: &mut Pop<'_>) {
        let Range { start: first, end } = pop.args.queues;
        let count = end.saturating_sub(first);
        let mut start = 0;
        if count > 1
            && let Some(cursor) = self.cursors.get_mut(kind as usize).and_then(|places| places.get_mut(place))
        {
            start = *cursor % count;
            *cursor = start + 1;
        }
        for id in (first + start..end).chain(first..first + start) {
            if !pop.wants_more() {
                return;
            }
            if let Some(queue) = self.queues.get_mut(&id) {
                match kind {
                    Kind::New => pop.take_new(id, queue),
                    Kind::Expired if self.ordered => pop.take_groups(id, queue),
                    Kind::Expired => pop.take_expired(id, queue),
                }
            }
        }
    }

    fn finish(&mut self, pop: Pop<'_>) -> Popped {
        let mut popped = Popped {
            pop_time_ms: pop.pop_time,
            invisible_ms: pop.deadline - pop.pop_time,
            messages: Vec::with_capacity(pop.taken.len()),
            dead: pop.dead,
            rest: 0,
            more: pop.more,
        };
        for (id, offset, mut lease) in pop.taken {
            if pop.pop_time != lease.pop_time_ms {
                lease.pop_time_ms = pop.pop_time;
                lease.invisible_ms = popped.invisible_ms;
                if let Some(queue) = self.queues.get_mut(&id) {
                    queue.last_pop_ms = queue.last_pop_ms.max(pop.pop_time);
                    queue.put(offset, lease);
                }
            }
            pop.changes.push(Change::Put(id, offset, lease));
            popped.messages.push(Taken {
                queue: id,
                offset,
                attempts: lease.attempts,
                first_pop_ms: lease.first_pop_ms,
            });
        }
        for id in pop.args.queues.clone() {
            if let Some(queue) = self.queues.get_mut(&id) {
                if std::mem::take(&mut queue.dirty) {
                    pop.changes.push(Change::Progress(id, queue.progress));
                }
                popped.rest = popped.rest.saturating_add(takeable(
                    queue,
                    queue.end.saturating_sub(queue.progress.next),
                    pop.args.in_flight_max,
                ));
            }
        }
        popped
    }
}

impl Pop<'_> {
    fn wants_more(&self) -> bool {
        !self.stopped && self.taken.len() + self.dead.len() < self.args.max
    }

    /// Whether this may be an earlier receive once more, whose answer was lost. It was not if the client has said something about
    /// one of the messages.
    fn is_repetition(&self, queues: &BTreeMap<u32, Queue>) -> bool {
        let PopArgs { attempt, holder, .. } = *self.args;
        let by_client = |by: ChangedBy| matches!(by, ChangedBy::Client | ChangedBy::Extension);
        let heard = |queue: &Queue| {
            queue.named(attempt).any(|(_, lease)| lease.holder == holder && by_client(lease.changed_by))
        };
        attempt != 0 && holder != 0 && !self.args.queues.clone().filter_map(|id| queues.get(&id)).any(heard)
    }

    /// What an earlier receive of the same name by the same client took: the same once more, as the same delivery but with handles
    /// of its own, for what is under way with the old ones may still arrive.
    fn take_again(&mut self, id: u32, queue: &mut Queue) {
        let PopArgs { attempt, holder, .. } = *self.args;
        // A lost answer is asked for again soon. What ran out meanwhile comes again like anything that did and counts, or a client that
        // does not get beyond it would get it for ever.
        let same = |lease: &Lease| lease.holder == holder && lease.is_live(self.now);
        let taken: Vec<(u64, Lease)> =
            queue.named(attempt).filter(|(_, lease)| same(lease)).map(|(at, lease)| (at, *lease)).collect();
        for (offset, lease) in taken {
            let blocked = |group| queue.order().is_some_and(|order| order.blocks_row(group, self.number, offset));
            if lease.order_group.is_some_and(blocked) {
                continue;
            }
            if !self.wants_more() {
                return;
            }
            if self.examine(id, offset) == Verdict::Deliver {
                self.take(id, queue, offset, Lease { uncounted: true, ..lease });
            }
        }
    }

    /// Expired leases, the oldest deadline first.
    fn take_expired(&mut self, id: u32, queue: &mut Queue) {
        let mut cursor = None;
        while self.has_room(queue) {
            let Some(row) = queue.next_expired(cursor) else { return };
            cursor = Some(row);
            self.redeliver(id, queue, row.1);
        }
    }

    /// Open rows of message groups that nobody holds: each group from its first row on, as far as it goes.
    fn take_groups(&mut self, id: u32, queue: &mut Queue) {
        let mut cursor = None;
        while self.has_room(queue) {
            let Some(group) = queue.order().and_then(|order| order.next_available(cursor)) else { return };
            cursor = Some(group);
            let mut row = None;
            while self.has_room(queue) {
                row = queue.order().and_then(|order| order.next_row(group.1, row));
                let Some(offset) = row else { break };
                if !self.redeliver(id, queue, offset) {
                    break;
                }
            }
        }
    }

    /// Offsets never considered.
    fn take_new(&mut self, id: u32, queue: &mut Queue) {
        while self.wants_more() && queue.progress.next < queue.end {
            if queue.open_len() >= self.args.in_flight_max {
                queue.limited = true;
                return;
            }
            let offset = queue.progress.next;
            match self.examine(id, offset) {
                Verdict::Stop => return,
                Verdict::Filtered | Verdict::Gone => {}
                Verdict::Deliver => self.take_or_defer(id, queue, offset),
            }
            queue.progress.next += 1;
            queue.dirty = true;
        }
    }

    fn take_or_defer(&mut self, id: u32, queue: &mut Queue, offset: u64) {
        let mut lease = Lease {
            pop_time_ms: 0,
            invisible_ms: 0,
            first_pop_ms: 0,
            attempts: 0,
            changes: 0,
            renewals: 0,
            changed_by: ChangedBy::Unknown,
            holder: 0,
            order_group: None,
            uncounted: false,
            attempt: 0,
        };
        if let Some(order) = queue.order() {
            let group = self.source.message_group(id, offset).unwrap_or(NO_GROUP);
            lease.order_group = Some(group);
            if order.blocks(group, self.number) {
                queue.put(offset, lease);
                self.changes.push(Change::Put(id, offset, lease));
                return;
            }
        }
        self.take(id, queue, offset, lease);
    }

    /// Takes an open row again, or ends it; `false` if it stays where it is.
    fn redeliver(&mut self, id: u32, queue: &mut Queue, offset: u64) -> bool {
        let Some(lease) = queue.get(offset).copied() else { return false };
        let exhausted = lease.counted() >= self.args.max_attempts.max(1);
        if exhausted && !self.args.dead_letter {
            return false;
        }
        match self.examine(id, offset) {
            Verdict::Stop => return false,
            Verdict::Deliver if !exhausted => {
                self.take(id, queue, offset, lease);
                return true;
            }
            Verdict::Deliver => {
                self.dead.push(Taken { queue: id, offset, attempts: lease.attempts, first_pop_ms: lease.first_pop_ms });
            }
            Verdict::Filtered | Verdict::Gone => {}
        }
        queue.remove(offset);
        self.changes.push(Change::Delete(id, offset));
        true
    }

    fn take(&mut self, id: u32, queue: &mut Queue, offset: u64, before: Lease) {
        self.pop_time = self.pop_time.max(before.pop_time_ms.max(queue.progress.pop_floor_ms) + 1);
        let lease = Lease {
            pop_time_ms: self.now,
            invisible_ms: self.deadline - self.now,
            first_pop_ms: if before.is_deferred() { self.now } else { before.first_pop_ms },
            attempts: (before.counted() + 1).min(MAX_COUNT),
            changes: 0,
            renewals: 0,
            changed_by: ChangedBy::Unknown,
            holder: self.args.holder,
            order_group: before.order_group,
            uncounted: false,
            attempt: self.args.attempt,
        };
        queue.put(offset, lease);
        queue.last_pop_ms = queue.last_pop_ms.max(self.now);
        if let (Some(order), Some(group)) = (queue.order_mut(), lease.order_group) {
            order.mark_taken(group, self.number);
        }
        self.taken.push((id, offset, lease));
    }

    fn has_room(&self, queue: &mut Queue) -> bool {
        let room = queue.in_flight() < self.args.in_flight_max;
        queue.limited |= !room;
        room && self.wants_more()
    }

    fn examine(&mut self, id: u32, offset: u64) -> Verdict {
        if self.examined >= self.args.scan_max {
            self.more = true;
            self.stopped = true;
            return Verdict::Stop;
        }
        self.examined += 1;
        let verdict = self.source.examine(id, offset);
        self.stopped |= verdict == Verdict::Stop;
        verdict
    }
}
