//! Heartbeat: the client is there.

use std::sync::Arc;

use waybill_protocol::grpc::v2::{ClientType, HeartbeatRequest, HeartbeatResponse, settings::PubSub};

use super::{Room, errors, errors::Problem, metadata::Caller, validate};
use crate::session::{Profile, merge};

pub(super) async fn answer(
    room: &Room,
    caller: &Caller,
    request: HeartbeatRequest,
) -> Result<HeartbeatResponse, Problem> {
    let Some(profile) = room.sessions.profile(&caller.client_id) else {
        if request.group.is_some() {
            room.sessions.stranger(&caller.client_id);
        }
        return Err(Problem::NoSettings);
    };
    match client_type(&profile) {
        ClientType::Producer => {}
        ClientType::PushConsumer
        | ClientType::SimpleConsumer
        | ClientType::LitePushConsumer
        | ClientType::LiteSimpleConsumer => {
            validate::group(request.group.as_ref())?;
            refresh(room, caller, &profile).await;
        }
        ClientType::PullConsumer | ClientType::Unspecified => return Err(Problem::WrongClientType("heartbeat")),
    }
    Ok(HeartbeatResponse { status: Some(errors::ok()) })
}

/// What the client said it is; a client that does not say is known by what its settings hold.
fn client_type(profile: &Profile) -> ClientType {
    match (profile.own.client_type(), &profile.own.pub_sub) {
        (ClientType::Unspecified, Some(PubSub::Publishing(_))) => ClientType::Producer,
        (ClientType::Unspecified, Some(PubSub::Subscription(_))) => ClientType::SimpleConsumer,
        (said, _) => said,
    }
}

/// Tells the client when its group has changed, so that a new retry policy does not wait for the client's next settings
/// (five minutes).
async fn refresh(room: &Room, caller: &Caller, profile: &Profile) {
    let Some(group) = &profile.group else { return };
    // A group that cannot be asked for now has not changed as far as anybody knows.
    let Ok(group) = room.messages.group_config(group, super::telemetry::first_topic(&profile.own)).await else {
        return;
    };
    let merged = merge(&profile.own, &group, &room.config.get());
    if merged != *profile.merged {
        room.sessions.settings_changed(&caller.client_id, Arc::new(merged));
    }
}
