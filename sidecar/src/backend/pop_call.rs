//! Taking messages.

use std::{sync::Arc, time::Duration};

use tokio::{sync::oneshot, time::Instant};
use waybill_protocol::remoting::{Command, PopMessageRequestHeader, SUBSCRIBED_TOPICS, codes::request};

use super::{
    error::{BackendError, Subject, from_response},
    pop::read_answer,
    service::{MessageService, Unanswered, millis},
    types::{ChangeEntry, LeaseRef, PopRequest, PopResult},
};
use crate::batching::Caller;
use crate::route::TopicRoute;

/// The broker takes any of its queues.
const ALL_QUEUES: i32 = -1;
/// A group without progress starts at the newest message, as in Apache's proxy.
const FROM_NEWEST: i32 = 1;
/// The broker fills in its own time, so that no clock but its own decides whether the request came too late.
const BORN_NOW: i64 = 0;

/// How long an answer that comes too late for the client is still waited for: a broker that stood still for a while gives
/// messages out afterwards, and they must not stay hidden for their whole lease.
const LATE_ANSWER: Duration = Duration::from_secs(120);

type Answer = Result<PopResult, BackendError>;

/// Waits for what a spawned pop brings. If nobody waits any longer, what it brings is given back.
struct Waiting {
    answer: oneshot::Receiver<Answer>,
    service: MessageService,
    request: Arc<PopRequest>,
}

impl MessageService {
    /// Takes messages, waiting for them up to the request's `poll_ms`.
    ///
    /// May be dropped at any time: messages that the broker gives out afterwards are given back at once and do not
    /// count as delivered. So are those of an answer that comes too late.
    ///
    /// # Errors
    /// `TopicNotFound`, `GroupNotFound`, `NoPermission` (nothing to read from, or the group may not), `IllegalFilter`,
    /// and the temporary ones.
    pub async fn pop(&self, request: PopRequest) -> Result<PopResult, BackendError> {
        let request = Arc::new(request);
        let (sender, answer) = oneshot::channel();
        let waiting = Waiting { answer, service: self.clone(), request: Arc::clone(&request) };
        let (service, asked) = (self.clone(), Arc::clone(&request));
        tokio::spawn(async move {
            let answer = service.pop_from_some_broker(&asked).await;
            if let Err(unwanted) = sender.send(answer) {
                service.give_back(&asked, unwanted).await;
            }
        });
        let patience = self.poll_timeout(request.poll_ms);
        tokio::time::timeout(patience, waiting.receive()).await.unwrap_or(Err(BackendError::Timeout))
    }

    /// Once more, for the rest of the time, if the broker refuses and there is a newer route.
    async fn pop_from_some_broker(&self, request: &PopRequest) -> Answer {
        let begin = Instant::now();
        let route = self.route(&request.topic).await?;
        let refusal = match self.pop_along(&route, request).await {
            Err(refusal) => refusal,
            popped => return popped,
        };
        match self.newer_route(&request.topic, &route, &refusal).await? {
            Some(newer) => {
                let waited = i64::try_from(begin.elapsed().as_millis()).unwrap_or(i64::MAX);
                let poll_ms = request.poll_ms.saturating_sub(waited).max(0);
                self.pop_along(&newer, &PopRequest { poll_ms, ..request.clone() }).await
            }
            None => Err(refusal),
        }
    }

    /// The broker that was asked for, or the next one; another one if it cannot be reached.
    async fn pop_along(&self, route: &TopicRoute, request: &PopRequest) -> Answer {
        let brokers = route.readable_brokers();
        let asked_for = request.broker_name.as_deref().and_then(|name| brokers.iter().position(|known| known == name));
        if let Some(name) = asked_for.and_then(|index| brokers.get(index)) {
            return self.pop_from(name, request).await.map_err(BackendError::from)?;
        }
        let first = route.next_pop();
        let mut failure = BackendError::NoPermission(format!("topic {} has no readable queue", request.topic));
        for step in 0..brokers.len() {
            let Some(name) = brokers.get(first.wrapping_add(step) % brokers.len()) else { break };
            match self.pop_from(name, request).await {
                Err(unanswered) if unanswered.not_sent => failure = unanswered.error,
                answer => return answer?,
            }
        }
        Err(failure)
    }

    async fn pop_from(&self, broker: &str, request: &PopRequest) -> Result<Answer, Unanswered> {
        let header = PopMessageRequestHeader {
            consumer_group: request.group.clone(),
            topic: request.topic.clone(),
            queue_id: ALL_QUEUES,
            max_msg_nums: request.max_messages,
            invisible_time: request.invisible_ms,
            poll_time: request.poll_ms,
            born_time: BORN_NOW,
            init_mode: FROM_NEWEST,
            exp_type: Some(request.filter.kind.as_str().to_owned()),
            exp: Some(request.filter.expression.clone()),
            order: Some(request.fifo),
            attempt_id: request.attempt_id.clone(),
            client_id: Some(request.client_id.clone()),
        };
        let mut command = Command::request(request::POP_MESSAGE).with_header(&header);
        if let Some(topics) = &request.subscribed_topics {
            command.ext.set(SUBSCRIBED_TOPICS, &**topics);
        }
        let timeout = self.poll_timeout(request.poll_ms).saturating_add(LATE_ANSWER);
        let answer = self.ask(broker, &request.topic, command, timeout).await?;
        let error = from_response(&answer, Subject { topic: &request.topic, group: &request.group, by_handle: false });
        Ok(read_answer(answer, broker, &request.topic, &self.inner.metrics).unwrap_or(Err(error)))
    }

    /// The broker ends the poll; this only notices that it does not.
    fn poll_timeout(&self, poll_ms: i64) -> Duration {
        millis(poll_ms).saturating_add(self.request_timeout())
    }

    /// Nobody wants these messages any more. They become visible at once, and the delivery does not count.
    async fn give_back(&self, request: &PopRequest, unwanted: Answer) {
        let Ok(PopResult { messages, .. }) = unwanted else { return };
        if messages.is_empty() {
            return;
        }
        self.inner.metrics.gave_back(messages.len());
        let (group, topic): (Arc<str>, Arc<str>) = (request.group.as_str().into(), request.topic.as_str().into());
        let entries = messages.into_iter().map(|message| {
            let lease = LeaseRef { group: Arc::clone(&group), topic: Arc::clone(&topic), handle: message.handle };
            (Caller::Filter, ChangeEntry { lease, invisible_ms: 0, suspend: true })
        });
        let failed = self.change_for(entries.collect()).await.iter().filter(|result| result.is_err()).count();
        if failed > 0 {
            tracing::warn!(
                group = request.group,
                topic = request.topic,
                failed,
                "messages could not be given back; they come again when their lease ends"
            );
        }
    }
}

impl Waiting {
    async fn receive(mut self) -> Answer {
        match (&mut self.answer).await {
            Ok(answer) => answer,
            Err(_) => Err(BackendError::Unavailable("the pop was aborted".to_owned())),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // The answer may have been sent in the moment between the last poll and now.
        self.answer.close();
        if let Ok(unwanted) = self.answer.try_recv() {
            let (service, request) = (self.service.clone(), Arc::clone(&self.request));
            tokio::spawn(async move { service.give_back(&request, unwanted).await });
        }
    }
}
