//! The broker as a process: read the configuration, start, wait for a signal, drain.

#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{CommandFactory, Parser};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};
use waybill_broker::{Broker, BrokerConfig, FlushDiskType};
use waybill_ops::address::to_listen_on;
use waybill_ops::admin::Admin;
use waybill_ops::config::{ConfigError, Live, Validate};
use waybill_ops::listen::listen;
use waybill_ops::logs::{self, LogFormat};
use waybill_ops::signal;

/// Where a mistaken reader finds out more.
const KEYS: &str = "docs/configuration-broker.md lists all keys";

/// Exit status for a configuration that cannot work.
const BAD_CONFIG: u8 = 64;

const EXIT_CODES: &str = "\
Example:
  waybill-broker --store /var/lib/waybill --listen '[::]:10911' --host broker-0.brokers

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
    listen: Option<SocketAddr>,
    /// Address and port of /healthz, /readyz, /metrics and /config
    #[arg(long, value_name = "IP:PORT", value_parser = to_listen_on)]
    admin_listen: Option<SocketAddr>,
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
    let file = match read_config(args) {
        Ok(file) => Arc::new(file),
        Err(reason) => {
            error!("{reason}");
            return ExitCode::from(BAD_CONFIG);
        }
    };
    if let Err(reason) = file.get().tls() {
        error!("{reason}; see tlsServerCertPath and tlsServerKeyPath");
        return ExitCode::from(BAD_CONFIG);
    }
    let runtime = match waybill_ops::runtime::build() {
        Ok(runtime) => runtime,
        Err(error) => {
            error!(%error, "the runtime could not be started");
            return ExitCode::FAILURE;
        }
    };
    let ended = runtime.block_on(run(file));
    // A store that is still being opened is not waited for.
    runtime.shutdown_background();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            error!("{reason}");
            ExitCode::FAILURE
        }
    }
}

fn read_config(args: Args) -> Result<Live<BrokerConfig>, String> {
    let told = |error: ConfigError| format!("{error}; {KEYS}");
    let mut config = match &args.config {
        None => BrokerConfig::default(),
        Some(path) => (*Live::<BrokerConfig>::load(path).map_err(told)?.get()).clone(),
    };
    overlay(&args, &mut config);
    // File and defaults were good: what is wrong now was said on the command line.
    if let Err(invalid) = config.validate() {
        let said = format!("{} {}", invalid.key, invalid.reason);
        Args::command().error(clap::error::ErrorKind::ValueValidation, said).exit()
    }
    match args.config.clone() {
        None => Ok(Live::fixed(config)),
        Some(path) => Live::load_adjusted(path, move |config| overlay(&args, config)).map_err(told),
    }
}

/// What the command line says goes over the file.
fn overlay(args: &Args, config: &mut BrokerConfig) {
    if let Some(store) = &args.store {
        config.store_path_root_dir.clone_from(store);
    }
    if let Some(listen) = args.listen {
        config.bind_address = listen.ip();
        config.listen_port = listen.port();
    }
    if args.admin_listen.is_some() {
        config.admin_listen = args.admin_listen;
    }
    if let Some(host) = &args.host {
        config.broker_host.clone_from(host);
    }
    if let Some(name) = &args.name {
        config.broker_name.clone_from(name);
    }
    match args.flush.as_deref() {
        Some("sync") => config.flush_disk_type = FlushDiskType::Sync,
        Some("async") => config.flush_disk_type = FlushDiskType::Async,
        _ => {}
    }
}

async fn run(file: Arc<Live<BrokerConfig>>) -> Result<(), String> {
    let config = (*file.get()).clone();
    let bind = |address: SocketAddr| listen(address).map_err(|error| format!("cannot listen on {address}: {error}"));
    let listener = bind(SocketAddr::new(config.bind_address, config.listen_port))?;
    let admin = config.admin_listen.map(bind).transpose()?;
    // Before anything else: the first process of a container is not ended by a signal that it does not catch.
    let mut asked_to_stop = pin!(signal::shutdown_requested());
    let mut opening = tokio::task::spawn_blocking(move || Broker::open(config));
    let opened = tokio::select! {
        opened = &mut opening => opened,
        // It reads its log again, which can take long. Nobody was told anything yet that it would have to keep.
        () = &mut asked_to_stop => return Ok(()),
    };
    let broker = opened.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
    let stop = CancellationToken::new();
    let admin_stop = CancellationToken::new();
    file.register(&mut broker.metrics().registry().lock());
    if let Some(listener) = admin {
        tokio::spawn(admin_of(&broker, &file).serve(listener, admin_stop.clone()));
    }
    tokio::spawn(Arc::clone(&file).watch(stop.clone()));
    tokio::spawn(follow(Arc::clone(&file), Arc::clone(&broker)));
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

/// Puts each new state of the file in force, as far as that goes without a restart.
async fn follow(file: Arc<Live<BrokerConfig>>, broker: Arc<Broker>) {
    let mut generations = file.subscribe();
    while generations.changed().await.is_ok() {
        match broker.reconfigure(&file.get()) {
            Ok(waiting) => waiting.iter().for_each(|key| warn!(key, "the changed value counts after a restart")),
            Err(invalid) => error!(key = invalid.key, "{}, with what counts at the start", invalid.reason),
        }
    }
}

fn admin_of(broker: &Arc<Broker>, file: &Arc<Live<BrokerConfig>>) -> Admin {
    let (ready, broker, file) = (Arc::clone(broker), Arc::clone(broker), Arc::clone(file));
    Admin::new(
        broker.metrics().registry(),
        move || ready.ready(),
        // Nothing in it is secret.
        move || {
            let needs_restart = broker.config().needs_restart(&file.get());
            json!({ "config": *broker.in_force(), "needsRestart": needs_restart, "file": file.status() })
        },
    )
}
