//! EndTransaction: a producer says what became of a transaction.

use waybill_protocol::{
    grpc::v2::{EndTransactionRequest, EndTransactionResponse, TransactionResolution, TransactionSource},
    transaction::TransactionId,
};

use super::{Room, errors, errors::Problem, metadata::Caller, validate};
use crate::backend::{BackendError, EndTransaction};

pub(super) async fn answer(
    room: &Room,
    _caller: &Caller,
    request: EndTransactionRequest,
) -> Result<EndTransactionResponse, Problem> {
    let topic = validate::topic(request.topic.as_ref())?;
    if request.transaction_id.trim().is_empty() {
        return Err(Problem::TransactionIdBlank);
    }
    let id: TransactionId =
        request.transaction_id.parse().map_err(|error| Problem::TransactionId(format!("{error}")))?;
    if id.topic != topic {
        return Err(Problem::TransactionId("it is for another topic".to_owned()));
    }
    let commit = match request.resolution() {
        TransactionResolution::Commit => Some(true),
        TransactionResolution::Rollback => Some(false),
        // Not known yet: the broker asks again.
        TransactionResolution::Unspecified => None,
    };
    if let Some(commit) = commit {
        let from_check = request.source() == TransactionSource::SourceServerCheck;
        let message_id = request.message_id;
        let end = EndTransaction { id, message_id, commit, from_check, timeout: room.broker_timeout() };
        room.messages.end_transaction(end).await.map_err(|error| match error {
            BackendError::UnknownBroker(_) => Problem::TransactionId("it is for a broker that is not known".to_owned()),
            BackendError::MessageNotFound(text) => Problem::TransactionId(text),
            other => other.into(),
        })?;
    }
    Ok(EndTransactionResponse { status: Some(errors::ok()) })
}
