//! The configuration of sidecars, by upstream's names, held against the sidecar's own table of keys.

use std::collections::BTreeMap;

use kube::ResourceExt;
use serde_json::{Value, json};
use waybill_ops::config::Validate;
use waybill_sidecar::config::{Config, Effect};

use super::Invalid;
use super::users::{USERS_DIRECTORY, USERS_FILE};
use crate::api::Proxy;
use crate::hash;
use crate::place::{CONFIGURATION_DIR, SIDECAR_ADMIN_PORT, SIDECAR_FILE, SIDECAR_PORT};

/// Where the certificate of a Proxy is in its pods.
pub(super) const TLS_DIR: &str = "/etc/waybill-tls";
/// How soon a certificate that has changed in the pod is taken, milliseconds.
const TLS_WATCH_MS: i64 = 60_000;

/// Keys that are not said in `spec.configuration`, and where they are said instead.
const ELSEWHERE: [(&str, &str); 23] = [
    ("namesrvAddr", "it is said by spec.brokerRef or spec.nameServers"),
    ("grpcServerHost", "the operator decides it"),
    ("grpcServerPort", "the operator decides it; for injected sidecars it is spec.injection.port"),
    ("adminServerHost", "the operator decides it"),
    ("adminServerPort", "the operator decides it; for injected sidecars it is spec.injection.adminPort"),
    ("tlsCertPath", "it is said by spec.tls"),
    ("tlsKeyPath", "it is said by spec.tls"),
    ("tlsClientTrustCertPath", "it is spec.tls of the Broker"),
    ("authenticationEnabled", "it is spec.accessControl.authentication"),
    ("authorizationEnabled", "it is spec.accessControl.authorization"),
    ("usersFilePath", "the operator decides it"),
    ("grpcShutdownTimeSeconds", "it is spec.shutdown.graceSeconds"),
    ("shutdownNoticeSeconds", "it is spec.shutdown.noticeSeconds"),
    ("shutdownPolicy", "it is spec.shutdown.policy and spec.injection.shutdownPolicy"),
    ("enableProxyAutoRenew", "it is spec.renewal.enableProxyAutoRenew"),
    ("enableGrpcChannelReceiptHandleRenew", "it is spec.renewal.enableGrpcChannelReceiptHandleRenew"),
    ("defaultInvisibleTimeMills", "it is spec.renewal.defaultInvisibleTimeMills"),
    ("renewAheadTimeMillis", "it is spec.renewal.renewAheadTimeMillis"),
    ("renewMaxTimeMillis", "it is spec.renewal.renewMaxTimeMillis"),
    ("maxRenewRetryTimes", "it is spec.renewal.maxRenewRetryTimes"),
    ("enableBatchAck", "it is spec.batch.enableBatchAck"),
    ("enableBatchChangeInvisibleTime", "it is spec.batch.enableBatchChangeInvisibleTime"),
    ("batchChangeInvisibleTimeMaxNum", "it is spec.batch.maxEntries"),
];

/// The file of a ConfigMap beside the configuration with those whose signature the certificates of brokers have. Certificates are no
/// secret; the Secret that they come from has the brokers' key, which is none of a sidecar's.
pub const BROKER_AUTHORITIES: &str = "broker-ca.crt";

/// Where the brokers are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sources {
    /// Each host:port.
    pub addresses: Vec<String>,
    /// The name of the cluster that the brokers say they are; empty if it is not known here.
    pub cluster: String,
    /// Whose signature their certificates have; none: they are not spoken with by TLS.
    pub tls: Option<Authorities>,
}

/// Whose signature makes a broker be believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authorities {
    /// Nobody's is needed.
    Anybody,
    /// One of these, PEM.
    These(String),
    /// It is not known, and why.
    Missing(String),
}

/// For whom a sidecar is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Clients from elsewhere.
    Shared,
    /// The application in the same pod.
    Injected,
}

/// The configuration of a sidecar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configuration {
    /// The file.
    pub text: String,
    /// The file [`BROKER_AUTHORITIES`], if there is one.
    pub authorities: Option<String>,
    /// The hash of the file, as the sidecar tells it.
    pub hash: String,
    /// The hash of what counts only when a sidecar starts.
    pub at_start: String,
}

/// The configuration of the sidecars of a Proxy.
///
/// # Errors
/// The resource asks for what a sidecar would refuse.
pub fn configuration(proxy: &Proxy, role: Role, sources: &Sources) -> Result<Configuration, Invalid> {
    let keys = said(proxy, role, sources)?;
    let config: Config = serde_json::from_value(json!(keys))
        .map_err(|error| Invalid::new("spec.configuration", format!("cannot be read: {error}")))?;
    config.validate().map_err(|invalid| Invalid::new(field(&invalid.key), format!("cannot be: {}", invalid.reason)))?;
    let lines: String = keys.iter().map(|(key, value)| format!("{key}: {value}\n")).collect();
    let whose = format!("{}/{}", proxy.namespace().unwrap_or_default(), proxy.name_any());
    let text = format!("# Made by waybill-operator from Proxy {whose}; edits are put back.\n{lines}");
    // Only what differs from the default, so that a new key of a later version restarts nobody.
    let at_start: Vec<String> = Config::keys()
        .into_iter()
        .zip(config.values())
        .filter(|(key, value)| key.effect == Effect::Restart && *value != key.default)
        .map(|(key, value)| format!("{}: {value}\n", key.name))
        .collect();
    let authorities = match &sources.tls {
        Some(Authorities::These(text)) => Some(text.clone()),
        _none => None,
    };
    Ok(Configuration { hash: hash::of(&text), at_start: hash::of(&at_start.concat()), text, authorities })
}

impl Configuration {
    /// The data of the ConfigMap.
    pub(super) fn data(&self) -> BTreeMap<&str, &str> {
        let authorities = self.authorities.iter().map(|text| (BROKER_AUTHORITIES, text.as_str()));
        std::iter::once((SIDECAR_FILE, self.text.as_str())).chain(authorities).collect()
    }
}

/// All keys that have a value, by name.
fn said(proxy: &Proxy, role: Role, sources: &Sources) -> Result<BTreeMap<String, Value>, Invalid> {
    let spec = &proxy.spec;
    let mut keys: BTreeMap<String, Value> = BTreeMap::new();
    if spec.broker_ref.is_some() && spec.configuration.contains_key("tlsEnable") {
        let reason = "cannot be set together with spec.brokerRef: it follows spec.tls of the Broker";
        return Err(Invalid::new("spec.configuration.tlsEnable", reason));
    }
    for (key, value) in &spec.configuration {
        check(key, value)?;
        keys.insert(key.clone(), value.clone());
    }
    let mut set = |key: &str, value: Value| drop(keys.insert(key.to_owned(), value));
    // The fields have the names of the keys.
    if let Value::Object(renewal) = json!(spec.renewal) {
        renewal.into_iter().for_each(|(key, value)| set(&key, value));
    }
    let batch = [
        ("enableBatchAck", spec.batch.enable_batch_ack.map(Value::from)),
        ("enableBatchChangeInvisibleTime", spec.batch.enable_batch_change_invisible_time.map(Value::from)),
        ("batchChangeInvisibleTimeMaxNum", spec.batch.max_entries.map(Value::from)),
    ];
    for (key, value) in batch {
        if let Some(value) = value {
            set(key, value);
        }
    }
    set("namesrvAddr", json!(sources.addresses.join(";")));
    if !sources.cluster.is_empty() && !spec.configuration.contains_key("rocketMQClusterName") {
        set("rocketMQClusterName", json!(sources.cluster));
    }
    match &sources.tls {
        None => {}
        Some(Authorities::Missing(reason)) => {
            return Err(Invalid::new("spec.brokerRef", format!("cannot be used: {reason}")));
        }
        Some(Authorities::Anybody) => set("tlsEnable", json!(true)),
        Some(Authorities::These(_)) => {
            set("tlsEnable", json!(true));
            set("tlsClientTrustCertPath", json!(format!("{CONFIGURATION_DIR}/{BROKER_AUTHORITIES}")));
        }
    }
    set("grpcShutdownTimeSeconds", json!(spec.shutdown.grace_seconds));
    if proxy.asks_for_users() {
        if !spec.injection.namespaces.is_empty() && !spec.injection.share_users {
            let reason = "together with spec.accessControl.authentication it takes spec.injection.shareUsers: sidecars in other namespaces need the secret keys of the users there";
            return Err(Invalid::new("spec.injection.namespaces", reason));
        }
        // Injected sidecars have the file beside their configuration.
        let directory = if role == Role::Shared { USERS_DIRECTORY } else { CONFIGURATION_DIR };
        set("authenticationEnabled", json!(true));
        set("authorizationEnabled", json!(spec.access_control.authorization));
        set("usersFilePath", json!(format!("{directory}/{USERS_FILE}")));
    }
    match role {
        Role::Shared => {
            set("shutdownNoticeSeconds", json!(spec.shutdown.notice_seconds));
            set("shutdownPolicy", json!(spec.shutdown.policy.word()));
            set("grpcServerPort", json!(SIDECAR_PORT));
            set("adminServerPort", json!(SIDECAR_ADMIN_PORT));
            if spec.tls.is_some() {
                set("tlsCertPath", json!(format!("{TLS_DIR}/tls.crt")));
                set("tlsKeyPath", json!(format!("{TLS_DIR}/tls.key")));
                set("tlsCertWatchIntervalMs", json!(TLS_WATCH_MS));
            }
        }
        Role::Injected => {
            set("shutdownPolicy", json!(spec.injection.shutdown_policy.word()));
            // Nobody but the pod reaches it there.
            set("grpcServerHost", json!("127.0.0.1"));
            set("grpcServerPort", json!(spec.injection.port));
            set("adminServerPort", json!(spec.injection.admin_port));
        }
    }
    Ok(keys)
}

/// Whether a key may be said in `spec.configuration`, and can have this value.
fn check(key: &str, value: &Value) -> Result<(), Invalid> {
    let field = || format!("spec.configuration.{key}");
    if let Some((_, instead)) = ELSEWHERE.iter().find(|(elsewhere, _)| *elsewhere == key) {
        return Err(Invalid::new(field(), format!("cannot be set: {instead}")));
    }
    let Some(known) = Config::keys().into_iter().find(|known| known.name == key) else {
        return Err(Invalid::new(field(), "is unknown: docs/configuration-sidecar.md lists all keys"));
    };
    serde_json::from_value::<Config>(json!({ key: value }))
        .map(drop)
        .map_err(|_error| Invalid::new(field(), format!("cannot be {value}; use {}", known.allowed)))
}

/// The field of the resource that says a key.
fn field(key: &str) -> String {
    match key {
        "namesrvAddr" => "spec.nameServers".to_owned(),
        "grpcShutdownTimeSeconds" => "spec.shutdown.graceSeconds".to_owned(),
        "shutdownNoticeSeconds" => "spec.shutdown.noticeSeconds".to_owned(),
        "batchChangeInvisibleTimeMaxNum" => "spec.batch.maxEntries".to_owned(),
        key if ELSEWHERE.iter().any(|(name, instead)| *name == key && instead.contains("spec.renewal.")) => {
            format!("spec.renewal.{key}")
        }
        key => format!("spec.configuration.{key}"),
    }
}
