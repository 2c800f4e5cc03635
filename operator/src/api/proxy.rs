//! Proxy: sidecars that clients share, and the template of those that are injected into pods.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{BrokerRef, Condition, ImagePullPolicy, PodOverrides, PodState, Resources, Told};

/// Sidecars that clients share, and the template of those that are injected into pods.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "waybill.dev",
    version = "v1alpha1",
    kind = "Proxy",
    plural = "proxies",
    shortname = "wproxy",
    category = "waybill",
    namespaced,
    status = "ProxyStatus",
    derive = "PartialEq",
    doc = "Sidecars that clients share, and the template of those that are injected into pods.",
    validation = Rule::new("self.metadata.name.matches('^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$')")
        .message("the name is 1 to 40 letters, digits and '-', and begins with a letter: the name of a Service is made of it"),
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Broker", type_ = "string", json_path = ".spec.brokerRef.name"),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(name = "Pods Ready", type_ = "integer", json_path = ".status.readyReplicas"),
    printcolumn(name = "Injected", type_ = "integer", json_path = ".status.injected.count"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.brokerRef) != has(self.nameServers)")
    .message("there is brokerRef or nameServers, and not both"))]
pub struct ProxySpec {
    /// How many proxies there are; 0 if sidecars are only injected. With `autoscaling` it does not count.
    #[serde(default = "replicas")]
    #[schemars(range(min = 0, max = 500))]
    pub replicas: i32,
    /// The image of the sidecar, for the proxies and for what is injected; if absent, the one of the operator's option
    /// --sidecar-image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub image: Option<String>,
    /// When the image is pulled; if absent, as the operator's option --image-pull-policy says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<ImagePullPolicy>,
    /// The brokers behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broker_ref: Option<BrokerRef>,
    /// Name servers of Apache RocketMQ, or brokers that are not of this cluster, each host:port. Every one is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32), inner(length(max = 255), regex(pattern = r"^[^\s;,]+:[0-9]{1,5}$")))]
    pub name_servers: Option<Vec<String>>,
    /// The Service that clients connect to.
    #[serde(default)]
    pub service: ProxyService,
    /// The number of proxies follows their use of CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscaling: Option<Autoscaling>,
    /// How the messages of push consumers are kept invisible while they are worked on.
    #[serde(default)]
    pub renewal: Renewal,
    /// Many acks or changes of the invisible duration in one request to a broker.
    #[serde(default)]
    pub batch: Batch,
    /// What a proxy does when it is told to stop.
    #[serde(default)]
    pub shutdown: Shutdown,
    /// Further configuration by the names of docs/configuration-sidecar.md. Keys that the operator decides or that have a field of
    /// their own here, unknown keys, and values out of range are refused by name in the conditions.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "super::schema::any_object")]
    pub configuration: Map<String, Value>,
    /// The certificate of the proxies. If absent, each makes one that it signs itself, and takes plain text too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ProxyTls>,
    /// Whether clients are asked who they are, and held to what they may do: the kind User.
    #[serde(default)]
    pub access_control: AccessControl,
    /// What a proxy's container asks for and may have.
    #[serde(default)]
    pub resources: Resources,
    /// What else is said of the pods.
    #[serde(default)]
    pub pod: PodOverrides,
    /// The sidecar in pods with the label `waybill.dev/inject` and the name of this Proxy.
    #[serde(default)]
    pub injection: Injection,
}

/// Whether clients are asked who they are, and held to what they may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccessControl {
    /// Only Users are let in. A change rolls the proxies.
    #[serde(default)]
    pub authentication: bool,
    /// Users may do only what they have a permission for. Without `authentication` it does not count.
    #[serde(default = "yes")]
    pub authorization: bool,
}

impl Default for AccessControl {
    fn default() -> Self {
        Self { authentication: false, authorization: yes() }
    }
}

impl Proxy {
    /// Whether only Users are let in.
    #[must_use]
    pub fn asks_for_users(&self) -> bool {
        self.spec.access_control.authentication
    }

    /// Whether its injected sidecars in this other namespace may have its users.
    #[must_use]
    pub fn shares_users_with(&self, namespace: &str) -> bool {
        let home = self.metadata.namespace.as_deref().unwrap_or_default();
        self.spec.injection.share_users && self.spec.injection.allows(home, namespace)
    }
}

/// The Service that clients connect to, port 8081.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyService {
    /// From where it can be reached.
    #[serde(rename = "type")]
    pub kind: ServiceType,
    /// Annotations, for load balancers above all.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// From where a Service can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum ServiceType {
    /// From within the cluster.
    #[default]
    #[serde(rename = "ClusterIP")]
    ClusterIp,
    /// At a port of each node too.
    NodePort,
    /// By a load balancer too.
    LoadBalancer,
}

/// How many proxies there are, by their use of CPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.minReplicas <= self.maxReplicas").message("minReplicas is at most maxReplicas"))]
pub struct Autoscaling {
    /// The fewest.
    #[serde(default = "min_replicas")]
    #[schemars(range(min = 1, max = 500))]
    pub min_replicas: i32,
    /// The most.
    #[schemars(range(min = 1, max = 500))]
    pub max_replicas: i32,
    /// The use of CPU to aim at, percent of what is requested: `resources.requests.cpu`, or 100m.
    #[serde(default = "cpu_percent")]
    #[schemars(range(min = 1, max = 1000))]
    pub cpu_percent: i32,
}

/// How the messages of push consumers are kept invisible while they are worked on. What is absent is as
/// docs/configuration-sidecar.md says; a ConsumerGroup may have values of its own.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Renewal {
    /// Keep the messages of clients that ask for it invisible for as long as the client works on them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_proxy_auto_renew: Option<bool>,
    /// Renew for gRPC clients. When false, their messages are taken for the whole time to consume and not renewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_grpc_channel_receipt_handle_renew: Option<bool>,
    /// The invisible duration at the receive of messages that are renewed, milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1_000, max = 86_400_000))]
    pub default_invisible_time_mills: Option<i64>,
    /// Renew so much before a message would become visible, milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 3_600_000))]
    pub renew_ahead_time_millis: Option<i64>,
    /// Stop renewing so long after the receive, milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 31_536_000_000_i64))]
    pub renew_max_time_millis: Option<i64>,
    /// Give a message up after so many failed renewals in a row.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000))]
    pub max_renew_retry_times: Option<i64>,
}

/// Many acks or changes of the invisible duration in one request to a broker. What is absent is as
/// docs/configuration-sidecar.md says.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Batch {
    /// Acknowledge many messages with one request, where the broker gives a result for each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_batch_ack: Option<bool>,
    /// Change the invisible duration of many messages with one request. Brokers that cannot are asked one by one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_batch_change_invisible_time: Option<bool>,
    /// The most entries of one request: batchChangeInvisibleTimeMaxNum.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub max_entries: Option<i64>,
}

/// What a proxy does when it is told to stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Shutdown {
    /// What becomes of the messages that clients hold then.
    #[serde(default)]
    pub policy: ShutdownPolicy,
    /// How long it may take, seconds: grpcShutdownTimeSeconds. Pods get a little more.
    #[serde(default = "grace_seconds")]
    #[schemars(range(min = 0, max = 3_600))]
    pub grace_seconds: i64,
    /// For how long a pod goes on before that, not ready any more, seconds: shutdownNoticeSeconds. Whatever sends clients to it has so long to notice: a
    /// Service needs about 4, a load balancer its own interval. Injected sidecars have none.
    #[serde(default = "notice_seconds")]
    #[schemars(range(min = 0, max = 600))]
    pub notice_seconds: i64,
}

/// What becomes of the messages that clients hold when their sidecar stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum ShutdownPolicy {
    /// They stay with the clients, which acknowledge them through another proxy.
    #[default]
    Leave,
    /// They are given to others at once.
    Release,
}

impl ShutdownPolicy {
    /// As the configuration has it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Leave => "leave",
            Self::Release => "release",
        }
    }
}

/// The certificate of the proxies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxyTls {
    /// A Secret of the namespace with `tls.crt` and `tls.key`, such as cert-manager makes. A new certificate is taken
    /// within a minute of its arrival in the pod.
    #[schemars(length(min = 1, max = 253))]
    pub secret_name: String,
}

/// The sidecar in pods with the label `waybill.dev/inject` and the name of the Proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.port != self.adminPort").message("port and adminPort differ"))]
pub struct Injection {
    /// Whether pods get it.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Other namespaces whose pods may have it too, if they have the label `waybill.dev/inject-namespace` with the namespace
    /// of the Proxy; `*` for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 256),
        inner(length(min = 1, max = 63), regex(pattern = r"^(\*|[a-z0-9]([-a-z0-9]*[a-z0-9])?)$"))
    )]
    pub namespaces: Vec<String>,
    /// Whether those namespaces get the users of the Proxy with their secret keys, which sidecars there need if they are to ask who
    /// calls (accessControl). Whoever may read Secrets, or make pods, in one of them can then act as any of these users.
    #[serde(default)]
    pub share_users: bool,
    /// The port that applications find it at, on 127.0.0.1 of their pod.
    #[serde(default = "port")]
    #[schemars(range(min = 1, max = 65_535))]
    pub port: i32,
    /// The port of its probes and metrics.
    #[serde(default = "admin_port")]
    #[schemars(range(min = 1, max = 65_535))]
    pub admin_port: i32,
    /// What becomes of the messages that the application still holds when the pod stops.
    #[serde(default = "release")]
    pub shutdown_policy: ShutdownPolicy,
    /// What its container asks for and may have.
    #[serde(default)]
    pub resources: Resources,
}

/// How far the proxies and the injected sidecars are there.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyStatus {
    /// The generation of the resource that all of this is about.
    pub observed_generation: i64,
    /// How many proxies there are, ready or not.
    pub replicas: i32,
    /// How many of them are ready.
    pub ready_replicas: i32,
    /// How many of them have the pod that the resource asks for now.
    pub updated_replicas: i32,
    /// The labels of the pods, as `kubectl get pods -l` takes them.
    pub selector: String,
    /// The hash of the configuration that all proxies are to have.
    pub configuration: String,
    /// Each proxy; of many, those first that have not the configuration yet.
    #[schemars(schema_with = "super::schema::pods")]
    pub pods: Vec<PodState>,
    /// The injected sidecars.
    pub injected: InjectedStatus,
    /// Ready, Progressing and Degraded.
    #[schemars(schema_with = "super::schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// The injected sidecars.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct InjectedStatus {
    /// How many running pods have one.
    pub count: i32,
    /// How many of them were seen to have the configuration.
    pub applied: i32,
    /// The hash of the configuration that all of them are to have.
    pub configuration: String,
    /// Pods, as `namespace/name`; of many, those first that have not the configuration yet.
    #[schemars(schema_with = "super::schema::pods")]
    pub pods: Vec<PodState>,
    /// How many pods ask for one and have none.
    pub missed: i32,
    /// The first of them, as `namespace/name`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missed_pods: Vec<String>,
}

fn replicas() -> i32 {
    2
}

fn min_replicas() -> i32 {
    2
}

fn cpu_percent() -> i32 {
    70
}

fn grace_seconds() -> i64 {
    10
}

fn notice_seconds() -> i64 {
    5
}

fn yes() -> bool {
    true
}

fn port() -> i32 {
    8081
}

fn admin_port() -> i32 {
    8082
}

fn release() -> ShutdownPolicy {
    ShutdownPolicy::Release
}

impl Default for Shutdown {
    fn default() -> Self {
        Self { policy: ShutdownPolicy::default(), grace_seconds: grace_seconds(), notice_seconds: notice_seconds() }
    }
}

impl Default for Injection {
    fn default() -> Self {
        Self {
            enabled: yes(),
            namespaces: Vec::new(),
            share_users: false,
            port: port(),
            admin_port: admin_port(),
            shutdown_policy: release(),
            resources: Resources::default(),
        }
    }
}

impl Injection {
    /// Whether pods of `namespace` may have a sidecar of a Proxy in `home`.
    #[must_use]
    pub fn allows(&self, home: &str, namespace: &str) -> bool {
        self.enabled
            && (home == namespace || self.namespaces.iter().any(|allowed| allowed == "*" || allowed == namespace))
    }
}

impl Told for Proxy {
    const KIND: &'static str = "Proxy";

    fn conditions(&self) -> &[Condition] {
        self.status.as_ref().map_or(&[], |status| &status.conditions)
    }
}
