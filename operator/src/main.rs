//! `waybill-operator`: reads its command line, starts, waits for a signal.

#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Parser, Subcommand};
use futures::FutureExt;
use kube::client::ClientBuilder;
use kube::{Client, Config};
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;
use tracing::error;
use waybill_operator::admin::{self, Hanging, Limits};
use waybill_operator::api::ImagePullPolicy;
use waybill_operator::build::Images;
use waybill_operator::inject::{self, Source, Webhook};
use waybill_operator::leader::{Election, Timing};
use waybill_operator::metrics::Metrics;
use waybill_operator::reconcile::{Context, Deleting, Events, Pace};
use waybill_operator::term::Term;
use waybill_operator::{Scope, crds, place, run};
use waybill_ops::admin::Admin;
use waybill_ops::clock::SystemClock;
use waybill_ops::listen::listen;
use waybill_ops::logs::{self, LogFormat};
use waybill_ops::signal;

/// Names that are looked up at once; more wait.
const LOOKUPS: usize = 8;
/// The stack of a thread that looks names up, bytes.
const LOOKUP_STACK: usize = 256 << 10;

/// Waybill operator: makes what custom resources describe: pods of brokers and proxies, topics, consumer groups.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Args {
    /// Log lines as text or json
    #[arg(long, global = true, default_value_t)]
    log_format: LogFormat,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Look after the resources of a cluster, until SIGTERM
    Run(Box<RunArgs>),
    /// Write the definitions of the custom resources, one file each
    Crds {
        /// The directory; it must exist
        #[arg(long, default_value = "crds")]
        out: PathBuf,
    },
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Only the resources of this namespace; may be given several times. All namespaces if absent
    #[arg(long, value_name = "NAMESPACE")]
    namespace: Vec<String>,
    /// Address and port of /healthz, /readyz and /metrics
    #[arg(long, default_value = "[::]:10925")]
    admin_listen: SocketAddr,
    /// The image of brokers whose resource names none
    #[arg(long, value_name = "IMAGE", default_value = "")]
    broker_image: String,
    /// The image of proxies and sidecars whose resource names none
    #[arg(long, value_name = "IMAGE", default_value = "")]
    sidecar_image: String,
    /// When images are pulled, where the resource does not say it: Always, IfNotPresent or Never
    #[arg(long, value_name = "POLICY", default_value = "IfNotPresent", value_parser = pull_policy)]
    image_pull_policy: ImagePullPolicy,
    /// Where the API server asks about new pods, by HTTPS; if absent, no pod gets a sidecar
    #[arg(long, value_name = "IP:PORT", requires = "webhook_service")]
    webhook_listen: Option<SocketAddr>,
    /// The Service by which the API server finds that
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = service)]
    webhook_service: Option<(String, String)>,
    /// The MutatingWebhookConfiguration that is to trust it
    #[arg(long, value_name = "NAME")]
    webhook_configuration: Option<String>,
    /// A directory with tls.crt and tls.key, where somebody else makes them, such as cert-manager
    #[arg(long, value_name = "DIRECTORY")]
    webhook_certificate_dir: Option<PathBuf>,
    /// Whether only one of several operators works: the one that holds the Lease waybill-operator
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    leader_election: bool,
    /// Where the Lease is; if absent, the environment variable POD_NAMESPACE says it, else it is in default
    #[arg(long, value_name = "NAMESPACE")]
    leader_election_namespace: Option<String>,
}

fn service(text: &str) -> Result<(String, String), String> {
    let (namespace, name) = text.split_once('/').ok_or("it is NAMESPACE/NAME")?;
    Ok((namespace.to_owned(), name.to_owned()))
}

fn pull_policy(word: &str) -> Result<ImagePullPolicy, String> {
    let all = [ImagePullPolicy::Always, ImagePullPolicy::IfNotPresent, ImagePullPolicy::Never];
    let known = all.into_iter().find(|policy| policy.word() == word);
    known.ok_or_else(|| "allowed are Always, IfNotPresent and Never".to_owned())
}

fn main() -> ExitCode {
    let args = Args::parse();
    logs::init(args.log_format, "info");
    let done = match args.command {
        Command::Crds { out } => crds::write(&out).map_err(|error| error.to_string()),
        Command::Run(args) => match runtime() {
            Ok(runtime) => runtime.block_on(start(*args)),
            Err(error) => Err(format!("the runtime could not be started: {error}")),
        },
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            error!("{reason}");
            ExitCode::FAILURE
        }
    }
}

/// One thread for everything: it waits for others most of the time. What is looked up in DNS has a few threads of its own.
fn runtime() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_all().max_blocking_threads(LOOKUPS).thread_stack_size(LOOKUP_STACK).build()
}

async fn start(args: RunArgs) -> Result<(), String> {
    let address = args.admin_listen;
    let listener = listen(address).map_err(|error| format!("cannot listen on {address}: {error}"))?;
    let metrics = Metrics::default();
    let client = to_api_server(&metrics).await.map_err(|error| format!("no way to the API server: {error}"))?;
    let asked_to_stop = signal::shutdown_requested();
    // The admin port says that it is ready for as long as the webhook answers: a Service that has no other sends questions here.
    let (stop, closed) = (CancellationToken::new(), CancellationToken::new());
    let webhook = webhook(&args)?;
    let can_answer = webhook.as_ref().map(|_| Arc::<AtomicBool>::default());
    let ready = can_answer.clone();
    let ready = move || match &ready {
        Some(ready) if !ready.load(Ordering::Relaxed) => Err("the webhook has no certificate yet".to_owned()),
        _ready => Ok(()),
    };
    let mut registry = Registry::default();
    metrics.register(&mut registry);
    let admin_port = Admin::new(Arc::new(Mutex::new(registry)), ready, || serde_json::Value::Null);
    let admin = tokio::spawn(admin_port.serve(listener, closed.clone()));
    let scope = if args.namespace.is_empty() { Scope::Cluster } else { Scope::Namespaces(args.namespace) };
    let context = Context {
        events: Events::new(client.clone()),
        client,
        clock: Arc::new(SystemClock::new()),
        limits: Limits::default(),
        hanging: Hanging::default(),
        deleting: Deleting::default(),
        term: Term::default(),
        address: Arc::new(place::remoting),
        configuration: Arc::new(|address| async move { admin::configuration(&address).await }.boxed()),
        images: Images { broker: args.broker_image, sidecar: args.sidecar_image, pull_policy: args.image_pull_policy },
        metrics,
        pace: Pace::default(),
    };
    let namespace = args.leader_election_namespace.or_else(|| variable("POD_NAMESPACE"));
    let election = Election::new(
        context.client.clone(),
        namespace.as_deref().unwrap_or("default"),
        identity(),
        context.clock.clone(),
        Timing::default(),
    );
    let (webhook, webhook_listener) = webhook.unzip();
    let answering = webhook.clone().zip(webhook_listener).zip(can_answer).map(|((webhook, listener), ready)| {
        let serving = inject::serve(listener, context.clone(), scope.clone(), webhook, ready, stop.clone());
        tokio::spawn(serving)
    });
    let leading = {
        let stop = stop.clone();
        let term = if args.leader_election { election.term() } else { Term::default() };
        let client = term.fence(context.client.clone());
        let context = Context { events: Events::new(client.clone()), client, term, ..context };
        async move {
            let work = |stop: CancellationToken| async move {
                context.metrics.leads();
                let certificates = async {
                    if let Some(webhook) = webhook {
                        inject::keep_certificates(context.clone(), webhook, stop.clone()).await;
                    }
                };
                futures::future::join(run(scope, context.clone(), stop.clone()), certificates).await;
                context.metrics.leads_no_more();
            };
            if args.leader_election {
                return election.lead(&stop, work).await;
            }
            work(stop).await;
            Ok(())
        }
    };
    let mut leading = tokio::spawn(leading);
    let ended = tokio::select! {
        () = asked_to_stop => {
            stop.cancel();
            leading.await
        }
        ended = &mut leading => ended,
    };
    stop.cancel();
    if let Some(answering) = answering {
        let _ended = answering.await;
    }
    closed.cancel();
    let _ended = admin.await;
    match ended {
        Ok(led) => led.map_err(|lost| lost.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

/// A client of the API server whose requests are counted.
async fn to_api_server(metrics: &Metrics) -> Result<Client, Box<dyn std::error::Error>> {
    let builder = ClientBuilder::try_from(Config::infer().await?)?;
    Ok(builder.with_layer(&metrics.requests()).build())
}

/// The webhook that is asked for, and where it listens.
fn webhook(args: &RunArgs) -> Result<Option<(Webhook, TcpListener)>, String> {
    let (Some(address), Some((namespace, service))) = (args.webhook_listen, &args.webhook_service) else {
        return Ok(None);
    };
    let listener = listen(address).map_err(|error| format!("cannot listen on {address}: {error}"))?;
    let webhook = Webhook {
        namespace: namespace.clone(),
        service: service.clone(),
        configuration: args.webhook_configuration.clone(),
        secret: format!("{service}-webhook"),
        source: args.webhook_certificate_dir.clone().map_or(Source::Own, Source::Directory),
    };
    Ok(Some((webhook, listener)))
}

/// The name of this operator among several. A container that is started again in its pod has the name from before.
fn identity() -> String {
    let host = || variable("HOSTNAME").unwrap_or_else(|| "waybill-operator".to_owned());
    variable("POD_NAME").unwrap_or_else(|| format!("{}-{}", host(), std::process::id()))
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
