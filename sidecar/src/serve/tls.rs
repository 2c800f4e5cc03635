//! TLS towards clients.

use std::{io, sync::Arc};

use arc_swap::ArcSwap;
use rustls::{
    ServerConfig,
    crypto::ring,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::sync::CancellationToken;

use super::certificate::{CertificateError, CertificateSource};

/// The only protocol spoken inside TLS.
const ALPN: &[u8] = b"h2";

/// Accepts TLS connections, if there is a certificate. Cheap to clone.
#[derive(Clone)]
pub struct Tls {
    acceptor: Option<TlsAcceptor>,
    current: Option<Arc<Current>>,
}

/// The certificate that new connections get.
#[derive(Debug)]
struct Current {
    source: CertificateSource,
    key: ArcSwap<CertifiedKey>,
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.key.load_full())
    }
}

impl Tls {
    /// Refuses TLS.
    #[must_use]
    pub fn off() -> Self {
        Self { acceptor: None, current: None }
    }

    /// Serves the certificate of `source`. Client certificates are not asked for.
    ///
    /// # Errors
    /// There is no usable certificate.
    pub fn new(source: CertificateSource) -> Result<Self, CertificateError> {
        let key = ArcSwap::from_pointee(source.load()?);
        let current = Arc::new(Current { source, key });
        let resolver: Arc<dyn ResolvesServerCert> = current.clone();
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(CertificateError::Tls)?
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(Self { acceptor: Some(TlsAcceptor::from(Arc::new(config))), current: Some(current) })
    }

    pub(super) async fn accept(&self, socket: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        match &self.acceptor {
            Some(acceptor) => acceptor.accept(socket).await,
            None => Err(io::Error::new(io::ErrorKind::Unsupported, "TLS is switched off")),
        }
    }

    /// Reads the certificate again when its files have changed, until `stop`. New connections get the new one; a bad
    /// one is reported and not used.
    pub async fn watch(self, every: std::time::Duration, stop: CancellationToken) {
        let Some(current) = self.current else { return };
        let Some(mut seen) = current.source.fingerprint() else { return };
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
                Err(error) => tracing::error!(%error, "the changed certificate is not used; the old one stays"),
            }
        }
    }
}
