//! END_TRANSACTION, and what is asked of producers: CHECK_TRANSACTION_STATE.

use bytes::BytesMut;
use waybill_protocol::message::{StoredMessage, offset_msg_id, properties, sys_flag};
use waybill_protocol::remoting::codes::request;
use waybill_protocol::remoting::{CheckTransactionStateRequestHeader, Command, EndTransactionRequestHeader};

use super::{Answer, ok};
use crate::Broker;
use crate::core::{End, Question};
use crate::error::BrokerError;
use crate::transaction::Decision;

/// The topic that questions are said to be about, as upstream has it. There is none of this name here.
const HALF_TOPIC: &str = "RMQ_SYS_TRANS_HALF_TOPIC";

pub(super) async fn end(broker: &Broker, command: &Command) -> Answer {
    let header: EndTransactionRequestHeader = command.header()?;
    let decision = match header.commit_or_rollback {
        sys_flag::TRANSACTION_COMMIT => Decision::Commit,
        sys_flag::TRANSACTION_ROLLBACK => Decision::Rollback,
        // The producer does not know yet. It is asked again.
        0 => return Ok(ok()),
        other => {
            return Err(BrokerError::InvalidParameter(format!(
                "commitOrRollback is {other}, allowed are {} (commit), {} (rollback) and 0 (not known yet)",
                sys_flag::TRANSACTION_COMMIT,
                sys_flag::TRANSACTION_ROLLBACK
            )));
        }
    };
    let (place, position) = (header.tran_state_table_offset, header.commit_log_offset);
    let position = u64::try_from(position).ok().filter(|_| place == position).ok_or_else(|| {
        BrokerError::NotFound(format!(
            "tranStateTableOffset {place} and commitLogOffset {position} name no transaction"
        ))
    })?;
    let end = End { position, producer_group: header.producer_group, message_id: header.msg_id, decision };
    broker.core().end_transaction(&end).await?;
    Ok(ok())
}

/// The request that asks a producer. `None` for a message that cannot be written.
pub(crate) fn question(broker: &Broker, question: &Question) -> Option<Command> {
    let position = question.position.cast_signed();
    let message = StoredMessage { queue_offset: position, physical_offset: position, ..question.message.clone() };
    let mut body = BytesMut::new();
    message.encode(&mut body).ok()?;
    let id = properties::get(&message.properties, properties::UNIQ_KEY).map(str::to_owned);
    let header = CheckTransactionStateRequestHeader {
        topic: Some(HALF_TOPIC.to_owned()),
        tran_state_table_offset: position,
        commit_log_offset: position,
        msg_id: id.clone(),
        transaction_id: id,
        offset_msg_id: Some(offset_msg_id(broker.store_host(), position)),
        broker_name: Some(broker.name().to_owned()),
    };
    Some(Command::request(request::CHECK_TRANSACTION_STATE).with_header(&header).with_body(body.freeze()))
}
