//! Calls that are known but not built yet. What is wrong with them anyway is said first.

use waybill_protocol::grpc::v2::{
    EndTransactionRequest, EndTransactionResponse, RecallMessageRequest, RecallMessageResponse,
    SyncLiteSubscriptionRequest, SyncLiteSubscriptionResponse,
};

use super::{Room, errors::Problem, metadata::Caller, validate};

pub(super) async fn end_transaction(
    _room: &Room,
    _caller: &Caller,
    request: EndTransactionRequest,
) -> Result<EndTransactionResponse, Problem> {
    validate::topic(request.topic.as_ref())?;
    if request.transaction_id.trim().is_empty() {
        return Err(Problem::TransactionIdBlank);
    }
    Err(Problem::NotImplemented("EndTransaction"))
}

pub(super) async fn recall_message(
    _room: &Room,
    _caller: &Caller,
    request: RecallMessageRequest,
) -> Result<RecallMessageResponse, Problem> {
    validate::topic(request.topic.as_ref())?;
    Err(Problem::NotImplemented("RecallMessage"))
}

pub(super) async fn sync_lite_subscription(
    _room: &Room,
    _caller: &Caller,
    request: SyncLiteSubscriptionRequest,
) -> Result<SyncLiteSubscriptionResponse, Problem> {
    validate::topic(request.topic.as_ref())?;
    validate::group(request.group.as_ref())?;
    Err(Problem::NotImplemented("SyncLiteSubscription"))
}
