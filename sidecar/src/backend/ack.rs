//! Requests that finish leases: one, and many.

use waybill_protocol::remoting::{
    AckMessageRequestHeader, BatchAck, BatchAckBody, BitSet, Command, EntryCodes, JsonBody,
    codes::{request, response},
};

use super::{
    batches::BatchAnswer,
    error::{BackendError, Subject, from_entry, from_response},
    handles::real_topic,
    service::MessageService,
    types::LeaseRef,
};
use crate::limits;

/// Asks a Waybill broker for one result per entry.
const ENTRY_RESULTS: &str = "entryResults";

impl MessageService {
    pub(super) async fn ack_one(&self, lease: &LeaseRef) -> Result<(), BackendError> {
        self.refuse_expired(lease)?;
        let topic = real_topic(lease);
        let header = AckMessageRequestHeader {
            consumer_group: lease.group.to_string(),
            queue_id: lease.handle.queue_id,
            extra_info: lease.handle.to_string(),
            offset: lease.handle.offset,
            topic,
        };
        let request = Command::request(request::ACK_MESSAGE).with_header(&header);
        let answer = self.ask_about(lease, request).await?;
        match answer.code {
            // The first word from this broker: now it is known whether its OK means something.
            response::SUCCESS => self.refuse_expired(lease),
            _ => Err(from_response(&answer, Subject::handle(lease))),
        }
    }

    /// Finishes many leases of one broker, group and real topic. To send them again is harmless.
    pub(super) async fn ack_batch(&self, leases: &[&LeaseRef]) -> BatchAnswer {
        let Some(first) = leases.first() else { return BatchAnswer::Each(Vec::new()) };
        let Some(acks) = leases.iter().map(|lease| ack_entry(lease)).collect() else { return BatchAnswer::TooLarge };
        let body = BatchAckBody { broker_name: first.handle.broker_name.clone(), acks };
        let mut request = Command::request(request::BATCH_ACK_MESSAGE).with_body(body.to_json());
        request.ext.set(ENTRY_RESULTS, "true");
        let answer = match self.ask_about(first, request).await {
            Ok(answer) => answer,
            Err(error) => return BatchAnswer::All(error),
        };
        let codes = EntryCodes::from_json(&answer.body).ok().filter(|codes| codes.entries.len() == leases.len());
        match (answer.code, codes) {
            (response::SUCCESS, Some(codes)) => {
                let with_codes = leases.iter().zip(codes.entries);
                BatchAnswer::Each(with_codes.map(|(lease, entry)| ended(entry.code, lease)).collect())
            }
            // A success that does not say what became of each is worth nothing.
            (response::SUCCESS | response::REQUEST_CODE_NOT_SUPPORTED, _) => BatchAnswer::NotSupported,
            (response::MESSAGE_ILLEGAL | response::INVALID_PARAMETER, _) => BatchAnswer::TooLarge,
            _ => BatchAnswer::All(from_response(&answer, Subject::handle(first))),
        }
    }

    /// Asks the broker that holds the lease. A broker that no route names makes the handle a bad one.
    pub(super) async fn ask_about(&self, lease: &LeaseRef, request: Command) -> Result<Command, BackendError> {
        match self.ask(&lease.handle.broker_name, &lease.topic, request, self.request_timeout()).await {
            Ok(answer) => Ok(answer),
            Err(unanswered) => Err(match unanswered.error {
                BackendError::UnknownBroker(name) => {
                    BackendError::InvalidReceiptHandle(format!("no broker is named {name}"))
                }
                error => error,
            }),
        }
    }
}

/// How far the message is from the start of its pop, if a bit of a batch of acks can tell it.
pub(super) fn bit_of(lease: &LeaseRef) -> Option<usize> {
    let distance = lease.handle.offset.checked_sub(lease.handle.start_offset)?;
    usize::try_from(distance).ok().filter(|_| distance < limits::BATCH_ACK_SPAN)
}

/// One ack per message, so that the results are in the order of the entries.
fn ack_entry(lease: &LeaseRef) -> Option<BatchAck> {
    let handle = &lease.handle;
    let mut bit_set = BitSet::new();
    bit_set.set(bit_of(lease)?).ok()?;
    Some(BatchAck {
        consumer_group: lease.group.to_string(),
        topic: lease.topic.to_string(),
        retry: handle.topic_type,
        start_offset: handle.start_offset,
        queue_id: handle.queue_id,
        revive_queue_id: handle.revive_queue_id,
        pop_time: handle.pop_time,
        invisible_time: handle.invisible_time,
        bit_set,
    })
}

fn ended(code: i32, lease: &LeaseRef) -> Result<waybill_protocol::handle::ReceiptHandle, BackendError> {
    match code {
        response::SUCCESS => Ok(lease.handle.clone()),
        code => Err(from_entry(code, Subject::handle(lease))),
    }
}
