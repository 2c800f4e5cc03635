//! HEART_BEAT, UNREGISTER_CLIENT, GET_CONSUMER_LIST_BY_GROUP and VOUCH_FOR_CLIENTS.

use waybill_protocol::remoting::{
    Command, ConsumerList, GetConsumerListByGroupRequestHeader, HeartbeatData, UnregisterClientRequestHeader,
    VouchAnswer, VouchBody,
};

use super::{Answer, Peer, ok, ok_json};
use crate::Broker;
use crate::clients::Way;
use crate::error::BrokerError;
use crate::limits;

pub(super) async fn heartbeat(broker: &Broker, peer: &Peer, command: &Command) -> Answer {
    let data: HeartbeatData = command.json()?;
    if broker.in_force().auto_create_subscription_group {
        for consumer in &data.consumer_data_set {
            broker.core().group_for_pop(&consumer.group_name).await?;
        }
    }
    let consumers = data.consumer_data_set.into_iter().map(|consumer| consumer.group_name).collect();
    let producers = data.producer_data_set.into_iter().map(|producer| producer.group_name).collect();
    let way = Way { connection: peer.connection, channel: peer.channel.clone() };
    broker.clients().heartbeat(broker.now(), way, &data.client_id, consumers, producers)?;
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

pub(super) fn vouch(broker: &Broker, command: &Command) -> Answer {
    let body: VouchBody = command.json()?;
    if body.sidecar_id.is_empty() {
        return Err(BrokerError::InvalidParameter("sidecarId is empty".into()));
    }
    let count = body.alive.len() + body.gone.len() + body.left.len();
    if count > limits::VOUCHES_PER_REQUEST_MAX {
        let max = limits::VOUCHES_PER_REQUEST_MAX;
        return Err(BrokerError::InvalidParameter(format!("{count} clients in one request, allowed are {max}")));
    }
    let elsewhere = broker.vouch(body)?;
    let client_gone_after = i64::try_from(broker.config().client_gone_after).unwrap_or(i64::MAX);
    Ok(ok_json(&VouchAnswer { elsewhere, client_gone_after }))
}
