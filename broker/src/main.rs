//! The broker as a process: read the configuration, start, wait for a signal, drain.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{CommandFactory, Parser};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::error;
use waybill_broker::{Broker, BrokerConfig, FlushDiskType};
use waybill_ops::address::to_listen_on;
use waybill_ops::admin::Admin;
use waybill_ops::config::{Live, Validate};
use waybill_ops::logs::{self, LogFormat};
use waybill_ops::signal;

/// Where a mistaken reader finds out more.
const KEYS: &str = "docs/configuration-broker.md lists all keys";

/// Exit status for a configuration that cannot work.
const BAD_CONFIG: u8 = 64;

const EXIT_CODES: &str = "\
Example:
  waybill-broker --store /var/lib/waybill --listen 0.0.0.0:10911 --host broker-0.brokers

Exit codes:
  0   stopped as it was told to
  1   something outside failed: a port is taken, the store cannot be opened
  2   wrong usage
  64  the configuration cannot be used";

/// Waybill broker: stores messages and gives them out under leases.
#[derive(Debug, Parser)]
#[command(version, about, after_help = EXIT_CODES)]
struct Args {
    /// Configuration file (YAML or JSON, upstream's key names; see docs/configuration-broker.md)
    #[arg(long, short)]
    config: Option<PathBuf>,
    /// Directory of the store
    #[arg(long)]
    store: Option<PathBuf>,
    /// Address and port of the remoting listener; port 0 takes a free one
    #[arg(long, value_name = "IP:PORT", value_parser = to_listen_on)]
    listen: Option<std::net::SocketAddr>,
    /// Address and port of /healthz, /readyz, /metrics and /config
    #[arg(long, value_name = "IP:PORT", value_parser = to_listen_on)]
    admin_listen: Option<std::net::SocketAddr>,
    /// Host name that clients are told to connect to
    #[arg(long)]
    host: Option<String>,
    /// Name of this broker
    #[arg(long)]
    name: Option<String>,
    /// When requests are answered: sync (on disk) or async (in the operating system's hands)
    #[arg(long, value_parser = ["sync", "async"])]
    flush: Option<String>,
    /// Log lines as text or json
    #[arg(long, default_value_t)]
    log_format: LogFormat,
}

fn main() -> ExitCode {
    let args = Args::parse();
    logs::init(args.log_format, "info");
    let config = match read_config(args) {
        Ok(config) => config,
        Err(reason) => {
            error!("{reason}");
            return ExitCode::from(BAD_CONFIG);
        }
    };
    let runtime = match waybill_ops::runtime::build() {
        Ok(runtime) => runtime,
        Err(error) => {
            error!(%error, "the runtime could not be started");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(run(config)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            error!("{reason}");
            ExitCode::FAILURE
        }
    }
}

fn read_config(args: Args) -> Result<BrokerConfig, String> {
    let mut config = match &args.config {
        None => BrokerConfig::default(),
        Some(path) => (*Live::<BrokerConfig>::load(path).map_err(|error| format!("{error}; {KEYS}"))?.get()).clone(),
    };
    if let Some(store) = args.store {
        config.store_path_root_dir = store;
    }
    if let Some(listen) = args.listen {
        config.bind_address = listen.ip();
        config.listen_port = listen.port();
    }
    if args.admin_listen.is_some() {
        config.admin_listen = args.admin_listen;
    }
    if let Some(host) = args.host {
        config.broker_host = host;
    }
    if let Some(name) = args.name {
        config.broker_name = name;
    }
    match args.flush.as_deref() {
        Some("sync") => config.flush_disk_type = FlushDiskType::Sync,
        Some("async") => config.flush_disk_type = FlushDiskType::Async,
        _ => {}
    }
    // File and defaults were good: what is wrong now was said on the command line.
    match config.validate() {
        Ok(()) => Ok(config),
        Err(invalid) => {
            let said = format!("{} {}", invalid.key, invalid.reason);
            Args::command().error(clap::error::ErrorKind::ValueValidation, said).exit()
        }
    }
}

async fn run(config: BrokerConfig) -> Result<(), String> {
    let address = (config.bind_address, config.listen_port);
    let listener = TcpListener::bind(address)
        .await
        .map_err(|error| format!("cannot listen on {}:{}: {error}", address.0, address.1))?;
    let admin = match config.admin_listen {
        None => None,
        Some(address) => {
            Some(TcpListener::bind(address).await.map_err(|error| format!("cannot listen on {address}: {error}"))?)
        }
    };
    let broker = Broker::open(config).map_err(|error| error.to_string())?;
    // Before it listens: who sees that asks it to stop, perhaps at once.
    let asked_to_stop = signal::shutdown_requested();
    let stop = CancellationToken::new();
    let admin_stop = CancellationToken::new();
    if let Some(listener) = admin {
        tokio::spawn(admin_of(&broker).serve(listener, admin_stop.clone()));
    }
    let serving = tokio::spawn({
        let (broker, stop) = (Arc::clone(&broker), stop.clone());
        async move { broker.serve(listener, stop).await }
    });
    asked_to_stop.await;
    stop.cancel();
    let ended = serving.await.map_err(|error| error.to_string());
    admin_stop.cancel();
    ended
}

fn admin_of(broker: &Arc<Broker>) -> Admin {
    let (ready, config) = (Arc::clone(broker), Arc::clone(broker));
    Admin::new(
        broker.metrics().registry(),
        move || ready.ready(),
        // Nothing in it is secret; a value that is no JSON does not exist.
        move || serde_json::to_value(config.config()).unwrap_or_default(),
    )
}
