//! Attributes of topics: `+key=value` sets, `-key` removes, separated by commas.

use std::collections::{BTreeMap, BTreeSet};

use waybill_protocol::remoting::TopicConfig;

use crate::error::BrokerError;

/// The attribute that says which kind of messages a topic takes.
pub const MESSAGE_TYPE: &str = "message.type";

/// The attribute that says after how many hours messages of the topic go, if earlier than others.
const RESERVE_TIME: &str = "reserve.time";

const MESSAGE_TYPES: [&str; 6] = ["UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"];

/// The kind of messages a topic takes; NORMAL if nothing is said.
pub fn message_type(config: &TopicConfig) -> &str {
    config.attributes.get(MESSAGE_TYPE).map_or("NORMAL", String::as_str)
}

/// After how many hours messages of the topic go, if it has a time of its own.
pub fn reserved_hours(config: &TopicConfig) -> Option<i64> {
    config.attributes.get(RESERVE_TIME).and_then(|value| hours(value))
}

fn hours(value: &str) -> Option<i64> {
    value.parse().ok().filter(|hours| (1..=876_000).contains(hours))
}

/// The attributes of a topic after a text of changes. `old` is what it has, `None` for a topic that is being created.
///
/// # Errors
/// A text of another form, a name that occurs twice, a removal where there is nothing yet.
pub fn apply_attributes(
    old: Option<&BTreeMap<String, String>>,
    text: &str,
) -> Result<BTreeMap<String, String>, BrokerError> {
    let mut attributes = old.cloned().unwrap_or_default();
    let mut seen = BTreeSet::new();
    for change in text.split(',').map(str::trim).filter(|change| !change.is_empty()) {
        let refuse = |why: &str| BrokerError::InvalidParameter(format!("attribute {change:?} {why}"));
        let (key, value) = match change.split_at_checked(1) {
            Some(("+", setting)) => {
                let (key, value) =
                    setting.split_once('=').ok_or_else(|| refuse("has no value, expected +key=value"))?;
                (key.trim(), Some(value.trim()))
            }
            Some(("-", key)) if old.is_some() => (key.trim(), None),
            Some(("-", _)) => return Err(refuse("cannot be removed from a topic that does not exist yet")),
            _ => return Err(refuse("is neither +key=value nor -key")),
        };
        if !seen.insert(key) {
            return Err(refuse("is named twice"));
        }
        match value {
            Some(value) => attributes.insert(key.to_owned(), value.to_owned()),
            None => attributes.remove(key),
        };
    }
    Ok(attributes)
}

/// Checks that every attribute is known and has a value it can have.
pub(super) fn check(attributes: &BTreeMap<String, String>) -> Result<(), BrokerError> {
    for (key, value) in attributes {
        let allowed: &[&str] = match key.as_str() {
            RESERVE_TIME if hours(value).is_some() => continue,
            MESSAGE_TYPE => &MESSAGE_TYPES,
            "queue.type" => &["SimpleCQ"],
            "cleanup.policy" => &["DELETE"],
            RESERVE_TIME => &["-1", "1 to 876000 (hours)"],
            other => return Err(BrokerError::InvalidParameter(format!("attribute {other:?} is not known"))),
        };
        if !allowed.contains(&value.as_str()) {
            return Err(BrokerError::InvalidParameter(format!(
                "{key} is {value:?}, allowed are {}",
                allowed.join(", ")
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn attributes_are_set_and_removed() {
        let created = apply_attributes(None, "+message.type=FIFO, +queue.type = SimpleCQ,,").expect("understood");
        assert_eq!(created, map(&[("message.type", "FIFO"), ("queue.type", "SimpleCQ")]));
        let changed =
            apply_attributes(Some(&created), "-queue.type,+message.type=DELAY, -reserve.time").expect("understood");
        assert_eq!(changed, map(&[("message.type", "DELAY")]));
        assert_eq!(apply_attributes(Some(&changed), " ").expect("nothing to do"), changed);
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        for text in ["message.type=FIFO", "+message.type", "é", "+", "-message.type"] {
            let error = apply_attributes(None, text).expect_err("refused");
            assert!(error.to_string().contains(&format!("{text:?}")), "{error}");
        }
        let twice = apply_attributes(Some(&map(&[])), "+a=1,-a").expect_err("refused");
        assert!(twice.to_string().contains("\"-a\" is named twice"), "{twice}");
    }

    #[test]
    fn only_known_attributes_with_possible_values() {
        for kind in ["UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"] {
            check(&map(&[(MESSAGE_TYPE, kind)])).expect("a message type");
        }
        check(&map(&[("queue.type", "SimpleCQ"), ("cleanup.policy", "DELETE"), ("reserve.time", "-1")]))
            .expect("the defaults");
        check(&map(&[("reserve.time", "72")])).expect("hours");
        for (key, value) in [
            (MESSAGE_TYPE, "SOMETIMES"),
            (MESSAGE_TYPE, "fifo"),
            (MESSAGE_TYPE, ""),
            ("queue.type", "BatchCQ"),
            ("cleanup.policy", "COMPACTION"),
            ("reserve.time", "0"),
            ("reserve.time", "876001"),
            ("reserve.time", "3d"),
            ("colour", "red"),
            ("", "x"),
        ] {
            let error = check(&map(&[(key, value)])).expect_err("refused");
            assert!(error.to_string().contains(key), "{error}");
        }
    }

    #[test]
    fn a_topic_without_a_message_type_is_normal() {
        let mut config = TopicConfig::default();
        assert_eq!(message_type(&config), "NORMAL");
        config.attributes = map(&[(MESSAGE_TYPE, "FIFO")]);
        assert_eq!(message_type(&config), "FIFO");
    }
}
