//! `waybill bench`: puts load on an endpoint over gRPC, or on a broker over remoting, and measures it, whether it is
//! Waybill's or Apache's.

mod clients;
mod counters;
mod direct;
mod fill;
mod histogram;
mod load;
mod options;
mod report;
mod scenario;
mod usage;

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::exit::Failure;
use crate::output::{self, Format};
use load::{Plan, Record};
use options::Load;
use report::Report;
use usage::Before;

/// How often a long measurement says that it goes on.
const TELL_EVERY: Duration = Duration::from_secs(5);
/// Time for calls that are under way at the end.
const DRAIN: Duration = Duration::from_secs(30);

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Send messages: how many, how fast
    #[command(after_help = "\
Examples:
  waybill bench send
  waybill bench send --in-flight 1 --connections 1 --duration 30s
  waybill bench send --rate 300 --pid 4711,4712 --output json")]
    Send(scenario::send::Args),
    /// Receive and acknowledge messages that were sent before
    #[command(after_help = "\
Examples:
  waybill bench receive-ack
  waybill bench receive-ack --messages 100000 --in-flight 8 --ack batch")]
    ReceiveAck(scenario::receive_ack::Args),
    /// Send at a fixed rate and receive at the same time: how long from send to receive
    #[command(
        alias = "mixed",
        after_help = "\
Example:
  waybill bench e2e --rate 300 --duration 60s"
    )]
    E2e(scenario::e2e::Args),
    /// Change the invisible duration of messages that were received
    #[command(after_help = "\
Examples:
  waybill bench change
  waybill bench change --in-flight 1 --connections 1")]
    Change(scenario::change::Args),
    /// Extend leases at a broker over remoting, one by one or many at once
    #[command(after_help = "\
Examples:
  waybill bench leases --messages 256 --in-flight 128
  waybill bench leases --messages 256 --in-flight 4 --how batch --admin 127.0.0.1:10912")]
    Leases(scenario::leases::Args),
    /// Send and acknowledge at a fixed rate, over gRPC or at the broker itself: what a sidecar adds
    #[command(after_help = "\
Examples:
  waybill bench latency --rate 300
  waybill bench latency --rate 300 --direct 127.0.0.1:10911")]
    Latency(scenario::latency::Args),
    /// Receive messages, leave without acknowledging them, and see when another client has them all
    #[command(after_help = "\
Example:
  waybill bench disconnect --messages 10000")]
    Disconnect(scenario::disconnect::Args),
    /// Send messages that are all due at the same second, at a broker: how late they come, and how fast
    #[command(after_help = "\
Examples:
  waybill bench delay --topic a-topic-of-type-DELAY --messages 100000 --due-in 20s
  waybill bench delay --messages 100000 --plain")]
    Delay(scenario::delay::Args),
    /// Let many leases end at the same moment, at a broker: how fast the messages are given out again
    #[command(after_help = "\
Example:
  waybill bench redeliver --messages 100000")]
    Redeliver(scenario::redeliver::Args),
    /// Receive and acknowledge messages of many message groups, of which one may be stuck, at a broker
    #[command(after_help = "\
Examples:
  waybill bench fifo --topic a-topic-of-type-FIFO --group an-ordered-group
  waybill bench fifo --topic a-topic-of-type-FIFO --group an-ordered-group --stuck")]
    Fifo(scenario::fifo::Args),
    /// Send, receive and acknowledge many messages, at a broker: whether receiving gets slower with age
    #[command(after_help = "\
Example:
  waybill bench age --messages 10000000 --size 100")]
    Age(scenario::age::Args),
    /// Connect clients that do nothing: what an idle server costs
    #[command(after_help = "\
Examples:
  waybill bench idle --pid 4711 --duration 60s
  waybill bench idle --pid 4711 --connections 100 --receivers 100")]
    Idle(scenario::idle::Args),
}

impl Command {
    pub(crate) async fn run(self, format: Format) -> Result<(), Failure> {
        match self {
            Self::Send(args) => args.run(format).await,
            Self::ReceiveAck(args) => args.run(format).await,
            Self::E2e(args) => args.run(format).await,
            Self::Change(args) => args.run(format).await,
            Self::Leases(args) => args.run(format).await,
            Self::Latency(args) => args.run(format).await,
            Self::Disconnect(args) => args.run(format).await,
            Self::Delay(args) => args.run(format).await,
            Self::Redeliver(args) => args.run(format).await,
            Self::Fifo(args) => args.run(format).await,
            Self::Age(args) => args.run(format).await,
            Self::Idle(args) => args.run(format).await,
        }
    }
}

/// A measurement under way: its workers run from the moment they are spawned.
struct Measurement {
    scenario: &'static str,
    plan: Arc<Plan>,
    workers: JoinSet<Record>,
}

impl Measurement {
    fn new(scenario: &'static str, plan: Plan) -> Self {
        Self { scenario, plan: Arc::new(plan), workers: JoinSet::new() }
    }

    /// Waits for the end (of the time, or of all work) and adds up.
    async fn finish(mut self, load: &Load, at: &str, format: Format) -> Result<(Report, Record), Failure> {
        let plan = self.plan.clone();
        tokio::time::sleep_until(plan.measure_from).await;
        output::progress(format, &format!("measuring {} …", self.scenario));
        let (from, before) = (Instant::now(), Before::sample(load).await?);
        let mut record = Record::default();
        let mut finished = std::pin::pin!(plan.finished());
        let mut ticks = tokio::time::interval(TELL_EVERY);
        ticks.reset();
        // Workers may run out of work before the time is over; then the measurement ends with the last of them.
        loop {
            tokio::select! {
                () = &mut finished => break,
                _tick = ticks.tick() => {
                    output::progress(format, &format!("… {:.0} s", from.elapsed().as_secs_f64()));
                }
                ended = self.workers.join_next() => match ended {
                    Some(ended) => record.merge(joined(ended)?),
                    None => break,
                },
            }
        }
        let (seconds, usage) = (from.elapsed().as_secs_f64(), before.until_now().await?);
        plan.stop.cancel();
        let rest = async {
            while let Some(ended) = self.workers.join_next().await {
                record.merge(joined(ended)?);
            }
            Ok::<(), Failure>(())
        };
        match tokio::time::timeout(DRAIN, rest).await {
            Ok(ended) => ended?,
            Err(_late) => return Err(Failure::unavailable(format!("calls were not answered {DRAIN:?} after the end"))),
        }
        let report = Report::new(self.scenario, at, &record, seconds, &usage);
        Ok((report, record))
    }
}

fn joined(ended: Result<Record, tokio::task::JoinError>) -> Result<Record, Failure> {
    ended.map_err(|error| Failure::failed(format!("a worker ended early: {error}")))
}

/// Prints the report. A run in which nothing went well is a failure.
fn conclude(format: Format, report: &Report, record: Record) -> Result<(), Failure> {
    output::print(format, report, Report::text)?;
    match record.examples.into_values().next() {
        Some(failure) if report.messages == 0 => Err(failure),
        _fine => Ok(()),
    }
}
