//! Dead letters.

use waybill_protocol::remoting::{
    Command, ConsumerSendMsgBackRequestHeader,
    codes::{request, response},
};

use super::{
    error::{BackendError, Subject, from_response},
    handles::real_topic,
    service::MessageService,
    types::ForwardRequest,
};

/// The level of delay that stands for "never again".
const TO_DEAD_LETTERS: i32 = -1;

impl MessageService {
    /// Moves a message to the dead-letter topic of its group and finishes its lease.
    ///
    /// A Waybill broker does both at once; elsewhere the lease is finished afterwards, and if that fails the message
    /// may come again.
    ///
    /// # Errors
    /// `InvalidReceiptHandle` if the handle does not say where the message is, or names no living delivery.
    pub async fn forward_to_dlq(&self, request: ForwardRequest) -> Result<(), BackendError> {
        let ForwardRequest { mut lease, message_id, timeout } = request;
        self.inner.superseded.renew(&mut lease);
        self.refuse_expired(&lease)?;
        let Some(offset) = lease.handle.commit_log_offset.filter(|offset| *offset >= 0) else {
            return Err(BackendError::InvalidReceiptHandle("it does not say where the message is stored".to_owned()));
        };
        let header = ConsumerSendMsgBackRequestHeader {
            offset,
            group: lease.group.to_string(),
            delay_level: TO_DEAD_LETTERS,
            origin_msg_id: Some(message_id),
            origin_topic: Some(real_topic(&lease)),
            unit_mode: Some(false),
            max_reconsume_times: Some(0),
            extra_info: Some(lease.handle.to_string()),
        };
        let request = Command::request(request::CONSUMER_SEND_MSG_BACK).with_header(&header);
        let answer = match self
            .ask(&lease.handle.broker_name, &lease.topic, request, timeout)
            .await
            .map_err(|unanswered| unanswered.error)
        {
            Err(BackendError::UnknownBroker(name)) => {
                return Err(BackendError::InvalidReceiptHandle(format!("no broker is named {name}")));
            }
            answer => answer?,
        };
        if answer.code != response::SUCCESS {
            return Err(from_response(&answer, Subject::handle(&lease)));
        }
        self.inner.superseded.finished(&lease);
        if let Err(error) = self.ack_one(&lease).await {
            tracing::debug!(%error, group = %lease.group, "the lease of a dead letter was already finished, or could not be");
        }
        Ok(())
    }
}
