//! ChangeInvisibleDuration: the lease ends at another time. Extending, and a push consumer's "give it to me again
//! later", are both this.

use waybill_protocol::{
    grpc::v2::{ChangeInvisibleDurationRequest, ChangeInvisibleDurationResponse, ClientType},
    handle::ReceiptHandle,
    remoting::RetrySchedule,
};

use super::{Room, errors, errors::Problem, metadata::Caller, validate};
use crate::backend::{BackendError, ChangeEntry, LeaseRef};
use crate::batching;
use crate::receipts::{ChangeOutcome, Holder};

pub(super) async fn answer(
    room: &Room,
    caller: &Caller,
    request: ChangeInvisibleDurationRequest,
) -> Result<ChangeInvisibleDurationResponse, Problem> {
    let topic = validate::topic(request.topic.as_ref())?;
    let group = validate::group(request.group.as_ref())?;
    let asked_ms = validate::change_invisible_ms(request.invisible_duration.as_ref(), &room.config.get())?;
    let handle = validate::handle(&request.receipt_handle)?;
    let holder = Holder { client: &caller.client_id, group, topic };
    let kind = room.sessions.profile(holder.client).map(|profile| profile.own.client_type());
    let invisible_ms = match asked_ms {
        0 if !request.suspend() && kind.is_some_and(gives_back) => backoff_ms(room, holder, &handle).await.unwrap_or(0),
        ms => ms,
    };
    let ticket = room.receipts.resolve_for_change(holder, handle, invisible_ms).await;
    let entry = ChangeEntry {
        lease: LeaseRef { group: group.into(), topic: topic.into(), handle: ticket.handle().clone() },
        invisible_ms,
        suspend: request.suspend(),
    };
    let on_behalf = if kind.is_none_or(gives_back) { batching::Caller::Client } else { batching::Caller::Extension };
    let result = room.messages.change_for(vec![(on_behalf, entry)]).await.pop().unwrap_or(Err(BackendError::Timeout));
    // The client has said when the message shall be visible, so nobody else extends the lease from here on.
    ticket.done(match &result {
        Ok(handle) => ChangeOutcome::LetGo(handle.clone()),
        Err(BackendError::InvalidReceiptHandle(_)) => ChangeOutcome::Gone,
        Err(_) => ChangeOutcome::Failed,
    });
    Ok(ChangeInvisibleDurationResponse { status: Some(errors::ok()), receipt_handle: result?.to_string() })
}

/// Whether clients of this kind give a message back when they change its invisible duration. The others say how long they hold it.
fn gives_back(kind: ClientType) -> bool {
    matches!(kind, ClientType::PushConsumer | ClientType::LitePushConsumer)
}

/// How long a message rests that a push consumer gives back for no time at all: as long as its group's policy says. A client that does
/// not know that kind of policy (the published Node client knows no lists) asks for nothing, and would use up all attempts in a moment.
/// Nothing for messages that are not held here.
async fn backoff_ms(room: &Room, holder: Holder<'_>, handle: &ReceiptHandle) -> Option<i64> {
    let earlier = room.receipts.earlier_deliveries(holder, handle)?;
    let config = room.messages.group_config(holder.group, Some(holder.topic)).await.ok()?;
    let failures = u32::try_from(earlier).unwrap_or_default().saturating_add(1);
    Some(RetrySchedule::of(&config).delay_ms(failures))
}
