//! Changing how long messages stay hidden.

use futures::{StreamExt, stream};
use waybill_protocol::{
    handle::ReceiptHandle,
    remoting::{
        ChangeInvisibleTimeRequestHeader, ChangeInvisibleTimeResponseHeader, Command,
        codes::{request, response},
    },
};

use super::{
    error::{BackendError, Subject, from_response, unreadable},
    handles::{changed, real_topic},
    per_broker::{gather, group_by, one_by_one},
    service::MessageService,
    types::ChangeEntry,
};

/// Batches to one broker at the same time.
const BATCHES_IN_FLIGHT: usize = 4;

/// What the entries of one batch have in common. The topic is the one the broker keeps the messages in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct BatchKey {
    pub(super) broker: String,
    pub(super) group: String,
    pub(super) real_topic: String,
}

/// The result of each entry, by its number.
type Changed = Vec<(usize, Result<ReceiptHandle, BackendError>)>;

impl MessageService {
    /// Changes leases: one result per entry, in order, each with the new handle.
    ///
    /// # Errors
    /// Per entry: `InvalidReceiptHandle` is final; see [`BackendError::is_retryable`].
    pub async fn change_invisible(&self, mut entries: Vec<ChangeEntry>) -> Vec<Result<ReceiptHandle, BackendError>> {
        for entry in &mut entries {
            self.inner.superseded.renew(&mut entry.lease);
        }
        let results = match entries.as_slice() {
            [entry] => vec![self.change_one(entry).await],
            entries => self.change_many(entries).await,
        };
        let now_ms = self.inner.clock.now_ms();
        for (entry, result) in entries.iter().zip(&results) {
            if let Ok(newest) = result {
                self.inner.superseded.replaced(&entry.lease, newest, now_ms);
            }
        }
        results
    }

    async fn change_many(&self, entries: &[ChangeEntry]) -> Vec<Result<ReceiptHandle, BackendError>> {
        let key = |index: usize| {
            entries.get(index).map(|ChangeEntry { lease, .. }| BatchKey {
                broker: lease.handle.broker_name.clone(),
                group: lease.group.to_string(),
                real_topic: real_topic(lease),
            })
        };
        let groups = group_by(entries.len(), key);
        let parts = groups.into_iter().filter_map(|(key, members)| Some(self.change_group(key?, entries, members)));
        gather(entries.len(), parts).await
    }

    /// Entries of one broker, group and topic.
    async fn change_group(&self, key: BatchKey, entries: &[ChangeEntry], members: Vec<usize>) -> Changed {
        let config = self.inner.config.get();
        if !config.enable_batch_change_invisible_time {
            return self.change_singly(entries, members).await;
        }
        let max = usize::try_from(config.batch_change_invisible_time_max_num).unwrap_or(1).max(1);
        let chunks: Vec<Vec<usize>> = members.chunks(max).map(<[usize]>::to_vec).collect();
        let chunks = chunks.into_iter().map(|chunk| self.change_chunk(&key, entries, chunk));
        stream::iter(chunks).buffer_unordered(BATCHES_IN_FLIGHT).concat().await
    }

    async fn change_chunk(&self, key: &BatchKey, entries: &[ChangeEntry], members: Vec<usize>) -> Changed {
        if members.len() > 1
            && let Some(results) = self.change_batch(key, entries, &members).await
        {
            return results;
        }
        self.change_singly(entries, members).await
    }

    async fn change_singly(&self, entries: &[ChangeEntry], members: Vec<usize>) -> Changed {
        let change = |index: usize| async move {
            match entries.get(index) {
                Some(entry) => self.change_one(entry).await,
                None => Err(BackendError::unanswered_entry()),
            }
        };
        one_by_one(members, self.fallback_concurrency(), change).await
    }

    async fn change_one(&self, entry: &ChangeEntry) -> Result<ReceiptHandle, BackendError> {
        let lease = &entry.lease;
        self.refuse_expired(lease)?;
        let header = ChangeInvisibleTimeRequestHeader {
            consumer_group: lease.group.to_string(),
            topic: real_topic(lease),
            queue_id: lease.handle.queue_id,
            extra_info: lease.handle.to_string(),
            offset: lease.handle.offset,
            invisible_time: entry.invisible_ms,
            lite_topic: None,
            suspend: Some(entry.suspend),
        };
        let request = Command::request(request::CHANGE_MESSAGE_INVISIBLETIME).with_header(&header);
        let answer = self.ask_about(lease, request).await?;
        if answer.code != response::SUCCESS {
            return Err(from_response(&answer, Subject::handle(lease)));
        }
        let header: ChangeInvisibleTimeResponseHeader = answer.header().map_err(unreadable)?;
        changed(&lease.handle, &header)
    }
}
