//! What a consumer group decides for itself about its leases, before any sidecar's configuration: attributes of the group.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Overrides `enableGrpcChannelReceiptHandleRenew`: `true` or `false`.
pub const RENEW: &str = "waybill.renew";
/// Overrides `defaultInvisibleTimeMills`: milliseconds, in [`INVISIBLE_MS`].
pub const INVISIBLE_TIME: &str = "waybill.invisible.time";
/// Overrides `batchChangeInvisibleTimeMaxNum`: entries, in [`BATCH_ENTRIES`].
pub const BATCH_MAX: &str = "waybill.batch.max";

/// What [`INVISIBLE_TIME`] may be, milliseconds: one second to one day.
pub const INVISIBLE_MS: RangeInclusive<i64> = 1_000..=86_400_000;
/// What [`BATCH_MAX`] may be.
pub const BATCH_ENTRIES: RangeInclusive<i64> = 1..=10_000;

/// What the names of all attributes begin with that only Waybill knows.
const PREFIX: &str = "waybill.";

/// A group's own values. None: the sidecar's value counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GroupOverrides {
    /// Whether leases of gRPC clients are renewed.
    pub renew: Option<bool>,
    /// The invisible duration at the receive of messages that are renewed, milliseconds.
    pub invisible_ms: Option<i64>,
    /// The most leases of the group that one request to a broker is about.
    pub batch_max: Option<usize>,
}

/// An attribute that no group can have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OverrideError {
    /// There is no such attribute.
    #[error("attribute {0:?} is not known; there are {RENEW}, {INVISIBLE_TIME} and {BATCH_MAX}")]
    Unknown(String),
    /// The value is none of those that are allowed.
    #[error("{key} is {value:?}, allowed are {allowed}")]
    Value {
        /// The attribute.
        key: &'static str,
        /// What it was given.
        value: String,
        /// What it may be.
        allowed: String,
    },
}

impl GroupOverrides {
    /// Reads the attributes of a group; those that are not Waybill's are passed over.
    ///
    /// # Errors
    /// An attribute of Waybill's that does not exist, or has a value that it cannot have.
    pub fn read(attributes: &BTreeMap<String, String>) -> Result<Self, OverrideError> {
        let mut overrides = Self::default();
        for (key, value) in attributes.iter().filter(|(key, _)| key.starts_with(PREFIX)) {
            overrides.set(key, value)?;
        }
        Ok(overrides)
    }

    /// As [`Self::read`], without what cannot be: a newer broker may know more, and what is not understood overrides nothing.
    #[must_use]
    pub fn understood(attributes: &BTreeMap<String, String>) -> Self {
        let mut overrides = Self::default();
        for (key, value) in attributes {
            let _not_understood = overrides.set(key, value);
        }
        overrides
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), OverrideError> {
        match key {
            RENEW => {
                let wrong = |_| wrong(RENEW, value, "true and false".to_owned());
                self.renew = Some(value.parse().map_err(wrong)?);
            }
            INVISIBLE_TIME => self.invisible_ms = Some(number(INVISIBLE_TIME, value, INVISIBLE_MS)?),
            BATCH_MAX => self.batch_max = usize::try_from(number(BATCH_MAX, value, BATCH_ENTRIES)?).ok(),
            unknown => return Err(OverrideError::Unknown(unknown.to_owned())),
        }
        Ok(())
    }
}

fn number(key: &'static str, value: &str, allowed: RangeInclusive<i64>) -> Result<i64, OverrideError> {
    let number = value.parse().ok().filter(|number| allowed.contains(number));
    number.ok_or_else(|| wrong(key, value, format!("{} to {}", allowed.start(), allowed.end())))
}

fn wrong(key: &'static str, value: &str, allowed: String) -> OverrideError {
    OverrideError::Value { key, value: value.to_owned(), allowed }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_group_overrides_what_it_names() {
        assert_eq!(GroupOverrides::read(&attributes(&[("lite.topic", "x")])), Ok(GroupOverrides::default()));
        let all = attributes(&[(RENEW, "false"), (INVISIBLE_TIME, "1000"), (BATCH_MAX, "10000"), ("other", "y")]);
        let wanted = GroupOverrides { renew: Some(false), invisible_ms: Some(1_000), batch_max: Some(10_000) };
        assert_eq!(GroupOverrides::read(&all), Ok(wanted));
        assert_eq!(GroupOverrides::understood(&all), wanted);
    }

    #[test]
    fn what_cannot_be_is_refused_by_name_or_passed_over() {
        for (key, value) in [
            (RENEW, "on"),
            (RENEW, ""),
            (INVISIBLE_TIME, "999"),
            (INVISIBLE_TIME, "86400001"),
            (INVISIBLE_TIME, "30s"),
            (BATCH_MAX, "0"),
            (BATCH_MAX, "10001"),
            (BATCH_MAX, "-1"),
            ("waybill.colour", "red"),
        ] {
            let one = attributes(&[(key, value), (RENEW, if key == RENEW { value } else { "true" })]);
            let error = GroupOverrides::read(&one).expect_err("refused");
            assert!(error.to_string().contains(key), "{error}");
            let rest = GroupOverrides { renew: (key != RENEW).then_some(true), ..GroupOverrides::default() };
            assert_eq!(GroupOverrides::understood(&one), rest);
        }
    }
}
