//! The timer's decisions against a model of the store: never early, in order of time, within bounds, and each message once.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use waybill_broker::store::{HeldRow, QueueKey};
use waybill_broker::timer::{Look, Refusal, Timer};

const START_MS: u64 = 1_800_000_000_000;
/// Messages of the last step that go with a batch of a backlog.
const FRESH: usize = 2;

#[derive(Debug, Clone)]
enum Event {
    /// A message is committed that is due in so many milliseconds. The timer is told later.
    Hold(u64),
    /// The timer is told of one of those.
    Tell(usize),
    Advance(u64),
    /// One batch of at most so many rows, whose write may fail.
    Batch(usize, bool),
    /// A recall of one of the messages begins.
    Recall(usize),
    /// One of the recalls ends, successfully or not.
    End(usize, bool),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => (1..5_000_u64).prop_map(Event::Hold),
        3 => any::<usize>().prop_map(Event::Tell),
        2 => (0..3_000_u64).prop_map(Event::Advance),
        4 => (1..4_usize, prop::bool::weighted(0.1)).prop_map(|(max, fails)| Event::Batch(max, fails)),
        1 => any::<usize>().prop_map(Event::Recall),
        1 => (any::<usize>(), any::<bool>()).prop_map(|(which, ok)| Event::End(which, ok)),
    ]
}

struct Model {
    timer: Timer,
    precision: u64,
    now: u64,
    store: BTreeMap<(u64, u64), HeldRow>,
    untold: Vec<(u64, u64)>,
    recalling: Vec<(u64, u64)>,
    moved: BTreeSet<u64>,
    recalled: BTreeSet<u64>,
    sent: u64,
}

impl Model {
    fn new(precision: u64) -> Self {
        Self {
            timer: Timer::new(precision),
            precision,
            now: START_MS,
            store: BTreeMap::new(),
            untold: Vec::new(),
            recalling: Vec::new(),
            moved: BTreeSet::new(),
            recalled: BTreeSet::new(),
            sent: 0,
        }
    }

    fn apply(&mut self, event: &Event) {
        match *event {
            Event::Hold(delay) => {
                let (time_ms, position) = (self.now + delay, self.sent);
                self.sent += 1;
                let queue = QueueKey { topic: 1, queue: 0 };
                let row = HeldRow { time_ms, position, len: 1, tag_hash: 0, queue, store_time_ms: 0 };
                self.store.insert((time_ms, position), row);
                self.untold.push((time_ms, position));
            }
            Event::Tell(which) => {
                if !self.untold.is_empty() {
                    let (due, _) = self.untold.remove(which % self.untold.len());
                    self.timer.held(due);
                }
            }
            Event::Advance(ms) => self.now += ms,
            Event::Batch(max, fails) => drop(self.batch(max, fails)),
            Event::Recall(which) => {
                if let Some(key) = self.store.keys().nth(which % self.store.len().max(1)).copied() {
                    let expected = if self.recalling.contains(&key) { Err(Refusal::Recalled) } else { Ok(()) };
                    assert_eq!(self.timer.recall(key.1), expected, "no batch is under way");
                    if expected.is_ok() {
                        self.recalling.push(key);
                    }
                }
            }
            Event::End(which, ok) => {
                if !self.recalling.is_empty() {
                    let key = self.recalling.remove(which % self.recalling.len());
                    if ok {
                        self.store.remove(&key).expect("nobody else takes what is being recalled");
                        self.recalled.insert(key.1);
                    }
                    self.timer.recalled(key.1, (!ok).then_some(key.0));
                }
            }
        }
    }

    /// One batch; false if there was nothing to do.
    fn batch(&mut self, max: usize, fails: bool) -> bool {
        let Look::Rows { from, until_ms, fresh } = self.timer.look(self.now) else { return false };
        assert!(until_ms <= self.now + 1, "nothing is early");
        let found: Vec<HeldRow> = self.store.range(from..(until_ms, 0)).map(|(_, row)| *row).take(max).collect();
        let done = found.len() < max;
        let batch = self.timer.found(&found, done.then_some(until_ms));
        let fresh = fresh.filter(|fresh| !done && found.last().is_some_and(|row| (row.time_ms, row.position) < *fresh));
        let fresh = fresh.map_or(Vec::new(), |fresh| {
            assert!(fresh.0 + self.precision >= until_ms, "only the last step comes before its turn");
            let found: Vec<HeldRow> = self.store.range(fresh..(until_ms, 0)).map(|(_, row)| *row).take(FRESH).collect();
            self.timer.found_fresh(&found, (found.len() < FRESH).then_some(until_ms))
        });
        if done {
            self.timer.next_is(self.store.range((until_ms, 0)..).next().map(|((due, _), _)| *due));
        }
        assert!(batch.len() <= max);
        assert!(batch.is_sorted_by_key(|row| (row.time_ms, row.position)), "in order of time");
        assert!(fresh.len() <= FRESH);
        for row in batch.iter().chain(&fresh) {
            assert_eq!(self.timer.recall(row.position), Err(Refusal::TooLate), "it is being moved");
        }
        if fails {
            self.timer.failed();
            return true;
        }
        for row in batch.iter().chain(&fresh) {
            assert!(row.time_ms <= self.now, "early");
            assert!(self.moved.insert(row.position), "twice");
            assert!(!self.recalled.contains(&row.position), "recalled");
            self.store.remove(&(row.time_ms, row.position)).expect("it is there");
        }
        self.timer.moved();
        if let Some(last) = batch.last() {
            let passed_over = self.store.keys().find(|key| {
                **key < (last.time_ms, last.position) && !self.untold.contains(key) && !self.recalling.contains(key)
            });
            assert_eq!(passed_over, None, "an earlier one was passed over");
        }
        true
    }

    fn until_nothing_is_due(&mut self) {
        while self.batch(3, false) {}
        let step = self.now - self.now % self.precision;
        let left =
            self.store.keys().find(|key| key.0 <= step && !self.untold.contains(key) && !self.recalling.contains(key));
        assert_eq!(left, None, "late");
        // What it waits for is the first that is left, at a step that is not before it.
        let Look::Wait(at) = self.timer.look(self.now) else { panic!("there is nothing to do") };
        if let Some(first) = self.store.keys().find(|key| !self.recalling.contains(key) && !self.untold.contains(key)) {
            let at = at.expect("it waits for something");
            assert!(at > self.now && at % self.precision == 0 && at < first.0 + self.precision, "{at} {first:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]
    #[test]
    fn whatever_happens(precision in prop::sample::select(vec![0_u64, 1, 10, 250, 1_000]), events in prop::collection::vec(event(), 1..80)) {
        let mut model = Model::new(precision);
        model.precision = precision.max(1);
        for event in &events {
            model.apply(event);
        }
        model.until_nothing_is_due();
        for _ in 0..events.len() {
            model.apply(&Event::Tell(0));
            model.apply(&Event::End(0, false));
        }
        model.now += 10_000;
        model.until_nothing_is_due();
        prop_assert!(model.store.is_empty());
        prop_assert_eq!((model.moved.len() + model.recalled.len()) as u64, model.sent);
        prop_assert_eq!(model.timer.look(model.now), Look::Wait(None));
        prop_assert_eq!(model.timer.overdue_ms(model.now), 0);
    }
}

#[test]
fn the_work_of_a_long_backlog_is_shared_out() {
    let mut model = Model::new(1_000);
    for _ in 0..10 {
        model.apply(&Event::Hold(5));
        model.apply(&Event::Tell(0));
    }
    model.apply(&Event::Advance(3_000));
    assert!(model.batch(4, false));
    assert_eq!(model.moved.len(), 4);
    assert_eq!(model.timer.overdue_ms(model.now), 2_995, "the rest is late, and that can be seen");
    assert!(model.batch(4, false) && model.batch(4, false) && !model.batch(4, false));
    assert_eq!(model.moved.len(), 10);
}

#[test]
fn what_is_due_now_does_not_wait_for_a_backlog() {
    let mut model = Model::new(1_000);
    let hold = |model: &mut Model, delay| {
        model.apply(&Event::Hold(delay));
        model.apply(&Event::Tell(0));
        model.sent - 1
    };
    for _ in 0..40 {
        hold(&mut model, 5);
    }
    let due_later: Vec<u64> = [2_500, 2_600, 2_700].into_iter().map(|delay| hold(&mut model, delay)).collect();
    model.apply(&Event::Advance(3_000));
    assert!(model.batch(4, false) && model.batch(4, false));
    assert!(
        due_later.iter().all(|position| model.moved.contains(position)),
        "two with the first batch, one with the second"
    );
    assert_eq!(model.moved.len(), 8 + 3, "and the backlog goes on beside them");
    // One that comes while the last step is done already.
    let late = hold(&mut model, 0);
    assert!(model.batch(4, false));
    assert!(model.moved.contains(&late));
    // After a failed write everything is looked at again, and nothing is moved twice.
    assert!(model.batch(4, true));
    model.until_nothing_is_due();
    assert_eq!(model.moved.len(), 44);
}
