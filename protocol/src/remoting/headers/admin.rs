use crate::remoting::TopicConfig;
use crate::remoting::header::headers;

headers! {
    /// GET_ROUTEINFO_BY_TOPIC: the answer's body is a [`crate::remoting::TopicRouteData`].
    GetRouteInfoRequestHeader {
        /// The topic.
        topic: String = "topic",
        /// The requester cannot read map keys without quotes.
        accept_standard_json_only: Option<bool> = "acceptStandardJsonOnly",
    }

    /// UPDATE_AND_CREATE_TOPIC.
    CreateTopicRequestHeader {
        /// The topic.
        topic: String = "topic",
        /// The template, `TBW102`.
        default_topic: String = "defaultTopic",
        /// Queues that can be read.
        read_queue_nums: i32 = "readQueueNums",
        /// Queues that can be written.
        write_queue_nums: i32 = "writeQueueNums",
        /// Bits: 4 read, 2 write, 1 inherit.
        perm: i32 = "perm",
        /// `SINGLE_TAG`.
        topic_filter_type: String = "topicFilterType",
        /// Bits of units of deployment; 0.
        topic_sys_flag: Option<i32> = "topicSysFlag",
        /// Whether the order of queues is configured.
        order: bool = "order",
        /// `+name=value` sets, `-name` removes; joined by commas.
        attributes: Option<String> = "attributes",
        /// Also if the broker would refuse it.
        force: Option<bool> = "force",
    }

    /// DELETE_TOPIC_IN_BROKER and DELETE_TOPIC_IN_NAMESRV.
    DeleteTopicRequestHeader {
        /// The topic.
        topic: String = "topic",
        /// Ours: not if it has messages, delayed ones and open transactions included; then the answer is TOPIC_NOT_EMPTY.
        only_if_empty: Option<bool> = "onlyIfEmpty",
    }

    /// GET_TOPIC_CONFIG: the answer's body is a [`crate::remoting::TopicConfig`].
    GetTopicConfigRequestHeader {
        /// The topic.
        topic: String = "topic",
        /// Whether a logical topic is meant.
        lo: Option<bool> = "lo",
    }

    /// GET_SUBSCRIPTIONGROUP_CONFIG: the answer's body is a [`crate::remoting::SubscriptionGroupConfig`].
    GetSubscriptionGroupConfigRequestHeader {
        /// The consumer group.
        group: String = "group",
    }

    /// DELETE_SUBSCRIPTIONGROUP.
    DeleteSubscriptionGroupRequestHeader {
        /// The consumer group.
        group_name: String = "groupName",
        /// Whether its progress is forgotten too.
        clean_offset: Option<bool> = "cleanOffset",
    }
}

impl CreateTopicRequestHeader {
    /// A topic that can be read and written, with so many queues for both; all else as the broker has it by default.
    #[must_use]
    pub fn new(topic: impl Into<String>, queues: i32) -> Self {
        let like = TopicConfig::default();
        Self {
            topic: topic.into(),
            default_topic: "TBW102".to_owned(),
            read_queue_nums: queues,
            write_queue_nums: queues,
            perm: like.perm,
            topic_filter_type: like.topic_filter_type,
            ..Self::default()
        }
    }
}
