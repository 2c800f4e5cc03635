//! Messages of many message groups, in order, and what one stuck group costs the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
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

/// Messages of one send.
const AT_ONCE: usize = 32;
/// How long a receive waits for messages.
const POLL_MS: i64 = 1_000;
/// How long messages stay invisible: longer than any run.
const INVISIBLE_MS: i64 = 3_600_000;
/// After so long without a message the rest is lost.
const SILENCE: Duration = Duration::from_secs(20);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Who knows where the topic is: a name server, or a broker of Waybill
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:10911", value_parser = address::parse)]
    namesrv: String,
    #[command(flatten)]
    load: Load,
    /// How many message groups
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    message_groups: u32,
    /// How many messages of each
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    each: u32,
    /// The first message of one of them is received and not acknowledged
    #[arg(long)]
    stuck: bool,
    /// Receives under way at once
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    receivers: u16,
}

impl Args {
    pub(crate) async fn run(self, format: Format) -> Result<(), Failure> {
        self.load.check()?;
        let direct = Arc::new(Direct::open(&self.namesrv, &self.load).await?);
        let groups: Vec<_> = (0..self.message_groups).map(|number| format!("group-{number}")).collect();
        let Some((first, others)) = groups.split_first() else { return Ok(()) };
        if self.stuck {
            direct.send_many(1, Some(first.clone())).await?;
            if direct.receive(POLL_MS, INVISIBLE_MS, true).await?.len() != 1 {
                return Err(Failure::failed(format!("the topic {} is not empty", self.load.topic)));
            }
        }
        output::progress(format, &format!("sending {} messages of each group …", self.each));
        let each = self.each as usize;
        for start in (0..each).step_by(AT_ONCE) {
            for group in &groups {
                direct.send_many(AT_ONCE.min(each - start), Some(group.clone())).await?;
            }
        }
        output::progress(format, "receiving …");
        let count = if self.stuck { others.len() } else { groups.len() } * each;
        let (before, from) = (Before::sample(&self.load).await?, Instant::now());
        let left = Arc::new(AtomicI64::new(i64::try_from(count).unwrap_or(i64::MAX)));
        let mut workers = JoinSet::new();
        for _ in 0..self.receivers {
            workers.spawn(consume(direct.clone(), left.clone()));
        }
        let mut record = Record::default();
        let mut last = from;
        for consumed in workers.join_all().await {
            let (other, at) = consumed?;
            record.merge(other);
            last = last.max(at);
        }
        let seconds = last.duration_since(from).as_secs_f64();
        let mut report = Report::new("fifo", &self.namesrv, &record, seconds, &before.until_now().await?);
        report.more.insert("missing", (count as u64).saturating_sub(record.messages));
        report.more.insert("tooMany", record.messages.saturating_sub(count as u64));
        conclude(format, &report, record)
    }
}

/// Receives and acknowledges until all have come; and when the last came.
async fn consume(direct: Arc<Direct>, left: Arc<AtomicI64>) -> Result<(Record, Instant), Failure> {
    let (mut record, mut last) = (Record::default(), Instant::now());
    while left.load(Ordering::Relaxed) > 0 && last.elapsed() < SILENCE {
        let from = Instant::now();
        let messages = direct.receive(POLL_MS, INVISIBLE_MS, true).await?;
        if messages.is_empty() {
            continue;
        }
        record.latency("receive", from.elapsed());
        direct.ack_all(&messages).await?;
        record.messages += messages.len() as u64;
        left.fetch_sub(i64::try_from(messages.len()).unwrap_or(i64::MAX), Ordering::Relaxed);
        last = Instant::now();
    }
    Ok((record, last))
}
