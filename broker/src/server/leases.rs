//! Our own request: who holds what. `waybill lease list` asks it.

use serde::Serialize;
use waybill_protocol::remoting::Command;

use super::{Answer, ok};
use crate::Broker;
use crate::core::LeaseView;
use crate::error::BrokerError;
use crate::limits;

#[derive(Serialize)]
struct Leases {
    leases: Vec<LeaseView>,
    truncated: bool,
}

pub(super) fn list(broker: &Broker, command: &Command) -> Answer {
    let group = command.ext.get("consumerGroup").unwrap_or_default();
    if group.is_empty() {
        return Err(BrokerError::InvalidParameter("consumerGroup is needed".into()));
    }
    let topic = command.ext.get("topic").filter(|topic| !topic.is_empty());
    let mut leases = broker.core().leases(group, topic, limits::LEASE_LIST_MAX + 1)?;
    let truncated = leases.len() > limits::LEASE_LIST_MAX;
    leases.truncate(limits::LEASE_LIST_MAX);
    let body =
        serde_json::to_vec(&Leases { leases, truncated }).map_err(|error| BrokerError::Internal(error.to_string()))?;
    Ok(ok().with_body(body))
}
