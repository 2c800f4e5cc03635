//! Requests that change how long messages stay hidden: of one lease, and of many.

use waybill_protocol::{
    handle::ReceiptHandle,
    remoting::{
        BatchChangeInvisibleBody, BatchChangeInvisibleEntry, BatchChangeInvisibleResult,
        BatchChangeInvisibleResultEntry, BatchChangeInvisibleTimeRequestHeader, CHANGED_BY,
        ChangeInvisibleTimeRequestHeader, ChangeInvisibleTimeResponseHeader, ChangedBy, Command, JsonBody,
        codes::{request, response},
    },
};

use super::{
    batches::BatchAnswer,
    error::{BackendError, Subject, from_entry, from_response, unreadable},
    handles::{changed, real_topic},
    service::MessageService,
    types::LeaseRef,
};
use crate::batching::Caller;

/// A lease, its new duration in milliseconds, whether the delivery shall not count, and on whose behalf.
pub(super) type WantedChange<'a> = (&'a LeaseRef, i64, bool, Caller);

impl MessageService {
    pub(super) async fn change_one(
        &self,
        (lease, ms, suspend, caller): WantedChange<'_>,
    ) -> Result<ReceiptHandle, BackendError> {
        let header = ChangeInvisibleTimeRequestHeader {
            consumer_group: lease.group.to_string(),
            topic: real_topic(lease),
            queue_id: lease.handle.queue_id,
            extra_info: lease.handle.to_string(),
            offset: lease.handle.offset,
            invisible_time: ms,
            lite_topic: None,
            suspend: Some(suspend),
        };
        let mut request = Command::request(request::CHANGE_MESSAGE_INVISIBLETIME).with_header(&header);
        if let Some(word) = changed_by(caller).word() {
            request.ext.set(CHANGED_BY, word);
        }
        let answer = self.ask_about(lease, request).await?;
        if answer.code != response::SUCCESS {
            return Err(from_response(&answer, Subject::handle(lease)));
        }
        let header: ChangeInvisibleTimeResponseHeader = answer.header().map_err(unreadable)?;
        changed(&lease.handle, &header)
    }

    /// Changes many leases of one broker, group and real topic.
    pub(super) async fn change_batch(&self, changes: &[WantedChange<'_>]) -> BatchAnswer {
        let Some((first, ..)) = changes.first() else { return BatchAnswer::Each(Vec::new()) };
        let topic = real_topic(first);
        let header =
            BatchChangeInvisibleTimeRequestHeader { consumer_group: first.group.to_string(), topic: topic.clone() };
        let entries = changes.iter().map(|(lease, ms, suspend, caller)| BatchChangeInvisibleEntry {
            consumer_group: lease.group.to_string(),
            topic: topic.clone(),
            queue_id: lease.handle.queue_id,
            extra_info: lease.handle.to_string(),
            offset: lease.handle.offset,
            invisible_time: *ms,
            lite_topic: None,
            suspend: *suspend,
            changed_by: changed_by(*caller).word().map(str::to_owned),
        });
        let body = BatchChangeInvisibleBody { entries: entries.collect() };
        let request = Command::request(request::BATCH_CHANGE_MESSAGE_INVISIBLETIME)
            .with_header(&header)
            .with_body(body.to_json());
        let answer = match self.ask_about(first, request).await {
            Ok(answer) => answer,
            Err(error) => return BatchAnswer::All(error),
        };
        match answer.code {
            response::SUCCESS => {}
            response::REQUEST_CODE_NOT_SUPPORTED => return BatchAnswer::NotSupported,
            // It does not say whether there are too many, or something about the whole offends it.
            response::MESSAGE_ILLEGAL | response::INVALID_PARAMETER => return BatchAnswer::TooLarge,
            _ => return BatchAnswer::All(from_response(&answer, Subject::handle(first))),
        }
        let results = match BatchChangeInvisibleResult::from_json(&answer.body) {
            Ok(results) => results.entries,
            Err(error) => return BatchAnswer::All(unreadable(error)),
        };
        let results = results.iter().map(Some).chain(std::iter::repeat(None));
        BatchAnswer::Each(changes.iter().zip(results).map(|((lease, ..), result)| result_of(lease, result)).collect())
    }
}

/// What our broker is told, for those who ask it later how a lease came to its end.
fn changed_by(caller: Caller) -> ChangedBy {
    match caller {
        Caller::Client => ChangedBy::Client,
        Caller::Extension => ChangedBy::Extension,
        Caller::Renewal => ChangedBy::Renewal,
        Caller::Disconnect | Caller::Undelivered | Caller::Filter => ChangedBy::Return,
    }
}

fn result_of(
    lease: &LeaseRef,
    result: Option<&BatchChangeInvisibleResultEntry>,
) -> Result<ReceiptHandle, BackendError> {
    let result = result.ok_or_else(BackendError::unanswered_entry)?;
    if result.code != response::SUCCESS {
        return Err(from_entry(result.code, Subject::handle(lease)));
    }
    let answer = ChangeInvisibleTimeResponseHeader {
        pop_time: result.pop_time,
        invisible_time: result.invisible_time,
        revive_qid: result.revive_qid,
    };
    changed(&lease.handle, &answer)
}
