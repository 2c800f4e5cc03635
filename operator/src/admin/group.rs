//! A consumer group on one broker.

use std::collections::BTreeMap;

use waybill_protocol::remoting::codes::{request, response};
use waybill_protocol::remoting::overrides::{BATCH_MAX, INVISIBLE_TIME, RENEW};
use waybill_protocol::remoting::{
    Command, DeleteSubscriptionGroupRequestHeader, GetSubscriptionGroupConfigRequestHeader, GroupRetryPolicy,
    SubscriptionGroupConfig,
};

use super::connection::refusal;
use super::{AdminError, Applied, Connection};

/// What a group is to be like. Everything else about it stays as it is.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupSettings {
    /// Its name.
    pub name: String,
    /// Whether message groups are delivered in order.
    pub orderly: bool,
    /// Whether it may consume.
    pub consume_enabled: bool,
    /// Attempts after the first.
    pub retry_max_times: i32,
    /// Delays between attempts.
    pub retry_policy: GroupRetryPolicy,
    /// Minutes.
    pub consume_timeout_minutes: i32,
    /// `waybill.renew`; None: it has none.
    pub renew: Option<bool>,
    /// `waybill.invisible.time`, milliseconds.
    pub invisible_ms: Option<i64>,
    /// `waybill.batch.max`.
    pub batch_max: Option<i64>,
}

impl GroupSettings {
    /// Makes the group so where it is not.
    ///
    /// # Errors
    /// The broker cannot be asked, or refuses.
    pub async fn apply(&self, broker: &mut Connection) -> Result<Applied, AdminError> {
        let existing = look_up(broker, &self.name).await?;
        let wanted = self.on_top_of(existing.clone().unwrap_or_default());
        if existing.as_ref() == Some(&wanted) {
            return Ok(Applied::Unchanged);
        }
        let change = SubscriptionGroupConfig { attributes: self.attribute_changes(), ..wanted };
        broker.demand(Command::request(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP).with_json(&change)).await?;
        Ok(if existing.is_some() { Applied::Changed } else { Applied::Created })
    }

    fn on_top_of(&self, mut config: SubscriptionGroupConfig) -> SubscriptionGroupConfig {
        config.group_name.clone_from(&self.name);
        config.consume_message_orderly = self.orderly;
        config.consume_enable = self.consume_enabled;
        config.retry_max_times = self.retry_max_times;
        config.group_retry_policy = self.retry_policy.clone();
        config.consume_timeout_minute = self.consume_timeout_minutes;
        for (key, value) in self.attributes() {
            match value {
                Some(value) => drop(config.attributes.insert(key.to_owned(), value)),
                None => drop(config.attributes.remove(key)),
            }
        }
        config
    }

    /// Attributes travel as changes: `+key` with a value sets, `-key` removes; what is not named stays.
    fn attribute_changes(&self) -> BTreeMap<String, String> {
        let change = |(key, value): (&str, Option<String>)| match value {
            Some(value) => (format!("+{key}"), value),
            None => (format!("-{key}"), String::new()),
        };
        self.attributes().into_iter().map(change).collect()
    }

    fn attributes(&self) -> [(&'static str, Option<String>); 3] {
        [
            (RENEW, self.renew.map(|renew| renew.to_string())),
            (INVISIBLE_TIME, self.invisible_ms.map(|ms| ms.to_string())),
            (BATCH_MAX, self.batch_max.map(|entries| entries.to_string())),
        ]
    }
}

/// Deletes the group with its leases and its progress, if the broker has it.
///
/// # Errors
/// The broker cannot be asked, or refuses.
pub(crate) async fn delete(broker: &mut Connection, name: &str) -> Result<(), AdminError> {
    let header = DeleteSubscriptionGroupRequestHeader { group_name: name.to_owned(), clean_offset: Some(true) };
    broker.demand(Command::request(request::DELETE_SUBSCRIPTIONGROUP).with_header(&header)).await.map(drop)
}

/// A broker that creates groups on first use creates this one when it is asked for it. That does no harm: it is about to be
/// created anyway.
async fn look_up(broker: &mut Connection, name: &str) -> Result<Option<SubscriptionGroupConfig>, AdminError> {
    let header = GetSubscriptionGroupConfigRequestHeader { group: name.to_owned() };
    let answer = broker.ask(Command::request(request::GET_SUBSCRIPTIONGROUP_CONFIG).with_header(&header)).await?;
    match answer.code {
        response::SUCCESS => match answer.json() {
            Ok(config) => Ok(Some(config)),
            Err(error) => Err(AdminError::Unreachable(format!("its group {name} cannot be read: {error}"))),
        },
        response::SUBSCRIPTION_GROUP_NOT_EXIST => Ok(None),
        _other => Err(refusal(&answer)),
    }
}
