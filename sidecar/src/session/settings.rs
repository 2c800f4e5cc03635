//! What client and server agree on: the client's settings with the server's values over them.

use prost_types::Duration;
use waybill_protocol::{
    grpc::v2::{
        Code, CustomizedBackoff, ExponentialBackoff, Metric, RetryPolicy, Settings, Status, TelemetryCommand,
        retry_policy::Strategy, settings::PubSub, telemetry_command::Command,
    },
    remoting::{RetrySchedule, SubscriptionGroupConfig},
};

use crate::config::Config;
use crate::namespace;

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
    let mut told = merged.clone();
    namespace::show_settings(&mut told);
    TelemetryCommand { status: Some(status), command: Some(Command::Settings(told)) }
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
    let strategy = match RetrySchedule::of(group) {
        RetrySchedule::List(next) => {
            Strategy::CustomizedBackoff(CustomizedBackoff { next: next.into_iter().map(millis).collect() })
        }
        RetrySchedule::Formula(policy) => Strategy::ExponentialBackoff(ExponentialBackoff {
            initial: Some(millis(policy.initial)),
            max: Some(millis(policy.max)),
            multiplier: int32(policy.multiplier) as f32,
        }),
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

#[cfg(test)]
mod tests {
    use super::*;
    use waybill_protocol::grpc::v2::{Publishing, Resource, Subscription};
    use waybill_protocol::remoting::{CustomizedRetryPolicy, GroupRetryPolicy, GroupRetryPolicyType};

    fn consumer() -> Settings {
        let group = Resource { resource_namespace: String::new(), name: "g".into() };
        let subscription = Subscription { group: Some(group), ..Default::default() };
        Settings {
            request_timeout: Some(Duration { seconds: 3, nanos: 0 }),
            pub_sub: Some(PubSub::Subscription(subscription)),
            ..Default::default()
        }
    }

    fn subscription(settings: &Settings) -> Subscription {
        let Some(PubSub::Subscription(subscription)) = settings.pub_sub.clone() else { panic!("no subscription") };
        subscription
    }

    #[test]
    fn a_producer_is_told_how_to_send() {
        let own = Settings { pub_sub: Some(PubSub::Publishing(Publishing::default())), ..Default::default() };
        let merged = merge(&own, &SubscriptionGroupConfig::default(), &Config::default());
        let policy = merged.backoff_policy.expect("a policy");
        assert_eq!(policy.max_attempts, 3);
        let wanted = ExponentialBackoff {
            initial: Some(Duration { seconds: 0, nanos: 10_000_000 }),
            max: Some(Duration { seconds: 1, nanos: 0 }),
            multiplier: 2.0,
        };
        assert_eq!(policy.strategy, Some(Strategy::ExponentialBackoff(wanted)));
        let Some(PubSub::Publishing(publishing)) = merged.pub_sub else { panic!("no publishing") };
        assert_eq!((publishing.max_body_size, publishing.validate_message_type), (4_194_304, true));
        assert_eq!(merged.metric, Some(Metric::default()));
    }

    #[test]
    fn a_consumer_is_told_of_its_group() {
        let merged = merge(&consumer(), &SubscriptionGroupConfig::default(), &Config::default());
        let told = subscription(&merged);
        assert_eq!((told.fifo, told.receive_batch_size), (Some(false), Some(32)));
        assert_eq!(told.long_polling_timeout, Some(Duration { seconds: 20, nanos: 0 }));
        assert_eq!((told.lite_subscription_quota, told.max_lite_topic_size), (Some(2_000), Some(64)));
        assert_eq!(told.group.map(|group| group.name), Some("g".into()));
        assert_eq!(merged.request_timeout, Some(Duration { seconds: 3, nanos: 0 }), "what is the client's stays");
        let policy = merged.backoff_policy.expect("a policy");
        assert_eq!(policy.max_attempts, 17);
        let Some(Strategy::CustomizedBackoff(backoff)) = policy.strategy else { panic!("no list") };
        let seconds = backoff.next.iter().map(|wait| wait.seconds).collect::<Vec<_>>();
        let wanted = [10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200, 1_800, 3_600, 7_200];
        assert_eq!(seconds, wanted);
    }

    #[test]
    fn policies_of_a_group() {
        let backoff = |policy: GroupRetryPolicy| {
            let group =
                SubscriptionGroupConfig { group_retry_policy: policy, retry_max_times: 3, ..Default::default() };
            merge(&consumer(), &group, &Config::default()).backoff_policy.expect("a policy")
        };
        let listed = backoff(GroupRetryPolicy {
            customized_retry_policy: Some(CustomizedRetryPolicy { next: vec![1_500] }),
            ..Default::default()
        });
        assert_eq!(listed.max_attempts, 4);
        let next = vec![Duration { seconds: 1, nanos: 500_000_000 }];
        assert_eq!(listed.strategy, Some(Strategy::CustomizedBackoff(CustomizedBackoff { next })));
        let exponential = backoff(GroupRetryPolicy { kind: GroupRetryPolicyType::Exponential, ..Default::default() });
        let wanted = ExponentialBackoff {
            initial: Some(Duration { seconds: 5, nanos: 0 }),
            max: Some(Duration { seconds: 7_200, nanos: 0 }),
            multiplier: 2.0,
        };
        assert_eq!(exponential.strategy, Some(Strategy::ExponentialBackoff(wanted)));
    }

    /// As a formula that stands still, because one published client (Node) knows no lists.
    #[test]
    fn an_ordered_group_waits_a_fixed_time() {
        let group = SubscriptionGroupConfig { consume_message_orderly: true, ..Default::default() };
        let policy = merge(&consumer(), &group, &Config::default()).backoff_policy.expect("a policy");
        let second = Some(Duration { seconds: 1, nanos: 0 });
        let fixed = ExponentialBackoff { initial: second, max: second, multiplier: 1.0 };
        assert_eq!(policy.strategy, Some(Strategy::ExponentialBackoff(fixed)));
    }

    #[test]
    fn a_group_has_one_attempt_at_least() {
        let of = |retry_max_times| max_attempts(&SubscriptionGroupConfig { retry_max_times, ..Default::default() });
        assert_eq!((of(16), of(0), of(-7), of(i32::MAX)), (17, 1, 1, i32::MAX));
    }

    #[test]
    fn what_was_told_before_is_kept() {
        let group = SubscriptionGroupConfig { consume_message_orderly: true, retry_max_times: 1, ..Default::default() };
        let before = merge(&consumer(), &group, &Config::default());
        let merged = carry_over(&consumer(), &before, &Config::default());
        assert_eq!(merged, before);
        assert!(is_fifo(&merged));
    }
}
