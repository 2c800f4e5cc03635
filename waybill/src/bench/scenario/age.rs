//! Many messages sent, received and acknowledged: whether the last are received as fast as the first.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::address;
use crate::bench::conclude;
use crate::bench::direct::Direct;
use crate::bench::load::Record;
use crate::bench::options::Load;
use crate::bench::report::Report;
use crate::bench::usage::Before;
use crate::exit::Failure;
use crate::output::{self, Format};

/// Messages of one send and of one receive.
const AT_ONCE: usize = 32;
/// How long a receive waits for messages that were sent just before.
const POLL_MS: i64 = 3_000;
/// How long messages stay invisible; they are acknowledged at once.
const INVISIBLE_MS: i64 = 60_000;
/// How often a long measurement says that it goes on.
const TELL_EVERY: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Who knows where the topic is: a name server, or a broker of Waybill
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:10911", value_parser = address::parse)]
    namesrv: String,
    #[command(flatten)]
    load: Load,
    /// How many messages
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    messages: u64,
    /// How many of the first and of the last are compared
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    window: u64,
    /// Messages that are left unacknowledged in the end, leased for an hour
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    leased: u32,
}

impl Args {
    pub(crate) async fn run(self, format: Format) -> Result<(), Failure> {
        self.load.check()?;
        let direct = Arc::new(Direct::open(&self.namesrv, &self.load).await?);
        direct.empty().await?;
        let (before, from) = (Before::sample(&self.load).await?, Instant::now());
        let done = Arc::new(AtomicU64::new(0));
        let mut workers = JoinSet::new();
        for _ in 0..self.load.connections {
            workers.spawn(turn(direct.clone(), done.clone(), self.messages, self.window));
        }
        let mut record = Record::default();
        let mut ticks = tokio::time::interval(TELL_EVERY);
        ticks.reset();
        loop {
            tokio::select! {
                _tick = ticks.tick() => {
                    output::progress(format, &format!("… {} of {}", done.load(Ordering::Relaxed), self.messages));
                }
                ended = workers.join_next() => match ended {
                    Some(ended) => {
                        record.merge(ended.map_err(|error| Failure::failed(format!("a worker ended early: {error}")))??);
                    }
                    None => break,
                },
            }
        }
        let seconds = from.elapsed().as_secs_f64();
        let report = Report::new("age", &self.namesrv, &record, seconds, &before.until_now().await?);
        direct.hold(self.leased as usize).await?;
        conclude(format, &report, record)
    }
}

/// Sends some, receives some, acknowledges them, over and over.
async fn turn(direct: Arc<Direct>, done: Arc<AtomicU64>, all: u64, window: u64) -> Result<Record, Failure> {
    let mut record = Record::default();
    while done.load(Ordering::Relaxed) < all {
        direct.send_many(AT_ONCE, None).await?;
        let from = Instant::now();
        let messages = direct.receive(POLL_MS, INVISIBLE_MS, false).await?;
        let took = from.elapsed();
        direct.ack_all(&messages).await?;
        let before = done.fetch_add(messages.len() as u64, Ordering::Relaxed);
        if before < window {
            record.latency("first", took);
        } else if before + window >= all {
            record.latency("last", took);
        }
        record.messages += messages.len() as u64;
    }
    Ok(record)
}
