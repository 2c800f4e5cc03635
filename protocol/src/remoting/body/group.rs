use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::DataVersion;
use super::bodies::bodies;

/// How the delays between attempts are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum GroupRetryPolicyType {
    /// From a list.
    #[default]
    Customized,
    /// By a formula.
    Exponential,
}

bodies! {
    /// The settings of a consumer group.
    SubscriptionGroupConfig {
        /// The group.
        group_name: String,
        /// Whether it may consume at all.
        consume_enable: bool = true,
        /// Whether it may start from the oldest message.
        consume_from_min_enable: bool = true,
        /// Whether all its consumers may get all messages.
        consume_broadcast_enable: bool = true,
        /// Whether it is a FIFO group.
        consume_message_orderly: bool,
        /// Queues of its retry topic.
        retry_queue_nums: i32 = 1,
        /// Attempts after the first.
        retry_max_times: i32 = 16,
        /// Delays between attempts.
        group_retry_policy: GroupRetryPolicy,
        /// The broker id to read from.
        broker_id: i64,
        /// The broker id to read from when the first is slow.
        which_broker_when_consume_slowly: i64 = 1,
        /// Whether its consumers are told when one comes or goes.
        notify_consumer_ids_changed_enable: bool = true,
        /// Bits of units of deployment; 0.
        group_sys_flag: i32,
        /// Longest time a consumer works on a message, in minutes.
        consume_timeout_minute: i32 = 15,
        /// The subscriptions it is bound to, if it is.
        #[serde(skip_serializing_if = "Option::is_none")]
        subscription_data_set: Option<Vec<SimpleSubscriptionData>>,
        /// Further settings by name.
        attributes: BTreeMap<String, String>,
    }

    /// Delays between the attempts to consume a message.
    GroupRetryPolicy {
        /// Which of the two counts.
        #[serde(rename = "type")]
        kind: GroupRetryPolicyType,
        /// If absent, the documented delays: see [`RetrySchedule`](super::RetrySchedule).
        #[serde(skip_serializing_if = "Option::is_none")]
        customized_retry_policy: Option<CustomizedRetryPolicy>,
        /// If absent, the default formula.
        #[serde(skip_serializing_if = "Option::is_none")]
        exponential_retry_policy: Option<ExponentialRetryPolicy>,
    }

    /// Delays from a list.
    CustomizedRetryPolicy {
        /// Milliseconds; the last counts for all further attempts. Default: 1 s to 2 h in 18 steps.
        next: Vec<i64> = DEFAULT_DELAYS.to_vec(),
    }

    /// min(max, initial · multiplier^n).
    ExponentialRetryPolicy {
        /// Milliseconds.
        initial: i64 = 5_000,
        /// Milliseconds.
        max: i64 = 7_200_000,
        /// No unit.
        multiplier: i64 = 2,
    }

    /// A subscription a group is bound to.
    SimpleSubscriptionData {
        /// The topic.
        topic: String,
        /// `TAG` or `SQL92`.
        expression_type: String = "TAG".to_owned(),
        /// The filter.
        expression: String = "*".to_owned(),
        /// Newer is higher.
        version: i64,
    }

    /// The settings of many groups: the answer to GET_ALL_SUBSCRIPTIONGROUP_CONFIG.
    SubscriptionGroupTable {
        /// By group.
        subscription_group_table: BTreeMap<String, SubscriptionGroupConfig>,
        /// Bits of what a group may not do, by group and topic.
        forbidden_table: BTreeMap<String, BTreeMap<String, i32>>,
        /// Rises with every change.
        data_version: DataVersion,
    }

    /// The body of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST.
    SubscriptionGroupList {
        /// The groups.
        group_config_list: Vec<SubscriptionGroupConfig>,
    }
}

/// Milliseconds: 1 s, 5 s, 10 s, 30 s, 1 to 10 min, 20 min, 30 min, 1 h, 2 h.
const DEFAULT_DELAYS: [i64; 18] = [
    1_000, 5_000, 10_000, 30_000, 60_000, 120_000, 180_000, 240_000, 300_000, 360_000, 420_000, 480_000, 540_000,
    600_000, 1_200_000, 1_800_000, 3_600_000, 7_200_000,
];
