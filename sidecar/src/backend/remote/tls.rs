//! Whether connections to brokers are TLS, and whom to believe there: as the configuration says at the time.

use std::{path::PathBuf, sync::Arc};

use parking_lot::Mutex;
use waybill_ops::{
    config::Live,
    tls::{CertificateError, Connector, Trust},
};

use crate::config::Config;

/// Asked before each connection: how to speak TLS there, or `None` for plain text.
pub type TlsNow = Arc<dyn Fn() -> Result<Option<Connector>, CertificateError> + Send + Sync>;

/// What the configuration says of it. A changed file with authorities is read again; connections that are there stay as they are.
#[must_use]
pub fn tls_of(config: Arc<Live<Config>>) -> TlsNow {
    let made: Mutex<Option<(Trust, Connector)>> = Mutex::new(None);
    Arc::new(move || {
        let now = config.get();
        if !now.tls_enable {
            return Ok(None);
        }
        let trust = match now.tls_client_trust_cert_path.as_str() {
            "" => Trust::Anybody,
            path => Trust::File(PathBuf::from(path)),
        };
        let mut made = made.lock();
        if let Some((of, connector)) = &*made
            && *of == trust
        {
            return Ok(Some(connector.clone()));
        }
        let connector = Connector::new(&trust)?;
        *made = Some((trust, connector.clone()));
        Ok(Some(connector))
    })
}
