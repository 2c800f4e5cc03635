//! `waybill-operator`: reads its command line, starts, waits for a signal.

#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, Subcommand};
use kube::Client;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::error;
use waybill_operator::admin::Limits;
use waybill_operator::reconcile::{Context, Events, Pace};
use waybill_operator::{Scope, crds, place, run};
use waybill_ops::admin::Admin;
use waybill_ops::clock::SystemClock;
use waybill_ops::logs::{self, LogFormat};
use waybill_ops::signal;

/// Waybill operator: makes brokers have the topics and consumer groups that custom resources describe.
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
    Run(RunArgs),
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
    #[arg(long, default_value = "0.0.0.0:10925")]
    admin_listen: SocketAddr,
}

fn main() -> ExitCode {
    let args = Args::parse();
    logs::init(args.log_format, "info");
    let done = match args.command {
        Command::Crds { out } => crds::write(&out).map_err(|error| error.to_string()),
        Command::Run(args) => match waybill_ops::runtime::build() {
            Ok(runtime) => runtime.block_on(start(args)),
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

async fn start(args: RunArgs) -> Result<(), String> {
    let address = args.admin_listen;
    let listener = TcpListener::bind(address).await.map_err(|error| format!("cannot listen on {address}: {error}"))?;
    let client = Client::try_default().await.map_err(|error| format!("no way to the API server: {error}"))?;
    let asked_to_stop = signal::shutdown_requested();
    let stop = CancellationToken::new();
    let admin = Admin::new(Arc::default(), || Ok(()), || serde_json::Value::Null);
    let admin = tokio::spawn(admin.serve(listener, stop.clone()));
    let scope = if args.namespace.is_empty() { Scope::Cluster } else { Scope::Namespaces(args.namespace) };
    let context = Context {
        events: Events::new(client.clone()),
        client,
        clock: Arc::new(SystemClock::new()),
        limits: Limits::default(),
        addresses: Arc::new(place::addresses),
        pace: Pace::default(),
    };
    let running = tokio::spawn(run(scope, context, stop.clone()));
    asked_to_stop.await;
    stop.cancel();
    let _ended = futures::future::join(running, admin).await;
    Ok(())
}
