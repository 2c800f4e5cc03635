//! The certificate of the remoting port.

use waybill_ops::tls::{Acceptor, CertificateError, CertificateSource};

use crate::BrokerConfig;

impl BrokerConfig {
    /// What accepts TLS connections, if there is a certificate.
    ///
    /// # Errors
    /// The certificate or its key cannot be used.
    pub fn tls(&self) -> Result<Option<Acceptor>, CertificateError> {
        if self.tls_server_cert_path.as_os_str().is_empty() {
            return Ok(None);
        }
        let source = CertificateSource::Files {
            certificate: self.tls_server_cert_path.clone(),
            key: self.tls_server_key_path.clone(),
        };
        Acceptor::new(source, &[]).map(Some)
    }
}
