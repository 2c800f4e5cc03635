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
                let wrong =
                    if value == key.default { "is not set".to_owned() } else { format!("{value} is not allowed") };
                return Err(Invalid::new(key.name, format!("{wrong}; use {}{unit}", key.allowed)));
            }
        }
        self.check_tls()?;
        self.check_backend_tls()?;
        self.check_access()?;
        self.check_pairs()
    }
}

/// The name of a key and its value.
type Named = (&'static str, i64);

impl Config {
    fn check_tls(&self) -> Result<(), Invalid> {
        let (given, missing) = match (self.tls_cert_path.is_empty(), self.tls_key_path.is_empty()) {
            (false, true) => ("tlsCertPath", "tlsKeyPath"),
            (true, false) => ("tlsKeyPath", "tlsCertPath"),
            _ => return Ok(()),
        };
        Err(Invalid::new(given, format!("needs {missing}, which is not set; set both or neither")))
    }

    fn check_backend_tls(&self) -> Result<(), Invalid> {
        if !self.tls_client_trust_cert_path.is_empty() && !self.tls_enable {
            let reason = "needs tlsEnable: without TLS no broker shows a certificate";
            return Err(Invalid::new("tlsClientTrustCertPath", reason));
        }
        Ok(())
    }

    fn check_access(&self) -> Result<(), Invalid> {
        if self.authentication_enabled && self.users_file_path.is_empty() {
            let reason = "needs usersFilePath, which is not set: there would be no user";
            return Err(Invalid::new("authenticationEnabled", reason));
        }
        if self.authorization_enabled && !self.authentication_enabled {
            let reason = "needs authenticationEnabled: what somebody may do depends on who it is";
            return Err(Invalid::new("authorizationEnabled", reason));
        }
        Ok(())
    }

    /// Keys that must fit each other. The one that is not at its default is named: that one was set, and so has a line.
    fn check_pairs(&self) -> Result<(), Invalid> {
        let defaults = Self::default().at_most();
        for ((lower, upper), (lower_default, upper_default)) in self.at_most().into_iter().zip(defaults) {
            if lower.1 <= upper.1 {
                continue;
            }
            let invalid = if lower == lower_default {
                Invalid::new(upper.0, format!("{} is less than {}, which is {} by default", upper.1, lower.0, lower.1))
            } else {
                let by_default = if upper == upper_default { " by default" } else { "" };
                let reason = format!("{} is more than {}, which is {}{by_default}", lower.1, upper.0, upper.1);
                Invalid::new(lower.0, reason)
            };
            return Err(invalid);
        }
        Ok(())
    }

    /// The first of each pair must be at most the second.
    fn at_most(&self) -> [(Named, Named); 7] {
        [
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
        ]
    }
}

#[cfg(test)]
mod tests;
