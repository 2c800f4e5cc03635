//! Telemetry: the conversation that lasts as long as the client. The client opens with its settings; the server answers
//! with those that hold, and may send commands later.
//!
//! Each stream has a task of its own and a bounded queue, so no client waits for another.

use std::sync::Arc;
use std::time::Instant;

use prost::Message as _;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use waybill_protocol::{
    grpc::v2::{Code, Settings, TelemetryCommand, settings::PubSub, telemetry_command::Command},
    remoting::SubscriptionGroupConfig,
};

use super::{Room, errors::Problem, metadata::Caller, named::Named as _, needs::Needs as _, validate};
use crate::backend::BackendError;
use crate::limits;
use crate::session::{CommandSender, Profile, carry_over, merge, settings_command};

/// What the client gets.
pub(super) type TelemetryStream = ReceiverStream<Result<TelemetryCommand, tonic::Status>>;

/// Answers at once, before the client has said anything: some clients wait for the headers before they speak.
pub(super) fn answer(room: &Arc<Room>, caller: Caller, inbound: Streaming<TelemetryCommand>) -> TelemetryStream {
    let (sender, receiver) = mpsc::channel(limits::TELEMETRY_QUEUE);
    let stream = room.sessions.next_stream();
    let conversation = Conversation { room: room.clone(), caller, stream, sender };
    tokio::spawn(conversation.run(inbound));
    ReceiverStream::new(receiver)
}

struct Conversation {
    room: Arc<Room>,
    caller: Caller,
    stream: u64,
    sender: CommandSender,
}

impl Conversation {
    /// Ends when the client does, when its settings are refused, when its user may no longer have what they name, or when the
    /// process stops.
    async fn run(self, mut inbound: Streaming<TelemetryCommand>) {
        let mut known: Option<Arc<Settings>> = None;
        loop {
            let needs = known.as_ref().map(|own| own.needs()).unwrap_or_default();
            let command = tokio::select! {
                command = inbound.message() => command,
                refusal = self.room.access.revoked(&self.caller.pass, needs) => {
                    // A client that does not read learns it from its next call.
                    let _full = self.sender.try_send(Err(Problem::from(refusal).stream_error()));
                    break;
                }
                () = self.sender.closed() => break,
                () = self.room.stop.cancelled() => break,
            };
            // An error here is the loss of the connection; both are the end of the client's side.
            let Ok(Some(command)) = command else { break };
            if let Err(problem) = self.room.hear(&self.caller) {
                let _full = self.sender.try_send(Err(problem.stream_error()));
                break;
            }
            // Answers to commands of the server: it has sent none that has an answer.
            let Some(Command::Settings(settings)) = command.command else { continue };
            let began = Instant::now();
            let answer = self.settings(settings).await.map(|(own, told)| {
                known = Some(own);
                told
            });
            let code = answer.as_ref().map_or_else(Problem::code, |_| Code::Ok);
            self.room.metrics.call("Telemetry", code.into(), began.elapsed());
            let refused = answer.is_err();
            let answer = answer.map_err(|problem| problem.stream_error());
            if self.sender.send(answer).await.is_err() || refused {
                break;
            }
        }
        self.room.sessions.stream_closed(&self.caller.client_id, self.stream);
    }

    /// The client's settings as they are from now on, and what it is told.
    async fn settings(&self, mut own: Settings) -> Result<(Arc<Settings>, TelemetryCommand), Problem> {
        own.resolve(&self.caller.namespace)?;
        let group = check(&own)?;
        self.room.access.authorize(&self.caller.pass, own.needs())?;
        let merged = Arc::new(self.merged(&own, group.as_deref()).await?);
        let command = settings_command(&merged);
        let own = Arc::new(own);
        let profile = Profile::new(group, Arc::clone(&own), merged);
        let registered = self.room.sessions.register(&self.caller.client_id, profile, self.stream, self.sender.clone());
        registered.map_err(|_full| Problem::TooManyClients)?;
        Ok((own, command))
    }

    /// The client must hear the truth in the first answer (whether its group is ordered), so it is sent away if the
    /// broker cannot be asked; but one that was told before keeps what it was told.
    async fn merged(&self, own: &Settings, group: Option<&str>) -> Result<Settings, Problem> {
        let config = self.room.config.get();
        let Some(name) = group else { return Ok(merge(own, &SubscriptionGroupConfig::default(), &config)) };
        match self.room.messages.group_config(name, first_topic(own)).await {
            Ok(group) => Ok(merge(own, &group, &config)),
            // The group may come into being later, and a client whose stream ends here may wait for ever. It is told
            // when it receives, and at a heartbeat what the group is like.
            Err(BackendError::GroupNotFound(_)) => Ok(merge(own, &SubscriptionGroupConfig::default(), &config)),
            Err(error) => match self.room.sessions.profile(&self.caller.client_id) {
                Some(before) if error.is_retryable() && before.group.as_deref() == group => {
                    Ok(carry_over(own, &before.merged, &config))
                }
                _ => Err(error.into()),
            },
        }
    }
}

/// What settings must look like. Answers the consumer's group.
fn check(own: &Settings) -> Result<Option<Arc<str>>, Problem> {
    if own.encoded_len() > limits::SETTINGS_BYTES {
        return Err(Problem::SettingsTooLarge);
    }
    match &own.pub_sub {
        None => Err(Problem::NoPublishingOrSubscription),
        Some(PubSub::Publishing(publishing)) => {
            for topic in &publishing.topics {
                validate::topic(Some(topic))?;
            }
            Ok(None)
        }
        Some(PubSub::Subscription(subscription)) => {
            let group = validate::group(subscription.group.as_ref())?;
            for entry in &subscription.subscriptions {
                validate::topic(entry.topic.as_ref())?;
            }
            Ok(Some(group.into()))
        }
    }
}

/// A topic of a consumer, by which the brokers that know its group are found.
pub(super) fn first_topic(own: &Settings) -> Option<&str> {
    let Some(PubSub::Subscription(subscription)) = &own.pub_sub else { return None };
    subscription.subscriptions.first()?.topic.as_ref().map(|topic| topic.name.as_str())
}
