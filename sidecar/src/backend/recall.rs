//! Taking delayed messages back.

use std::time::Duration;

use waybill_protocol::{
    recall::RecallHandle,
    remoting::{
        Command, RecallMessageRequestHeader, RecallMessageResponseHeader,
        codes::{request, response},
    },
};

use super::{
    error::{BackendError, Subject, from_response, unreadable},
    service::{MessageService, Unanswered},
};

impl MessageService {
    /// Takes a delayed message back and answers its id. `text` is `handle` as the broker gave it.
    ///
    /// # Errors
    /// `TooLate`, `MessageNotFound` (nothing waits under this handle), `UnknownBroker`, `NoPermission` (a broker of Apache that was not
    /// told to recall), and the temporary ones.
    pub async fn recall(&self, handle: &RecallHandle, text: &str, timeout: Duration) -> Result<String, BackendError> {
        let header = RecallMessageRequestHeader {
            producer_group: Some(handle.topic.clone()),
            topic: handle.topic.clone(),
            recall_handle: text.to_owned(),
            broker_name: Some(handle.broker_name.clone()),
        };
        let command = Command::request(request::RECALL_MESSAGE).with_header(&header);
        let answer = self
            .ask(&handle.broker_name, &handle.topic, command, timeout)
            .await
            .map_err(|Unanswered { error, .. }| error)?;
        let remark = || answer.remark.clone().unwrap_or_default();
        match answer.code {
            response::SUCCESS => {
                let header: RecallMessageResponseHeader = answer.header().map_err(unreadable)?;
                Ok(header.msg_id)
            }
            response::ILLEGAL_OPERATION => Err(BackendError::TooLate(remark())),
            response::QUERY_NOT_FOUND => Err(BackendError::MessageNotFound(remark())),
            _ => Err(from_response(&answer, Subject::topic(&handle.topic))),
        }
    }
}
