//! The backend as the receipt manager sees it.

use std::sync::Arc;

use async_trait::async_trait;
use waybill_protocol::{handle::ReceiptHandle, remoting::RetrySchedule};

use super::{
    error::BackendError,
    service::MessageService,
    types::{ChangeEntry, LeaseRef},
};
use crate::{
    batching::{Kind, Sending},
    receipts::{Change, ChangeError, Changer, MAX_REQUESTS_PER_BROKER},
};

#[async_trait]
impl Changer for MessageService {
    async fn change_invisible(
        &self,
        group: &Arc<str>,
        topic: &Arc<str>,
        changes: Vec<Change>,
    ) -> Vec<Result<ReceiptHandle, ChangeError>> {
        let entries = changes
            .into_iter()
            .map(|change| {
                let lease = LeaseRef { group: Arc::clone(group), topic: Arc::clone(topic), handle: change.handle };
                let entry = ChangeEntry { lease, invisible_ms: change.invisible_ms, suspend: change.suspend };
                (change.caller, entry)
            })
            .collect();
        self.change_for(entries).await.into_iter().map(|result| result.map_err(why)).collect()
    }

    fn batch_limit(&self, broker: &str) -> usize {
        match self.sending(broker, Kind::Change) {
            Sending::Batches { entries, .. } => entries,
            // All its calls together fill what may be under way, and so none waits for another.
            Sending::Singly => (self.fallback_concurrency() / MAX_REQUESTS_PER_BROKER).max(1),
        }
    }

    async fn retry_delay_ms(&self, group: &Arc<str>, topic: &Arc<str>, reconsume_times: i32) -> Option<i64> {
        let config = self.group_config(group, Some(topic)).await.ok()?;
        let failures = u32::try_from(reconsume_times).unwrap_or_default().saturating_add(1);
        Some(RetrySchedule::of(&config).delay_ms(failures))
    }
}

fn why(error: BackendError) -> ChangeError {
    match error {
        BackendError::InvalidReceiptHandle(_) | BackendError::TopicNotFound(_) | BackendError::GroupNotFound(_) => {
            ChangeError::Gone
        }
        BackendError::Busy(_) => ChangeError::Busy,
        BackendError::Timeout => ChangeError::Timeout,
        BackendError::Unavailable(_) => ChangeError::Unavailable,
        BackendError::NoPermission(_) | BackendError::NotSupported | BackendError::UnknownBroker(_) => {
            ChangeError::Refused
        }
        BackendError::Illegal(_)
        | BackendError::IllegalFilter(_)
        | BackendError::DeliveryTooFar(_)
        | BackendError::TooLate(_)
        | BackendError::MessageNotFound(_)
        | BackendError::Other { .. } => ChangeError::Other,
    }
}
