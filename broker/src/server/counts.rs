//! How far groups are, and how many messages are in which state.

use serde::Serialize;
use serde_json::json;
use waybill_protocol::remoting::queue_table;
use waybill_protocol::remoting::{Command, GetConsumeStatsRequestHeader, MessageQueue, TopicRequestHeader};

use super::{Answer, ok, ok_json, wanted};
use crate::Broker;
use crate::core::GroupCounts;
use crate::error::BrokerError;
use crate::limits;

#[derive(Serialize)]
struct Group {
    #[serde(flatten)]
    counts: GroupCounts,
    /// Clients that consume in it, as far as this broker sees them.
    members: usize,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Counted {
    groups: Vec<Group>,
    /// There are more.
    truncated: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TopicOffset {
    max_offset: u64,
    min_offset: u64,
    last_update_timestamp: i64,
}

/// Our own request, which `waybill group describe` and the operator ask.
pub(super) fn messages(broker: &Broker, command: &Command) -> Answer {
    let mut groups = broker.core().counts(wanted(command, "consumerGroup")?, wanted(command, "topic")?)?;
    let (mut rows, all) = (0, groups.len());
    groups.retain(|group| {
        rows += 1 + group.topics.len();
        rows <= limits::COUNTS_MAX
    });
    let truncated = groups.len() < all;
    let alive = |client: &str| broker.is_watched(client);
    let groups = groups.into_iter().map(|counts| {
        let members = broker.core().members(&counts.group, &alive);
        Group { counts, members }
    });
    json_body(&Counted { groups: groups.collect(), truncated })
}

/// Our own request, which the operator asks before it takes a broker away.
pub(super) fn left(broker: &Broker) -> Command {
    ok_json(&broker.core().left())
}

/// GET_CONSUME_STATS.
pub(super) fn consume_stats(broker: &Broker, command: &Command) -> Answer {
    let header: GetConsumeStatsRequestHeader = command.header()?;
    let topic = header.topic.as_deref().filter(|topic| !topic.is_empty());
    let rows: Vec<_> = broker
        .core()
        .consume_stats(&header.consumer_group, topic)?
        .into_iter()
        .map(|(topic, queue, stats)| (queue_of(broker, &topic, queue), stats))
        .collect();
    Ok(ok().with_body(queue_table::write("offsetTable", &rows, &[("consumeTps", "0.0")])?))
}

/// GET_TOPIC_STATS_INFO.
pub(super) fn topic_stats(broker: &Broker, command: &Command) -> Answer {
    let header: TopicRequestHeader = command.header()?;
    let rows: Vec<_> = broker
        .core()
        .topic_stats(&header.topic)?
        .into_iter()
        .map(|(queue, min_offset, max_offset, last_update_timestamp)| {
            let offset = TopicOffset { max_offset, min_offset, last_update_timestamp };
            (queue_of(broker, &header.topic, queue), offset)
        })
        .collect();
    Ok(ok().with_body(queue_table::write("offsetTable", &rows, &[("topicPutTps", "0.0")])?))
}

/// QUERY_TOPIC_CONSUME_BY_WHO.
pub(super) fn groups_of(broker: &Broker, command: &Command) -> Answer {
    let header: TopicRequestHeader = command.header()?;
    let groups = broker.core().groups_of(&header.topic)?;
    let names: Vec<&str> = groups.iter().map(|group| group.config.group_name.as_str()).collect();
    json_body(&json!({ "groupList": names }))
}

fn queue_of(broker: &Broker, topic: &str, queue: u32) -> MessageQueue {
    MessageQueue { broker_name: broker.name().to_owned(), queue_id: queue.cast_signed(), topic: topic.to_owned() }
}

pub(super) fn json_body(value: &impl Serialize) -> Answer {
    let body = serde_json::to_vec(value).map_err(|error| BrokerError::Internal(error.to_string()))?;
    Ok(ok().with_body(body))
}
