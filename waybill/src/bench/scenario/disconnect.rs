//! A client that leaves with many messages: how long until another has them all.

use std::collections::HashSet;
use std::time::Duration;

use futures::future::join_all;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::bench::clients::Clients;
use crate::bench::conclude;
use crate::bench::fill::fill;
use crate::bench::load::{Plan, Record};
use crate::bench::options::Options;
use crate::bench::report::Report;
use crate::bench::usage::Before;
use crate::exit::Failure;
use crate::output::{self, Format};

/// Longer than any run: nothing comes back by itself.
const INVISIBLE: Duration = Duration::from_secs(600);
/// How long the other client waits for all of them.
const PATIENCE: Duration = Duration::from_secs(60);
/// Messages that are acknowledged with one call, once all are seen.
const ACKS_AT_ONCE: usize = 32;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    options: Options,
    /// How many messages the client holds
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    messages: u64,
}

impl Args {
    pub(crate) async fn run(self, format: Format) -> Result<(), Failure> {
        let mut options = self.options;
        options.load.check()?;
        let others = Clients::consumers(&options).await?;
        options.load.connections = 1;
        let leaving = Clients::consumers(&options).await?;
        let what = super::everything(&options.load, INVISIBLE, true);
        super::settle(&leaving, &what).await?;
        fill(&options, self.messages, format).await?;
        let held = super::hold(&leaving, &what, self.messages as usize).await?;
        let held: HashSet<String> = held.into_iter().map(|(id, _handle)| id).collect();

        output::progress(format, &format!("leaving with {} messages …", held.len()));
        let before = Before::sample(&options.load).await?;
        let plan = Plan::new(Duration::ZERO, PATIENCE, None, None);
        // The server decides that the client is gone between here and its answer.
        let decided = Instant::now();
        leaving.close().await;
        let (missing, deliveries) = (Mutex::new(held), Mutex::new(Vec::new()));
        let receivers = others.dealt(options.load.in_flight as usize).map(|client| {
            let (what, missing, deliveries, plan) = (&what, &missing, &deliveries, &plan);
            async move {
                let mut record = Record::default();
                loop {
                    let received = tokio::select! {
                        received = client.receive(what) => received,
                        () = plan.finished() => break,
                    };
                    match received {
                        Ok(messages) => {
                            let got = super::deliveries(messages);
                            let found = got.iter().filter(|(id, _handle)| missing.lock().remove(id)).count();
                            (0..found).for_each(|_| record.done(plan, "visible", decided, 1));
                            deliveries.lock().extend(got);
                            if missing.lock().is_empty() {
                                plan.stop.cancel();
                            }
                        }
                        Err(error) => record.failed(error).await,
                    }
                }
                record
            }
        });
        let mut record = Record::default();
        join_all(receivers).await.into_iter().for_each(|seen| record.merge(seen));
        let seconds = decided.elapsed().as_secs_f64();
        let usage = before.until_now().await?;
        let mut report = Report::new("disconnect", &options.endpoint.endpoint, &record, seconds, &usage);
        report.more.insert("missing", missing.into_inner().len() as u64);
        let acks = deliveries.into_inner();
        let acks = acks.chunks(ACKS_AT_ONCE).zip(others.dealt(usize::MAX));
        for (chunk, client) in acks {
            // What fails comes back after its time, and the next run empties the topic.
            let _answer = client.ack(&what.topic, &what.group, chunk.to_vec()).await;
        }
        others.close().await;
        conclude(format, &report, record)
    }
}
