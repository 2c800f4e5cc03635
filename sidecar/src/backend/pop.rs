//! Reading the answer to a pop: messages, and the handle of each.

use std::collections::HashMap;

use waybill_protocol::{
    handle::{ReceiptHandle, TopicType},
    message::{StoredMessage, offset_msg_id, properties},
    remoting::{
        Command, PopMessageResponseHeader,
        codes::response,
        pop_info::{PopInfoError, decode_msg_offsets, decode_order_counts, decode_start_offsets},
    },
};

use super::{
    error::{BackendError, unreadable},
    metrics::BackendMetrics,
    types::{PopResult, PopStatus, PoppedMessage},
};

/// A queue of the topic or of one of its retry topics.
type Queue = (TopicType, i32);

/// What the header of an answer says of its messages.
struct Deliveries {
    pop_time: i64,
    invisible_time: i64,
    revive_qid: i32,
    /// Where each queue's pop began. Empty: at the first message of the queue in the answer.
    starts: HashMap<Queue, i64>,
    /// The offset to put into the handle, for each message of a queue in ascending order.
    offsets: HashMap<Queue, Vec<i64>>,
    /// Earlier deliveries, of single messages …
    counts: HashMap<(Queue, i64), i32>,
    /// … and of all others of a queue.
    queue_counts: HashMap<Queue, i32>,
}

/// Reads an answer with one of the codes that are no error. `None`: it is an error.
pub(super) fn read_answer(
    answer: Command,
    broker: &str,
    topic: &str,
    metrics: &BackendMetrics,
) -> Option<Result<PopResult, BackendError>> {
    let nothing = |status| Some(Ok(PopResult { status, messages: Vec::new() }));
    match answer.code {
        response::SUCCESS => Some(read_messages(answer, broker, topic, metrics)),
        response::POLLING_FULL => nothing(PopStatus::PollingFull),
        response::POLLING_TIMEOUT | response::PULL_NOT_FOUND | response::PULL_RETRY_IMMEDIATELY => {
            nothing(PopStatus::NoNewMessage)
        }
        _ => None,
    }
}

fn read_messages(
    answer: Command,
    broker: &str,
    topic: &str,
    metrics: &BackendMetrics,
) -> Result<PopResult, BackendError> {
    if answer.body.is_empty() {
        return Ok(PopResult { status: PopStatus::NoNewMessage, messages: Vec::new() });
    }
    let header: PopMessageResponseHeader = answer.header().map_err(unreadable)?;
    let mut deliveries = Deliveries::read(&header).map_err(unreadable)?;
    let stored = StoredMessage::decode_all(answer.body).map_err(unreadable)?;
    let places = places(&stored, &mut deliveries.starts);
    let mut messages = Vec::with_capacity(stored.len());
    for message in stored {
        let (queue_id, offset) = (message.queue_id, message.queue_offset);
        match deliveries.deliver(message, &places, broker, topic) {
            Some(message) => messages.push(message),
            None => {
                metrics.lost_handle();
                tracing::warn!(
                    broker,
                    topic,
                    queue_id,
                    offset,
                    "a broker gave out a message without saying what its handle is"
                );
            }
        }
    }
    let status = if messages.is_empty() { PopStatus::NoNewMessage } else { PopStatus::Found };
    Ok(PopResult { status, messages })
}

fn queue_of(message: &StoredMessage) -> Queue {
    (TopicType::of(&message.topic), message.queue_id)
}

/// The offsets of each queue's messages, ascending. Fills in the starts if the answer had none.
fn places(stored: &[StoredMessage], starts: &mut HashMap<Queue, i64>) -> HashMap<Queue, Vec<i64>> {
    let without_starts = starts.is_empty();
    let mut places: HashMap<Queue, Vec<i64>> = HashMap::new();
    for message in stored {
        let queue = queue_of(message);
        if without_starts {
            starts.entry(queue).or_insert(message.queue_offset);
        }
        places.entry(queue).or_default().push(message.queue_offset);
    }
    for offsets in places.values_mut() {
        offsets.sort_unstable();
    }
    places
}

impl Deliveries {
    fn read(header: &PopMessageResponseHeader) -> Result<Self, PopInfoError> {
        let text = |list: &Option<String>| list.clone().unwrap_or_default();
        let mut counts = HashMap::new();
        let mut queue_counts = HashMap::new();
        for entry in decode_order_counts(&text(&header.order_count_info))? {
            let queue = (entry.kind, entry.queue_id);
            match entry.offset {
                Some(offset) => counts.insert((queue, offset), entry.count),
                None => queue_counts.insert(queue, entry.count),
            };
        }
        Ok(Self {
            pop_time: header.pop_time,
            invisible_time: header.invisible_time,
            revive_qid: header.revive_qid,
            starts: decode_start_offsets(&text(&header.start_offset_info))?
                .into_iter()
                .map(|start| ((start.kind, start.queue_id), start.offset))
                .collect(),
            offsets: decode_msg_offsets(&text(&header.msg_offset_info))?
                .into_iter()
                .map(|queue| ((queue.kind, queue.queue_id), queue.offsets))
                .collect(),
            counts,
            queue_counts,
        })
    }

    /// The message as clients see it. `None` if nothing says what its handle is.
    fn deliver(
        &self,
        mut message: StoredMessage,
        places: &HashMap<Queue, Vec<i64>>,
        broker: &str,
        topic: &str,
    ) -> Option<PoppedMessage> {
        let mut handle = match properties::get(&message.properties, properties::POP_CK) {
            // The broker says it itself, as Apache does for retried messages, whose topic it has put right already.
            Some(handle) => handle.parse().ok()?,
            None => self.handle(&message, places, broker)?,
        };
        handle.commit_log_offset = Some(message.physical_offset);
        if let Some(count) = self.earlier_deliveries(queue_of(&message), handle.offset) {
            message.reconsume_times = count;
        }
        let message_id = match properties::get(&message.properties, properties::UNIQ_KEY) {
            Some(id) if !id.is_empty() => id.to_owned(),
            _ => offset_msg_id(message.store_host, message.physical_offset),
        };
        message.topic = topic.to_owned();
        Some(PoppedMessage { message, handle, message_id })
    }

    /// The handle by the place of the message among those of its queue: for a queue that was moved between brokers the
    /// message's own offset is not the one that counts.
    fn handle(
        &self,
        message: &StoredMessage,
        places: &HashMap<Queue, Vec<i64>>,
        broker: &str,
    ) -> Option<ReceiptHandle> {
        let queue = queue_of(message);
        let place = places.get(&queue)?.binary_search(&message.queue_offset).ok()?;
        Some(ReceiptHandle {
            start_offset: *self.starts.get(&queue)?,
            pop_time: self.pop_time,
            invisible_time: self.invisible_time,
            revive_queue_id: self.revive_qid,
            topic_type: queue.0,
            broker_name: broker.to_owned(),
            queue_id: message.queue_id,
            offset: *self.offsets.get(&queue)?.get(place)?,
            commit_log_offset: None,
        })
    }

    /// FIFO groups are redelivered from the same queue, so the message itself does not know its count.
    fn earlier_deliveries(&self, queue: Queue, offset: i64) -> Option<i32> {
        self.counts.get(&(queue, offset)).or_else(|| self.queue_counts.get(&queue)).copied().filter(|count| *count > 0)
    }
}
