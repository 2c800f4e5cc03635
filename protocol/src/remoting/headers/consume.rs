use crate::remoting::header::headers;

headers! {
    /// POP_MESSAGE: lease messages, waiting for them if there are none.
    PopMessageRequestHeader {
        /// The consumer group.
        consumer_group: String = "consumerGroup",
        /// The topic as the consumer knows it, never a retry topic.
        topic: String = "topic",
        /// -1: all queues.
        queue_id: i32 = "queueId",
        /// 1 to 32.
        max_msg_nums: i32 = "maxMsgNums",
        /// Length of the lease.
        invisible_time: i64 = "invisibleTime",
        /// Longest wait.
        poll_time: i64 = "pollTime",
        /// When the request was made; 0 if the requester does not say.
        born_time: i64 = "bornTime" or 0,
        /// Where a group without progress starts: 0 at the oldest message, 1 at the newest.
        init_mode: i32 = "initMode",
        /// `TAG` or `SQL92`.
        exp_type: Option<String> = "expType",
        /// The filter; nothing or `*` is all.
        exp: Option<String> = "exp",
        /// Whether messages are wanted one after the other (FIFO groups).
        order: Option<bool> = "order",
        /// Repeated with a repeated request, so that a FIFO group gets the same messages again.
        attempt_id: Option<String> = "attemptId",
        /// Ours: the client on whose behalf the leases are taken, their holder. Brokers of Apache ignore it.
        client_id: Option<String> = "clientId",
    }

    /// The answer to POP_MESSAGE. The three lists are read and written by [`crate::remoting::pop_info`]; the body is messages
    /// one after the other.
    PopMessageResponseHeader {
        /// When the leases began.
        pop_time: i64 = "popTime",
        /// Their length.
        invisible_time: i64 = "invisibleTime",
        /// The fourth field of the receipt handles.
        revive_qid: i32 = "reviveQid",
        /// About how many messages are left.
        rest_num: i64 = "restNum",
        /// The first offset of this pop, by queue.
        start_offset_info: Option<String> = "startOffsetInfo",
        /// The offsets of the messages, by queue.
        msg_offset_info: Option<String> = "msgOffsetInfo",
        /// How often each was delivered before (FIFO groups).
        order_count_info: Option<String> = "orderCountInfo",
    }

    /// ACK_MESSAGE: end a lease with success.
    AckMessageRequestHeader {
        /// The consumer group.
        consumer_group: String = "consumerGroup",
        /// The real topic: the retry topic for a message that came from there.
        topic: String = "topic",
        /// The queue of the message.
        queue_id: i32 = "queueId",
        /// The receipt handle.
        extra_info: String = "extraInfo",
        /// The queue offset of the message.
        offset: i64 = "offset",
    }

    /// CHANGE_MESSAGE_INVISIBLETIME: move the end of a lease.
    ChangeInvisibleTimeRequestHeader {
        /// The consumer group.
        consumer_group: String = "consumerGroup",
        /// The real topic.
        topic: String = "topic",
        /// The queue of the message.
        queue_id: i32 = "queueId",
        /// The receipt handle.
        extra_info: String = "extraInfo",
        /// The queue offset of the message.
        offset: i64 = "offset",
        /// From now on.
        invisible_time: i64 = "invisibleTime",
        /// The lite topic, if it is one.
        lite_topic: Option<String> = "liteTopic",
        /// The next delivery is not counted as another attempt.
        suspend: Option<bool> = "suspend",
    }

    /// The answer to CHANGE_MESSAGE_INVISIBLETIME: the fields of the new receipt handle.
    ChangeInvisibleTimeResponseHeader {
        /// When the lease began.
        pop_time: i64 = "popTime",
        /// Its length from then on.
        invisible_time: i64 = "invisibleTime",
        /// The fourth field of the receipt handle.
        revive_qid: i32 = "reviveQid",
    }

    /// BATCH_CHANGE_MESSAGE_INVISIBLETIME: the body is a [`crate::remoting::BatchChangeInvisibleBody`].
    BatchChangeInvisibleTimeRequestHeader {
        /// The consumer group of all entries.
        consumer_group: String = "consumerGroup",
        /// The real topic of all entries.
        topic: String = "topic",
    }

    /// NOTIFICATION: wait for a message without taking it.
    NotificationRequestHeader {
        /// The consumer group.
        consumer_group: String = "consumerGroup",
        /// The topic.
        topic: String = "topic",
        /// -1: all queues.
        queue_id: i32 = "queueId",
        /// Longest wait.
        poll_time: i64 = "pollTime",
        /// When the request was made; 0 if the requester does not say.
        born_time: i64 = "bornTime" or 0,
        /// Whether messages are wanted one after the other (FIFO groups).
        order: Option<bool> = "order",
        /// As in a pop.
        attempt_id: Option<String> = "attemptId",
    }

    /// The answer to NOTIFICATION.
    NotificationResponseHeader {
        /// Whether a pop would find something.
        has_msg: bool = "hasMsg",
        /// Too many are waiting already.
        polling_full: Option<bool> = "pollingFull",
    }

    /// QUERY_CONSUMER_OFFSET: how far a group has read a queue.
    QueryConsumerOffsetRequestHeader {
        /// The consumer group.
        consumer_group: String = "consumerGroup",
        /// The topic.
        topic: String = "topic",
        /// The queue.
        queue_id: i32 = "queueId",
        /// False: a queue without progress is an error even if it is young.
        set_zero_if_not_found: Option<bool> = "setZeroIfNotFound",
    }

    /// UPDATE_CONSUMER_OFFSET: a group says how far it has read a queue.
    UpdateConsumerOffsetRequestHeader {
        /// The consumer group.
        consumer_group: String = "consumerGroup",
        /// The topic.
        topic: String = "topic",
        /// The queue.
        queue_id: i32 = "queueId",
        /// The offset of the next message to read.
        commit_offset: i64 = "commitOffset",
    }

    /// The answer to every question for an offset.
    OffsetResponseHeader {
        /// The offset.
        offset: i64 = "offset",
    }

    /// GET_MAX_OFFSET and GET_MIN_OFFSET.
    QueueRequestHeader {
        /// The topic.
        topic: String = "topic",
        /// The queue.
        queue_id: i32 = "queueId",
    }

    /// SEARCH_OFFSET_BY_TIMESTAMP.
    SearchOffsetRequestHeader {
        /// The topic.
        topic: String = "topic",
        /// The queue.
        queue_id: i32 = "queueId",
        /// Store time.
        timestamp: i64 = "timestamp",
        /// `lower` (the first message of that time) or `upper` (the last).
        boundary_type: Option<String> = "boundaryType",
    }

    /// UNREGISTER_CLIENT: a client leaves.
    UnregisterClientRequestHeader {
        /// The client.
        client_id: String = "clientID",
        /// The producer group it leaves.
        producer_group: Option<String> = "producerGroup",
        /// The consumer group it leaves.
        consumer_group: Option<String> = "consumerGroup",
    }

    /// GET_CONSUMER_LIST_BY_GROUP: the answer's body is a [`crate::remoting::ConsumerList`].
    GetConsumerListByGroupRequestHeader {
        /// The consumer group.
        consumer_group: String = "consumerGroup",
    }
}
