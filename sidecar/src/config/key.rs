//! What is known of one configuration key.

use std::{fmt, net::IpAddr};

use serde::{Deserialize, Serialize};
use waybill_ops::address;

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// On or off.
    Bool(bool),
    /// A number.
    Number(i64),
    /// Text.
    Text(String),
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Number(value)
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => value.fmt(f),
            Self::Number(value) => value.fmt(f),
            Self::Text(value) => write!(f, "\"{value}\""),
        }
    }
}

/// Which values a key may have.
#[derive(Clone, Copy, Debug)]
pub enum Allowed {
    /// true or false.
    Bool,
    /// From the first to the second, both included.
    Number(i64, i64),
    /// Text that passes the check; the words say what passes.
    Text(fn(&str) -> bool, &'static str),
    /// One of these words.
    OneOf(&'static [&'static str]),
}

impl Allowed {
    /// Whether `value` is allowed.
    #[must_use]
    pub fn accepts(&self, value: &Value) -> bool {
        match (self, value) {
            (Self::Bool, Value::Bool(_)) => true,
            (Self::Number(min, max), Value::Number(number)) => min <= number && number <= max,
            (Self::Text(check, _), Value::Text(text)) => check(text),
            (Self::OneOf(words), Value::Text(text)) => words.contains(&text.as_str()),
            _ => false,
        }
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool => f.write_str("true or false"),
            Self::Number(min, max) => write!(f, "{min} to {max}"),
            Self::Text(_, words) => f.write_str(words),
            Self::OneOf(words) => f.write_str(&words.join(" or ")),
        }
    }
}

/// What becomes of the messages that clients still hold when the sidecar stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ShutdownPolicy {
    /// They stay with their clients until their leases end.
    Leave,
    /// They go back to the brokers.
    Release,
}

impl ShutdownPolicy {
    /// As the file has them.
    pub(super) const WORDS: [&str; 2] = ["leave", "release"];
}

impl From<ShutdownPolicy> for Value {
    fn from(policy: ShutdownPolicy) -> Self {
        let [leave, release] = ShutdownPolicy::WORDS;
        Self::Text(match policy {
            ShutdownPolicy::Leave => leave.to_owned(),
            ShutdownPolicy::Release => release.to_owned(),
        })
    }
}

/// When a change of a key in the file takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// At once.
    Dynamic,
    /// At the next start; until then the old value stays and a log line says so.
    Restart,
}

/// A key, its default and its limits.
#[derive(Clone, Debug)]
pub struct Key {
    /// The name in the file.
    pub name: &'static str,
    /// The value when the file does not say.
    pub default: Value,
    /// Which values it may have.
    pub allowed: Allowed,
    /// The unit of a number, or nothing.
    pub unit: &'static str,
    /// When a change takes effect.
    pub effect: Effect,
    /// What it is for.
    pub doc: &'static str,
}

/// Any text, also none.
pub(super) fn any_text(_: &str) -> bool {
    true
}

/// An IPv4 or IPv6 address.
pub(super) fn ip_address(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok()
}

/// One or more `host:port`.
pub(super) fn address_list(text: &str) -> bool {
    let addresses = super::addresses(text);
    !addresses.is_empty() && addresses.iter().all(|address| address::check(address).is_ok())
}
