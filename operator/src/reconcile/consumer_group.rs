//! A ConsumerGroup is a consumer group on every broker.

use std::sync::Arc;

use kube::ResourceExt;
use tokio_util::sync::CancellationToken;
use waybill_protocol::names;
use waybill_protocol::remoting::{
    CustomizedRetryPolicy, ExponentialRetryPolicy, GroupRetryPolicy, GroupRetryPolicyType,
};

use super::group_counts::keep_counts;
use super::{Kind, OnBrokers};
use crate::admin::{AdminError, Applied, Connection, Gone, GroupSettings, group};
use crate::api::{AppliedStatus, BrokerRef, ConsumerGroup, DeletionPolicy, GroupDeletionPolicy, GroupStatus, Retry};

impl OnBrokers for ConsumerGroup {
    type Settings = GroupSettings;
    type Status = GroupStatus;
    const WHAT: &'static str = "consumer group";

    fn broker_ref(&self) -> &BrokerRef {
        &self.spec.broker_ref
    }

    fn name_on_brokers(&self) -> String {
        self.spec.group_name.clone().unwrap_or_else(|| self.name_any())
    }

    fn status(&self) -> Option<&AppliedStatus> {
        self.status.as_ref().map(|status| &status.applied)
    }

    fn status_with(&self, applied: &AppliedStatus) -> GroupStatus {
        let counts = self.status.as_ref().map(|status| status.counts).unwrap_or_default();
        GroupStatus { applied: applied.clone(), counts }
    }

    fn deletion_policy(&self) -> DeletionPolicy {
        match self.spec.deletion_policy {
            GroupDeletionPolicy::Retain => DeletionPolicy::Retain,
            GroupDeletionPolicy::Delete => DeletionPolicy::Delete,
        }
    }

    fn settings(&self) -> Result<GroupSettings, String> {
        let name = self.name_on_brokers();
        names::validate_group(&name).map_err(|error| format!("group {name:?}: {error}"))?;
        Ok(GroupSettings {
            name,
            orderly: self.spec.orderly,
            consume_enabled: !self.spec.paused,
            retry_max_times: self.spec.retry.max_times,
            retry_policy: retry_policy(&self.spec.retry)?,
            consume_timeout_minutes: self.spec.consume_timeout_minutes,
            renew: self.spec.leases.renew,
            invisible_ms: self.spec.leases.invisible_ms,
            batch_max: self.spec.leases.batch_max,
        })
    }

    async fn apply(settings: &GroupSettings, broker: &mut Connection) -> Result<Applied, AdminError> {
        settings.apply(broker).await
    }

    async fn is_empty(_name: &str, _broker: &mut Connection) -> Result<bool, AdminError> {
        Ok(true)
    }

    async fn delete(name: &str, _only_empty: bool, broker: &mut Connection) -> Result<Gone, AdminError> {
        group::delete(broker, name).await.map(|()| Gone::Deleted)
    }

    async fn beside(kind: Arc<Kind<Self>>, stop: CancellationToken) {
        keep_counts(kind, stop).await;
    }
}

/// Neither a list nor a formula: the broker's default list.
fn retry_policy(retry: &Retry) -> Result<GroupRetryPolicy, String> {
    match (&retry.delays_ms, &retry.exponential) {
        (Some(_), Some(_)) => Err("spec.retry has delaysMs and exponential, one of them is allowed".to_owned()),
        (Some(delays), None) => Ok(GroupRetryPolicy {
            customized_retry_policy: Some(CustomizedRetryPolicy { next: delays.clone() }),
            ..GroupRetryPolicy::default()
        }),
        (None, Some(formula)) => Ok(GroupRetryPolicy {
            kind: GroupRetryPolicyType::Exponential,
            exponential_retry_policy: Some(ExponentialRetryPolicy {
                initial: formula.initial_ms,
                max: formula.max_ms,
                multiplier: formula.multiplier,
            }),
            ..GroupRetryPolicy::default()
        }),
        (None, None) => Ok(GroupRetryPolicy::default()),
    }
}
