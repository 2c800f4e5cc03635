//! Names of topics and consumer groups, checked before anything is sent.

use waybill_protocol::names::{DLQ_PREFIX, NameError, RETRY_PREFIX, validate_group, validate_topic};

/// A topic's name; also one that belongs to the system, or is made of a group's.
///
/// # Errors
/// Says what is wrong.
pub(crate) fn topic(text: &str) -> Result<String, String> {
    let derived = text.strip_prefix(DLQ_PREFIX).or_else(|| text.strip_prefix(RETRY_PREFIX));
    checked(text, derived.map_or_else(|| validate_topic(text), validate_group), "topic")
}

/// A consumer group's name; also one that belongs to the system.
///
/// # Errors
/// Says what is wrong.
pub(crate) fn group(text: &str) -> Result<String, String> {
    checked(text, validate_group(text), "group")
}

fn checked(text: &str, said: Result<(), NameError>, what: &str) -> Result<String, String> {
    match said {
        Ok(()) | Err(NameError::System) => Ok(text.to_owned()),
        Err(error) => Err(format!("{error}; a {what} has letters, digits, -, _, % and |")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_is_wrong_with_a_name() {
        let long = "x".repeat(300);
        for name in ["orders", "a-b_c%d|e", "%DLQ%billing", "%RETRY%billing", "SCHEDULE_TOPIC_XXXX", "rmq_sys_x"] {
            assert_eq!(topic(name).as_deref(), Ok(name));
        }
        assert_eq!(topic(&format!("%RETRY%{}", "x".repeat(120))).map(|name| name.len()), Ok(127));
        for name in ["billing", "CID_RMQ_SYS_x"] {
            assert_eq!(group(name).as_deref(), Ok(name));
        }
        for (name, why) in [("", "blank"), ("a b", "' '"), ("ä", "'ä'"), ("a/b", "'/'"), (&long, "300 characters")] {
            for check in [topic, group] {
                assert!(check(name).is_err_and(|said| said.contains(why) && said.contains("letters")), "{name}");
            }
        }
    }
}
