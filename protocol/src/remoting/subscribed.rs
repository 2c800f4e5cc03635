//! What a consumer subscribes to in all: ours, beside what upstream's requests say. Others ignore it.

/// The ext field of POP_MESSAGE: all topics that the client subscribes to, sorted and joined by commas. Not there: not known.
pub const SUBSCRIBED_TOPICS: &str = "subscribedTopics";
