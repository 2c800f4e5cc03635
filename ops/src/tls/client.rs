//! The end that asks who the other one is.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::{CertificateError as Untrusted, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::certificate::{CertificateError, Fingerprint, certificates, fingerprint, read};

/// Whom a client believes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// Everybody, as RocketMQ's own clients do: nobody can listen, but somebody in between who takes the server's place is not noticed.
    Anybody,
    /// Those for whom an authority of this PEM file vouches, under the name that they were reached by. Read again when it changes.
    File(PathBuf),
    /// The same, with the text in place of a file.
    Authorities(Vec<u8>),
}

/// Makes TLS connections. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Connector(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The file with the authorities, if it is one.
    file: Option<PathBuf>,
    now: Mutex<Now>,
}

#[derive(Debug)]
struct Now {
    /// The file when it was last read, whatever came of it.
    seen: Option<Fingerprint>,
    config: Arc<ClientConfig>,
}

impl Connector {
    /// Believes whom `trust` says.
    ///
    /// # Errors
    /// There is no authority where some should be.
    pub fn new(trust: &Trust) -> Result<Self, CertificateError> {
        let (file, seen, config) = match trust {
            Trust::Anybody => (None, None, anybody()?),
            Trust::Authorities(text) => (None, None, trusting(text, &PathBuf::from("ca.crt"))?),
            Trust::File(path) => (Some(path.clone()), fingerprint(path), trusting(&read(path)?, path)?),
        };
        Ok(Self(Arc::new(Inner { file, now: Mutex::new(Now { seen, config: Arc::new(config) }) })))
    }

    /// Does the handshake with the server at `address`, `host:port`, over `socket`. It may take as long as the server likes: whoever calls
    /// bounds it.
    ///
    /// # Errors
    /// The connection broke, the server speaks no TLS, or it is not to be believed. The words are the same for the same reason.
    pub async fn connect(&self, socket: TcpStream, address: &str) -> io::Result<TlsStream<TcpStream>> {
        let name = server_name(address)?;
        TlsConnector::from(self.config()).connect(name, socket).await.map_err(|error| in_words(&error))
    }

    /// With the authorities of the file as it is now. Looking costs less than the handshake that follows.
    fn config(&self) -> Arc<ClientConfig> {
        let mut now = self.0.now.lock();
        if let Some(path) = &self.0.file
            && let Some(seen) = fingerprint(path)
            && now.seen != Some(seen)
        {
            now.seen = Some(seen);
            match read(path).and_then(|text| trusting(&text, path)) {
                Ok(config) => now.config = Arc::new(config),
                Err(error) => tracing::error!(%error, "the changed authorities are not used; the old ones stay"),
            }
        }
        Arc::clone(&now.config)
    }
}

/// The host of `host:port`, without the brackets of an IPv6 address.
fn server_name(address: &str) -> io::Result<ServerName<'static>> {
    let host = address.rsplit_once(':').map_or(address, |(host, _port)| host);
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    ServerName::try_from(host.to_owned())
        .map_err(|_no_name| io::Error::new(io::ErrorKind::InvalidInput, format!("TLS: {host:?} is no name of a host")))
}

fn in_words(error: &io::Error) -> io::Error {
    let said = match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        // Those with more detail tell the time of the try, which is another one each time.
        Some(rustls::Error::InvalidCertificate(why)) => match why {
            Untrusted::Expired | Untrusted::ExpiredContext { .. } => "the server's certificate has expired".to_owned(),
            Untrusted::NotValidYet | Untrusted::NotValidYetContext { .. } => {
                "the server's certificate is not valid yet".to_owned()
            }
            // An authority of the same name with another key.
            Untrusted::UnknownIssuer | Untrusted::BadSignature => {
                "the server's certificate is not signed by a trusted authority".to_owned()
            }
            Untrusted::NotValidForName | Untrusted::NotValidForNameContext { .. } => {
                "the server's certificate is for another name".to_owned()
            }
            other => format!("the server's certificate cannot be trusted: {other}"),
        },
        Some(rustls::Error::InvalidMessage(_)) => "the server does not speak TLS".to_owned(),
        Some(other) => other.to_string(),
        None if error.kind() == io::ErrorKind::UnexpectedEof || error.kind() == io::ErrorKind::ConnectionReset => {
            "the server ended the connection; perhaps it does not speak TLS".to_owned()
        }
        None => error.kind().to_string(),
    };
    io::Error::new(error.kind(), format!("TLS: {said}"))
}

fn trusting(text: &[u8], path: &std::path::Path) -> Result<ClientConfig, CertificateError> {
    let pem = |reason| CertificateError::Pem { path: path.to_owned(), wanted: "a certificate", reason };
    let mut roots = RootCertStore::empty();
    for authority in certificates(text).map_err(pem)? {
        roots.add(authority).map_err(|error| pem(error.to_string()))?;
    }
    Ok(ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

fn anybody() -> Result<ClientConfig, CertificateError> {
    Ok(ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody))
        .with_no_client_auth())
}

/// Believes every certificate, so a signature made with its key proves nothing and is not looked at either.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _chain: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
