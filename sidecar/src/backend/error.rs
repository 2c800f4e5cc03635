//! What can go wrong between this process and a broker, and the one place that reads remoting response codes.

use waybill_protocol::remoting::{Command, codes::response};

use super::{transport::TransportError, types::LeaseRef};

/// Why a broker did not do what was asked.
///
/// The gRPC room maps these to its own codes; nobody above this module sees a remoting response code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackendError {
    /// No name server and no broker knows the topic.
    #[error("topic {0} does not exist")]
    TopicNotFound(String),
    /// The broker does not know the consumer group and may not create it.
    #[error("consumer group {0} does not exist")]
    GroupNotFound(String),
    /// The handle names no delivery that is alive: expired, of a past delivery, of another broker, or no handle at all.
    #[error("receipt handle is not valid: {0}")]
    InvalidReceiptHandle(String),
    /// The topic, the group or the broker does not permit the operation.
    #[error("not permitted: {0}")]
    NoPermission(String),
    /// The broker has too much to do; the same request may succeed a little later.
    #[error("broker is busy: {0}")]
    Busy(String),
    /// No answer within the time-out. Whether the broker did it is not known.
    #[error("no answer from the broker in time")]
    Timeout,
    /// The broker does not know this kind of request.
    #[error("the broker does not support this request")]
    NotSupported,
    /// The broker refused the content of the request.
    #[error("refused by the broker: {0}")]
    Illegal(String),
    /// The message is to be delivered later than the broker keeps messages.
    #[error("refused by the broker: {0}")]
    DeliveryTooFar(String),
    /// What is asked for cannot be done to this message any more.
    #[error("refused by the broker: {0}")]
    TooLate(String),
    /// There is no such message.
    #[error("{0}")]
    MessageNotFound(String),
    /// The filter expression cannot be parsed.
    #[error("illegal filter expression: {0}")]
    IllegalFilter(String),
    /// The broker cannot be reached or is shutting down; another one, or the same one later, may answer.
    #[error("broker is not available: {0}")]
    Unavailable(String),
    /// No route names this broker.
    #[error("unknown broker {0}")]
    UnknownBroker(String),
    /// Any other answer.
    #[error("broker answered {code}: {remark}")]
    Other {
        /// The remoting response code.
        code: i32,
        /// The broker's remark, possibly empty.
        remark: String,
    },
}

impl BackendError {
    /// A broker's answer that leaves an entry of a batch out.
    pub(super) fn unanswered_entry() -> Self {
        Self::Other { code: response::SYSTEM_ERROR, remark: "the broker did not answer for this entry".to_owned() }
    }

    /// Whether the same request may succeed if it is sent again, here or elsewhere.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Busy(_) | Self::Timeout | Self::Unavailable(_) | Self::Other { code: response::SYSTEM_ERROR, .. }
        )
    }
}

/// What a request was about; the same response code means different things to different requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    /// The topic asked about, for `TopicNotFound`.
    pub(crate) topic: &'a str,
    /// The consumer group asked about, for `GroupNotFound`.
    pub(crate) group: &'a str,
    /// The request carried a receipt handle, so "no such message" means the handle is bad.
    pub(crate) by_handle: bool,
}

impl<'a> Subject<'a> {
    /// A request about a topic.
    pub(crate) fn topic(topic: &'a str) -> Self {
        Self { topic, group: "", by_handle: false }
    }

    /// A request that carries a receipt handle.
    pub(super) fn handle(lease: &'a LeaseRef) -> Self {
        Self { topic: &lease.topic, group: &lease.group, by_handle: true }
    }
}

/// Reads a response code other than success.
pub(crate) fn from_response(answer: &Command, subject: Subject<'_>) -> BackendError {
    from_code(answer.code, answer.remark.as_deref().unwrap_or_default(), subject)
}

/// Reads the code of one entry of a request, other than success. Entries have no words of their own.
pub(crate) fn from_entry(code: i32, subject: Subject<'_>) -> BackendError {
    let words = match code {
        response::NO_MESSAGE => "it names no living delivery",
        _ => "the broker refuses this entry",
    };
    from_code(code, words, subject)
}

/// How a broker, ours or Apache's, begins to say that a message is to be delivered too late for it.
const TIMER_REFUSES: &str = "timer message illegal";

/// The table of remoting response codes: the only one in this crate.
fn from_code(code: i32, text: &str, subject: Subject<'_>) -> BackendError {
    let remark = || text.to_owned();
    match code {
        response::SYSTEM_BUSY | response::FLOW_CONTROL => BackendError::Busy(remark()),
        response::REQUEST_CODE_NOT_SUPPORTED => BackendError::NotSupported,
        response::SERVICE_NOT_AVAILABLE | response::GO_AWAY => BackendError::Unavailable(remark()),
        response::NO_PERMISSION => BackendError::NoPermission(remark()),
        response::TOPIC_NOT_EXIST => BackendError::TopicNotFound(subject.topic.to_owned()),
        response::SUBSCRIPTION_GROUP_NOT_EXIST => BackendError::GroupNotFound(subject.group.to_owned()),
        response::SUBSCRIPTION_PARSE_FAILED => BackendError::IllegalFilter(remark()),
        response::NO_MESSAGE | response::MESSAGE_ILLEGAL if subject.by_handle => {
            BackendError::InvalidReceiptHandle(remark())
        }
        response::MESSAGE_ILLEGAL if text.starts_with(TIMER_REFUSES) => BackendError::DeliveryTooFar(remark()),
        response::MESSAGE_ILLEGAL | response::INVALID_PARAMETER | response::ILLEGAL_OPERATION => {
            BackendError::Illegal(remark())
        }
        code => BackendError::Other { code, remark: remark() },
    }
}

impl From<TransportError> for BackendError {
    fn from(error: TransportError) -> Self {
        match error {
            TransportError::Timeout => Self::Timeout,
            TransportError::Overloaded => Self::Busy(error.to_string()),
            TransportError::Connection(_) | TransportError::Unreachable(_) => Self::Unavailable(error.to_string()),
        }
    }
}

/// A broker's answer that is not what the protocol says.
pub(super) fn unreadable(error: impl std::fmt::Display) -> BackendError {
    BackendError::Other { code: response::SYSTEM_ERROR, remark: format!("the broker's answer cannot be read: {error}") }
}
