//! `RemoteTransport` and brokers that speak TLS.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::BytesMut;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    time::timeout,
};
use waybill_ops::{
    config::Live,
    tls::{Acceptor, CertificateSource, Stream, TLS_HANDSHAKE},
};
use waybill_protocol::remoting::{self, Command, codes::response};
use waybill_sidecar::{
    backend::{RemoteOptions, RemoteTransport, Transport, TransportError, tls_of},
    config::Config,
};

use crate::LONG;

/// More than the buffers of TLS and of the system hold.
const LARGE: usize = 3 << 20;

/// Writes a certificate for `localhost` that is its own authority.
fn write_certificate(dir: &Path) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    std::fs::write(dir.join("tls.key"), made.signing_key.serialize_pem()).expect("write");
    std::fs::write(dir.join("tls.crt"), made.cert.pem()).expect("write");
}

/// A broker that gives bodies back, in TLS or in plain text as it is asked.
struct Broker {
    address: String,
    tls: Arc<AtomicUsize>,
    plain: Arc<AtomicUsize>,
}

impl Broker {
    async fn start(dir: &Path) -> Self {
        let source = CertificateSource::Files { certificate: dir.join("tls.crt"), key: dir.join("tls.key") };
        let acceptor = Acceptor::new(source, &[]).expect("a certificate");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let broker = Self { address: format!("localhost:{port}"), tls: Arc::default(), plain: Arc::default() };
        let (tls, plain) = (broker.tls.clone(), broker.plain.clone());
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (acceptor, tls, plain) = (acceptor.clone(), tls.clone(), plain.clone());
                tokio::spawn(async move {
                    let mut first = [0];
                    socket.peek(&mut first).await.expect("a byte");
                    if first == [TLS_HANDSHAKE] {
                        let Ok(stream) = acceptor.accept(socket).await else { return };
                        tls.fetch_add(1, Ordering::Relaxed);
                        serve(stream.into()).await;
                    } else {
                        plain.fetch_add(1, Ordering::Relaxed);
                        serve(Stream::Plain(socket)).await;
                    }
                });
            }
        });
        broker
    }

    /// Connections so far: TLS and plain text.
    fn seen(&self) -> (usize, usize) {
        (self.tls.load(Ordering::Relaxed), self.plain.load(Ordering::Relaxed))
    }
}

async fn serve(stream: Stream) {
    let (mut read, mut write) = stream.into_split();
    let mut buffer = BytesMut::new();
    while read.read_buf(&mut buffer).await.is_ok_and(|bytes| bytes > 0) {
        while let Ok(Some(asked)) = remoting::decode(&mut buffer, 2 * LARGE) {
            let mut frame = BytesMut::new();
            let answer = Command::response(response::SUCCESS, "").reply_to(&asked).with_body(asked.body.clone());
            remoting::encode(&answer, &mut frame);
            write.write_all(&frame).await.expect("open");
            write.flush().await.expect("open");
        }
    }
}

fn transport(config: Config) -> RemoteTransport {
    let options = RemoteOptions { connect_timeout: Duration::from_secs(10), max_in_flight: 100, max_frame: 2 * LARGE };
    RemoteTransport::new(options).with_tls(tls_of(Arc::new(Live::fixed(config))))
}

fn trusting(path: &Path) -> Config {
    let path = path.to_str().expect("text").to_owned();
    Config { tls_enable: true, tls_client_trust_cert_path: path, ..Config::default() }
}

async fn ask(transport: &RemoteTransport, address: &str, bytes: usize) -> Result<(), TransportError> {
    let body = vec![7; bytes];
    let answer = transport.call(address, Command::request(7).with_body(body.clone()), LONG).await?;
    assert!(answer.body == body, "{bytes} bytes came back as {}", answer.body.len());
    Ok(())
}

#[tokio::test]
async fn brokers_are_spoken_with_as_the_configuration_says() {
    let dir = tempfile::tempdir().expect("a directory");
    write_certificate(dir.path());
    let broker = Broker::start(dir.path()).await;
    assert_eq!(ask(&transport(Config::default()), &broker.address, 10).await, Ok(()));
    assert_eq!(broker.seen(), (0, 1));
    for config in [Config { tls_enable: true, ..Config::default() }, trusting(&dir.path().join("tls.crt"))] {
        let transport = transport(config);
        for bytes in [0, 10, 40_000, LARGE] {
            assert_eq!(ask(&transport, &broker.address, bytes).await, Ok(()));
        }
        let asked = (0..50).map(|n| ask(&transport, &broker.address, 1_000 * n));
        assert!(futures::future::join_all(asked).await.iter().all(Result::is_ok));
    }
    assert_eq!(broker.seen(), (2, 1), "one connection each");
}

#[tokio::test]
async fn a_broker_that_is_not_believed_is_unreachable_until_its_authority_comes() {
    let (ours, theirs) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    write_certificate(ours.path());
    write_certificate(theirs.path());
    let broker = Broker::start(theirs.path()).await;
    let file = ours.path().join("tls.crt");
    let transport = transport(trusting(&file));
    let refused = ask(&transport, &broker.address, 10).await;
    assert!(
        matches!(&refused, Err(TransportError::Unreachable(why)) if why.contains("certificate")),
        "nothing was sent: {refused:?}"
    );
    let elsewhere = broker.address.replace("localhost", "127.0.0.1");
    assert!(ask(&transport, &elsewhere, 10).await.is_err(), "it has no certificate for that name");
    std::fs::copy(theirs.path().join("tls.crt"), &file).expect("copy");
    let believed = async {
        while ask(&transport, &broker.address, 10).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LONG, believed).await.expect("the new authority is read");
    assert_eq!(broker.seen().1, 0, "never in plain text");
}

#[tokio::test]
async fn a_change_of_the_switch_counts_for_new_connections() {
    let dir = tempfile::tempdir().expect("a directory");
    write_certificate(dir.path());
    let broker = Broker::start(dir.path()).await;
    let file = dir.path().join("sidecar.yaml");
    let text = |tls: bool| format!("namesrvAddr: \"{}\"\ntlsEnable: {tls}\n", broker.address);
    std::fs::write(&file, text(false)).expect("write");
    let live = Arc::new(Live::<Config>::load(&file).expect("a configuration"));
    let stop = tokio_util::sync::CancellationToken::new();
    let watching = tokio::spawn(Arc::clone(&live).watch(stop.clone()));
    let connect = || {
        let options = RemoteOptions { connect_timeout: LONG, max_in_flight: 100, max_frame: 2 * LARGE };
        RemoteTransport::new(options).with_tls(tls_of(Arc::clone(&live)))
    };
    let transport = connect();
    assert_eq!(ask(&transport, &broker.address, 10).await, Ok(()));
    let mut generations = live.subscribe();
    std::fs::write(&file, text(true)).expect("write");
    timeout(LONG, generations.changed()).await.expect("in time").expect("it is read");
    assert_eq!(ask(&transport, &broker.address, 10).await, Ok(()));
    assert_eq!(broker.seen(), (0, 1), "the connection that is there stays");
    let another = broker.address.replace("localhost", "127.0.0.1");
    assert_eq!(ask(&transport, &another, 10).await, Ok(()));
    assert_eq!(broker.seen(), (1, 1));
    stop.cancel();
    watching.await.expect("it ends");
}
