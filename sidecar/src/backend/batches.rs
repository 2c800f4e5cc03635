//! Many leases in one request, where the broker can.

use waybill_protocol::{
    handle::ReceiptHandle,
    remoting::{
        BatchAck, BatchAckBody, BatchChangeInvisibleBody, BatchChangeInvisibleEntry, BatchChangeInvisibleResult,
        BatchChangeInvisibleTimeRequestHeader, BitSet, ChangeInvisibleTimeResponseHeader, Command, EntryCodes,
        JsonBody,
        codes::{request, response},
    },
};

use super::{
    change::BatchKey,
    error::{BackendError, Subject, from_code, from_response},
    handles::changed,
    peers::Feature,
    service::{MessageService, millis},
    types::{ChangeEntry, LeaseRef},
};

/// Asks a Waybill broker for one result per entry.
const ENTRY_RESULTS: &str = "entryResults";

type Results<R> = Vec<(usize, Result<R, BackendError>)>;

impl MessageService {
    /// Changes many leases of one broker, group and topic. `None`: do it one by one.
    pub(super) async fn change_batch(
        &self,
        key: &BatchKey,
        entries: &[ChangeEntry],
        members: &[usize],
    ) -> Option<Results<ReceiptHandle>> {
        let entries = members_of(entries, members);
        if !self.inner.peers.may_have(&key.broker, Feature::BatchChange) {
            self.inner.metrics.fell_back();
            return None;
        }
        let header =
            BatchChangeInvisibleTimeRequestHeader { consumer_group: key.group.clone(), topic: key.real_topic.clone() };
        let body =
            BatchChangeInvisibleBody { entries: entries.iter().map(|(_, entry)| change_entry(key, entry)).collect() };
        let request = Command::request(request::BATCH_CHANGE_MESSAGE_INVISIBLETIME)
            .with_header(&header)
            .with_body(body.to_json());
        let (_, first) = entries.first()?;
        let answer = match self.ask_about(&first.lease, request).await {
            Ok(answer) => answer,
            Err(error) => return Some(for_all(&entries, &error)),
        };
        match answer.code {
            response::SUCCESS => {}
            response::REQUEST_CODE_NOT_SUPPORTED => {
                self.fall_back(&key.broker, Feature::BatchChange);
                return None;
            }
            // Too many for this broker, or it takes offence at the whole: each entry gets its own answer then.
            response::MESSAGE_ILLEGAL | response::INVALID_PARAMETER => {
                self.inner.metrics.fell_back();
                return None;
            }
            _ => return Some(for_all(&entries, &from_response(&answer, Subject::handle(&first.lease)))),
        }
        let results = BatchChangeInvisibleResult::from_json(&answer.body).unwrap_or_else(|error| {
            tracing::warn!(broker = key.broker, %error, "the answer to a batch cannot be read");
            BatchChangeInvisibleResult::default()
        });
        let with_results = entries.iter().zip(results.entries.iter().map(Some).chain(std::iter::repeat(None)));
        Some(
            with_results
                .map(|((index, entry), result)| {
                    let result = match result {
                        Some(result) if result.code == response::SUCCESS => {
                            let answer = ChangeInvisibleTimeResponseHeader {
                                pop_time: result.pop_time,
                                invisible_time: result.invisible_time,
                                revive_qid: result.revive_qid,
                            };
                            changed(&entry.lease.handle, &answer)
                        }
                        Some(result) => Err(from_code(result.code, "", Subject::handle(&entry.lease))),
                        None => Err(BackendError::unanswered_entry()),
                    };
                    (*index, result)
                })
                .collect(),
        )
    }

    /// Acknowledges many leases of one broker. `None`: do it one by one, which is harmless for those that the broker
    /// took all the same.
    pub(super) async fn ack_batch(&self, leases: &[LeaseRef], members: &[usize]) -> Option<Results<()>> {
        let entries = members_of(leases, members);
        let (_, first) = entries.first()?;
        let broker = &first.handle.broker_name;
        let acks: Option<Vec<BatchAck>> = entries.iter().map(|(_, lease)| ack_entry(lease)).collect();
        let Some(acks) = acks else {
            self.inner.metrics.fell_back();
            return None;
        };
        if !self.inner.peers.may_have(broker, Feature::BatchAckResults) {
            self.inner.metrics.fell_back();
            return None;
        }
        let body = BatchAckBody { broker_name: broker.clone(), acks };
        let mut request = Command::request(request::BATCH_ACK_MESSAGE).with_body(body.to_json());
        request.ext.set(ENTRY_RESULTS, "true");
        let answer = match self.ask_about(first, request).await {
            Ok(answer) => answer,
            Err(error) => return Some(for_all(&entries, &error)),
        };
        let codes = EntryCodes::from_json(&answer.body).ok().filter(|codes| codes.entries.len() == entries.len());
        match (answer.code, codes) {
            (response::SUCCESS, Some(codes)) => {
                let with_codes = entries.iter().zip(codes.entries);
                Some(with_codes.map(|((index, lease), entry)| (*index, ack_result(entry.code, lease))).collect())
            }
            (response::SUCCESS | response::REQUEST_CODE_NOT_SUPPORTED, _) => {
                self.fall_back(broker, Feature::BatchAckResults);
                None
            }
            _ => Some(for_all(&entries, &from_response(&answer, Subject::handle(first)))),
        }
    }

    fn fall_back(&self, broker: &str, feature: Feature) {
        self.inner.metrics.fell_back();
        let probe = millis(self.inner.config.get().batch_probe_interval_ms);
        if self.inner.peers.lacks(broker, feature, probe) {
            tracing::info!(broker, ?feature, "the broker lacks a feature; requests go one by one");
        }
    }
}

fn members_of<'a, E>(entries: &'a [E], members: &[usize]) -> Vec<(usize, &'a E)> {
    members.iter().filter_map(|index| entries.get(*index).map(|entry| (*index, entry))).collect()
}

fn for_all<E, R>(entries: &[(usize, E)], error: &BackendError) -> Results<R> {
    entries.iter().map(|(index, _)| (*index, Err(error.clone()))).collect()
}

fn change_entry(key: &BatchKey, entry: &ChangeEntry) -> BatchChangeInvisibleEntry {
    BatchChangeInvisibleEntry {
        consumer_group: key.group.clone(),
        topic: key.real_topic.clone(),
        queue_id: entry.lease.handle.queue_id,
        extra_info: entry.lease.handle.to_string(),
        offset: entry.lease.handle.offset,
        invisible_time: entry.invisible_ms,
        lite_topic: None,
        suspend: entry.suspend,
    }
}

/// One ack per message, so that the results are in the order of the entries. `None`: the message is too far from the
/// start of its pop to be told by a bit.
fn ack_entry(lease: &LeaseRef) -> Option<BatchAck> {
    let handle = &lease.handle;
    let distance = handle.offset.checked_sub(handle.start_offset)?;
    let mut bit_set = BitSet::new();
    bit_set.set(usize::try_from(distance).ok()?).ok()?;
    Some(BatchAck {
        consumer_group: lease.group.to_string(),
        topic: lease.topic.to_string(),
        retry: handle.topic_type,
        start_offset: handle.start_offset,
        queue_id: handle.queue_id,
        revive_queue_id: handle.revive_queue_id,
        pop_time: handle.pop_time,
        invisible_time: handle.invisible_time,
        bit_set,
    })
}

fn ack_result(code: i32, lease: &LeaseRef) -> Result<(), BackendError> {
    match code {
        response::SUCCESS => Ok(()),
        code => Err(from_code(code, "", Subject::handle(lease))),
    }
}
