//! The core of the batching room: which request goes next, told by events alone.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests say what they expect")]

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
};

use proptest::prelude::*;
use waybill_protocol::handle::TopicType;
use waybill_sidecar::batching::{
    Kind, Plan, Sending, Target,
    core::{Core, Effect, Item, Limits, Slot},
};

const ROOMY: Limits = Limits { of_broker: 1_000_000, of_all: 1_000_000 };
const NEVER: i64 = i64::MAX;

fn target(topic: &str) -> Target {
    Target { kind: Kind::Change, group: "g".into(), topic: topic.into(), topic_type: TopicType::Normal }
}

fn item(value: u32) -> Item<u32> {
    Item { value, bytes: 100, most: usize::MAX, start_by: NEVER, number: 0 }
}

fn items(values: impl IntoIterator<Item = u32>) -> Vec<Item<u32>> {
    values.into_iter().map(item).collect()
}

fn batches(entries: usize) -> Plan {
    let sending = Sending::Batches { entries, bytes: usize::MAX };
    Plan { acks: sending, changes: sending, singly: 3, batches_of_target: 2, batches: 5 }
}

fn singly() -> Plan {
    Plan { acks: Sending::Singly, changes: Sending::Singly, ..batches(1) }
}

/// The core, one broker, and the requests that are under way.
struct World {
    core: Core<u32>,
    broker: Arc<str>,
    under_way: VecDeque<Slot>,
    late: Vec<u32>,
}

impl World {
    fn new(limits: Limits) -> Self {
        Self { core: Core::new(limits), broker: "a".into(), under_way: VecDeque::new(), late: Vec::new() }
    }

    fn push(&mut self, topic: &str, items: Vec<Item<u32>>) -> Vec<u32> {
        self.core.push(&self.broker, &target(topic), items).into_iter().map(|item| item.value).collect()
    }

    /// The requests that are sent now.
    fn take(&mut self, now: i64, plan: &Plan) -> Vec<Vec<u32>> {
        let mut sent = Vec::new();
        for effect in self.core.take(&self.broker, now, plan) {
            match effect {
                Effect::Send(slot, items) => {
                    self.under_way.push_back(slot);
                    sent.push(items.into_iter().map(|item| item.value).collect());
                }
                Effect::Late(values) => self.late.extend(values),
            }
        }
        sent
    }

    /// The request that was sent first of those under way ends.
    fn end(&mut self, plan: &Plan) -> Vec<Vec<u32>> {
        let slot = self.under_way.pop_front().expect("a request is under way");
        self.core.ended(&slot);
        self.take(0, plan)
    }
}

#[test]
fn nothing_waits_when_nothing_is_under_way_and_what_comes_meanwhile_goes_together() {
    let mut world = World::new(ROOMY);
    let plan = batches(100);
    for value in 1..=2 {
        assert!(world.push("t", items([value])).is_empty());
        assert_eq!(world.take(0, &plan), [vec![value]], "at once");
    }
    for value in 3..=6 {
        assert!(world.push("t", items([value])).is_empty());
        assert!(world.take(0, &plan).is_empty(), "two are under way");
    }
    assert_eq!(world.core.waiting(), 4);
    assert_eq!(world.end(&plan), [vec![3, 4, 5, 6]]);
    assert!(world.end(&plan).is_empty());
    assert!(world.end(&plan).is_empty());
    assert_eq!((world.core.waiting(), world.core.under_way(), world.core.brokers()), (0, 0, 0), "all is forgotten");
}

#[test]
fn requests_are_as_large_as_entries_bytes_and_each_entry_allow() {
    let mut world = World::new(ROOMY);
    let plan = Plan { batches_of_target: 100, batches: 100, ..batches(4) };
    assert!(world.push("t", items(0..10)).is_empty());
    assert_eq!(world.take(0, &plan), [vec![0, 1, 2, 3], vec![4, 5, 6, 7], vec![8, 9]]);

    let bytes = Sending::Batches { entries: 100, bytes: 250 };
    let plan = Plan { changes: bytes, ..plan };
    let large = Item { bytes: 1_000, ..item(13) };
    let all = [items(10..13), vec![large], items(14..15)].concat();
    assert!(world.push("t", all).is_empty());
    assert_eq!(world.take(0, &plan), [vec![10, 11], vec![12], vec![13], vec![14]], "a large one goes alone");

    let plan = Plan { batches_of_target: 100, batches: 100, ..batches(100) };
    let pairs = (21..24).map(|value| Item { most: 2, ..item(value) });
    let all = [items(20..21), pairs.collect(), vec![Item { most: 1, ..item(24) }], items(25..27)].concat();
    assert!(world.push("t", all).is_empty());
    assert_eq!(world.take(0, &plan), [vec![20, 21], vec![22, 23], vec![24], vec![25, 26]]);
}

#[test]
fn targets_take_turns_and_none_takes_all_there_is() {
    let mut world = World::new(ROOMY);
    let plan = batches(2);
    assert!(world.push("big", items(0..100)).is_empty());
    assert!(world.push("x", items([100])).is_empty());
    assert!(world.push("y", items([101, 102, 103])).is_empty());
    let sent = world.take(0, &plan);
    assert_eq!(sent, [vec![0, 1], vec![100], vec![101, 102], vec![2, 3], vec![103]], "two of a target, five of all");
    assert!(world.push("z", items([104])).is_empty());
    assert!(world.take(0, &plan).is_empty());
    assert_eq!(world.end(&plan), [vec![4, 5]]);
    assert_eq!(world.end(&plan), [vec![104]], "a turn later, whatever else the large one has");
}

#[test]
fn what_cannot_go_together_goes_one_by_one_with_a_limit() {
    let mut world = World::new(ROOMY);
    assert!(world.push("t", items(0..5)).is_empty());
    assert!(world.push("u", items(5..7)).is_empty());
    assert_eq!(world.take(0, &singly()), [[0], [5], [1]]);
    assert_eq!(world.end(&singly()), [[6]]);
    assert_eq!(world.end(&singly()), [[2]]);
    // From here on the broker takes batches, whatever is under way.
    assert_eq!(world.end(&batches(100)), [[3, 4]]);
}

#[test]
fn a_switch_counts_for_all_that_waits() {
    let mut world = World::new(ROOMY);
    let plan = Plan { batches_of_target: 1, ..batches(100) };
    assert!(world.push("t", items([0])).is_empty());
    assert_eq!(world.take(0, &plan), [[0]]);
    assert!(world.push("t", items(1..6)).is_empty());
    assert_eq!(world.end(&singly()), [[1], [2], [3]], "switched off");
    assert_eq!(world.end(&plan), [[4, 5]], "switched on");
}

#[test]
fn a_request_refused_as_a_whole_comes_again_first_and_in_order() {
    let mut world = World::new(ROOMY);
    let plan = Plan { batches_of_target: 1, ..batches(100) };
    assert!(world.push("t", items(0..4)).is_empty());
    assert_eq!(world.take(0, &plan), [[0, 1, 2, 3]]);
    assert!(world.push("t", items([9])).is_empty());
    let slot = world.under_way.pop_front().expect("under way");
    let again = items(0..4).into_iter().map(|item| Item { most: 2, ..item }).collect();
    world.core.again(&world.broker, &target("t"), again);
    world.core.ended(&slot);
    assert_eq!(world.take(0, &plan), [[0, 1]]);
    assert_eq!(world.end(&plan), [[2, 3]]);
    assert_eq!(world.end(&plan), [[9]]);
}

#[test]
fn of_two_refused_requests_the_entries_keep_their_order_whichever_is_heard_of_first() {
    let plan = Plan { batches_of_target: 2, ..batches(2) };
    for first_heard in [0, 1] {
        let mut core = Core::new(ROOMY);
        let broker: Arc<str> = "a".into();
        assert!(core.push(&broker, &target("t"), items(0..5)).is_empty());
        let mut under_way = VecDeque::new();
        for effect in core.take(&broker, 0, &plan) {
            let Effect::Send(slot, sent) = effect else { panic!("nothing is late") };
            under_way.push_back((slot, sent));
        }
        assert_eq!(under_way.len(), 2);
        under_way.rotate_left(first_heard);
        for (slot, refused) in under_way {
            core.again(&broker, &target("t"), refused);
            core.ended(&slot);
        }
        let mut order = Vec::new();
        for effect in core.take(&broker, 0, &batches(9)) {
            let Effect::Send(_slot, sent) = effect else { panic!("nothing is late") };
            order.extend(sent.into_iter().map(|item| item.value));
        }
        assert_eq!(order, [0, 1, 2, 3, 4]);
    }
}

#[test]
fn what_has_waited_too_long_is_not_sent() {
    let mut world = World::new(ROOMY);
    let plan = Plan { batches_of_target: 1, ..batches(100) };
    let until = |start_by, value| vec![Item { start_by, ..item(value) }];
    assert!(world.push("t", until(5, 0)).is_empty());
    assert_eq!(world.take(5, &plan), [[0]]);
    assert!(world.push("t", [until(9, 1), until(10, 2)].concat()).is_empty());
    let slot = world.under_way.pop_front().expect("under way");
    world.core.ended(&slot);
    assert_eq!(world.take(10, &plan), [[2]]);
    assert_eq!(world.late, [1]);
    assert_eq!(world.core.waiting(), 0);
}

#[test]
fn there_is_room_for_so_many_of_a_broker_and_of_all() {
    let limits = Limits { of_broker: 3, of_all: 5 };
    let mut world = World::new(limits);
    assert_eq!(world.push("t", items(0..5)), [3, 4]);
    assert_eq!(world.push("u", items([5])), [5]);
    let other: Arc<str> = "b".into();
    let left = world.core.push(&other, &target("t"), items(6..9));
    assert_eq!(left, items([8]), "another broker has room of its own, up to the limit of all");
    let third: Arc<str> = "c".into();
    assert_eq!(world.core.push(&third, &target("t"), items([9])), items([9]));
    assert_eq!(world.core.brokers(), 2, "a broker for which nothing waits is not remembered");
    world.take(0, &batches(100));
    assert!(world.push("t", items(0..3)).is_empty(), "room again");
}

#[test]
fn a_broker_that_does_not_answer_holds_up_no_other() {
    let mut world = World::new(ROOMY);
    assert!(world.push("t", items(0..1_000)).is_empty());
    assert_eq!(world.take(0, &batches(1)).len(), 2);
    let other: Arc<str> = "b".into();
    assert!(world.core.push(&other, &target("t"), items([1])).is_empty());
    assert!(matches!(world.core.take(&other, 0, &batches(1)).as_slice(), [Effect::Send(..)]));
}

#[derive(Clone, Debug)]
enum Event {
    Push { broker: usize, topic: usize, count: usize, most: usize, patience: i64 },
    End { nth: usize, refused: bool },
    Plan(Plan),
    Pass(i64),
}

fn plans() -> impl Strategy<Value = Plan> {
    let sending = prop_oneof![
        Just(Sending::Singly),
        (1..6_usize, 50..900_usize).prop_map(|(entries, bytes)| Sending::Batches { entries, bytes }),
    ];
    (sending, 1..4_usize, 1..3_usize, 1..5_usize).prop_map(|(changes, singly, batches_of_target, batches)| Plan {
        acks: Sending::Singly,
        changes,
        singly,
        batches_of_target,
        batches,
    })
}

fn events() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..2_usize, 0..3_usize, 1..12_usize, 1..8_usize, 0..50_i64).prop_map(
            |(broker, topic, count, most, patience)| Event::Push { broker, topic, count, most, patience }
        ),
        5 => (any::<prop::sample::Index>(), any::<bool>())
            .prop_map(|(nth, refused)| Event::End { nth: nth.index(1 << 16), refused }),
        1 => plans().prop_map(Event::Plan),
        1 => (0..30_i64).prop_map(Event::Pass),
    ]
}

/// What became of each entry that was handed over.
#[derive(Default)]
struct Books {
    open: BTreeMap<u32, Target>,
    done: usize,
}

struct Model {
    core: Core<u32>,
    brokers: [Arc<str>; 2],
    plan: Plan,
    now: i64,
    under_way: Vec<(Slot, Vec<Item<u32>>, bool)>,
    books: Books,
    /// The last entry of each target that was sent for the first time.
    last: HashMap<(Arc<str>, Target), u32>,
}

impl Model {
    fn take(&mut self, broker: usize) {
        let broker = Arc::clone(&self.brokers[broker]);
        for effect in self.core.take(&broker, self.now, &self.plan) {
            match effect {
                Effect::Late(values) => {
                    for value in values {
                        assert!(self.books.open.remove(&value).is_some(), "told twice");
                        self.books.done += 1;
                    }
                }
                Effect::Send(slot, items) => self.sent(slot, items),
            }
        }
    }

    fn sent(&mut self, slot: Slot, items: Vec<Item<u32>>) {
        assert!(!items.is_empty());
        let batch = match self.plan.changes {
            Sending::Singly => {
                assert_eq!(items.len(), 1);
                false
            }
            Sending::Batches { entries, bytes } => {
                assert!(items.len() <= entries);
                assert!(items.len() == 1 || items.iter().map(|item| item.bytes).sum::<usize>() <= bytes);
                true
            }
        };
        for item in &items {
            assert!(items.len() <= item.most && item.start_by >= self.now);
            assert_eq!(self.books.open.get(&item.value), Some(&slot.target), "sent with others of its target only");
            let same = |(_, sent, _): &(Slot, Vec<Item<u32>>, bool)| sent.iter().any(|other| other.value == item.value);
            assert!(!self.under_way.iter().any(same), "sent twice");
            let last = self.last.entry((Arc::clone(&slot.broker), slot.target.clone())).or_default();
            *last = (*last).max(item.value);
        }
        assert!(items.windows(2).all(|pair| pair[0].value < pair[1].value), "in order");
        self.under_way.push((slot, items, batch));
        let of = |batch: bool, same: &dyn Fn(&Slot) -> bool| {
            self.under_way.iter().filter(|(slot, _, is)| *is == batch && same(slot)).count()
        };
        let Some((slot, ..)) = self.under_way.last() else { unreachable!("just pushed") };
        let here = |other: &Slot| other.broker == slot.broker;
        if batch {
            assert!(of(true, &here) <= self.plan.batches);
            let this = |other: &Slot| here(other) && other.target == slot.target;
            assert!(of(true, &this) <= self.plan.batches_of_target);
        } else {
            assert!(of(false, &here) <= self.plan.singly);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn every_entry_is_sent_once_or_told_that_it_was_not(
        events in prop::collection::vec(events(), 1..120),
        first in plans(),
    ) {
        let limits = Limits { of_broker: 40, of_all: 60 };
        let mut model = Model {
            core: Core::new(limits),
            brokers: ["a".into(), "b".into()],
            plan: first,
            now: 0,
            under_way: Vec::new(),
            books: Books::default(),
            last: HashMap::new(),
        };
        let mut next = 0_u32;
        for event in events {
            match event {
                Event::Push { broker, topic, count, most, patience } => {
                    let target = target(["t", "u", "v"][topic]);
                    let items: Vec<_> = (next..next + count as u32)
                        .map(|value| Item { bytes: 100, most, start_by: model.now + 1_000 + patience, ..item(value) })
                        .collect();
                    next += count as u32;
                    for item in &items {
                        model.books.open.insert(item.value, target.clone());
                    }
                    let name = Arc::clone(&model.brokers[broker]);
                    let before = model.core.waiting();
                    for item in model.core.push(&name, &target, items) {
                        assert!(before + count > limits.of_broker.min(limits.of_all), "there was room");
                        model.books.open.remove(&item.value);
                        model.books.done += 1;
                    }
                    prop_assert!(model.core.waiting() <= limits.of_all.max(before));
                    model.take(broker);
                }
                Event::End { nth, refused } => {
                    if model.under_way.is_empty() {
                        continue;
                    }
                    let at = nth % model.under_way.len();
                    let (slot, items, _) = model.under_way.remove(at);
                    if refused && items.len() > 1 {
                        let most = items.len() / 2;
                        let again = items.into_iter().map(|item| Item { most: item.most.min(most), ..item }).collect();
                        model.core.again(&slot.broker, &slot.target, again);
                    } else {
                        for item in items {
                            assert!(model.books.open.remove(&item.value).is_some(), "told twice");
                            model.books.done += 1;
                        }
                    }
                    model.core.ended(&slot);
                    let broker = usize::from(*slot.broker == *"b");
                    model.take(broker);
                }
                Event::Plan(plan) => model.plan = plan,
                Event::Pass(ms) => model.now += ms * 100,
            }
        }
        // All requests end: everything that waits is sent, without any other event.
        while let Some((slot, items, _)) = model.under_way.pop() {
            for item in items {
                assert!(model.books.open.remove(&item.value).is_some(), "told twice");
                model.books.done += 1;
            }
            model.core.ended(&slot);
            model.take(usize::from(*slot.broker == *"b"));
        }
        prop_assert!(model.books.open.is_empty(), "lost: {:?}", model.books.open);
        prop_assert_eq!(model.books.done, next as usize);
        prop_assert_eq!((model.core.waiting(), model.core.under_way(), model.core.brokers()), (0, 0, 0));
    }
}
