//! A batch gives the answers and leaves the state that the same single requests would, crashes in between included.

use std::path::Path;
use std::sync::Arc;

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

#[derive(Clone, Debug)]
enum Op {
    Send(usize),
    Pop { max: i32, invisible_ms: i64 },
    Change(Vec<(Which, i64, bool)>),
    Ack(Vec<Which>),
    Wait(i64),
    Crash,
}

/// A handle that was given out, counted from the latest; or one whose pop time is wrong, or another's offset.
#[derive(Clone, Debug)]
enum Which {
    Given(usize),
    WrongTime(usize),
    Unread(i64),
}

fn which() -> impl Strategy<Value = Which> {
    prop_oneof![
        10 => (0..12_usize).prop_map(Which::Given),
        2 => (0..60_usize).prop_map(Which::Given),
        1 => (0..12_usize).prop_map(Which::WrongTime),
        1 => (0..100_i64).prop_map(Which::Unread),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let invisible = prop_oneof![3 => 1..200_i64, 1 => Just(0_i64), 1 => Just(50_i64), 1 => Just(-1_i64)];
    prop_oneof![
        3 => (1..6_usize).prop_map(Op::Send),
        4 => (1..9_i32, 20..200_i64).prop_map(|(max, invisible_ms)| Op::Pop { max, invisible_ms }),
        5 => proptest::collection::vec((which(), invisible, proptest::bool::weighted(0.2)), 1..8).prop_map(Op::Change),
        3 => proptest::collection::vec(which(), 1..6).prop_map(Op::Ack),
        4 => prop_oneof![Just(50_i64), 0..120_i64].prop_map(Op::Wait),
        1 => Just(Op::Crash),
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
            let config = SubscriptionGroupConfig {
                group_name: "g".into(),
                retry_max_times: 3,
                consume_message_orderly: ordered,
                ..SubscriptionGroupConfig::default()
            };
            rig.group_with(config).await;
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
                self.given.extend(ours.into_iter().map(|got| got.handle));
            }
            Op::Change(entries) => {
                let entries: Vec<BatchChangeInvisibleEntry> = entries
                    .iter()
                    .map(|(which, ms, suspend)| BatchChangeInvisibleEntry {
                        suspend: *suspend,
                        ..entry(&self.handle(which), *ms)
                    })
                    .collect();
                self.change(entries).await;
            }
            Op::Ack(handles) => {
                let handles: Vec<ReceiptHandle> = handles.iter().map(|which| self.handle(which)).collect();
                self.ack(&handles).await;
            }
            Op::Wait(ms) => {
                self.batched.clock.advance(*ms);
                self.single.clock.advance(*ms);
            }
            Op::Crash => {
                // Progress that nobody waits for may be on its way to the log; with it there, both have the same to go on from.
                for rig in [&self.batched, &self.single] {
                    rig.topic("settled", 1).await;
                }
                self.batched = crash(&self.batched);
                self.single = crash(&self.single);
            }
        }
        assert_eq!(leases(&self.batched).await, leases(&self.single).await);
    }

    async fn change(&self, entries: Vec<BatchChangeInvisibleEntry>) {
        let answer: BatchChangeInvisibleResult = self.batched.ok(batch_change(entries.clone())).await.json().unwrap();
        assert_eq!(answer.entries.len(), entries.len());
        for (entry, result) in entries.into_iter().zip(&answer.entries) {
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

    async fn ack(&self, handles: &[ReceiptHandle]) {
        let acks = handles.iter().map(|handle| ack_entry("g", "t", handle, &[handle.offset])).collect();
        let answer: EntryCodes = self.batched.ok(batch_ack(acks)).await.json().unwrap();
        assert_eq!(answer.entries.len(), handles.len());
        for (handle, entry) in handles.iter().zip(&answer.entries) {
            assert_eq!(entry.code, self.single.ack("g", "t", handle).await, "{handle}");
        }
    }
}

fn rig() -> Rig {
    // What is compared is what the log holds; whether the disk has it yet is the subject of the tests with kill -9.
    Rig::with(|config| config.flush_disk_type = FlushDiskType::Async)
}

fn template() -> ReceiptHandle {
    "0 1800000000000 60000 0 0 broker-a 0 0 0".parse().unwrap()
}

fn told(got: &[Got]) -> Vec<(String, i32, String)> {
    // Where a message lies in the log differs: a batch takes less of it.
    let place = |handle: &ReceiptHandle| ReceiptHandle { commit_log_offset: None, ..handle.clone() }.to_string();
    got.iter().map(|got| (got.id(), got.attempt(), place(&got.handle))).collect()
}

async fn leases(rig: &Rig) -> String {
    let mut command = Command::request(own::LIST_LEASES);
    command.ext.set("consumerGroup", "g");
    let answer = rig.ok(command).await;
    String::from_utf8(answer.body.to_vec()).unwrap()
}

/// Another broker on a copy of what the first one left on disk, which does not get to say goodbye.
fn crash(rig: &Rig) -> Rig {
    let dir = tempfile::tempdir().unwrap();
    copy(rig.dir.path(), dir.path());
    let mut config = rig.broker.config().clone();
    config.store_path_root_dir = dir.path().to_owned();
    let broker = waybill_broker::Broker::open_with_clock(config, rig.clock.clone()).unwrap();
    rig.broker.close();
    Rig { dir: Arc::new(dir), clock: rig.clock.clone(), broker, peer: waybill_broker::Peer::local() }
}

fn copy(from: &Path, to: &Path) {
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        let target = to.join(file.file_name());
        if file.file_type().unwrap().is_dir() {
            std::fs::create_dir_all(&target).unwrap();
            copy(&file.path(), &target);
        } else if let Err(error) = std::fs::copy(file.path(), target) {
            // The thread that reserves segments may just have given one its name.
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}");
        }
    }
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
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_batch_equals_its_single_requests(ordered in any::<bool>(), ops in proptest::collection::vec(op(), 5..40)) {
        live(ordered, &ops);
    }
}
