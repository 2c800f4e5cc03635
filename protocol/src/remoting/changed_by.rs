//! Why the end of a lease was moved: ours, beside what upstream's requests say. Others ignore it.

/// The ext field of CHANGE_MESSAGE_INVISIBLETIME, and the key of an entry of BATCH_CHANGE_MESSAGE_INVISIBLETIME.
pub const CHANGED_BY: &str = "changedBy";

/// On whose behalf the end of a lease was moved last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ChangedBy {
    /// Not moved, or whoever moved it did not say.
    #[default]
    Unknown,
    /// A sidecar, because the client still holds the message.
    Renewal,
    /// The client, which gave the message back. (Of a client whose sidecar cannot tell, also an extension.)
    Client,
    /// A sidecar, because the client is gone, did not get the message, or does not want it.
    Return,
    /// Somebody with `waybill lease`.
    Operator,
    /// The broker, because nobody vouched for the client.
    Broker,
    /// The client, which holds the message until then: a simple consumer says itself for how long that is.
    Extension,
}

impl ChangedBy {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Unknown, Self::Renewal, Self::Client, Self::Return, Self::Operator, Self::Broker, Self::Extension];

    /// As requests and answers have it; nothing for [`Self::Unknown`].
    #[must_use]
    pub fn word(self) -> Option<&'static str> {
        match self {
            Self::Unknown => None,
            Self::Renewal => Some("renewal"),
            Self::Client => Some("client"),
            Self::Return => Some("return"),
            Self::Operator => Some("operator"),
            Self::Broker => Some("broker"),
            Self::Extension => Some("extension"),
        }
    }

    /// What a request says; any other word is [`Self::Unknown`], and so is `broker`, which no request may claim.
    #[must_use]
    pub fn of_request(word: Option<&str>) -> Self {
        let is = |by: &Self| *by != Self::Broker && by.word() == word;
        Self::ALL.into_iter().find(is).unwrap_or_default()
    }
}
