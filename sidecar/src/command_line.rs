//! What can be said on the command line, and what follows from it.

use std::{
    env,
    io::Write,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
};

use clap::Parser;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use waybill_ops::{
    address::to_listen_on,
    clock::SystemClock,
    config::{Live, Validate},
    listen::listen,
    logs::LogFormat,
    signal::shutdown_requested,
};
use waybill_sidecar::{
    App, BuildError, Listeners,
    backend::{RemoteOptions, RemoteTransport, Signing, Transport, tls_of},
    config::{Config, Value},
};

const EXIT_CODES: &str = "\
Example:
  waybill-sidecar --namesrv-addr broker-0.brokers:10911 --listen '[::]:8081'

Exit codes:
  0   stopped as it was told to
  1   something outside failed: a port is taken
  2   wrong usage
  64  the configuration cannot be used";

/// The same variable as Apache's proxy and clients read.
const NAMESRV_ADDR: &str = "NAMESRV_ADDR";

/// The gRPC endpoint of RocketMQ 5 clients, in front of Waybill or Apache RocketMQ brokers.
///
/// TLS and plaintext are served on the same port. The configuration file is read again when it changes. SIGTERM or
/// Ctrl-C: finishes the calls in progress and exits.
#[derive(Debug, Parser)]
#[command(name = "waybill-sidecar", version, after_help = EXIT_CODES)]
pub(crate) struct CommandLine {
    /// YAML file with the configuration; docs/configuration-sidecar.md lists the keys.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Name servers, or Waybill brokers: host:port or [IPv6]:port, several separated by `;` or `,`. Instead of namesrvAddr in the
    /// file; the environment variable NAMESRV_ADDR is used when neither is given.
    #[arg(long, value_name = "ADDRESSES", value_parser = addresses)]
    namesrv_addr: Option<String>,
    /// Where clients connect to, such as [::]:8081. Instead of grpcServerHost and grpcServerPort in the file.
    #[arg(long, value_name = "IP:PORT", value_parser = to_listen_on)]
    listen: Option<SocketAddr>,
    /// Where health, metrics and the effective configuration are, such as [::]:8082. Instead of adminServerHost and
    /// adminServerPort in the file.
    #[arg(long, value_name = "IP:PORT", value_parser = to_listen_on)]
    admin_listen: Option<SocketAddr>,
    /// How log lines look: text or json.
    #[arg(long, value_name = "FORMAT", default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
    /// Prints docs/configuration-sidecar.md and exits.
    #[arg(long)]
    pub(crate) print_config_docs: bool,
}

/// Checks `--namesrv-addr` as namesrvAddr in the file is checked.
fn addresses(text: &str) -> Result<String, String> {
    let allowed = Config::keys().into_iter().find(|key| key.name == "namesrvAddr").map(|key| key.allowed);
    match allowed {
        Some(allowed) if !allowed.accepts(&Value::Text(text.to_owned())) => Err(format!("use {allowed}")),
        _allowed => Ok(text.to_owned()),
    }
}

/// Why it did not start.
pub(crate) enum Failure {
    /// The configuration is wrong: the reader has to change it.
    Config(String),
    /// Something else is wrong.
    Other(String),
}

/// Runs until a signal.
pub(crate) async fn start(command_line: &CommandLine) -> Result<(), Failure> {
    let config = Arc::new(command_line.read_config()?);
    let now = config.get();
    let grpc = bind(&now.grpc_server_host, now.grpc_server_port, "grpcServerPort or --listen")?;
    let admin = bind(&now.admin_server_host, now.admin_server_port, "adminServerPort or --admin-listen")?;
    let stop = CancellationToken::new();
    let transport = transport(&config, &stop)?;
    let listeners = Listeners { grpc, admin: Some(admin) };
    let app =
        App::build(config, transport, Arc::new(SystemClock::new()), listeners).await.map_err(|error| match error {
            BuildError::Certificate(error) => Failure::Config(format!("{error}; see tlsCertPath and tlsKeyPath")),
            BuildError::Users(error) => Failure::Config(format!("{error}; see usersFilePath")),
            error => Failure::Other(error.to_string()),
        })?;
    // Before it serves: who sees that asks it to stop, perhaps at once.
    let asked_to_stop = shutdown_requested();
    let running = tokio::spawn(app.run(stop.clone()));
    asked_to_stop.await;
    stop.cancel();
    running.await.map(|_ended| ()).map_err(|error| Failure::Other(error.to_string()))
}

/// The way to the brokers.
fn transport(live: &Arc<Live<Config>>, stop: &CancellationToken) -> Result<Arc<dyn Transport>, Failure> {
    let config = live.get();
    let tls = tls_of(Arc::clone(live));
    match tls() {
        Err(error) => return Err(Failure::Config(format!("{error}; see tlsClientTrustCertPath"))),
        Ok(Some(_)) if config.tls_client_trust_cert_path.is_empty() => {
            tracing::warn!(
                "brokers are spoken with by TLS, and every one is believed: tlsClientTrustCertPath is not set"
            );
        }
        Ok(_) => {}
    }
    let remote = Arc::new(RemoteTransport::new(RemoteOptions::of(&config)).with_tls(tls));
    if config.broker_credentials_path.is_empty() {
        return Ok(remote);
    }
    match Signing::new(remote, &config.broker_credentials_path, stop.clone()) {
        Ok(signing) => Ok(Arc::new(signing)),
        Err(error) => Err(Failure::Config(format!("{error}; see brokerCredentialsPath"))),
    }
}

impl CommandLine {
    /// The file with the command line over it, or the command line alone.
    fn read_config(&self) -> Result<Live<Config>, Failure> {
        let overrides = self.overrides();
        let Some(path) = &self.config else {
            let mut config = Config::default();
            overrides(&mut config);
            return match config.validate() {
                Ok(()) => Ok(Live::fixed(config)),
                Err(invalid) => {
                    Err(Failure::Config(format!("{}: {}{}", invalid.key, invalid.reason, hint(&invalid.key))))
                }
            };
        };
        Live::load_adjusted(path, overrides)
            .map_err(|error| Failure::Config(format!("{error}{}", hint(error.key().unwrap_or_default()))))
    }

    fn overrides(&self) -> impl Fn(&mut Config) + Send + Sync + 'static {
        let (namesrv_addr, listen, admin) = (self.namesrv_addr.clone(), self.listen, self.admin_listen);
        let from_environment = env::var(NAMESRV_ADDR).unwrap_or_default();
        move |config| {
            if let Some(addresses) = &namesrv_addr {
                config.namesrv_addr.clone_from(addresses);
            } else if config.namesrv_addr.is_empty() {
                config.namesrv_addr.clone_from(&from_environment);
            }
            if let Some(address) = listen {
                config.grpc_server_host = address.ip().to_string();
                config.grpc_server_port = address.port().into();
            }
            if let Some(address) = admin {
                config.admin_server_host = address.ip().to_string();
                config.admin_server_port = address.port().into();
            }
        }
    }
}

/// What to do about a key, beyond what is wrong with it.
fn hint(key: &str) -> &'static str {
    if key == "namesrvAddr" {
        "; say where the name servers or brokers are, for example: waybill-sidecar --namesrv-addr 127.0.0.1:9876"
    } else {
        "; docs/configuration-sidecar.md lists all keys"
    }
}

/// Both were validated with the configuration.
fn bind(host: &str, port: i64, setting: &str) -> Result<TcpListener, Failure> {
    let ip: IpAddr = host.parse().map_err(|error| Failure::Config(format!("{host}: {error}")))?;
    let port = u16::try_from(port).map_err(|error| Failure::Config(format!("{port}: {error}")))?;
    let address = SocketAddr::new(ip, port);
    listen(address)
        .map_err(|error| Failure::Other(format!("cannot listen on {address}: {error}; choose another with {setting}")))
}

/// Writes to standard output; a reader that goes away early is no failure.
pub(crate) fn print(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}
