//! A batch gives the answers and leaves the state that the same single requests would, crashes in between included.

use std::sync::Arc;

use super::files::{copy, temp_dir};
use super::support::{Got, Rig};
use super::{ack_entry, batch_ack, batch_change, entry};
use proptest::prelude::*;
use waybill_broker::FlushDiskType;
use waybill_protocol::handle::ReceiptHandle;
use waybill_protocol::remoting::codes::{own, request, response};
use waybill_protocol::remoting::{
    BatchChangeInvisibleEntry, BatchChangeInvisibleResult, ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader, Command, EntryCodes, SubscriptionGroupConfig,
};

/// Entries of one batch.
const ENTRIES_MAX: usize = 12;

#[derive(Clone, Debug)]
enum Op {
    Send(usize),
    Pop {
        max: i32,
        invisible_ms: i64,
    },
    Change(Vec<Change>),
    Ack(Vec<(Which, Naming)>),
    /// More than [`ENTRIES_MAX`] that could all be done: refused whole.
    TooMany {
        ack: bool,
    },
    Wait(i64),
    Crash,
}

#[derive(Clone, Debug)]
struct Change {
    which: Which,
    naming: Naming,
    invisible_ms: i64,
    suspend: bool,
}

/// A handle that was given out, counted from the latest; or one whose pop time is wrong, another's offset, one that names
/// no delivery at all, or one of another broker.
#[derive(Clone, Debug)]
enum Which {
    Given(usize),
    WrongTime(usize),
    Unread(i64),
    OutOfRange { queue_id: i32, offset: i64 },
    OtherBroker(usize),
}

/// The group and topic that an entry names.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Naming {
    /// None, where that means those of the header; its own otherwise.
    Own,
    /// Another group, which has received the same messages.
    OtherGroup,
    OtherTopic,
    /// The topic of the group's retries in Apache's brokers. This broker keeps retries where the messages are.
    Retries,
    /// A group that does not exist.
    NoGroup,
    /// A topic that does not exist.
    NoTopic,
}

impl Naming {
    fn group_and_topic(self) -> (&'static str, &'static str) {
        match self {
            Self::Own => ("g", "t"),
            Self::OtherGroup => ("other", "t"),
            Self::OtherTopic => ("g", "u"),
            Self::Retries => ("g", "%RETRY%g_t"),
            Self::NoGroup => ("nobody", "t"),
            Self::NoTopic => ("g", "nowhere"),
        }
    }
}

fn which() -> impl Strategy<Value = Which> {
    let number = prop_oneof![Just(-1_i64), Just(i64::MIN), Just(i64::MAX), Just(9_i64)];
    prop_oneof![
        20 => (0..12_usize).prop_map(Which::Given),
        4 => (0..60_usize).prop_map(Which::Given),
        2 => (0..12_usize).prop_map(Which::WrongTime),
        2 => (0..100_i64).prop_map(Which::Unread),
        1 => (prop_oneof![Just(-1), Just(0), Just(i32::MIN), Just(i32::MAX)], number)
            .prop_map(|(queue_id, offset)| Which::OutOfRange { queue_id, offset }),
        1 => (0..12_usize).prop_map(Which::OtherBroker),
    ]
}

fn naming() -> impl Strategy<Value = Naming> {
    prop_oneof![
        20 => Just(Naming::Own),
        1 => Just(Naming::OtherGroup),
        1 => Just(Naming::OtherTopic),
        1 => Just(Naming::Retries),
        1 => Just(Naming::NoGroup),
        1 => Just(Naming::NoTopic),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    let invisible = prop_oneof![
        12 => 1..200_i64,
        4 => Just(0_i64),
        4 => Just(50_i64),
        1 => Just(-1_i64),
        1 => Just(i64::MAX),
    ];
    (which(), naming(), invisible, proptest::bool::weighted(0.2))
        .prop_map(|(which, naming, invisible_ms, suspend)| Change { which, naming, invisible_ms, suspend })
}

/// Some entries; now and then, some of them twice, with `again` instead of what they were.
fn some<T: Clone + std::fmt::Debug>(
    entry: impl Strategy<Value = T>,
    again: impl Fn(&mut T) + Clone,
) -> impl Strategy<Value = Vec<T>> {
    (proptest::collection::vec(entry, 1..8), proptest::option::weighted(0.3, 1..4_usize)).prop_map(
        move |(mut entries, twice)| {
            for mut entry in entries.iter().take(twice.unwrap_or(0)).cloned().collect::<Vec<_>>() {
                again(&mut entry);
                entries.push(entry);
            }
            entries
        },
    )
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (1..6_usize).prop_map(Op::Send),
        8 => (1..9_i32, 20..200_i64).prop_map(|(max, invisible_ms)| Op::Pop { max, invisible_ms }),
        10 => some(change(), |change| change.invisible_ms = 77).prop_map(Op::Change),
        6 => some((which(), naming()), |_| {}).prop_map(Op::Ack),
        1 => any::<bool>().prop_map(|ack| Op::TooMany { ack }),
        8 => prop_oneof![Just(50_i64), 0..120_i64].prop_map(Op::Wait),
        2 => Just(Op::Crash),
    ]
}

/// Two brokers with the same life, but that one is asked in batches.
struct Twins {
    batched: Rig,
    single: Rig,
    given: Vec<ReceiptHandle>,
    sent: usize,
}

impl Twins {
    async fn new(ordered: bool) -> Self {
        let twins = Self { batched: rig(), single: rig(), given: Vec::new(), sent: 0 };
        for rig in [&twins.batched, &twins.single] {
            rig.topic("t", 2).await;
            rig.topic("u", 1).await;
            rig.topic("settled", 1).await;
            for group in ["g", "other"] {
                let config = SubscriptionGroupConfig {
                    group_name: group.into(),
                    retry_max_times: 3,
                    consume_message_orderly: ordered,
                    ..SubscriptionGroupConfig::default()
                };
                rig.group_with(config).await;
            }
        }
        twins
    }

    fn handle(&self, which: &Which) -> ReceiptHandle {
        let nothing = || ReceiptHandle { offset: 77, ..template() };
        let back = |back: usize| self.given.iter().rev().nth(back).cloned().unwrap_or_else(nothing);
        match which {
            Which::Given(n) => back(*n),
            Which::WrongTime(n) => {
                let handle = back(*n);
                ReceiptHandle { pop_time: handle.pop_time - 1, ..handle }
            }
            Which::Unread(offset) => ReceiptHandle { offset: *offset, start_offset: *offset, ..template() },
            Which::OutOfRange { queue_id, offset } => {
                ReceiptHandle { queue_id: *queue_id, offset: *offset, start_offset: *offset, ..template() }
            }
            Which::OtherBroker(n) => ReceiptHandle { broker_name: "broker-b".into(), ..back(*n) },
        }
    }

    async fn step(&mut self, op: &Op) {
        match op {
            Op::Send(count) => {
                for _ in 0..*count {
                    let (id, group) = (format!("m{}", self.sent), format!("group-{}", self.sent % 3));
                    self.sent += 1;
                    for rig in [&self.batched, &self.single] {
                        rig.send_in_group("t", &id, &group).await;
                    }
                }
            }
            Op::Pop { max, invisible_ms } => {
                let ours = self.batched.pop("g", "t", *max, *invisible_ms).await;
                let theirs = self.single.pop("g", "t", *max, *invisible_ms).await;
                assert_eq!(told(&ours), told(&theirs));
                // The other group holds the same messages, so that an entry that names it could do harm there.
                for rig in [&self.batched, &self.single] {
                    rig.pop("other", "t", *max, *invisible_ms).await;
                }
                self.given.extend(ours.into_iter().map(|got| got.handle));
            }
            Op::Change(changes) => self.change(changes).await,
            Op::Ack(entries) => self.ack(entries).await,
            Op::TooMany { ack } => self.too_many(*ack).await,
            Op::Wait(ms) => {
                self.batched.clock.advance(*ms);
                self.single.clock.advance(*ms);
            }
            Op::Crash => {
                // Progress that nobody waits for may be on its way to the log. A message that is stored is behind it.
                for rig in [&self.batched, &self.single] {
                    rig.send("settled", "behind everything").await;
                }
                self.batched = crash(&self.batched);
                self.single = crash(&self.single);
            }
        }
        for group in ["g", "other"] {
            assert_eq!(leases(&self.batched, group).await, leases(&self.single, group).await, "of {group}");
        }
    }

    async fn change(&self, changes: &[Change]) {
        let entries: Vec<BatchChangeInvisibleEntry> = changes.iter().map(|change| self.entry(change)).collect();
        let answer: BatchChangeInvisibleResult = self.batched.ok(batch_change(entries.clone())).await.json().unwrap();
        assert_eq!(answer.entries.len(), entries.len());
        for ((change, entry), result) in changes.iter().zip(entries).zip(&answer.entries) {
            if change.naming != Naming::Own {
                // A single request has no header beside it that it could differ from.
                assert_eq!(result.code, response::MESSAGE_ILLEGAL, "{entry:?}");
                continue;
            }
            let header = ChangeInvisibleTimeRequestHeader {
                consumer_group: "g".into(),
                topic: "t".into(),
                queue_id: entry.queue_id,
                extra_info: entry.extra_info,
                offset: entry.offset,
                invisible_time: entry.invisible_time,
                lite_topic: None,
                suspend: Some(entry.suspend),
            };
            let single =
                self.single.call(Command::request(request::CHANGE_MESSAGE_INVISIBLETIME).with_header(&header)).await;
            assert_eq!(result.code, single.code, "{header:?}");
            if single.code == response::SUCCESS {
                let single: ChangeInvisibleTimeResponseHeader = single.header().unwrap();
                assert_eq!((result.pop_time, result.invisible_time), (single.pop_time, single.invisible_time));
            }
        }
    }

    fn entry(&self, change: &Change) -> BatchChangeInvisibleEntry {
        let (group, topic) = change.naming.group_and_topic();
        let named = change.naming != Naming::Own;
        BatchChangeInvisibleEntry {
            consumer_group: if named { group.into() } else { String::new() },
            topic: if named { topic.into() } else { String::new() },
            suspend: change.suspend,
            ..entry(&self.handle(&change.which), change.invisible_ms)
        }
    }

    async fn ack(&self, entries: &[(Which, Naming)]) {
        // An entry of a batch of acks does not name the broker.
        let entries: Vec<_> = entries
            .iter()
            .map(|(which, naming)| match which {
                Which::OtherBroker(n) => (self.handle(&Which::Given(*n)), *naming),
                which => (self.handle(which), *naming),
            })
            .collect();
        let acks = entries.iter().map(|(handle, naming)| {
            let (group, topic) = naming.group_and_topic();
            ack_entry(group, topic, handle, &[handle.offset])
        });
        let answer: EntryCodes = self.batched.ok(batch_ack(acks.collect())).await.json().unwrap();
        assert_eq!(answer.entries.len(), entries.len());
        for ((handle, naming), entry) in entries.iter().zip(&answer.entries) {
            let (group, topic) = naming.group_and_topic();
            assert_eq!(entry.code, self.single.ack(group, topic, handle).await, "{handle} {naming:?}");
        }
    }

    /// What is refused whole changes nothing, as the leases say that are compared after each step.
    async fn too_many(&self, ack: bool) {
        let handles: Vec<_> = (0..=ENTRIES_MAX).map(|n| self.handle(&Which::Given(n))).collect();
        let command = if ack {
            batch_ack(handles.iter().map(|handle| ack_entry("g", "t", handle, &[handle.offset])).collect())
        } else {
            batch_change(handles.iter().map(|handle| entry(handle, 99)).collect())
        };
        assert_eq!(self.batched.call(command).await.code, response::MESSAGE_ILLEGAL);
    }
}

fn rig() -> Rig {
    Rig::within(temp_dir(), |config| {
        // What is compared is what the log holds; whether the disk has it yet is the subject of the tests with kill -9.
        config.flush_disk_type = FlushDiskType::Async;
        config.batch_max_entries = ENTRIES_MAX;
        // A crash copies the segment.
        config.mapped_file_size_commit_log = 1 << 20;
        config.max_message_size = 1 << 16;
    })
}

fn template() -> ReceiptHandle {
    "0 1800000000000 60000 0 0 broker-a 0 0 0".parse().unwrap()
}

fn told(got: &[Got]) -> Vec<(String, i32, String)> {
    // Where a message lies in the log differs: a batch takes less of it.
    let place = |handle: &ReceiptHandle| ReceiptHandle { commit_log_offset: None, ..handle.clone() }.to_string();
    got.iter().map(|got| (got.id(), got.attempt(), place(&got.handle))).collect()
}

async fn leases(rig: &Rig, group: &str) -> String {
    let mut command = Command::request(own::LIST_LEASES);
    command.ext.set("consumerGroup", group);
    let answer = rig.ok(command).await;
    String::from_utf8(answer.body.to_vec()).unwrap()
}

/// Another broker on a copy of what the first one left on disk, which does not get to say goodbye.
fn crash(rig: &Rig) -> Rig {
    let dir = temp_dir();
    copy(rig.dir.path(), dir.path());
    let mut config = rig.broker.config().clone();
    config.store_path_root_dir = dir.path().to_owned();
    let broker = waybill_broker::Broker::open_with_clock(config, rig.clock.clone()).unwrap();
    rig.broker.close();
    Rig { dir: Arc::new(dir), clock: rig.clock.clone(), broker, peer: waybill_broker::Peer::local() }
}

fn live(ordered: bool, ops: &[Op]) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let mut twins = Twins::new(ordered).await;
        for op in ops {
            twins.step(op).await;
        }
        // In the end, the same is left to be read.
        twins.step(&Op::Crash).await;
        twins.step(&Op::Wait(1_000)).await;
        for _ in 0..60 {
            twins.step(&Op::Pop { max: 8, invisible_ms: 600_000 }).await;
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_batch_equals_its_single_requests(ordered in any::<bool>(), ops in proptest::collection::vec(op(), 5..40)) {
        live(ordered, &ops);
    }
}
