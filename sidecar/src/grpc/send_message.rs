//! SendMessage: messages of one topic are stored. Each has its own entry in the answer, in the order of the request.

use waybill_protocol::{
    grpc::v2::{
        Code, Message, MessageType, SendMessageRequest, SendMessageResponse, SendResultEntry, SystemProperties,
    },
    message::{offset_of_msg_id, sys_flag},
    transaction::TransactionId,
};

use super::query_route::topic_type;
use super::{Room, convert, errors, errors::Problem, validate};
use crate::backend::{SendRequest, SendResult, SendStatus};

/// Topics of retries and dead letters take messages of every type.
const UNTYPED_PREFIXES: [&str; 2] = ["%RETRY%", "%DLQ%"];

pub(super) async fn answer(
    room: &Room,
    request: SendMessageRequest,
    peer: &str,
) -> Result<SendMessageResponse, Problem> {
    let config = room.config.get();
    let now_ms = room.clock.now_ms();
    let messages = request.messages;
    let topic = validate::messages(&messages, &config, now_ms)?.to_owned();
    let sizes: Vec<usize> = messages.iter().map(|message| message.body.len()).collect();
    let _room_for_bytes = room.gates.send_bytes(sizes.iter().sum())?;

    check_types(room, &topic, messages.iter().map(|message| validate::actual_type(system(message)).as_str_name()))
        .await?;
    if let Some(missing) = messages.iter().find_map(not_implemented) {
        return Err(missing);
    }

    let ids = messages.iter().map(|message| system(message).message_id.clone()).collect::<Vec<_>>();
    let mut entries = Vec::with_capacity(sizes.len());
    let mut failure = None;
    for request in requests(room, messages, &topic, now_ms, peer)? {
        let count = request.messages.len();
        let half = request.sys_flag & sys_flag::TRANSACTION == sys_flag::TRANSACTION_PREPARED;
        let half_of = half.then_some(topic.as_str());
        let ids = ids.iter().skip(entries.len()).take(count).cloned();
        match room.messages.send(request).await {
            Ok(result) => entries.extend(ids.enumerate().map(|(at, id)| stored(&result, at, id, half_of))),
            Err(error) => {
                let problem = Problem::from(error);
                entries.extend(ids.map(|_| SendResultEntry { status: Some(problem.status()), ..Default::default() }));
                failure = Some(problem);
            }
        }
    }
    let status = errors::overall(entries.iter().filter_map(|entry| entry.status.as_ref()), &Problem::NoMessage);
    match failure {
        // As nothing was stored there is nothing to tell about single messages.
        Some(problem) if status.code != i32::from(Code::MultipleResults) => Err(problem),
        _ => {
            let ok = i32::from(Code::Ok);
            let stored =
                entries.iter().zip(&sizes).filter(|(entry, _)| entry.status.as_ref().is_some_and(|s| s.code == ok));
            let (count, bytes) = stored.fold((0, 0), |(count, bytes), (_, size)| (count + 1, bytes + size));
            room.metrics.stored(count, bytes);
            Ok(SendMessageResponse { status: Some(status), entries })
        }
    }
}

/// What goes to brokers: all messages as one batch; but one by one if there are messages with a message group, each of which
/// goes to the queue of its group, or delayed ones, each of which has a recall handle of its own.
fn requests(
    room: &Room,
    messages: Vec<Message>,
    topic: &str,
    now_ms: i64,
    peer: &str,
) -> Result<Vec<SendRequest>, Problem> {
    let alone = |system: &SystemProperties| {
        let transaction = system.message_type() == MessageType::Transaction;
        transaction || !system.message_group().is_empty() || system.delivery_timestamp.is_some()
    };
    let one_by_one = messages.iter().any(|message| alone(system(message)));
    let mut requests: Vec<SendRequest> = Vec::new();
    for message in messages {
        let (sys_flag, born_timestamp) =
            (convert::sys_flag_of(system(&message)), convert::born_ms(system(&message), now_ms));
        let message_group = system(&message).message_group.clone().filter(|group| !group.is_empty());
        let outgoing = convert::outgoing(message, peer)?;
        match requests.last_mut() {
            // The flags of a batch are those of all its messages.
            Some(batch) if !one_by_one && batch.sys_flag == sys_flag => batch.messages.push(outgoing),
            _ => requests.push(SendRequest {
                topic: topic.to_owned(),
                messages: vec![outgoing],
                sys_flag,
                born_timestamp,
                message_group,
                timeout: room.broker_timeout(),
            }),
        }
    }
    Ok(requests)
}

/// The type of each message must be the topic's, where that is looked at.
pub(super) async fn check_types(
    room: &Room,
    topic: &str,
    types: impl IntoIterator<Item = &'static str>,
) -> Result<(), Problem> {
    let enabled = room.config.get().enable_topic_message_type_check;
    if !enabled || UNTYPED_PREFIXES.iter().any(|prefix| topic.starts_with(prefix)) {
        return Ok(());
    }
    // Upstream takes a topic that does not exist for one whose type conflicts.
    let config = room.messages.topic_config(topic).await?;
    let expected = topic_type(&config);
    match types.into_iter().find(|actual| *actual != expected) {
        Some(actual) if expected != "MIXED" => Err(Problem::TypeConflict { expected, actual }),
        _ => Ok(()),
    }
}

/// What is valid but not built yet.
fn not_implemented(message: &Message) -> Option<Problem> {
    match validate::actual_type(system(message)) {
        MessageType::Lite => Some(Problem::NotImplemented("sending of LITE messages")),
        MessageType::Priority => Some(Problem::NotImplemented("sending of PRIORITY messages")),
        _ => None,
    }
}

/// The entry of a message. `half_of`: it is one of a transaction of that topic.
fn stored(result: &SendResult, at: usize, message_id: String, half_of: Option<&str>) -> SendResultEntry {
    let problem = match result.status {
        SendStatus::Ok => None,
        SendStatus::FlushDiskTimeout => Some(Problem::FlushDiskTimeout),
        SendStatus::FlushSlaveTimeout => Some(Problem::FlushSlaveTimeout),
        SendStatus::SlaveNotAvailable => Some(Problem::SlaveNotAvailable),
    };
    if let Some(problem) = problem {
        return SendResultEntry { status: Some(problem.status()), ..SendResultEntry::default() };
    }
    SendResultEntry {
        status: Some(errors::ok()),
        transaction_id: half_of.and_then(|topic| transaction_id(result, topic)).unwrap_or_else(|| message_id.clone()),
        message_id,
        offset: result.queue_offset.saturating_add(i64::try_from(at).unwrap_or(i64::MAX)),
        recall_handle: result.recall_handle.clone().unwrap_or_default(),
    }
}

/// What names a transaction to every sidecar. None if the broker did not say where the message is; then it will ask.
fn transaction_id(result: &SendResult, topic: &str) -> Option<String> {
    let id = TransactionId {
        commit_log_offset: offset_of_msg_id(result.offset_msg_ids.first()?)?,
        tran_state_table_offset: result.queue_offset,
        broker_name: result.broker_name.clone(),
        topic: topic.to_owned(),
    };
    Some(id.to_string())
}

/// The system properties of a message that passed the validation.
fn system(message: &Message) -> &SystemProperties {
    static NONE: std::sync::LazyLock<SystemProperties> = std::sync::LazyLock::new(SystemProperties::default);
    message.system_properties.as_ref().unwrap_or(&NONE)
}
