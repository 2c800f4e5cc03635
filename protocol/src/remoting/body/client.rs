use super::bodies::bodies;

bodies! {
    /// The body of HEART_BEAT: a client and all groups it is in.
    HeartbeatData {
        /// The client.
        #[serde(rename = "clientID")]
        client_id: String,
        /// Hash of the subscriptions; 0: the client does not use it.
        heartbeat_fingerprint: i32,
        /// Whether the subscriptions are left out because the broker knows them.
        without_sub: bool,
        /// Groups it produces in.
        producer_data_set: Vec<ProducerData>,
        /// Groups it consumes in.
        consumer_data_set: Vec<ConsumerData>,
    }

    /// A producer group.
    ProducerData {
        /// The group.
        group_name: String,
    }

    /// A consumer group and what it reads.
    ConsumerData {
        /// The group.
        group_name: String,
        /// `CONSUME_ACTIVELY`, `CONSUME_PASSIVELY` or `CONSUME_POP`.
        consume_type: String = "CONSUME_PASSIVELY".to_owned(),
        /// `CLUSTERING` or `BROADCASTING`.
        message_model: String = "CLUSTERING".to_owned(),
        /// Such as `CONSUME_FROM_LAST_OFFSET`.
        consume_from_where: String = "CONSUME_FROM_LAST_OFFSET".to_owned(),
        /// By topic.
        subscription_data_set: Vec<SubscriptionData>,
        /// Unused remnant of units of deployment.
        unit_mode: bool,
    }

    /// What a group wants of a topic.
    SubscriptionData {
        /// Unused: false.
        class_filter_mode: bool,
        /// The topic.
        topic: String,
        /// The filter as the user wrote it; `*` is all.
        sub_string: String,
        /// The tags of the filter; none for all.
        tags_set: Vec<String>,
        /// [`crate::message::java_hash`] of each tag.
        code_set: Vec<i32>,
        /// Newer is higher: milliseconds since the epoch.
        sub_version: i64,
        /// `TAG` or `SQL92`.
        expression_type: String = "TAG".to_owned(),
    }

    /// The body of VOUCH_FOR_CLIENTS: a sidecar tells a broker which of its clients are alive. Ours.
    ///
    /// A client that nobody has vouched for during the broker's `clientGoneAfter` is taken for dead, and what it holds is given
    /// back. So a sidecar repeats this for all its clients several times in that span, and at once for a client that is new.
    VouchBody {
        /// The sidecar: another text in each process.
        sidecar_id: String,
        /// Clients that it knows to be alive.
        alive: Vec<String>,
        /// Clients that it takes for gone and will vouch for no more.
        gone: Vec<String>,
        /// Clients that said goodbye: what they hold is left to its leases.
        left: Vec<String>,
    }

    /// The answer to VOUCH_FOR_CLIENTS.
    VouchAnswer {
        /// Those of `gone` for which another sidecar vouches: what they hold must not be given back.
        elsewhere: Vec<String>,
        /// The broker's `clientGoneAfter`, milliseconds; 0: it gives nothing back by itself.
        client_gone_after: i64,
    }

    /// The consumers of a group: the answer to GET_CONSUMER_LIST_BY_GROUP.
    ConsumerList {
        /// Client ids.
        consumer_id_list: Vec<String>,
    }
}
