//! C21: kill -9 while delayed messages are sent, moved to their queues and recalled, many times: each is in its queue once, none
//! before its time, what was recalled is in none, and as many are said to wait as do. Segments and the distance between checkpoints are small, so that crashes meet
//! both.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

#[path = "support/files.rs"]
mod files;
#[path = "support/process.rs"]
mod process;
mod support;

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use process::{BrokerProcess, Client, ack_over, pop_over, prepare};
use support::Rig;
use waybill_broker::store::{HeldRow, Keyspace, Options, Store};
use waybill_ops::clock::now_ms;
use waybill_protocol::message::properties;
use waybill_protocol::remoting::codes::{request, response};
use waybill_protocol::remoting::{
    Command, RecallMessageRequestHeader, SendMessageRequestHeader, SendMessageResponseHeader,
};

const CYCLES: u32 = 60;
/// How long what was answered OK may take to come in the end, once nothing kills the broker any more.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Default)]
struct Seen {
    /// When each is due; kept before the send, which may be stored without an answer.
    due: HashMap<String, i64>,
    sent: HashSet<String>,
    recalled: HashSet<String>,
    /// Where each was seen: queue and offset.
    places: HashMap<String, HashSet<(i32, i64)>>,
    wrong: Vec<String>,
}

impl Seen {
    /// Sent, to come, and not seen yet.
    fn missing(&self) -> Vec<&String> {
        self.sent.iter().filter(|id| !self.recalled.contains(*id) && !self.places.contains_key(*id)).collect()
    }
}

type Ledger = Arc<Mutex<Seen>>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_delayed_message_is_in_its_queue_once() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("broker.yaml");
    let keys =
        "mappedFileSizeCommitLog: 1048576\nindexCheckpointBytes: 65536\nmaxMessageSize: 65536\ntimerPrecisionMs: 1\n";
    std::fs::write(&config, keys).unwrap();
    let (store, config) = (dir.path().join("store"), ["--config", config.to_str().unwrap()]);
    let ledger = Ledger::default();
    let mut waiting = 0;
    for cycle in 0..CYCLES {
        let broker = BrokerProcess::start(&store, &config);
        let client = Client::connect(broker.address).await;
        if cycle == 0 {
            prepare(&client, 4, &["g"]).await;
        }
        let load: Vec<_> = (0..6)
            .map(|task| tokio::spawn(send_without_end(client.clone(), format!("{cycle}-{task}"), Arc::clone(&ledger))))
            .chain((0..2).map(|_| tokio::spawn(consume_without_end(client.clone(), Arc::clone(&ledger)))))
            .collect();
        tokio::time::sleep(Duration::from_millis(5 + u64::from(cycle * 7 % 60))).await;
        broker.kill();
        for task in load {
            task.await.unwrap();
        }
        assert_eq!(ledger.lock().wrong, [""; 0], "cycle {cycle}");
        if cycle % 4 == 3 {
            waiting += check_counts(&store);
        }
    }
    // Hundreds, on a machine that has nothing else to do.
    assert!(waiting > 10, "{waiting} waited");
    let broker = BrokerProcess::start(&store, &config);
    let client = Client::connect(broker.address).await;
    let (began, mut last) = (Instant::now(), Instant::now());
    let all_came = || ledger.lock().missing().is_empty();
    // Something may still be held by those who were cut off; and a machine that stands still makes it quiet, too.
    while last.elapsed() < Duration::from_secs(2) || (began.elapsed() < PATIENCE && !all_came()) {
        if consume(&client, &ledger).await.expect("an answer") > 0 {
            last = Instant::now();
        }
    }
    let seen = ledger.lock();
    assert_eq!(seen.wrong, [""; 0]);
    let lost = seen.missing();
    assert!(lost.is_empty(), "{} of {} answered OK never came: {lost:?}", lost.len(), seen.sent.len());
    let back: Vec<_> = seen.recalled.iter().filter(|id| seen.places.contains_key(*id)).collect();
    assert!(back.is_empty(), "recalled, and came all the same: {back:?}");
    let twice: Vec<_> = seen.places.iter().filter(|(_, places)| places.len() > 1).collect();
    assert!(twice.is_empty(), "{} came twice: {twice:?}", twice.len());
    assert!(seen.sent.len() > CYCLES as usize && seen.recalled.len() > 10, "the load was no load");
    println!("{CYCLES} cycles of kill -9: {} sends and {} recalls answered OK", seen.sent.len(), seen.recalled.len());
    broker.terminate();
}

/// Opens a copy of the store, whose counts must be those of its rows; how many there are.
fn check_counts(store: &Path) -> u64 {
    let image = files::temp_dir();
    files::copy(store, image.path());
    let options = Options { segment_bytes: 1_048_576, ..Options::new(image.path()) };
    let store = Store::open(options).unwrap();
    let mut counted: HashMap<u32, u64> = HashMap::new();
    for (key, value) in store.scan(Keyspace::Timer, &[]).unwrap() {
        *counted.entry(HeldRow::read(&key, &value).unwrap().queue.topic).or_default() += 1;
    }
    assert_eq!(store.all_waiting().into_iter().collect::<HashMap<_, _>>(), counted);
    counted.values().sum()
}

/// Delays from nothing to longer than a cycle, so that messages are due at every moment, also while the broker is down.
async fn send_without_end(client: Client, name: String, ledger: Ledger) {
    for n in 0.. {
        let id = format!("{name}-{n}");
        let due = now_ms() + 1 + n * 37 % 250;
        ledger.lock().due.insert(id.clone(), due);
        let plain = Rig::send_command("t", &id, None, &id);
        let mut header = SendMessageRequestHeader::decode_v2(&plain.ext).unwrap();
        properties::set(header.properties.as_mut().unwrap(), properties::TIMER_DELIVER_MS, &due.to_string());
        let command = Command::request(request::SEND_MESSAGE_V2).with_header(&header).with_body(plain.body);
        let Some(answer) = client.call(command).await else { return };
        assert_eq!(answer.code, response::SUCCESS, "{:?}", answer.remark);
        ledger.lock().sent.insert(id.clone());
        let sent: SendMessageResponseHeader = answer.header().unwrap();
        if n % 3 == 0
            && let Some(handle) = sent.recall_handle
            && recall(&client, id, handle, &ledger).await.is_none()
        {
            return;
        }
    }
}

async fn recall(client: &Client, id: String, handle: String, ledger: &Ledger) -> Option<()> {
    let header = RecallMessageRequestHeader {
        producer_group: Some("p".into()),
        topic: "t".into(),
        recall_handle: handle,
        broker_name: None,
    };
    match client.call(Command::request(request::RECALL_MESSAGE).with_header(&header)).await {
        Some(answer) if answer.code == response::SUCCESS => drop(ledger.lock().recalled.insert(id)),
        // It was due meanwhile.
        Some(answer) if matches!(answer.code, response::ILLEGAL_OPERATION | response::QUERY_NOT_FOUND) => {}
        Some(answer) => panic!("{} {:?}", answer.code, answer.remark),
        // It may have taken effect: then it never comes, and nothing is wrong with that.
        None => {
            ledger.lock().sent.remove(&id);
            return None;
        }
    }
    Some(())
}

async fn consume_without_end(client: Client, ledger: Ledger) {
    while consume(&client, &ledger).await.is_some() {}
}

/// One pop, everything acknowledged; how many that were.
async fn consume(client: &Client, ledger: &Ledger) -> Option<usize> {
    let Some(answer) = pop_over(client, "g", 16, 1_000, 200).await? else { return Some(0) };
    let (got, now) = (support::got(&answer), now_ms());
    for got in &got {
        let mut seen = ledger.lock();
        let id = got.id();
        match seen.due.get(&id) {
            Some(due) if *due > now => {
                let early = format!("{id} came {} ms early", due - now);
                seen.wrong.push(early);
            }
            Some(_) => {}
            None => seen.wrong.push(format!("{id} was never sent")),
        }
        if seen.recalled.contains(&id) {
            seen.wrong.push(format!("{id} was recalled"));
        }
        seen.places.entry(id).or_default().insert((got.handle.queue_id, got.handle.offset));
    }
    for got in &got {
        ack_over(client, "g", "t", &got.handle).await?;
    }
    Some(got.len())
}
