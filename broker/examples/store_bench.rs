//! How close the store comes to the disk: 256 tasks append 1 KiB messages and wait for each to be durable, alternated with a plain loop
//! that appends the same bytes in the same groups to preallocated files and syncs after each.
//!
//! `cargo run --release -p waybill-broker --example store_bench [rounds, default 20]`
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measurement says what it saw, and stops where it cannot go on"
)]

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use waybill_broker::store::{Batch, Disk, EntryMeta, Options, QueueKey, RealDisk, Stats, Store};

const TASKS: u32 = 256;
const PAYLOAD: usize = 1024;
/// Short, so that what else the machine does falls on both.
const ROUND: Duration = Duration::from_millis(200);
const FILE_BYTES: u64 = 64 * 1024 * 1024;

struct Round {
    seconds: f64,
    records: u64,
    bytes: u64,
    groups: u64,
    cpu_seconds: f64,
}

fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(20, |rounds| rounds.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    let store = Store::open(Options::new(dir.path().join("store"))).unwrap();

    runtime.block_on(append(&store)); // warm-up
    let (mut ratios, mut cpu, mut records) = (Vec::new(), 0.0, 0);
    for number in 1..=rounds {
        let ours = runtime.block_on(append(&store));
        let raw = raw(&dir.path().join("raw"), ours.bytes / ours.groups.max(1), ours.groups);
        let rate = ours.bytes as f64 / ours.seconds;
        ratios.push(rate / raw);
        cpu += ours.cpu_seconds;
        records += ours.records;
        println!(
            "round {number}: store {:.1} MB/s, {:.0} messages/s in groups of {:.0}; raw {:.1} MB/s; ratio {:.2}",
            rate / 1e6,
            ours.records as f64 / ours.seconds,
            ours.records as f64 / ours.groups as f64,
            raw / 1e6,
            rate / raw,
        );
    }
    ratios.sort_by(f64::total_cmp);
    println!(
        "ratio min {:.2} median {:.2} max {:.2}; {:.2} µs of CPU per message, tasks included; resident {} KiB; {:?}",
        ratios[0],
        ratios[ratios.len() / 2],
        ratios[ratios.len() - 1],
        cpu * 1e6 / records as f64,
        resident_kib(),
        store.stats(),
    );
    store.close().unwrap();
}

/// Every task appends and waits, again and again, for a round.
async fn append(store: &Store) -> Round {
    let stop = Arc::new(AtomicBool::new(false));
    let (before, cpu, started) = (store.stats(), cpu_seconds(), Instant::now());
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (store, stop) = (store.clone(), stop.clone());
            tokio::spawn(async move {
                let queue = QueueKey { topic: 1, queue: task };
                let (_, mut offset) = store.bounds(queue);
                let payload = [task as u8; PAYLOAD];
                while !stop.load(Ordering::Relaxed) {
                    let mut batch = Batch::new();
                    batch.append(queue, offset, EntryMeta { tag_hash: task, store_time_ms: offset as i64 }, &payload);
                    store.submit(batch).await.unwrap();
                    offset += 1;
                }
            })
        })
        .collect();
    tokio::time::sleep(ROUND).await;
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    let (seconds, cpu_seconds) = (started.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    let Stats { records, bytes, groups, .. } = store.stats();
    Round {
        seconds,
        records: records - before.records,
        bytes: bytes - before.bytes,
        groups: groups - before.groups,
        cpu_seconds,
    }
}

/// Bytes per second of appending `groups` times `group_bytes` with a sync after each.
fn raw(dir: &Path, group_bytes: u64, groups: u64) -> f64 {
    fs::create_dir_all(dir).unwrap();
    let per_file = FILE_BYTES / group_bytes;
    let files: Vec<File> = (0..groups.div_ceil(per_file))
        .map(|number| {
            let path = dir.join(number.to_string());
            let file = OpenOptions::new().create(true).truncate(true).write(true).open(path).unwrap();
            RealDisk.allocate(&file, FILE_BYTES).unwrap();
            file.sync_all().unwrap();
            file
        })
        .collect();
    let group = vec![0x5a; group_bytes as usize];
    let started = Instant::now();
    for at in 0..groups {
        let file = &files[(at / per_file) as usize];
        file.write_all_at(&group, at % per_file * group_bytes).unwrap();
        file.sync_data().unwrap();
    }
    let seconds = started.elapsed().as_secs_f64();
    fs::remove_dir_all(dir).unwrap();
    (group_bytes * groups) as f64 / seconds
}

/// CPU time of this process, user and system, from the operating system.
fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks = |at: usize| fields[at].parse::<f64>().unwrap();
    // Linux counts in hundredths of a second.
    (ticks(11) + ticks(12)) / 100.0
}

fn resident_kib() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap_or_default();
    line.split_whitespace().nth(1).unwrap_or("?").to_owned()
}
