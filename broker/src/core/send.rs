//! Taking messages.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use waybill_protocol::message::{StoredMessage, properties, sys_flag};
use waybill_protocol::remoting::TopicConfig;

use super::{Core, filter::tag_hash, queues::TopicQueues};
use crate::catalog::TopicInfo;
use crate::error::BrokerError;
use crate::limits;
use crate::store::{Admit, Batch, EntryMeta, Keyspace, QueueKey};

/// One message to store.
#[derive(Debug, Clone)]
pub struct OutgoingMessage {
    /// The sender's flag, carried as it is.
    pub flag: i32,
    /// The body, as sent (possibly compressed).
    pub body: Bytes,
    /// Properties in the raw form of the wire.
    pub properties: String,
}

/// Messages for one queue of one topic. They are stored together or not at all.
#[derive(Debug, Clone)]
pub struct Send {
    /// The topic.
    pub topic: String,
    /// The queue, or a negative number for any.
    pub queue_id: i32,
    /// Queues of the topic if it is created by this send, at most the broker's default; 0 = the default.
    pub default_queues: i32,
    /// Bits of facts "sysFlag".
    pub sys_flag: i32,
    /// When the sender made the message, milliseconds since 1970.
    pub born_timestamp: i64,
    /// Where the sender is.
    pub born_host: SocketAddr,
    /// Earlier attempts to consume it.
    pub reconsume_times: i32,
    /// One or more messages.
    pub messages: Vec<OutgoingMessage>,
}

/// Where the messages are now.
#[derive(Debug, Clone)]
pub struct Sent {
    /// The queue they are in.
    pub queue_id: u32,
    /// Offset of the first; the others follow without a gap. Of a message that is in no queue yet, its position.
    pub first_offset: u64,
    /// When the first is due, milliseconds since 1970, if it is delayed.
    pub due_ms: Option<u64>,
    /// Position in the log of each.
    pub positions: Vec<u64>,
}

/// Where messages go.
pub(super) struct Target {
    pub(super) topic: Arc<TopicInfo>,
    pub(super) queues: Arc<TopicQueues>,
    pub(super) queue: u32,
}

/// A message as the store keeps it. Offset, position and attempts are filled in when it is delivered.
pub(super) struct Encoded {
    pub(super) meta: EntryMeta,
    pub(super) payload: BytesMut,
}

impl Core {
    /// Stores messages; they are there when this returns.
    ///
    /// # Errors
    /// A missing or unwritable topic, an illegal message, a full disk, a store that cannot take writes.
    pub async fn send(&self, mut send: Send) -> Result<Sent, BrokerError> {
        forget_delivery(&mut send.messages);
        let delays = self.delays_of(&mut send.messages)?;
        let Target { topic, queues, queue } = self.target(&send).await?;
        let store_time = self.now();
        let mut encoded = Vec::with_capacity(send.messages.len());
        for message in &send.messages {
            encoded.push(self.encode_message(&send, queue, message, store_time)?);
        }
        let bytes: usize = encoded.iter().map(|message| message.payload.len()).sum();
        self.check_size(bytes)?;
        let key = QueueKey { topic: topic.id, queue };
        let counter = queues.next_offset(queue, &self.store);
        let (first_offset, commit) = {
            let mut next = counter.lock();
            // The topic may be another one since the first look. A queue is taken away only under this lock.
            let now = self.topic(&send.topic)?;
            if now.id != topic.id {
                return Err(BrokerError::TopicNotFound(send.topic));
            }
            check_queue(&now, queue)?;
            let first = *next;
            let mut batch = Batch::new();
            for (message, due_ms) in encoded.iter().zip(&delays) {
                match due_ms {
                    Some(due_ms) => batch.hold(Keyspace::Timer, *due_ms, key, message.meta, &message.payload),
                    None => {
                        batch.append(key, *next, message.meta, &message.payload);
                        *next += 1;
                    }
                }
            }
            ((*next > first).then_some(first), self.store.submit(batch))
        };
        let committed = commit.await?;
        self.held(&topic, delays.iter().copied().flatten());
        if delays.iter().any(Option::is_some) {
            // Who deletes the topic if it is empty sees what is delayed only when it is on disk.
            let _no_deletion = counter.lock();
            self.still_there(&topic, &send.topic)?;
        }
        self.metrics.messages_in(&send.topic, encoded.len() as u64, bytes as u64);
        if first_offset.is_some() {
            queues.arrived(queue);
        }
        let first_offset = first_offset.or(committed.positions.first().copied()).unwrap_or(0);
        let due_ms = delays.first().copied().flatten();
        Ok(Sent { queue_id: queue, first_offset, due_ms, positions: committed.positions })
    }

    /// Whether the topic was not deleted meanwhile.
    pub(super) fn still_there(&self, topic: &TopicInfo, name: &str) -> Result<(), BrokerError> {
        let now = self.topic(name)?;
        if now.id == topic.id { Ok(()) } else { Err(BrokerError::TopicNotFound(name.to_owned())) }
    }

    /// Whether these messages may be sent, and where they go. A topic may be created for them.
    pub(super) async fn target(&self, send: &Send) -> Result<Target, BrokerError> {
        let body_max = self.may_send()?;
        if send.messages.is_empty() || send.messages.len() > limits::SEND_BATCH_MAX {
            return Err(BrokerError::Illegal(format!(
                "{} messages in one send, allowed are 1 to {}",
                send.messages.len(),
                limits::SEND_BATCH_MAX
            )));
        }
        for message in &send.messages {
            check_message(message, body_max)?;
        }
        self.store.admit(Admit::Append)?;
        let topic = self.topic_for_send(&send.topic, send.default_queues).await?;
        if topic.config.perm & 2 == 0 {
            return Err(BrokerError::NoPermission(format!("the topic[{}] sending message is forbidden", send.topic)));
        }
        let write_queues = u32::try_from(topic.config.write_queue_nums).unwrap_or(0);
        let queues = self.topic_queues(topic.id);
        let queue = match u32::try_from(send.queue_id) {
            Err(_) => queues.take_turn(write_queues),
            Ok(queue) => queue,
        };
        check_queue(&topic, queue)?;
        Ok(Target { topic, queues, queue })
    }

    /// Whether the broker takes messages at all. Answers how long a body may be, bytes.
    fn may_send(&self) -> Result<usize, BrokerError> {
        let config = self.config.load();
        if config.permission() & 2 != 0 {
            return Ok(config.max_message_size);
        }
        Err(BrokerError::NoPermission(format!("the broker[{}] sending message is forbidden", config.broker_name)))
    }

    /// Whether messages of so many bytes fit into one batch. Asked before anything is changed: the store would refuse it too late.
    fn check_size(&self, bytes: usize) -> Result<(), BrokerError> {
        let most = self.payload_bytes_max();
        if bytes <= most {
            return Ok(());
        }
        Err(BrokerError::Illegal(format!(
            "{bytes} bytes in one send, at most {most} go into a file of the log (mappedFileSizeCommitLog)"
        )))
    }

    pub(super) fn encode_message(
        &self,
        send: &Send,
        queue: u32,
        message: &OutgoingMessage,
        store_time: i64,
    ) -> Result<Encoded, BrokerError> {
        let stored = StoredMessage {
            topic: send.topic.clone(),
            queue_id: queue.cast_signed(),
            flag: message.flag,
            queue_offset: 0,
            physical_offset: 0,
            // Only a redrive says so.
            sys_flag: send.sys_flag & !sys_flag::FOR_ONE_GROUP,
            born_timestamp: send.born_timestamp,
            born_host: send.born_host,
            store_timestamp: store_time,
            store_host: self.store_host,
            reconsume_times: send.reconsume_times.max(0),
            prepared_transaction_offset: 0,
            body: message.body.clone(),
            properties: message.properties.clone(),
        };
        encode(&stored)
    }
}

/// A message that was received and is sent on says how it was delivered: whoever gets it next would take that for its own handle.
pub(super) fn forget_delivery(messages: &mut [OutgoingMessage]) {
    for message in messages {
        // Nearly none has it, and to look for the word is quicker than to tell all properties apart.
        if message.properties.contains(properties::POP_CK) {
            properties::remove(&mut message.properties, properties::POP_CK);
        }
    }
}

/// Whether the topic has the queue.
pub(super) fn check_queue(topic: &TopicInfo, queue: u32) -> Result<(), BrokerError> {
    let TopicConfig { topic_name, read_queue_nums, write_queue_nums, .. } = &topic.config;
    if i64::from(queue) < i64::from(*read_queue_nums.max(write_queue_nums)) {
        return Ok(());
    }
    Err(BrokerError::InvalidParameter(format!(
        "request queueId[{queue}] is illegal, {topic_name} has {write_queue_nums} write queues"
    )))
}

/// Encodes a message for the store.
pub(super) fn encode(message: &StoredMessage) -> Result<Encoded, BrokerError> {
    let mut payload =
        BytesMut::with_capacity(message.body.len() + message.properties.len() + message.topic.len() + 128);
    message.encode(&mut payload).map_err(|error| BrokerError::Illegal(error.to_string()))?;
    let tag = properties::get(&message.properties, properties::TAGS);
    Ok(Encoded { meta: EntryMeta { tag_hash: tag_hash(tag), store_time_ms: message.store_timestamp }, payload })
}

fn check_message(message: &OutgoingMessage, body_max: usize) -> Result<(), BrokerError> {
    if message.body.is_empty() {
        return Err(BrokerError::Illegal("the message body is empty".into()));
    }
    if message.body.len() > body_max {
        let size = message.body.len();
        return Err(BrokerError::Illegal(format!("message body size {size} over max {body_max}")));
    }
    if message.properties.len() > limits::PROPERTIES_BYTES_MAX {
        return Err(BrokerError::Illegal(format!(
            "message properties size {} over max {}",
            message.properties.len(),
            limits::PROPERTIES_BYTES_MAX
        )));
    }
    Ok(())
}
