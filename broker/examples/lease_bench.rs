//! What the lease ledger costs by itself: processor time of each ack, change and pop, with few and with many open leases.
//!
//! `cargo run --release -p waybill-broker --example lease_bench [rounds, default 7]`
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measurement says what it saw, and stops where it cannot go on"
)]

use std::hint::black_box;

use waybill_broker::lease::schema::{LEASE_VALUE_MAX, write_lease};
use waybill_broker::lease::{Change, ChangeArgs, ChangedBy, LeaseRef, Ledger, PopArgs, Source, Verdict};

const QUEUES: u32 = 8;
const MINUTE: i64 = 60_000;

/// Endless queues of wanted messages, of so many message groups in turn.
struct Endless {
    groups: u32,
}

impl Source for Endless {
    fn bounds(&self, _queue: u32) -> (u64, u64) {
        (0, u64::MAX)
    }

    fn start(&mut self, _queue: u32) -> u64 {
        0
    }

    fn examine(&mut self, _queue: u32, _offset: u64) -> Verdict {
        Verdict::Deliver
    }

    fn message_group(&mut self, _queue: u32, offset: u64) -> Option<u32> {
        Some((offset % u64::from(self.groups)) as u32)
    }
}

/// A ledger with open leases, and the next of a fixed sequence of numbers without order.
struct Bench {
    ledger: Ledger,
    source: Endless,
    changes: Vec<Change>,
    now: i64,
    open: Vec<LeaseRef>,
    random: u64,
}

impl Bench {
    fn new(open: usize, ordered: bool) -> Self {
        let source = Endless { groups: 1_000_000 };
        let mut bench = Self {
            ledger: Ledger::new(ordered),
            source,
            changes: Vec::new(),
            now: 1_780_000_000_000,
            open: Vec::new(),
            random: 1,
        };
        while bench.open.len() < open {
            let refs = bench.pop();
            bench.open.extend(refs);
            bench.now += 1;
        }
        bench
    }

    fn pop(&mut self) -> Vec<LeaseRef> {
        self.changes.clear();
        let args = PopArgs {
            now_ms: self.now,
            queues: 0..QUEUES,
            max: 32,
            invisible_ms: MINUTE,
            holder: 1,
            attempt: 0,
            max_attempts: u32::MAX,
            in_flight_max: usize::MAX,
            scan_max: 800,
            dead_letter: true,
        };
        let popped = self.ledger.pop(&args, &mut self.source, &mut self.changes);
        let pop_time_ms = popped.pop_time_ms;
        popped.messages.iter().map(|m| LeaseRef { queue: m.queue, offset: m.offset, pop_time_ms }).collect()
    }

    fn any(&mut self) -> usize {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as usize % self.open.len()
    }

    fn change(&mut self) {
        self.changes.clear();
        let at = self.any();
        let lease = self.open[at];
        self.now += 1;
        let args = ChangeArgs { lease, invisible_ms: MINUTE, count: true, by: ChangedBy::Unknown };
        black_box(self.ledger.change(self.now, args, &mut self.changes));
    }

    fn ack(&mut self) {
        self.changes.clear();
        let at = self.any();
        let lease = self.open.swap_remove(at);
        black_box(self.ledger.ack(self.now, lease, &mut self.changes));
    }
}

/// Nanoseconds of processor time for one call of `f`, over so many calls. What else the machine does is not counted, though it
/// takes its share of the caches.
fn time(calls: usize, mut f: impl FnMut()) -> f64 {
    let used = || -> f64 {
        // The kernel brings the count up to date when the thread yields.
        std::thread::yield_now();
        let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        stat.split_whitespace().next().unwrap().parse().unwrap()
    };
    let before = used();
    for _ in 0..calls {
        f();
    }
    (used() - before) / calls as f64
}

/// One round of everything, by the names of [`NAMES`].
fn round(open: usize) -> [f64; 7] {
    let mut bench = Bench::new(open, false);
    // All within the minute that the leases last, so that every change and ack meets a live lease.
    let calls = (open / 2).min(20_000);
    let change = time(calls, || bench.change());
    let together: Vec<ChangeArgs> = bench.open[open / 4..]
        .iter()
        .take(1_024)
        .map(|lease| ChangeArgs { lease: *lease, invisible_ms: MINUTE, count: true, by: ChangedBy::Unknown })
        .collect();
    let batch = time(20, || {
        bench.changes.clear();
        bench.now += 1;
        black_box(bench.ledger.change_many(bench.now, &together, &mut bench.changes));
    }) / together.len() as f64;
    let ack = time(calls, || bench.ack());
    let fresh = time(3_000, || drop(black_box(bench.pop())));
    bench.now += 10 * MINUTE;
    let again = time(3_000, || drop(black_box(bench.pop())));

    let mut bench = Bench::new(open, true);
    let ordered = time(3_000, || drop(black_box(bench.pop())));

    let mut value = Vec::with_capacity(LEASE_VALUE_MAX);
    let lease = *bench.ledger.get(bench.open[0].queue, bench.open[0].offset).unwrap();
    let encode = time(100_000, || {
        value.clear();
        write_lease(black_box(&lease), &mut value);
    });
    [change, batch, ack, fresh, again, ordered, encode]
}

const NAMES: [&str; 7] = [
    "change one of all",
    "change 1024 at once, each",
    "ack one of all",
    "pop 32 new",
    "pop 32 again",
    "pop 32 new, ordered",
    "encode one lease",
];

fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(7, |rounds| rounds.parse().unwrap());
    for open in [1_000, 10_000, 100_000, 1_000_000] {
        println!("{open} open leases, {rounds} rounds, ns (min / median / max)");
        let seen: Vec<[f64; 7]> = (0..rounds).map(|_| round(open)).collect();
        for (i, name) in NAMES.iter().enumerate() {
            let mut ns: Vec<f64> = seen.iter().map(|round| round[i]).collect();
            ns.sort_by(f64::total_cmp);
            println!("  {name:<26}{:>9.0} /{:>9.0} /{:>9.0}", ns[0], ns[rounds / 2], ns[rounds - 1]);
        }
    }
}
