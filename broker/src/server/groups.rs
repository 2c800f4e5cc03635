//! Consumer groups: create, change, delete, look up.

use std::collections::BTreeMap;

use waybill_protocol::remoting::{
    Command, DeleteSubscriptionGroupRequestHeader, GetSubscriptionGroupConfigRequestHeader, SubscriptionGroupConfig,
    SubscriptionGroupTable,
};

use super::{Answer, ok, ok_json};
use crate::Broker;

pub(super) async fn create(broker: &Broker, command: &Command) -> Answer {
    let mut config: SubscriptionGroupConfig = command.json()?;
    let name = config.group_name.clone();
    let make = |old: Option<&SubscriptionGroupConfig>| {
        // Attributes come as changes, "+key": value or "-key", on top of what is there.
        let mut attributes = old.map(|old| old.attributes.clone()).unwrap_or_default();
        for (key, value) in std::mem::take(&mut config.attributes) {
            match key.split_at_checked(1) {
                Some(("+", key)) => drop(attributes.insert(key.to_owned(), value)),
                Some(("-", key)) => drop(attributes.remove(key)),
                _ => drop(attributes.insert(key, value)),
            }
        }
        config.attributes = attributes;
        Ok(config)
    };
    broker.core().put_group(&name, make).await?;
    Ok(ok())
}

pub(super) async fn delete(broker: &Broker, command: &Command) -> Answer {
    let header: DeleteSubscriptionGroupRequestHeader = command.header()?;
    broker.core().delete_group(&header.group_name).await?;
    Ok(ok())
}

pub(super) async fn get(broker: &Broker, command: &Command) -> Answer {
    let header: GetSubscriptionGroupConfigRequestHeader = command.header()?;
    let group = broker.core().group_for_pop(&header.group).await?;
    Ok(ok_json(&group.config))
}

pub(super) fn all(broker: &Broker) -> Command {
    let subscription_group_table: BTreeMap<_, _> = broker
        .core()
        .catalog()
        .groups()
        .iter()
        .map(|group| (group.config.group_name.clone(), group.config.clone()))
        .collect();
    ok_json(&SubscriptionGroupTable { subscription_group_table, ..SubscriptionGroupTable::default() })
}
