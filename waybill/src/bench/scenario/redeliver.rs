//! Many leases that end at the same moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;
use waybill_ops::clock;

use crate::address;
use crate::bench::conclude;
use crate::bench::direct::Direct;
use crate::bench::load::Record;
use crate::bench::options::Load;
use crate::bench::report::Report;
use crate::bench::usage::Before;
use crate::exit::Failure;
use crate::output::{self, Format};
use crate::quantity;

/// Messages of one send.
const AT_ONCE: usize = 32;
/// How long a receive waits for messages.
const POLL_MS: i64 = 1_000;
/// The shortest lease that brokers give.
const LEASE_MS_MIN: i64 = 10_000;
/// How long messages stay invisible the second time.
const AGAIN_MS: i64 = 3_600_000;
/// After so long without a message the rest is lost.
const SILENCE: Duration = Duration::from_secs(120);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Who knows where the topic is: a name server, or a broker of Waybill
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:10911", value_parser = address::parse)]
    namesrv: String,
    #[command(flatten)]
    load: Load,
    /// How many messages to let expire
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    messages: u32,
    /// When all leases end, from the first receive on; all messages must be received 10 s before that
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = quantity::duration)]
    end_in: Duration,
    /// Receives under way at once
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    receivers: u16,
}

impl Args {
    pub(crate) async fn run(self, format: Format) -> Result<(), Failure> {
        self.load.check()?;
        let direct = Arc::new(Direct::open(&self.namesrv, &self.load).await?);
        direct.empty().await?;
        let count = self.messages as usize;
        output::progress(format, &format!("sending and receiving {count} messages …"));
        for first in (0..count).step_by(AT_ONCE) {
            direct.send_many(AT_ONCE.min(count - first), None).await?;
        }
        let end_ms = clock::now_ms() + i64::try_from(self.end_in.as_millis()).unwrap_or(i64::MAX);
        let (record, _last_ms) = self.receive_all(&direct, Until::End(end_ms)).await?;
        if record.messages < u64::from(self.messages) {
            let received = record.messages;
            return Err(Failure::failed(format!(
                "sent {count} messages, but received {received} 10 s before --end-in"
            )));
        }
        let rest = Duration::from_millis(u64::try_from(end_ms - clock::now_ms()).unwrap_or_default());
        output::progress(format, &format!("waiting {} s for the leases to end …", rest.as_secs()));
        tokio::time::sleep(rest).await;
        let before = Before::sample(&self.load).await?;
        let (record, last_ms) = self.receive_all(&direct, Until::Again).await?;
        let seconds = (last_ms - end_ms).max(1) as f64 / 1e3;
        let mut report = Report::new("redeliver", &self.namesrv, &record, seconds, &before.until_now().await?);
        report.more.insert("missing", u64::from(self.messages).saturating_sub(record.messages));
        conclude(format, &report, record)
    }

    /// Receives all messages with several receives at once; what each saw, and when the last came.
    async fn receive_all(&self, direct: &Arc<Direct>, until: Until) -> Result<(Record, i64), Failure> {
        let left = Arc::new(AtomicI64::new(i64::from(self.messages)));
        let mut workers = JoinSet::new();
        for _ in 0..self.receivers {
            workers.spawn(receive(direct.clone(), left.clone(), until));
        }
        let (mut record, mut last_ms) = (Record::default(), 0);
        for received in workers.join_all().await {
            let (other, other_ms) = received?;
            record.merge(other);
            last_ms = last_ms.max(other_ms);
        }
        Ok((record, last_ms))
    }
}

/// How long the leases that are taken last.
#[derive(Debug, Clone, Copy)]
enum Until {
    /// To this moment, milliseconds since 1970.
    End(i64),
    /// Long.
    Again,
}

async fn receive(direct: Arc<Direct>, left: Arc<AtomicI64>, until: Until) -> Result<(Record, i64), Failure> {
    let (mut record, mut last_ms, mut heard) = (Record::default(), 0, Instant::now());
    while left.load(Ordering::Relaxed) > 0 && heard.elapsed() < SILENCE {
        let invisible_ms = match until {
            Until::End(end_ms) => end_ms - clock::now_ms(),
            Until::Again => AGAIN_MS,
        };
        if invisible_ms < LEASE_MS_MIN {
            break;
        }
        let from = Instant::now();
        let messages = direct.receive(POLL_MS, invisible_ms, false).await?;
        if messages.is_empty() {
            continue;
        }
        record.latency("receive", from.elapsed());
        record.messages += messages.len() as u64;
        (last_ms, heard) = (clock::now_ms(), Instant::now());
        left.fetch_sub(i64::try_from(messages.len()).unwrap_or(i64::MAX), Ordering::Relaxed);
    }
    Ok((record, last_ms))
}
