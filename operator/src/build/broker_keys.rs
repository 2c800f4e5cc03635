//! The keys that `spec.configuration` of a Broker may have: what docs/configuration-broker.md says, in a form that programs read. The
//! operator does not carry the broker with it; a test holds this table against it.

use serde_json::Value;

use super::Invalid;

/// A key, and what is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// Its name in the file.
    pub name: &'static str,
    /// Its values.
    pub takes: Takes,
    /// Whether a running broker takes a change.
    pub dynamic: bool,
}

/// Which values a key takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// Whole numbers from the first to the second.
    Number(i64, i64),
    /// Those, and 0.
    ZeroOr(i64, i64),
    /// True and false.
    Bool,
    /// One of these words.
    Word(&'static [&'static str]),
    /// One of these numbers.
    OneOf(&'static [i64]),
    /// What the operator decides, or a field of the resource; the words say which.
    Elsewhere(&'static str),
}

const DAY_MS: i64 = 86_400_000;

/// All keys of the broker.
pub const KEYS: [Key; 37] = [
    elsewhere("brokerName", "it is the name of the pod", false),
    elsewhere("brokerClusterName", "it is made of the namespace and the name of the Broker", false),
    elsewhere("brokerIP1", "say it with spec.announcedHost", false),
    elsewhere("bindAddress", "pods listen on all addresses", false),
    elsewhere("listenPort", "it is always 10911", false),
    elsewhere("announcedPort", "it is always 10911", false),
    elsewhere("tlsServerMode", "say it with spec.tls.mode", true),
    elsewhere("tlsServerCertPath", "say it with spec.tls.secretName", false),
    elsewhere("tlsServerKeyPath", "say it with spec.tls.secretName", false),
    elsewhere("adminListen", "it is always port 10915", false),
    elsewhere("storePathRootDir", "it is on the volume", false),
    elsewhere("flushDiskType", "say it with spec.flush", false),
    fixed("mappedFileSizeCommitLog", Takes::Number(1 << 20, 1 << 30)),
    fixed("indexCheckpointBytes", Takes::Number(64 << 10, 1 << 34)),
    elsewhere("fileReservedTime", "say it with spec.retention.hours", true),
    elsewhere("diskMaxUsedSpaceRatio", "say it with spec.retention.diskMaxPercent", true),
    elsewhere("logBytesMax", "say it with spec.retention.logBytesMax", true),
    dynamic("autoCreateTopicEnable", Takes::Bool),
    dynamic("autoCreateTopicMessageType", Takes::Word(&["NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"])),
    dynamic("autoCreateSubscriptionGroup", Takes::Bool),
    dynamic("defaultTopicQueueNums", Takes::Number(1, 1024)),
    dynamic("maxMessageSize", Takes::Number(1, 15 << 20)),
    dynamic("brokerPermission", Takes::OneOf(&[0, 2, 4, 6])),
    elsewhere("readOnlyBrokers", "the operator names those that are to go", true),
    dynamic("popInflightMessageThreshold", Takes::Number(0, 1 << 40)),
    dynamic("popPollingSize", Takes::Number(1, 1 << 20)),
    dynamic("maxPopPollingSize", Takes::Number(1, 1 << 24)),
    elsewhere("batchMaxEntries", "say it with spec.batchMaxEntries", true),
    fixed("channelExpiredTimeout", Takes::Number(1_000, DAY_MS)),
    fixed("clientGoneAfter", Takes::ZeroOr(3_000, DAY_MS)),
    fixed("timerPrecisionMs", Takes::Number(1, 60_000)),
    dynamic("timerMaxDelaySec", Takes::Number(1, 10 * 365 * 86_400)),
    fixed("transactionTimeOut", Takes::Number(1, DAY_MS)),
    fixed("transactionCheckInterval", Takes::Number(1, DAY_MS)),
    fixed("transactionCheckMax", Takes::Number(1, 1_000)),
    fixed("transactionGiveUpAfter", Takes::Number(1_000, 30 * DAY_MS)),
    fixed(SHUTDOWN_GRACE, Takes::Number(0, 3_600)),
];

/// How long a stopping broker waits for requests in hand, seconds.
pub(super) const SHUTDOWN_GRACE: &str = "shutdownGraceSeconds";

const fn elsewhere(name: &'static str, instead: &'static str, dynamic: bool) -> Key {
    Key { name, takes: Takes::Elsewhere(instead), dynamic }
}

const fn fixed(name: &'static str, takes: Takes) -> Key {
    Key { name, takes, dynamic: false }
}

const fn dynamic(name: &'static str, takes: Takes) -> Key {
    Key { name, takes, dynamic: true }
}

/// Whether a running broker takes a change of the key.
pub(super) fn is_dynamic(name: &str) -> bool {
    KEYS.iter().any(|key| key.name == name && key.dynamic)
}

/// Whether `spec.configuration` may say this.
///
/// # Errors
/// The field, and why not.
pub(super) fn check(name: &str, value: &Value) -> Result<(), Invalid> {
    let refused = |reason: String| Err(Invalid::new(format!("spec.configuration.{name}"), reason));
    let Some(key) = KEYS.iter().find(|key| key.name == name) else {
        return refused("is no key of the broker; docs/configuration-broker.md lists all".to_owned());
    };
    let number = value.as_i64();
    match key.takes {
        Takes::Elsewhere(instead) => refused(format!("cannot be set here: {instead}")),
        Takes::Number(low, high) if number.is_some_and(|number| (low..=high).contains(&number)) => Ok(()),
        Takes::ZeroOr(low, high) if number.is_some_and(|is| is == 0 || (low..=high).contains(&is)) => Ok(()),
        Takes::OneOf(numbers) if number.is_some_and(|number| numbers.contains(&number)) => Ok(()),
        Takes::Bool if value.is_boolean() => Ok(()),
        Takes::Word(words) if value.as_str().is_some_and(|word| words.contains(&word)) => Ok(()),
        Takes::Number(low, high) => refused(format!("is {value}, allowed are {low} to {high}")),
        Takes::ZeroOr(low, high) => refused(format!("is {value}, allowed are 0 and {low} to {high}")),
        Takes::OneOf(numbers) => refused(format!("is {value}, allowed are {numbers:?}")),
        Takes::Bool => refused(format!("is {value}, allowed are true and false")),
        Takes::Word(words) => refused(format!("is {value}, allowed are {}", words.join(", "))),
    }
}
