//! Configuration of the broker, by upstream's names and with upstream's defaults where upstream has them.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use serde::{Deserialize, Serialize};
use waybill_ops::address;
use waybill_ops::config::{Invalid, Validate};

use crate::limits;

/// When a send, a lease or an acknowledgement is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FlushDiskType {
    /// When it is on disk (`fdatasync`); the default.
    #[serde(rename = "SYNC_FLUSH")]
    Sync,
    /// When the operating system has it; synced every 500 ms. Upstream's default.
    #[serde(rename = "ASYNC_FLUSH")]
    Async,
}

/// What connections to the remoting port may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TlsServerMode {
    /// Plain text.
    Disabled,
    /// TLS if there is a certificate, or plain text: the first byte decides.
    Permissive,
    /// TLS.
    Enforcing,
}

/// The configuration that counts now. Taken once for each piece of work, so that the work sees one state.
pub(crate) type InForce = Arc<ArcSwap<BrokerConfig>>;

/// What a broker is told. Unknown keys are refused by name.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct BrokerConfig {
    /// Name of this broker; part of every receipt handle, so it holds no space and never changes.
    pub broker_name: String,
    /// Name of the cluster this broker belongs to.
    pub broker_cluster_name: String,
    /// Host name or address, IPv4 or IPv6, that clients are told to connect to. A stable DNS name on Kubernetes, never a pod's address.
    #[serde(rename = "brokerIP1")]
    pub broker_host: String,
    /// Address the remoting port binds to: `::` is every one, IPv6 and IPv4, or every one of IPv4 where there is no IPv6; `0.0.0.0` is every one
    /// of IPv4 alone.
    pub bind_address: IpAddr,
    /// Remoting port; 0 takes a free one.
    pub listen_port: u16,
    /// Port announced in routes when it differs from `listenPort` (a port mapping); 0 = the one that is bound.
    pub announced_port: u16,
    /// What connections to the remoting port may be; upstream's `tls.server.mode`. Without a certificate they are plain text.
    pub tls_server_mode: TlsServerMode,
    /// PEM file with the certificate chain of the remoting port, read again when it changes; upstream's `tls.server.certPath`. Empty: none.
    pub tls_server_cert_path: PathBuf,
    /// PEM file with its key, not encrypted, read again when it changes; upstream's `tls.server.keyPath`.
    pub tls_server_key_path: PathBuf,
    /// Address of the admin port (`/healthz`, `/readyz`, `/metrics`, `/config`); absent = none.
    pub admin_listen: Option<SocketAddr>,
    /// Directory of the store.
    pub store_path_root_dir: PathBuf,
    /// `SYNC_FLUSH` or `ASYNC_FLUSH`.
    pub flush_disk_type: FlushDiskType,
    /// Size of one log segment in bytes, 1 MiB to 1 GiB.
    pub mapped_file_size_commit_log: u64,
    /// Bytes of log after which the index is checkpointed.
    pub index_checkpoint_bytes: u64,
    /// Hours after which messages go, 1 to 876000, whether they were consumed or not.
    pub file_reserved_time: u64,
    /// How full the disk may be, in percent, 10 to 100: beyond it the oldest messages go, even if they are younger. 100 = as full as it gets.
    pub disk_max_used_space_ratio: u64,
    /// Bytes that the log may take: beyond it the oldest messages go. 0 = as much as the disk allows; else at least 4 segments.
    pub log_bytes_max: u64,
    /// Create a topic when a message is sent to it.
    pub auto_create_topic_enable: bool,
    /// Message type of topics created so: NORMAL, FIFO, DELAY, TRANSACTION or MIXED.
    pub auto_create_topic_message_type: String,
    /// Create a consumer group when it first asks for messages.
    pub auto_create_subscription_group: bool,
    /// Queues of a topic created on first use, 1 to 1024.
    pub default_topic_queue_nums: u32,
    /// Largest body of a message in bytes, up to 16 MiB less the frame.
    pub max_message_size: usize,
    /// Permission of the broker: 2 write, 4 read, 6 both.
    pub broker_permission: i32,
    /// Names of brokers that take no new messages, whatever `brokerPermission` says: those that are to go. One file can serve several
    /// brokers so.
    pub read_only_brokers: Vec<String>,
    /// Messages of one consumer group and queue that may be in flight (leased) at once; 0 = no limit.
    pub pop_inflight_message_threshold: usize,
    /// Polls and notifications that may wait at once for one consumer group and topic.
    pub pop_polling_size: usize,
    /// Polls and notifications that may wait at once in the whole broker.
    pub max_pop_polling_size: usize,
    /// Entries of one BATCH_ACK_MESSAGE or BATCH_CHANGE_MESSAGE_INVISIBLETIME, 1 to 16384; a longer batch is refused whole.
    pub batch_max_entries: usize,
    /// Milliseconds after which a client that sends no heartbeat is forgotten.
    pub channel_expired_timeout: u64,
    /// Milliseconds after which what a client holds is given back if no sidecar has vouched for it, 3000 to 86400000; 0 = never.
    pub client_gone_after: u64,
    /// How late a delayed message may be, in milliseconds, 1 to 60000: messages are moved to their queues at multiples of half of it.
    pub timer_precision_ms: u64,
    /// How far ahead a message may be delayed, in seconds, up to ten years.
    pub timer_max_delay_sec: u64,
    /// Milliseconds after which the producer of an open transaction is first asked about it, 1 to 86400000; a message may say otherwise.
    pub transaction_time_out: u64,
    /// Milliseconds from one question about an open transaction to the next, 1 to 86400000.
    pub transaction_check_interval: u64,
    /// Questions about one transaction, 1 to 1000; with none answered it is rolled back, and its message is kept in TRANS_CHECK_MAX_TIME_TOPIC.
    pub transaction_check_max: u32,
    /// Milliseconds after which a transaction is rolled back in the same way though no producer could be asked, 1000 to 2592000000.
    pub transaction_give_up_after: u64,
    /// Seconds a stopping broker waits for requests in hand.
    pub shutdown_grace_seconds: u64,
}

impl Default for BrokerConfig {
    fn default() -> Self {
        Self {
            broker_name: "broker-a".into(),
            broker_cluster_name: "DefaultCluster".into(),
            broker_host: "127.0.0.1".into(),
            bind_address: IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            listen_port: 10911,
            announced_port: 0,
            tls_server_mode: TlsServerMode::Permissive,
            tls_server_cert_path: PathBuf::new(),
            tls_server_key_path: PathBuf::new(),
            admin_listen: Some(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 10915))),
            store_path_root_dir: PathBuf::from("data"),
            flush_disk_type: FlushDiskType::Sync,
            mapped_file_size_commit_log: 64 << 20,
            index_checkpoint_bytes: 64 << 20,
            file_reserved_time: 72,
            disk_max_used_space_ratio: 75,
            log_bytes_max: 0,
            auto_create_topic_enable: false,
            auto_create_topic_message_type: "NORMAL".into(),
            auto_create_subscription_group: false,
            default_topic_queue_nums: 8,
            max_message_size: 4 << 20,
            broker_permission: 6,
            read_only_brokers: Vec::new(),
            pop_inflight_message_threshold: 10_000,
            pop_polling_size: 1024,
            max_pop_polling_size: 100_000,
            batch_max_entries: 1024,
            channel_expired_timeout: 120_000,
            client_gone_after: 30_000,
            timer_precision_ms: 1_000,
            timer_max_delay_sec: 3 * 86_400,
            transaction_time_out: 6_000,
            transaction_check_interval: 30_000,
            transaction_check_max: 15,
            transaction_give_up_after: 3 * 86_400_000,
            shutdown_grace_seconds: 10,
        }
    }
}

/// Keys whose change counts at once, by their names in the file.
pub const DYNAMIC: [&str; 16] = [
    "autoCreateSubscriptionGroup",
    "autoCreateTopicEnable",
    "autoCreateTopicMessageType",
    "batchMaxEntries",
    "brokerPermission",
    "defaultTopicQueueNums",
    "diskMaxUsedSpaceRatio",
    "fileReservedTime",
    "logBytesMax",
    "maxMessageSize",
    "maxPopPollingSize",
    "popInflightMessageThreshold",
    "popPollingSize",
    "readOnlyBrokers",
    "timerMaxDelaySec",
    "tlsServerMode",
];

impl BrokerConfig {
    /// This configuration with the [`DYNAMIC`] keys of `file`.
    #[must_use]
    pub fn with_dynamic_keys_of(&self, file: &Self) -> Self {
        Self {
            auto_create_subscription_group: file.auto_create_subscription_group,
            auto_create_topic_enable: file.auto_create_topic_enable,
            auto_create_topic_message_type: file.auto_create_topic_message_type.clone(),
            batch_max_entries: file.batch_max_entries,
            broker_permission: file.broker_permission,
            default_topic_queue_nums: file.default_topic_queue_nums,
            disk_max_used_space_ratio: file.disk_max_used_space_ratio,
            file_reserved_time: file.file_reserved_time,
            log_bytes_max: file.log_bytes_max,
            max_message_size: file.max_message_size,
            max_pop_polling_size: file.max_pop_polling_size,
            pop_inflight_message_threshold: file.pop_inflight_message_threshold,
            pop_polling_size: file.pop_polling_size,
            read_only_brokers: file.read_only_brokers.clone(),
            timer_max_delay_sec: file.timer_max_delay_sec,
            tls_server_mode: file.tls_server_mode,
            ..self.clone()
        }
    }

    fn check_tls(&self) -> Result<(), Invalid> {
        let said = |path: &PathBuf| !path.as_os_str().is_empty();
        let both = "; set both or neither";
        match (said(&self.tls_server_cert_path), said(&self.tls_server_key_path)) {
            (true, false) => {
                Err(Invalid::new("tlsServerCertPath", format!("needs tlsServerKeyPath, which is not set{both}")))
            }
            (false, true) => {
                Err(Invalid::new("tlsServerKeyPath", format!("needs tlsServerCertPath, which is not set{both}")))
            }
            (false, false) if self.tls_server_mode == TlsServerMode::Enforcing => {
                Err(Invalid::new("tlsServerMode", "is enforcing, which needs tlsServerCertPath and tlsServerKeyPath"))
            }
            _fits => Ok(()),
        }
    }

    /// The keys of `file` that are other than these and count only after a restart.
    #[must_use]
    pub fn needs_restart(&self, file: &Self) -> Vec<String> {
        let values = |config: &Self| serde_json::to_value(config).unwrap_or_default();
        let (here, there) = (values(&self.with_dynamic_keys_of(file)), values(file));
        let keys = there.as_object().into_iter().flatten();
        keys.filter(|(key, value)| here.get(key.as_str()) != Some(value)).map(|(key, _)| key.clone()).collect()
    }
}

impl Validate for BrokerConfig {
    fn validate(&self) -> Result<(), Invalid> {
        let within = |key: &str, value: u64, low: u64, high: u64| {
            if (low..=high).contains(&value) {
                Ok(())
            } else {
                Err(Invalid::new(key, format!("is {value}, allowed are {low} to {high}")))
            }
        };
        for (key, name) in [("brokerName", &self.broker_name), ("brokerClusterName", &self.broker_cluster_name)] {
            let legal = !name.is_empty()
                && name.len() <= 127
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
            if !legal {
                return Err(Invalid::new(
                    key,
                    format!("is {name:?}, allowed are 1 to 127 letters, digits, '-', '_' and '.'"),
                ));
            }
        }
        // Whoever is told of a route has to read the host there.
        if address::check(&address::with_port(&self.broker_host, 1)).is_err() {
            return Err(Invalid::new(
                "brokerIP1",
                format!("is {:?}, expected a host name or an address", self.broker_host),
            ));
        }
        self.check_tls()?;
        within("mappedFileSizeCommitLog", self.mapped_file_size_commit_log, 1 << 20, 1 << 30)?;
        within("indexCheckpointBytes", self.index_checkpoint_bytes, 64 << 10, 1 << 34)?;
        within("fileReservedTime", self.file_reserved_time, 1, 876_000)?;
        within("diskMaxUsedSpaceRatio", self.disk_max_used_space_ratio, 10, 100)?;
        if self.log_bytes_max != 0 {
            within("logBytesMax", self.log_bytes_max, 4 * self.mapped_file_size_commit_log, 1 << 60)?;
        }
        within("defaultTopicQueueNums", u64::from(self.default_topic_queue_nums), 1, 1024)?;
        within(
            "maxMessageSize",
            self.max_message_size as u64,
            1,
            (15 << 20).min(self.mapped_file_size_commit_log / 2),
        )?;
        within("popPollingSize", self.pop_polling_size as u64, 1, 1 << 20)?;
        within("maxPopPollingSize", self.max_pop_polling_size as u64, 1, 1 << 24)?;
        within("batchMaxEntries", self.batch_max_entries as u64, 1, limits::BATCH_ENTRIES_MAX)?;
        within("channelExpiredTimeout", self.channel_expired_timeout, 1_000, 86_400_000)?;
        if self.client_gone_after != 0 {
            within("clientGoneAfter", self.client_gone_after, 3_000, 86_400_000)?;
        }
        within("timerPrecisionMs", self.timer_precision_ms, 1, 60_000)?;
        within("timerMaxDelaySec", self.timer_max_delay_sec, 1, 10 * 365 * 86_400)?;
        within("transactionTimeOut", self.transaction_time_out, 1, 86_400_000)?;
        within("transactionCheckInterval", self.transaction_check_interval, 1, 86_400_000)?;
        within("transactionCheckMax", u64::from(self.transaction_check_max), 1, 1_000)?;
        within("transactionGiveUpAfter", self.transaction_give_up_after, 1_000, 30 * 86_400_000)?;
        within("shutdownGraceSeconds", self.shutdown_grace_seconds, 0, 3_600)?;
        if !matches!(self.broker_permission, 0 | 2 | 4 | 6) {
            let reason = format!("is {}, allowed are 0, 2 (write), 4 (read) and 6", self.broker_permission);
            return Err(Invalid::new("brokerPermission", reason));
        }
        let kind = self.auto_create_topic_message_type.as_str();
        if !["NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"].contains(&kind) {
            let reason = format!("is {kind:?}, allowed are NORMAL, FIFO, DELAY, TRANSACTION and MIXED");
            return Err(Invalid::new("autoCreateTopicMessageType", reason));
        }
        Ok(())
    }
}
