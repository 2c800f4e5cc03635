//! Topics: create, change, delete, look up.

use waybill_protocol::remoting::{
    Command, CreateTopicRequestHeader, DeleteTopicRequestHeader, GetTopicConfigRequestHeader, TopicConfig,
    TopicConfigTable, TopicList,
};

use super::{Answer, ok, ok_json};
use crate::Broker;
use crate::catalog::apply_attributes;
use crate::error::BrokerError;

pub(super) async fn create(broker: &Broker, command: &Command) -> Answer {
    let header: CreateTopicRequestHeader = command.header()?;
    let name = header.topic.clone();
    let make = |old: Option<&TopicConfig>| {
        let changes = header.attributes.as_deref().unwrap_or_default();
        let attributes = apply_attributes(old.map(|old| &old.attributes), changes)?;
        Ok(TopicConfig {
            topic_name: header.topic,
            read_queue_nums: header.read_queue_nums,
            write_queue_nums: header.write_queue_nums,
            perm: header.perm,
            topic_filter_type: header.topic_filter_type,
            topic_sys_flag: header.topic_sys_flag.unwrap_or(0),
            order: header.order,
            attributes,
        })
    };
    broker.core().put_topic(&name, make).await?;
    Ok(ok())
}

pub(super) async fn delete(broker: &Broker, command: &Command) -> Answer {
    let header: DeleteTopicRequestHeader = command.header()?;
    match header.only_if_empty {
        Some(true) => broker.core().delete_empty_topic(&header.topic).await?,
        _whatever_it_has => broker.core().delete_topic(&header.topic).await?,
    }
    Ok(ok())
}

pub(super) fn get(broker: &Broker, command: &Command) -> Answer {
    let header: GetTopicConfigRequestHeader = command.header()?;
    let core = broker.core();
    let Some(topic) = core.catalog().topic(&header.topic) else { return Err(BrokerError::TopicNotFound(header.topic)) };
    let mut answer = ok_json(&topic.config);
    // Ours, for `waybill topic describe`.
    answer.ext.set_number("delayedMessages", core.delayed(&topic));
    answer.ext.set_number("fileReservedTime", broker.in_force().file_reserved_time);
    Ok(answer)
}

pub(super) fn all(broker: &Broker) -> Command {
    let topics = broker.core().catalog().topics();
    let total = topics.len();
    let topic_config_table =
        topics.iter().map(|topic| (topic.config.topic_name.clone(), topic.config.clone())).collect();
    let mut answer = ok_json(&TopicConfigTable { topic_config_table, ..TopicConfigTable::default() });
    answer.ext.set("totalTopicNum", total.to_string());
    answer
}

pub(super) fn names(broker: &Broker) -> Command {
    let topic_list = broker.core().catalog().topics().iter().map(|topic| topic.config.topic_name.clone()).collect();
    ok_json(&TopicList { topic_list, ..TopicList::default() })
}
