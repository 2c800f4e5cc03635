//! What can go wrong with a request, and the one place that turns it into a remoting response code.

use waybill_protocol::remoting::Command;
use waybill_protocol::remoting::codes::{own_response, response};

use crate::store::StoreError;

/// Why a request was refused or could not be carried out.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BrokerError {
    /// The topic does not exist here.
    #[error("topic[{0}] not exist, create it first (waybill topic create {0}) or set autoCreateTopicEnable")]
    TopicNotFound(String),
    /// The consumer group does not exist here.
    #[error(
        "subscription group[{0}] not exist, create it first (waybill group create {0}) or set autoCreateSubscriptionGroup"
    )]
    GroupNotFound(String),
    /// The broker, the topic or the group does not allow it.
    #[error("{0}")]
    NoPermission(String),
    /// A parameter is missing, malformed or out of range.
    #[error("{0}")]
    InvalidParameter(String),
    /// The message, or a batch of entries, breaks a rule; nothing of it was taken.
    #[error("{0}")]
    Illegal(String),
    /// What is asked for cannot be done to this message, or not any more.
    #[error("{0}")]
    IllegalOperation(String),
    /// The receipt handle does not name a live delivery.
    #[error("the receipt handle names no live delivery: {0}")]
    StaleHandle(String),
    /// The topic has messages, and was to be deleted only if it has none.
    #[error("topic[{0}] has messages")]
    TopicNotEmpty(String),
    /// A message or offset that was asked for is not there.
    #[error("{0}")]
    NotFound(String),
    /// A transaction was decided otherwise before.
    #[error("{0}")]
    Decided(String),
    /// The request asks for something this release does not do.
    #[error("{0}")]
    NotSupported(String),
    /// The filter expression cannot be parsed.
    #[error("{0}")]
    IllegalFilter(String),
    /// Nothing came until the poll ended.
    #[error("no new message")]
    PollingTimeout,
    /// Too many polls are waiting.
    #[error("too many polls are waiting, limit {0}")]
    PollingFull(usize),
    /// There is no consumer of that group.
    #[error("no consumer of group {0} is online")]
    NoConsumer(String),
    /// The disk is full; sends are refused, what is stored can still be consumed.
    #[error("the disk is full: {0}; free space and the broker takes messages again by itself")]
    DiskFull(String),
    /// The store does not take writes now; the broker recovers by re-opening it. Retry.
    #[error("the store is not available, retry: {0}")]
    Unavailable(String),
    /// The broker is stopping. Retry elsewhere or later.
    #[error("the broker is stopping, retry")]
    Stopping,
    /// Too much work is waiting. Retry later.
    #[error("[OVERLOAD]{0}")]
    Busy(String),
    /// A defect or a damaged record; details are in the log.
    #[error("{0}")]
    Internal(String),
}

impl BrokerError {
    /// The response code of the remoting protocol for this error.
    pub fn code(&self) -> i32 {
        match self {
            Self::TopicNotFound(_) => response::TOPIC_NOT_EXIST,
            Self::GroupNotFound(_) => response::SUBSCRIPTION_GROUP_NOT_EXIST,
            Self::NoPermission(_) => response::NO_PERMISSION,
            Self::InvalidParameter(_) => response::INVALID_PARAMETER,
            Self::Illegal(_) => response::MESSAGE_ILLEGAL,
            Self::StaleHandle(_) => response::NO_MESSAGE,
            Self::IllegalOperation(_) => response::ILLEGAL_OPERATION,
            Self::TopicNotEmpty(_) => own_response::TOPIC_NOT_EMPTY,
            Self::NotFound(_) => response::QUERY_NOT_FOUND,
            Self::Decided(_) => response::ILLEGAL_OPERATION,
            Self::NotSupported(_) => response::REQUEST_CODE_NOT_SUPPORTED,
            Self::IllegalFilter(_) => response::SUBSCRIPTION_PARSE_FAILED,
            Self::PollingTimeout => response::POLLING_TIMEOUT,
            Self::PollingFull(_) => response::POLLING_FULL,
            Self::DiskFull(_) | Self::Unavailable(_) | Self::Stopping => response::SERVICE_NOT_AVAILABLE,
            Self::Busy(_) => response::SYSTEM_BUSY,
            Self::NoConsumer(_) | Self::Internal(_) => response::SYSTEM_ERROR,
        }
    }

    /// The answer to send.
    pub fn to_response(&self) -> Command {
        Command::response(self.code(), self.to_string())
    }
}

impl From<StoreError> for BrokerError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::DiskFull => Self::DiskFull(error.to_string()),
            StoreError::Busy => Self::Busy(error.to_string()),
            StoreError::NotFound(_) => Self::NotFound(error.to_string()),
            StoreError::TooLarge { .. } => Self::Illegal(error.to_string()),
            StoreError::Corrupt { .. } | StoreError::OutOfOrder { .. } | StoreError::Options { .. } => {
                Self::Internal(error.to_string())
            }
            StoreError::Locked(_) => {
                Self::Internal(format!("{error}; stop the other process or choose another directory"))
            }
            StoreError::Failed(_) | StoreError::Closed | StoreError::Io { .. } | StoreError::Index(_) => {
                Self::Unavailable(error.to_string())
            }
        }
    }
}
