//! NotifyClientTermination: the client leaves, and what it holds goes to others at once.

use waybill_protocol::grpc::v2::{NotifyClientTerminationRequest, NotifyClientTerminationResponse};

use super::{Room, errors, errors::Problem, metadata::Caller, validate};

pub(super) async fn answer(
    room: &Room,
    caller: &Caller,
    request: NotifyClientTerminationRequest,
) -> Result<NotifyClientTerminationResponse, Problem> {
    if request.group.as_ref().is_some_and(|group| !group.name.is_empty()) {
        validate::group(request.group.as_ref())?;
    }
    if !room.sessions.terminate(&caller.client_id) {
        return Err(Problem::NoSettings);
    }
    Ok(NotifyClientTerminationResponse { status: Some(errors::ok()) })
}
