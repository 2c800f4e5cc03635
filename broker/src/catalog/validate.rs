//! Which settings a topic or a group can have.

use waybill_protocol::remoting::{GroupOverrides, SubscriptionGroupConfig, TopicConfig};

use super::{QUEUES_MAX, attributes};
use crate::error::BrokerError;

/// Longest delay between two attempts, in milliseconds: seven days.
const DELAY_MS_MAX: i64 = 7 * 24 * 3_600_000;
/// Steps of a list of delays; the last counts for all further attempts.
const DELAYS_MAX: usize = 64;

pub(super) fn topic(config: &TopicConfig) -> Result<(), BrokerError> {
    within("readQueueNums", config.read_queue_nums, 1, QUEUES_MAX)?;
    within("writeQueueNums", config.write_queue_nums, 1, QUEUES_MAX)?;
    if config.perm & !0b1111 != 0 {
        return Err(BrokerError::InvalidParameter(format!(
            "perm is {}, allowed are sums of 8, 4 (read), 2 (write) and 1",
            config.perm
        )));
    }
    attributes::check(&config.attributes)
}

pub(super) fn group(config: &SubscriptionGroupConfig) -> Result<(), BrokerError> {
    within("retryMaxTimes", config.retry_max_times, 0, 10_000)?;
    within("consumeTimeoutMinute", config.consume_timeout_minute, 1, 10_080)?;
    within("retryQueueNums", config.retry_queue_nums, 0, QUEUES_MAX)?;
    GroupOverrides::read(&config.attributes).map_err(|error| BrokerError::InvalidParameter(error.to_string()))?;
    let policy = &config.group_retry_policy;
    if let Some(list) = &policy.customized_retry_policy {
        within("customizedRetryPolicy.next, its length,", list.next.len(), 1, DELAYS_MAX)?;
        list.next.iter().try_for_each(|delay| within("customizedRetryPolicy.next", *delay, 0, DELAY_MS_MAX))?;
    }
    if let Some(formula) = &policy.exponential_retry_policy {
        within("exponentialRetryPolicy.initial", formula.initial, 0, DELAY_MS_MAX)?;
        within("exponentialRetryPolicy.max", formula.max, formula.initial, DELAY_MS_MAX)?;
        within("exponentialRetryPolicy.multiplier", formula.multiplier, 1, 1_000)?;
    }
    Ok(())
}

/// Whether one more can be created when there are `have`.
pub(super) fn count(what: &str, have: usize, max: usize) -> Result<(), BrokerError> {
    if have < max {
        return Ok(());
    }
    Err(BrokerError::InvalidParameter(format!(
        "there are {have} {what}, limit {max}; delete some before creating more"
    )))
}

fn within<T: PartialOrd + std::fmt::Display>(key: &str, value: T, low: T, high: T) -> Result<(), BrokerError> {
    if (&low..=&high).contains(&&value) {
        return Ok(());
    }
    Err(BrokerError::InvalidParameter(format!("{key} is {value}, allowed are {low} to {high}")))
}
