//! Acknowledging and changing the invisible duration: one message or many, one record in the log either way.

use std::collections::HashMap;

use futures::future::join_all;
use waybill_protocol::handle::{ReceiptHandle, TopicType};
use waybill_protocol::remoting::codes::response;
use waybill_protocol::remoting::{
    AckMessageRequestHeader, BatchAckBody, BatchChangeInvisibleBody, BatchChangeInvisibleEntry,
    BatchChangeInvisibleResult, BatchChangeInvisibleResultEntry, BatchChangeInvisibleTimeRequestHeader, CHANGED_BY,
    ChangeInvisibleTimeRequestHeader, ChangeInvisibleTimeResponseHeader, ChangedBy, Command, EntryCode, EntryCodes,
};

use super::{Answer, ok, ok_json, ok_with};
use crate::Broker;
use crate::core::{ChangeEntry, HandleRef};
use crate::error::BrokerError;
use crate::lease::{AckOutcome, ChangeOutcome};
use crate::limits;

/// Asks for one code per entry in the answer to BATCH_ACK_MESSAGE; without it the answer is upstream's.
const ENTRY_RESULTS: &str = "entryResults";

pub(super) async fn ack(broker: &Broker, command: &Command) -> Answer {
    let header: AckMessageRequestHeader = command.header()?;
    let handle = parse(broker, &header.extra_info, header.queue_id, header.offset)?;
    let outcomes = broker.core().ack(&header.consumer_group, &header.topic, &[handle]).await?;
    match outcomes.first() {
        Some(outcome) => acked(outcome).map(|()| ok()),
        None => Err(BrokerError::Internal("an ack without an outcome".into())),
    }
}

pub(super) async fn change(broker: &Broker, command: &Command) -> Answer {
    let header: ChangeInvisibleTimeRequestHeader = command.header()?;
    check_invisible(header.invisible_time)?;
    let entry = ChangeEntry {
        handle: parse(broker, &header.extra_info, header.queue_id, header.offset)?,
        invisible_ms: header.invisible_time,
        count: header.suspend != Some(true),
        by: ChangedBy::of_request(command.ext.get(CHANGED_BY)),
    };
    let outcomes = broker.core().change(&header.consumer_group, &header.topic, &[entry]).await?;
    match outcomes.first() {
        Some(ChangeOutcome::Changed { pop_time_ms, invisible_ms }) => Ok(ok_with(&ChangeInvisibleTimeResponseHeader {
            pop_time: *pop_time_ms,
            invisible_time: *invisible_ms,
            revive_qid: 0,
        })),
        Some(outcome) => Err(refused(outcome)),
        None => Err(BrokerError::Internal("a change without an outcome".into())),
    }
}

pub(super) async fn batch_change(broker: &Broker, command: &Command) -> Answer {
    let header: BatchChangeInvisibleTimeRequestHeader = command.header()?;
    if header.consumer_group.trim().is_empty() || header.topic.trim().is_empty() {
        return Err(BrokerError::Illegal("consumerGroup and topic are needed in the header".into()));
    }
    if broker.core().catalog().group(&header.consumer_group).is_none() {
        return Err(BrokerError::GroupNotFound(header.consumer_group));
    }
    let body: BatchChangeInvisibleBody = bounded(command)?;
    let max = broker.in_force().batch_max_entries;
    if body.entries.len() > max {
        return Err(too_many(body.entries.len(), max));
    }
    let parsed: Vec<Result<ChangeEntry, BrokerError>> =
        body.entries.iter().map(|entry| change_entry(broker, &header, entry)).collect();
    let good: Vec<ChangeEntry> = parsed.iter().filter_map(|entry| entry.as_ref().ok()).copied().collect();
    let outcomes = broker.core().change(&header.consumer_group, &header.topic, &good).await?;
    let mut outcomes = outcomes.into_iter();
    let entries = parsed
        .iter()
        .map(|entry| match entry {
            Err(error) => failed(error),
            Ok(_) => match outcomes.next() {
                Some(ChangeOutcome::Changed { pop_time_ms, invisible_ms }) => BatchChangeInvisibleResultEntry {
                    code: response::SUCCESS,
                    pop_time: pop_time_ms,
                    invisible_time: invisible_ms,
                    revive_qid: 0,
                },
                Some(outcome) => failed(&refused(&outcome)),
                None => failed(&BrokerError::Internal(String::new())),
            },
        })
        .collect();
    Ok(ok_json(&BatchChangeInvisibleResult { entries }))
}

pub(super) async fn batch_ack(broker: &Broker, command: &Command) -> Answer {
    let body: BatchAckBody = bounded(command)?;
    let (parts, mut codes) = parts_by_ledger(&body, broker.in_force().batch_max_entries)?;
    if codes.is_empty() {
        return Err(BrokerError::StaleHandle("the batch is empty".into()));
    }
    // A part is one record in the log; the parts go side by side, so that they share the sync.
    let core = broker.core();
    let outcomes = join_all(parts.iter().map(|part| core.ack(part.group, &part.topic, &part.handles))).await;
    for (part, outcomes) in parts.iter().zip(&outcomes) {
        for (position, place) in part.places.iter().enumerate() {
            let code = match outcomes {
                Ok(outcomes) => match outcomes.get(position).map(acked) {
                    Some(Ok(())) => response::SUCCESS,
                    Some(Err(error)) => error.code(),
                    None => response::SYSTEM_ERROR,
                },
                Err(error) => error.code(),
            };
            if let Some(slot) = codes.get_mut(*place) {
                *slot = code;
            }
        }
    }
    if command.ext.get(ENTRY_RESULTS) == Some("true") {
        return Ok(ok_json(&EntryCodes { entries: codes.into_iter().map(|code| EntryCode { code }).collect() }));
    }
    // Upstream has no way to say which entry failed; what could not be stored must not be answered with success, though.
    let lost = |code: &&i32| {
        !matches!(
            **code,
            response::SUCCESS | response::NO_MESSAGE | response::MESSAGE_ILLEGAL | response::TOPIC_NOT_EXIST
        )
    };
    match codes.iter().find(lost) {
        Some(code) => Ok(Command::response(*code, "some entries could not be acknowledged")),
        None => Ok(ok()),
    }
}

/// What a batch acknowledges for one group on one topic, in the order of the request.
struct Part<'a> {
    group: &'a str,
    topic: String,
    handles: Vec<HandleRef>,
    /// Where the answers of `handles` belong among those of the whole request.
    places: Vec<usize>,
}

/// Splits a batch by group and topic. Also answers a code for each of its messages, for those that are in no part for good.
fn parts_by_ledger(body: &BatchAckBody, max: usize) -> Result<(Vec<Part<'_>>, Vec<i32>), BrokerError> {
    let mut parts: Vec<Part<'_>> = Vec::new();
    let mut known: HashMap<(&str, &str, TopicType), usize> = HashMap::new();
    let mut codes = Vec::new();
    for ack in &body.acks {
        let part = *known.entry((&ack.consumer_group, &ack.topic, ack.retry)).or_insert_with(|| {
            let topic = ack.retry.real_topic(&ack.consumer_group, &ack.topic);
            parts.push(Part { group: &ack.consumer_group, topic, handles: Vec::new(), places: Vec::new() });
            parts.len() - 1
        });
        let Some(part) = parts.get_mut(part) else { continue };
        for offset in ack.offsets() {
            if codes.len() >= max {
                return Err(too_many(codes.len() + 1, max));
            }
            match (u32::try_from(ack.queue_id), u64::try_from(offset)) {
                (Ok(queue), Ok(offset)) => {
                    part.handles.push(HandleRef { queue, offset, pop_time_ms: ack.pop_time });
                    part.places.push(codes.len());
                    codes.push(response::NO_MESSAGE);
                }
                // As for a single ack, a queue or offset below 0 is a mistake.
                _ => codes.push(response::MESSAGE_ILLEGAL),
            }
        }
    }
    Ok((parts, codes))
}

/// A JSON body within the byte limit of batch requests.
fn bounded<B: waybill_protocol::remoting::JsonBody>(command: &Command) -> Result<B, BrokerError> {
    if command.body.len() > limits::BATCH_BODY_BYTES_MAX {
        return Err(BrokerError::Illegal(format!(
            "the body has {} bytes, allowed are {}",
            command.body.len(),
            limits::BATCH_BODY_BYTES_MAX
        )));
    }
    command.json().map_err(|error| BrokerError::Illegal(error.to_string()))
}

fn too_many(entries: usize, max: usize) -> BrokerError {
    BrokerError::Illegal(format!("{entries} entries in one batch, allowed are {max} (batchMaxEntries)"))
}

fn change_entry(
    broker: &Broker,
    header: &BatchChangeInvisibleTimeRequestHeader,
    entry: &BatchChangeInvisibleEntry,
) -> Result<ChangeEntry, BrokerError> {
    let foreign = |given: &str, wanted: &str| !given.trim().is_empty() && given != wanted;
    if foreign(&entry.consumer_group, &header.consumer_group) || foreign(&entry.topic, &header.topic) {
        return Err(BrokerError::Illegal("the entry names another group or topic than the header".into()));
    }
    check_invisible(entry.invisible_time)?;
    let handle = parse(broker, &entry.extra_info, entry.queue_id, entry.offset)?;
    let by = ChangedBy::of_request(entry.changed_by.as_deref());
    Ok(ChangeEntry { handle, invisible_ms: entry.invisible_time, count: !entry.suspend, by })
}

fn check_invisible(ms: i64) -> Result<(), BrokerError> {
    let max = limits::INVISIBLE_MS_MAX;
    if (0..=max).contains(&ms) {
        return Ok(());
    }
    Err(BrokerError::InvalidParameter(format!("invisibleTime is {ms} ms, allowed are 0 to {max}")))
}

fn parse(broker: &Broker, extra_info: &str, queue_id: i32, offset: i64) -> Result<HandleRef, BrokerError> {
    let handle: ReceiptHandle =
        extra_info.parse().map_err(|error| BrokerError::Illegal(format!("extraInfo: {error}")))?;
    handle_ref(broker, &handle, queue_id, offset)
}

/// The delivery that a handle names, if it is one of this broker's and agrees with the request around it.
pub(super) fn handle_ref(
    broker: &Broker,
    handle: &ReceiptHandle,
    queue_id: i32,
    offset: i64,
) -> Result<HandleRef, BrokerError> {
    if handle.broker_name != broker.name() {
        return Err(BrokerError::StaleHandle(format!(
            "it was given out by broker {}, this is {}",
            handle.broker_name,
            broker.name()
        )));
    }
    if handle.queue_id != queue_id || handle.offset != offset {
        return Err(BrokerError::Illegal("queueId or offset differ from those in extraInfo".into()));
    }
    match (u32::try_from(queue_id), u64::try_from(offset)) {
        (Ok(queue), Ok(offset)) => Ok(HandleRef { queue, offset, pop_time_ms: handle.pop_time }),
        _ => Err(BrokerError::Illegal(format!("queueId {queue_id} or offset {offset} is below 0"))),
    }
}

fn acked(outcome: &AckOutcome) -> Result<(), BrokerError> {
    match outcome {
        AckOutcome::Acked { .. } | AckOutcome::AlreadyDone => Ok(()),
        AckOutcome::Stale => Err(BrokerError::StaleHandle("the message was delivered again since".into())),
        AckOutcome::Unknown => Err(BrokerError::StaleHandle("the message was never delivered to this group".into())),
    }
}

fn refused(outcome: &ChangeOutcome) -> BrokerError {
    BrokerError::StaleHandle(
        match outcome {
            ChangeOutcome::Expired => "the invisible duration is over",
            ChangeOutcome::Stale => "the message was delivered again since",
            ChangeOutcome::AlreadyDone => "the message is acknowledged",
            ChangeOutcome::Unknown | ChangeOutcome::Changed { .. } => "the message was never delivered to this group",
        }
        .into(),
    )
}

fn failed(error: &BrokerError) -> BatchChangeInvisibleResultEntry {
    BatchChangeInvisibleResultEntry { code: error.code(), pop_time: 0, invisible_time: 0, revive_qid: 0 }
}
