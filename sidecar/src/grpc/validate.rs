//! What a request must look like before a broker is asked. Nothing here does I/O; every refusal is a [`Problem`].

use std::time::Duration;

use waybill_protocol::{
    filter::Condition,
    grpc::v2::{Encoding, Endpoints, FilterExpression, FilterType, Message, MessageType, Resource, SystemProperties},
    handle::ReceiptHandle,
    message::properties,
    names,
};

use super::errors::Problem;
use crate::backend::{Filter, FilterKind};
use crate::config::Config;
use crate::limits;

/// The name of the topic of a request.
pub(super) fn topic(resource: Option<&Resource>) -> Result<&str, Problem> {
    let name = resource.map(|r| r.name.as_str()).unwrap_or_default();
    names::validate_topic(name).map_err(|error| Problem::of_topic(name, error))?;
    Ok(name)
}

/// The name of the consumer group of a request.
pub(super) fn group(resource: Option<&Resource>) -> Result<&str, Problem> {
    let name = resource.map(|r| r.name.as_str()).unwrap_or_default();
    names::validate_group(name).map_err(|error| Problem::of_group(name, error))?;
    Ok(name)
}

/// The endpoints of a request, which go back to the client with every queue.
pub(super) fn endpoints(endpoints: Option<Endpoints>) -> Result<Endpoints, Problem> {
    let endpoints = endpoints.unwrap_or_default();
    if endpoints.addresses.len() > limits::ENDPOINT_ADDRESSES {
        return Err(Problem::Endpoints("too many addresses"));
    }
    if endpoints.addresses.iter().any(|address| address.host.len() > limits::ENDPOINT_HOST_BYTES) {
        return Err(Problem::Endpoints("a host is too long"));
    }
    Ok(endpoints)
}

/// A receipt handle as a client sent it.
pub(super) fn handle(text: &str) -> Result<ReceiptHandle, Problem> {
    if text.len() > limits::HANDLE_BYTES {
        return Err(Problem::HandleMalformed("too long".to_owned()));
    }
    text.parse().map_err(|error| Problem::HandleMalformed(format!("{error}")))
}

/// The attempt id of a receive; an empty one is none.
pub(super) fn attempt_id(id: Option<String>) -> Result<Option<String>, Problem> {
    if id.as_ref().is_some_and(|id| id.len() > limits::ATTEMPT_ID_BYTES) {
        return Err(Problem::AttemptIdTooLong);
    }
    Ok(id.filter(|id| !id.is_empty()))
}

/// The messages of one SendMessage: their topic, if they may be sent at all as far as can be said without a broker.
pub(super) fn messages<'a>(messages: &'a [Message], config: &Config, now_ms: i64) -> Result<&'a str, Problem> {
    let Some(first) = messages.first() else { return Err(Problem::NoMessage) };
    if messages.len() > limits::SEND_MESSAGES {
        return Err(Problem::TooManyMessages);
    }
    let name = topic(first.topic.as_ref())?;
    for message in messages {
        if topic(message.topic.as_ref())? != name {
            return Err(Problem::TopicsDiffer);
        }
        one_message(message, config, now_ms)?;
    }
    let bytes: usize = messages.iter().map(|message| message.body.len()).sum();
    if messages.len() > 1 && exceeds(bytes, config.max_message_size) {
        return Err(Problem::MessagesTooLarge(config.max_message_size));
    }
    Ok(name)
}

fn one_message(message: &Message, config: &Config, now_ms: i64) -> Result<(), Problem> {
    if message.body.is_empty() && config.enable_message_body_empty_check {
        return Err(Problem::BodyEmpty);
    }
    if exceeds(message.body.len(), config.max_message_size) {
        return Err(Problem::BodyTooLarge(config.max_message_size));
    }
    let Some(system) = &message.system_properties else { return Err(Problem::NoSystemProperties) };
    // How it is to be read would be lost. (A digest is not looked at, as upstream does not: the client gets one of what is stored.)
    if Encoding::try_from(system.body_encoding).is_err() {
        return Err(Problem::BodyEncoding(system.body_encoding));
    }
    message_properties(message, system, config)?;
    if system.message_id.trim().is_empty() {
        return Err(Problem::MessageIdBlank);
    }
    if has_control(&system.message_id) {
        return Err(Problem::MessageIdControl);
    }
    if let Some(group) = system.message_group.as_deref() {
        message_group(group, config)?;
    }
    for (name, text) in [("born host", system.born_host.as_str()), ("trace context", system.trace_context())] {
        if has_control(text) {
            return Err(Problem::TextControl(name));
        }
    }
    if delivery_ms(system).is_some_and(|at| exceeds(at.saturating_sub(now_ms), config.max_delay_time_ms)) {
        return Err(Problem::DeliveryTooFar(config.max_delay_time_ms));
    }
    if system.message_type() == MessageType::Transaction && system.delivery_timestamp.is_some() {
        return Err(Problem::TransactionDelayed);
    }
    let recovery_ms = system.orphaned_transaction_recovery_duration.as_ref().map(duration_ms);
    if recovery_ms.is_some_and(|ms| exceeds(ms / 1_000, config.max_transaction_recovery_seconds)) {
        return Err(Problem::RecoveryTooLong(config.max_transaction_recovery_seconds));
    }
    Ok(())
}

fn message_properties(message: &Message, system: &SystemProperties, config: &Config) -> Result<(), Problem> {
    let user = &message.user_properties;
    if exceeds(user.len(), config.user_property_max_num) {
        return Err(Problem::TooManyProperties(config.user_property_max_num));
    }
    let mut bytes = 0;
    for (key, value) in user {
        if is_reserved(key) {
            return Err(Problem::PropertyReserved(key.clone()));
        }
        if has_control(key) {
            return Err(Problem::PropertyKeyControl);
        }
        if has_control(value) {
            return Err(Problem::PropertyValueControl);
        }
        bytes += key.len() + value.len();
    }
    let tag = system.tag();
    if is_blank(tag) {
        return Err(Problem::TagBlank);
    }
    if tag.contains('|') {
        return Err(Problem::TagPipe);
    }
    if has_control(tag) {
        return Err(Problem::TagControl);
    }
    bytes += tag.len();
    for key in &system.keys {
        if is_blank(key) {
            return Err(Problem::KeyBlank);
        }
        if has_control(key) {
            return Err(Problem::KeyControl);
        }
        bytes += key.len();
    }
    if exceeds(bytes, config.max_user_property_size) {
        return Err(Problem::UserPropertiesTooLarge(config.max_user_property_size));
    }
    Ok(())
}

/// Properties that users may not set: those the broker reserves, and those the gRPC interface has fields of its own
/// for.
#[must_use]
pub(super) fn is_reserved(key: &str) -> bool {
    properties::is_reserved(key) || key == properties::SHARDING_KEY || key == properties::TRACE_CONTEXT
}

fn message_group(group: &str, config: &Config) -> Result<(), Problem> {
    if is_blank(group) {
        return Err(Problem::MessageGroupBlank);
    }
    if config.max_message_group_size > 0 && !fits_below(group.len(), config.max_message_group_size) {
        return Err(Problem::MessageGroupTooLong(config.max_message_group_size));
    }
    if has_control(group) {
        return Err(Problem::MessageGroupControl);
    }
    Ok(())
}

/// When a message shall be delivered, in milliseconds since the epoch.
#[must_use]
pub(super) fn delivery_ms(system: &SystemProperties) -> Option<i64> {
    let at = system.delivery_timestamp.as_ref()?;
    Some(at.seconds.saturating_mul(1_000).saturating_add(i64::from(at.nanos / 1_000_000)))
}

/// The type of a message as its properties tell; what the client says it is does not count, except for transactions.
#[must_use]
pub(super) fn actual_type(system: &SystemProperties) -> MessageType {
    if system.message_type() == MessageType::Transaction {
        MessageType::Transaction
    } else if system.delivery_timestamp.is_some() {
        MessageType::Delay
    } else if !system.message_group().is_empty() {
        MessageType::Fifo
    } else if !system.lite_topic().is_empty() {
        MessageType::Lite
    } else if system.priority.is_some() {
        MessageType::Priority
    } else {
        MessageType::Normal
    }
}

/// The lease that a receive asks for, in milliseconds.
pub(super) fn receive_invisible_ms(duration: Option<&prost_types::Duration>, config: &Config) -> Result<i64, Problem> {
    invisible_ms(duration, config.min_invisible_time_ms_for_recv, config)
}

/// The lease that a change asks for, in milliseconds; 0 means visible at once.
pub(super) fn change_invisible_ms(duration: Option<&prost_types::Duration>, config: &Config) -> Result<i64, Problem> {
    invisible_ms(duration, 0, config)
}

fn invisible_ms(duration: Option<&prost_types::Duration>, min_ms: i64, config: &Config) -> Result<i64, Problem> {
    let wanted_ms = duration.map_or(0, duration_ms);
    if wanted_ms < min_ms {
        return Err(Problem::InvisibleTooShort(min_ms));
    }
    if wanted_ms > config.max_invisible_time_ms {
        return Err(Problem::InvisibleTooLong(config.max_invisible_time_ms));
    }
    Ok(wanted_ms)
}

/// How long a receive waits for a message, in milliseconds.
///
/// `asked` is the request's own wish, `deadline` what is left of the call, `request_timeout` the client's time for calls
/// that do not wait.
pub(super) fn polling_ms(
    asked: Option<&prost_types::Duration>,
    deadline: Option<Duration>,
    request_timeout: Option<&prost_types::Duration>,
    old_client: bool,
    config: &Config,
) -> Result<i64, Problem> {
    let shortest = config.grpc_client_consumer_min_long_polling_timeout_ms;
    let longest = config.grpc_client_consumer_max_long_polling_timeout_ms.max(shortest);
    let remaining = deadline.map_or(i64::MAX, |left| i64::try_from(left.as_millis()).unwrap_or(i64::MAX));
    let reserve = config.long_polling_reserve_time_ms;
    let wanted = match asked {
        Some(asked) => duration_ms(asked),
        None => remaining.saturating_sub(request_timeout.map_or(0, duration_ms).max(0) / 2),
    };
    let polling = wanted.clamp(shortest, longest);
    // A deadline that was long enough when the client set it has lost some milliseconds on the way.
    if polling > remaining && remaining.saturating_add(reserve) < shortest {
        return Err(Problem::PollingTime { old_client });
    }
    Ok(polling.min(remaining.saturating_sub(reserve)).max(0))
}

/// The filter of a receive; an empty expression takes all.
pub(super) fn filter(expression: Option<&FilterExpression>) -> Result<Filter, Problem> {
    let Some(filter) = expression else { return Ok(take_all()) };
    let text = filter.expression.trim();
    if text.len() > limits::FILTER_BYTES {
        return Err(Problem::Filter("too long".to_owned()));
    }
    let kind = match FilterType::try_from(filter.r#type) {
        Ok(FilterType::Tag | FilterType::Unspecified) => FilterKind::Tag,
        Ok(FilterType::Sql) => FilterKind::Sql92,
        Err(_) => return Err(Problem::Filter("unknown type".to_owned())),
    };
    if text.is_empty() || text == "*" {
        return Ok(take_all());
    }
    if kind == FilterKind::Tag && tags(text).next().is_none() {
        return Err(Problem::Filter("no tag in it".to_owned()));
    }
    if kind == FilterKind::Sql92
        && let Err(error) = Condition::parse(text)
    {
        return Err(Problem::Filter(error.to_string()));
    }
    Ok(Filter { kind, expression: text.to_owned() })
}

fn take_all() -> Filter {
    Filter { kind: FilterKind::Tag, expression: "*".to_owned() }
}

/// The tags of a tag expression.
fn tags(expression: &str) -> impl Iterator<Item = &str> {
    expression.split("||").map(str::trim).filter(|tag| !tag.is_empty())
}

/// Whether a message with this tag is wanted. Brokers may compare hashes of tags only; this compares the tags.
#[must_use]
pub(super) fn wants_tag(filter: &Filter, tag: Option<&str>) -> bool {
    filter.kind != FilterKind::Tag
        || filter.expression == "*"
        || tag.is_some_and(|tag| tags(&filter.expression).any(|wanted| wanted == tag))
}

/// Whole milliseconds of a duration; what is too large to count is the largest number.
#[must_use]
pub(super) fn duration_ms(duration: &prost_types::Duration) -> i64 {
    duration.seconds.saturating_mul(1_000).saturating_add(i64::from(duration.nanos / 1_000_000))
}

/// Whether there is a limit (above zero) and `value` is over it.
fn exceeds(value: impl TryInto<i64>, limit: i64) -> bool {
    limit > 0 && value.try_into().unwrap_or(i64::MAX) > limit
}

fn fits_below(value: usize, end: i64) -> bool {
    i64::try_from(value).unwrap_or(i64::MAX) < end
}

/// Something, but only whitespace. Nothing at all means "not set".
fn is_blank(text: &str) -> bool {
    !text.is_empty() && text.trim().is_empty()
}

/// Control characters separate properties in the stored form, so they can be in none.
fn has_control(text: &str) -> bool {
    text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests;
