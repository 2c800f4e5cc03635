//! The end that has a certificate.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use super::certificate::{CertificateError, CertificateSource, Fingerprint};

/// Accepts TLS connections. Cheap to clone.
#[derive(Clone)]
pub struct Acceptor {
    acceptor: TlsAcceptor,
    current: Arc<Current>,
}

/// The certificate that new connections get.
#[derive(Debug)]
struct Current {
    source: CertificateSource,
    /// The files as they were before they were read for the first time.
    first: Option<[Fingerprint; 2]>,
    key: ArcSwap<CertifiedKey>,
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.key.load_full())
    }
}

impl std::fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Acceptor").field("source", &self.current.source).finish_non_exhaustive()
    }
}

impl Acceptor {
    /// Serves the certificate of `source`, and `protocols` inside (ALPN; none: clients need not name one). Client certificates are not
    /// asked for.
    ///
    /// # Errors
    /// There is no usable certificate.
    pub fn new(source: CertificateSource, protocols: &[&[u8]]) -> Result<Self, CertificateError> {
        let first = source.fingerprint();
        let key = ArcSwap::from_pointee(source.load()?);
        let current = Arc::new(Current { source, first, key });
        let resolver: Arc<dyn ResolvesServerCert> = current.clone();
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(CertificateError::Tls)?
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), current })
    }

    /// Does the handshake. It may take as long as the peer likes: whoever calls bounds it.
    ///
    /// # Errors
    /// The connection broke, or the peer cannot agree.
    pub async fn accept(&self, socket: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        self.acceptor.accept(socket).await
    }

    /// Reads the certificate again when its files have changed, until `stop`. New connections get the new one; a bad one is reported
    /// once and not used.
    pub async fn watch(self, every: Duration, stop: CancellationToken) {
        let current = self.current;
        let Some(mut seen) = current.first else { return };
        let mut reported = None;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(every) => {}
            }
            let Some(now) = current.source.fingerprint() else { continue };
            if now == seen {
                continue;
            }
            match current.source.load() {
                Ok(key) => {
                    current.key.store(Arc::new(key));
                    seen = now;
                    tracing::info!("new connections get the new certificate");
                }
                Err(_) if reported == Some(now) => {}
                Err(error) => {
                    reported = Some(now);
                    tracing::error!(%error, "the changed certificate is not used; the old one stays");
                }
            }
        }
    }
}
