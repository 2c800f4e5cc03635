//! A Topic is a topic on every broker.

use kube::ResourceExt;
use waybill_protocol::names;

use super::OnBrokers;
use crate::admin::{AdminError, Applied, Connection, Gone, TopicSettings, topic};
use crate::api::{AppliedStatus, BrokerRef, DeletionPolicy, Permission, Topic};

impl OnBrokers for Topic {
    type Settings = TopicSettings;
    type Status = AppliedStatus;
    const WHAT: &'static str = "topic";

    fn broker_ref(&self) -> &BrokerRef {
        &self.spec.broker_ref
    }

    fn name_on_brokers(&self) -> String {
        self.spec.topic_name.clone().unwrap_or_else(|| self.name_any())
    }

    fn status(&self) -> Option<&AppliedStatus> {
        self.status.as_ref()
    }

    fn status_with(&self, applied: &AppliedStatus) -> AppliedStatus {
        applied.clone()
    }

    fn deletion_policy(&self) -> DeletionPolicy {
        self.spec.deletion_policy
    }

    fn settings(&self) -> Result<TopicSettings, String> {
        let name = self.name_on_brokers();
        names::validate_topic(&name).map_err(|error| format!("topic {name:?}: {error}"))?;
        let (read_queues, write_queues) = (self.spec.queues, self.spec.write_queues.unwrap_or(self.spec.queues));
        if write_queues > read_queues {
            return Err(format!("spec.writeQueues is {write_queues}, at most spec.queues, {read_queues}, is allowed"));
        }
        let perm = match self.spec.permission {
            Permission::ReadWrite => 6,
            Permission::ReadOnly => 4,
            Permission::WriteOnly => 2,
        };
        let message_type = self.spec.message_type.on_broker();
        let retention_hours = self.spec.retention.map(|retention| retention.hours);
        Ok(TopicSettings { name, message_type, read_queues, write_queues, perm, retention_hours })
    }

    async fn apply(settings: &TopicSettings, broker: &mut Connection) -> Result<Applied, AdminError> {
        settings.apply(broker).await
    }

    async fn is_empty(name: &str, broker: &mut Connection) -> Result<bool, AdminError> {
        topic::is_empty(broker, name).await
    }

    async fn delete(name: &str, only_empty: bool, broker: &mut Connection) -> Result<Gone, AdminError> {
        topic::delete(broker, name, only_empty).await
    }
}
