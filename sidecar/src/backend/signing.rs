//! Requests to brokers that ask who calls: Apache's with access control switched on.
//!
//! A request has the fields `AccessKey` and `Signature`: HMAC-SHA1, in base64, over the values of all other fields in the order of their
//! names, and the body behind them.

use std::{path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::hmac;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;
use waybill_ops::config::{ConfigError, Invalid, Live, Validate};
use waybill_protocol::remoting::Command;

use super::from_brokers::OnRequest;
use super::transport::{Transport, TransportError};
use crate::access::SecretKey;

const ACCESS_KEY: &str = "AccessKey";
const SIGNATURE: &str = "Signature";

/// The file with what brokers know this sidecar by.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct BrokerCredentials {
    access_key: String,
    secret_key: SecretKey,
}

impl BrokerCredentials {
    /// Signs a request as it will be sent.
    fn sign(&self, request: &mut Command) {
        request.ext.set(ACCESS_KEY, &self.access_key);
        let mut fields: Vec<(&str, &str)> = request.ext.iter().filter(|(name, _)| *name != SIGNATURE).collect();
        fields.sort_unstable();
        let mut signed = hmac::Context::with_key(self.secret_key.key());
        for (_name, value) in fields {
            signed.update(value.as_bytes());
        }
        signed.update(&request.body);
        let signature = STANDARD.encode(signed.sign());
        request.ext.set(SIGNATURE, &signature);
    }
}

impl Validate for BrokerCredentials {
    const SECRET: bool = true;

    fn validate(&self) -> Result<(), Invalid> {
        if self.access_key.is_empty() {
            return Err(Invalid::new("accessKey", "it is empty"));
        }
        if self.secret_key.is_empty() {
            return Err(Invalid::new("secretKey", "it is empty"));
        }
        Ok(())
    }
}

/// A transport whose requests are signed.
pub struct Signing {
    inner: Arc<dyn Transport>,
    credentials: Arc<Live<BrokerCredentials>>,
}

impl Signing {
    /// Signs what goes over `inner` with what is in the file, which is read again when it changes until `stop`. Must be called within a
    /// tokio runtime.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn new(
        inner: Arc<dyn Transport>,
        file: impl AsRef<Path>,
        stop: CancellationToken,
    ) -> Result<Self, ConfigError> {
        let credentials = Arc::new(Live::load(file.as_ref())?);
        tokio::spawn(Arc::clone(&credentials).watch(stop));
        Ok(Self { inner, credentials })
    }
}

#[async_trait]
impl Transport for Signing {
    async fn call(&self, address: &str, mut request: Command, timeout: Duration) -> Result<Command, TransportError> {
        self.credentials.get().sign(&mut request);
        self.inner.call(address, request, timeout).await
    }

    async fn oneway(&self, address: &str, mut request: Command, timeout: Duration) -> Result<(), TransportError> {
        self.credentials.get().sign(&mut request);
        self.inner.oneway(address, request, timeout).await
    }

    fn connection(&self, address: &str) -> u64 {
        self.inner.connection(address)
    }

    fn on_request(&self, take: OnRequest) {
        self.inner.on_request(take);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made with Apache's own signer (`AclSigner.calSignature`, 5.5.0) over `ak` `g` `3` `t` and the body.
    const GOLDEN: &str = "QZimoDvhSitJH/Nfre3bS2CNy8U=";

    fn credentials() -> BrokerCredentials {
        serde_json::from_str(r#"{"accessKey": "ak", "secretKey": "sk"}"#).expect("credentials")
    }

    fn request(fields: &[(&str, &str)]) -> Command {
        let mut request = Command::request(10).with_body(&b"body"[..]);
        for (name, value) in fields {
            request.ext.set(name, value);
        }
        request
    }

    #[test]
    fn a_request_is_signed_as_apaches_broker_checks_it() {
        let mut one = request(&[("topic", "t"), ("queueId", "3"), ("group", "g")]);
        credentials().sign(&mut one);
        assert_eq!((one.ext.get(ACCESS_KEY), one.ext.get(SIGNATURE)), (Some("ak"), Some(GOLDEN)));
        let mut again = request(&[("group", "g"), ("queueId", "3"), ("topic", "t"), ("Signature", "of before")]);
        credentials().sign(&mut again);
        assert_eq!(again.ext.get(SIGNATURE), Some(GOLDEN), "whatever the order, and signed again");
        let mut other = request(&[("topic", "t"), ("queueId", "4"), ("group", "g")]);
        credentials().sign(&mut other);
        assert_ne!(other.ext.get(SIGNATURE), Some(GOLDEN));
    }
}
