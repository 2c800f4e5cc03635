//! ForwardMessageToDeadLetterQueue: the client gives a message up.

use waybill_protocol::grpc::v2::{ForwardMessageToDeadLetterQueueRequest, ForwardMessageToDeadLetterQueueResponse};

use super::{Room, ack_message, errors, errors::Problem, metadata::Caller, validate};
use crate::backend::{ForwardRequest, LeaseRef};
use crate::receipts::Holder;

pub(super) async fn answer(
    room: &Room,
    caller: &Caller,
    request: ForwardMessageToDeadLetterQueueRequest,
) -> Result<ForwardMessageToDeadLetterQueueResponse, Problem> {
    let topic = validate::topic(request.topic.as_ref())?;
    let group = validate::group(request.group.as_ref())?;
    let handle = validate::handle(&request.receipt_handle)?;
    let holder = Holder { client: &caller.client_id, group, topic };
    let ticket = room.receipts.resolve_for_forward(holder, handle).await;
    let lease = LeaseRef { group: group.into(), topic: topic.into(), handle: ticket.handle().clone() };
    let forward = ForwardRequest { lease, message_id: request.message_id, timeout: room.broker_timeout() };
    let result = room.messages.forward_to_dlq(forward).await;
    ticket.done(ack_message::outcome(&result));
    result?;
    Ok(ForwardMessageToDeadLetterQueueResponse { status: Some(errors::ok()) })
}
