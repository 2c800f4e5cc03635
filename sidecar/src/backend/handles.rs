//! What is done to receipt handles on their way.

use waybill_protocol::{handle::ReceiptHandle, remoting::ChangeInvisibleTimeResponseHeader};

use super::{error::BackendError, service::MessageService, types::LeaseRef};

/// The handle after a change: `answer` has the new parts.
pub(super) fn changed(
    old: &ReceiptHandle,
    answer: &ChangeInvisibleTimeResponseHeader,
) -> Result<ReceiptHandle, BackendError> {
    // Apache answers a FIFO message that is already acked with success and zeros.
    if answer.pop_time <= 0 {
        return Err(BackendError::InvalidReceiptHandle("the message is no longer held".to_owned()));
    }
    Ok(ReceiptHandle {
        start_offset: old.offset,
        pop_time: answer.pop_time,
        invisible_time: answer.invisible_time,
        revive_queue_id: answer.revive_qid,
        ..old.clone()
    })
}

/// The topic that the broker keeps the message in: the topic, or its retry topic of this group.
pub(super) fn real_topic(lease: &LeaseRef) -> String {
    lease.handle.real_topic(&lease.group, &lease.topic)
}

/// The length of a text as JSON writes it, without the quotes.
pub(super) fn json_len(text: &str) -> usize {
    let written = |byte: u8| match byte {
        b'"' | b'\\' => 2,
        0..=0x1f => 6,
        _ => 1,
    };
    text.bytes().map(written).sum()
}

impl MessageService {
    /// Refuses a lease that no broker can know, or that is over: where the answer is certain, nobody need be asked.
    pub(super) fn refuse_hopeless(&self, lease: &LeaseRef) -> Result<(), BackendError> {
        let handle = &lease.handle;
        if handle.queue_id < 0 || handle.offset < 0 || handle.pop_time <= 0 || handle.broker_name.is_empty() {
            return Err(BackendError::InvalidReceiptHandle("it names no delivery".to_owned()));
        }
        self.refuse_expired(lease)
    }

    /// Refuses a lease that is over where the broker would not: an OK without effect helps nobody.
    ///
    /// The sidecar's clock may be off by a little, so the benefit of the doubt goes to the client.
    pub(super) fn refuse_expired(&self, lease: &LeaseRef) -> Result<(), BackendError> {
        const DOUBT_MS: i64 = 500;
        let over = lease.handle.next_visible_time().saturating_add(DOUBT_MS) < self.inner.clock.now_ms();
        if over && self.inner.peers.confirms_expired_leases(&lease.handle.broker_name) {
            return Err(BackendError::InvalidReceiptHandle("the invisible duration is over".to_owned()));
        }
        Ok(())
    }
}
