//! `waybill standalone`: a broker and a sidecar in this process, joined by calls instead of a connection.

mod banner;

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use waybill_broker::{Broker, BrokerConfig, BrokerError, Channel, FlushDiskType, Peer};
use waybill_ops::address::to_listen_on;
use waybill_ops::admin::Admin;
use waybill_ops::clock::SystemClock;
use waybill_ops::config::{ConfigError, Invalid, Live, Validate};
use waybill_ops::listen::listen;
use waybill_ops::logs::{self, LogFormat};
use waybill_ops::signal::shutdown_requested;
use waybill_protocol::remoting::Command;
use waybill_protocol::remoting::codes::response;
use waybill_sidecar::backend::{FromBrokers, LocalTransport};
use waybill_sidecar::config::Config as SidecarConfig;
use waybill_sidecar::{App, BuildError, Ended, Listeners};

use crate::exit::Failure;
use crate::output::{self, Format};

/// How often to look whether the start is over.
const READY_POLL: Duration = Duration::from_millis(5);
/// After how long a start is said to take long.
const SLOW_START: Duration = Duration::from_secs(2);

/// Keys of the broker that a file cannot set here, and who decides them: all that `Args::broker_config` sets.
const BROKER_DECIDED: [(&str, &str); 9] = [
    ("storePathRootDir", "standalone keeps messages where --data-dir says"),
    ("bindAddress", "standalone listens where --broker-listen says"),
    ("listenPort", "standalone listens where --broker-listen says"),
    ("brokerIP1", "standalone's broker is reached where --broker-listen says"),
    ("adminListen", "standalone listens where --admin-listen says"),
    ("flushDiskType", "standalone does what --flush says"),
    ("autoCreateTopicEnable", "standalone creates topics unless --no-auto-create is given"),
    ("autoCreateTopicMessageType", "standalone creates topics of type MIXED"),
    ("autoCreateSubscriptionGroup", "standalone creates groups unless --no-auto-create is given"),
];

/// Keys of the sidecar that a file cannot set here, and who decides them: all that `Args::sidecar_config` sets.
const SIDECAR_DECIDED: [(&str, &str); 5] = [
    ("grpcServerHost", "standalone listens where --listen says"),
    ("grpcServerPort", "standalone listens where --listen says"),
    ("adminServerHost", "standalone listens where --admin-listen says"),
    ("adminServerPort", "standalone listens where --admin-listen says"),
    ("namesrvAddr", "standalone's sidecar uses the broker of the same process"),
];

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  waybill standalone
  waybill standalone --data-dir /var/lib/waybill --listen '[::]:8081'
  waybill standalone --listen 127.0.0.1:0 --broker-listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 --output json

It runs until Ctrl-C or SIGTERM. RUST_LOG sets what is logged: RUST_LOG=info tells of everything it does.")]
pub(crate) struct Args {
    /// Where messages are kept; made when it is not there
    #[arg(long, value_name = "DIRECTORY", default_value = "waybill-data")]
    data_dir: PathBuf,
    /// Where clients connect (gRPC, plain text and TLS); port 0 takes a free one
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:8081", value_parser = to_listen_on)]
    listen: SocketAddr,
    /// Where this command line and Apache's proxy reach the broker (remoting)
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:10911", value_parser = to_listen_on)]
    broker_listen: SocketAddr,
    /// Where health, metrics and the effective configuration are
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:8082", value_parser = to_listen_on)]
    admin_listen: SocketAddr,
    /// When a send is answered: when the message is on disk, or when the operating system has it
    #[arg(long, value_enum, default_value_t)]
    flush: Flush,
    /// Refuse topics and consumer groups that were not created before
    #[arg(long)]
    no_auto_create: bool,
    /// YAML file for the broker's other settings; docs/configuration-broker.md lists them
    #[arg(long, value_name = "FILE")]
    broker_config: Option<PathBuf>,
    /// YAML file for the sidecar's other settings, read again when it changes; docs/configuration-sidecar.md lists them
    #[arg(long, value_name = "FILE")]
    sidecar_config: Option<PathBuf>,
    /// How log lines on standard error look: text or json
    #[arg(long, value_name = "FORMAT", default_value_t = LogFormat::Text)]
    log_format: LogFormat,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
enum Flush {
    /// On disk: nothing that was answered is lost, whatever happens
    #[default]
    Sync,
    /// In the operating system: faster, and lost with the machine, not with the process
    Async,
}

/// The three ports, bound before anything else: a port that is taken is the likeliest mistake.
struct Ports {
    clients: TcpListener,
    broker: TcpListener,
    admin: TcpListener,
}

impl Args {
    pub(crate) async fn run(self, format: Format) -> Result<(), Failure> {
        logs::init(self.log_format, "warn");
        let ports = self.bind()?;
        let addresses = ports.addresses()?;
        let broker_config = self.broker_config(&addresses)?;
        let sidecar_config = Arc::new(self.sidecar_config(&addresses)?);
        let broker = open(broker_config, &self.data_dir)?;

        let listeners = Listeners { grpc: ports.clients, admin: None };
        let transport = Arc::new(local(Arc::clone(&broker)));
        let app =
            App::build(sidecar_config, transport, Arc::new(SystemClock::new()), listeners).await.map_err(|error| {
                match error {
                    BuildError::Users(error) => Failure::config(error.to_string()),
                    error => Failure::failed(error.to_string()),
                }
            })?;
        let admin = Admin::joined([("broker", broker_admin(&broker)), ("sidecar", app.admin())]);

        // Before it serves: who sees that asks it to stop, perhaps at once.
        let mut asked_to_stop = pin!(shutdown_requested());
        let [sidecar_stop, broker_stop, admin_stop] = [(); 3].map(|()| CancellationToken::new());
        let broker_stopped = broker_stop.clone();
        let broker_runs = tokio::spawn(async move { broker.serve(ports.broker, broker_stopped).await });
        let sidecar_runs = tokio::spawn(app.run(sidecar_stop.clone()));
        let admin_runs = tokio::spawn(admin.clone().serve(ports.admin, admin_stop.clone()));

        let running = banner::Running::new(&addresses, &self.data_dir, self.flush == Flush::Sync, !self.no_auto_create);
        let started = async {
            ready(&admin, format).await;
            running.print(format)
        };
        // A signal before the start is over ends it as well.
        tokio::select! {
            started = started => {
                started?;
                asked_to_stop.await;
            }
            () = &mut asked_to_stop => {}
        }
        output::progress(format, "stopping: finishing what is in hand …");
        let drained = async {
            sidecar_stop.cancel();
            let ended = sidecar_runs.await;
            broker_stop.cancel();
            let closed = broker_runs.await;
            admin_stop.cancel();
            let _served = admin_runs.await;
            closed.map_err(|error| Failure::failed(format!("the broker did not stop cleanly: {error}")))?;
            ended.map_err(|error| Failure::failed(format!("the sidecar did not stop cleanly: {error}")))
        };
        tokio::select! {
            ended = drained => match ended? {
                Ended::Clean => Ok(()),
                Ended::CutShort => Err(Failure::failed("some calls were cut off: the grace time was over")),
            },
            () = shutdown_requested() => Err(Failure::failed("asked to stop twice: stopped at once")),
        }
    }

    fn bind(&self) -> Result<Ports, Failure> {
        Ok(Ports {
            clients: bind(self.listen, "--listen")?,
            broker: bind(self.broker_listen, "--broker-listen")?,
            admin: bind(self.admin_listen, "--admin-listen")?,
        })
    }

    /// The file's settings, and over them what the options say.
    fn broker_config(&self, addresses: &Addresses) -> Result<BrokerConfig, Failure> {
        let adjust = {
            let (listen, admin) = (addresses.broker, addresses.admin);
            let (data_dir, flush, auto_create) = (self.data_dir.clone(), self.flush, !self.no_auto_create);
            move |config: &mut BrokerConfig| {
                config.store_path_root_dir.clone_from(&data_dir);
                config.bind_address = listen.ip();
                config.listen_port = listen.port();
                config.broker_host = reachable(listen).ip().to_string();
                config.admin_listen = Some(admin);
                config.flush_disk_type = match flush {
                    Flush::Sync => FlushDiskType::Sync,
                    Flush::Async => FlushDiskType::Async,
                };
                config.auto_create_topic_enable = auto_create;
                config.auto_create_topic_message_type = "MIXED".to_owned();
                config.auto_create_subscription_group = auto_create;
            }
        };
        load(self.broker_config.as_ref(), "docs/configuration-broker.md lists all keys", &BROKER_DECIDED, adjust)
            .map(|live| (*live.get()).clone())
    }

    fn sidecar_config(&self, addresses: &Addresses) -> Result<Live<SidecarConfig>, Failure> {
        let (clients, broker, admin) = (addresses.clients, addresses.broker, addresses.admin);
        let keys = "docs/configuration-sidecar.md lists all keys";
        load(self.sidecar_config.as_ref(), keys, &SIDECAR_DECIDED, move |config: &mut SidecarConfig| {
            config.grpc_server_host = clients.ip().to_string();
            config.grpc_server_port = clients.port().into();
            config.admin_server_host = admin.ip().to_string();
            config.admin_server_port = admin.port().into();
            // Every address leads to the broker in this process.
            config.namesrv_addr = reachable(broker).to_string();
        })
    }
}

/// Where the process listens.
#[derive(Debug, Clone, Copy)]
struct Addresses {
    clients: SocketAddr,
    broker: SocketAddr,
    admin: SocketAddr,
}

impl Ports {
    fn addresses(&self) -> Result<Addresses, Failure> {
        let of = |listener: &TcpListener| listener.local_addr().map_err(|error| Failure::failed(error.to_string()));
        Ok(Addresses { clients: of(&self.clients)?, broker: of(&self.broker)?, admin: of(&self.admin)? })
    }
}

fn bind(address: SocketAddr, option: &str) -> Result<TcpListener, Failure> {
    listen(address).map_err(|error| {
        Failure::failed(format!("cannot listen on {address}: {error}"))
            .hint(format!("{option} with another address; port 0 takes a free one"))
    })
}

/// An address that leads to a listener: one on all addresses is reached by loopback.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    address
}

/// The settings of a file, or the defaults, with `adjust` over them. `keys` says where all of them are found, `decided` which of them
/// the file must not set, and why.
fn load<T>(
    path: Option<&PathBuf>,
    keys: &str,
    decided: &[(&str, &str)],
    adjust: impl Fn(&mut T) + Send + Sync + 'static,
) -> Result<Live<T>, Failure>
where
    T: Default + serde::de::DeserializeOwned + Validate,
{
    let wrong = |invalid: Invalid| Failure::config(format!("{}: {}", invalid.key, invalid.reason));
    match path {
        Some(path) => {
            Live::load_decided(path, decided.iter().map(|(key, by)| Invalid::new(*key, *by)).collect(), adjust)
                .map_err(|error: ConfigError| Failure::config(error.to_string()).hint(keys))
        }
        None => {
            let mut config = T::default();
            adjust(&mut config);
            config.validate().map_err(wrong)?;
            Ok(Live::fixed(config))
        }
    }
}

fn open(config: BrokerConfig, data_dir: &std::path::Path) -> Result<Arc<Broker>, Failure> {
    let failed =
        |reason: String| Failure::failed(format!("the store in {} cannot be opened: {reason}", data_dir.display()));
    config.tls().map_err(|error| {
        Failure::config(error.to_string()).hint("tlsServerCertPath and tlsServerKeyPath in the file of --broker-config")
    })?;
    Broker::open(config).map_err(|error| match error {
        // What passes in a running broker is here to stay: the operating system refuses the directory or a file in it.
        BrokerError::Unavailable(reason) => {
            failed(reason).hint("check the owner of the directory, or --data-dir with another one")
        }
        error => failed(error.to_string()).hint("is another waybill using it? --data-dir with another directory"),
    })
}

/// Carries the sidecar's requests to the broker as calls.
fn local(broker: Arc<Broker>) -> LocalTransport {
    let from_broker = FromBrokers::default();
    let way_back = from_broker.clone();
    let peer = Arc::new(Peer::local_with(Channel::new(move |request| way_back.give("", request))));
    LocalTransport::new(move |request: Command| {
        let (broker, peer) = (Arc::clone(&broker), Arc::clone(&peer));
        async move {
            // Nobody waits for the answer to a request that wants none.
            broker.handle(&peer, request).await.unwrap_or_else(|| Command::response(response::SUCCESS, ""))
        }
        .boxed()
    })
    .with_requests(from_broker)
}

fn broker_admin(broker: &Arc<Broker>) -> Admin {
    let (ready, config) = (Arc::clone(broker), Arc::clone(broker));
    Admin::new(
        broker.metrics().registry(),
        move || ready.ready(),
        move || serde_json::to_value(config.config()).unwrap_or_default(),
    )
}

/// Waits until everything can serve; says why when that takes long.
fn ready(admin: &Admin, format: Format) -> impl Future<Output = ()> {
    let (began, mut said) = (Instant::now(), false);
    async move {
        while let Err(reason) = admin.ready() {
            if !said && began.elapsed() > SLOW_START {
                output::progress(format, &format!("still starting: {reason}"));
                said = true;
            }
            sleep(READY_POLL).await;
        }
    }
}
