//! RECALL_MESSAGE.

use waybill_protocol::recall::RecallHandle;
use waybill_protocol::remoting::{Command, RecallMessageRequestHeader, RecallMessageResponseHeader};

use super::{Answer, ok_with};
use crate::Broker;
use crate::error::BrokerError;

/// A producer takes a delayed message back.
pub(super) async fn recall(broker: &Broker, command: &Command) -> Answer {
    let header: RecallMessageRequestHeader = command.header()?;
    let handle: RecallHandle = header
        .recall_handle
        .parse()
        .map_err(|error| BrokerError::IllegalOperation(format!("the recall handle is none: {error}")))?;
    broker.core().recall(&header.topic, &handle).await?;
    Ok(ok_with(&RecallMessageResponseHeader { msg_id: handle.message_id }))
}
