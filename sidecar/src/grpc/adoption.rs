//! Receives of a consumer whose settings this sidecar does not know.
//!
//! Published clients send their settings when they open their telemetry stream. Some do not notice that they have lost it with
//! the sidecar that had it, and would be refused for five minutes and more. Whoever goes on asking is served on the strength of
//! what its requests say: they name the group, the topic and the filter, and whether the lease is to be kept.

use std::sync::Arc;

use waybill_protocol::grpc::v2::{
    ClientType, ReceiveMessageRequest, Resource, Settings, Subscription, SubscriptionEntry, settings::PubSub,
};

use super::{Room, errors::Problem, metadata::Caller};
use crate::limits;
use crate::session::{Profile, merge};

/// What is known of the consumer that receives. One that has sent no settings, and sends none within a second, is refused, until it has asked for so long that
/// it is not about to send them.
pub(super) async fn profile(
    room: &Room,
    caller: &Caller,
    (group, topic): (&str, &str),
    request: &ReceiveMessageRequest,
) -> Result<Profile, Problem> {
    if let Some(profile) = room.sessions.profile(&caller.client_id) {
        return Ok(profile);
    }
    if !room.sessions.stranger(&caller.client_id) {
        // Some clients, the published Python client for one, do not wait for the answer to their settings.
        let soon = room.sessions.profile_within(&caller.client_id, limits::SETTINGS_WAIT).await;
        return soon.ok_or(Problem::NoSettings);
    }
    let own = settings_of((group, topic), request);
    let known = room.messages.group_config(group, Some(topic)).await?;
    let merged = Arc::new(merge(&own, &known, &room.config.get()));
    // Of all its topics, one receive shows one.
    let profile = Profile { subscribed: "".into(), ..Profile::new(Some(group.into()), Arc::new(own), merged) };
    room.sessions.adopt(&caller.client_id, profile.clone()).map_err(|_full| Problem::TooManyClients)?;
    tracing::info!(client_id = caller.client_id, group, "a client that sends no settings is served without them");
    Ok(profile)
}

/// The settings that the client would have sent, as far as a receive shows them.
fn settings_of((group, topic): (&str, &str), request: &ReceiveMessageRequest) -> Settings {
    let client_type = if request.auto_renew { ClientType::PushConsumer } else { ClientType::SimpleConsumer };
    let resource = |name: &str| Some(Resource { name: name.to_owned(), ..Resource::default() });
    let entry = SubscriptionEntry { topic: resource(topic), expression: request.filter_expression.clone() };
    let subscription = Subscription { group: resource(group), subscriptions: vec![entry], ..Subscription::default() };
    Settings {
        client_type: Some(client_type.into()),
        pub_sub: Some(PubSub::Subscription(subscription)),
        ..Settings::default()
    }
}
