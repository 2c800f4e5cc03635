//! Names of topics and consumer groups: which are allowed, and which are derived from others.

/// Prefix of the topics with messages to be tried again.
pub const RETRY_PREFIX: &str = "%RETRY%";
/// Prefix of the topics with dead letters.
pub const DLQ_PREFIX: &str = "%DLQ%";
/// Stands between group and topic in a retry topic of the second version. Not allowed in names, hence unambiguous.
pub const RETRY_V2_SEPARATOR: char = '+';

/// `%RETRY%<group>_<topic>`. Cannot be taken apart again for certain: both names may contain `_`.
pub fn retry_topic_v1(group: &str, topic: &str) -> String {
    format!("{RETRY_PREFIX}{group}_{topic}")
}

/// `%RETRY%<group>+<topic>`.
pub fn retry_topic_v2(group: &str, topic: &str) -> String {
    format!("{RETRY_PREFIX}{group}{RETRY_V2_SEPARATOR}{topic}")
}

/// `%RETRY%<group>`: where 4.x consumers find what they gave back.
pub fn retry_topic_of_group(group: &str) -> String {
    format!("{RETRY_PREFIX}{group}")
}

/// `%DLQ%<group>`.
pub fn dlq_topic(group: &str) -> String {
    format!("{DLQ_PREFIX}{group}")
}
