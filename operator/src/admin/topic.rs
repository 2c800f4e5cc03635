//! A topic on one broker.

use waybill_protocol::remoting::codes::{own_response, request, response};
use waybill_protocol::remoting::{
    Command, CreateTopicRequestHeader, DeleteTopicRequestHeader, GetTopicConfigRequestHeader, Header,
    OffsetResponseHeader, QueueRequestHeader, TopicConfig,
};

use super::connection::refusal;
use super::{AdminError, Applied, Connection, Gone};

/// The attribute that holds the message type.
const MESSAGE_TYPE: &str = "message.type";
/// The type of a topic without that attribute.
const NORMAL: &str = "NORMAL";
/// The attribute that holds the hours after which messages go; absent or -1: as all messages of the broker.
const RESERVE_TIME: &str = "reserve.time";

/// What a topic is to be like. Everything else about it stays as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicSettings {
    /// Its name.
    pub name: String,
    /// The value of `message.type`.
    pub message_type: &'static str,
    /// Queues to read.
    pub read_queues: i32,
    /// Queues to write.
    pub write_queues: i32,
    /// Bits: 4 read, 2 write.
    pub perm: i32,
    /// Hours after which its messages go; None: as all messages of the broker.
    pub retention_hours: Option<i64>,
}

impl TopicSettings {
    /// Makes the topic so where it is not.
    ///
    /// # Errors
    /// The broker cannot be asked, or refuses.
    pub async fn apply(&self, broker: &mut Connection) -> Result<Applied, AdminError> {
        let existing = look_up(broker, &self.name).await?.map(|(config, _delayed)| config);
        if existing.as_ref().is_some_and(|existing| self.are_those_of(existing)) {
            return Ok(Applied::Unchanged);
        }
        let kept = existing.clone().unwrap_or_default();
        let mut attributes = format!("+{MESSAGE_TYPE}={}", self.message_type);
        match self.retention_hours {
            Some(hours) => attributes.push_str(&format!(",+{RESERVE_TIME}={hours}")),
            // Only what is there can be taken away.
            None if kept.attributes.contains_key(RESERVE_TIME) => attributes.push_str(&format!(",-{RESERVE_TIME}")),
            None => {}
        }
        let header = CreateTopicRequestHeader {
            topic: self.name.clone(),
            default_topic: "TBW102".to_owned(),
            read_queue_nums: self.read_queues,
            write_queue_nums: self.write_queues,
            perm: self.perm,
            topic_filter_type: kept.topic_filter_type,
            topic_sys_flag: Some(kept.topic_sys_flag),
            order: kept.order,
            attributes: Some(attributes),
            force: None,
        };
        broker.demand(Command::request(request::UPDATE_AND_CREATE_TOPIC).with_header(&header)).await?;
        Ok(if existing.is_some() { Applied::Changed } else { Applied::Created })
    }

    fn are_those_of(&self, config: &TopicConfig) -> bool {
        config.attributes.get(MESSAGE_TYPE).map_or(NORMAL, String::as_str) == self.message_type
            && config.read_queue_nums == self.read_queues
            && config.write_queue_nums == self.write_queues
            && config.perm == self.perm
            && retention_hours(config) == self.retention_hours
    }
}

fn retention_hours(config: &TopicConfig) -> Option<i64> {
    config.attributes.get(RESERVE_TIME)?.parse().ok().filter(|hours| *hours > 0)
}

/// Whether the broker has no message of the topic in its store, delayed ones included. A topic that it does not have is empty.
///
/// # Errors
/// The broker cannot be asked, or refuses.
pub(crate) async fn is_empty(broker: &mut Connection, name: &str) -> Result<bool, AdminError> {
    let Some((config, delayed)) = look_up(broker, name).await? else { return Ok(true) };
    if delayed > 0 {
        return Ok(false);
    }
    for queue_id in 0..config.read_queue_nums.max(config.write_queue_nums) {
        let header = QueueRequestHeader { topic: name.to_owned(), queue_id };
        if bound(broker, request::GET_MIN_OFFSET, &header).await?
            < bound(broker, request::GET_MAX_OFFSET, &header).await?
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Deletes the topic with its messages, if the broker has it; or only if it has none. An older broker does not know of the latter, so it
/// must have been looked before, too.
///
/// # Errors
/// The broker cannot be asked, or refuses.
pub(crate) async fn delete(broker: &mut Connection, name: &str, only_empty: bool) -> Result<Gone, AdminError> {
    let header = DeleteTopicRequestHeader { topic: name.to_owned(), only_if_empty: only_empty.then_some(true) };
    let answer = broker.ask(Command::request(request::DELETE_TOPIC_IN_BROKER).with_header(&header)).await?;
    match answer.code {
        response::SUCCESS => Ok(Gone::Deleted),
        own_response::TOPIC_NOT_EMPTY if only_empty => Ok(Gone::NotEmpty),
        _other => Err(refusal(&answer)),
    }
}

/// The topic as the broker has it, and how many delayed messages of it wait there, if the broker says so.
async fn look_up(broker: &mut Connection, name: &str) -> Result<Option<(TopicConfig, u64)>, AdminError> {
    let header = GetTopicConfigRequestHeader { topic: name.to_owned(), lo: None };
    let answer = broker.ask(Command::request(request::GET_TOPIC_CONFIG).with_header(&header)).await?;
    match answer.code {
        response::SUCCESS => match answer.json() {
            Ok(config) => {
                let delayed = answer.ext.get("delayedMessages").and_then(|count| count.parse().ok());
                Ok(Some((config, delayed.unwrap_or(0))))
            }
            Err(error) => Err(AdminError::Unreachable(format!("its topic {name} cannot be read: {error}"))),
        },
        response::TOPIC_NOT_EXIST => Ok(None),
        _other => Err(refusal(&answer)),
    }
}

async fn bound(broker: &mut Connection, code: i32, header: &QueueRequestHeader) -> Result<i64, AdminError> {
    let answer = broker.demand(Command::request(code).with_header(header)).await?;
    let offset = OffsetResponseHeader::decode(&answer.ext);
    offset.map(|header| header.offset).map_err(|error| AdminError::Unreachable(format!("its answer: {error}")))
}
