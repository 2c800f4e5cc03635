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

fn main() {
    memory();
    for order in [Order::AsReceived, Order::Scattered] {
        let few = ticks(FEW, order);
        let many = ticks(MANY, order);
        println!("  with {MANY} held it costs {:.2} times as much", many.as_secs_f64() / few.as_secs_f64());
    }
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
    fn new(count: usize, cycle_ms: i64, tick_ms: i64, order: Order) -> Self {
        let lease_ms = cycle_ms + AHEAD_MS;
        let policy = Policy {
            renew_steps_ms: vec![lease_ms],
            renew_ahead_ms: AHEAD_MS,
            renew_max_time_ms: i64::MAX,
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

fn memory() {
    drop(Bench::new(FEW, 10_000, 1_000, Order::Scattered));
    let before = resident();
    let bench = Bench::new(MANY, 1_000_000, 1_000, Order::Scattered);
    let bytes = resident() - before;
    println!("memory: {} MiB for {} handles, {} bytes each", bytes >> 20, bench.core.stats().held, bytes / MANY);
}

/// The median time of a tick in which [`DUE`] of `held` handles are due.
fn ticks(held: usize, order: Order) -> Duration {
    let mut bench = Bench::new(held, (held / DUE) as i64 * 1_000, 1_000, order);
    let mut took = Vec::new();
    for _ in 0..TICKS {
        let began = Instant::now();
        let renewed = bench.tick();
        took.push(began.elapsed());
        assert_eq!(renewed, DUE);
    }
    took.sort_unstable();
    let median = took[TICKS / 2];
    println!("tick, {held} held, {DUE} due, {order:?}: median {median:?}, p99 {:?}", took[TICKS * 99 / 100]);
    median
}

/// A million held and 10,000 due per second, in ticks of 100 ms.
fn rate() {
    let mut bench = Bench::new(MANY, 100_000, 100, Order::Scattered);
    let began = Instant::now();
    let renewed: usize = (0..100).map(|_| bench.tick()).sum();
    let share = began.elapsed().as_secs_f64() / 10.0 * 100.0;
    println!("{MANY} held, {} renewed per second for 10 s: {share:.1} % of one core", renewed / 10);
}

/// Receive and ack, with a million held.
fn acks() {
    const ROUNDS: usize = 200_000;
    let mut bench = Bench::new(MANY, 1_000_000, 1_000, Order::AsReceived);
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
