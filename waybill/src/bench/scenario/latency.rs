//! One send and one acknowledgement at a time, at a fixed rate: through a sidecar, or at the broker itself.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::address;
use crate::bench::clients::Clients;
use crate::bench::direct::{Direct, Held};
use crate::bench::fill::{Messages, fill};
use crate::bench::load::{Plan, Problem, Record};
use crate::bench::options::{Load, Options};
use crate::bench::{Measurement, conclude};
use crate::exit::Failure;
use crate::grpc::{Client, Receive};
use crate::output::Format;

/// Long enough for any run; a sidecar that renews replaces it by its own.
const INVISIBLE: Duration = Duration::from_secs(3600);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    options: Options,
    /// Ask the broker itself, over remoting: host:port of a name server, or of a broker of Waybill
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "endpoint", value_parser = address::parse)]
    direct: Option<String>,
    /// Pairs of a send and an acknowledgement a second, whatever the answers take
    #[arg(long, default_value_t = 300.0, value_parser = super::rate)]
    rate: f64,
}

/// Who is asked, and the deliveries that wait to be acknowledged.
enum Way {
    Sidecar { clients: Clients, messages: Messages, what: Receive, held: Mutex<Vec<(String, String)>> },
    Broker { direct: Direct, held: Mutex<Vec<Held>> },
}

impl Args {
    pub(crate) async fn run(self, format: Format) -> Result<(), Failure> {
        let load = &self.options.load;
        load.check()?;
        // Each send has an acknowledgement, of a message that was received before.
        let held = ((load.warmup + load.duration).as_secs_f64() * self.rate).ceil() as usize + 1;
        let (way, at) = match &self.direct {
            Some(namesrv) => (Way::broker(namesrv, load, held).await?, namesrv),
            None => (Way::sidecar(&self.options, held, format).await?, &self.options.endpoint.endpoint),
        };
        let way = Arc::new(way);
        let mut run = Measurement::new("latency", Plan::new(load.warmup, load.duration, Some(self.rate), None));
        for number in 0..load.in_flight as usize {
            run.workers.spawn(worker(run.plan.clone(), way.clone(), number));
        }
        let (report, record) = run.finish(load, at, format).await?;
        if let Some(Way::Sidecar { clients, .. }) = Arc::into_inner(way) {
            clients.close().await;
        }
        conclude(format, &report, record)
    }
}

/// The acknowledgement follows the answer to the send, and counts from then.
async fn worker(plan: Arc<Plan>, way: Arc<Way>, number: usize) -> Record {
    let mut record = Record::default();
    while let Some(due) = plan.next().await {
        match way.send(number).await {
            Ok(()) => record.done(&plan, "send", due, 1),
            Err(problem) => record.failed(problem).await,
        }
        let from = Instant::now();
        match way.ack(number).await {
            Ok(()) => record.timed(&plan, "ack", from),
            Err(problem) => record.failed(problem).await,
        }
    }
    record
}

impl Way {
    async fn broker(namesrv: &str, load: &Load, count: usize) -> Result<Self, Failure> {
        let direct = Direct::open(namesrv, load).await?;
        let held = direct.hold(count).await?;
        Ok(Self::Broker { direct, held: Mutex::new(held) })
    }

    async fn sidecar(options: &Options, count: usize, format: Format) -> Result<Self, Failure> {
        let clients = Clients::consumers(options).await?;
        // As push consumers do: the sidecar keeps the handle and has more to do.
        let what = super::everything(&options.load, INVISIBLE, true);
        super::settle(&clients, &what).await?;
        fill(options, count as u64, format).await?;
        let held = Mutex::new(super::hold(&clients, &what, count).await?);
        Ok(Self::Sidecar { clients, messages: Messages::new(options), what, held })
    }

    async fn send(&self, worker: usize) -> Result<(), Problem> {
        match self {
            Self::Broker { direct, .. } => direct.send(worker).await,
            Self::Sidecar { clients, messages, .. } => {
                Ok(client(clients, worker)?.send(vec![messages.next()]).await.map(drop)?)
            }
        }
    }

    async fn ack(&self, worker: usize) -> Result<(), Problem> {
        match self {
            Self::Broker { direct, held } => {
                let one = held.lock().pop().ok_or_else(nothing_left)?;
                direct.ack(worker, &one).await
            }
            Self::Sidecar { clients, what, held, .. } => {
                let one = held.lock().pop().ok_or_else(nothing_left)?;
                let results = client(clients, worker)?.ack(&what.topic, &what.group, vec![one]).await?;
                results.into_iter().try_for_each(|result| Ok(result?))
            }
        }
    }
}

fn client(clients: &Clients, worker: usize) -> Result<Client, Problem> {
    clients.for_worker(worker).ok_or_else(nothing_left)
}

fn nothing_left() -> Problem {
    Problem { label: "nothing left".to_owned(), failure: Failure::failed("nothing is left to acknowledge") }
}
