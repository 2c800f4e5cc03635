//! Calls that are known but not built yet. What is wrong with them anyway is said first.

use waybill_protocol::grpc::v2::{SyncLiteSubscriptionRequest, SyncLiteSubscriptionResponse};

use super::{Room, errors::Problem, metadata::Caller, validate};

pub(super) async fn sync_lite_subscription(
    _room: &Room,
    _caller: &Caller,
    request: SyncLiteSubscriptionRequest,
) -> Result<SyncLiteSubscriptionResponse, Problem> {
    validate::topic(request.topic.as_ref())?;
    validate::group(request.group.as_ref())?;
    Err(Problem::NotImplemented("SyncLiteSubscription"))
}
