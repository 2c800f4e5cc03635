#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::store::QueueKey;

const RULES: Rules = Rules {
    timeout_ms: 6,
    interval_ms: 30,
    checks_max: 3,
    give_up_ms: 1_000,
    open_max: 8,
    decisions_max: 4,
    remember_ms: 200,
};

fn half(position: u64, time_ms: i64) -> HeldRow {
    HeldRow {
        time_ms: time_ms.cast_unsigned(),
        position,
        len: 1,
        tag_hash: 0,
        queue: QueueKey { topic: 1, queue: 0 },
        store_time_ms: time_ms - RULES.timeout_ms,
    }
}

fn empty() -> Transactions {
    Transactions::restore(RULES, [], [])
}

#[test]
fn the_first_decision_holds() {
    let (mut all, mut changes) = (empty(), Vec::new());
    let row = half(7, 6);
    all.accept(row);
    assert_eq!(all.end(1, 7, Decision::Rollback, &mut changes), Ended::Now(row));
    let decided = Row::Decided { decision: Decision::Rollback, at_ms: 1 };
    assert_eq!(changes, [Change::Release(row), Change::Put(7, decided)]);
    changes.clear();
    assert_eq!(all.end(2, 7, Decision::Commit, &mut changes), Ended::Before(Decision::Rollback, 1));
    assert_eq!(all.end(2, 7, Decision::Rollback, &mut changes), Ended::Before(Decision::Rollback, 1));
    assert_eq!(all.end(2, 8, Decision::Commit, &mut changes), Ended::Unknown);
    assert_eq!((changes, all.due(i64::MAX, 9)), (vec![], vec![]), "nothing is written, nobody is asked");
}

#[test]
fn a_producer_is_asked_so_often_and_no_more() {
    let (mut all, mut changes) = (empty(), Vec::new());
    let row = half(7, 6);
    all.accept(row);
    assert_eq!(all.due(5, 9), []);
    for (check, at) in [6, 36, 66].into_iter().enumerate() {
        assert_eq!(all.due(at - 1, 9), []);
        assert_eq!(all.due(at, 9), [Due::Ask(row, check as u32)]);
        assert!(all.asked(at, 7, &mut changes));
    }
    assert_eq!(all.due(95, 9), []);
    assert_eq!(all.due(96, 9), [Due::GiveUp(row, 3)]);
    assert_eq!(all.end(96, 7, Decision::GivenUp, &mut changes), Ended::Now(row));
    assert!(!all.asked(97, 7, &mut changes), "decided means no more checks");
}

#[test]
fn what_nobody_can_be_asked_about_is_given_up_by_its_age() {
    let mut all = empty();
    let row = half(7, 6);
    all.accept(row);
    let mut asked = 0;
    let end = (0..2_000).find(|now| match all.due(*now, 1).first() {
        Some(Due::Ask(..)) => {
            asked += 1;
            all.postpone(*now, 7);
            false
        }
        Some(Due::GiveUp(_, checks)) => {
            assert_eq!(*checks, 0);
            true
        }
        None => false,
    });
    assert!(asked > RULES.checks_max, "{asked}");
    assert_eq!(end, Some(6 + 34 * RULES.interval_ms), "the first time after its age that it is looked at");
}

#[test]
fn immunity_is_what_the_message_says_within_bounds() {
    let at = |said| RULES.first_check_ms(100, said);
    assert_eq!([at(None), at(Some(-1)), at(Some(0)), at(Some(i64::MAX))], [106, 106, 100, 1_100]);
}

#[test]
fn decisions_are_remembered_for_a_while_and_so_many() {
    let (mut all, mut changes) = (empty(), Vec::new());
    for position in 0..6 {
        all.accept(half(position, 6));
        all.end(i64::try_from(position).unwrap(), position, Decision::Commit, &mut changes);
    }
    let forgotten = |changes: &[Change]| {
        changes.iter().filter_map(|c| if let Change::Forget(at) = c { Some(*at) } else { None }).collect::<Vec<_>>()
    };
    assert_eq!(forgotten(&changes), [0, 1]);
    assert_eq!(all.end(6, 1, Decision::Commit, &mut changes), Ended::Unknown);
    assert_eq!(all.end(6, 2, Decision::Commit, &mut changes), Ended::Before(Decision::Commit, 2));
    changes.clear();
    all.accept(half(9, 6));
    all.end(204, 9, Decision::Commit, &mut changes);
    assert_eq!(forgotten(&changes), [2, 3], "older than is remembered");
}

#[test]
fn there_is_room_for_so_many() {
    let mut all = empty();
    for position in 0..8 {
        assert!(all.has_room());
        all.accept(half(position, 6));
    }
    assert!(!all.has_room());
    assert_eq!(all.iter().count(), 8);
    all.end(0, 3, Decision::Commit, &mut Vec::new());
    assert!(all.has_room());
}

#[derive(Debug, Clone)]
enum Step {
    Accept(i64),
    End(usize, Decision),
    Look { answered: bool },
    Wait(i64),
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let decision = prop_oneof![Just(Decision::Commit), Just(Decision::Rollback)];
    let step = prop_oneof![
        3 => (0..50i64).prop_map(Step::Accept),
        3 => (any::<usize>(), decision).prop_map(|(at, decision)| Step::End(at, decision)),
        3 => any::<bool>().prop_map(|answered| Step::Look { answered }),
        3 => (1..120i64).prop_map(Step::Wait),
        1 => Just(Step::Restart),
    ];
    proptest::collection::vec(step, 1..80)
}

/// What the store would hold.
#[derive(Default)]
struct Written {
    halves: BTreeMap<u64, HeldRow>,
    rows: BTreeMap<u64, Row>,
}

impl Written {
    fn apply(&mut self, changes: Vec<Change>) {
        for change in changes {
            match change {
                Change::Release(row) => assert_eq!(self.halves.remove(&row.position), Some(row)),
                Change::Put(position, row) => drop(self.rows.insert(position, row)),
                Change::Forget(position) => assert!(self.rows.remove(&position).is_some()),
            }
        }
    }

    fn restored(&self) -> Transactions {
        let rows = self.rows.iter().map(|(position, row)| {
            schema::read(&position.to_be_bytes(), &schema::value(*row)).filter(|read| *read == (*position, *row))
        });
        Transactions::restore(RULES, self.halves.values().copied(), rows.map(Option::unwrap))
    }
}

proptest! {
    /// Whatever happens and in whatever order: one decision per half, never more questions than allowed, none after the decision,
    /// none before its time, and a restart changes none of this.
    #[test]
    fn every_half_is_decided_once(steps in steps()) {
        let (mut all, mut written, mut now) = (empty(), Written::default(), 0i64);
        let (mut taken, mut first, mut questions) = (0u64, BTreeMap::new(), BTreeMap::<u64, Vec<i64>>::new());
        for step in steps {
            let mut changes = Vec::new();
            match step {
                Step::Accept(wait) => {
                    if !all.has_room() {
                        continue;
                    }
                    let row = HeldRow { store_time_ms: now, ..half(taken, now + wait) };
                    written.halves.insert(taken, row);
                    all.accept(row);
                    taken += 1;
                }
                Step::End(at, decision) => {
                    let position = at as u64 % (taken + 1);
                    match all.end(now, position, decision, &mut changes) {
                        Ended::Now(row) => {
                            prop_assert_eq!(row.position, position);
                            prop_assert_eq!(first.insert(position, decision), None);
                        }
                        Ended::Before(before, _) => prop_assert_eq!(first.get(&position), Some(&before)),
                        Ended::Unknown => prop_assert!(position == taken || first.contains_key(&position)),
                    }
                }
                Step::Look { answered } => for due in all.due(now, 3) {
                    match due {
                        Due::Ask(row, checks) => {
                            let asked = questions.entry(row.position).or_default();
                            prop_assert_eq!(asked.len(), checks as usize);
                            prop_assert!(asked.last().is_none_or(|last| now - last >= RULES.interval_ms));
                            prop_assert!(row.time_ms.cast_signed() <= now && !first.contains_key(&row.position));
                            if answered {
                                prop_assert!(all.asked(now, row.position, &mut changes));
                                asked.push(now);
                            } else {
                                all.postpone(now, row.position);
                            }
                        }
                        Due::GiveUp(row, checks) => {
                            prop_assert!(checks == RULES.checks_max || now - row.store_time_ms >= RULES.give_up_ms);
                            let ended = all.end(now, row.position, Decision::GivenUp, &mut changes);
                            prop_assert_eq!(ended, Ended::Now(row));
                            prop_assert_eq!(first.insert(row.position, Decision::GivenUp), None);
                        }
                    }
                },
                Step::Wait(ms) => now += ms,
                Step::Restart => all = written.restored(),
            }
            written.apply(changes);
            let open = all.iter().map(|row| row.position).collect::<Vec<_>>();
            prop_assert_eq!(&open, &written.halves.keys().copied().collect::<Vec<_>>());
            prop_assert_eq!(open.len() + first.len(), taken as usize);
            prop_assert!(questions.values().all(|asked| asked.len() <= RULES.checks_max as usize));
            prop_assert!(all.in_order.len() <= RULES.decisions_max && all.in_order.len() == all.decided.len());
            prop_assert_eq!(all.due.len(), open.len());
        }
    }

    #[test]
    fn any_row_is_survived(key: Vec<u8>, value: Vec<u8>) {
        let _ = schema::read(&key, &value);
    }
}
