//! What client and server agree on: the client's settings with the server's values over them.

use prost_types::Duration;
use waybill_protocol::{
    grpc::v2::{
        Code, CustomizedBackoff, ExponentialBackoff, Metric, RetryPolicy, Settings, Status, TelemetryCommand,
        retry_policy::Strategy, settings::PubSub, telemetry_command::Command,
    },
    remoting::{GroupRetryPolicyType, SubscriptionGroupConfig},
};

use crate::config::Config;

/// Lite topics of one consumer, and bytes of a lite topic's name: upstream's defaults, which clients expect to see.
const LITE_SUBSCRIPTION_QUOTA: i32 = 2_000;
const LITE_TOPIC_BYTES: i32 = 64;

/// The settings that hold. `group` is what is known of a consumer's group.
#[must_use]
pub(crate) fn merge(own: &Settings, group: &SubscriptionGroupConfig, config: &Config) -> Settings {
    let mut merged = own.clone();
    merged.metric = Some(Metric::default());
    match &mut merged.pub_sub {
        Some(PubSub::Publishing(publishing)) => {
            publishing.validate_message_type = config.enable_topic_message_type_check;
            publishing.max_body_size = int32(config.max_message_size);
            merged.backoff_policy = Some(producer_backoff(config));
        }
        Some(PubSub::Subscription(subscription)) => {
            subscription.fifo = Some(group.consume_message_orderly);
            subscription.receive_batch_size = Some(int32(config.grpc_client_consumer_long_polling_batch_size));
            subscription.long_polling_timeout = Some(millis(config.grpc_client_consumer_max_long_polling_timeout_ms));
            subscription.lite_subscription_quota = Some(LITE_SUBSCRIPTION_QUOTA);
            subscription.max_lite_topic_size = Some(LITE_TOPIC_BYTES);
            merged.backoff_policy = Some(consumer_backoff(group));
        }
        None => {}
    }
    merged
}

/// The command that tells a client its settings.
#[must_use]
pub(crate) fn command(merged: &Settings) -> TelemetryCommand {
    let status = Status { code: Code::Ok.into(), message: "OK".to_owned() };
    TelemetryCommand { status: Some(status), command: Some(Command::Settings(merged.clone())) }
}

fn producer_backoff(config: &Config) -> RetryPolicy {
    RetryPolicy {
        max_attempts: int32(config.grpc_client_producer_max_attempts),
        strategy: Some(Strategy::ExponentialBackoff(ExponentialBackoff {
            initial: Some(millis(config.grpc_client_producer_backoff_initial_ms)),
            max: Some(millis(config.grpc_client_producer_backoff_max_ms)),
            multiplier: int32(config.grpc_client_producer_backoff_multiplier) as f32,
        })),
    }
}

fn consumer_backoff(group: &SubscriptionGroupConfig) -> RetryPolicy {
    let policy = &group.group_retry_policy;
    let strategy = match policy.kind {
        GroupRetryPolicyType::Customized => {
            let next = policy.customized_retry_policy.clone().unwrap_or_default().next;
            Strategy::CustomizedBackoff(CustomizedBackoff { next: next.into_iter().map(millis).collect() })
        }
        GroupRetryPolicyType::Exponential => {
            let policy = policy.exponential_retry_policy.clone().unwrap_or_default();
            Strategy::ExponentialBackoff(ExponentialBackoff {
                initial: Some(millis(policy.initial)),
                max: Some(millis(policy.max)),
                multiplier: int32(policy.multiplier) as f32,
            })
        }
    };
    RetryPolicy { max_attempts: max_attempts(group), strategy: Some(strategy) }
}

/// Deliveries of a message before it is dead: the first, and the group's retries.
#[must_use]
pub(crate) fn max_attempts(group: &SubscriptionGroupConfig) -> i32 {
    group.retry_max_times.saturating_add(1).max(1)
}

/// The settings that hold when the group cannot be asked for now: what the client was told of it before.
#[must_use]
pub(crate) fn carry_over(own: &Settings, before: &Settings, config: &Config) -> Settings {
    let mut merged = merge(own, &SubscriptionGroupConfig::default(), config);
    merged.backoff_policy.clone_from(&before.backoff_policy);
    if let Some(PubSub::Subscription(subscription)) = &mut merged.pub_sub {
        subscription.fifo = Some(is_fifo(before));
    }
    merged
}

/// Whether the consumer was told that its group is ordered.
#[must_use]
pub(crate) fn is_fifo(settings: &Settings) -> bool {
    matches!(&settings.pub_sub, Some(PubSub::Subscription(subscription)) if subscription.fifo())
}

fn millis(ms: i64) -> Duration {
    let nanos = i32::try_from(ms.rem_euclid(1_000)).unwrap_or_default() * 1_000_000;
    Duration { seconds: ms.div_euclid(1_000), nanos }
}

/// Numbers of the configuration are far below the limit; one that were not would be the largest.
fn int32(number: i64) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
