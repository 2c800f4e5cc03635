//! Extending leases at a broker, over and over, always with the newest handles.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::address;
use crate::bench::direct::{Direct, Held};
use crate::bench::load::{Plan, Record};
use crate::bench::options::Load;
use crate::bench::{Measurement, conclude};
use crate::exit::Failure;
use crate::output::{self, Format};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Who knows where the topic is: a name server, or a broker of Waybill
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:10911", value_parser = address::parse)]
    namesrv: String,
    #[command(flatten)]
    load: Load,
    /// How many messages to extend: all of them one after the other, or this many with each request
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    messages: u32,
    /// How to extend them
    #[arg(long, value_enum, default_value_t)]
    how: How,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
enum How {
    /// A request for each; no message is in two requests at a time, so --messages bounds what is in flight
    #[default]
    Each,
    /// One request for --messages of them; each request in flight has messages of its own
    Batch,
}

impl Args {
    pub(crate) async fn run(self, format: Format) -> Result<(), Failure> {
        let load = &self.load;
        load.check()?;
        let (in_flight, messages) = (load.in_flight as usize, self.messages as usize);
        let (workers, each) = match self.how {
            How::Each => (in_flight.min(messages), messages.div_ceil(in_flight.min(messages))),
            How::Batch => (in_flight, messages),
        };
        let all = if self.how == How::Each { messages } else { workers * each };
        let direct = Arc::new(Direct::open(&self.namesrv, load).await?);
        output::progress(format, &format!("sending and receiving {all} messages …"));
        let held = direct.hold(all).await?;
        // Given back only when all is counted: acknowledgements sync, too.
        let done = Arc::new(Mutex::new(Vec::new()));
        let mut run = Measurement::new("leases", Plan::new(load.warmup, load.duration, None, None));
        for (number, held) in held.chunks(each).enumerate() {
            let (plan, direct, held, done) = (run.plan.clone(), direct.clone(), held.to_vec(), done.clone());
            run.workers.spawn(Worker { plan, direct, number, held, done }.run(self.how));
        }
        let (mut report, record) = run.finish(load, &self.namesrv, format).await?;
        let held = std::mem::take(&mut *done.lock());
        direct.release(held).await;
        report.more.insert("held", all as u64);
        conclude(format, &report, record)
    }
}

struct Worker {
    plan: Arc<Plan>,
    direct: Arc<Direct>,
    number: usize,
    held: Vec<Held>,
    /// Where `held` goes in the end.
    done: Arc<Mutex<Vec<Held>>>,
}

impl Worker {
    async fn run(mut self, how: How) -> Record {
        let (mut record, mut turn) = (Record::default(), 0);
        while let Some(from) = self.plan.next().await {
            let changed = match how {
                How::Each => {
                    turn = (turn + 1) % self.held.len().max(1);
                    let Some(held) = self.held.get_mut(turn) else { break };
                    self.direct.change(self.number, held).await.map(|()| Vec::new())
                }
                How::Batch => self.direct.change_all(self.number, &mut self.held).await,
            };
            match changed {
                Ok(failed) => {
                    let asked = if how == How::Each { 1 } else { self.held.len() };
                    record.done(&self.plan, "change", from, (asked - failed.len()) as u64);
                    failed.into_iter().for_each(|problem| record.error(problem));
                }
                Err(problem) => record.failed(problem).await,
            }
        }
        self.done.lock().append(&mut self.held);
        record
    }
}
