//! User: who may send and consume through Proxies, and what.

use kube::{CustomResource, KubeSchema, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{BrokerRef, Condition, Told};

/// Who may send and consume through Proxies that ask for users, and what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "waybill.dev",
    version = "v1alpha1",
    kind = "User",
    shortname = "wuser",
    category = "waybill",
    namespaced,
    status = "UserStatus",
    derive = "PartialEq",
    doc = "Who may send and consume through Proxies that ask for users, and what.",
    validation = Rule::new("has(self.spec.accessKey) || size(self.metadata.name) <= 128")
        .message("a name of more than 128 characters cannot be an access key: give spec.accessKey"),
    printcolumn(name = "Access Key", type_ = "string", json_path = ".status.accessKey"),
    printcolumn(name = "Secret", type_ = "string", json_path = ".status.secretName"),
    printcolumn(name = "Super", type_ = "boolean", json_path = ".spec.superUser"),
    printcolumn(name = "Proxies", type_ = "integer", json_path = ".status.appliedProxies"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.brokerRef) != has(self.proxyRef)")
    .message("there is brokerRef or proxyRef, and not both"))]
pub struct UserSpec {
    /// All Proxies before this Broker know the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broker_ref: Option<BrokerRef>,
    /// Only this Proxy knows the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_ref: Option<ProxyRef>,
    /// What the user's clients give as access key; if absent, the name of the resource. Visible ASCII characters without `,`, `/` and
    /// `=`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128), regex(pattern = r"^[!-+.0-<>-~-]+$"))]
    pub access_key: Option<String>,
    /// A Secret of the namespace with the secret key under `secretKey`. If absent, one is made once, with a secret key drawn by
    /// lot; the status names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,
    /// Whether the user may do everything.
    #[serde(default)]
    pub super_user: bool,
    /// Whether the user is let in at all.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// What the user may do; what is not permitted is forbidden. The most exact name decides, and of two of the same name the
    /// one that denies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub permissions: Vec<UserPermission>,
}

/// Which Proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxyRef {
    /// The name of a Proxy in the same namespace.
    #[schemars(length(min = 1, max = 40), regex(pattern = r"^[a-z]([a-z0-9-]*[a-z0-9])?$"))]
    pub name: String,
}

/// Which Secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretRef {
    /// The name of a Secret in the same namespace.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"))]
    pub name: String,
}

/// One permission, about a topic or about a consumer group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.topic) != has(self.group)").message("there is topic or group, and not both"))]
#[x_kube(validation = Rule::new("!has(self.topic) || (has(self.actions) && size(self.actions) > 0)")
    .message("a topic needs actions: PUB, SUB or both"))]
#[x_kube(validation = Rule::new("!has(self.group) || !has(self.actions) || self.actions.all(action, action == 'SUB')")
    .message("a group has no action but SUB"))]
pub struct UserPermission {
    /// The name of a topic on the brokers, the beginning of names with `*` behind it, or `*`. A topic of a namespace is
    /// `namespace%topic`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 127), regex(pattern = r"^[A-Za-z0-9_%|-]*\*?$"))]
    pub topic: Option<String>,
    /// The same of a consumer group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 120), regex(pattern = r"^[A-Za-z0-9_%|-]*\*?$"))]
    pub group: Option<String>,
    /// Of a topic: PUB to send, SUB to consume. Of a group there is only SUB, which need not be said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2))]
    pub actions: Vec<UserAction>,
    /// Whether it permits or forbids.
    #[serde(default)]
    pub decision: UserDecision,
}

/// What is done with a topic or a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum UserAction {
    /// Messages are sent.
    Pub,
    /// Messages are consumed.
    Sub,
}

/// Whether a permission permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum UserDecision {
    /// It permits.
    #[default]
    Allow,
    /// It forbids.
    Deny,
}

/// How far Proxies know the user.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UserStatus {
    /// The generation of the resource that all of this is about.
    pub observed_generation: i64,
    /// What the user's clients give as access key.
    pub access_key: String,
    /// The Secret with `accessKey` and `secretKey`.
    pub secret_name: String,
    /// How many Proxies there are to know the user.
    pub proxies: i32,
    /// How many of them do.
    pub applied_proxies: i32,
    /// Ready, Progressing and Degraded.
    #[schemars(schema_with = "super::schema::conditions")]
    pub conditions: Vec<Condition>,
}

fn yes() -> bool {
    true
}

impl User {
    /// What the user's clients give as access key.
    #[must_use]
    pub fn access_key(&self) -> String {
        self.spec.access_key.clone().unwrap_or_else(|| self.name_any())
    }

    /// The Secret with the secret key.
    #[must_use]
    pub fn secret_name(&self) -> String {
        match &self.spec.secret_ref {
            Some(given) => given.name.clone(),
            None => format!("{}-credentials", self.name_any()),
        }
    }
}

impl Told for User {
    const KIND: &'static str = "User";

    fn conditions(&self) -> &[Condition] {
        self.status.as_ref().map_or(&[], |status| &status.conditions)
    }
}
