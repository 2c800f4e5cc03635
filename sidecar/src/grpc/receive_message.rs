//! ReceiveMessage: messages are leased to a client. The answer is a stream: the status, the messages, the time of
//! delivery.
//!
//! A broker gives messages out before anybody knows whether the client is still there. What a poll brings is a
//! [`Delivery`]: unless the stream is read to its end, it goes back to the broker at once. (A poll that is given up
//! half-way gives its messages back by itself.)

mod delivery;

use std::sync::Arc;
use std::time::{Duration, Instant};

use waybill_protocol::{
    grpc::v2::ReceiveMessageRequest,
    message::properties,
    remoting::{GroupOverrides, SubscriptionGroupConfig},
};

pub(super) use self::delivery::ReceiveStream;
use self::delivery::{Delivery, Outcome};
use super::{
    Room, adoption, errors, errors::Problem, gates::Permit, metadata::Caller, named::Named as _, needs,
    needs::Needs as _, validate,
};
use crate::access::Pass;
use crate::backend::{BackendError, ForwardRequest, LeaseRef, PopRequest, PopResult, PopStatus, PoppedMessage};
use crate::batching;
use crate::config::Config;
use crate::namespace;
use crate::receipts::{self, ChannelKind, Holder, Mode, PromiseSettings, Received};
use crate::session::{Profile, is_fifo, max_attempts};

/// A receive that was found to be in order.
struct Receive {
    pop: PopRequest,
    /// Who receives, for access control.
    pass: Pass,
    lease: Lease,
    /// How the leases are kept, if this sidecar keeps them.
    mode: Option<Mode>,
    /// Messages delivered so often are dead.
    max_attempts: i32,
    permit: Permit,
}

/// How often a poll that waits looks whether messages are to be given out in another way by now.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// The answer. It begins at once with an error, or when the poll has ended.
pub(super) async fn answer(
    room: &Arc<Room>,
    caller: Result<Caller, Problem>,
    mut request: ReceiveMessageRequest,
) -> ReceiveStream {
    let began = Instant::now();
    let resolved = request.resolve(caller.as_ref().map_or("", |caller| &caller.namespace));
    let topic = request.message_queue.as_ref().and_then(|queue| queue.topic.as_ref()).map(namespace::shown);
    let receive = match (&caller, resolved) {
        (Ok(caller), Ok(())) => check(room, caller, request).await,
        (Err(problem), _) => Err(problem.clone()),
        (_, Err(problem)) => Err(problem),
    };
    match receive {
        Ok(receive) => {
            let waiting = room.sessions.waiting_call(&receive.pop.client_id);
            ReceiveStream::polling(room.clone(), began, waiting, topic.unwrap_or_default(), poll(room.clone(), receive))
        }
        Err(problem) => ReceiveStream::refused(room.clone(), began, &problem),
    }
}

async fn check(room: &Arc<Room>, caller: &Caller, request: ReceiveMessageRequest) -> Result<Receive, Problem> {
    room.access.authorize(&caller.pass, request.needs())?;
    let permit = room.gates.receive()?;
    room.hear(caller)?;
    let queue = request.message_queue.clone().unwrap_or_default();
    // Before the settings: a client whose names are illegal has none, and is to hear why.
    let topic = validate::topic(queue.topic.as_ref())?;
    let group = validate::group(request.group.as_ref())?;
    let profile = adoption::profile(room, caller, (group, topic), &request).await?;
    let config = room.config.get();
    let poll_ms = validate::polling_ms(
        request.long_polling_timeout.as_ref(),
        caller.deadline,
        profile.own.request_timeout.as_ref(),
        caller.is_old(),
        &config,
    )?;
    let lease = wanted_lease(request.auto_renew, request.invisible_duration.as_ref(), &config)?;
    let filter = validate::filter(request.filter_expression.as_ref())?;
    let attempt_id = validate::attempt_id(request.attempt_id)?;
    let facts = GroupFacts::read(room, &profile, group, topic).await?;
    let (mode, invisible_ms) = lease.comes_to(&config, &facts);
    let batch_max = i32::try_from(config.grpc_client_consumer_long_polling_batch_size).unwrap_or(1).max(1);
    let pop = PopRequest {
        client_id: caller.client_id.clone(),
        group: group.to_owned(),
        topic: topic.to_owned(),
        broker_name: queue.broker.map(|broker| broker.name).filter(|name| !name.trim().is_empty()),
        max_messages: request.batch_size.clamp(1, batch_max),
        invisible_ms,
        poll_ms,
        filter,
        fifo: facts.fifo,
        attempt_id,
        subscribed_topics: profile.subscribed_with(topic),
    };
    let pass = caller.pass.clone();
    Ok(Receive { pop, pass, lease, mode, max_attempts: facts.max_attempts, permit })
}

/// Who decides how long the messages are hidden.
#[derive(Clone, Copy)]
enum Lease {
    /// The client: so many milliseconds. It extends the lease itself.
    Asked(i64),
    /// This sidecar, which keeps the lease for the client.
    Promised,
    /// The group: keeping leases is switched off, and the client counts on it and names no duration.
    OfGroup,
}

impl Lease {
    /// How leases are kept, if this sidecar keeps them, and how long messages are hidden at first, milliseconds.
    fn comes_to(self, config: &Config, facts: &GroupFacts) -> (Option<Mode>, i64) {
        match self {
            Self::Asked(ms) => (None, ms),
            Self::Promised => {
                let (mode, ms) = receipts::promise(
                    ChannelKind::Grpc,
                    &PromiseSettings::of(config, &facts.overrides, facts.consume_timeout_minutes),
                );
                (Some(mode), ms)
            }
            Self::OfGroup => (None, receipts::lease_of_group(config, facts.consume_timeout_minutes)),
        }
    }
}

fn wanted_lease(auto_renew: bool, asked: Option<&prost_types::Duration>, config: &Config) -> Result<Lease, Problem> {
    match (auto_renew, config.enable_proxy_auto_renew, asked) {
        (true, true, _) => Ok(Lease::Promised),
        (true, false, None) => Ok(Lease::OfGroup),
        _ => validate::receive_invisible_ms(asked, config).map(Lease::Asked),
    }
}

/// What a receive must know of the group.
struct GroupFacts {
    fifo: bool,
    max_attempts: i32,
    consume_timeout_minutes: i64,
    overrides: GroupOverrides,
}

impl GroupFacts {
    /// The group's settings as they are now; if they cannot be had for the moment, as the client was told them.
    async fn read(room: &Room, profile: &Profile, group: &str, topic: &str) -> Result<Self, Problem> {
        match room.messages.group_config(group, Some(topic)).await {
            Ok(config) => Ok(Self::of(&config)),
            Err(error) if error.is_retryable() && profile.group.as_deref() == Some(group) => {
                let told = profile.merged.backoff_policy.as_ref().map_or(1, |policy| policy.max_attempts);
                let facts = Self::of(&SubscriptionGroupConfig::default());
                Ok(Self { fifo: is_fifo(&profile.merged), max_attempts: told, ..facts })
            }
            Err(error) => Err(error.into()),
        }
    }

    fn of(config: &SubscriptionGroupConfig) -> Self {
        Self {
            fifo: config.consume_message_orderly,
            max_attempts: max_attempts(config),
            consume_timeout_minutes: config.consume_timeout_minute.into(),
            overrides: GroupOverrides::understood(&config.attributes),
        }
    }
}

/// Waits for messages.
async fn poll(room: Arc<Room>, receive: Receive) -> Outcome {
    let Receive { pop, pass, lease, mode, max_attempts, permit: _permit } = receive;
    let _waits = room.metrics.waits();
    let began = tokio::time::Instant::now();
    let result = tokio::select! {
        biased;
        () = room.draining.cancelled() => {
            // Nothing is given out any more. A client that heard so at once would ask again at once.
            let poll = Duration::from_millis(u64::try_from(pop.poll_ms).unwrap_or_default());
            let _stopped = tokio::time::timeout_at(began + poll, room.stop.cancelled()).await;
            return Outcome::refused(&Problem::NoNewMessage);
        }
        // The poll that is given up gives back what it finds.
        refusal = room.access.revoked(&pass, needs::consuming(&pop.topic, &pop.group)) => {
            return Outcome::refused(&refusal.into());
        }
        // The client asks again, and gets messages as they are to be given out now.
        () = outdated(&room, &pop, lease, mode) => return Outcome::refused(&Problem::NoNewMessage),
        result = room.messages.pop(pop.clone()) => result,
    };
    let (outcome, rejected) = Sorter { room: &room, pop: &pop, mode, max_attempts }.sort(result);
    if !rejected.is_empty() {
        let room = room.clone();
        tokio::spawn(async move { rejected.finish(&room, &pop).await });
    }
    outcome
}

/// Ends when messages are to be given out with other leases than this poll asks for: a switch was turned, here or for the group.
async fn outdated(room: &Room, pop: &PopRequest, lease: Lease, mode: Option<Mode>) {
    if let Lease::Asked(_) = lease {
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep(LOOK_AGAIN).await;
        let Ok(group) = room.messages.group_config(&pop.group, Some(&pop.topic)).await else { continue };
        if lease.comes_to(&room.config.get(), &GroupFacts::of(&group)) != (mode, pop.invisible_ms) {
            return;
        }
    }
}

/// Decides what becomes of popped messages.
struct Sorter<'a> {
    room: &'a Arc<Room>,
    pop: &'a PopRequest,
    mode: Option<Mode>,
    max_attempts: i32,
}

impl Sorter<'_> {
    fn sort(&self, result: Result<PopResult, BackendError>) -> (Outcome, Rejected) {
        let result = match result {
            Ok(result) => result,
            Err(error) => return (Outcome::refused(&error.into()), Rejected::default()),
        };
        match result.status {
            PopStatus::Found => {}
            PopStatus::NoNewMessage => return (Outcome::refused(&Problem::NoNewMessage), Rejected::default()),
            PopStatus::PollingFull => return (Outcome::refused(&Problem::PollingFull), Rejected::default()),
        }
        let (messages, rejected) = self.split(result.messages);
        if messages.is_empty() {
            return (Outcome::refused(&Problem::NoMatchingMessage), rejected);
        }
        let delivery = Delivery::new(self.room.clone(), self.pop, &messages);
        if self.keep(&messages) {
            (Outcome::found(errors::ok(), messages, delivery), rejected)
        } else {
            // The client has left meanwhile. The receipts have taken the messages over and return them.
            delivery.disarm();
            (Outcome::refused(&Problem::NoNewMessage), rejected)
        }
    }

    /// Messages for the client; the others were given out by a broker that compares hashes of tags, or that leaves dead
    /// letters to us.
    fn split(&self, messages: Vec<PoppedMessage>) -> (Vec<PoppedMessage>, Rejected) {
        let mut rejected = Rejected::default();
        let mut wanted = Vec::with_capacity(messages.len());
        for message in messages {
            let tag = properties::get(&message.message.properties, properties::TAGS);
            if !validate::wants_tag(&self.pop.filter, tag) {
                rejected.unwanted.push(message);
            } else if message.message.reconsume_times >= self.max_attempts {
                rejected.dead.push(message);
            } else {
                wanted.push(message);
            }
        }
        (wanted, rejected)
    }

    /// Hands the leases to the receipts if this sidecar keeps them. False if the client is gone.
    fn keep(&self, messages: &[PoppedMessage]) -> bool {
        let Some(mode) = self.mode else { return true };
        let received = messages.iter().map(|message| Received {
            handle: message.handle.clone(),
            message_id: message.message_id.clone(),
            reconsume_times: message.message.reconsume_times,
            mode,
        });
        let registered = self.room.receipts.register(holder(self.pop), ChannelKind::Grpc, received.collect());
        !registered.client_gone
    }
}

/// Messages that are not for the client.
#[derive(Default)]
struct Rejected {
    unwanted: Vec<PoppedMessage>,
    dead: Vec<PoppedMessage>,
}

impl Rejected {
    fn is_empty(&self) -> bool {
        self.unwanted.is_empty() && self.dead.is_empty()
    }

    /// Acknowledges what is not wanted and buries what is dead. What fails comes back by itself when its lease ends.
    async fn finish(self, room: &Room, pop: &PopRequest) {
        let (group, topic): (Arc<str>, Arc<str>) = (pop.group.as_str().into(), pop.topic.as_str().into());
        let lease =
            |message: PoppedMessage| LeaseRef { group: group.clone(), topic: topic.clone(), handle: message.handle };
        if !self.unwanted.is_empty() {
            room.messages.ack_for(batching::Caller::Filter, self.unwanted.into_iter().map(lease).collect()).await;
        }
        for message in self.dead {
            let message_id = message.message_id.clone();
            let forward = ForwardRequest { lease: lease(message), message_id, timeout: room.broker_timeout() };
            if let Err(error) = room.messages.forward_to_dlq(forward).await {
                tracing::warn!(%error, group = pop.group, "a message that was tried too often could not be buried yet");
            }
        }
    }
}

fn holder(pop: &PopRequest) -> Holder<'_> {
    Holder { client: &pop.client_id, group: &pop.group, topic: &pop.topic }
}
