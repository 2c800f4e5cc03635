//! When calls begin, which of them count, and what came of them.
//!
//! Calls begin either as soon as one ends (a closed loop, for throughput) or at a fixed rate whatever the answers take
//! (an open loop, for latency). With a rate, latency counts from the moment a call should have begun: a server that
//! stalls is charged with every call that had to wait for it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::histogram::Histogram;
use crate::exit::Failure;
use crate::grpc::CallError;

/// Wait after an error, so that a server that fails at once is not asked in a tight loop.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(20);

/// How long before a moment the runtime's timer, which knows whole milliseconds only, hands over to the operating system's.
const HAND_OVER: Duration = Duration::from_millis(3);

/// Wakes up at a moment, and not up to two milliseconds later: a latency that counts from then would be that much too long.
async fn wake_at(due: Instant) {
    sleep_until(due.checked_sub(HAND_OVER).unwrap_or(due)).await;
    let rest = due.saturating_duration_since(Instant::now());
    if !rest.is_zero() {
        // It cannot panic, and when the runtime ends nobody waits any more.
        let _slept = tokio::task::spawn_blocking(move || sleep_precisely(rest)).await;
    }
}

/// Sleeps by the operating system's timer, to the tenth of a millisecond.
#[expect(
    clippy::disallowed_methods,
    reason = "it runs on a thread that may block, and the moment itself is waited for"
)]
fn sleep_precisely(rest: Duration) {
    std::thread::sleep(rest);
}

/// The plan of one measurement; shared by all its workers.
#[derive(Debug)]
pub(crate) struct Plan {
    begin: Instant,
    /// Calls that end from here on count.
    pub(crate) measure_from: Instant,
    until: Instant,
    /// Nanoseconds between two calls; None for a closed loop.
    interval_ns: Option<u64>,
    /// Number of the next call of an open loop.
    next: AtomicU64,
    /// Calls that may still begin; None for no limit.
    quota: Option<AtomicI64>,
    /// Ends the measurement early.
    pub(crate) stop: CancellationToken,
}

impl Plan {
    /// Begins now. `rate` is calls a second, `count` the most calls in all.
    pub(crate) fn new(warmup: Duration, duration: Duration, rate: Option<f64>, count: Option<u64>) -> Self {
        let begin = Instant::now();
        Self {
            begin,
            measure_from: begin + warmup,
            until: begin + warmup + duration,
            interval_ns: rate.map(|rate| (1e9 / rate) as u64),
            next: AtomicU64::new(0),
            quota: count.map(|count| AtomicI64::new(i64::try_from(count).unwrap_or(i64::MAX))),
            stop: CancellationToken::new(),
        }
    }

    /// Waits until the next call is due and returns the moment it should have begun; None when there is none left.
    pub(crate) async fn next(&self) -> Option<Instant> {
        if self.over() || !self.take_quota() {
            return None;
        }
        let Some(interval_ns) = self.interval_ns else {
            return Some(Instant::now());
        };
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let due = self.begin + Duration::from_nanos(interval_ns.saturating_mul(number));
        if due >= self.until {
            return None;
        }
        tokio::select! {
            () = wake_at(due) => Some(due),
            () = self.stop.cancelled() => None,
        }
    }

    /// Whether no further call should begin.
    pub(crate) fn over(&self) -> bool {
        self.stop.is_cancelled() || Instant::now() >= self.until
    }

    fn take_quota(&self) -> bool {
        self.quota.as_ref().is_none_or(|quota| quota.fetch_sub(1, Ordering::Relaxed) > 0)
    }

    /// Waits until the measurement is over.
    pub(crate) async fn finished(&self) {
        tokio::select! {
            () = sleep_until(self.until) => {}
            () = self.stop.cancelled() => {}
        }
    }
}

/// An error of a call, under the name that all of its kind have.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) label: String,
    pub(crate) failure: Failure,
}

impl From<CallError> for Problem {
    fn from(error: CallError) -> Self {
        Self { label: error.label(), failure: error.into() }
    }
}

/// What one worker saw; added up at the end.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// Messages (or changes) that were done within the measured time.
    pub(crate) messages: u64,
    /// Latencies by the name of what was measured, in microseconds.
    pub(crate) latencies: BTreeMap<&'static str, Histogram>,
    /// Errors of the whole run, warm-up included, by label.
    pub(crate) errors: BTreeMap<String, u64>,
    /// One example of each kind of error.
    pub(crate) examples: BTreeMap<String, Failure>,
}

impl Record {
    /// A call that began (or should have begun) at `from` has just ended well, for so many messages.
    pub(crate) fn done(&mut self, plan: &Plan, what: &'static str, from: Instant, messages: u64) {
        let now = Instant::now();
        if now >= plan.measure_from && now <= plan.until {
            self.messages += messages;
            self.latency(what, now.saturating_duration_since(from));
        }
    }

    /// As [`Record::done`], for what is timed but is not the messages that are counted.
    pub(crate) fn timed(&mut self, plan: &Plan, what: &'static str, from: Instant) {
        self.done(plan, what, from, 0);
    }

    /// How long something took, whenever that was.
    pub(crate) fn latency(&mut self, what: &'static str, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.latencies.entry(what).or_default().record(micros);
    }

    /// A call failed; waits a little.
    pub(crate) async fn failed(&mut self, error: impl Into<Problem>) {
        self.error(error);
        sleep(PAUSE_AFTER_ERROR).await;
    }

    /// One entry of a call failed.
    pub(crate) fn error(&mut self, error: impl Into<Problem>) {
        let Problem { label, failure } = error.into();
        *self.errors.entry(label.clone()).or_default() += 1;
        self.examples.entry(label).or_insert(failure);
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.messages += other.messages;
        for (what, histogram) in &other.latencies {
            self.latencies.entry(what).or_default().merge(histogram);
        }
        for (label, count) in other.errors {
            *self.errors.entry(label).or_default() += count;
        }
        self.examples.extend(other.examples);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_count_is_a_limit() {
        let plan = Plan::new(Duration::ZERO, Duration::from_secs(3600), None, Some(2));
        assert!(plan.next().await.is_some());
        assert!(plan.next().await.is_some());
        assert_eq!(plan.next().await, None);
        assert_eq!(plan.next().await, None, "and stays one");
    }

    #[tokio::test]
    async fn a_rate_spaces_the_calls() {
        let plan = Plan::new(Duration::ZERO, Duration::from_secs(3600), Some(1_000.0), None);
        let first = plan.next().await.expect("due at once");
        let second = plan.next().await.expect("due after a millisecond");
        assert_eq!(second - first, Duration::from_millis(1), "due times are exact, whenever the worker wakes");
        assert!(Instant::now() >= second);
    }

    #[tokio::test]
    async fn nothing_begins_after_the_end() {
        let plan = Plan::new(Duration::ZERO, Duration::from_nanos(1), Some(0.001), None);
        sleep_until(plan.until).await;
        assert_eq!(plan.next().await, None);
        let plan = Plan::new(Duration::ZERO, Duration::from_secs(3600), Some(0.001), None);
        assert!(plan.next().await.is_some());
        plan.stop.cancel();
        assert_eq!(plan.next().await, None, "stopped");
        plan.finished().await;
    }

    #[tokio::test]
    async fn only_the_measured_time_counts() {
        let warming = Plan::new(Duration::from_secs(3600), Duration::from_secs(1), None, None);
        let measuring = Plan::new(Duration::ZERO, Duration::from_secs(3600), None, None);
        let mut record = Record::default();
        record.done(&warming, "send", Instant::now(), 1);
        assert_eq!((record.messages, record.latencies.len()), (0, 0));
        record.done(&measuring, "send", Instant::now(), 3);
        record.timed(&measuring, "ack", Instant::now());
        record.error(CallError::Refused { code: 40402, message: "no".into() });
        let mut all = Record::default();
        all.merge(record);
        assert_eq!(all.messages, 3);
        assert_eq!(all.latencies.values().map(Histogram::count).collect::<Vec<_>>(), [1, 1]);
        assert_eq!(all.errors, BTreeMap::from([("TOPIC_NOT_FOUND".to_owned(), 1)]));
    }
}
