//! RecallMessage: a producer takes a delayed message back before it is delivered.

use waybill_protocol::{
    grpc::v2::{MessageType, RecallMessageRequest, RecallMessageResponse},
    recall::RecallHandle,
};

use super::{Room, errors, errors::Problem, metadata::Caller, send_message, validate};
use crate::backend::BackendError;

pub(super) async fn answer(
    room: &Room,
    _caller: &Caller,
    request: RecallMessageRequest,
) -> Result<RecallMessageResponse, Problem> {
    let topic = validate::topic(request.topic.as_ref())?;
    send_message::check_types(room, topic, [MessageType::Delay.as_str_name()]).await?;
    let text = request.recall_handle.as_str();
    let handle: RecallHandle = text.parse().map_err(|error| Problem::RecallHandle(format!("{error}")))?;
    if handle.topic != topic {
        return Err(Problem::RecallHandle("it is for another topic".to_owned()));
    }
    let recalled = room.messages.recall(&handle, text, room.broker_timeout()).await;
    let message_id = recalled.map_err(|error| match error {
        BackendError::UnknownBroker(_) => Problem::RecallHandle("it is for a broker that is not known".to_owned()),
        other => other.into(),
    })?;
    Ok(RecallMessageResponse { status: Some(errors::ok()), message_id })
}
