//! Sending: throughput in a closed loop, latency at a rate.

use std::sync::Arc;

use crate::bench::clients::Clients;
use crate::bench::fill::Messages;
use crate::bench::load::{Plan, Record};
use crate::bench::options::Options;
use crate::bench::{Measurement, conclude};
use crate::exit::Failure;
use crate::grpc::Client;
use crate::output::Format;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    options: Options,
    /// Messages a second, whatever the answers take; without it, as fast as the answers come
    #[arg(long, value_parser = super::rate)]
    rate: Option<f64>,
    /// The most messages to send, warm-up included
    #[arg(long)]
    count: Option<u64>,
}

impl Args {
    pub(crate) async fn run(self, format: Format) -> Result<(), Failure> {
        let options = &self.options;
        options.load.check()?;
        let producers = Clients::producers(options).await?;
        let messages = Arc::new(Messages::new(options));
        // One message before all others: what is wrong with the topic shows at once, and not as a count of errors.
        if let Some(client) = producers.for_worker(0) {
            client.send(vec![messages.next()]).await?;
        }
        let mut run =
            Measurement::new("send", Plan::new(options.load.warmup, options.load.duration, self.rate, self.count));
        for client in producers.dealt(options.load.in_flight as usize) {
            run.workers.spawn(worker(run.plan.clone(), client, messages.clone()));
        }
        let (report, record) = run.finish(&options.load, &options.endpoint.endpoint, format).await?;
        producers.close().await;
        conclude(format, &report, record)
    }
}

async fn worker(plan: Arc<Plan>, client: Client, messages: Arc<Messages>) -> Record {
    let mut record = Record::default();
    while let Some(due) = plan.next().await {
        match client.send(vec![messages.next()]).await {
            Ok(_sent) => record.done(&plan, "send", due, 1),
            Err(error) => record.failed(error).await,
        }
    }
    record
}
