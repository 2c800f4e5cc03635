//! What a call says about its caller, beside its message.

use std::time::Duration;

use tonic::metadata::MetadataMap;

use super::errors::Problem;
use crate::access::{Access, Pass};
use crate::limits;

/// Clients before this version know no ILLEGAL_POLLING_TIME.
const POLLING_TIME_SINCE: &str = "5.0.3";

/// The metadata of a call that the sidecar uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Caller {
    /// `x-mq-client-id`: the identity of the client everywhere.
    pub(super) client_id: String,
    /// Who it is for access control.
    pub(super) pass: Pass,
    /// `x-mq-client-version`, as it was sent.
    version: Option<String>,
    /// `x-mq-namespace`: the namespace of whatever the call names without saying one; empty = none.
    pub(super) namespace: String,
    /// `grpc-timeout`: how long the client waits.
    pub(super) deadline: Option<Duration>,
}

impl Caller {
    /// Lets the caller of a call in, if it may come in.
    pub(super) fn admit(metadata: &MetadataMap, access: &Access) -> Result<Self, Problem> {
        let text = |key: &str| metadata.get(key).and_then(|value| value.to_str().ok());
        let pass = access.authenticate(text("authorization"), text("x-mq-date-time"))?;
        Ok(Self { pass, ..Self::read(metadata)? })
    }

    /// Reads the metadata of a call. Only the client id is required; what is unknown or malformed otherwise is as if it
    /// were absent.
    fn read(metadata: &MetadataMap) -> Result<Self, Problem> {
        let text = |key: &str| metadata.get(key).and_then(|value| value.to_str().ok());
        let client_id = text("x-mq-client-id").unwrap_or_default().trim();
        if client_id.is_empty() {
            return Err(Problem::ClientIdRequired);
        }
        if client_id.len() > limits::CLIENT_ID_BYTES {
            return Err(Problem::ClientIdTooLong);
        }
        Ok(Self {
            client_id: client_id.to_owned(),
            pass: Pass::default(),
            version: text("x-mq-client-version").map(str::to_owned),
            namespace: text("x-mq-namespace").unwrap_or_default().trim().to_owned(),
            deadline: text("grpc-timeout").and_then(parse_timeout),
        })
    }

    /// Whether the client is too old to know ILLEGAL_POLLING_TIME. Compared as text, as upstream does.
    #[must_use]
    pub(super) fn is_old(&self) -> bool {
        self.version.as_deref().is_none_or(|version| version < POLLING_TIME_SINCE)
    }
}

/// Reads a gRPC time-out: at most eight digits and a unit. Java's "sixty years" is a legal one.
fn parse_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(count.saturating_mul(3_600)),
        "M" => Duration::from_secs(count.saturating_mul(60)),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(pairs: &[(&'static str, &str)]) -> MetadataMap {
        let mut map = MetadataMap::new();
        for (key, value) in pairs {
            map.insert(*key, value.parse().expect("a header value"));
        }
        map
    }

    #[test]
    fn a_client_id_is_required() {
        for blank in [&[][..], &[("x-mq-client-id", "")], &[("x-mq-client-id", "   ")]] {
            assert_eq!(Caller::read(&metadata(blank)), Err(Problem::ClientIdRequired));
        }
        let long = "x".repeat(limits::CLIENT_ID_BYTES + 1);
        assert_eq!(Caller::read(&metadata(&[("x-mq-client-id", &long)])), Err(Problem::ClientIdTooLong));
        assert_eq!(
            Caller::read(&metadata(&[("x-mq-client-id", &long[1..])])).map(|c| c.client_id.len()),
            Ok(limits::CLIENT_ID_BYTES)
        );
    }

    #[test]
    fn nothing_else_is_required_and_nothing_strange_refused() {
        let strange = [
            ("x-mq-client-id", "c"),
            ("x-mq-language", "KLINGON"),
            ("grpc-timeout", "soon"),
            ("x-mq-client-version", ""),
        ];
        let caller = Caller::read(&metadata(&strange)).expect("a caller");
        assert_eq!(caller.client_id, "c");
        assert_eq!(caller.deadline, None);
    }

    #[test]
    fn versions_compare_as_text() {
        let old = |version: &str| {
            Caller::read(&metadata(&[("x-mq-client-id", "c"), ("x-mq-client-version", version)])).map(|c| c.is_old())
        };
        assert_eq!(old("5.0.2"), Ok(true));
        assert_eq!(old("5.0.3"), Ok(false));
        assert_eq!(old("5.1.0"), Ok(false));
        assert_eq!(Caller::read(&metadata(&[("x-mq-client-id", "c")])).map(|c| c.is_old()), Ok(true));
    }

    #[test]
    fn timeouts_of_every_unit() {
        for (text, wanted) in [
            ("525600H", Some(Duration::from_secs(525_600 * 3_600))),
            ("99999999H", Some(Duration::from_secs(99_999_999 * 3_600))),
            ("2M", Some(Duration::from_secs(120))),
            ("3S", Some(Duration::from_secs(3))),
            ("2999m", Some(Duration::from_millis(2_999))),
            ("5u", Some(Duration::from_micros(5))),
            ("7n", Some(Duration::from_nanos(7))),
            ("0S", Some(Duration::ZERO)),
            ("", None),
            ("S", None),
            ("-1S", None),
            ("+1S", None),
            ("123456789S", None),
            ("1", None),
            ("1s", None),
            ("1é", None),
        ] {
            assert_eq!(parse_timeout(text), wanted, "{text}");
        }
    }
}
