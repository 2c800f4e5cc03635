//! TLS towards clients.

use std::{io, time::Duration};

use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use waybill_ops::tls::{Acceptor, CertificateError, CertificateSource};

/// The only protocol spoken inside TLS.
const ALPN: &[u8] = b"h2";

/// Accepts TLS connections, if there is a certificate. Cheap to clone.
#[derive(Clone)]
pub struct Tls(Option<Acceptor>);

impl Tls {
    /// Refuses TLS.
    #[must_use]
    pub fn off() -> Self {
        Self(None)
    }

    /// Serves the certificate of `source`. Client certificates are not asked for.
    ///
    /// # Errors
    /// There is no usable certificate.
    pub fn new(source: CertificateSource) -> Result<Self, CertificateError> {
        Acceptor::new(source, &[ALPN]).map(|acceptor| Self(Some(acceptor)))
    }

    pub(super) async fn accept(&self, socket: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        match &self.0 {
            Some(acceptor) => acceptor.accept(socket).await,
            None => Err(io::Error::new(io::ErrorKind::Unsupported, "TLS is switched off")),
        }
    }

    /// Reads the certificate again when its files have changed, until `stop`. New connections get the new one; a bad
    /// one is reported and not used.
    pub async fn watch(self, every: Duration, stop: CancellationToken) {
        if let Some(acceptor) = self.0 {
            acceptor.watch(every, stop).await;
        }
    }
}
