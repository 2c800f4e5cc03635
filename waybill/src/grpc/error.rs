//! What can go wrong with a call, named the way the interface names it.

use std::error::Error;

use waybill_protocol::grpc::v2;

use crate::exit::Failure;

/// How tonic begins its message about an answer that does not come from a gRPC server.
const NOT_GRPC: &str = "grpc-status header missing";

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CallError {
    /// The server answered with a code of the interface.
    Refused { code: i32, message: String },
    /// The call itself failed.
    Transport { code: tonic::Code, message: String },
}

impl CallError {
    /// Whether the server answered with this code.
    pub(crate) fn is(&self, wanted: v2::Code) -> bool {
        matches!(self, Self::Refused { code, .. } if *code == i32::from(wanted))
    }

    /// Short and the same for all errors of one kind: `TOPIC_NOT_FOUND`, `gRPC Unavailable`.
    pub(crate) fn label(&self) -> String {
        match self {
            Self::Refused { code, .. } => {
                v2::Code::try_from(*code).map_or_else(|_unknown| code.to_string(), |code| code.as_str_name().to_owned())
            }
            Self::Transport { code, .. } => format!("gRPC {code:?}"),
        }
    }
}

impl From<tonic::Status> for CallError {
    fn from(status: tonic::Status) -> Self {
        let message = match status.source() {
            Some(source) if status.message().is_empty() || status.code() == tonic::Code::Unknown => root(source),
            _said => status.message().to_owned(),
        };
        // A connection that fails below gRPC, and an answer that is not gRPC's, may be reported under any code.
        let vague = matches!(status.code(), tonic::Code::Unknown | tonic::Code::Internal);
        let code = match status.source() {
            _not_grpc if status.message().starts_with(NOT_GRPC) => tonic::Code::Unavailable,
            Some(_below) if vague => tonic::Code::Unavailable,
            _said => status.code(),
        };
        Self::Transport { code, message }
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        let label = error.label();
        match &error {
            CallError::Refused { code, message } => {
                let failure = Self::failed(format!("{label}: {message}"));
                match v2::Code::try_from(*code).ok().and_then(remedy) {
                    Some(remedy) => failure.hint(remedy),
                    None => failure,
                }
            }
            CallError::Transport { code, message } => {
                let text = format!("{label}: {message}");
                match code {
                    tonic::Code::Unimplemented => Self::failed(text).hint("this server does not know the call"),
                    tonic::Code::Unavailable | tonic::Code::DeadlineExceeded | tonic::Code::Cancelled => {
                        Self::unavailable(text).hint("the server may be starting, overloaded or gone: see its log")
                    }
                    _other => Self::failed(text),
                }
            }
        }
    }
}

/// What to do about a code, where that can be said.
fn remedy(code: v2::Code) -> Option<&'static str> {
    Some(match code {
        v2::Code::TopicNotFound => "waybill topic create <TOPIC>",
        v2::Code::ConsumerGroupNotFound => "waybill group create <GROUP>",
        v2::Code::IllegalInvisibleTime => "--invisible between 10s and 12h",
        v2::Code::InvalidReceiptHandle => {
            "receive the message again: the handle's time is over, or the message was delivered anew"
        }
        v2::Code::MessagePropertyConflictWithType => "send to a topic of this type, or create one of type mixed",
        v2::Code::TooManyRequests => "again a little later: the server has too much to do",
        v2::Code::ProxyTimeout | v2::Code::MasterPersistenceTimeout => {
            "again: the broker did not answer in time, and may have done it all the same"
        }
        _other => return None,
    })
}

/// Turns every code but OK and MULTIPLE_RESULTS into an error. No status at all is one, too.
pub(super) fn check(status: Option<v2::Status>) -> Result<(), CallError> {
    let v2::Status { code, message } = status.unwrap_or_default();
    if code == i32::from(v2::Code::Ok) || code == i32::from(v2::Code::MultipleResults) {
        return Ok(());
    }
    Err(CallError::Refused { code, message })
}

/// The innermost cause: "Connection refused", not "transport error".
pub(super) fn root(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: i32) -> Option<v2::Status> {
        Some(v2::Status { code, message: "said".into() })
    }

    #[test]
    fn only_ok_and_multiple_results_pass() {
        assert_eq!(check(status(20000)), Ok(()));
        assert_eq!(check(status(30000)), Ok(()));
        let error = check(status(40402)).expect_err("refused");
        assert!(error.is(v2::Code::TopicNotFound));
        assert_eq!(error.label(), "TOPIC_NOT_FOUND");
        assert_eq!(check(status(12345)).expect_err("unknown").label(), "12345");
        assert!(check(None).is_err(), "no status is no success");
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        let failure = Failure::from(check(status(40402)).expect_err("refused"));
        assert_eq!(failure, Failure::failed("TOPIC_NOT_FOUND: said").hint("waybill topic create <TOPIC>"));
    }

    #[test]
    fn nobody_there_is_unavailable() {
        let failure = Failure::from(CallError::from(tonic::Status::unavailable("closed")));
        assert!(matches!(failure, f if f == Failure::unavailable("gRPC Unavailable: closed")
            .hint("the server may be starting, overloaded or gone: see its log")));
    }
}
