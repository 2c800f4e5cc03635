//! Messages on their way to a client, and the stream that carries them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use futures::{Stream, future::BoxFuture};
use waybill_protocol::grpc::v2::{ReceiveMessageResponse, Resource, Status, receive_message_response::Content};
use waybill_protocol::handle::ReceiptHandle;

use super::super::{Room, convert, errors::Problem};
use crate::backend::{PopRequest, PoppedMessage};
use crate::namespace;
use crate::receipts::{ChannelKind, Holder};
use crate::session::WaitingCall;

/// The right of a client to messages that were leased for it. Dropped before [`Delivery::done`], it gives them back to
/// the broker.
pub(super) struct Delivery {
    room: Arc<Room>,
    client: String,
    group: String,
    topic: String,
    handles: Vec<ReceiptHandle>,
    bytes: usize,
}

impl Delivery {
    pub(super) fn new(room: Arc<Room>, pop: &PopRequest, messages: &[PoppedMessage]) -> Self {
        Self {
            room,
            client: pop.client_id.clone(),
            group: pop.group.clone(),
            topic: pop.topic.clone(),
            handles: messages.iter().map(|message| message.handle.clone()).collect(),
            bytes: messages.iter().map(|message| message.message.body.len()).sum(),
        }
    }

    /// The client has the messages.
    fn done(mut self) {
        self.room.metrics.delivered(self.handles.len(), self.bytes);
        self.handles.clear();
    }

    /// Somebody else has taken the messages over.
    pub(super) fn disarm(mut self) {
        self.handles.clear();
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        let handles = std::mem::take(&mut self.handles);
        if !handles.is_empty() {
            self.room.metrics.undelivered(handles.len());
            let holder = Holder { client: &self.client, group: &self.group, topic: &self.topic };
            self.room.receipts.give_back(holder, ChannelKind::Grpc, handles);
        }
    }
}

/// How a receive ended.
pub(super) struct Outcome {
    status: Status,
    messages: Vec<PoppedMessage>,
    delivery: Option<Delivery>,
}

impl Outcome {
    pub(super) fn refused(problem: &Problem) -> Self {
        Self { status: problem.status(), messages: Vec::new(), delivery: None }
    }

    pub(super) fn found(status: Status, messages: Vec<PoppedMessage>, delivery: Delivery) -> Self {
        Self { status, messages, delivery: Some(delivery) }
    }
}

/// The answer to a receive: status, messages, time of delivery.
///
/// A client that resets the call, or whose connection breaks, before the end of the stream has not received anything:
/// clients hand messages to the application only when the call has ended well.
pub struct ReceiveStream {
    room: Arc<Room>,
    began: Instant,
    /// While the stream is open the client is there.
    _waiting: Option<WaitingCall>,
    /// The topic as the client calls it.
    topic: Resource,
    state: State,
}

enum State {
    Polling(BoxFuture<'static, Outcome>),
    Status(Outcome),
    Messages(std::vec::IntoIter<PoppedMessage>, Option<Delivery>),
    Ending(Option<Delivery>),
    Done,
}

impl ReceiveStream {
    /// The poll is under way.
    pub(super) fn polling(
        room: Arc<Room>,
        began: Instant,
        waiting: WaitingCall,
        topic: Resource,
        poll: impl Future<Output = Outcome> + Send + 'static,
    ) -> Self {
        Self { room, began, _waiting: Some(waiting), topic, state: State::Polling(Box::pin(poll)) }
    }

    /// There will be no poll.
    pub(super) fn refused(room: Arc<Room>, began: Instant, problem: &Problem) -> Self {
        let state = State::Status(Outcome::refused(problem));
        Self { room, began, _waiting: None, topic: Resource::default(), state }
    }
}

impl Stream for ReceiveStream {
    type Item = Result<ReceiveMessageResponse, tonic::Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if let State::Polling(poll) = &mut this.state {
            let outcome = ready!(poll.as_mut().poll(context));
            this.state = State::Status(outcome);
        }
        let content = match std::mem::replace(&mut this.state, State::Done) {
            State::Status(Outcome { status, messages, delivery }) => {
                this.room.metrics.call("ReceiveMessage", status.code, this.began.elapsed());
                this.state = State::Messages(messages.into_iter(), delivery);
                Content::Status(status)
            }
            State::Messages(mut messages, delivery) => match messages.next() {
                Some(message) => {
                    this.state = State::Messages(messages, delivery);
                    let mut message = convert::incoming(message, this.room.body_max());
                    namespace::show_message(&mut message, &this.topic);
                    Content::Message(message)
                }
                None => {
                    this.state = State::Ending(delivery);
                    Content::DeliveryTimestamp(convert::timestamp(this.room.clock.now_ms()))
                }
            },
            State::Ending(Some(delivery)) => {
                delivery.done();
                return Poll::Ready(None);
            }
            State::Ending(None) | State::Done | State::Polling(_) => return Poll::Ready(None),
        };
        Poll::Ready(Some(Ok(ReceiveMessageResponse { content: Some(content) })))
    }
}
