//! The configuration of a sidecar: one table of keys, from which come the struct, the validation and the documentation.

mod document;
mod key;
mod keys;
mod reload;

use waybill_ops::config::{Invalid, Validate};

pub use self::{
    document::document,
    key::{Allowed, Effect, Key, ShutdownPolicy, Value},
    keys::Config,
    reload::{effective, report_changes},
};

/// The addresses in a list separated by `;` or `,`, in order, without blanks and repetitions.
#[must_use]
pub fn addresses(list: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for address in list.split([';', ',']).map(str::trim).filter(|address| !address.is_empty()) {
        if !found.iter().any(|known| known == address) {
            found.push(address.to_owned());
        }
    }
    found
}

impl Validate for Config {
    fn validate(&self) -> Result<(), Invalid> {
        for (key, value) in Self::keys().into_iter().zip(self.values()) {
            if !key.allowed.accepts(&value) {
                let unit = if key.unit.is_empty() { String::new() } else { format!(" {}", key.unit) };
                return Err(Invalid::new(key.name, format!("{value} is not allowed; use {}{unit}", key.allowed)));
            }
        }
        self.check_pairs()
    }
}

impl Config {
    /// Keys that must fit each other.
    fn check_pairs(&self) -> Result<(), Invalid> {
        if self.tls_cert_path.is_empty() != self.tls_key_path.is_empty() {
            let (missing, given) = if self.tls_cert_path.is_empty() {
                ("tlsCertPath", "tlsKeyPath")
            } else {
                ("tlsKeyPath", "tlsCertPath")
            };
            return Err(Invalid::new(missing, format!("is needed because {given} is set; set both or neither")));
        }
        let at_most = [
            (
                ("minInvisibleTimeMillsForRecv", self.min_invisible_time_ms_for_recv),
                ("maxInvisibleTimeMills", self.max_invisible_time_ms),
            ),
            (
                ("defaultInvisibleTimeMills", self.default_invisible_time_ms),
                ("maxInvisibleTimeMills", self.max_invisible_time_ms),
            ),
            (
                (
                    "grpcClientConsumerMinLongPollingTimeoutMillis",
                    self.grpc_client_consumer_min_long_polling_timeout_ms,
                ),
                (
                    "grpcClientConsumerMaxLongPollingTimeoutMillis",
                    self.grpc_client_consumer_max_long_polling_timeout_ms,
                ),
            ),
            (
                ("grpcClientProducerBackoffInitialMillis", self.grpc_client_producer_backoff_initial_ms),
                ("grpcClientProducerBackoffMaxMillis", self.grpc_client_producer_backoff_max_ms),
            ),
            (
                ("topicRouteServiceCacheRefreshSeconds", self.topic_route_service_cache_refresh_seconds),
                ("topicRouteServiceCacheExpiredSeconds", self.topic_route_service_cache_expired_seconds),
            ),
            (
                ("topicConfigCacheRefreshSeconds", self.topic_config_cache_refresh_seconds),
                ("topicConfigCacheExpiredSeconds", self.topic_config_cache_expired_seconds),
            ),
            (
                ("subscriptionGroupConfigCacheRefreshSeconds", self.subscription_group_config_cache_refresh_seconds),
                ("subscriptionGroupConfigCacheExpiredSeconds", self.subscription_group_config_cache_expired_seconds),
            ),
        ];
        for ((lower, low), (upper, high)) in at_most {
            if low > high {
                return Err(Invalid::new(lower, format!("{low} is more than {upper}, which is {high}")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
