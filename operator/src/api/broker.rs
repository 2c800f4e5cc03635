//! Broker: brokers that share their topics and groups, each a pod with its own volume.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Condition, ImagePullPolicy, PodOverrides, PodState, Resources, Told};

/// Brokers that share their topics and groups, each a pod with its own volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "waybill.dev",
    version = "v1alpha1",
    kind = "Broker",
    shortname = "wbroker",
    category = "waybill",
    namespaced,
    status = "BrokerStatus",
    derive = "PartialEq",
    doc = "Brokers that share their topics and groups, each a pod with its own volume.",
    validation = Rule::new("self.metadata.name.matches('^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$')")
        .message("the name is 1 to 40 letters, digits and '-', and begins with a letter: names of hosts are made of it"),
    // A size that the storage class refused may be taken back.
    validation = Rule::new("!has(oldSelf.status) || !has(oldSelf.status.volumeSize) || quantity(self.spec.storage.size).compareTo(quantity(oldSelf.status.volumeSize)) >= 0")
        .message("size cannot be made smaller than the volumes are").field_path(".spec.storage.size"),
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(name = "Pods Ready", type_ = "integer", json_path = ".status.readyReplicas"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.announcedHost) || self.replicas <= 1 || self.announcedHost.contains('{pod}')")
    .message("announcedHost of several brokers has {pod} in it: each announces one of its own"))]
pub struct BrokerSpec {
    /// How many brokers there are. When it is lowered, the last brokers take no new messages, and each goes when nothing is
    /// left in it that somebody waits for.
    #[serde(default = "replicas")]
    #[schemars(range(min = 0, max = 100))]
    pub replicas: i32,
    /// The image of the broker; if absent, the one of the operator's option --broker-image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub image: Option<String>,
    /// When the image is pulled; if absent, as the operator's option --image-pull-policy says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<ImagePullPolicy>,
    /// The volume of each broker.
    #[serde(default)]
    pub storage: Storage,
    /// When a send, a lease or an acknowledgement is answered: flushDiskType.
    #[serde(default)]
    pub flush: Flush,
    /// How long messages are kept.
    #[serde(default)]
    pub retention: Retention,
    /// The most entries of one batch of acks or of changes of the invisible duration: batchMaxEntries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 16_384))]
    pub batch_max_entries: Option<i32>,
    /// Further configuration by the names of docs/configuration-broker.md. Keys that the operator decides or that have a field
    /// of their own here, unknown keys, and values out of range are refused by name in the conditions.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "super::schema::any_object")]
    pub configuration: Map<String, Value>,
    /// The host, a name or an address, that brokers announce to those who ask where a topic is, if it is not the name of the pod in the
    /// headless Service; `{pod}` in it stands for the name of the pod. All sidecars and clients of the brokers must find port 10911 there. A change restarts
    /// the brokers one by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^([A-Za-z0-9.:-]|\{pod\})+$"))]
    #[x_kube(validation = Rule::new("!self.startsWith('127.') && !(self in ['0.0.0.0', '::', '::1', 'localhost'])")
        .message("others cannot reach a broker there"))]
    pub announced_host: Option<String>,
    /// The certificate of the brokers' remoting port. If absent, they speak plain text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<BrokerTls>,
    /// What the broker's container asks for and may have.
    #[serde(default)]
    pub resources: Resources,
    /// What else is said of the pods.
    #[serde(default)]
    pub pod: PodOverrides,
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.className) == has(oldSelf.className) && (!has(self.className) || self.className == oldSelf.className)")
    .message("className cannot be changed"))]
pub struct Storage {
    /// Its size, such as 10Gi. It may grow, where the storage class allows that, and cannot be made smaller than the volumes are.
    #[serde(default = "size")]
    #[schemars(length(min = 1, max = 32), regex(pattern = r"^[0-9]+(\.[0-9]+)?(Ki|Mi|Gi|Ti|Pi|Ei|k|M|G|T|P|E)?$"))]
    pub size: String,
    /// The storage class; if absent, the cluster's default. Cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub class_name: Option<String>,
    /// What becomes of a volume when its broker goes for good: the Broker is deleted, or has fewer replicas.
    #[serde(default)]
    pub reclaim: Reclaim,
    /// For trials: a directory of the node in place of a volume. What is in it goes with the pod. Cannot be changed.
    #[serde(default)]
    #[x_kube(validation = Rule::new("self == oldSelf").message("ephemeral cannot be changed"))]
    pub ephemeral: bool,
}

/// What becomes of the volume of a broker that goes for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum Reclaim {
    /// It stays; a broker of the same name finds it again.
    #[default]
    Retain,
    /// It is deleted with everything in it.
    Delete,
}

/// When a send, a lease or an acknowledgement is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum Flush {
    /// When it is on disk.
    #[default]
    Sync,
    /// When the operating system has it; it is written to disk twice a second.
    Async,
}

/// The certificate of the brokers' remoting port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BrokerTls {
    /// A Secret of the namespace with `tls.crt` and `tls.key`, such as cert-manager makes. A new certificate is taken within seconds
    /// of its arrival in the pod. With `ca.crt` in it, the operator and the sidecars of Proxies that refer to this Broker only believe
    /// brokers whose certificate that authority has signed for the name that they are reached by; without it they believe every one.
    #[schemars(length(min = 1, max = 253))]
    pub secret_name: String,
    /// What connections to the brokers may be. A change needs no restart and counts for new connections.
    #[serde(default)]
    pub mode: TlsMode,
}

/// What connections to brokers may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum TlsMode {
    /// TLS or plain text.
    #[default]
    Permissive,
    /// TLS.
    Enforcing,
}

/// How long messages are kept. What is absent is as docs/configuration-broker.md says.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Retention {
    /// Hours after which messages go, consumed or not: fileReservedTime.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 876_000))]
    pub hours: Option<i64>,
    /// How full the disk may be, percent, before the oldest go: diskMaxUsedSpaceRatio.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 100))]
    pub disk_max_percent: Option<i64>,
    /// How long the log may be, bytes, before the oldest go; 0 for no limit: logBytesMax.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_152_921_504_606_846_976_i64))]
    pub log_bytes_max: Option<i64>,
}

/// How far the brokers are there.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BrokerStatus {
    /// The generation of the resource that all of this is about.
    pub observed_generation: i64,
    /// How many brokers there are, ready or not.
    pub replicas: i32,
    /// How many of them are ready.
    pub ready_replicas: i32,
    /// How many of them have the pod that the resource asks for now.
    pub updated_replicas: i32,
    /// The labels of the pods, as `kubectl get pods -l` takes them.
    pub selector: String,
    /// The size that all volumes were asked for last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32), regex(pattern = r"^[0-9]+(\.[0-9]+)?(Ki|Mi|Gi|Ti|Pi|Ei|k|M|G|T|P|E)?$"))]
    pub volume_size: Option<String>,
    /// The hash of the configuration that all brokers are to have.
    pub configuration: String,
    /// Whether all brokers speak TLS, so that the operator and sidecars do so with them.
    pub tls: bool,
    /// Each broker.
    #[schemars(schema_with = "super::schema::pods")]
    pub pods: Vec<PodState>,
    /// Ready, Progressing and Degraded.
    #[schemars(schema_with = "super::schema::conditions")]
    pub conditions: Vec<Condition>,
}

fn replicas() -> i32 {
    1
}

fn size() -> String {
    "10Gi".to_owned()
}

impl Default for Storage {
    fn default() -> Self {
        Self { size: size(), class_name: None, reclaim: Reclaim::default(), ephemeral: false }
    }
}

impl Told for Broker {
    const KIND: &'static str = "Broker";

    fn conditions(&self) -> &[Condition] {
        self.status.as_ref().map_or(&[], |status| &status.conditions)
    }
}
