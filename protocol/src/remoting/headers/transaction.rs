use crate::remoting::header::headers;

headers! {
    /// END_TRANSACTION: what has been decided about the first half of a transaction.
    EndTransactionRequestHeader {
        /// The topic of the message.
        topic: Option<String> = "topic",
        /// Who sent the first half.
        producer_group: String = "producerGroup",
        /// The place of the first half among all first halves, as the answer to its sending told it (`queueOffset`).
        tran_state_table_offset: i64 = "tranStateTableOffset",
        /// Its place in the log, as its id tells it ([`crate::message::offset_of_msg_id`]).
        commit_log_offset: i64 = "commitLogOffset",
        /// [`crate::message::sys_flag::TRANSACTION_COMMIT`], [`crate::message::sys_flag::TRANSACTION_ROLLBACK`], or 0: not known yet.
        commit_or_rollback: i32 = "commitOrRollback",
        /// Whether the broker had asked.
        from_transaction_check: Option<bool> = "fromTransactionCheck",
        /// The id the producer gave the message.
        msg_id: String = "msgId",
        /// The same.
        transaction_id: Option<String> = "transactionId",
        /// The broker meant, for proxies.
        broker_name: Option<String> = "bname",
    }

    /// CHECK_TRANSACTION_STATE: a broker asks a producer, one way, what became of a transaction. The body is the first half.
    CheckTransactionStateRequestHeader {
        /// A name of the broker's own.
        topic: Option<String> = "topic",
        /// To be said in [`EndTransactionRequestHeader`].
        tran_state_table_offset: i64 = "tranStateTableOffset",
        /// To be said in [`EndTransactionRequestHeader`].
        commit_log_offset: i64 = "commitLogOffset",
        /// The id the producer gave the message.
        msg_id: Option<String> = "msgId",
        /// The same.
        transaction_id: Option<String> = "transactionId",
        /// [`crate::message::offset_msg_id`] of the first half.
        offset_msg_id: Option<String> = "offsetMsgId",
        /// The broker that asks.
        broker_name: Option<String> = "bname",
    }
}
