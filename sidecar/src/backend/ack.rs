//! Finishing leases.

use waybill_protocol::remoting::{AckMessageRequestHeader, Command, codes::request, codes::response};

use super::{
    error::{BackendError, Subject, from_response},
    handles::real_topic,
    per_broker::{gather, group_by, one_by_one},
    service::MessageService,
    types::LeaseRef,
};

impl MessageService {
    /// Finishes leases: one result per entry, in order. An ack repeated is harmless.
    ///
    /// # Errors
    /// Per entry: `InvalidReceiptHandle` is final; see [`BackendError::is_retryable`].
    pub async fn ack(&self, mut leases: Vec<LeaseRef>) -> Vec<Result<(), BackendError>> {
        for lease in &mut leases {
            self.inner.superseded.renew(lease);
        }
        let results = match leases.as_slice() {
            [lease] => vec![self.ack_one(lease).await],
            leases => self.ack_many(leases).await,
        };
        for (lease, _) in leases.iter().zip(&results).filter(|(_, result)| result.is_ok()) {
            self.inner.superseded.finished(lease);
        }
        results
    }

    async fn ack_many(&self, leases: &[LeaseRef]) -> Vec<Result<(), BackendError>> {
        let brokers = group_by(leases.len(), |index| leases.get(index).map(|lease| lease.handle.broker_name.as_str()));
        let parts = brokers.into_iter().map(|(_, members)| self.ack_at_one_broker(leases, members));
        gather(leases.len(), parts).await
    }

    async fn ack_at_one_broker(
        &self,
        leases: &[LeaseRef],
        members: Vec<usize>,
    ) -> Vec<(usize, Result<(), BackendError>)> {
        if members.len() > 1
            && self.inner.config.get().enable_batch_ack
            && let Some(results) = self.ack_batch(leases, &members).await
        {
            return results;
        }
        let ack = |index: usize| async move {
            match leases.get(index) {
                Some(lease) => self.ack_one(lease).await,
                None => Err(BackendError::unanswered_entry()),
            }
        };
        one_by_one(members, self.fallback_concurrency(), ack).await
    }

    pub(super) async fn ack_one(&self, lease: &LeaseRef) -> Result<(), BackendError> {
        self.refuse_expired(lease)?;
        let topic = real_topic(lease);
        let header = AckMessageRequestHeader {
            consumer_group: lease.group.to_string(),
            queue_id: lease.handle.queue_id,
            extra_info: lease.handle.to_string(),
            offset: lease.handle.offset,
            topic,
        };
        let request = Command::request(request::ACK_MESSAGE).with_header(&header);
        let answer = self.ask_about(lease, request).await?;
        match answer.code {
            // The first word from this broker: now it is known whether its OK means something.
            response::SUCCESS => self.refuse_expired(lease),
            _ => Err(from_response(&answer, Subject::handle(lease))),
        }
    }

    /// Asks the broker that holds the lease. A broker that no route names makes the handle a bad one.
    pub(super) async fn ask_about(&self, lease: &LeaseRef, request: Command) -> Result<Command, BackendError> {
        match self.ask(&lease.handle.broker_name, &lease.topic, request, self.request_timeout()).await {
            Ok(answer) => Ok(answer),
            Err(unanswered) => Err(match unanswered.error {
                BackendError::UnknownBroker(name) => {
                    BackendError::InvalidReceiptHandle(format!("no broker is named {name}"))
                }
                error => error,
            }),
        }
    }

    /// Single requests at the same time where a batch cannot be sent as one.
    pub(super) fn fallback_concurrency(&self) -> usize {
        usize::try_from(self.inner.config.get().backend_fallback_concurrency).unwrap_or(1)
    }
}
