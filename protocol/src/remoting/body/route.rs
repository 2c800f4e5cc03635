use std::collections::BTreeMap;

use super::bodies::bodies;

bodies! {
    /// Where a topic lives: the answer to GET_ROUTEINFO_BY_TOPIC.
    TopicRouteData {
        /// Present for topics whose order of queues is configured.
        #[serde(skip_serializing_if = "Option::is_none")]
        order_topic_conf: Option<String>,
        /// The queues, by broker.
        queue_datas: Vec<QueueData>,
        /// The addresses, by broker.
        broker_datas: Vec<BrokerData>,
        /// Unused; old clients want to see it.
        filter_server_table: BTreeMap<String, Vec<String>>,
    }

    /// The queues of a topic on one broker.
    QueueData {
        /// The broker.
        broker_name: String,
        /// Queues that can be read.
        read_queue_nums: i32,
        /// Queues that can be written.
        write_queue_nums: i32,
        /// Bits: 4 read, 2 write, 1 inherit.
        perm: i32,
        /// Bits of units of deployment; 0.
        topic_sys_flag: i32,
    }

    /// The addresses of one broker.
    BrokerData {
        /// The cluster it belongs to.
        cluster: String,
        /// Its name.
        broker_name: String,
        /// `host:port` by broker id; 0 is the one to write to.
        broker_addrs: BTreeMap<i64, String>,
        /// Whether a replica may stand in for the one to write to.
        enable_acting_master: bool,
        /// Where it is.
        #[serde(skip_serializing_if = "Option::is_none")]
        zone_name: Option<String>,
    }

    /// The brokers of all clusters: the answer to GET_BROKER_CLUSTER_INFO.
    ClusterInfo {
        /// By broker name.
        broker_addr_table: BTreeMap<String, BrokerData>,
        /// Broker names by cluster.
        cluster_addr_table: BTreeMap<String, Vec<String>>,
    }

    /// Names of topics.
    TopicList {
        /// The topics.
        topic_list: Vec<String>,
        /// The broker that was asked, if it was one.
        #[serde(skip_serializing_if = "Option::is_none")]
        broker_addr: Option<String>,
    }
}
