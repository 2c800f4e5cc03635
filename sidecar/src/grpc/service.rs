//! The service as tonic sees it: each call is counted and handed to its own file.

use std::sync::Arc;
use std::time::Instant;

use tonic::{Request, Response, Streaming};
use waybill_protocol::grpc::v2::{self, Code, Status, messaging_service_server::MessagingService};

use super::gates::Family;
use super::metadata::Caller;
use super::named::Named;
use super::needs::Needs;
use super::{
    Parts, Room, ack_message, change_invisible_duration, end_transaction, errors::Problem, forward_to_dlq, heartbeat,
    notify_client_termination, query_assignment, query_route, recall_message, receive_message, send_message, telemetry,
    unsupported,
};

/// `apache.rocketmq.v2.MessagingService`. Cheap to clone.
#[derive(Clone)]
pub struct Messaging {
    room: Arc<Room>,
}

impl Messaging {
    /// The service over these parts.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        Self { room: Arc::new(Room::new(parts)) }
    }

    /// Lets a call in, or says why not.
    fn enter<Q>(&self, request: &Request<Q>, family: Family) -> Result<(Caller, super::gates::Permit), Problem> {
        let caller = Caller::admit(request.metadata(), &self.room.access)?;
        let permit = self.room.gates.call(family)?;
        self.room.hear(&caller)?;
        Ok((caller, permit))
    }

    /// Puts the namespace into the names of a request, and lets it pass if the caller may have it.
    fn check<Q: Named + Needs>(&self, caller: &Caller, request: &mut Q) -> Result<(), Problem> {
        request.resolve(&caller.namespace)?;
        Ok(self.room.access.authorize(&caller.pass, request.needs())?)
    }

    /// Counts a call and makes an answer of whatever came of it.
    fn finish<A: Answer>(&self, method: &'static str, began: Instant, result: Result<A, Problem>) -> Reply<A> {
        let answer = result.unwrap_or_else(|problem| A::refused(problem.status()));
        self.room.metrics.call(method, answer.code(), began.elapsed());
        Ok(Response::new(answer))
    }

    fn not_built<A>(&self, method: &'static str) -> Reply<A> {
        self.room.metrics.call(method, Code::NotImplemented.into(), std::time::Duration::ZERO);
        let path = format!("Method apache.rocketmq.v2.MessagingService/{method} is unimplemented");
        Err(tonic::Status::unimplemented(path))
    }
}

type Reply<A> = Result<Response<A>, tonic::Status>;

/// An answer that carries a status.
trait Answer {
    /// Nothing but the reason.
    fn refused(status: Status) -> Self;
    /// The code in it.
    fn code(&self) -> i32;
}

macro_rules! answers {
    ($($name:ident),* $(,)?) => { $(
        impl Answer for v2::$name {
            fn refused(status: Status) -> Self {
                let mut answer = Self::default();
                answer.status = Some(status);
                answer
            }

            fn code(&self) -> i32 {
                self.status.as_ref().map_or(Code::Unspecified.into(), |status| status.code)
            }
        }
    )* };
}

answers!(
    QueryRouteResponse,
    HeartbeatResponse,
    SendMessageResponse,
    QueryAssignmentResponse,
    AckMessageResponse,
    ForwardMessageToDeadLetterQueueResponse,
    EndTransactionResponse,
    NotifyClientTerminationResponse,
    ChangeInvisibleDurationResponse,
    RecallMessageResponse,
    SyncLiteSubscriptionResponse,
);

/// `$answer(room, caller, request)`, let in and counted.
macro_rules! unary {
    ($self:ident, $request:ident, $method:literal, $family:ident, $answer:path) => {{
        let began = Instant::now();
        let result = match $self.enter(&$request, Family::$family) {
            Ok((caller, _permit)) => {
                let mut request = $request.into_inner();
                match $self.check(&caller, &mut request) {
                    Ok(()) => $answer(&$self.room, &caller, request).await,
                    Err(problem) => Err(problem),
                }
            }
            Err(problem) => Err(problem),
        };
        $self.finish($method, began, result)
    }};
}

#[tonic::async_trait]
impl MessagingService for Messaging {
    type ReceiveMessageStream = receive_message::ReceiveStream;
    type PullMessageStream = tokio_stream::Empty<Result<v2::PullMessageResponse, tonic::Status>>;
    type TelemetryStream = telemetry::TelemetryStream;

    async fn query_route(&self, request: Request<v2::QueryRouteRequest>) -> Reply<v2::QueryRouteResponse> {
        unary!(self, request, "QueryRoute", Route, query_route::answer)
    }

    async fn heartbeat(&self, request: Request<v2::HeartbeatRequest>) -> Reply<v2::HeartbeatResponse> {
        unary!(self, request, "Heartbeat", Client, heartbeat::answer)
    }

    async fn send_message(&self, request: Request<v2::SendMessageRequest>) -> Reply<v2::SendMessageResponse> {
        let peer = request.remote_addr().map(|address| address.ip().to_string()).unwrap_or_default();
        let answer = |room, _caller, request| send_message::answer(room, request, &peer);
        unary!(self, request, "SendMessage", Producer, answer)
    }

    async fn query_assignment(
        &self,
        request: Request<v2::QueryAssignmentRequest>,
    ) -> Reply<v2::QueryAssignmentResponse> {
        unary!(self, request, "QueryAssignment", Route, query_assignment::answer)
    }

    async fn receive_message(&self, request: Request<v2::ReceiveMessageRequest>) -> Reply<Self::ReceiveMessageStream> {
        let caller = Caller::admit(request.metadata(), &self.room.access);
        Ok(Response::new(receive_message::answer(&self.room, caller, request.into_inner()).await))
    }

    async fn ack_message(&self, request: Request<v2::AckMessageRequest>) -> Reply<v2::AckMessageResponse> {
        unary!(self, request, "AckMessage", Consumer, ack_message::answer)
    }

    async fn forward_message_to_dead_letter_queue(
        &self,
        request: Request<v2::ForwardMessageToDeadLetterQueueRequest>,
    ) -> Reply<v2::ForwardMessageToDeadLetterQueueResponse> {
        unary!(self, request, "ForwardMessageToDeadLetterQueue", Producer, forward_to_dlq::answer)
    }

    async fn end_transaction(&self, request: Request<v2::EndTransactionRequest>) -> Reply<v2::EndTransactionResponse> {
        unary!(self, request, "EndTransaction", Producer, end_transaction::answer)
    }

    async fn telemetry(&self, request: Request<Streaming<v2::TelemetryCommand>>) -> Reply<Self::TelemetryStream> {
        let caller = Caller::admit(request.metadata(), &self.room.access).map_err(|problem| problem.stream_error())?;
        Ok(Response::new(telemetry::answer(&self.room, caller, request.into_inner())))
    }

    async fn notify_client_termination(
        &self,
        request: Request<v2::NotifyClientTerminationRequest>,
    ) -> Reply<v2::NotifyClientTerminationResponse> {
        unary!(self, request, "NotifyClientTermination", Client, notify_client_termination::answer)
    }

    async fn change_invisible_duration(
        &self,
        request: Request<v2::ChangeInvisibleDurationRequest>,
    ) -> Reply<v2::ChangeInvisibleDurationResponse> {
        let handle = request.get_ref().receipt_handle.clone();
        let mut reply: Reply<v2::ChangeInvisibleDurationResponse> =
            unary!(self, request, "ChangeInvisibleDuration", Consumer, change_invisible_duration::answer);
        if let Ok(answer) = &mut reply
            && answer.get_ref().code() == i32::from(Code::TooManyRequests)
        {
            // The client takes the handle of any answer for its newest: here that is the one it has.
            answer.get_mut().receipt_handle = handle;
        }
        reply
    }

    async fn recall_message(&self, request: Request<v2::RecallMessageRequest>) -> Reply<v2::RecallMessageResponse> {
        unary!(self, request, "RecallMessage", Producer, recall_message::answer)
    }

    async fn sync_lite_subscription(
        &self,
        request: Request<v2::SyncLiteSubscriptionRequest>,
    ) -> Reply<v2::SyncLiteSubscriptionResponse> {
        unary!(self, request, "SyncLiteSubscription", Client, unsupported::sync_lite_subscription)
    }

    async fn pull_message(&self, _: Request<v2::PullMessageRequest>) -> Reply<Self::PullMessageStream> {
        self.not_built("PullMessage")
    }

    async fn update_offset(&self, _: Request<v2::UpdateOffsetRequest>) -> Reply<v2::UpdateOffsetResponse> {
        self.not_built("UpdateOffset")
    }

    async fn get_offset(&self, _: Request<v2::GetOffsetRequest>) -> Reply<v2::GetOffsetResponse> {
        self.not_built("GetOffset")
    }

    async fn query_offset(&self, _: Request<v2::QueryOffsetRequest>) -> Reply<v2::QueryOffsetResponse> {
        self.not_built("QueryOffset")
    }
}
