//! GET_ROUTEINFO_BY_TOPIC and GET_BROKER_CLUSTER_INFO: a broker is the name server of its own topics.

use std::collections::BTreeMap;

use waybill_protocol::remoting::{
    BrokerData, ClusterInfo, Command, GetRouteInfoRequestHeader, QueueData, TopicRouteData,
};

use super::{Answer, ok_json};
use crate::Broker;

pub(super) async fn route(broker: &Broker, command: &Command) -> Answer {
    let header: GetRouteInfoRequestHeader = command.header()?;
    let config = broker.in_force();
    // Proxies find brokers by asking for the topic that is named like the broker or the cluster.
    let (read, write, perm) = if header.topic == config.broker_name || header.topic == config.broker_cluster_name {
        (1, 1, config.permission())
    } else {
        let topic = broker.core().topic_for_send(&header.topic, 0).await?;
        (topic.config.read_queue_nums, topic.config.write_queue_nums, topic.config.perm & config.permission())
    };
    let queue_data = QueueData {
        broker_name: config.broker_name.clone(),
        read_queue_nums: read,
        write_queue_nums: write,
        perm,
        topic_sys_flag: 0,
    };
    Ok(ok_json(&TopicRouteData {
        queue_datas: vec![queue_data],
        broker_datas: vec![broker_data(broker)],
        ..TopicRouteData::default()
    }))
}

pub(super) fn cluster_info(broker: &Broker) -> Command {
    let config = broker.config();
    ok_json(&ClusterInfo {
        broker_addr_table: BTreeMap::from([(config.broker_name.clone(), broker_data(broker))]),
        cluster_addr_table: BTreeMap::from([(config.broker_cluster_name.clone(), vec![config.broker_name.clone()])]),
    })
}

fn broker_data(broker: &Broker) -> BrokerData {
    BrokerData {
        cluster: broker.config().broker_cluster_name.clone(),
        broker_name: broker.config().broker_name.clone(),
        broker_addrs: BTreeMap::from([(0, broker.announced_address())]),
        ..BrokerData::default()
    }
}
