//! The one place that decides which code a client gets for what went wrong.
//!
//! Everything that can go wrong with a call is a [`Problem`]. Its text goes to the client as it is; [`Problem::code`]
//! is the table.

use waybill_protocol::grpc::v2::{Code, Status};
use waybill_protocol::{message::MAX_PROPERTIES, names::NameError};

use crate::access::Refusal;
use crate::backend::BackendError;
use crate::limits;

/// Why a call, or one entry of it, did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Problem {
    // Who calls
    #[error(transparent)]
    Access(#[from] Refusal),
    #[error("client id cannot be empty")]
    ClientIdRequired,
    #[error("client id cannot be longer than {} bytes", limits::CLIENT_ID_BYTES)]
    ClientIdTooLong,
    #[error("cannot find client settings for this client")]
    NoSettings,
    #[error("a client of this type has no {0}")]
    WrongClientType(&'static str),
    #[error("too many clients, max is {}", limits::CLIENTS)]
    TooManyClients,
    #[error("flow limit")]
    FlowLimit,

    // Names
    #[error("The specified topic is blank")]
    TopicBlank,
    #[error("The specified topic is longer than topic max length {0}.")]
    TopicTooLong(usize),
    #[error("The specified topic[{0}] contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$")]
    TopicCharacters(String),
    #[error("cannot access system topic")]
    TopicOfSystem,
    #[error("the specified group is blank")]
    GroupBlank,
    #[error("the specified group is longer than group max length {0}.")]
    GroupTooLong(usize),
    #[error("the specified group[{0}] contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$")]
    GroupCharacters(String),
    #[error("cannot use system consumer group")]
    GroupOfSystem,
    #[error("the namespace[{name}] of the {of} {why}")]
    Namespace { name: String, of: Kind, why: String },
    #[error("the endpoints are malformed: {0}")]
    Endpoints(&'static str),

    // Messages to be stored
    #[error("no message to send")]
    NoMessage,
    #[error("too many messages in one call, max is {}", limits::SEND_MESSAGES)]
    TooManyMessages,
    #[error("the messages of one call cannot exceed the max {0} together")]
    MessagesTooLarge(i64),
    #[error("topic in message is not same")]
    TopicsDiffer,
    #[error("message has no system properties")]
    NoSystemProperties,
    #[error("message body cannot be empty")]
    BodyEmpty,
    #[error("message body cannot exceed the max {0}")]
    BodyTooLarge(i64),
    #[error("too many user properties, max is {0}")]
    TooManyProperties(i64),
    #[error("the total size of user property is too large, max is {0}")]
    UserPropertiesTooLarge(i64),
    #[error("the total size of all properties is too large, max is {}", MAX_PROPERTIES)]
    PropertiesTooLarge,
    #[error("property is used by system: {0}")]
    PropertyReserved(String),
    #[error("the key of property cannot contain control character")]
    PropertyKeyControl,
    #[error("the value of property cannot contain control character")]
    PropertyValueControl,
    #[error("{0} cannot contain control character")]
    TextControl(&'static str),
    #[error("tag cannot be the char sequence of whitespace")]
    TagBlank,
    #[error("tag cannot contain '|'")]
    TagPipe,
    #[error("tag cannot contain control character")]
    TagControl,
    #[error("key cannot be the char sequence of whitespace")]
    KeyBlank,
    #[error("key cannot contain control character")]
    KeyControl,
    #[error("message group cannot be the char sequence of whitespace")]
    MessageGroupBlank,
    #[error("message group exceed the max size {0}")]
    MessageGroupTooLong(i64),
    #[error("message group cannot contain control character")]
    MessageGroupControl,
    #[error("message id cannot be empty")]
    MessageIdBlank,
    #[error("message id cannot contain control character")]
    MessageIdControl,
    #[error("the max delay time of message is too large, max is {0} ms (maxDelayTimeMills)")]
    DeliveryTooFar(i64),
    #[error("the orphaned transaction recovery duration is too long, max is {0} seconds")]
    RecoveryTooLong(i64),
    #[error("transaction id cannot be empty")]
    TransactionIdBlank,
    #[error("transaction id is not valid: {0}")]
    TransactionId(String),
    #[error("the message of a transaction cannot have a delivery timestamp")]
    TransactionDelayed,
    #[error("TopicMessageType validate failed, the expected type is {expected}, but actual type is {actual}")]
    TypeConflict { expected: &'static str, actual: &'static str },
    #[error("no readable queue")]
    NoReadableQueue,

    // Deliveries
    #[error("the invisibleTime is too small. min is {0}")]
    InvisibleTooShort(i64),
    #[error("the invisibleTime is too large. max is {0}")]
    InvisibleTooLong(i64),
    #[error("The deadline time remaining is not enough for polling, please check network condition")]
    PollingTime { old_client: bool },
    #[error("illegal filter expression: {0}")]
    Filter(String),
    #[error("attempt id is longer than {} bytes", limits::ATTEMPT_ID_BYTES)]
    AttemptIdTooLong,
    #[error("receipt handle is malformed: {0}")]
    HandleMalformed(String),
    #[error("recall handle is not valid: {0}")]
    RecallHandle(String),
    #[error("body encoding {0} is not known; there are IDENTITY (1) and GZIP (2)")]
    BodyEncoding(i32),
    #[error("no entry to acknowledge")]
    NoEntry,
    #[error("too many entries in one call, max is {}", limits::ACK_ENTRIES)]
    TooManyEntries,
    #[error("no new message")]
    NoNewMessage,
    #[error("no match message")]
    NoMatchingMessage,
    #[error("polling full")]
    PollingFull,

    // Stored, but less safely than asked for
    #[error("stored, but not known to be on disk")]
    FlushDiskTimeout,
    #[error("stored, but the replica did not answer in time")]
    FlushSlaveTimeout,
    #[error("stored, but there is no replica")]
    SlaveNotAvailable,

    // Telemetry
    #[error("there is no publishing or subscription data in settings")]
    NoPublishingOrSubscription,
    #[error("the settings cannot exceed the max {}", limits::SETTINGS_BYTES)]
    SettingsTooLarge,

    #[error("{0} is not implemented")]
    NotImplemented(&'static str),
    #[error("{0}")]
    Backend(#[from] BackendError),
}

/// What a name is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Topic,
    Group,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Topic => "topic",
            Self::Group => "group",
        })
    }
}

/// Longest part of a name that is said back to the client.
const NAME_CHARS_SHOWN: usize = 128;

impl Problem {
    /// What is wrong with the name of a topic.
    #[must_use]
    pub(super) fn of_topic(name: &str, error: NameError) -> Self {
        match error {
            NameError::Blank => Self::TopicBlank,
            NameError::IllegalCharacter(_) => Self::TopicCharacters(shown(name)),
            NameError::TooLong { max, .. } => Self::TopicTooLong(max),
            NameError::System => Self::TopicOfSystem,
        }
    }

    /// What is wrong with the name of a consumer group.
    #[must_use]
    pub(super) fn of_group(name: &str, error: NameError) -> Self {
        match error {
            NameError::Blank => Self::GroupBlank,
            NameError::IllegalCharacter(_) => Self::GroupCharacters(shown(name)),
            NameError::TooLong { max, .. } => Self::GroupTooLong(max),
            NameError::System => Self::GroupOfSystem,
        }
    }

    /// What is wrong with the namespace that a topic or group is said to be in.
    #[must_use]
    pub(super) fn of_namespace(name: &str, of: Kind, error: NameError) -> Self {
        let why = match error {
            NameError::IllegalCharacter(_) => "contains illegal characters, allowing only ^[a-zA-Z0-9_-]+$".to_owned(),
            NameError::TooLong { max, .. } => format!("is longer than namespace max length {max}."),
            other => other.to_string(),
        };
        Self::Namespace { name: shown(name), of, why }
    }

    /// The code a client gets. This is the table.
    #[must_use]
    pub(super) fn code(&self) -> Code {
        match self {
            Self::Access(refusal) if refusal.is_forbidden() => Code::Forbidden,
            Self::Access(_) => Code::Unauthorized,
            Self::ClientIdRequired | Self::ClientIdTooLong => Code::ClientIdRequired,
            Self::NoSettings | Self::WrongClientType(_) => Code::UnrecognizedClientType,
            Self::TooManyClients | Self::FlowLimit | Self::PollingFull => Code::TooManyRequests,

            Self::TopicBlank | Self::TopicTooLong(_) | Self::TopicCharacters(_) | Self::TopicOfSystem => {
                Code::IllegalTopic
            }
            Self::GroupBlank | Self::GroupTooLong(_) | Self::GroupCharacters(_) | Self::GroupOfSystem => {
                Code::IllegalConsumerGroup
            }
            Self::Namespace { of: Kind::Topic, .. } => Code::IllegalTopic,
            Self::Namespace { of: Kind::Group, .. } => Code::IllegalConsumerGroup,
            Self::Endpoints(_) => Code::IllegalAccessPoint,

            Self::NoMessage | Self::TopicsDiffer | Self::BodyEncoding(_) => Code::MessageCorrupted,
            Self::MessagesTooLarge(_) => Code::PayloadTooLarge,
            Self::BodyEmpty => Code::MessageBodyEmpty,
            Self::BodyTooLarge(_) => Code::MessageBodyTooLarge,
            Self::TooManyProperties(_) | Self::UserPropertiesTooLarge(_) | Self::PropertiesTooLarge => {
                Code::MessagePropertiesTooLarge
            }
            Self::PropertyReserved(_) | Self::PropertyKeyControl | Self::PropertyValueControl => {
                Code::IllegalMessagePropertyKey
            }
            Self::TagBlank | Self::TagPipe | Self::TagControl => Code::IllegalMessageTag,
            Self::KeyBlank | Self::KeyControl => Code::IllegalMessageKey,
            Self::MessageGroupBlank | Self::MessageGroupTooLong(_) | Self::MessageGroupControl => {
                Code::IllegalMessageGroup
            }
            Self::MessageIdBlank | Self::MessageIdControl => Code::IllegalMessageId,
            Self::DeliveryTooFar(_) => Code::IllegalDeliveryTime,
            Self::TransactionIdBlank | Self::TransactionId(_) => Code::InvalidTransactionId,
            Self::TypeConflict { .. } | Self::TransactionDelayed => Code::MessagePropertyConflictWithType,
            Self::NoReadableQueue => Code::Forbidden,

            Self::InvisibleTooShort(_) | Self::InvisibleTooLong(_) => Code::IllegalInvisibleTime,
            Self::PollingTime { old_client: false } => Code::IllegalPollingTime,
            Self::Filter(_) => Code::IllegalFilterExpression,
            Self::HandleMalformed(_) => Code::InvalidReceiptHandle,
            Self::NoNewMessage | Self::NoMatchingMessage => Code::MessageNotFound,

            Self::FlushDiskTimeout => Code::MasterPersistenceTimeout,
            Self::FlushSlaveTimeout => Code::SlavePersistenceTimeout,
            Self::SlaveNotAvailable => Code::HaNotAvailable,

            Self::PollingTime { old_client: true }
            | Self::TooManyMessages
            | Self::NoSystemProperties
            | Self::TextControl(_)
            | Self::RecoveryTooLong(_)
            | Self::AttemptIdTooLong
            | Self::RecallHandle(_)
            | Self::NoEntry
            | Self::TooManyEntries
            | Self::NoPublishingOrSubscription
            | Self::SettingsTooLarge => Code::BadRequest,

            Self::NotImplemented(_) => Code::NotImplemented,
            Self::Backend(error) => backend_code(error),
        }
    }

    /// The status for the body of an answer.
    #[must_use]
    pub(super) fn status(&self) -> Status {
        Status { code: self.code().into(), message: self.to_string() }
    }

    /// The error that ends a telemetry stream, which has no body to carry a status before the settings are known.
    ///
    /// A client's own mistake is INVALID_ARGUMENT, as with upstream; what will pass is UNAVAILABLE, so that clients
    /// come back.
    #[must_use]
    pub(super) fn stream_error(&self) -> tonic::Status {
        let text = match self {
            Self::NoPublishingOrSubscription | Self::ClientIdRequired | Self::Access(_) => self.to_string(),
            _ => format!("process client telemetryCommand failed. {self}"),
        };
        match (self, self.code() as i32) {
            (Self::Access(refusal), _) if refusal.is_forbidden() => tonic::Status::permission_denied(text),
            (Self::Access(_), _) => tonic::Status::unauthenticated(text),
            (Self::Backend(error), _) if error.is_retryable() => tonic::Status::unavailable(text),
            (Self::TooManyClients | Self::FlowLimit, _) => tonic::Status::resource_exhausted(text),
            (_, 40_000..=49_999) => tonic::Status::invalid_argument(text),
            _ => tonic::Status::internal(text),
        }
    }
}

fn shown(name: &str) -> String {
    name.chars().take(NAME_CHARS_SHOWN).collect()
}

fn backend_code(error: &BackendError) -> Code {
    match error {
        BackendError::TopicNotFound(_) => Code::TopicNotFound,
        BackendError::GroupNotFound(_) => Code::ConsumerGroupNotFound,
        BackendError::InvalidReceiptHandle(_) | BackendError::UnknownBroker(_) => Code::InvalidReceiptHandle,
        BackendError::NoPermission(_) => Code::Forbidden,
        BackendError::Busy(_) => Code::TooManyRequests,
        BackendError::Timeout => Code::ProxyTimeout,
        BackendError::NotSupported => Code::NotImplemented,
        BackendError::Illegal(_) => Code::BadRequest,
        BackendError::DeliveryTooFar(_) => Code::IllegalDeliveryTime,
        BackendError::TooLate(_) => Code::PreconditionFailed,
        BackendError::MessageNotFound(_) => Code::MessageNotFound,
        BackendError::IllegalFilter(_) => Code::IllegalFilterExpression,
        BackendError::Unavailable(_) | BackendError::Other { .. } => Code::InternalServerError,
    }
}

/// The status of an answer without fault.
#[must_use]
pub(super) fn ok() -> Status {
    Status { code: Code::Ok.into(), message: "OK".to_owned() }
}

/// The status over several entries: the one code they share, or MULTIPLE_RESULTS.
///
/// `empty` is what an answer without entries gets.
#[must_use]
pub(super) fn overall<'a>(entries: impl IntoIterator<Item = &'a Status>, empty: &Problem) -> Status {
    let mut entries = entries.into_iter();
    let Some(first) = entries.next() else { return empty.status() };
    if entries.all(|entry| entry.code == first.code) {
        return Status { code: first.code, message: name(first.code).to_owned() };
    }
    Status { code: Code::MultipleResults.into(), message: Code::MultipleResults.as_str_name().to_owned() }
}

/// The name of a code, for texts and metrics; numbers that are no code share one name.
#[must_use]
pub(super) fn name(code: i32) -> &'static str {
    Code::try_from(code).unwrap_or(Code::Unspecified).as_str_name()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: Code) -> Status {
        Status { code: code.into(), message: "x".into() }
    }

    #[test]
    fn every_failure_of_a_broker_has_a_code() {
        let text = String::new;
        for (error, code) in [
            (BackendError::TopicNotFound(text()), Code::TopicNotFound),
            (BackendError::GroupNotFound(text()), Code::ConsumerGroupNotFound),
            (BackendError::InvalidReceiptHandle(text()), Code::InvalidReceiptHandle),
            (BackendError::UnknownBroker(text()), Code::InvalidReceiptHandle),
            (BackendError::NoPermission(text()), Code::Forbidden),
            (BackendError::Busy(text()), Code::TooManyRequests),
            (BackendError::Timeout, Code::ProxyTimeout),
            (BackendError::NotSupported, Code::NotImplemented),
            (BackendError::Illegal(text()), Code::BadRequest),
            (BackendError::DeliveryTooFar(text()), Code::IllegalDeliveryTime),
            (BackendError::TooLate(text()), Code::PreconditionFailed),
            (BackendError::MessageNotFound(text()), Code::MessageNotFound),
            (BackendError::IllegalFilter(text()), Code::IllegalFilterExpression),
            (BackendError::Unavailable(text()), Code::InternalServerError),
            (BackendError::Other { code: 1, remark: text() }, Code::InternalServerError),
        ] {
            assert_eq!(Problem::from(error.clone()).code(), code, "{error}");
        }
    }

    /// docs/errors.md has a row for every code that the code of this file can give, and for no other.
    #[test]
    fn every_code_is_explained_to_users() {
        let source = include_str!("errors.rs").split("#[cfg(test)]").next().unwrap_or_default();
        let named = |code: &Code| source.contains(&format!("Code::{code:?}")) && *code != Code::Unspecified;
        let codes = (0..100_000).filter_map(|number| Code::try_from(number).ok()).filter(named);
        let mut in_code: Vec<String> =
            codes.map(|code| format!("`{}` | {}", code.as_str_name(), code as i32)).collect();
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/errors.md");
        let page = std::fs::read_to_string(page).expect("docs/errors.md");
        let cells = page.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
        let number = |rest: &str| rest.split(" |").next().and_then(|cell| cell.parse::<i32>().ok());
        let mut in_page: Vec<String> =
            cells.filter_map(|(name, rest)| Some(format!("{name} | {}", number(rest)?))).collect();
        in_code.sort();
        in_page.sort();
        assert!(in_code.len() > 30, "{in_code:?}");
        assert_eq!(in_page, in_code);
    }

    #[test]
    fn one_status_over_all() {
        let overall = |codes: &[Code]| {
            let entries = codes.iter().copied().map(status).collect::<Vec<_>>();
            super::overall(&entries, &Problem::NoEntry)
        };
        assert_eq!(overall(&[]).code(), Code::BadRequest);
        let same = overall(&[Code::InvalidReceiptHandle; 3]);
        assert_eq!((same.code(), same.message.as_str()), (Code::InvalidReceiptHandle, "INVALID_RECEIPT_HANDLE"));
        assert_eq!(overall(&[Code::Ok, Code::Ok]).message, "OK");
        let mixed = overall(&[Code::Ok, Code::InvalidReceiptHandle]);
        assert_eq!((mixed.code(), mixed.message.as_str()), (Code::MultipleResults, "MULTIPLE_RESULTS"));
    }

    #[test]
    fn how_a_telemetry_stream_ends() {
        let code = |problem: Problem| problem.stream_error().code();
        assert_eq!(code(Problem::GroupBlank), tonic::Code::InvalidArgument);
        assert_eq!(code(BackendError::GroupNotFound("g".into()).into()), tonic::Code::InvalidArgument);
        assert_eq!(code(BackendError::Timeout.into()), tonic::Code::Unavailable);
        assert_eq!(code(Problem::TooManyClients), tonic::Code::ResourceExhausted);
        assert_eq!(code(BackendError::NotSupported.into()), tonic::Code::Internal);
        let text = Problem::NoPublishingOrSubscription.stream_error();
        assert_eq!(text.message(), "there is no publishing or subscription data in settings");
    }

    #[test]
    fn names_are_said_back_in_part() {
        let name = "é".repeat(100_000);
        let said = Problem::of_topic(&name, NameError::IllegalCharacter('é')).to_string();
        assert!(said.len() < 1_000, "{}", said.len());
    }
}
