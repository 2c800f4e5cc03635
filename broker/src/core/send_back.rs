//! A consumer gives a message back with CONSUMER_SEND_MSG_BACK, to be delivered again after a while.
//!
//! Who says by which delivery it has the message (our own field) keeps it: the delivery ends at the time that was asked for. Consumers of
//! 4.x, which pull and have no such thing, get a copy in the retry topic of their group, which they read beside their own; there the number
//! of earlier deliveries is in the message itself. They name a place in the log, which must be one that their group has come past.

use std::collections::BTreeMap;

use waybill_protocol::message::{StoredMessage, offset_msg_id, properties};
use waybill_protocol::names::retry_topic_of_group;
use waybill_protocol::remoting::RetrySchedule;

use super::manage::topic_config;
use super::{ChangeEntry, Core, Forward, OutgoingMessage, Send};
use crate::catalog::GroupInfo;
use crate::error::BrokerError;
use crate::lease::{ChangeOutcome, ChangedBy};
use crate::timer::level_ms;

/// What a consumer asks for that gives a message back.
#[derive(Debug, Clone)]
pub struct SendBack {
    /// The message and the group.
    pub forward: Forward,
    /// Below 0: it is given up; 0: after as long as the group's policy says; else after this level of delay.
    pub delay_level: i32,
    /// How often it may be delivered again; `None`: as often as the group says.
    pub retries: Option<i32>,
}

impl Core {
    /// Has a message delivered again later, or gives it up if that was asked for or its attempts are used up. Durable when it returns.
    ///
    /// # Errors
    /// As [`Core::forward_to_dead_letters`]; a missing group; for a copy as [`Core::send`].
    pub async fn send_back(&self, back: &SendBack) -> Result<(), BrokerError> {
        let group = self.group(&back.forward.group)?;
        let retries = u32::try_from(back.retries.unwrap_or(group.config.retry_max_times)).unwrap_or(0);
        let Some(level) = u32::try_from(back.delay_level).ok() else {
            return self.forward_to_dead_letters(&back.forward).await;
        };
        let delay_ms = |failures: u32| match level {
            0 => RetrySchedule::of(&group.config).delay_ms(failures),
            level => level_ms(level),
        };
        let Some(handle) = back.forward.handle else {
            return self.retry_copy(back, &group, retries, delay_ms).await;
        };
        let consumer = self.consumer(&back.forward.group, &back.forward.topic)?;
        let lease = consumer.and_then(|consumer| consumer.open_ledger()?.get(handle.queue, handle.offset).copied());
        let attempts = lease.map_or(1, |lease| lease.counted());
        if attempts > retries {
            return self.forward_to_dead_letters(&back.forward).await;
        }
        let entry = ChangeEntry { handle, invisible_ms: delay_ms(attempts), count: true, by: ChangedBy::Client };
        let outcomes = self.change(&back.forward.group, &back.forward.topic, &[entry]).await?;
        match outcomes.first() {
            Some(ChangeOutcome::Changed { .. } | ChangeOutcome::AlreadyDone) => Ok(()),
            _ => Err(BrokerError::StaleHandle("the handle names no live delivery".into())),
        }
    }

    /// A copy in the retry topic of the group, delayed.
    async fn retry_copy(
        &self,
        back: &SendBack,
        group: &GroupInfo,
        retries: u32,
        delay_ms: impl Fn(u32) -> i64,
    ) -> Result<(), BrokerError> {
        let position = back.forward.position;
        let message = StoredMessage::decode(&mut self.read_received(group, position).await?);
        let message = message.map_err(|error| BrokerError::Internal(error.to_string()))?;
        let earlier = u32::try_from(message.reconsume_times).unwrap_or(0);
        if earlier >= retries {
            return self.forward_to_dead_letters(&back.forward).await;
        }
        // Upstream's word for: this group wants no retries.
        if group.config.retry_queue_nums == 0 {
            return Ok(());
        }
        let name = retry_topic_of_group(&group.config.group_name);
        if self.catalog.topic(&name).is_none() {
            let fresh = topic_config(&name, group.config.retry_queue_nums, BTreeMap::new());
            self.put_topic(&name, |old| Ok(old.cloned().unwrap_or(fresh))).await?;
        }
        let id = offset_msg_id(self.store_host, position.cast_signed());
        let raw = copy_properties(&message, &id, delay_ms(earlier.saturating_add(1)).min(self.delay_max_ms()));
        let copy = OutgoingMessage { flag: message.flag, body: message.body, properties: raw };
        let send = Send {
            topic: name,
            queue_id: -1,
            default_queues: 0,
            sys_flag: message.sys_flag,
            born_timestamp: message.born_timestamp,
            born_host: message.born_host,
            reconsume_times: message.reconsume_times.saturating_add(1),
            messages: vec![copy],
        };
        self.send(send).await.map(drop)
    }
}

/// What a copy says: where the message was first, and when it is due. Names of upstream.
fn copy_properties(message: &StoredMessage, message_id: &str, delay_ms: i64) -> String {
    let mut raw = message.properties.clone();
    for name in [
        properties::DELAY,
        properties::TIMER_DELAY_SEC,
        properties::TIMER_DELIVER_MS,
        properties::TIMER_OUT_MS,
        properties::TIMER_DELAY_LEVEL,
    ] {
        properties::remove(&mut raw, name);
    }
    for (name, value) in
        [(properties::RETRY_TOPIC, message.topic.as_str()), (properties::ORIGIN_MESSAGE_ID, message_id)]
    {
        if properties::get(&raw, name).is_none() {
            properties::set(&mut raw, name, value);
        }
    }
    properties::set(&mut raw, properties::TIMER_DELAY_MS, &delay_ms.to_string());
    raw
}
