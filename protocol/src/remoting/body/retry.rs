//! How long a message that failed waits before it comes again: one rule for what clients are told and for what is done without them.

use super::{ExponentialRetryPolicy, GroupRetryPolicyType, SubscriptionGroupConfig};

/// Delays of an unordered group without a policy of its own, milliseconds, as RocketMQ's documentation has them: 10 s, 30 s, 1 to
/// 10 min, 20 min, 30 min, 1 h, 2 h.
const UNORDERED: [i64; 16] = [
    10_000, 30_000, 60_000, 120_000, 180_000, 240_000, 300_000, 360_000, 420_000, 480_000, 540_000, 600_000, 1_200_000,
    1_800_000, 3_600_000, 7_200_000,
];
/// The delay of an ordered group without a policy of its own, milliseconds.
const ORDERED: i64 = 1_000;

/// The delays between the attempts of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RetrySchedule {
    /// Milliseconds before the first retry, the second, and so on; the last counts for all further ones. Never empty.
    List(Vec<i64>),
    /// min(max, initial · multiplier^(n − 1)) before retry n.
    Formula(ExponentialRetryPolicy),
}

impl RetrySchedule {
    /// The schedule of a group. Without a policy of its own an unordered group has the documented ladder of 16 steps. An ordered one
    /// has a fixed delay, as a formula that does not grow: one published client knows formulas only.
    #[must_use]
    pub fn of(group: &SubscriptionGroupConfig) -> Self {
        let policy = &group.group_retry_policy;
        match (policy.kind, &policy.customized_retry_policy) {
            (GroupRetryPolicyType::Exponential, _) => {
                Self::Formula(policy.exponential_retry_policy.clone().unwrap_or_default())
            }
            (GroupRetryPolicyType::Customized, Some(list)) if !list.next.is_empty() => Self::List(list.next.clone()),
            (GroupRetryPolicyType::Customized, _) if group.consume_message_orderly => {
                Self::Formula(ExponentialRetryPolicy { initial: ORDERED, max: ORDERED, multiplier: 1 })
            }
            (GroupRetryPolicyType::Customized, _) => Self::List(UNORDERED.to_vec()),
        }
    }

    /// How long a message rests that was delivered `failures` times without success (at least once), milliseconds.
    #[must_use]
    pub fn delay_ms(&self, failures: u32) -> i64 {
        let before = failures.saturating_sub(1);
        match self {
            Self::List(list) => {
                let place = usize::try_from(before).unwrap_or(usize::MAX).min(list.len().saturating_sub(1));
                list.get(place).copied().unwrap_or_default()
            }
            Self::Formula(formula) => {
                formula.initial.saturating_mul(formula.multiplier.saturating_pow(before)).min(formula.max)
            }
        }
    }
}
