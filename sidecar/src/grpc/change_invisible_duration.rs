//! ChangeInvisibleDuration: the lease ends at another time. Extending, and a push consumer's "give it to me again
//! later", are both this.

use waybill_protocol::grpc::v2::{ChangeInvisibleDurationRequest, ChangeInvisibleDurationResponse};

use super::{Room, errors, errors::Problem, metadata::Caller, validate};
use crate::backend::{BackendError, ChangeEntry, LeaseRef};
use crate::receipts::{ChangeOutcome, Holder};

pub(super) async fn answer(
    room: &Room,
    caller: &Caller,
    request: ChangeInvisibleDurationRequest,
) -> Result<ChangeInvisibleDurationResponse, Problem> {
    let topic = validate::topic(request.topic.as_ref())?;
    let group = validate::group(request.group.as_ref())?;
    let invisible_ms = validate::change_invisible_ms(request.invisible_duration.as_ref(), &room.config.get())?;
    let handle = validate::handle(&request.receipt_handle)?;
    let holder = Holder { client: &caller.client_id, group, topic };
    let ticket = room.receipts.resolve_for_change(holder, handle, invisible_ms).await;
    let entry = ChangeEntry {
        lease: LeaseRef { group: group.into(), topic: topic.into(), handle: ticket.handle().clone() },
        invisible_ms,
        suspend: request.suspend(),
    };
    let result = room.messages.change_invisible(vec![entry]).await.pop().unwrap_or(Err(BackendError::Timeout));
    // The client has said when the message shall be visible, so nobody else extends the lease from here on.
    ticket.done(match &result {
        Ok(handle) => ChangeOutcome::LetGo(handle.clone()),
        Err(BackendError::InvalidReceiptHandle(_)) => ChangeOutcome::Gone,
        Err(_) => ChangeOutcome::Failed,
    });
    Ok(ChangeInvisibleDurationResponse { status: Some(errors::ok()), receipt_handle: result?.to_string() })
}
