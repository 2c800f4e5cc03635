//! A topic without a store, and short ways to ask a ledger.

use std::cell::Cell;
use std::collections::BTreeMap;
use waybill_broker::lease::schema::{lease_key, progress_key, read_lease, read_progress, write_lease, write_progress};
use waybill_broker::lease::{Change, ChangeArgs, ChangedBy, LeaseRef, Ledger, PopArgs, Popped, Source, Taken, Verdict};

/// A message of the fake topic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    pub(crate) verdict: Verdict,
    pub(crate) group: Option<u32>,
}

/// A queue of the fake topic; offset = index.
#[derive(Clone, Debug, Default)]
pub(crate) struct Messages {
    pub(crate) min: u64,
    pub(crate) all: Vec<Message>,
}

/// A topic without a store.
#[derive(Clone, Debug, Default)]
pub(crate) struct Topic {
    pub(crate) queues: Vec<Messages>,
    pub(crate) start: u64,
    pub(crate) examined: usize,
    pub(crate) stopped: Cell<bool>,
}

impl Topic {
    /// Queues with so many messages each, all to be delivered, without group.
    pub(crate) fn with(counts: &[usize]) -> Self {
        let mut topic = Self::default();
        for (queue, count) in counts.iter().enumerate() {
            topic.queues.push(Messages::default());
            for _ in 0..*count {
                topic.send(queue, Verdict::Deliver, None);
            }
        }
        topic
    }

    /// One queue with a message for each of these groups.
    pub(crate) fn grouped(groups: &[u32]) -> Self {
        let mut topic = Self::with(&[0]);
        for group in groups {
            topic.send(0, Verdict::Deliver, Some(*group));
        }
        topic
    }

    pub(crate) fn send(&mut self, queue: usize, verdict: Verdict, group: Option<u32>) {
        self.queues[queue].all.push(Message { verdict, group });
    }
}

impl Source for Topic {
    fn bounds(&self, queue: u32) -> (u64, u64) {
        let queue = &self.queues[queue as usize];
        (queue.min, queue.all.len() as u64)
    }

    fn start(&mut self, _queue: u32) -> u64 {
        self.start
    }

    fn examine(&mut self, queue: u32, offset: u64) -> Verdict {
        self.examined += 1;
        let queue = &self.queues[queue as usize];
        let verdict = if offset < queue.min { Verdict::Gone } else { queue.all[offset as usize].verdict };
        self.stopped.set(self.stopped.get() || verdict == Verdict::Stop);
        verdict
    }

    fn message_group(&mut self, queue: u32, offset: u64) -> Option<u32> {
        self.queues[queue as usize].all[offset as usize].group
    }
}

/// What the store would hold: key → value of both keyspaces.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Rows {
    leases: BTreeMap<Vec<u8>, Vec<u8>>,
    progress: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Rows {
    pub(crate) fn apply(&mut self, changes: &[Change]) {
        for change in changes {
            let mut value = Vec::new();
            match change {
                Change::Put(queue, offset, lease) => {
                    write_lease(lease, &mut value);
                    self.leases.insert(lease_key(7, 8, *queue, *offset).to_vec(), value);
                }
                Change::Delete(queue, offset) => {
                    self.leases.remove(lease_key(7, 8, *queue, *offset).as_slice());
                }
                Change::Progress(queue, progress) => {
                    write_progress(progress, &mut value);
                    self.progress.insert(progress_key(7, 8, *queue).to_vec(), value);
                }
            }
        }
    }

    pub(crate) fn restore(&self, ordered: bool) -> Ledger {
        let progress = self.progress.iter().map(|(key, value)| {
            let row = read_progress(key, value).unwrap();
            (row.queue, row.progress)
        });
        let leases = self.leases.iter().map(|(key, value)| {
            let row = read_lease(key, value).unwrap();
            assert_eq!((row.group, row.topic), (7, 8));
            (row.queue, row.offset, row.lease)
        });
        Ledger::restore(ordered, progress, leases)
    }
}

/// A ledger, its topic, its rows and the time.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) now: i64,
    pub(crate) ledger: Ledger,
    pub(crate) topic: Topic,
    pub(crate) rows: Rows,
    pub(crate) args: PopArgs,
}

impl World {
    /// At 1000; pops of up to 32 messages for 100 ms, three attempts, no limits.
    pub(crate) fn new(topic: Topic, ordered: bool) -> Self {
        let args = PopArgs {
            now_ms: 0,
            queues: 0..topic.queues.len() as u32,
            max: 32,
            invisible_ms: 100,
            holder: 1,
            attempt: 0,
            max_attempts: 3,
            in_flight_max: usize::MAX,
            scan_max: usize::MAX,
            dead_letter: true,
        };
        Self { now: 1000, ledger: Ledger::new(ordered), topic, rows: Rows::default(), args }
    }

    /// Calls the ledger, applies the changes to the rows and checks that both still say the same.
    pub(crate) fn with<T>(&mut self, f: impl FnOnce(&mut Self, &mut Vec<Change>) -> T) -> T {
        let mut changes = Vec::new();
        let answer = f(self, &mut changes);
        self.rows.apply(&changes);
        let restored = self.rows.restore(self.ledger.is_ordered());
        assert!(restored.iter().eq(self.ledger.iter()), "rows {:?}\nlive {:?}", restored, self.ledger);
        assert!(restored.progress().eq(self.ledger.progress()), "rows {:?}\nlive {:?}", restored, self.ledger);
        answer
    }

    pub(crate) fn pop(&mut self) -> Popped {
        self.with(|world, changes| {
            world.args.now_ms = world.now;
            world.ledger.pop(&world.args, &mut world.topic, changes)
        })
    }

    pub(crate) fn pop_max(&mut self, max: usize) -> Popped {
        self.args.max = max;
        self.pop()
    }

    pub(crate) fn ack(&mut self, lease: LeaseRef) -> waybill_broker::lease::AckOutcome {
        self.with(|world, changes| world.ledger.ack(world.now, lease, changes))
    }

    pub(crate) fn change(&mut self, lease: LeaseRef, invisible_ms: i64) -> waybill_broker::lease::ChangeOutcome {
        let args = ChangeArgs { lease, invisible_ms, count: true, by: ChangedBy::Unknown };
        self.with(|world, changes| world.ledger.change(world.now, args, changes))
    }

    pub(crate) fn suspend(&mut self, lease: LeaseRef, invisible_ms: i64) -> waybill_broker::lease::ChangeOutcome {
        let args = ChangeArgs { lease, invisible_ms, count: false, by: ChangedBy::Unknown };
        self.with(|world, changes| world.ledger.change(world.now, args, changes))
    }

    /// Everything in memory is lost; the rows are not.
    pub(crate) fn restart(&mut self, ordered: bool) {
        self.ledger = self.rows.restore(ordered);
    }
}

/// The handles of a pop.
pub(crate) fn refs(popped: &Popped) -> Vec<LeaseRef> {
    popped.messages.iter().map(|m| lease_ref(m, popped.pop_time_ms)).collect()
}

pub(crate) fn lease_ref(taken: &Taken, pop_time_ms: i64) -> LeaseRef {
    LeaseRef { queue: taken.queue, offset: taken.offset, pop_time_ms }
}

/// Offsets of a pop, in its order.
pub(crate) fn offsets(popped: &Popped) -> Vec<u64> {
    popped.messages.iter().map(|m| m.offset).collect()
}

/// (offset, attempt) of a pop, in its order.
pub(crate) fn attempts(popped: &Popped) -> Vec<(u64, u32)> {
    popped.messages.iter().map(|m| (m.offset, m.attempts)).collect()
}
