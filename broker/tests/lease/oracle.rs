//! What a group may see of a topic, kept as plainly as possible: one state per message, no index, no cleverness.
//!
//! It does not foretell which messages a pop takes, since several answers are right. It says of each answer whether it was allowed
//! and whether it was complete.

use crate::support::{Topic, lease_ref};
use std::collections::{BTreeMap, BTreeSet};
use waybill_broker::lease::{
    AckOutcome, ChangeArgs, ChangeOutcome, ChangedBy, LeaseRef, Ledger, MAX_MS, PopArgs, Popped, Verdict,
};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) pop_time: i64,
    pub(crate) deadline: i64,
    pub(crate) attempts: u32,
    pub(crate) uncounted: bool,
    pub(crate) holder: u32,
    /// The name of the receive that took it.
    pub(crate) attempt: u32,
    /// Its client has changed the invisible duration.
    pub(crate) heard: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum State {
    /// Never given out (in its present life).
    Fresh,
    Open(Held),
    Done,
}

type Id = (u32, u64);

/// The model.
#[derive(Clone, Debug, Default)]
pub(crate) struct Oracle {
    pub(crate) states: BTreeMap<Id, State>,
    /// Latest pop time of each message, over all its lives.
    popped: BTreeMap<Id, i64>,
    pub(crate) given: Vec<LeaseRef>,
}

impl Oracle {
    pub(crate) fn sent(&mut self, queue: u32, offset: u64) {
        self.states.insert((queue, offset), State::Fresh);
    }

    fn held(&self, queue: u32, offset: u64) -> Option<Held> {
        match self.states.get(&(queue, offset)) {
            Some(State::Open(held)) => Some(*held),
            _ => None,
        }
    }

    fn in_flight(&self, queue: u32, now: i64) -> usize {
        self.states
            .range((queue, 0)..=(queue, u64::MAX))
            .filter(|(_, s)| matches!(s, State::Open(h) if h.deadline > now))
            .count()
    }

    /// What an ack must answer (but for `wake`); `next` as the ledger says, `deferred` whether the ledger has it as such.
    pub(crate) fn ack(&mut self, lease: LeaseRef, next: Option<u64>, deferred: bool) -> AckOutcome {
        match self.held(lease.queue, lease.offset) {
            Some(held) if held.pop_time == lease.pop_time_ms => {
                self.states.insert((lease.queue, lease.offset), State::Done);
                AckOutcome::Acked { wake: false }
            }
            Some(_) => AckOutcome::Stale,
            None if deferred => AckOutcome::Stale,
            None if next.is_some_and(|next| lease.offset < next) => AckOutcome::AlreadyDone,
            None => AckOutcome::Unknown,
        }
    }

    /// What a change must answer.
    pub(crate) fn change(&mut self, now: i64, args: ChangeArgs, next: Option<u64>, deferred: bool) -> ChangeOutcome {
        let id = (args.lease.queue, args.lease.offset);
        match self.held(id.0, id.1) {
            Some(held) if held.pop_time != args.lease.pop_time_ms => ChangeOutcome::Stale,
            Some(held) if held.deadline <= now => ChangeOutcome::Expired,
            Some(held) => {
                let deadline = now + args.invisible_ms.clamp(0, MAX_MS);
                self.states.insert(
                    id,
                    State::Open(Held { deadline, uncounted: !args.count, heard: args.by == ChangedBy::Client, ..held }),
                );
                ChangeOutcome::Changed { pop_time_ms: held.pop_time, invisible_ms: deadline - held.pop_time }
            }
            None if deferred => ChangeOutcome::Stale,
            None if next.is_some_and(|next| args.lease.offset < next) => ChangeOutcome::AlreadyDone,
            None => ChangeOutcome::Unknown,
        }
    }

    pub(crate) fn release(&mut self, now: i64, holder: u32, invisible: i64) -> usize {
        let mut changed = 0;
        for state in self.states.values_mut() {
            if let State::Open(held) = state
                && held.holder == holder
                && held.deadline > now + invisible
            {
                held.deadline = now + invisible;
                held.heard = false;
                changed += 1;
            }
        }
        changed
    }

    /// A restart forgets by how much the pop time of a message that is done ran ahead of the clock. (No restart is that fast.)
    pub(crate) fn restart(&mut self, now: i64) {
        for (id, latest) in &mut self.popped {
            if !matches!(self.states.get(id), Some(State::Open(_))) {
                *latest = now.min(*latest);
            }
        }
    }

    pub(crate) fn reset(&mut self, queue: u32, offset: u64) {
        for (id, state) in self.states.range_mut((queue, 0)..=(queue, u64::MAX)) {
            *state = if id.1 < offset { State::Done } else { State::Fresh };
        }
    }

    /// Checks the answer to a pop, and takes note of it. `ledger` is as it was left by the pop.
    pub(crate) fn pop(&mut self, args: &PopArgs, popped: &Popped, topic: &Topic, ledger: &Ledger) {
        let now = args.now_ms;
        assert!(popped.messages.len() + popped.dead.len() <= args.max, "more than asked for");
        assert!(popped.pop_time_ms >= now);
        assert_eq!(popped.pop_time_ms + popped.invisible_ms, now + args.invisible_ms);
        let before = self.clone();
        let lost = before.lost_answer(args, topic, ledger.is_ordered());
        let again = !lost.is_empty();
        if again {
            let given: Vec<Id> = popped.messages.iter().map(|m| (m.queue, m.offset)).collect();
            assert_eq!((given, popped.dead.len()), (lost.clone(), 0), "the same again and nothing else");
        }
        let busy = before.busy_groups(topic, now, |held| again && is_of(held, args));
        let ids: BTreeSet<Id> = popped.messages.iter().chain(&popped.dead).map(|m| (m.queue, m.offset)).collect();
        assert_eq!(ids.len(), popped.messages.len() + popped.dead.len(), "one message twice in a pop");
        assert!(ids.iter().all(|id| args.queues.contains(&id.0)), "a queue not asked for");

        for dead in &popped.dead {
            let held = before.held(dead.queue, dead.offset).expect("only what was given out can be dead");
            assert!(args.dead_letter && held.deadline <= now && counted(&held) >= args.max_attempts);
            assert_eq!((verdict(topic, dead.queue, dead.offset), dead.attempts), (Verdict::Deliver, held.attempts));
            self.states.insert((dead.queue, dead.offset), State::Done);
        }
        self.note_skipped(now, topic, ledger, &ids);
        for taken in &popped.messages {
            let id = (taken.queue, taken.offset);
            assert_eq!(verdict(topic, id.0, id.1), Verdict::Deliver);
            let attempts = match before.states[&id] {
                State::Done => panic!("{id:?} was done"),
                State::Fresh => 1,
                State::Open(held) if again => held.attempts,
                State::Open(held) => {
                    assert!(held.deadline <= now, "{id:?} is held by somebody");
                    assert!(counted(&held) < args.max_attempts, "one attempt too many");
                    assert!(counted(&held) + 1 >= held.attempts, "the count fell");
                    counted(&held) + 1
                }
            };
            assert_eq!(taken.attempts, attempts);
            if ledger.is_ordered() {
                let group = topic.queues[id.0 as usize].all[id.1 as usize].group;
                assert!(!busy.contains(&(id.0, group)), "{id:?}: its group is held by somebody");
                // Predecessors that this pop took are live by now, so what is left undone and not live was jumped.
                assert!(
                    self.waiting(topic, id.0, now).all(|(offset, of)| of != group || offset >= id.1),
                    "{id:?} before its predecessor"
                );
            }
            let latest = self.popped.insert(id, popped.pop_time_ms);
            assert!(latest.is_none_or(|latest| latest < popped.pop_time_ms), "pop time not later than before");
            self.given.push(lease_ref(taken, popped.pop_time_ms));
            let held = Held {
                pop_time: popped.pop_time_ms,
                deadline: now + args.invisible_ms,
                attempts,
                uncounted: false,
                holder: args.holder,
                attempt: args.attempt,
                heard: false,
            };
            self.states.insert(id, State::Open(held));
        }

        for queue in args.queues.clone() {
            let limit = args.in_flight_max.max(before.in_flight(queue, now));
            assert!(self.in_flight(queue, now) <= limit, "in-flight limit");
        }
        if popped.messages.len() + popped.dead.len() < args.max && !popped.more && !topic.stopped.get() && !again {
            self.check_complete(args, popped, topic, ledger, &busy);
        }
    }

    /// A pop that was not full left nothing that it could have taken.
    fn check_complete(
        &self,
        args: &PopArgs,
        popped: &Popped,
        topic: &Topic,
        ledger: &Ledger,
        busy: &BTreeSet<(u32, Option<u32>)>,
    ) {
        let now = args.now_ms;
        let mut rest = 0;
        for queue in args.queues.clone() {
            let open = ledger.iter().filter(|(q, _, _)| *q == queue).count();
            if self.in_flight(queue, now) >= args.in_flight_max {
                continue;
            }
            let busy_now = self.busy_groups(topic, now, |_| false);
            for (offset, group) in self.waiting(topic, queue, now) {
                let held = self.held(queue, offset);
                let unread = ledger.next(queue).is_none_or(|next| offset >= next);
                if unread && open >= args.in_flight_max {
                    continue;
                }
                let exhausted = held.is_some_and(|held| counted(&held) >= args.max_attempts);
                let blocked = ledger.is_ordered()
                    && (busy.contains(&(queue, group))
                        || busy_now.contains(&(queue, group))
                        || self.behind_exhausted(args, topic, queue, offset));
                assert!(blocked || (exhausted && !args.dead_letter), "({queue}, {offset}) could have been taken");
                rest += u64::from(!unread && !blocked);
            }
        }
        if args.dead_letter {
            assert_eq!(popped.rest, rest, "nothing is left, so nothing is ready");
        }
    }

    /// Whether a message with no attempts left stays before this one in its group, because there is no room for dead letters.
    fn behind_exhausted(&self, args: &PopArgs, topic: &Topic, queue: u32, offset: u64) -> bool {
        let of = |offset: u64| topic.queues[queue as usize].all[offset as usize].group;
        !args.dead_letter
            && (0..offset).any(|o| {
                of(o) == of(offset) && self.held(queue, o).is_some_and(|held| counted(&held) >= args.max_attempts)
            })
    }

    /// Messages that a pop passed for good: filtered out or gone.
    fn note_skipped(&mut self, now: i64, topic: &Topic, ledger: &Ledger, answered: &BTreeSet<Id>) {
        for (id, state) in &mut self.states {
            let passed = ledger.next(id.0).is_some_and(|next| id.1 < next) && ledger.get(id.0, id.1).is_none();
            if passed && !matches!(state, State::Done) && !answered.contains(id) {
                assert_ne!(verdict(topic, id.0, id.1), Verdict::Deliver, "{id:?} is lost");
                assert!(!matches!(state, State::Open(held) if held.deadline > now), "{id:?} was taken from its holder");
                *state = State::Done;
            }
        }
    }

    /// What a receive of this name by this client took before and has to be given again, in order: unless the client has said
    /// something about one of them, all that is wanted, as far as it goes, and none before its predecessor.
    fn lost_answer(&self, args: &PopArgs, topic: &Topic, ordered: bool) -> Vec<Id> {
        let mut lost = Vec::new();
        let open = |queue: u32| {
            self.states.range((queue, 0)..=(queue, u64::MAX)).filter_map(|(id, state)| match state {
                State::Open(held) => Some((*id, *held)),
                _ => None,
            })
        };
        if args.queues.clone().flat_map(open).any(|(_, held)| is_of(&held, args) && held.heard) {
            return lost;
        }
        let group = |id: Id| topic.queues[id.0 as usize].all[id.1 as usize].group;
        let mut examined = 0;
        for queue in args.queues.clone() {
            for (id, _) in open(queue).filter(|(_, held)| is_of(held, args) && held.deadline > args.now_ms) {
                let jumps = |other: Id| other.1 < id.1 && group(other) == group(id) && !lost.contains(&other);
                if ordered && open(queue).any(|(other, _)| jumps(other)) {
                    continue;
                }
                if lost.len() >= args.max || examined >= args.scan_max {
                    return lost;
                }
                examined += 1;
                match verdict(topic, id.0, id.1) {
                    Verdict::Stop => return lost,
                    Verdict::Deliver => lost.push(id),
                    Verdict::Filtered | Verdict::Gone => {}
                }
            }
        }
        lost
    }

    /// (queue, group) of which somebody holds a message, some left out.
    fn busy_groups(&self, topic: &Topic, now: i64, but: impl Fn(&Held) -> bool) -> BTreeSet<(u32, Option<u32>)> {
        let live = self.states.iter().filter(|(_, s)| matches!(s, State::Open(h) if h.deadline > now && !but(h)));
        live.map(|(id, _)| (id.0, topic.queues[id.0 as usize].all[id.1 as usize].group)).collect()
    }

    /// (offset, group) of all messages of the queue that are wanted, not done, and held by nobody.
    fn waiting(&self, topic: &Topic, queue: u32, now: i64) -> impl Iterator<Item = (u64, Option<u32>)> {
        self.states
            .range((queue, 0)..=(queue, u64::MAX))
            .filter(move |(_, s)| !matches!(s, State::Done) && !matches!(s, State::Open(h) if h.deadline > now))
            .filter(move |(id, _)| verdict(topic, id.0, id.1) == Verdict::Deliver)
            .map(move |(id, _)| (id.1, topic.queues[queue as usize].all[id.1 as usize].group))
    }

    /// Wanted messages that are not done.
    pub(crate) fn undone(&self, topic: &Topic) -> usize {
        self.states
            .iter()
            .filter(|(id, s)| !matches!(s, State::Done) && verdict(topic, id.0, id.1) == Verdict::Deliver)
            .count()
    }
}

/// Whether a receive of this name by this client took it.
fn is_of(held: &Held, args: &PopArgs) -> bool {
    args.attempt != 0 && args.holder != 0 && (held.attempt, held.holder) == (args.attempt, args.holder)
}

fn counted(held: &Held) -> u32 {
    held.attempts - u32::from(held.uncounted)
}

fn verdict(topic: &Topic, queue: u32, offset: u64) -> Verdict {
    let queue = &topic.queues[queue as usize];
    if offset < queue.min { Verdict::Gone } else { queue.all[offset as usize].verdict }
}
