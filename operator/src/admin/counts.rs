//! What the groups of one broker have before them.

use std::collections::HashMap;

use serde::Deserialize;
use waybill_protocol::remoting::Command;
use waybill_protocol::remoting::codes::own;

use super::{AdminError, Connection};
use crate::api::GroupCounts;

/// The broker's answer to COUNT_MESSAGES, as far as it is used here.
#[derive(Deserialize)]
struct Answer {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Group {
    group: String,
    #[serde(default)]
    members: i64,
    dead_letters: i64,
    topics: Vec<OfTopic>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfTopic {
    lag: i64,
    in_flight: i64,
}

impl From<&Group> for GroupCounts {
    fn from(group: &Group) -> Self {
        let sum = |of: fn(&OfTopic) -> i64| group.topics.iter().map(of).fold(0, i64::saturating_add);
        Self {
            members: group.members,
            lag: sum(|topic| topic.lag),
            in_flight: sum(|topic| topic.in_flight),
            dead_letters: group.dead_letters,
        }
    }
}

/// What each group of a broker has before it. Of some thousand groups it does not tell all.
///
/// # Errors
/// The broker cannot be asked, or is of a version that does not know the question.
pub(crate) async fn counts(broker: &mut Connection) -> Result<HashMap<String, GroupCounts>, AdminError> {
    let answer = broker.demand(Command::request(own::COUNT_MESSAGES)).await?;
    let answer: Answer = serde_json::from_slice(&answer.body)
        .map_err(|error| AdminError::Unreachable(format!("its answer cannot be read: {error}")))?;
    Ok(answer.groups.iter().map(|group| (group.group.clone(), GroupCounts::from(group))).collect())
}
