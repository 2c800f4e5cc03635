//! AckMessage: deliveries ended with success. Each entry has its own result, in the order of the request.
//!
//! The handle alone is enough: no settings are needed, and whether a delivery is still alive is for the broker to say,
//! because a handle stays valid when its lease is extended.

use std::sync::Arc;

use futures::future::join_all;
use waybill_protocol::grpc::v2::{AckMessageRequest, AckMessageResponse, AckMessageResultEntry, Status};

use super::{Room, errors, errors::Problem, metadata::Caller, validate};
use crate::backend::{BackendError, LeaseRef};
use crate::limits;
use crate::receipts::{AckOutcome, Holder};

pub(super) async fn answer(
    room: &Room,
    caller: &Caller,
    request: AckMessageRequest,
) -> Result<AckMessageResponse, Problem> {
    let topic = validate::topic(request.topic.as_ref())?;
    let group = validate::group(request.group.as_ref())?;
    if request.entries.len() > limits::ACK_ENTRIES {
        return Err(Problem::TooManyEntries);
    }
    let handles = request.entries.iter().map(|entry| entry.receipt_handle.as_str()).collect::<Vec<_>>();
    let holder = Holder { client: &caller.client_id, group, topic };
    let results = ack(room, holder, &handles).await;
    let entries = request.entries.into_iter().zip(results).map(|(entry, status)| AckMessageResultEntry {
        message_id: entry.message_id,
        receipt_handle: entry.receipt_handle,
        status: Some(status),
    });
    let entries = entries.collect::<Vec<_>>();
    let status = errors::overall(entries.iter().filter_map(|entry| entry.status.as_ref()), &Problem::NoEntry);
    Ok(AckMessageResponse { status: Some(status), entries })
}

/// One result per handle, in order. Those that can be sent go to their brokers together.
async fn ack(room: &Room, holder: Holder<'_>, handles: &[&str]) -> Vec<Status> {
    let (group, topic): (Arc<str>, Arc<str>) = (holder.group.into(), holder.topic.into());
    let tickets = handles.iter().map(|text| async move {
        let handle = validate::handle(text)?;
        Ok::<_, Problem>(room.receipts.resolve_for_ack(holder, handle).await)
    });
    let tickets = join_all(tickets).await;
    let leases = tickets.iter().flatten().map(|ticket| LeaseRef {
        group: group.clone(),
        topic: topic.clone(),
        handle: ticket.handle().clone(),
    });
    let mut results = room.messages.ack(leases.collect()).await.into_iter();
    let finish = |ticket: Result<crate::receipts::AckTicket, Problem>| match ticket {
        Err(problem) => problem.status(),
        Ok(ticket) => {
            let result = results.next().unwrap_or(Err(BackendError::Timeout));
            ticket.done(outcome(&result));
            result.map_or_else(|error| Problem::from(error).status(), |()| errors::ok())
        }
    };
    tickets.into_iter().map(finish).collect()
}

/// What an ack's result means for the handle that is kept.
pub(super) fn outcome(result: &Result<(), BackendError>) -> AckOutcome {
    match result {
        Ok(()) => AckOutcome::Done,
        Err(BackendError::InvalidReceiptHandle(_)) => AckOutcome::Gone,
        Err(_) => AckOutcome::Failed,
    }
}
