//! The port for clients, below gRPC: what is let in, what is not, and which certificate is shown.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use crate::{LONG, soon};
use rustls::{
    ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::ring,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tokio_util::sync::CancellationToken;
use waybill_ops::tls::CertificateSource;
use waybill_sidecar::serve::{ClientIo, Limits, ServeMetrics, Tls, incoming};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Trusts every certificate, as the official clients do.
#[derive(Debug)]
struct TrustAll;

impl ServerCertVerifier for TrustAll {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = ring::default_provider().signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, &algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = ring::default_provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// A TLS connection of a client that speaks HTTP/2.
pub(crate) async fn connect_tls(address: SocketAddr) -> std::io::Result<TlsStream<TcpStream>> {
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(TrustAll))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let name = ServerName::try_from("localhost").expect("a name");
    TlsConnector::from(Arc::new(config)).connect(name, TcpStream::connect(address).await?).await
}

struct Port {
    address: SocketAddr,
    connections: ReceiverStream<std::io::Result<ClientIo>>,
    cut: CancellationToken,
    stop: tokio_util::sync::DropGuard,
}

async fn port(tls: Tls, change: impl FnOnce(&mut Limits)) -> Port {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("address");
    let mut limits = Limits { connections: 100, handshakes: 10, handshake_timeout: LONG };
    change(&mut limits);
    let stop = CancellationToken::new();
    let cut = CancellationToken::new();
    let connections = incoming(listener, tls, limits, ServeMetrics::default(), stop.clone(), cut.clone());
    Port { address, connections, cut, stop: stop.drop_guard() }
}

impl Port {
    async fn next(&mut self) -> ClientIo {
        timeout(LONG, self.connections.next()).await.expect("in time").expect("open").expect("a connection")
    }
}

/// The other side ended it, in order or not.
async fn ended(mut socket: impl AsyncRead + Unpin) -> bool {
    let mut rest = Vec::new();
    timeout(LONG, socket.read_to_end(&mut rest)).await.is_ok()
}

/// A TLS connection to a port that gives handshakes little time: on a busy machine the first may be late.
async fn handshaken(address: SocketAddr) -> TlsStream<TcpStream> {
    soon(async {
        loop {
            if let Ok(stream) = connect_tls(address).await {
                return stream;
            }
        }
    })
    .await
}

fn self_signed() -> Tls {
    Tls::new(CertificateSource::SelfSigned).expect("a certificate")
}

#[tokio::test]
async fn plaintext_and_tls_come_through_one_port_unchanged() {
    let mut port = port(self_signed(), |_| {}).await;
    let mut plain = TcpStream::connect(port.address).await.expect("connect");
    // In two pieces, to see that the first is kept.
    plain.write_all(&PREFACE[..5]).await.expect("write");
    plain.flush().await.expect("flush");
    let mut tls = soon(connect_tls(port.address)).await.expect("handshake");
    assert_eq!(tls.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    tls.write_all(PREFACE).await.expect("write");
    tls.write_all(b"tls").await.expect("write");
    let mut served = port.next().await;
    let mut seen = vec![0; PREFACE.len() + 3];
    soon(served.read_exact(&mut seen)).await.expect("read");
    assert_eq!(seen, [PREFACE, b"tls"].concat());
    served.write_all(b"answer").await.expect("write");
    served.flush().await.expect("flush");
    let mut answer = [0; 6];
    soon(tls.read_exact(&mut answer)).await.expect("read");
    assert_eq!(&answer, b"answer");

    plain.write_all(&PREFACE[5..]).await.expect("write");
    plain.write_all(b"plain").await.expect("write");
    let mut served = port.next().await;
    let mut seen = vec![0; PREFACE.len() + 5];
    soon(served.read_exact(&mut seen)).await.expect("read");
    assert_eq!(seen, [PREFACE, b"plain"].concat());
}

#[tokio::test]
async fn what_is_not_http2_is_closed() {
    let mut port = port(self_signed(), |_| {}).await;
    for bytes in [&b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"[..], &[0x16, 3, 1, 0xff, 0xff, 1, 2, 3], &[0; 64]] {
        let mut socket = TcpStream::connect(port.address).await.expect("connect");
        socket.write_all(bytes).await.expect("write");
        socket.shutdown().await.expect("shutdown");
        assert!(ended(socket).await);
    }
    drop(TcpStream::connect(port.address).await.expect("connect"));
    let mut good = TcpStream::connect(port.address).await.expect("connect");
    good.write_all(PREFACE).await.expect("write");
    port.next().await;
}

#[tokio::test]
async fn without_a_certificate_tls_is_refused_and_plaintext_is_not() {
    let mut port = port(Tls::off(), |_| {}).await;
    assert!(soon(connect_tls(port.address)).await.is_err());
    let mut plain = TcpStream::connect(port.address).await.expect("connect");
    plain.write_all(PREFACE).await.expect("write");
    port.next().await;
}

#[tokio::test]
async fn the_silent_and_the_slow_are_closed() {
    let port = port(self_signed(), |limits| limits.handshake_timeout = Duration::from_millis(50)).await;
    for bytes in [&b""[..], b"PRI", &[0x16, 3, 1]] {
        let mut socket = TcpStream::connect(port.address).await.expect("connect");
        socket.write_all(bytes).await.expect("write");
        assert!(ended(socket).await, "{bytes:?}");
    }
    assert!(ended(handshaken(port.address).await).await, "silent after the handshake");
}

#[tokio::test]
async fn slow_handshakes_do_not_keep_others_waiting_beyond_their_time() {
    let mut port = port(self_signed(), |limits| {
        limits.handshakes = 1;
        // Enough for those who are not slow, on a busy machine as well.
        limits.handshake_timeout = Duration::from_secs(2);
    })
    .await;
    let mut slow = TcpStream::connect(port.address).await.expect("connect");
    slow.write_all(&[0x16, 3, 1]).await.expect("write");
    // Plaintext needs no handshake.
    let mut plain = TcpStream::connect(port.address).await.expect("connect");
    plain.write_all(PREFACE).await.expect("write");
    port.next().await;
    assert!(ended(slow).await);
    let mut tls = soon(connect_tls(port.address)).await.expect("its place is free again");
    tls.write_all(PREFACE).await.expect("write");
    port.next().await;
}

#[tokio::test]
async fn more_connections_than_allowed_are_closed_and_places_become_free() {
    let mut port = port(self_signed(), |limits| limits.connections = 1).await;
    let mut first = TcpStream::connect(port.address).await.expect("connect");
    first.write_all(PREFACE).await.expect("write");
    let served = port.next().await;
    assert!(ended(TcpStream::connect(port.address).await.expect("connect")).await, "one too many");
    drop(served);
    let mut next = TcpStream::connect(port.address).await.expect("connect");
    next.write_all(PREFACE).await.expect("write");
    port.next().await;
}

#[tokio::test]
async fn nothing_is_accepted_after_the_stop() {
    let mut port = port(self_signed(), |_| {}).await;
    let address = port.address;
    drop(port.stop);
    let end = timeout(LONG, port.connections.next()).await.expect("in time");
    assert!(end.is_none(), "the stream of connections ends");
    assert!(TcpStream::connect(address).await.is_err(), "the port is closed");
}

#[tokio::test]
async fn open_connections_can_be_cut() {
    let mut port = port(self_signed(), |_| {}).await;
    let mut client = TcpStream::connect(port.address).await.expect("connect");
    client.write_all(PREFACE).await.expect("write");
    let mut served = port.next().await;
    soon(served.read_exact(&mut [0; PREFACE.len()])).await.expect("read");
    let reading = tokio::spawn(async move { served.read_u8().await });
    tokio::task::yield_now().await;
    port.cut.cancel();
    assert!(timeout(LONG, reading).await.expect("in time").expect("no panic").is_err());
    assert!(ended(client).await);
}

/// Writes a new certificate and returns it.
fn write_certificate(dir: &Path) -> Vec<u8> {
    let made = rcgen::generate_simple_self_signed(["test".to_owned()]).expect("a certificate");
    // The key first: a reader between the two sees a pair that does not fit, and keeps what it has.
    for (name, text) in [("tls.key", made.signing_key.serialize_pem()), ("tls.crt", made.cert.pem())] {
        let next = dir.join("next");
        std::fs::write(&next, text).expect("write");
        std::fs::rename(&next, dir.join(name)).expect("rename");
    }
    made.cert.der().to_vec()
}

async fn shown_certificate(address: SocketAddr) -> Vec<u8> {
    let socket = soon(connect_tls(address)).await.expect("handshake");
    socket.get_ref().1.peer_certificates().expect("certificates")[0].to_vec()
}

#[tokio::test]
async fn a_changed_certificate_is_shown_to_new_connections_and_a_bad_one_is_not() {
    let dir = tempfile::tempdir().expect("directory");
    let source = CertificateSource::Files { certificate: dir.path().join("tls.crt"), key: dir.path().join("tls.key") };
    assert!(Tls::new(source.clone()).is_err(), "no files yet");
    let first = write_certificate(dir.path());
    let tls = Tls::new(source.clone()).expect("a certificate");
    let port = port(tls.clone(), |_| {}).await;
    let stop = CancellationToken::new();
    let watching = tokio::spawn(tls.watch(Duration::from_millis(5), stop.clone()));
    assert_eq!(shown_certificate(port.address).await, first);

    std::fs::write(dir.path().join("tls.crt"), "no certificate").expect("write");
    assert!(Tls::new(source.clone()).is_err_and(|error| error.to_string().contains("tls.crt")));
    for _ in 0..20 {
        assert_eq!(shown_certificate(port.address).await, first, "the old one stays");
    }

    let second = write_certificate(dir.path());
    let changed = timeout(LONG, async { while shown_certificate(port.address).await != second {} });
    changed.await.expect("it is noticed");

    // A key that is not the certificate's.
    let other = rcgen::generate_simple_self_signed(["other".to_owned()]).expect("a certificate");
    std::fs::write(dir.path().join("tls.key"), other.signing_key.serialize_pem()).expect("write");
    assert!(Tls::new(source).is_err_and(|error| error.to_string().contains("cannot be used")));
    stop.cancel();
    watching.await.expect("it ends");
}
