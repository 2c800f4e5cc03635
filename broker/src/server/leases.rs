//! Our own request: who holds what. `waybill lease` asks it.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::Serialize;
use waybill_protocol::remoting::{Command, GroupOverrides};

use super::{Answer, ok, wanted};
use crate::Broker;
use crate::core::{LeaseQuery, LeaseView};
use crate::error::BrokerError;
use crate::limits;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Leases {
    leases: Vec<LeaseView>,
    /// There are more behind the last one.
    truncated: bool,
    /// When this was so, milliseconds since 1970.
    now: i64,
    /// Part of every receipt handle.
    broker_name: String,
    /// What one batch request may have.
    batch_max_entries: usize,
    /// Those that hold these leases and are watched: when somebody last vouched for them, milliseconds since 1970.
    watched: BTreeMap<String, i64>,
    /// The groups of these leases.
    groups: BTreeMap<String, OfGroup>,
}

/// What a group says of its leases.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OfGroup {
    consume_timeout_minutes: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    renew: Option<bool>,
    /// Milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    invisible_time: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    batch_max: Option<usize>,
}

pub(super) fn list(broker: &Broker, command: &Command) -> Answer {
    let query = query(command)?;
    let core = broker.core();
    let mut leases = core.leases(&query, limits::LEASE_LIST_MAX + 1)?;
    let truncated = leases.len() > limits::LEASE_LIST_MAX;
    leases.truncate(limits::LEASE_LIST_MAX);
    let mut groups = BTreeMap::new();
    for lease in &leases {
        if !groups.contains_key(&lease.group)
            && let Some(group) = core.catalog().group(&lease.group)
        {
            let own = GroupOverrides::understood(&group.config.attributes);
            let of_group = OfGroup {
                consume_timeout_minutes: group.config.consume_timeout_minute,
                renew: own.renew,
                invisible_time: own.invisible_ms,
                batch_max: own.batch_max,
            };
            groups.insert(lease.group.clone(), of_group);
        }
    }
    let answer = Leases {
        watched: broker.vouched_for(leases.iter().map(|lease| lease.holder.as_str())),
        leases,
        truncated,
        now: broker.now(),
        broker_name: broker.name().to_owned(),
        batch_max_entries: broker.in_force().batch_max_entries,
        groups,
    };
    let body = serde_json::to_vec(&answer).map_err(|error| BrokerError::Internal(error.to_string()))?;
    Ok(ok().with_body(body))
}

fn query(command: &Command) -> Result<LeaseQuery, BrokerError> {
    let after = match (text(command, "afterGroup")?, text(command, "afterTopic")?) {
        (Some(group), Some(topic)) => {
            let (queue, offset) = (number(command, "afterQueueId")?, number(command, "afterOffset")?);
            Some((group, topic, queue.unwrap_or(0), offset.unwrap_or(0)))
        }
        _ => None,
    };
    Ok(LeaseQuery {
        group: text(command, "consumerGroup")?,
        topic: text(command, "topic")?,
        client: text(command, "clientId")?,
        queue: number(command, "queueId")?,
        offset: number(command, "offset")?,
        after,
    })
}

fn text(command: &Command, name: &str) -> Result<Option<String>, BrokerError> {
    Ok(wanted(command, name)?.map(str::to_owned))
}

fn number<N: FromStr>(command: &Command, name: &str) -> Result<Option<N>, BrokerError> {
    let Some(text) = wanted(command, name)? else { return Ok(None) };
    text.parse().map(Some).map_err(|_| BrokerError::InvalidParameter(format!("{name} is {text:?}, expected a number")))
}
