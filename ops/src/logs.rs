//! Structured logs to standard error.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;

/// The environment variable that overrides the default filter, as every Rust program knows it.
pub const FILTER_VARIABLE: &str = "RUST_LOG";

/// How a log line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people: time, level, message, fields.
    #[default]
    Text,
    /// For machines: one JSON object a line.
    Json,
}

impl FromStr for LogFormat {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        match s {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            other => Err(format!("unknown log format \"{other}\": use text or json")),
        }
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::Json => "json",
        })
    }
}

/// Starts logging to standard error.
///
/// `RUST_LOG` overrides `default_filter` (such as `info` or `info,waybill_broker=debug`). A filter that cannot be
/// read is reported and replaced by `info`: a typing mistake must not silence a server. A second call does nothing.
pub fn init(format: LogFormat, default_filter: &str) {
    let wanted = std::env::var(FILTER_VARIABLE).ok().filter(|v| !v.trim().is_empty());
    let (filter, complaint) = parse_filter(wanted.as_deref().unwrap_or(default_filter));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A result of Err means that a subscriber is set already, as in tests: theirs stays.
    let _already_set = match format {
        LogFormat::Text => builder.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).with_current_span(false).try_init(),
    };
    if let Some(complaint) = complaint {
        tracing::warn!("{complaint}");
    }
}

/// The filter, and what to complain about when the text is none.
fn parse_filter(text: &str) -> (EnvFilter, Option<String>) {
    match EnvFilter::try_new(text) {
        Ok(filter) => (filter, None),
        Err(error) => {
            (EnvFilter::new("info"), Some(format!("log filter \"{text}\" cannot be read ({error}); using \"info\"")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_have_names() {
        assert_eq!("json".parse(), Ok(LogFormat::Json));
        assert_eq!("text".parse(), Ok(LogFormat::Text));
        assert!("xml".parse::<LogFormat>().is_err_and(|e| e.contains("xml") && e.contains("json")));
        assert_eq!(LogFormat::Json.to_string(), "json");
    }

    #[test]
    fn a_bad_filter_does_not_silence() {
        let (filter, complaint) = parse_filter("info,broker=loud");
        assert_eq!(filter.to_string(), "info");
        assert!(complaint.is_some_and(|c| c.contains("broker=loud")));
        let (filter, complaint) = parse_filter("warn");
        assert_eq!(filter.to_string(), "warn");
        assert_eq!(complaint, None);
    }
}
