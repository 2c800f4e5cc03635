//! What is left in a broker that somebody waits for.

use serde::Deserialize;
use waybill_protocol::remoting::Command;
use waybill_protocol::remoting::codes::own;

use super::{AdminError, Connection};

/// The broker's answer to COUNT_LEFT.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Left {
    /// What the broker allows: with 2 it takes new messages, and what is left may become more.
    pub permission: i32,
    /// Messages that groups are not done with, those in flight apart.
    pub unread: u64,
    /// Messages that consumers hold.
    pub in_flight: u64,
    /// Messages that are not due yet.
    pub delayed: u64,
    /// Halves of transactions that are not decided.
    pub half: u64,
    /// Dead letters that were not sent back.
    pub dead_letters: u64,
    /// Topics that all of this is in; not always all.
    pub topics: Vec<String>,
}

impl Left {
    /// Whether the broker still takes new messages.
    #[must_use]
    pub fn takes_more(&self) -> bool {
        self.permission & 2 != 0
    }

    /// Whether nothing is left.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.counts().iter().all(|(count, _)| *count == 0)
    }

    /// What is left, in words.
    #[must_use]
    pub fn in_words(&self) -> String {
        /// Topics that are named.
        const NAMED: usize = 5;
        let counts = self.counts();
        let said: Vec<String> =
            counts.iter().filter(|(count, _)| *count > 0).map(|(n, what)| format!("{n} {what}")).collect();
        let named: Vec<&str> = self.topics.iter().take(NAMED).map(String::as_str).collect();
        let more = if self.topics.len() > named.len() { " and others" } else { "" };
        format!("{} (in {}{more})", said.join(", "), named.join(", "))
    }

    fn counts(&self) -> [(u64, &'static str); 5] {
        [
            (self.unread, "unread"),
            (self.in_flight, "in flight"),
            (self.delayed, "delayed"),
            (self.half, "of open transactions"),
            (self.dead_letters, "dead letters"),
        ]
    }
}

/// Asks a broker what is left in it.
///
/// # Errors
/// The broker cannot be asked, or is of a version that does not know the question.
pub(crate) async fn left(broker: &mut Connection) -> Result<Left, AdminError> {
    let answer = broker.demand(Command::request(own::COUNT_LEFT)).await?;
    serde_json::from_slice(&answer.body)
        .map_err(|error| AdminError::Unreachable(format!("its answer cannot be read: {error}")))
}
