//! Why somebody is not let in, or not to something.

/// Why a call is refused. What is told of the caller's proof is the same for all that have none that is good.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It does not say whose it is.
    #[error("access is for users only: the call has no access key")]
    Unsigned,
    /// It says so in a form that nobody knows.
    #[error("the header authorization cannot be read, or x-mq-date-time is missing")]
    Malformed,
    /// No user has the access key.
    #[error("access key or signature is wrong")]
    UnknownAccessKey,
    /// The signature was not made with the user's secret key.
    #[error("access key or signature is wrong")]
    WrongSignature,
    /// The user is switched off.
    #[error("the user is switched off")]
    Disabled,
    /// The user may not do it.
    #[error("user {access_key} may not {what}")]
    Forbidden {
        /// Who.
        access_key: String,
        /// What.
        what: String,
    },
}

impl Refusal {
    /// Whether it is about what the user may do; otherwise it is about who it is.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Forbidden { .. })
    }

    /// One of a fixed set of words, for metrics.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unsigned => "unsigned",
            Self::Malformed => "malformed",
            Self::UnknownAccessKey => "unknown_access_key",
            Self::WrongSignature => "wrong_signature",
            Self::Disabled => "disabled",
            Self::Forbidden { .. } => "forbidden",
        }
    }
}
