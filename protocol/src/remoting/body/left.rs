use serde::{Deserialize, Serialize};

use super::JsonBody;

/// What would be lost to somebody if a broker were taken away: the answer to COUNT_LEFT. Ours.
///
/// Unlike with other bodies, a key that is missing is an error: nobody may take it for "nothing is left".
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeftBody {
    /// What the broker allows now: with bit 2 it takes new messages, and what is left may become more.
    pub permission: i32,
    /// Messages that groups are not done with, those that consumers hold apart; of a topic that no group has ever read, all messages.
    pub unread: u64,
    /// Messages that consumers hold.
    pub in_flight: u64,
    /// Messages that are not due yet.
    pub delayed: u64,
    /// Halves of transactions that are not decided.
    pub half: u64,
    /// Dead letters that were not sent back, and that no group reads.
    pub dead_letters: u64,
    /// The topics that all of this is in, in the order of their names; not always all of them.
    pub topics: Vec<String>,
}

impl JsonBody for LeftBody {}

impl LeftBody {
    /// Whether the broker still takes new messages.
    #[must_use]
    pub fn takes_more(&self) -> bool {
        self.permission & 2 != 0
    }

    /// Whether nothing is left.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        let Self { permission: _, unread, in_flight, delayed, half, dead_letters, topics: _ } = self;
        [unread, in_flight, delayed, half, dead_letters].iter().all(|count| **count == 0)
    }
}
