//! Brokers and sidecars as their own ports show them: topics and groups of one broker over the remoting protocol, which Apache's
//! brokers understand too; what is left in a broker; and the configuration that is in force.

mod connection;
mod counts;
pub(crate) mod group;
mod hanging;
mod http;
mod left;
pub(crate) mod topic;

pub use connection::{Connection, Limits, Way};
pub(crate) use counts::counts;
pub use group::GroupSettings;
pub use hanging::Hanging;
pub use http::{InForce, configuration};
pub(crate) use left::{in_words, left};
pub use topic::TopicSettings;

/// What became of a thing on a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// It was as it should be.
    Unchanged,
    /// It was not there.
    Created,
    /// It was there, and not as it should be.
    Changed,
}

/// What a deletion came to on a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gone {
    /// It is not there any more.
    Deleted,
    /// It has something in it, and was to go only if not.
    NotEmpty,
}

/// Why a broker does not have what it should.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdminError {
    /// Nobody is there, or the answer does not come or cannot be read. Worth another try.
    #[error("{0}")]
    Unreachable(String),
    /// The broker's answer: it will not.
    #[error("{0}")]
    Refused(String),
}
