//! Receiving and acknowledging what was sent before.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::bench::clients::Clients;
use crate::bench::fill::fill;
use crate::bench::load::{Plan, Record};
use crate::bench::options::Options;
use crate::bench::report::Report;
use crate::bench::{Measurement, conclude};
use crate::exit::Failure;
use crate::grpc::{Client, Receive};
use crate::output::Format;
use crate::quantity;

/// The round that warms up has one message for so many of the measured one.
const WARMUP_SHARE: u64 = 5;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    options: Options,
    /// How many messages to send first; the measurement ends when they are received, or with --duration.
    /// To warm up, a fifth as many are sent and received before (--warmup is not used)
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    messages: u64,
    /// The most messages of one receive
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(i32).range(1..=32))]
    batch: i32,
    /// How to acknowledge the messages of a receive
    #[arg(long, value_enum, default_value_t)]
    ack: Ack,
    /// How long received messages stay invisible
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = quantity::duration)]
    invisible: Duration,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
enum Ack {
    /// A call for each, as the clients do, all at once
    #[default]
    Each,
    /// One call for all
    Batch,
}

impl Args {
    pub(crate) async fn run(self, format: Format) -> Result<(), Failure> {
        let options = &self.options;
        options.load.check()?;
        // The group is known before the messages are there: a new group may begin at the end of a topic.
        let consumers = Clients::consumers(options).await?;
        let what = Receive {
            topic: options.load.topic.clone(),
            group: options.load.group.clone(),
            tags: "*".to_owned(),
            max: self.batch,
            invisible: self.invisible,
            wait: Duration::from_secs(5),
            renew: false,
        };
        super::settle(&consumers, &what).await?;
        let mut results = Vec::new();
        // The first round warms up: connections, code, caches.
        for messages in [self.messages.div_ceil(WARMUP_SHARE), self.messages] {
            fill(options, messages, format).await?;
            results.push(self.round(&consumers, &what, messages, format).await?);
        }
        consumers.close().await;
        match results.pop() {
            Some((report, record)) => conclude(format, &report, record),
            None => Ok(()),
        }
    }

    /// Receives and acknowledges `messages` that were sent before.
    async fn round(
        &self,
        consumers: &Clients,
        what: &Receive,
        messages: u64,
        format: Format,
    ) -> Result<(Report, Record), Failure> {
        let left = Arc::new(AtomicI64::new(i64::try_from(messages).unwrap_or(i64::MAX)));
        let mut run =
            Measurement::new("receive-ack", Plan::new(Duration::ZERO, self.options.load.duration, None, None));
        for client in consumers.dealt(self.options.load.in_flight as usize) {
            let (plan, what, left) = (run.plan.clone(), what.clone(), left.clone());
            run.workers.spawn(Consumer { plan, client, what, left, ack: self.ack }.run());
        }
        run.finish(&self.options.load, &self.options.endpoint.endpoint, format).await
    }
}

struct Consumer {
    plan: Arc<Plan>,
    client: Client,
    what: Receive,
    /// Messages that nobody has received yet.
    left: Arc<AtomicI64>,
    ack: Ack,
}

impl Consumer {
    async fn run(self) -> Record {
        let mut record = Record::default();
        while self.left.load(Ordering::Relaxed) > 0 && self.plan.next().await.is_some() {
            let from = Instant::now();
            let received = tokio::select! {
                received = self.client.receive(&self.what) => received,
                // The others may have the last messages: nobody waits for what will not come.
                () = self.plan.stop.cancelled() => break,
            };
            let deliveries = match received {
                Ok(messages) => super::deliveries(messages),
                Err(error) => {
                    record.failed(error).await;
                    continue;
                }
            };
            let count = i64::try_from(deliveries.len()).unwrap_or(i64::MAX);
            record.timed(&self.plan, "receive", from);
            self.acknowledge(&mut record, deliveries).await;
            if self.left.fetch_sub(count, Ordering::Relaxed) <= count {
                self.plan.stop.cancel();
            }
        }
        record
    }

    async fn acknowledge(&self, record: &mut Record, deliveries: Vec<(String, String)>) {
        let calls: Vec<Vec<(String, String)>> = match self.ack {
            Ack::Each => deliveries.into_iter().map(|delivery| vec![delivery]).collect(),
            Ack::Batch => std::iter::once(deliveries).filter(|all| !all.is_empty()).collect(),
        };
        let from = Instant::now();
        let calls = calls.into_iter().map(|call| self.client.ack(&self.what.topic, &self.what.group, call));
        for result in futures::future::join_all(calls).await {
            match result {
                Ok(entries) => {
                    let acked = entries.iter().filter(|entry| entry.is_ok()).count();
                    record.done(&self.plan, "ack", from, acked as u64);
                    entries.into_iter().filter_map(Result::err).for_each(|error| record.error(error));
                }
                Err(error) => record.error(error),
            }
        }
    }
}
