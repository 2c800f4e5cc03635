//! Delayed messages that are all due at the same second, and a few that are due by and by.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;
use waybill_ops::clock;
use waybill_protocol::message::properties;

use crate::address;
use crate::bench::conclude;
use crate::bench::direct::{DUE, Direct};
use crate::bench::load::{Plan, Record};
use crate::bench::options::Load;
use crate::bench::report::Report;
use crate::bench::usage::Before;
use crate::exit::Failure;
use crate::output::{self, Format};
use crate::quantity;

/// How long a receive waits for messages.
const POLL_MS: i64 = 1_000;
/// How long received messages stay invisible; they are acknowledged at once.
const INVISIBLE_MS: i64 = 60_000;
/// After so long without a message the rest is lost.
const SILENCE: Duration = Duration::from_secs(60);
/// How long the messages of the trickle are delayed.
const TRICKLE_DELAY_MS: i64 = 2_000;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Who knows where the topics are: a name server, or a broker of Waybill
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:10911", value_parser = address::parse)]
    namesrv: String,
    #[command(flatten)]
    load: Load,
    /// How many messages to send
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    messages: u32,
    /// When they are due, from the first send on; all must be sent by then
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = quantity::duration)]
    due_in: Duration,
    /// Without a delay: to see what a delay costs a send
    #[arg(long, conflicts_with = "trickle_topic")]
    plain: bool,
    /// Only send, and leave what was sent to be due
    #[arg(long, conflicts_with_all = ["plain", "trickle_topic"])]
    leave: bool,
    /// Another topic, whose messages are due 2 s after each was sent
    #[arg(long, value_name = "TOPIC")]
    trickle_topic: Option<String>,
    /// How many a second go to it
    #[arg(long, default_value = "20", value_parser = super::rate)]
    trickle: f64,
    /// Receives under way at once
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    receivers: u16,
}

impl Args {
    pub(crate) async fn run(self, format: Format) -> Result<(), Failure> {
        self.load.check()?;
        let direct = Arc::new(Direct::open(&self.namesrv, &self.load).await?);
        direct.empty().await?;
        let trickle = self.start_trickle().await?;
        output::progress(format, &format!("sending {} messages …", self.messages));
        let due_ms = clock::now_ms() + i64::try_from(self.due_in.as_millis()).unwrap_or(i64::MAX);
        // A whole second, which is what brokers go by.
        let due_ms = (!self.plain).then(|| due_ms.div_euclid(1_000) * 1_000);
        let began = Instant::now();
        self.send_all(&direct, due_ms).await?;
        let sending = began.elapsed();
        if due_ms.is_some_and(|due_ms| clock::now_ms() >= due_ms) {
            let took = sending.as_secs_f64();
            return Err(Failure::failed(format!("sending took {took:.0} s, longer than --due-in")));
        }
        let count = if self.leave { 0 } else { self.messages };
        output::progress(format, &format!("receiving {count} …"));
        let from_ms = due_ms.unwrap_or_else(clock::now_ms);
        let (before, received) = (Before::sample(&self.load).await?, self.receive_all(&direct, count, from_ms).await?);
        let seconds = (received.last_ms - from_ms).max(1) as f64 / 1e3;
        let usage = before.until_now().await?;
        let mut record = received.record;
        record.messages = received.count;
        if let Some((stop, workers)) = trickle {
            stop.stop.cancel();
            for ended in workers.join_all().await {
                // Errors, too; but they are not of the messages that are counted.
                record.merge(Record { messages: 0, ..ended });
            }
        }
        let mut report = Report::new("delay", &self.namesrv, &record, seconds, &usage);
        report.more.insert("early", received.early);
        report.more.insert("missing", u64::from(count).saturating_sub(received.count));
        report.more.insert("acceptedPerSecond", (f64::from(self.messages) / sending.as_secs_f64()) as u64);
        if self.leave {
            return output::print(format, &report, Report::text);
        }
        conclude(format, &report, record)
    }

    async fn send_all(&self, direct: &Arc<Direct>, due_ms: Option<i64>) -> Result<(), Failure> {
        let left = Arc::new(AtomicI64::new(i64::from(self.messages)));
        let mut workers = JoinSet::new();
        for number in 0..self.load.in_flight as usize {
            let (direct, left) = (direct.clone(), left.clone());
            workers.spawn(async move {
                while left.fetch_sub(1, Ordering::Relaxed) > 0 {
                    direct.send_due(number, due_ms).await.map_err(|problem| problem.failure)?;
                }
                Ok::<(), Failure>(())
            });
        }
        workers.join_all().await.into_iter().collect()
    }

    async fn receive_all(&self, direct: &Arc<Direct>, count: u32, from_ms: i64) -> Result<Received, Failure> {
        let left = Arc::new(AtomicI64::new(i64::from(count)));
        let mut workers = JoinSet::new();
        for _ in 0..self.receivers {
            workers.spawn(receive(direct.clone(), left.clone(), from_ms));
        }
        let mut all = Received::default();
        for received in workers.join_all().await {
            all.merge(received?);
        }
        Ok(all)
    }

    /// Sends and receives beside the rest until its plan is stopped.
    async fn start_trickle(&self) -> Result<Option<(Arc<Plan>, JoinSet<Record>)>, Failure> {
        let Some(topic) = &self.trickle_topic else { return Ok(None) };
        let load = Load { topic: topic.clone(), ..self.load.clone() };
        let direct = Arc::new(Direct::open(&self.namesrv, &load).await?);
        direct.empty().await?;
        let day = Duration::from_secs(86_400);
        let plan = Arc::new(Plan::new(Duration::ZERO, day, Some(self.trickle), None));
        let mut workers = JoinSet::new();
        workers.spawn(trickle_in(direct.clone(), plan.clone()));
        workers.spawn(trickle_out(direct, plan.clone()));
        Ok(Some((plan, workers)))
    }
}

/// What came of the messages that are due at the same time.
#[derive(Default)]
struct Received {
    record: Record,
    count: u64,
    early: u64,
    /// When the last came, milliseconds since 1970.
    last_ms: i64,
}

impl Received {
    fn merge(&mut self, other: Self) {
        self.record.merge(other.record);
        self.count += other.count;
        self.early += other.early;
        self.last_ms = self.last_ms.max(other.last_ms);
    }
}

async fn receive(direct: Arc<Direct>, left: Arc<AtomicI64>, due_ms: i64) -> Result<Received, Failure> {
    let mut received = Received::default();
    let mut heard = Instant::now();
    while left.load(Ordering::Relaxed) > 0 && (clock::now_ms() < due_ms || heard.elapsed() < SILENCE) {
        let messages = direct.receive(POLL_MS, INVISIBLE_MS, false).await?;
        if messages.is_empty() {
            continue;
        }
        let now_ms = clock::now_ms();
        let count = messages.len() as u64;
        received.count += count;
        received.early += if now_ms < due_ms { count } else { 0 };
        received.last_ms = now_ms;
        let late = Duration::from_millis(u64::try_from(now_ms - due_ms).unwrap_or_default());
        messages.iter().for_each(|_message| received.record.latency("lateness", late));
        direct.ack_all(&messages).await?;
        left.fetch_sub(i64::try_from(count).unwrap_or(i64::MAX), Ordering::Relaxed);
        heard = Instant::now();
    }
    Ok(received)
}

async fn trickle_in(direct: Arc<Direct>, plan: Arc<Plan>) -> Record {
    let mut record = Record::default();
    while plan.next().await.is_some() {
        if let Err(problem) = direct.send_due(0, Some(clock::now_ms() + TRICKLE_DELAY_MS)).await {
            record.failed(problem).await;
        }
    }
    record
}

async fn trickle_out(direct: Arc<Direct>, plan: Arc<Plan>) -> Record {
    let mut record = Record::default();
    while !plan.over() {
        let Ok(messages) = direct.receive(POLL_MS, INVISIBLE_MS, false).await else { continue };
        let now_ms = clock::now_ms();
        for message in &messages {
            let due = properties::get(&message.message.properties, DUE);
            if let Some(due_ms) = due.and_then(|due| due.parse::<i64>().ok()) {
                let late = u64::try_from(now_ms.saturating_sub(due_ms));
                record.latency(
                    if late.is_ok() { "trickle" } else { "trickle, early" },
                    Duration::from_millis(late.unwrap_or_default()),
                );
            }
        }
        // What is not acknowledged comes again and would be counted twice, as very late.
        let _answer = direct.ack_all(&messages).await;
    }
    record
}
