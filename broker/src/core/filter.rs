//! Which messages a consumer asked for: tags, compared by string equality, or an SQL92 condition on properties.
//!
//! The index keeps a hash of each message's tag, so that most messages that do not match are passed over without being read.
//! Equal hashes decide nothing: the tag itself is compared before a message is given out or skipped.

use waybill_protocol::filter::Condition;
use waybill_protocol::message::{java_hash, properties};

use crate::error::BrokerError;

/// Alternatives in one tag expression.
const TAGS_MAX: usize = 1024;

/// A parsed subscription expression.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Filter {
    /// Every message.
    All,
    /// Messages with one of these tags, each with its hash.
    Tags(Vec<(u32, String)>),
    /// Messages whose properties meet this condition.
    Sql(Condition),
}

impl Filter {
    /// Parses an expression: absent, empty or `*` is everything, otherwise tags separated by `||`, or a condition.
    pub(crate) fn parse(kind: Option<&str>, expression: Option<&str>) -> Result<Self, BrokerError> {
        let expression = expression.unwrap_or("").trim();
        match kind.unwrap_or("TAG") {
            "" | "TAG" => {}
            "SQL92" if expression.is_empty() || expression == "*" => return Ok(Self::All),
            "SQL92" => {
                return Condition::parse(expression)
                    .map(Self::Sql)
                    .map_err(|e| BrokerError::IllegalFilter(e.to_string()));
            }
            other => {
                return Err(BrokerError::IllegalFilter(format!(
                    "unknown expression type {other:?}, known are TAG and SQL92"
                )));
            }
        }
        if expression.is_empty() || expression == "*" {
            return Ok(Self::All);
        }
        let tags: Vec<(u32, String)> = expression
            .split("||")
            .map(str::trim)
            .filter(|tag| !tag.is_empty())
            .map(|tag| (tag_hash(Some(tag)), tag.to_owned()))
            .collect();
        if tags.is_empty() {
            return Err(BrokerError::IllegalFilter(format!("the expression {expression:?} names no tag")));
        }
        if tags.len() > TAGS_MAX {
            return Err(BrokerError::IllegalFilter(format!(
                "{} tags in one expression, allowed are {TAGS_MAX}",
                tags.len()
            )));
        }
        if tags.iter().any(|(_, tag)| tag == "*") {
            return Ok(Self::All);
        }
        Ok(Self::Tags(tags))
    }

    /// What the hash alone says: `Some(false)` surely not, `None` look at the tag itself.
    pub(crate) fn by_hash(&self, hash: u32) -> Option<bool> {
        match self {
            Self::All => Some(true),
            Self::Sql(_) => None,
            Self::Tags(tags) => {
                if tags.iter().any(|(wanted, _)| *wanted == hash) {
                    None
                } else {
                    Some(false)
                }
            }
        }
    }

    /// Whether a message with these raw properties is wanted.
    pub(crate) fn matches(&self, raw_properties: &str) -> bool {
        match self {
            Self::All => true,
            Self::Sql(condition) => condition.matches(properties::iter(raw_properties)),
            Self::Tags(tags) => properties::get(raw_properties, properties::TAGS)
                .is_some_and(|tag| tags.iter().any(|(_, wanted)| wanted == tag)),
        }
    }
}

/// The hash the index keeps for a tag; 0 means "no tag".
pub(crate) fn tag_hash(tag: Option<&str>) -> u32 {
    match tag {
        None | Some("") => 0,
        Some(tag) => java_hash(tag).cast_unsigned().max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_hashes_do_not_make_equal_tags() {
        let filter = Filter::parse(Some("TAG"), Some("AaAa || C")).expect("parses");
        assert_eq!(
            tag_hash(Some("AaAa")),
            tag_hash(Some("BBBB")),
            "the pair must collide for this test to say anything"
        );
        assert_eq!(filter.by_hash(tag_hash(Some("BBBB"))), None);
        assert!(filter.matches("TAGS\u{1}AaAa\u{2}"));
        assert!(!filter.matches("TAGS\u{1}BBBB\u{2}"));
        assert!(!filter.matches(""));
        assert_eq!(filter.by_hash(tag_hash(Some("D"))), Some(false));
        assert_eq!(filter.by_hash(tag_hash(None)), Some(false));
    }

    #[test]
    fn everything_is_spelt_in_three_ways() {
        for expression in [None, Some(""), Some("*"), Some(" * "), Some("a||*")] {
            assert_eq!(Filter::parse(None, expression).expect("parses"), Filter::All);
        }
        assert!(matches!(Filter::parse(Some("TAG"), Some("||")), Err(BrokerError::IllegalFilter(_))));
        assert!(matches!(Filter::parse(Some("XPATH"), Some("a")), Err(BrokerError::IllegalFilter(_))));
    }
}
