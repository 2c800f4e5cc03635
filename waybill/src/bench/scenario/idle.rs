//! Clients that are connected and do nothing.

use std::sync::Arc;
use std::time::Duration;

use crate::bench::Measurement;
use crate::bench::clients::Clients;
use crate::bench::load::{Plan, Record};
use crate::bench::options::Options;
use crate::exit::Failure;
use crate::grpc::{Client, Receive};
use crate::output::{self, Format};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    options: Options,
    /// Receives that wait for messages that never come, over all connections; 0 for none
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=65536))]
    receivers: u32,
    /// Do not even connect: what the server costs by itself
    #[arg(long, conflicts_with = "receivers")]
    no_clients: bool,
}

impl Args {
    pub(crate) async fn run(self, format: Format) -> Result<(), Failure> {
        let options = &self.options;
        options.load.check()?;
        if options.load.pids.is_empty() {
            return Err(Failure::usage("there is nothing to measure").hint("--pid with the server's process id"));
        }
        let consumers = match self.no_clients {
            true => None,
            false => Some(Clients::consumers(options).await?),
        };
        let what = Receive {
            topic: options.load.topic.clone(),
            group: options.load.group.clone(),
            tags: "*".to_owned(),
            max: 1,
            invisible: Duration::from_secs(60),
            wait: Duration::from_secs(20),
            renew: false,
        };
        let mut run = Measurement::new("idle", Plan::new(options.load.warmup, options.load.duration, None, None));
        // Without receivers one worker waits for the end, so that the measurement does not end at once.
        let plan = run.plan.clone();
        run.workers.spawn(async move {
            plan.finished().await;
            Record::default()
        });
        for client in consumers.iter().flat_map(|consumers| consumers.dealt(self.receivers as usize)) {
            run.workers.spawn(wait(run.plan.clone(), client, what.clone()));
        }
        let (mut report, _record) = run.finish(&options.load, &options.endpoint.endpoint, format).await?;
        report.more.insert("clients", if self.no_clients { 0 } else { u64::from(options.load.connections) });
        report.more.insert("receivers", u64::from(self.receivers));
        if let Some(consumers) = consumers {
            consumers.close().await;
        }
        output::print(format, &report, |report| report.text())
    }
}

async fn wait(plan: Arc<Plan>, client: Client, what: Receive) -> Record {
    let mut record = Record::default();
    while !plan.over() {
        tokio::select! {
            received = client.receive(&what) => if let Err(error) = received {
                record.failed(error).await;
            },
            () = plan.stop.cancelled() => {}
        }
    }
    record
}
