//! What held handles cost: memory for each, and time for a renewal tick with many and with few held.
//!
//! `cargo run --release -p waybill-sidecar --example receipts_bench`. Only the core is measured: no network, no tasks.
#![allow(clippy::print_stdout)]

use std::time::{Duration, Instant};

use waybill_protocol::handle::{ReceiptHandle, TopicType};
use waybill_sidecar::receipts::{
    AckOutcome, ChannelKind, Holder, Mode, Policy, Received,
    core::{Core, Find, Intent},
};

const MANY: usize = 1_000_000;
const FEW: usize = 1_000;
const DUE: usize = 100;
const TICKS: usize = 2_000;
const CLIENTS: usize = 200;
const AHEAD_MS: i64 = 2_000;
/// A limit of all handles that is far away; [`MANY`] is one that is reached.
const FAR: usize = 1_200_000;

fn main() {
    // Both at once: what is freed stays with the process and would be taken for nothing.
    drop((memory(FAR), memory(MANY)));
    for order in [Order::AsReceived, Order::Scattered] {
        let few = ticks(FEW, FAR, order);
        let many = ticks(MANY, FAR, order);
        println!("  with {MANY} held it costs {:.2} times as much", many.as_secs_f64() / few.as_secs_f64());
        ticks(MANY, MANY, order);
    }
    shedding();
    rate();
    acks();
}

/// Memory of this process that is in RAM, in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4_096
}

/// Which handles are due together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// Those that were received together, as it is in life.
    AsReceived,
    /// Any, so that nothing is where the processor would expect it.
    Scattered,
}

/// A core that holds `count` handles, each renewed once and then every `cycle_ms`, an equal number every `tick_ms`.
struct Bench {
    core: Core,
    now: i64,
    lease_ms: i64,
    tick_ms: i64,
}

impl Bench {
    fn new(count: usize, limit: usize, cycle_ms: i64, tick_ms: i64, order: Order) -> Self {
        let lease_ms = cycle_ms + AHEAD_MS;
        let policy = Policy {
            renew_steps_ms: vec![lease_ms],
            renew_ahead_ms: AHEAD_MS,
            renew_max_time_ms: i64::MAX,
            max_handles: limit as u32,
            ..Policy::default()
        };
        let mut bench = Self { core: Core::new(policy), now: 0, lease_ms, tick_ms };
        let ticks = cycle_ms / tick_ms;
        // A lease shorter than twice the lead would be renewed earlier than at its tick.
        let first_tick = AHEAD_MS / tick_ms;
        for first in (0..count).step_by(32) {
            let client = format!("app-7c9d8b6f5-x{:03}@1@0@a1b2c3d4e5", first / 32 % CLIENTS);
            let holder = Holder { client: &client, group: "orders-consumer-group", topic: "orders-topic" };
            let received = (first..count.min(first + 32)).map(|n| {
                let place = if order == Order::Scattered { n * 7_919 % count } else { n };
                let tick = first_tick + 1 + place as i64 * ticks / count as i64;
                received(n, tick * tick_ms + AHEAD_MS)
            });
            let registered = bench.core.register(0, holder, ChannelKind::Grpc, &received.collect::<Vec<_>>());
            assert!(registered.refused.is_empty());
        }
        for _ in 0..first_tick + ticks {
            bench.tick();
        }
        assert_eq!(bench.core.stats().held, count as u64, "nothing was late");
        bench
    }

    /// Everything that is due is sent, and answered as our broker does. Answers how many.
    fn tick(&mut self) -> usize {
        self.now += self.tick_ms;
        let mut renewed = 0;
        while let Some(batch) = self.core.next_batch(self.now) {
            renewed += batch.items.len();
            for item in batch.items {
                let handle = ReceiptHandle { invisible_time: item.handle.invisible_time + 1, ..item.handle };
                self.core.settle(self.now, item.flight, item.purpose, (batch.sent_at, self.lease_ms), Ok(handle));
            }
            self.core.end_request(batch.lane);
        }
        renewed
    }
}

fn received(n: usize, invisible_ms: i64) -> Received {
    let handle = ReceiptHandle {
        start_offset: n as i64,
        pop_time: 1_750_000_000_000 + n as i64,
        invisible_time: invisible_ms,
        revive_queue_id: (n % 8) as i32,
        topic_type: TopicType::Normal,
        broker_name: format!("broker-{}", n / 32 % 3),
        queue_id: (n / 32 % 16) as i32,
        offset: n as i64,
        commit_log_offset: Some(n as i64 * 1_024),
    };
    Received { handle, message_id: format!("01A2B3C4D5E6F7A8B9C0{n:012X}"), reconsume_times: 0, mode: Mode::Renew }
}

fn memory(limit: usize) -> Bench {
    let before = resident();
    let bench = Bench::new(MANY, limit, 1_000_000, 1_000, Order::Scattered);
    let bytes = resident() - before;
    let held = bench.core.stats().held;
    println!("memory: {} MiB for {held} handles of {limit} at most, {} bytes each", bytes >> 20, bytes / MANY);
    bench
}

/// The median time of a tick in which [`DUE`] of `held` handles are due.
fn ticks(held: usize, limit: usize, order: Order) -> Duration {
    let mut bench = Bench::new(held, limit, (held / DUE) as i64 * 1_000, 1_000, order);
    let mut took = Vec::new();
    for _ in 0..TICKS {
        let began = Instant::now();
        let renewed = bench.tick();
        took.push(began.elapsed());
        assert_eq!(renewed, DUE);
    }
    took.sort_unstable();
    let (median, p99) = (took[TICKS / 2], took[TICKS * 99 / 100]);
    println!("tick, {held} held of {limit} at most, {DUE} due, {order:?}: median {median:?}, p99 {p99:?}");
    median
}

/// What messages cost that come when a limit is reached, most of them in the place of another.
fn shedding() {
    const EACH: usize = 10_000;
    for (what, most, most_of_client) in [("all", MANY, MANY), ("one client", FAR, MANY / CLIENTS)] {
        let mut bench = Bench::new(MANY, most, 1_000_000, 1_000, Order::Scattered);
        let policy = Policy { max_handles_per_client: most_of_client as u32, ..bench.core.policy().clone() };
        bench.core.set_policy(policy);
        let client = "app-7c9d8b6f5-x000@1@0@a1b2c3d4e5";
        let holder = Holder { client, group: "orders-consumer-group", topic: "orders-topic" };
        let mut took = Vec::new();
        for n in MANY..MANY + EACH {
            let item = received(n, (2 * MANY - n) as i64 / 10);
            let began = Instant::now();
            let _held = bench.core.register(bench.now, holder, ChannelKind::Grpc, std::slice::from_ref(&item));
            took.push(began.elapsed());
        }
        let mean = took.iter().sum::<Duration>() / EACH as u32;
        let slowest = took.iter().max().copied().unwrap_or_default();
        println!("a message at the limit of {what}: {mean:?}, the slowest {slowest:?}");
    }
}

/// A million held and 10,000 due per second, in ticks of 100 ms.
fn rate() {
    let mut bench = Bench::new(MANY, FAR, 100_000, 100, Order::Scattered);
    let began = Instant::now();
    let renewed: usize = (0..100).map(|_| bench.tick()).sum();
    let share = began.elapsed().as_secs_f64() / 10.0 * 100.0;
    println!("{MANY} held, {} renewed per second for 10 s: {share:.1} % of one core", renewed / 10);
}

/// Receive and ack, with a million held.
fn acks() {
    const ROUNDS: usize = 200_000;
    let mut bench = Bench::new(MANY, FAR, 1_000_000, 1_000, Order::AsReceived);
    let holder = Holder { client: "somebody", group: "orders-consumer-group", topic: "orders-topic" };
    let items: Vec<Received> = (MANY..MANY + ROUNDS).map(|n| received(n, 60_000)).collect();
    let began = Instant::now();
    for item in &items {
        let _held = bench.core.register(bench.now, holder, ChannelKind::Grpc, std::slice::from_ref(item));
        if let Some(begun) = bench.core.begin(holder, Find::Handle(&item.handle), Intent::Finish) {
            bench.core.end_ack(bench.now, begun.id, AckOutcome::Done);
        }
    }
    let took = began.elapsed() / ROUNDS as u32;
    assert_eq!(bench.core.stats().held, MANY as u64);
    println!("receive and ack with {MANY} held: {took:?} each");
}
