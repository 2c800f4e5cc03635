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

/// Stands between a namespace and a name. Not allowed in namespaces, hence the first one is where the namespace ends.
pub const NAMESPACE_SEPARATOR: char = '%';

/// The name under which brokers know a topic or group of a namespace: `namespace%name`, with the prefix of a topic that derives from
/// a group in front (`%RETRY%namespace%group`). A name that is in the namespace already stays as it is; the empty namespace is none.
pub fn in_namespace(namespace: &str, name: &str) -> String {
    let (prefix, bare) = prefix_of(name);
    let is_in = bare.strip_prefix(namespace).is_some_and(|rest| rest.starts_with(NAMESPACE_SEPARATOR));
    if namespace.is_empty() || is_in {
        return name.to_owned();
    }
    format!("{prefix}{namespace}{NAMESPACE_SEPARATOR}{bare}")
}

/// The reverse of [`in_namespace`]; a name that is not in the namespace stays as it is.
pub fn without_namespace(namespace: &str, name: &str) -> String {
    let (prefix, rest) = prefix_of(name);
    let bare = rest.strip_prefix(namespace).and_then(|rest| rest.strip_prefix(NAMESPACE_SEPARATOR));
    match bare {
        Some(bare) if !namespace.is_empty() => format!("{prefix}{bare}"),
        _ => name.to_owned(),
    }
}

fn prefix_of(name: &str) -> (&str, &str) {
    let prefix = [RETRY_PREFIX, DLQ_PREFIX].into_iter().find(|prefix| name.starts_with(prefix));
    name.split_at(prefix.map_or(0, str::len))
}

/// Whether clients may name a namespace so: ASCII letters, digits, `_` and `-`. The empty one is none.
///
/// # Errors
/// The reason why not.
pub fn validate_namespace(namespace: &str) -> Result<(), NameError> {
    let allowed = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    match namespace.chars().find(|c| !allowed(c)) {
        Some(c) => Err(NameError::IllegalCharacter(c)),
        None if namespace.len() > MAX_GROUP => Err(NameError::TooLong { len: namespace.len(), max: MAX_GROUP }),
        None => Ok(()),
    }
}

/// The longest topic that users may name.
pub const MAX_TOPIC: usize = 127;
/// The longest consumer group that users may name.
pub const MAX_GROUP: usize = 120;

/// Topics that belong to RocketMQ itself, beside those with [`SYSTEM_TOPIC_PREFIX`].
const SYSTEM_TOPICS: [&str; 10] = [
    "TBW102",
    "SCHEDULE_TOPIC_XXXX",
    "BenchmarkTest",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRACE_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC",
    "SELF_TEST_TOPIC",
    "OFFSET_MOVED_EVENT",
    "CHECKPOINT_TOPIC",
];
/// Prefix of topics that belong to RocketMQ itself.
pub const SYSTEM_TOPIC_PREFIX: &str = "rmq_sys_";
/// Prefix of consumer groups that belong to RocketMQ itself.
pub const SYSTEM_GROUP_PREFIX: &str = "CID_RMQ_SYS_";

/// Why a name is not allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing, or only white space.
    #[error("the name is blank")]
    Blank,
    /// Something other than an ASCII letter, a digit, `_`, `-`, `%` or `|`.
    #[error("the character {0:?} is not allowed")]
    IllegalCharacter(char),
    /// Too long.
    #[error("the name has {len} characters, at most {max} are allowed")]
    TooLong {
        /// In characters.
        len: usize,
        /// What is allowed.
        max: usize,
    },
    /// A name that belongs to RocketMQ itself.
    #[error("the name belongs to the system")]
    System,
}

/// Whether users may name a topic so.
///
/// # Errors
/// The reason why not.
pub fn validate_topic(name: &str) -> Result<(), NameError> {
    validate(name, MAX_TOPIC)?;
    if is_system_topic(name) { Err(NameError::System) } else { Ok(()) }
}

/// Whether users may name a consumer group so.
///
/// # Errors
/// The reason why not.
pub fn validate_group(name: &str) -> Result<(), NameError> {
    validate(name, MAX_GROUP)?;
    if is_system_group(name) { Err(NameError::System) } else { Ok(()) }
}

/// Whether a topic belongs to RocketMQ itself.
pub fn is_system_topic(name: &str) -> bool {
    name.starts_with(SYSTEM_TOPIC_PREFIX) || SYSTEM_TOPICS.contains(&name)
}

/// Whether a consumer group belongs to RocketMQ itself.
pub fn is_system_group(name: &str) -> bool {
    name.starts_with(SYSTEM_GROUP_PREFIX)
}

fn validate(name: &str, max: usize) -> Result<(), NameError> {
    if name.trim().is_empty() {
        return Err(NameError::Blank);
    }
    let allowed = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '%' | '|');
    if let Some(c) = name.chars().find(|c| !allowed(c)) {
        return Err(NameError::IllegalCharacter(c));
    }
    if name.len() > max { Err(NameError::TooLong { len: name.len(), max }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derived_names() {
        assert_eq!(retry_topic_v1("g", "t"), "%RETRY%g_t");
        assert_eq!(retry_topic_v2("g", "t"), "%RETRY%g+t");
        assert_eq!(retry_topic_of_group("g"), "%RETRY%g");
        assert_eq!(dlq_topic("g"), "%DLQ%g");
    }

    #[test]
    fn namespaces() {
        for (bare, full) in
            [("t", "ns%t"), ("a%b", "ns%a%b"), ("%RETRY%g", "%RETRY%ns%g"), ("%DLQ%g", "%DLQ%ns%g"), ("ns", "ns%ns")]
        {
            assert_eq!((in_namespace("ns", bare), without_namespace("ns", full)), (full.into(), bare.into()));
            assert_eq!(in_namespace("ns", full), full, "once is enough");
            assert_eq!((in_namespace("", bare), without_namespace("", bare)), (bare.into(), bare.into()));
        }
        assert_eq!(dlq_topic(&in_namespace("ns", "g")), in_namespace("ns", &dlq_topic("g")));
        assert_ne!(in_namespace("a", "t"), in_namespace("b", "t"));
        assert_eq!(without_namespace("ns", "other%t"), "other%t");
        assert_eq!(without_namespace("ns", "nst"), "nst");
        assert_eq!(without_namespace("", "%t"), "%t");
        assert_eq!((validate_namespace("Team-1_x"), validate_namespace("")), (Ok(()), Ok(())));
        for bad in ["a%b", "%", "a b", "a|b", "ü", "a+b"] {
            assert!(matches!(validate_namespace(bad), Err(NameError::IllegalCharacter(_))), "{bad}");
        }
        assert!(matches!(validate_namespace(&"n".repeat(121)), Err(NameError::TooLong { .. })));
    }

    #[test]
    fn topics() {
        for good in ["t", "Orders-2_a%b|c", "RMQ_SYS", "%RETRY%group", &"x".repeat(127)] {
            assert_eq!(validate_topic(good), Ok(()), "{good}");
        }
        let bad = [
            ("", NameError::Blank),
            (" \t", NameError::Blank),
            ("a+b", NameError::IllegalCharacter('+')),
            ("a.b", NameError::IllegalCharacter('.')),
            ("a b", NameError::IllegalCharacter(' ')),
            ("größe", NameError::IllegalCharacter('ö')),
            ("a\u{1}", NameError::IllegalCharacter('\u{1}')),
            ("TBW102", NameError::System),
            ("rmq_sys_x", NameError::System),
        ];
        for (name, reason) in bad {
            assert_eq!(validate_topic(name), Err(reason), "{name}");
        }
        assert_eq!(validate_topic(&"x".repeat(128)), Err(NameError::TooLong { len: 128, max: 127 }));
    }

    #[test]
    fn groups() {
        assert_eq!(validate_group(&"g".repeat(120)), Ok(()));
        assert_eq!(validate_group(&"g".repeat(121)), Err(NameError::TooLong { len: 121, max: 120 }));
        assert_eq!(validate_group("TBW102"), Ok(()));
        assert_eq!(validate_group("CID_RMQ_SYS_x"), Err(NameError::System));
        assert_eq!(validate_group(""), Err(NameError::Blank));
        assert_eq!(validate_group("a:b"), Err(NameError::IllegalCharacter(':')));
    }
}
