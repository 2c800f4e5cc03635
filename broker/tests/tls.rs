//! TLS and plain text on the remoting port.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use waybill_broker::{Broker, BrokerConfig, TlsServerMode};
use waybill_ops::tls::{Connector, ReadHalf, Stream, Trust, WriteHalf};
use waybill_protocol::remoting::codes::{request, response};
use waybill_protocol::remoting::{self, Command};

const LONG: Duration = Duration::from_secs(30);

/// A broker with a certificate for `localhost`, which is its own authority.
struct Rig {
    broker: Arc<Broker>,
    config: BrokerConfig,
    port: u16,
    dir: tempfile::TempDir,
    stop: CancellationToken,
}

impl Rig {
    async fn start(mode: TlsServerMode) -> Self {
        let dir = tempfile::tempdir().unwrap();
        write_certificate(dir.path());
        let config = BrokerConfig {
            store_path_root_dir: dir.path().join("store"),
            mapped_file_size_commit_log: 1 << 20,
            max_message_size: 1 << 16,
            tls_server_mode: mode,
            tls_server_cert_path: dir.path().join("tls.crt"),
            tls_server_key_path: dir.path().join("tls.key"),
            ..BrokerConfig::default()
        };
        let broker = Broker::open(config.clone()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let stop = CancellationToken::new();
        let (serving, stopping) = (broker.clone(), stop.clone());
        tokio::spawn(async move { serving.serve(listener, stopping).await });
        Self { broker, config, port, dir, stop }
    }

    /// Believes the certificate that is in the file now.
    fn connector(&self) -> Connector {
        Connector::new(&Trust::File(self.dir.path().join("tls.crt"))).unwrap()
    }

    async fn socket(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port)).await.unwrap()
    }

    async fn plain(&self) -> Talk {
        Talk::over(Stream::Plain(self.socket().await))
    }

    async fn tls(&self, connector: &Connector) -> Result<Talk, String> {
        let connecting = connector.connect(self.socket().await, "localhost:10911");
        let stream = timeout(LONG, connecting).await.expect("in time");
        stream.map(|stream| Talk::over(stream.into())).map_err(|error| error.to_string())
    }

    /// The value of a metric, 0 if it is not shown.
    fn counted(&self, metric: &str) -> u64 {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.broker.metrics().registry().lock()).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(metric)?.strip_prefix(' ')).unwrap_or("0").to_owned();
        line.parse().unwrap()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn write_certificate(dir: &Path) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    // The key first: a reader between the two sees a pair that does not fit, and keeps what it has.
    for (name, text) in [("tls.key", made.signing_key.serialize_pem()), ("tls.crt", made.cert.pem())] {
        std::fs::write(dir.join("next"), text).unwrap();
        std::fs::rename(dir.join("next"), dir.join(name)).unwrap();
    }
}

struct Talk {
    read: ReadHalf,
    write: WriteHalf,
    buffer: BytesMut,
}

impl Talk {
    fn over(stream: Stream) -> Self {
        let (read, write) = stream.into_split();
        Self { read, write, buffer: BytesMut::new() }
    }

    /// Asks for the topics. None: the broker ends the connection.
    async fn ask(&mut self) -> Option<Command> {
        timeout(LONG, async {
            let mut frame = BytesMut::new();
            // A remark longer than a TLS record, so that frames and records do not begin together.
            let mut command = Command::request(request::GET_ALL_TOPIC_CONFIG);
            command.remark = Some("x".repeat(40_000));
            remoting::encode(&command, &mut frame);
            self.write.write_all(&frame).await.ok()?;
            self.write.flush().await.ok()?;
            loop {
                if let Some(answer) = remoting::decode(&mut self.buffer, remoting::DEFAULT_MAX_FRAME).unwrap() {
                    return Some(answer);
                }
                if self.read.read_buf(&mut self.buffer).await.ok()? == 0 {
                    return None;
                }
            }
        })
        .await
        .expect("in time")
    }

    async fn is_answered(&mut self) -> bool {
        self.ask().await.is_some_and(|answer| answer.code == response::SUCCESS)
    }

    async fn ends(mut self) -> std::io::Result<usize> {
        timeout(LONG, self.read.read(&mut [0; 64])).await.expect("in time")
    }
}

#[tokio::test]
async fn tls_and_plain_text_are_served_on_one_port() {
    let rig = Rig::start(TlsServerMode::Permissive).await;
    let (mut plain, mut tls) = (rig.plain().await, rig.tls(&rig.connector()).await.unwrap());
    for _ in 0..3 {
        assert!(plain.is_answered().await && tls.is_answered().await);
    }
    assert_eq!(rig.counted("waybill_broker_tls_connections_total"), 1);
    // It says that it ends, so that nobody takes it for a cut.
    rig.stop.cancel();
    assert_eq!(tls.ends().await.unwrap(), 0);
    assert_eq!(plain.ends().await.unwrap(), 0);
}

#[tokio::test]
async fn what_may_come_in_follows_the_configuration_while_it_runs() {
    let rig = Rig::start(TlsServerMode::Enforcing).await;
    assert!(!rig.plain().await.is_answered().await);
    assert!(rig.tls(&rig.connector()).await.unwrap().is_answered().await);
    assert_eq!(rig.counted("waybill_broker_tls_refused_total{reason=\"plaintext\"}"), 1);

    let to = |tls_server_mode| {
        let waiting = rig.broker.reconfigure(&BrokerConfig { tls_server_mode, ..rig.config.clone() });
        assert_eq!(waiting, Ok(Vec::new()), "it needs no restart");
    };
    to(TlsServerMode::Permissive);
    let mut plain = rig.plain().await;
    assert!(plain.is_answered().await);
    to(TlsServerMode::Disabled);
    assert!(rig.tls(&rig.connector()).await.is_err());
    to(TlsServerMode::Enforcing);
    assert!(plain.is_answered().await, "connections that are there stay as they are");
}

#[tokio::test]
async fn a_bad_handshake_is_counted_and_costs_nobody_else_anything() {
    let rig = Rig::start(TlsServerMode::Permissive).await;
    let failed = "waybill_broker_tls_refused_total{reason=\"handshake\"}";
    let mut garbage = rig.socket().await;
    garbage.write_all(b"\x16\x03\x01\x00\x04garbage that is no hello").await.unwrap();
    let mut rest = Vec::new();
    let _reset = timeout(LONG, garbage.read_to_end(&mut rest)).await.expect("the broker closes it");
    assert_eq!(rig.counted(failed), 1);

    // These begin and say no more.
    let mut silent = Vec::new();
    for begin in [&b"\x16"[..], b"\x16\x03\x01\x02"].iter().cycle().take(300) {
        let mut socket = rig.socket().await;
        socket.write_all(begin).await.unwrap();
        silent.push(socket);
    }
    // And these say nothing.
    for _ in 0..10 {
        silent.push(rig.socket().await);
    }
    assert!(rig.plain().await.is_answered().await);
    drop(silent);
    assert!(rig.tls(&rig.connector()).await.unwrap().is_answered().await);

    // Whoever does not believe the certificate says so and goes.
    let elsewhere = tempfile::tempdir().unwrap();
    write_certificate(elsewhere.path());
    let another = Connector::new(&Trust::File(elsewhere.path().join("tls.crt"))).unwrap();
    assert!(rig.tls(&another).await.is_err_and(|error| error.contains("certificate")));
    assert!(rig.plain().await.is_answered().await);
}

#[tokio::test]
async fn a_renewed_certificate_is_shown_to_new_connections() {
    let rig = Rig::start(TlsServerMode::Permissive).await;
    let first = rig.connector();
    let mut talk = rig.tls(&first).await.unwrap();
    write_certificate(rig.dir.path());
    let noticed = async {
        let mut renewed = rig.tls(&rig.connector()).await;
        while renewed.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
            renewed = rig.tls(&rig.connector()).await;
        }
        renewed.unwrap()
    };
    assert!(timeout(LONG, noticed).await.expect("it is noticed").is_answered().await);
    assert!(talk.is_answered().await, "connections that are there go on");
}

#[tokio::test]
async fn without_a_certificate_it_does_not_start_and_without_being_told_it_is_plain_text() {
    let dir = tempfile::tempdir().unwrap();
    let config = BrokerConfig {
        store_path_root_dir: dir.path().join("store"),
        tls_server_cert_path: dir.path().join("tls.crt"),
        tls_server_key_path: dir.path().join("tls.key"),
        ..BrokerConfig::default()
    };
    assert!(Broker::open(config).is_err_and(|error| error.to_string().contains("tls.crt")));
    assert!(BrokerConfig::default().tls().unwrap().is_none());

    let file = dir.path().join("broker.yaml");
    std::fs::write(&file, "tlsServerCertPath: /nowhere/tls.crt\ntlsServerKeyPath: /nowhere/tls.key\n").unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_waybill-broker"))
        .args(["--config", file.to_str().unwrap(), "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"])
        .args(["--store", dir.path().join("store").to_str().unwrap()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(64), "{said}");
    assert!(said.contains("/nowhere/tls.crt") && said.contains("tlsServerCertPath"), "{said}");
}
