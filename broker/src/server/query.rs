//! Looking for messages.

use std::str::FromStr;

use bytes::BytesMut;
use waybill_protocol::remoting::{
    Command, Header, QueryMessageRequestHeader, QueryMessageResponseHeader, UNIQUE_KEY_QUERY, ViewMessageRequestHeader,
};

use super::counts::json_body;
use super::{Answer, ok};
use crate::Broker;
use crate::core::{Query, Wanted};
use crate::error::BrokerError;
use crate::limits;

/// QUERY_MESSAGE. That the search was cut is told in fields of ours: `cutAt` (a store time), `oldestFirst`.
pub(super) async fn by_key(broker: &Broker, command: &Command) -> Answer {
    let header: QueryMessageRequestHeader = command.header()?;
    let by_id = command.ext.get(UNIQUE_KEY_QUERY).is_some_and(|text| text.eq_ignore_ascii_case("true"));
    let max = usize::try_from(header.max_num).unwrap_or(0).clamp(1, limits::QUERY_MESSAGES_MAX);
    let query = Query {
        topic: header.topic,
        wanted: if by_id { Wanted::Id(header.key) } else { Wanted::Key(header.key) },
        since_ms: header.begin_timestamp,
        until_ms: header.end_timestamp.min(i64::MAX - 1),
        max,
    };
    let found = broker.core().query(&query).await?;
    let mut body = BytesMut::new();
    for message in &found.matches {
        let message = message.delivered()?;
        if !body.is_empty() && body.len() + message.len() > limits::POP_MAX_BYTES {
            break;
        }
        body.extend_from_slice(&message);
    }
    let last = found.matches.iter().map(|found| found.entry.position).max().unwrap_or(0);
    let seen = QueryMessageResponseHeader {
        index_last_update_timestamp: broker.now(),
        index_last_update_phyoffset: last.cast_signed(),
    };
    let mut answer = match body.is_empty() {
        true => BrokerError::NotFound("can not find message, maybe time range not correct".into()).to_response(),
        false => ok().with_body(body.freeze()),
    };
    seen.encode(&mut answer.ext);
    if let Some(cut_at) = found.cut_at {
        answer.ext.set_number("cutAt", cut_at);
        answer.ext.set("oldestFirst", if found.oldest_first { "true" } else { "false" });
    }
    Ok(answer)
}

/// VIEW_MESSAGE_BY_ID.
pub(super) async fn by_position(broker: &Broker, command: &Command) -> Answer {
    let header: ViewMessageRequestHeader = command.header()?;
    let none = || BrokerError::Internal(format!("can not find message by the offset, {}", header.offset));
    let position = u64::try_from(header.offset).map_err(|_| none())?;
    let (topic, found) = broker.core().at_position(position).await?.ok_or_else(none)?;
    if header.topic.as_deref().is_some_and(|wanted| !wanted.is_empty() && wanted != topic.config.topic_name) {
        return Err(none());
    }
    Ok(ok().with_body(found.delivered()?))
}

/// Our own request, which `waybill message query` and `describe` ask.
pub(super) async fn describe(broker: &Broker, command: &Command) -> Answer {
    let text = |name: &str| command.ext.get(name).filter(|text| !text.is_empty()).map(str::to_owned);
    let missing = |what: &str| BrokerError::InvalidParameter(format!("{what} is missing"));
    let wanted = match (text("messageId"), text("key")) {
        (Some(id), _) => Wanted::Id(id),
        (None, Some(key)) => Wanted::Key(key),
        (None, None) => return Err(missing("messageId or key")),
    };
    let max: usize = number(command, "maxNum")?.unwrap_or(limits::QUERY_MESSAGES_MAX);
    let query = Query {
        topic: text("topic").ok_or_else(|| missing("topic"))?,
        wanted,
        since_ms: number(command, "beginTimestamp")?.unwrap_or(0),
        until_ms: number(command, "endTimestamp")?.unwrap_or(i64::MAX).min(i64::MAX - 1),
        max: max.clamp(1, limits::QUERY_MESSAGES_MAX),
    };
    json_body(&broker.core().describe(&query).await?)
}

fn number<N: FromStr>(command: &Command, name: &str) -> Result<Option<N>, BrokerError> {
    let Some(text) = command.ext.get(name) else { return Ok(None) };
    text.parse().map(Some).map_err(|_| BrokerError::InvalidParameter(format!("{name} is {text:?}, expected a number")))
}
