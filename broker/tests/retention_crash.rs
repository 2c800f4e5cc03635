//! kill -9 while messages are sent, consumed, acknowledged and dropped: the log stays short, offsets are never given out twice, what was
//! acknowledged does not return, and what somebody holds stays.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

#[path = "support/process.rs"]
mod process;
mod support;

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use process::{BrokerProcess, Client, ack_over, pop_over, prepare};
use support::{Got, Rig};
use waybill_protocol::remoting::SendMessageResponseHeader;
use waybill_protocol::remoting::codes::response;

const CYCLES: u32 = 25;
const SEGMENT: u64 = 1 << 20;
const LOG_MAX: u64 = 4 * SEGMENT;
/// What each of four tasks sends in one life of the broker, at most: a fast machine would write more in a life than what the log may
/// be long says anything about.
const SENDS: u32 = 250;

#[derive(Default)]
struct Seen {
    /// Offsets that a send was answered with, by queue.
    offsets: HashMap<i32, HashSet<i64>>,
    acked: HashSet<String>,
    wrong: Vec<String>,
    deliveries: u64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crashes_while_messages_are_dropped_break_no_promise() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("broker.yaml");
    std::fs::write(
        &config,
        format!(
            "mappedFileSizeCommitLog: {SEGMENT}\nindexCheckpointBytes: 131072\nmaxMessageSize: 65536\n\
             diskMaxUsedSpaceRatio: 100\nlogBytesMax: {LOG_MAX}\n"
        ),
    )
    .unwrap();
    let (store, config) = (dir.path().join("store"), ["--config", config.to_str().unwrap()]);
    let seen = Arc::new(Mutex::new(Seen::default()));
    let (mut held, mut index_lost) = (None, 0);
    for cycle in 0..CYCLES {
        // Now and then the index is lost as well.
        if cycle % 5 == 4 {
            std::fs::remove_dir_all(store.join("index")).unwrap();
            index_lost += 1;
        }
        let broker = BrokerProcess::start(&store, &config);
        let client = Client::connect(broker.address).await;
        if cycle == 0 {
            prepare(&client, 4, &["g", "holder"]).await;
        }
        let load: Vec<_> = (0..4)
            .map(|task| tokio::spawn(send_many(client.clone(), format!("{cycle}-{task}"), Arc::clone(&seen))))
            .chain((0..2).map(|_| tokio::spawn(consume_without_end(client.clone(), Arc::clone(&seen)))))
            .collect();
        // Long enough for the broker to look at its log, and different each time.
        tokio::time::sleep(Duration::from_millis(1_000 + u64::from(cycle * 13 % 200))).await;
        // For a while somebody holds the oldest message that a group can have.
        if cycle == CYCLES / 2 {
            held = pop(&client, "holder", 3_600_000, 1).await.unwrap_or_default().pop();
            assert!(held.is_some());
        }
        if cycle == CYCLES / 2 + 5 {
            let got: Got = held.take().expect("it is held");
            assert_eq!(
                ack_over(&client, "holder", "t", &got.handle).await,
                Some(response::SUCCESS),
                "what is held stays"
            );
        }
        broker.kill();
        for task in load {
            task.await.unwrap();
        }
        let seen = seen.lock();
        assert!(seen.wrong.is_empty(), "in cycle {cycle}: {:?}", seen.wrong);
    }
    // How long the log was meanwhile is a matter of chance: what somebody held at a start waits for ten seconds.
    let broker = BrokerProcess::start(&store, &config);
    until_short(&store).await;
    broker.kill();
    let start = start_of_log(&store);
    let seen = seen.lock();
    let sent: usize = seen.offsets.values().map(HashSet::len).sum();
    println!(
        "{CYCLES} cycles of kill -9, {index_lost} of them without the index: {sent} sends and {} acks answered OK, {} deliveries; \
         {start} bytes of log dropped",
        seen.acked.len(),
        seen.deliveries
    );
    assert!(start > 10 * SEGMENT, "little was dropped: {start} bytes");
    assert!(seen.acked.len() > 100 && sent > 1_000);
}

/// Where the log starts.
fn start_of_log(store: &Path) -> u64 {
    let files = std::fs::read_dir(store.join("log")).unwrap();
    let bases = files.filter_map(|file| file.ok()?.path().file_stem()?.to_str()?.parse::<u64>().ok());
    bases.min().unwrap()
}

/// Waits until the log is as short as it is to be.
async fn until_short(store: &Path) {
    let short = async {
        while log_bytes(store) > 4 * LOG_MAX {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    assert!(
        tokio::time::timeout(Duration::from_secs(90), short).await.is_ok(),
        "the log stays at {} bytes",
        log_bytes(store)
    );
}

/// What the files of the log take.
fn log_bytes(store: &Path) -> u64 {
    let files = std::fs::read_dir(store.join("log")).unwrap();
    // One may go meanwhile.
    files.filter_map(|file| Some(file.ok()?.metadata().ok()?.len())).sum()
}

async fn send_many(client: Client, name: String, seen: Arc<Mutex<Seen>>) {
    let body = "x".repeat(20_000);
    for n in 0..SENDS {
        let id = format!("{name}-{n}");
        let Some(answer) = client.call(Rig::send_command("t", &id, None, &body)).await else { return };
        if answer.code != response::SUCCESS {
            // While somebody holds the oldest, the log is too long; nothing else may refuse.
            seen.lock().wrong.push(format!("{} {:?}", answer.code, answer.remark));
            return;
        }
        let at: SendMessageResponseHeader = answer.header().unwrap();
        let mut seen = seen.lock();
        if !seen.offsets.entry(at.queue_id).or_default().insert(at.queue_offset) {
            seen.wrong.push(format!("offset {} of queue {} was given out twice", at.queue_offset, at.queue_id));
        }
    }
}

async fn consume_without_end(client: Client, seen: Arc<Mutex<Seen>>) {
    while let Some(got) = pop(&client, "g", 1_000, 16).await {
        // Of all at once: the lease of one may run out while others are acknowledged, and then somebody else may be done with it.
        {
            let mut seen = seen.lock();
            seen.deliveries += got.len() as u64;
            let again: Vec<_> = got.iter().map(Got::id).filter(|id| seen.acked.contains(id)).collect();
            seen.wrong.extend(again.iter().map(|id| format!("{id} was acknowledged and comes again")));
        }
        for (n, got) in got.iter().enumerate() {
            if n % 4 == 3 {
                continue;
            }
            match ack_over(&client, "g", "t", &got.handle).await {
                Some(response::SUCCESS) => drop(seen.lock().acked.insert(got.id())),
                // It ran out, and is with the other or was dropped.
                Some(response::NO_MESSAGE) => {}
                Some(code) => panic!("{code}"),
                None => return,
            }
        }
    }
}

async fn pop(client: &Client, group: &str, invisible_ms: i64, max: i32) -> Option<Vec<Got>> {
    let answer = pop_over(client, group, max, invisible_ms, 200).await?;
    Some(answer.map(|answer| support::got(&answer)).unwrap_or_default())
}
