//! The words that the receipt manager and its callers share.

use waybill_protocol::handle::ReceiptHandle;

/// How a client is connected. Decides whether the switch `enableGrpcChannelReceiptHandleRenew` applies to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChannelKind {
    /// A gRPC client.
    Grpc,
    /// A client that speaks the remoting protocol. It is always renewed, whatever the switch says.
    Remoting,
}

/// What a client was promised when its messages were popped. A later flip of the switch does not change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// A short lease that is extended as long as the client holds the message.
    Renew,
    /// One long lease: kept, returned when the client leaves, never extended.
    Keep,
}

/// Whose messages an operation is about. The topic is the one the client asked for, never a retry topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder<'a> {
    /// The client id.
    pub client: &'a str,
    /// The consumer group.
    pub group: &'a str,
    /// The topic.
    pub topic: &'a str,
}

/// One message that was popped and is about to be given to a client.
#[derive(Clone, Debug)]
pub struct Received {
    /// The lease as the broker gave it.
    pub handle: ReceiptHandle,
    /// The message id the client sees.
    pub message_id: String,
    /// How often the message was delivered before (`reconsumeTimes`); chooses the back-off when renewal ends.
    pub reconsume_times: i32,
    /// What was promised at the pop, see [`promise`](super::promise).
    pub mode: Mode,
}

/// What became of the messages of one `register`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registered {
    /// So many are held now.
    pub held: usize,
    /// Positions, in the order given, of those not held because a limit was reached (counted in the metrics). They may
    /// still be delivered; their leases simply run out by themselves.
    pub refused: Vec<usize>,
    /// The client is gone, or the sidecar releases everything: the messages were taken over only to be returned to the
    /// broker, and must not be delivered.
    pub client_gone: bool,
}

/// How an ack, or a forward to the dead-letter topic, ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckOutcome {
    /// The broker did it: the handle is forgotten.
    Done,
    /// The broker says that the handle is dead (INVALID_RECEIPT_HANDLE): the handle is forgotten.
    Gone,
    /// Anything else: the handle stays, so that the client's retry finds it, and is renewed further.
    Failed,
}

/// How a change of the invisible duration ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeOutcome {
    /// The client goes on holding the message: the new handle is registered, renewal goes on from the new deadline.
    Extended(ReceiptHandle),
    /// The client wants the message back later (a negative ack): it is neither renewed nor returned early any more; old
    /// handles still find the new one until the new deadline.
    LetGo(ReceiptHandle),
    /// The broker says that the handle is dead: it is forgotten.
    Gone,
    /// Anything else: the handle stays as it was.
    Failed,
}

/// What happens to held messages when the sidecar stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainPolicy {
    /// They are returned to the brokers, so that other consumers get them at once.
    Release,
    /// They are not renewed any more and become visible when their leases end; clients may ack through another sidecar
    /// until then.
    LeaveToLease,
}

/// How a drain ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrainReport {
    /// Returned to the brokers.
    pub returned: u64,
    /// Still held at the end: acks that did not end, returns that did not succeed, or all that was left to its lease.
    pub left: u64,
}

/// How much the manager holds and does at this moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Handles held, of every kind.
    pub held: u64,
    /// Of these, handles in [`Mode::Keep`].
    pub kept: u64,
    /// Of these, handles whose renewal failed for good.
    pub gave_up: u64,
    /// Of these, handles whose client has let go; remembered only for late acks.
    pub let_go: u64,
    /// Due and waiting for a free request to their broker.
    pub due: u64,
    /// Part of a request that is under way.
    pub in_flight: u64,
    /// Being returned (waiting or under way).
    pub returning: u64,
    /// Clients that hold something or left a moment ago.
    pub clients: u64,
}
