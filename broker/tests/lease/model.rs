//! Random lives of a ledger beside the oracle.

use crate::oracle::Oracle;
use crate::support::{Topic, World};
use proptest::prelude::*;
use waybill_broker::lease::{AckOutcome, Change, ChangeArgs, ChangedBy, LeaseRef, Verdict};

#[derive(Clone, Debug)]
enum Op {
    Send {
        queue: usize,
        count: usize,
        verdict: Verdict,
        groups: [u8; 4],
    },
    Pop {
        queue: Option<u32>,
        max: usize,
        invisible: i64,
        attempts: u32,
        in_flight: usize,
        scan: usize,
        dead_letter: bool,
        holder: u32,
        attempt: u32,
    },
    Ack(Vec<Handle>),
    Change(Vec<(Handle, i64, bool)>),
    Release {
        holder: u32,
        invisible: i64,
    },
    Judge {
        queue: usize,
        offset: usize,
        verdict: Verdict,
    },
    Retain {
        queue: usize,
        count: u64,
    },
    Reset {
        queue: u32,
        offset: u64,
    },
    Restart,
    Wait(i64),
}

/// One that was given out (the latest are more likely), or a made-up one.
#[derive(Clone, Debug)]
enum Handle {
    Given(usize),
    Forged(u32, u64, i64),
}

fn handle() -> impl Strategy<Value = Handle> {
    prop_oneof![
        8 => (0..12_usize).prop_map(Handle::Given),
        2 => (0..400_usize).prop_map(Handle::Given),
        1 => (0..5_u32, 0..40_u64, prop_oneof![Just(0_i64), 1000..1300_i64]).prop_map(|(q, o, t)| Handle::Forged(q, o, t)),
    ]
}

fn verdict() -> impl Strategy<Value = Verdict> {
    prop_oneof![8 => Just(Verdict::Deliver), 3 => Just(Verdict::Filtered), 1 => Just(Verdict::Gone), 1 => Just(Verdict::Stop)]
}

fn invisible() -> impl Strategy<Value = i64> {
    prop_oneof![4 => 0..60_i64, 1 => Just(0_i64), 1 => 200..2000_i64, 1 => any::<i64>()]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..4_usize, 1..9_usize, prop_oneof![6 => Just(Verdict::Deliver), 1 => Just(Verdict::Filtered)], any::<[u8; 4]>())
            .prop_map(|(queue, count, verdict, groups)| Op::Send { queue, count, verdict, groups }),
        8 => (
            proptest::option::weighted(0.3, 0..4_u32),
            0..9_usize,
            1..50_i64,
            1..5_u32,
            prop_oneof![3 => 1..9_usize, 2 => Just(usize::MAX)],
            prop_oneof![1 => 1..20_usize, 3 => Just(usize::MAX)],
            proptest::bool::weighted(0.8),
            0..3_u32,
            0..3_u32,
        )
            .prop_map(|(queue, max, invisible, attempts, in_flight, scan, dead_letter, holder, attempt)| Op::Pop {
                queue, max, invisible, attempts, in_flight, scan, dead_letter, holder, attempt
            }),
        6 => proptest::collection::vec(handle(), 1..6).prop_map(Op::Ack),
        4 => proptest::collection::vec((handle(), invisible(), proptest::bool::weighted(0.8)), 1..6).prop_map(Op::Change),
        1 => (0..3_u32, 0..40_i64).prop_map(|(holder, invisible)| Op::Release { holder, invisible }),
        1 => (0..4_usize, 0..60_usize, verdict()).prop_map(|(queue, offset, verdict)| Op::Judge { queue, offset, verdict }),
        1 => (0..4_usize, 0..3_u64).prop_map(|(queue, count)| Op::Retain { queue, count }),
        1 => (0..4_u32, 0..20_u64).prop_map(|(queue, offset)| Op::Reset { queue, offset }),
        2 => Just(Op::Restart),
        6 => (0..40_i64).prop_map(Op::Wait),
    ]
}

struct Life {
    world: World,
    oracle: Oracle,
}

impl Life {
    fn new(queues: usize, ordered: bool) -> Self {
        let topic = Topic::with(&vec![0; queues]);
        Self { world: World::new(topic, ordered), oracle: Oracle::default() }
    }

    fn queue(&self, queue: usize) -> usize {
        queue % self.world.topic.queues.len()
    }

    fn lease(&self, handle: &Handle) -> LeaseRef {
        let given = &self.oracle.given;
        match handle {
            Handle::Given(back) if !given.is_empty() => given[given.len() - 1 - back % given.len()],
            Handle::Given(back) => LeaseRef { queue: 0, offset: *back as u64, pop_time_ms: 1000 },
            Handle::Forged(queue, offset, pop_time_ms) => {
                LeaseRef { queue: *queue, offset: *offset, pop_time_ms: *pop_time_ms }
            }
        }
    }

    /// What only the ledger knows: its next offset, and whether it keeps the message as deferred.
    fn place(&self, lease: LeaseRef) -> (Option<u64>, bool) {
        let ledger = &self.world.ledger;
        (ledger.next(lease.queue), ledger.get(lease.queue, lease.offset).is_some_and(|open| open.is_deferred()))
    }

    fn step(&mut self, op: &Op) {
        match op {
            Op::Send { queue, count, verdict, groups } => {
                let queue = self.queue(*queue);
                for i in 0..*count {
                    let group = groups[i % 4] % 4;
                    self.oracle.sent(queue as u32, self.world.topic.queues[queue].all.len() as u64);
                    self.world.topic.send(queue, *verdict, (group > 0).then(|| u32::from(group)));
                }
            }
            Op::Pop { queue, max, invisible, attempts, in_flight, scan, dead_letter, holder, attempt } => {
                let count = self.world.topic.queues.len() as u32;
                let args = &mut self.world.args;
                args.queues = queue.map_or(0..count, |queue| queue % count..queue % count + 1);
                (args.max, args.invisible_ms, args.max_attempts) = (*max, *invisible, *attempts);
                (args.in_flight_max, args.scan_max, args.dead_letter) = (*in_flight, *scan, *dead_letter);
                (args.holder, args.attempt) = (*holder, *attempt);
                self.pop();
            }
            Op::Ack(handles) => {
                let leases: Vec<_> = handles.iter().map(|handle| self.lease(handle)).collect();
                self.ack(&leases);
            }
            Op::Change(entries) => {
                let args: Vec<_> = entries
                    .iter()
                    .map(|(handle, invisible_ms, count)| ChangeArgs {
                        lease: self.lease(handle),
                        invisible_ms: *invisible_ms,
                        count: *count,
                        by: ChangedBy::Client,
                    })
                    .collect();
                self.change(&args);
            }
            Op::Release { holder, invisible } => {
                let changed = self.world.with(|w, changes| {
                    w.ledger.release_held_by(w.now, |held_by| held_by == *holder, *invisible, changes)
                });
                assert_eq!(changed, self.oracle.release(self.world.now, *holder, *invisible));
            }
            Op::Judge { queue, offset, verdict } => {
                let queue = self.queue(*queue);
                if let Some(message) = self.world.topic.queues[queue].all.get_mut(*offset) {
                    message.verdict = *verdict;
                }
            }
            Op::Retain { queue, count } => {
                let queue = self.queue(*queue);
                let messages = &mut self.world.topic.queues[queue];
                messages.min = (messages.min + count).min(messages.all.len() as u64);
            }
            Op::Reset { queue, offset } => {
                let queue = self.queue(*queue as usize);
                let offset = (*offset).min(self.world.topic.queues[queue].all.len() as u64);
                self.world.with(|w, changes| w.ledger.reset(w.now, queue as u32, offset, changes));
                self.oracle.reset(queue as u32, offset);
            }
            Op::Restart => {
                let ordered = self.world.ledger.is_ordered();
                self.world.restart(ordered);
                self.oracle.restart(self.world.now);
            }
            Op::Wait(ms) => self.world.now += ms,
        }
    }

    fn pop(&mut self) -> usize {
        self.world.topic.stopped.set(false);
        let popped = self.world.pop();
        self.oracle.pop(&self.world.args, &popped, &self.world.topic, &self.world.ledger);
        popped.messages.len() + popped.dead.len() + usize::from(popped.more)
    }

    /// A batch answers and does the same as single calls on a copy, and both what the oracle says.
    fn ack(&mut self, leases: &[LeaseRef]) {
        let mut copy = self.world.clone();
        let outcomes = self.world.with(|w, changes| w.ledger.ack_many(w.now, leases, changes));
        assert_eq!(outcomes.len(), leases.len());
        for (lease, outcome) in leases.iter().zip(&outcomes) {
            let (next, deferred) = self.place(*lease);
            let expected = self.oracle.ack(*lease, next, deferred);
            assert!(
                matches!((*outcome, expected), (AckOutcome::Acked { .. }, AckOutcome::Acked { .. }))
                    || *outcome == expected
            );
            assert_eq!(copy.ack(*lease), *outcome);
        }
        assert_eq!(copy.rows, self.world.rows);
    }

    fn change(&mut self, args: &[ChangeArgs]) {
        let mut copy = self.world.clone();
        let outcomes = self.world.with(|w, changes| w.ledger.change_many(w.now, args, changes));
        assert_eq!(outcomes.len(), args.len());
        for (args, outcome) in args.iter().zip(&outcomes) {
            let (next, deferred) = self.place(args.lease);
            assert_eq!(self.oracle.change(self.world.now, *args, next, deferred), *outcome);
            let mut one: Vec<Change> = Vec::new();
            assert_eq!(copy.ledger.change(copy.now, *args, &mut one), *outcome);
            copy.rows.apply(&one);
        }
        assert_eq!(copy.rows, self.world.rows);
    }

    /// Whatever happened: after the longest lease has run out, everything undone comes, and once acked, nothing does.
    fn end(&mut self) {
        for queue in &mut self.world.topic.queues {
            queue.all.iter_mut().filter(|m| m.verdict == Verdict::Stop).for_each(|m| m.verdict = Verdict::Deliver);
        }
        let args = &mut self.world.args;
        args.queues = 0..self.world.topic.queues.len() as u32;
        (args.max, args.invisible_ms, args.max_attempts) = (7, 1000, 3);
        (args.in_flight_max, args.scan_max, args.dead_letter) = (8, 9, true);
        args.attempt = 0;
        self.world.now = waybill_broker::lease::MAX_MS - 5000;
        self.step(&Op::Release { holder: 0, invisible: 0 });
        self.step(&Op::Release { holder: 1, invisible: 0 });
        self.step(&Op::Release { holder: 2, invisible: 0 });
        for _ in 0..2000 {
            if self.pop() == 0 {
                break;
            }
            let given = self.oracle.given.clone();
            self.ack(&given[given.len().saturating_sub(7)..]);
        }
        assert_eq!(self.oracle.undone(&self.world.topic), 0, "left behind: {:?}", self.oracle.states);
        assert_eq!(self.world.ledger.iter().count(), 0);
    }
}

fn live(queues: usize, ordered: bool, ops: &[Op]) {
    let mut life = Life::new(queues, ordered);
    for op in ops {
        life.step(op);
    }
    life.end();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, max_shrink_iters: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn unordered(queues in 1..5_usize, ops in proptest::collection::vec(op(), 0..150)) {
        live(queues, false, &ops);
    }

    #[test]
    fn ordered(queues in 1..4_usize, ops in proptest::collection::vec(op(), 0..150)) {
        live(queues, true, &ops);
    }
}
