//! `kill -9` while commits are under way: whatever was answered is there afterwards.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use waybill_broker::store::{Batch, EntryMeta, Keyspace, Options, Store};

use crate::support::*;

const CYCLES: usize = 20;
const WORKERS: u32 = 16;
const DIR: &str = "WAYBILL_STORE_KILL_DIR";

fn kill_options(dir: &Path) -> Options {
    let mut options = options(dir);
    options.segment_bytes = 1024 * 1024;
    options.index_checkpoint_bytes = 300_000;
    options
}

fn payload(worker: u32, offset: u64) -> Vec<u8> {
    let len = (u64::from(worker) * 131 + offset * 37) % 4000;
    (0..len).map(|at| (at ^ offset) as u8).collect()
}

/// Commits until it is killed, saying what was answered. A test only in name: [`what_was_answered_survives_kill_9`] runs it.
#[test]
fn child() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    let store = Store::open(kill_options(Path::new(&dir))).unwrap();
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let store = store.clone();
            runtime.spawn(async move {
                let (_, mut offset) = store.bounds(queue(1, worker));
                loop {
                    let mut batch = Batch::new();
                    batch.append(queue(1, worker), offset, EntryMeta::default(), &payload(worker, offset));
                    batch.put(Keyspace::Progress, &worker.to_be_bytes(), &offset.to_be_bytes());
                    // Two leases live at a time.
                    batch.put(Keyspace::Lease, &lease(worker, offset), &offset.to_be_bytes());
                    batch.delete(Keyspace::Lease, &lease(worker, offset.wrapping_sub(2)));
                    store.submit(batch).await.unwrap();
                    println!("ok {worker} {offset}");
                    offset += 1;
                }
            })
        })
        .collect();
    // The log is never longer than some segments.
    runtime.spawn(async move {
        loop {
            let held = store.held().await.unwrap();
            let cut = store.cut(held, store.stats().log_end.saturating_sub(2_500_000)).await.unwrap();
            store.shorten(cut).await.unwrap();
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    workers.into_iter().for_each(|worker| runtime.block_on(worker).unwrap());
}

fn lease(worker: u32, offset: u64) -> Vec<u8> {
    [&worker.to_be_bytes()[..], &offset.to_be_bytes()[..]].concat()
}

/// Runs the child until it has answered this much, and kills it; what it said was answered.
fn run_and_kill(dir: &Path, answers: usize, acknowledged: &mut HashMap<u32, u64>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::child", "--nocapture", "--test-threads=1"])
        .env(DIR, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut seen = 0;
    for line in lines {
        // The last line may be torn: then it was not said.
        let Ok(line) = line else { break };
        let words: Vec<_> = line.split(' ').collect();
        let ["ok", worker, offset] = words[..] else { continue };
        let (Ok(worker), Ok(offset)) = (worker.parse(), offset.parse::<u64>()) else { continue };
        // A torn number is a shorter one, and lower.
        let last = acknowledged.entry(worker).or_insert(offset);
        *last = offset.max(*last);
        seen += 1;
        if seen == answers {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(seen >= answers, "the child ended by itself after {seen} answers");
}

#[test]
fn what_was_answered_survives_kill_9() {
    let dir = disk_dir();
    let mut acknowledged = HashMap::new();
    let mut shortened = false;
    for cycle in 0..CYCLES {
        run_and_kill(dir.path(), 100 + cycle * 97 % 400, &mut acknowledged);
        let started = Instant::now();
        let store = Store::open(kill_options(dir.path())).unwrap();
        println!("cycle {cycle}: open again after {:?}", started.elapsed());
        for (&worker, &last) in &acknowledged {
            let (min, next) = store.bounds(queue(1, worker));
            shortened |= min > 0;
            assert!(next > last, "worker {worker} was told that {last} is safe, and {next} comes next");
            let entries = store.entries(queue(1, worker), 0, usize::MAX).unwrap();
            assert!(entries.iter().map(|entry| entry.offset).eq(min..next), "none is missing");
            for entry in entries {
                assert_eq!(&store.read(entry.position).unwrap()[..], payload(worker, entry.offset));
            }
            let progress = store.get(Keyspace::Progress, &worker.to_be_bytes()).unwrap();
            assert_eq!(progress.as_deref(), Some(&(next - 1).to_be_bytes()[..]), "a batch is there as a whole");
            let leases: Vec<_> = store.scan(Keyspace::Lease, &worker.to_be_bytes()).unwrap();
            let expected: Vec<_> = (next.saturating_sub(2)..next).map(|offset| lease(worker, offset)).collect();
            assert!(leases.iter().map(|(key, _)| &key[..]).eq(expected.iter().map(|key| &key[..])));
        }
        drop(store);
    }
    assert!(acknowledged.values().sum::<u64>() > 2000);
    assert!(shortened, "the log was never shortened");
}
