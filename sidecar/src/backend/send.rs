//! Storing messages.

use std::collections::HashSet;

use bytes::Bytes;
use waybill_protocol::{
    message::{BatchItem, encode_batch, java_hash},
    remoting::{
        Command, SendMessageRequestHeader, SendMessageResponseHeader,
        codes::{request, response},
    },
};

use super::{
    consistent_hash::bucket_of,
    error::{BackendError, Subject, from_response, unreadable},
    service::{MessageService, Unanswered},
    types::{OutgoingMessage, SendRequest, SendResult, SendStatus},
};
use crate::route::{TopicRoute, WriteQueue};

/// The template of topics that are created by being sent to, and how many queues such a topic asks for: more than any
/// broker gives. Brokers take the lesser of this and their own `defaultTopicQueueNums`, so a topic has the same number of
/// queues whether it came into being by its first send or by its first route. (Apache's proxy asks for 4.)
const TEMPLATE: (&str, i32) = ("TBW102", 1_024);

impl MessageService {
    /// Stores messages in one queue: of their message group, or else the queues take turns. A broker that cannot be
    /// reached, or takes no messages, is passed over. A refusal that may be due to an old route leads to one more try, if there is a newer one.
    ///
    /// # Errors
    /// `TopicNotFound`, `NoPermission` (nothing to write to), `Illegal` (the broker refuses the content), and the
    /// temporary ones. After `Timeout` and `Unavailable` the messages may have been stored.
    pub async fn send(&self, request: SendRequest) -> Result<SendResult, BackendError> {
        let command = command(&request)?;
        let route = self.route(&request.topic).await?;
        let refusal = match self.send_along(&route, &request, command.clone()).await {
            Err(refusal) => refusal,
            sent => return sent,
        };
        match self.newer_route(&request.topic, &route, &refusal).await? {
            Some(newer) => self.send_along(&newer, &request, command).await,
            None => Err(refusal),
        }
    }

    async fn send_along(
        &self,
        route: &TopicRoute,
        request: &SendRequest,
        command: Command,
    ) -> Result<SendResult, BackendError> {
        let queues = route.write_queues();
        if queues.is_empty() {
            return Err(BackendError::NoPermission(format!("topic {} has no writable queue", request.topic)));
        }
        let group = request.message_group.as_deref();
        let first = match group {
            Some(group) => bucket_of(java_hash(group), queues.len()),
            None => route.next_send(),
        };
        let mut passed_over: HashSet<&str> = HashSet::new();
        let mut failure = BackendError::Unavailable("no broker".to_owned());
        for step in 0..queues.len() {
            let Some(queue) = queues.get(first.wrapping_add(step) % queues.len()) else { break };
            if passed_over.contains(queue.broker_name.as_str()) {
                continue;
            }
            match self.send_to(queue, request, command.clone()).await {
                // Another queue would break the order of the group.
                Err(unanswered) if unanswered.not_sent && group.is_none() => {
                    passed_over.insert(&queue.broker_name);
                    failure = unanswered.error;
                }
                // It takes no more messages since a moment ago, which the route does not say yet.
                Ok(Err(refusal @ BackendError::NoPermission(_))) if group.is_none() => {
                    passed_over.insert(&queue.broker_name);
                    failure = refusal;
                }
                answer => return answer?,
            }
        }
        Err(failure)
    }

    async fn send_to(
        &self,
        queue: &WriteQueue,
        request: &SendRequest,
        mut command: Command,
    ) -> Result<Result<SendResult, BackendError>, Unanswered> {
        command.ext.set_number(QUEUE_ID, queue.queue_id);
        let answer = self.ask(&queue.broker_name, &request.topic, command, request.timeout).await?;
        Ok(read_answer(&answer, queue, request))
    }
}

/// SEND_MESSAGE_V2's name for the queue.
const QUEUE_ID: &str = "e";

/// The request, but for the queue.
fn command(request: &SendRequest) -> Result<Command, BackendError> {
    let (code, properties, body) = match request.messages.as_slice() {
        [] => return Err(BackendError::Illegal("no message".to_owned())),
        [message] => (request::SEND_MESSAGE_V2, message.properties.clone(), message.body.clone()),
        messages => (request::SEND_BATCH_MESSAGE, String::new(), batch_body(messages)?),
    };
    let header = SendMessageRequestHeader {
        // As in Apache's proxy: producers of the new protocol have no group, so the topic stands for it.
        producer_group: request.topic.clone(),
        topic: request.topic.clone(),
        default_topic: TEMPLATE.0.to_owned(),
        default_topic_queue_nums: TEMPLATE.1,
        queue_id: 0,
        sys_flag: request.sys_flag,
        born_timestamp: request.born_timestamp,
        flag: 0,
        properties: Some(properties),
        reconsume_times: Some(0),
        unit_mode: Some(false),
        max_reconsume_times: None,
        batch: Some(code == request::SEND_BATCH_MESSAGE),
        broker_name: None,
    };
    Ok(Command::request(code).with_header(&header).with_body(body))
}

fn batch_body(messages: &[OutgoingMessage]) -> Result<Bytes, BackendError> {
    let items: Vec<BatchItem> = messages
        .iter()
        .map(|message| BatchItem { flag: 0, body: message.body.clone(), properties: message.properties.clone() })
        .collect();
    encode_batch(&items).map_err(|error| BackendError::Illegal(error.to_string()))
}

fn read_answer(answer: &Command, queue: &WriteQueue, request: &SendRequest) -> Result<SendResult, BackendError> {
    let status = match answer.code {
        response::SUCCESS => SendStatus::Ok,
        response::FLUSH_DISK_TIMEOUT => SendStatus::FlushDiskTimeout,
        response::FLUSH_SLAVE_TIMEOUT => SendStatus::FlushSlaveTimeout,
        response::SLAVE_NOT_AVAILABLE => SendStatus::SlaveNotAvailable,
        _ => return Err(from_response(answer, Subject { topic: &request.topic, group: "", by_handle: false })),
    };
    let header: SendMessageResponseHeader = answer.header().map_err(unreadable)?;
    Ok(SendResult {
        status,
        broker_name: queue.broker_name.clone(),
        queue_id: header.queue_id,
        queue_offset: header.queue_offset,
        offset_msg_ids: header.msg_id.split(',').map(str::to_owned).collect(),
        transaction_id: header.transaction_id,
        recall_handle: header.recall_handle,
    })
}
