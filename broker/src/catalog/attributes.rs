//! Attributes of topics: `+key=value` sets, `-key` removes, separated by commas.

use std::collections::BTreeMap;

use waybill_protocol::remoting::TopicConfig;

use crate::error::BrokerError;

/// The attribute that says which kind of messages a topic takes.
pub const MESSAGE_TYPE: &str = "message.type";

const MESSAGE_TYPES: [&str; 6] = ["UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"];

/// The kind of messages a topic takes; NORMAL if nothing is said.
pub fn message_type(config: &TopicConfig) -> &str {
    config.attributes.get(MESSAGE_TYPE).map_or("NORMAL", String::as_str)
}

/// Applies a text of changes to a topic's attributes.
///
/// # Errors
/// A text that is neither form.
pub fn apply_attributes(attributes: &mut BTreeMap<String, String>, text: &str) -> Result<(), BrokerError> {
    for change in text.split(',').map(str::trim).filter(|change| !change.is_empty()) {
        let malformed =
            || BrokerError::InvalidParameter(format!("attribute {change:?} is neither +key=value nor -key"));
        match change.split_at_checked(1) {
            Some(("+", setting)) => {
                let (key, value) = setting.split_once('=').ok_or_else(malformed)?;
                attributes.insert(key.trim().to_owned(), value.trim().to_owned());
            }
            Some(("-", key)) => {
                attributes.remove(key.trim());
            }
            _ => return Err(malformed()),
        }
    }
    Ok(())
}

/// Checks that every attribute is known and has a value it can have.
pub(super) fn check(attributes: &BTreeMap<String, String>) -> Result<(), BrokerError> {
    for (key, value) in attributes {
        let allowed: &[&str] = match key.as_str() {
            MESSAGE_TYPE => &MESSAGE_TYPES,
            "queue.type" => &["SimpleCQ"],
            "cleanup.policy" => &["DELETE"],
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

    #[test]
    fn attributes_are_set_and_removed() {
        let mut attributes = BTreeMap::new();
        apply_attributes(&mut attributes, "+message.type=FIFO, +queue.type=SimpleCQ").expect("understood");
        apply_attributes(&mut attributes, "-queue.type").expect("understood");
        assert_eq!(attributes.into_iter().collect::<Vec<_>>(), [("message.type".to_owned(), "FIFO".to_owned())]);
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        let mut attributes = BTreeMap::new();
        for text in ["message.type=FIFO", "+message.type", "é"] {
            let error = apply_attributes(&mut attributes, text).expect_err("refused");
            assert!(error.to_string().contains(text), "{error}");
        }
        attributes.insert(MESSAGE_TYPE.into(), "SOMETIMES".into());
        assert!(check(&attributes).expect_err("refused").to_string().contains("SOMETIMES"));
        assert!(check(&BTreeMap::from([("colour".into(), "red".into())])).is_err());
    }
}
