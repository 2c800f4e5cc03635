//! Our own request: dead letters go back. `waybill message redrive` asks it until it is done.

use std::collections::HashSet;
use std::str::FromStr;

use serde::Deserialize;
use waybill_protocol::remoting::Command;

use super::Answer;
use super::counts::json_body;
use crate::Broker;
use crate::core::Redrive;
use crate::error::BrokerError;
use crate::limits;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Wanted {
    ids: HashSet<String>,
}

pub(super) async fn redrive(broker: &Broker, command: &Command) -> Answer {
    if command.body.len() > limits::BATCH_BODY_BYTES_MAX {
        return Err(BrokerError::InvalidParameter(format!("more than {} bytes of ids", limits::BATCH_BODY_BYTES_MAX)));
    }
    let wanted: Wanted = match command.body.is_empty() {
        true => Wanted::default(),
        false => serde_json::from_slice(&command.body)
            .map_err(|error| BrokerError::InvalidParameter(format!("the body is no list of ids: {error}")))?,
    };
    let group = command.ext.get("consumerGroup").filter(|group| !group.is_empty());
    let group = group.ok_or_else(|| BrokerError::InvalidParameter("consumerGroup is missing".into()))?;
    let redrive = Redrive {
        group: group.to_owned(),
        ids: wanted.ids,
        from: (number(command, "queueId")?.unwrap_or(0), number(command, "offset")?.unwrap_or(0)),
        stored_until_ms: number(command, "storedUntil")?,
        max: number(command, "max")?.unwrap_or(usize::MAX),
        dry_run: command.ext.get("dryRun") == Some("true"),
    };
    json_body(&broker.core().redrive(&redrive).await?)
}

fn number<N: FromStr>(command: &Command, name: &str) -> Result<Option<N>, BrokerError> {
    let Some(text) = command.ext.get(name) else { return Ok(None) };
    text.parse().map(Some).map_err(|_| BrokerError::InvalidParameter(format!("{name} is {text:?}, expected a number")))
}
