//! Changing the invisible duration, over and over, of messages that are out.

use std::sync::Arc;
use std::time::Duration;

use crate::bench::clients::Clients;
use crate::bench::fill::fill;
use crate::bench::load::{Plan, Record};
use crate::bench::options::Options;
use crate::bench::{Measurement, conclude};
use crate::exit::Failure;
use crate::grpc::{Client, Receive};
use crate::output::Format;

/// Long enough that no message comes back during a run.
const INVISIBLE: Duration = Duration::from_secs(3600);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    options: Options,
    /// Changes a second, whatever the answers take; without it, as fast as the answers come
    #[arg(long, value_parser = super::rate)]
    rate: Option<f64>,
}

impl Args {
    pub(crate) async fn run(self, format: Format) -> Result<(), Failure> {
        let options = &self.options;
        options.load.check()?;
        let consumers = Clients::consumers(options).await?;
        let what = super::everything(&options.load, INVISIBLE, false);
        super::settle(&consumers, &what).await?;
        // A message for each call that may be under way: each is changed by one worker alone.
        let wanted = options.load.in_flight as usize;
        fill(options, u64::from(options.load.in_flight), format).await?;
        let held = super::hold(&consumers, &what, wanted).await?;

        let mut run =
            Measurement::new("change", Plan::new(options.load.warmup, options.load.duration, self.rate, None));
        for (client, delivery) in consumers.dealt(wanted).zip(held) {
            run.workers.spawn(worker(run.plan.clone(), client, what.clone(), delivery));
        }
        let (report, record) = run.finish(&options.load, &options.endpoint.endpoint, format).await?;
        consumers.close().await;
        conclude(format, &report, record)
    }
}

async fn worker(plan: Arc<Plan>, client: Client, what: Receive, delivery: (String, String)) -> Record {
    let (mut record, (id, mut handle)) = (Record::default(), delivery);
    while let Some(due) = plan.next().await {
        match client.change(&what.topic, &what.group, (id.clone(), handle.clone()), INVISIBLE).await {
            Ok(new) => {
                handle = new;
                record.done(&plan, "change", due, 1);
            }
            Err(error) => record.failed(error).await,
        }
    }
    // The message is done with; if that fails it comes back after its time, and the next run empties the topic.
    let _answer = client.ack(&what.topic, &what.group, vec![(id, handle)]).await;
    record
}
