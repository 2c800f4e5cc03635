use std::collections::BTreeMap;

use super::bodies::bodies;

bodies! {
    /// The settings of a topic.
    TopicConfig {
        /// The topic.
        topic_name: String,
        /// Queues that can be read.
        read_queue_nums: i32 = 16,
        /// Queues that can be written.
        write_queue_nums: i32 = 16,
        /// Bits: 4 read, 2 write, 1 inherit.
        perm: i32 = 6,
        /// `SINGLE_TAG`.
        topic_filter_type: String = "SINGLE_TAG".to_owned(),
        /// Bits of units of deployment; 0.
        topic_sys_flag: i32,
        /// Whether the order of queues is configured.
        order: bool,
        /// Such as `message.type` = `NORMAL`; names without the `+` of a request.
        attributes: BTreeMap<String, String>,
    }

    /// The settings of many topics: the answer to GET_ALL_TOPIC_CONFIG.
    TopicConfigTable {
        /// By topic.
        topic_config_table: BTreeMap<String, TopicConfig>,
        /// Rises with every change.
        data_version: DataVersion,
    }

    /// The body of UPDATE_AND_CREATE_TOPIC_LIST.
    TopicConfigList {
        /// The topics.
        topic_config_list: Vec<TopicConfig>,
    }

    /// Says which of two tables is newer.
    DataVersion {
        /// Rises with a change of the broker's role.
        state_version: i64,
        /// When the table changed.
        timestamp: i64,
        /// Number of changes.
        counter: i64,
    }
}
