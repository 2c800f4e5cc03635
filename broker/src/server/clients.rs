//! HEART_BEAT, UNREGISTER_CLIENT and GET_CONSUMER_LIST_BY_GROUP.

use waybill_protocol::remoting::{
    Command, ConsumerList, GetConsumerListByGroupRequestHeader, HeartbeatData, UnregisterClientRequestHeader,
};

use super::{Answer, Peer, ok, ok_json};
use crate::Broker;
use crate::error::BrokerError;

pub(super) async fn heartbeat(broker: &Broker, peer: &Peer, command: &Command) -> Answer {
    let data: HeartbeatData = command.json()?;
    if broker.config().auto_create_subscription_group {
        for consumer in &data.consumer_data_set {
            broker.core().group_for_pop(&consumer.group_name).await?;
        }
    }
    let consumers = data.consumer_data_set.into_iter().map(|consumer| consumer.group_name).collect();
    let producers = data.producer_data_set.into_iter().map(|producer| producer.group_name).collect();
    broker.clients().heartbeat(broker.now(), peer.connection, &data.client_id, consumers, producers)?;
    Ok(ok())
}

pub(super) fn unregister(broker: &Broker, command: &Command) -> Answer {
    let header: UnregisterClientRequestHeader = command.header()?;
    broker.clients().unregister(&header.client_id, header.consumer_group.as_deref(), header.producer_group.as_deref());
    Ok(ok())
}

pub(super) fn consumers(broker: &Broker, command: &Command) -> Answer {
    let header: GetConsumerListByGroupRequestHeader = command.header()?;
    let ids = broker.clients().consumers(&header.consumer_group);
    if ids.is_empty() {
        return Err(BrokerError::NoConsumer(header.consumer_group));
    }
    Ok(ok_json(&ConsumerList { consumer_id_list: ids }))
}
