use crate::remoting::header::{Field, headers};
use crate::remoting::{ExtFields, Header, HeaderError};

headers! {
    /// SEND_MESSAGE_V2, SEND_BATCH_MESSAGE, and with long names SEND_MESSAGE. The body is the message's body, or for a batch
    /// what [`crate::message::encode_batch`] writes.
    ///
    /// [`Header::decode`] and [`Header::encode`] use the single letters of V2; [`Self::decode_v1`] and [`Self::encode_v1`] the
    /// long names.
    SendMessageRequestHeader {
        /// Who sends.
        producer_group: String = "a",
        /// Where to.
        topic: String = "b",
        /// The template of a topic that is created by being sent to, `TBW102`.
        default_topic: String = "c",
        /// Queues of a topic that is created by being sent to.
        default_topic_queue_nums: i32 = "d",
        /// Below 0: the broker picks a writable queue.
        queue_id: i32 = "e",
        /// Bits of [`crate::message::sys_flag`].
        sys_flag: i32 = "f",
        /// When the producer made the message.
        born_timestamp: i64 = "g",
        /// The user's own number.
        flag: i32 = "h",
        /// In the form of [`crate::message::properties`].
        properties: Option<String> = "i",
        /// How often the message was consumed without success.
        reconsume_times: Option<i32> = "j",
        /// Unused remnant of units of deployment.
        unit_mode: Option<bool> = "k",
        /// After how many attempts a retried message is a dead letter.
        max_reconsume_times: Option<i32> = "l",
        /// Whether the body holds many messages.
        batch: Option<bool> = "m",
        /// The broker meant, for proxies.
        broker_name: Option<String> = "n",
    }

    /// The answer to all kinds of sending, also with FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT and SLAVE_NOT_AVAILABLE.
    SendMessageResponseHeader {
        /// [`crate::message::offset_msg_id`]; for a batch, one per message, joined by commas.
        msg_id: String = "msgId",
        /// The queue the message went to.
        queue_id: i32 = "queueId",
        /// Its place in the queue; for a batch, that of the first message.
        queue_offset: i64 = "queueOffset",
        /// The id the producer gave the message.
        transaction_id: Option<String> = "transactionId",
        /// For a batch, the ids the producer gave, joined by commas.
        batch_uniq_id: Option<String> = "batchUniqId",
        /// For a delayed message: what to take it back with.
        recall_handle: Option<String> = "recallHandle",
    }

    /// CONSUMER_SEND_MSG_BACK: a consumer gives a message back, to be retried or to become a dead letter.
    ConsumerSendMsgBackRequestHeader {
        /// Physical offset of the message.
        offset: i64 = "offset",
        /// The consumer group.
        group: String = "group",
        /// Below 0: dead letter; 0: by the number of attempts; else the level of delay.
        delay_level: i32 = "delayLevel",
        /// The id the producer gave the message.
        origin_msg_id: Option<String> = "originMsgId",
        /// The topic the consumer reads.
        origin_topic: Option<String> = "originTopic",
        /// Unused remnant of units of deployment.
        unit_mode: Option<bool> = "unitMode",
        /// After how many attempts it is a dead letter.
        max_reconsume_times: Option<i32> = "maxReconsumeTimes",
        /// Ours: the receipt handle of the delivery, to be acknowledged together with the copy. Brokers of Apache ignore it.
        extra_info: Option<String> = "extraInfo",
    }

    /// RECALL_MESSAGE: takes a delayed message back before it is due.
    RecallMessageRequestHeader {
        /// Who sends; the topic, for producers without a group.
        producer_group: Option<String> = "producerGroup",
        /// The topic it was sent to.
        topic: String = "topic",
        /// See [`crate::recall::RecallHandle`].
        recall_handle: String = "recallHandle",
        /// The broker meant, for proxies.
        broker_name: Option<String> = "bname",
    }

    /// The answer to RECALL_MESSAGE.
    RecallMessageResponseHeader {
        /// The id the producer gave the message.
        msg_id: String = "msgId",
    }
}

impl SendMessageRequestHeader {
    /// Reads the long names of SEND_MESSAGE.
    ///
    /// # Errors
    /// A required field is missing or a value cannot be read.
    pub fn decode_v1(ext: &ExtFields) -> Result<Self, HeaderError> {
        Ok(Self {
            producer_group: Field::read("producerGroup", ext)?,
            topic: Field::read("topic", ext)?,
            default_topic: Field::read("defaultTopic", ext)?,
            default_topic_queue_nums: Field::read("defaultTopicQueueNums", ext)?,
            queue_id: Field::read("queueId", ext)?,
            sys_flag: Field::read("sysFlag", ext)?,
            born_timestamp: Field::read("bornTimestamp", ext)?,
            flag: Field::read("flag", ext)?,
            properties: Field::read("properties", ext)?,
            reconsume_times: Field::read("reconsumeTimes", ext)?,
            unit_mode: Field::read("unitMode", ext)?,
            max_reconsume_times: Field::read("maxReconsumeTimes", ext)?,
            batch: Field::read("batch", ext)?,
            broker_name: Field::read("bname", ext)?,
        })
    }

    /// Reads the single letters of SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE.
    ///
    /// # Errors
    /// A required field is missing or a value cannot be read.
    pub fn decode_v2(ext: &ExtFields) -> Result<Self, HeaderError> {
        <Self as Header>::decode(ext)
    }

    /// Sets the long names of SEND_MESSAGE.
    pub fn encode_v1(&self, ext: &mut ExtFields) {
        self.producer_group.write("producerGroup", ext);
        self.topic.write("topic", ext);
        self.default_topic.write("defaultTopic", ext);
        self.default_topic_queue_nums.write("defaultTopicQueueNums", ext);
        self.queue_id.write("queueId", ext);
        self.sys_flag.write("sysFlag", ext);
        self.born_timestamp.write("bornTimestamp", ext);
        self.flag.write("flag", ext);
        self.properties.write("properties", ext);
        self.reconsume_times.write("reconsumeTimes", ext);
        self.unit_mode.write("unitMode", ext);
        self.max_reconsume_times.write("maxReconsumeTimes", ext);
        self.batch.write("batch", ext);
        self.broker_name.write("bname", ext);
    }
}
