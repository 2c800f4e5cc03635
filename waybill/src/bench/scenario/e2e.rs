//! From send to receive, at a fixed rate.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use waybill_protocol::grpc::v2;

use crate::bench::clients::Clients;
use crate::bench::fill::Messages;
use crate::bench::load::{Plan, Record};
use crate::bench::options::Options;
use crate::bench::{Measurement, conclude};
use crate::exit::Failure;
use crate::grpc::{Client, Receive};
use crate::output::Format;
use crate::quantity;

/// The property that says when a message should have been sent, in microseconds since this run began.
const DUE: &str = "waybill-bench-due";
/// How long to wait at the end for messages that are on their way.
const LAST_MESSAGES: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    options: Options,
    /// Messages a second; without it, as fast as the answers come
    #[arg(long, value_parser = super::rate)]
    rate: Option<f64>,
    /// Receives that wait at once, over all connections
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=4096))]
    receivers: u32,
    /// How long received messages stay invisible
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = quantity::duration)]
    invisible: Duration,
}

/// What producers and consumers share.
struct Shared {
    plan: Arc<Plan>,
    /// Due times count from here.
    epoch: Instant,
    sent: AtomicU64,
    received: AtomicU64,
}

impl Args {
    pub(crate) async fn run(self, format: Format) -> Result<(), Failure> {
        let options = &self.options;
        options.load.check()?;
        let consumers = Clients::consumers(options).await?;
        let what = super::everything(&options.load, self.invisible, false);
        super::settle(&consumers, &what).await?;
        let producers = Clients::producers(options).await?;
        let messages = Arc::new(Messages::new(options));

        let mut run = Measurement::new("e2e", Plan::new(options.load.warmup, options.load.duration, self.rate, None));
        let shared = Arc::new(Shared {
            plan: run.plan.clone(),
            epoch: Instant::now(),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
        });
        for client in consumers.dealt(self.receivers as usize) {
            run.workers.spawn(receive(shared.clone(), client, what.clone()));
        }
        for client in producers.dealt(options.load.in_flight as usize) {
            run.workers.spawn(send(shared.clone(), client, messages.clone()));
        }
        let (mut report, record) = run.finish(&options.load, &options.endpoint.endpoint, format).await?;
        producers.close().await;
        consumers.close().await;
        let (sent, received) = (shared.sent.load(Ordering::Relaxed), shared.received.load(Ordering::Relaxed));
        report.more.insert("sent", sent);
        report.more.insert("received", received);
        report.more.insert("missing", sent.saturating_sub(received));
        conclude(format, &report, record)
    }
}

async fn send(shared: Arc<Shared>, client: Client, messages: Arc<Messages>) -> Record {
    let (plan, mut record) = (&shared.plan, Record::default());
    while let Some(due) = plan.next().await {
        let micros = due.saturating_duration_since(shared.epoch).as_micros();
        // Counted before it is sent: it may be received before this hears that it was sent.
        shared.sent.fetch_add(1, Ordering::Relaxed);
        match client.send(vec![messages.with_property(Some((DUE, micros.to_string())))]).await {
            Ok(_sent) => record.timed(plan, "send", due),
            Err(error) => {
                shared.sent.fetch_sub(1, Ordering::Relaxed);
                record.failed(error).await;
            }
        }
    }
    record
}

async fn receive(shared: Arc<Shared>, client: Client, what: Receive) -> Record {
    let (plan, mut record) = (&shared.plan, Record::default());
    let mut end = None;
    loop {
        // After the end, wait for what is on its way, but not for ever and not for messages that were never sent.
        if plan.over() {
            let end = *end.get_or_insert_with(|| Instant::now() + LAST_MESSAGES);
            let all = shared.received.load(Ordering::Relaxed) >= shared.sent.load(Ordering::Relaxed);
            if all || Instant::now() >= end {
                return record;
            }
        }
        let received = tokio::select! {
            received = client.receive(&what) => received,
            () = all_received(&shared) => return record,
        };
        match received {
            Ok(messages) => {
                for due in messages.iter().filter_map(due) {
                    shared.received.fetch_add(1, Ordering::Relaxed);
                    record.done(plan, "send-receive", shared.epoch + due, 1);
                }
                acknowledge(&client, &what, messages, &mut record).await;
            }
            Err(error) => record.failed(error).await,
        }
    }
}

/// Resolves once the run is over and every message that was sent is received.
async fn all_received(shared: &Shared) {
    shared.plan.finished().await;
    while shared.received.load(Ordering::Relaxed) < shared.sent.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// When the message should have been sent; None for a message of somebody else, or one that is delivered again.
fn due(message: &v2::Message) -> Option<Duration> {
    let first = message.system_properties.as_ref().is_none_or(|system| system.delivery_attempt.unwrap_or(1) <= 1);
    let micros = message.user_properties.get(DUE)?.parse().ok()?;
    first.then(|| Duration::from_micros(micros))
}

async fn acknowledge(client: &Client, what: &Receive, messages: Vec<v2::Message>, record: &mut Record) {
    let deliveries = super::deliveries(messages);
    if deliveries.is_empty() {
        return;
    }
    match client.ack(&what.topic, &what.group, deliveries).await {
        Ok(results) => results.into_iter().filter_map(Result::err).for_each(|error| record.error(error)),
        Err(error) => record.error(error),
    }
}
