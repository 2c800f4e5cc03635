//! Every key of the configuration: name, default, range, unit, and whether a change takes effect without a restart.
//!
//! One table makes the struct, the defaults, the validation and the documentation page, so they cannot disagree.

use serde::{Deserialize, Serialize};

use crate::receipts::{DEFAULT_MAX_HANDLES, DEFAULT_MAX_HANDLES_PER_CLIENT, MAX_HANDLES};

use super::key::{Allowed, Effect, Key, ShutdownPolicy, Value, address_list, any_text};

const SECOND: i64 = 1_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const KIB: i64 = 1_024;
const MIB: i64 = 1_024 * KIB;

macro_rules! keys {
    ($( $(#[doc = $doc:literal])+ $field:ident: $type:ty = $name:literal, $default:expr, $allowed:expr, $unit:literal, $effect:ident; )*) => {
        /// The configuration of a sidecar. Field names are upstream's where upstream has the key.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Config {
            $( $(#[doc = $doc])+ #[serde(rename = $name)] pub $field: $type, )*
        }

        impl Default for Config {
            fn default() -> Self {
                Self { $( $field: $default.into(), )* }
            }
        }

        impl Config {
            /// All keys, in the order of the documentation.
            #[must_use]
            pub fn keys() -> Vec<Key> {
                vec![ $( Key {
                    name: $name,
                    default: Value::from(<$type>::from($default)),
                    allowed: $allowed,
                    unit: $unit,
                    effect: Effect::$effect,
                    doc: concat!($($doc),+),
                }, )* ]
            }

            /// The values, in the order of [`Config::keys`].
            #[must_use]
            pub fn values(&self) -> Vec<Value> {
                vec![ $( Value::from(self.$field.clone()), )* ]
            }

            /// This configuration with the keys that need a restart taken from `running`.
            #[must_use]
            pub fn with_restart_keys_of(mut self, running: &Self) -> Self {
                $( if Effect::$effect == Effect::Restart { self.$field.clone_from(&running.$field); } )*
                self
            }
        }
    };
}

const ANY_COUNT: Allowed = Allowed::Number(1, 1_000_000);
/// What can be addressed.
const HANDLES: Allowed = Allowed::Number(1, MAX_HANDLES as i64);
/// Zero or less switches the check off, as upstream has it.
const LIMIT: Allowed = Allowed::Number(-1, i32::MAX as i64);

keys! {
    /// Where to ask for routes: `host:port`, an IPv6 address in brackets, several separated by `;` or `,`. Name servers and
    /// Waybill brokers alike; every one is asked.
    namesrv_addr: String = "namesrvAddr", "", Allowed::Text(address_list, "at least one host:port"), "", Dynamic;
    /// The cluster whose brokers are asked for a consumer group of which no topic is known.
    cluster_name: String = "rocketMQClusterName", "DefaultCluster", Allowed::Text(any_text, "a name"), "", Dynamic;
    /// The address that gRPC clients connect to. `::` is every address, IPv6 and IPv4, or every one of IPv4 where there is no IPv6;
    /// `0.0.0.0` is every one of IPv4 alone.
    grpc_server_host: String = "grpcServerHost", "::", Allowed::Text(super::key::ip_address, "an IP address"), "", Restart;
    /// The port that gRPC clients connect to, with TLS or without. 0 takes any free one.
    grpc_server_port: i64 = "grpcServerPort", 8081, Allowed::Number(0, 65_535), "", Restart;
    /// The address of the admin port (health, metrics, effective configuration), as `grpcServerHost` has it.
    admin_server_host: String = "adminServerHost", "::", Allowed::Text(super::key::ip_address, "an IP address"), "", Restart;
    /// The admin port. 0 takes any free one.
    admin_server_port: i64 = "adminServerPort", 8082, Allowed::Number(0, 65_535), "", Restart;

    /// Without a certificate, serve TLS with a self-signed one made at start. The official clients accept it.
    tls_test_mode_enable: bool = "tlsTestModeEnable", true, Allowed::Bool, "", Restart;
    /// PEM file with the certificate chain. Read again when it changes. Empty: see `tlsTestModeEnable`.
    tls_cert_path: String = "tlsCertPath", "", Allowed::Text(any_text, "a path"), "", Restart;
    /// PEM file with the private key, not encrypted. Read again when it changes.
    tls_key_path: String = "tlsKeyPath", "", Allowed::Text(any_text, "a path"), "", Restart;
    /// How often to look whether the certificate has changed.
    tls_cert_watch_interval_ms: i64 = "tlsCertWatchIntervalMs", HOUR, Allowed::Number(SECOND, DAY), "ms", Restart;
    /// A connection that does not come to speak HTTP/2 by then, TLS handshake included, is closed.
    tls_handshake_timeout_ms: i64 = "tlsHandshakeTimeoutMillis", 10 * SECOND, Allowed::Number(100, 5 * MINUTE), "ms", Restart;

    /// Ask every client for the credentials of a user: access-control.md.
    authentication_enabled: bool = "authenticationEnabled", false, Allowed::Bool, "", Restart;
    /// Let users do only what they have a permission for. Needs `authenticationEnabled`.
    authorization_enabled: bool = "authorizationEnabled", false, Allowed::Bool, "", Dynamic;
    /// YAML file with the users, their secret keys and permissions. Read again when it changes.
    users_file_path: String = "usersFilePath", "", Allowed::Text(any_text, "a path"), "", Restart;

    /// Connections from clients at the same time. More are closed at once.
    grpc_max_connections: i64 = "grpcMaxConnections", 10_000, ANY_COUNT, "", Restart;
    /// TLS handshakes at the same time; more wait.
    tls_max_concurrent_handshakes: i64 = "tlsMaxConcurrentHandshakes", 256, ANY_COUNT, "", Restart;
    /// Calls in progress on one connection.
    grpc_max_concurrent_calls_per_connection: i64 = "grpcMaxConcurrentCallsPerConnection", 10_000, ANY_COUNT, "", Restart;
    /// The largest request.
    grpc_max_inbound_message_size: i64 = "grpcMaxInboundMessageSize", 130 * MIB, Allowed::Number(KIB, 1_024 * MIB), "bytes", Restart;
    /// A connection that is silent for so long is pinged, and closed if there is no answer within 20 s.
    grpc_client_idle_time_ms: i64 = "grpcClientIdleTimeMills", 120 * SECOND, Allowed::Number(5 * SECOND, DAY), "ms", Restart;
    /// How long stopping may take after SIGTERM. For three quarters of it clients may still acknowledge what they hold;
    /// nothing new is given out. Then calls in progress are finished.
    grpc_shutdown_time_seconds: i64 = "grpcShutdownTimeSeconds", 10, Allowed::Number(0, 3_600), "s", Dynamic;
    /// After SIGTERM: for how long it goes on as before but says that it is not ready, for whatever sends clients here to notice. In
    /// addition to `grpcShutdownTimeSeconds`; nothing beside an application, which has nobody between.
    shutdown_notice_seconds: i64 = "shutdownNoticeSeconds", 0, Allowed::Number(0, 3_600), "s", Dynamic;
    /// What becomes of the messages that clients still hold then. `leave`: they stay with the clients until their invisible
    /// duration ends, to be acknowledged through another sidecar. `release`: they are given to others at once, for clients
    /// that stop together with the sidecar.
    shutdown_policy: ShutdownPolicy = "shutdownPolicy", ShutdownPolicy::Leave, Allowed::OneOf(&ShutdownPolicy::WORDS), "", Dynamic;
    /// Answer routes with the port the client used instead of `grpcServerPort`.
    use_endpoint_port_from_request: bool = "useEndpointPortFromRequest", false, Allowed::Bool, "", Dynamic;

    /// The largest message body. 0 or less: no limit here.
    max_message_size: i64 = "maxMessageSize", 4 * MIB, LIMIT, "bytes", Dynamic;
    /// Refuse messages without a body.
    enable_message_body_empty_check: bool = "enableMessageBodyEmptyCheck", true, Allowed::Bool, "", Dynamic;
    /// Sum of the bytes of a message's user properties, tag and keys. 0 or less: no limit here.
    max_user_property_size: i64 = "maxUserPropertySize", 16 * KIB, LIMIT, "bytes", Dynamic;
    /// User properties of a message. 0 or less: no limit here.
    user_property_max_num: i64 = "userPropertyMaxNum", 128, LIMIT, "", Dynamic;
    /// A message group must be shorter than this. 0 or less: no limit here.
    max_message_group_size: i64 = "maxMessageGroupSize", 64, LIMIT, "bytes", Dynamic;
    /// How far ahead a message may be delayed. 0 or less: no limit here.
    max_delay_time_ms: i64 = "maxDelayTimeMills", DAY, Allowed::Number(-1, 10 * 365 * DAY), "ms", Dynamic;
    /// The longest time a client may ask for before its transaction is checked. 0 or less: no limit here.
    max_transaction_recovery_seconds: i64 = "maxTransactionRecoverySecond", 3_600, LIMIT, "s", Dynamic;
    /// Refuse messages whose type is not the topic's.
    enable_topic_message_type_check: bool = "enableTopicMessageTypeCheck", true, Allowed::Bool, "", Dynamic;

    /// Told to producers: how often they try to send a message.
    grpc_client_producer_max_attempts: i64 = "grpcClientProducerMaxAttempts", 3, Allowed::Number(1, 100), "", Dynamic;
    /// Told to producers: the first wait between two attempts.
    grpc_client_producer_backoff_initial_ms: i64 = "grpcClientProducerBackoffInitialMillis", 10, Allowed::Number(1, HOUR), "ms", Dynamic;
    /// Told to producers: the longest wait between two attempts.
    grpc_client_producer_backoff_max_ms: i64 = "grpcClientProducerBackoffMaxMillis", SECOND, Allowed::Number(1, HOUR), "ms", Dynamic;
    /// Told to producers: each wait is so many times the one before.
    grpc_client_producer_backoff_multiplier: i64 = "grpcClientProducerBackoffMultiplier", 2, Allowed::Number(1, 100), "", Dynamic;

    /// The shortest long poll.
    grpc_client_consumer_min_long_polling_timeout_ms: i64 =
        "grpcClientConsumerMinLongPollingTimeoutMillis", 5 * SECOND, Allowed::Number(0, 10 * MINUTE), "ms", Dynamic;
    /// The longest long poll.
    grpc_client_consumer_max_long_polling_timeout_ms: i64 =
        "grpcClientConsumerMaxLongPollingTimeoutMillis", 20 * SECOND, Allowed::Number(0, 10 * MINUTE), "ms", Dynamic;
    /// The most messages of one receive.
    grpc_client_consumer_long_polling_batch_size: i64 = "grpcClientConsumerLongPollingBatchSize", 32, Allowed::Number(1, 32), "", Dynamic;
    /// A long poll ends so much before the call's deadline, for the answer to arrive in time.
    long_polling_reserve_time_ms: i64 = "longPollingReserveTimeInMillis", 100, Allowed::Number(0, 10 * SECOND), "ms", Dynamic;
    /// The shortest invisible duration that a receive may ask for.
    min_invisible_time_ms_for_recv: i64 = "minInvisibleTimeMillsForRecv", 10 * SECOND, Allowed::Number(0, DAY), "ms", Dynamic;
    /// The longest invisible duration that may be asked for.
    max_invisible_time_ms: i64 = "maxInvisibleTimeMills", 12 * HOUR, Allowed::Number(SECOND, 365 * DAY), "ms", Dynamic;

    /// Keep the messages of clients that ask for it invisible for as long as the client works on them.
    enable_proxy_auto_renew: bool = "enableProxyAutoRenew", true, Allowed::Bool, "", Dynamic;
    /// Renew for gRPC clients. When false, their messages are taken for the group's `consumeTimeoutMinute` and not
    /// renewed.
    enable_grpc_channel_receipt_handle_renew: bool = "enableGrpcChannelReceiptHandleRenew", true, Allowed::Bool, "", Dynamic;
    /// The invisible duration at the receive, of messages that are renewed.
    default_invisible_time_ms: i64 = "defaultInvisibleTimeMills", MINUTE, Allowed::Number(SECOND, DAY), "ms", Dynamic;
    /// Renew so much before a message would become visible.
    renew_ahead_time_ms: i64 = "renewAheadTimeMillis", 10 * SECOND, Allowed::Number(0, HOUR), "ms", Dynamic;
    /// Stop renewing so long after the receive.
    renew_max_time_ms: i64 = "renewMaxTimeMillis", 3 * HOUR, Allowed::Number(0, 365 * DAY), "ms", Dynamic;
    /// Give a message up after so many failed renewals in a row.
    max_renew_retry_times: i64 = "maxRenewRetryTimes", 3, Allowed::Number(0, 1_000), "", Dynamic;
    /// Messages of a client that left become visible again after this.
    invisible_time_ms_when_clear: i64 = "invisibleTimeMillisWhenClear", SECOND, Allowed::Number(0, HOUR), "ms", Dynamic;
    /// The most messages that are kept for all clients together. Over it the messages with the latest deadline are no
    /// longer renewed, nor returned when their client leaves: their leases end by themselves. The log says so.
    receipt_handle_max_num: i64 = "receiptHandleMaxNum", i64::from(DEFAULT_MAX_HANDLES), HANDLES, "", Dynamic;
    /// The same, for one client.
    receipt_handle_max_num_per_client: i64 =
        "receiptHandleMaxNumPerClient", i64::from(DEFAULT_MAX_HANDLES_PER_CLIENT), HANDLES, "", Dynamic;
    /// A client that has not been heard for so long is gone.
    channel_expired_timeout_ms: i64 = "channelExpiredTimeout", 120 * SECOND, Allowed::Number(SECOND, DAY), "ms", Dynamic;

    /// Acknowledge many messages with one request to a broker, where that gives a result for each.
    enable_batch_ack: bool = "enableBatchAck", false, Allowed::Bool, "", Dynamic;
    /// Change the invisible duration of many messages with one request to a broker. Brokers that cannot are asked one
    /// by one.
    enable_batch_change_invisible_time: bool = "enableBatchChangeInvisibleTime", false, Allowed::Bool, "", Dynamic;
    /// The most entries of one such request, whether acks or changes. A broker that takes fewer is sent fewer.
    batch_change_invisible_time_max_num: i64 = "batchChangeInvisibleTimeMaxNum", 1_024, Allowed::Number(1, 10_000), "", Dynamic;
    /// A broker that could not is asked again after this, or when it was reached by a new connection.
    batch_probe_interval_ms: i64 = "batchProbeIntervalMillis", 10 * MINUTE, Allowed::Number(SECOND, 365 * DAY), "ms", Dynamic;

    /// A route that could not be refreshed for so long is no longer used.
    topic_route_service_cache_expired_seconds: i64 = "topicRouteServiceCacheExpiredSeconds", 300, Allowed::Number(1, 86_400), "s", Dynamic;
    /// A route is asked for again when it is used and so old.
    topic_route_service_cache_refresh_seconds: i64 = "topicRouteServiceCacheRefreshSeconds", 20, Allowed::Number(1, 86_400), "s", Dynamic;
    /// The most routes remembered.
    topic_route_service_cache_max_num: i64 = "topicRouteServiceCacheMaxNum", 20_000, ANY_COUNT, "", Restart;
    /// Settings of a topic that could not be refreshed for so long are no longer used.
    topic_config_cache_expired_seconds: i64 = "topicConfigCacheExpiredSeconds", 300, Allowed::Number(1, 86_400), "s", Dynamic;
    /// Settings of a topic are asked for again when they are used and so old.
    topic_config_cache_refresh_seconds: i64 = "topicConfigCacheRefreshSeconds", 5, Allowed::Number(1, 86_400), "s", Dynamic;
    /// The most topics whose settings are remembered.
    topic_config_cache_max_num: i64 = "topicConfigCacheMaxNum", 20_000, ANY_COUNT, "", Restart;
    /// Settings of a consumer group that could not be refreshed for so long are no longer used.
    subscription_group_config_cache_expired_seconds: i64 =
        "subscriptionGroupConfigCacheExpiredSeconds", 300, Allowed::Number(1, 86_400), "s", Dynamic;
    /// Settings of a consumer group are asked for again when they are used and so old.
    subscription_group_config_cache_refresh_seconds: i64 =
        "subscriptionGroupConfigCacheRefreshSeconds", 3, Allowed::Number(1, 86_400), "s", Dynamic;
    /// The most consumer groups whose settings are remembered.
    subscription_group_config_cache_max_num: i64 = "subscriptionGroupConfigCacheMaxNum", 20_000, ANY_COUNT, "", Restart;

    /// Speak TLS with brokers and name servers (upstream's `tls.enable`); for connections that are made from then on. What clients speak does
    /// not depend on it.
    tls_enable: bool = "tlsEnable", false, Allowed::Bool, "", Dynamic;
    /// PEM file with the authorities whose brokers are believed, if their certificate is for the name or address they are reached by. Read
    /// again when it changes. Empty: every broker is believed, as upstream's clients do.
    tls_client_trust_cert_path: String = "tlsClientTrustCertPath", "", Allowed::Text(any_text, "a path"), "", Dynamic;
    /// YAML file with `accessKey` and `secretKey`, for brokers that ask who calls: Apache's with access control. Read again when it
    /// changes.
    broker_credentials_path: String = "brokerCredentialsPath", "", Allowed::Text(any_text, "a path"), "", Restart;
    /// How long a connection to a broker may take to be made.
    backend_connect_timeout_ms: i64 = "backendConnectTimeoutMillis", 1_500, Allowed::Number(10, MINUTE), "ms", Restart;
    /// How long a broker may take to answer, long polls aside.
    backend_request_timeout_ms: i64 = "backendRequestTimeoutMillis", 2 * SECOND, Allowed::Number(10, 10 * MINUTE), "ms", Dynamic;
    /// Requests to one broker that wait for their answer at the same time; more are refused as busy.
    backend_max_in_flight_requests: i64 = "backendMaxInFlightRequests", 65_536, ANY_COUNT, "", Restart;
    /// Acks and changes that are sent one by one: requests to one broker at the same time. More wait.
    backend_fallback_concurrency: i64 = "backendFallbackConcurrency", 256, Allowed::Number(1, 10_000), "", Dynamic;
    /// The largest frame that is accepted from a broker; a larger one closes the connection.
    backend_max_frame_size: i64 = "backendMaxFrameSize", 160 * MIB, Allowed::Number(MIB, 1_024 * MIB), "bytes", Restart;
}
