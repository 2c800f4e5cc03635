//! C37: kill -9 under load, many times: what was answered OK is there, what was acknowledged does not return. Segments and the
//! distance between checkpoints are small, so that crashes meet both.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

#[path = "support/process.rs"]
mod process;
mod support;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use process::{BrokerProcess, Client, ack_over, pop_over, prepare};
use support::{Got, Rig};
use waybill_protocol::remoting::codes::{request, response};
use waybill_protocol::remoting::{
    BatchAck, BatchAckBody, BatchChangeInvisibleBody, BatchChangeInvisibleEntry, BatchChangeInvisibleResult,
    BatchChangeInvisibleTimeRequestHeader, BitSet, ChangeInvisibleTimeRequestHeader, Command, EntryCodes,
};

const CYCLES: u32 = 200;
/// Short, so that messages of a dead consumer are back within a few cycles.
const INVISIBLE_MS: i64 = 1_000;
/// The bar for a start is two seconds; a crowded machine gets more.
const START_MAX: Duration = Duration::from_secs(20);
/// How long what was answered OK may take to come in the end, once nothing kills the broker any more.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Default)]
struct Ledger {
    sent: HashSet<String>,
    /// An ack for it was sent; whether it counts is only known if it was answered.
    maybe_acked: HashSet<String>,
    acked: HashSet<String>,
    returned: Vec<String>,
    deliveries: u64,
}

impl Ledger {
    /// Whether something was answered OK of which nobody knows whether it is done.
    fn is_missing_any(&self) -> bool {
        self.sent.iter().any(|id| !self.acked.contains(id) && !self.maybe_acked.contains(id))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_crashes_lose_nothing_and_bring_nothing_back() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("broker.yaml");
    std::fs::write(&config, "mappedFileSizeCommitLog: 1048576\nindexCheckpointBytes: 131072\nmaxMessageSize: 65536\ndiskMaxUsedSpaceRatio: 100\n")
        .unwrap();
    let (store, config) = (dir.path().join("store"), ["--config", config.to_str().unwrap()]);
    let ledger = Arc::new(Mutex::new(Ledger::default()));
    let mut slowest = Duration::ZERO;
    for cycle in 0..CYCLES {
        let broker = BrokerProcess::start(&store, &config);
        slowest = slowest.max(broker.startup);
        let client = Client::connect(broker.address).await;
        if cycle == 0 {
            prepare(&client, 4, &["g"]).await;
        }
        let load: Vec<_> = (0..8)
            .map(|task| tokio::spawn(send_without_end(client.clone(), format!("{cycle}-{task}"), Arc::clone(&ledger))))
            .chain((0..2).map(|_| tokio::spawn(consume_without_end(client.clone(), Arc::clone(&ledger)))))
            .chain((0..2).map(|_| tokio::spawn(consume_in_batches(client.clone(), Arc::clone(&ledger)))))
            .collect();
        // Another moment in each cycle, from the very start of the load to its middle.
        tokio::time::sleep(Duration::from_millis(5 + u64::from(cycle * 7 % 60))).await;
        broker.kill();
        for task in load {
            task.await.unwrap();
        }
        let seen = ledger.lock();
        assert!(seen.returned.is_empty(), "acknowledged and delivered again in cycle {cycle}: {:?}", seen.returned);
    }
    let broker = BrokerProcess::start(&store, &config);
    let client = Client::connect(broker.address).await;
    drain(&client, &ledger).await;
    let seen = ledger.lock();
    assert!(seen.returned.is_empty(), "acknowledged and delivered again: {:?}", seen.returned);
    let lost: Vec<_> = seen.sent.difference(&seen.acked).collect();
    assert!(lost.is_empty(), "{} of {} messages answered OK are gone: {lost:?}", lost.len(), seen.sent.len());
    assert!(seen.sent.len() > CYCLES as usize, "the load was no load: {} messages", seen.sent.len());
    println!(
        "{CYCLES} cycles of kill -9: {} sends and {} acks answered OK, {} deliveries, slowest start {} ms",
        seen.sent.len(),
        seen.acked.len(),
        seen.deliveries,
        slowest.as_millis()
    );
    assert!(slowest < START_MAX, "a start took {slowest:?}");
    let (status, _) = broker.terminate();
    assert!(status.success(), "{status}");
}

async fn send_without_end(client: Client, name: String, ledger: Arc<Mutex<Ledger>>) {
    for n in 0.. {
        let id = format!("{name}-{n}");
        let Some(answer) = client.call(Rig::send_command("t", &id, None, &id)).await else { return };
        assert_eq!(answer.code, response::SUCCESS, "{:?}", answer.remark);
        ledger.lock().sent.insert(id);
    }
}

async fn consume_without_end(client: Client, ledger: Arc<Mutex<Ledger>>) {
    while let Some(got) = pop(&client, &ledger).await {
        for (n, got) in got.iter().enumerate() {
            // Some are left alone, to be delivered again, and some are extended first.
            if n % 4 == 1 && extend(&client, got).await.is_none() {
                return;
            }
            if n % 4 != 3 && ack(&client, got, &ledger).await.is_none() {
                return;
            }
        }
    }
}

/// The same with one request for many messages: half of them extended, then three of four acknowledged.
async fn consume_in_batches(client: Client, ledger: Arc<Mutex<Ledger>>) {
    while let Some(got) = pop(&client, &ledger).await {
        let extended: Vec<&Got> = got.iter().step_by(2).collect();
        if !extended.is_empty() && extend_many(&client, &extended).await.is_none() {
            return;
        }
        let done: Vec<&Got> = got.iter().enumerate().filter(|(n, _)| n % 4 != 3).map(|(_, got)| got).collect();
        if !done.is_empty() && ack_many(&client, &done, &ledger).await.is_none() {
            return;
        }
    }
}

async fn pop(client: &Client, ledger: &Mutex<Ledger>) -> Option<Vec<Got>> {
    let Some(answer) = pop_over(client, "g", 16, INVISIBLE_MS, 200).await? else { return Some(Vec::new()) };
    let got = support::got(&answer);
    let mut seen = ledger.lock();
    for message in &got {
        seen.deliveries += 1;
        // Whatever became of an earlier ack, it did not take effect.
        seen.maybe_acked.remove(&message.id());
        if seen.acked.contains(&message.id()) {
            let id = message.id();
            seen.returned.push(id);
        }
    }
    Some(got)
}

async fn ack(client: &Client, got: &Got, ledger: &Mutex<Ledger>) -> Option<()> {
    ledger.lock().maybe_acked.insert(got.id());
    match ack_over(client, "g", "t", &got.handle).await? {
        response::SUCCESS => drop(ledger.lock().acked.insert(got.id())),
        // It was delivered to another task of this test since.
        response::NO_MESSAGE => drop(ledger.lock().maybe_acked.remove(&got.id())),
        code => panic!("{code}"),
    }
    Some(())
}

async fn ack_many(client: &Client, got: &[&Got], ledger: &Mutex<Ledger>) -> Option<()> {
    ledger.lock().maybe_acked.extend(got.iter().map(|got| got.id()));
    let acks = got.iter().map(|got| BatchAck {
        consumer_group: "g".into(),
        topic: "t".into(),
        start_offset: got.handle.offset,
        queue_id: got.handle.queue_id,
        pop_time: got.handle.pop_time,
        invisible_time: got.handle.invisible_time,
        bit_set: {
            let mut first = BitSet::new();
            first.set(0).expect("a bit");
            first
        },
        ..BatchAck::default()
    });
    let body = BatchAckBody { broker_name: "broker-a".into(), acks: acks.collect() };
    let mut command = Command::request(request::BATCH_ACK_MESSAGE).with_json(&body);
    command.ext.set("entryResults", "true");
    let answer = client.call(command).await?;
    assert_eq!(answer.code, response::SUCCESS, "{:?}", answer.remark);
    let codes: EntryCodes = answer.json().expect("codes");
    assert_eq!(codes.entries.len(), got.len());
    let mut ledger = ledger.lock();
    for (got, entry) in got.iter().zip(codes.entries) {
        match entry.code {
            response::SUCCESS => drop(ledger.acked.insert(got.id())),
            response::NO_MESSAGE => drop(ledger.maybe_acked.remove(&got.id())),
            code => panic!("{code}"),
        }
    }
    Some(())
}

async fn extend_many(client: &Client, got: &[&Got]) -> Option<()> {
    let entries = got.iter().map(|got| BatchChangeInvisibleEntry {
        queue_id: got.handle.queue_id,
        extra_info: got.handle.to_string(),
        offset: got.handle.offset,
        invisible_time: INVISIBLE_MS,
        ..Default::default()
    });
    let header = BatchChangeInvisibleTimeRequestHeader { consumer_group: "g".into(), topic: "t".into() };
    let command = Command::request(request::BATCH_CHANGE_MESSAGE_INVISIBLETIME)
        .with_header(&header)
        .with_json(&BatchChangeInvisibleBody { entries: entries.collect() });
    let answer = client.call(command).await?;
    assert_eq!(answer.code, response::SUCCESS, "{:?}", answer.remark);
    let results: BatchChangeInvisibleResult = answer.json().expect("results");
    assert_eq!(results.entries.len(), got.len());
    let known = |code| matches!(code, response::SUCCESS | response::NO_MESSAGE);
    assert!(results.entries.iter().all(|entry| known(entry.code)), "{results:?}");
    Some(())
}

async fn extend(client: &Client, got: &Got) -> Option<()> {
    let header = ChangeInvisibleTimeRequestHeader {
        consumer_group: "g".into(),
        topic: "t".into(),
        queue_id: got.handle.queue_id,
        extra_info: got.handle.to_string(),
        offset: got.handle.offset,
        invisible_time: INVISIBLE_MS,
        ..Default::default()
    };
    let answer = client.call(Command::request(request::CHANGE_MESSAGE_INVISIBLETIME).with_header(&header)).await?;
    assert!(matches!(answer.code, response::SUCCESS | response::NO_MESSAGE), "{} {:?}", answer.code, answer.remark);
    Some(())
}

/// Takes everything that is left. A message whose ack was sent but not answered may be either there or done.
async fn drain(client: &Client, ledger: &Mutex<Ledger>) {
    let quiet = Duration::from_millis(2 * INVISIBLE_MS.unsigned_abs());
    let (began, mut last_seen) = (Instant::now(), Instant::now());
    // Something may still be held by those who were cut off; and a machine that stands still makes it quiet, too.
    while last_seen.elapsed() < quiet || (began.elapsed() < PATIENCE && ledger.lock().is_missing_any()) {
        for got in pop(client, ledger).await.expect("an answer") {
            last_seen = Instant::now();
            ack(client, &got, ledger).await.expect("an answer");
        }
    }
    let mut seen = ledger.lock();
    let unanswered: Vec<String> = seen.maybe_acked.difference(&seen.acked).cloned().collect();
    // Sent, not answered, and not there any more: it took effect.
    seen.acked.extend(unanswered);
}
