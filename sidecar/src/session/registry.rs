//! Which clients there are and which of them have left: a plain data structure that is given the time.
//!
//! A client is known from its first settings until it says goodbye or is silent for `channelExpiredTimeout`. Between
//! the two it may be *away*: its telemetry stream is closed and nothing was heard of it for a short grace. An away client
//! keeps its settings, because it may come back, but what it holds is given to others.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use waybill_protocol::grpc::v2::{Resource, Settings, settings::PubSub};

use crate::limits;

/// What a client said of itself, and what it was answered.
#[derive(Debug, Clone)]
pub struct Profile {
    /// The consumer group; none for producers.
    pub group: Option<Arc<str>>,
    /// The settings as the client sent them.
    pub own: Arc<Settings>,
    /// The settings that hold, as the client knows them.
    pub merged: Arc<Settings>,
    /// All topics that a consumer subscribes to, sorted and joined by commas; empty if they are not known.
    pub subscribed: Arc<str>,
}

impl Profile {
    /// What settings say.
    #[must_use]
    pub fn new(group: Option<Arc<str>>, own: Arc<Settings>, merged: Arc<Settings>) -> Self {
        let mut topics: Vec<&str> = match &own.pub_sub {
            Some(PubSub::Subscription(subscription)) => subscription
                .subscriptions
                .iter()
                .filter_map(|entry| Some(entry.topic.as_ref()?.name.as_str()))
                .collect(),
            _ => Vec::new(),
        };
        topics.sort_unstable();
        topics.dedup();
        let subscribed = topics.join(",").into();
        Self { group, own, merged, subscribed }
    }

    /// All topics that a consumer of `topic` subscribes to; `None` if they are not known, or not well: some clients subscribe without
    /// saying so.
    #[must_use]
    pub fn subscribed_with(&self, topic: &str) -> Option<Arc<str>> {
        self.subscribed.split(',').any(|known| known == topic).then(|| self.subscribed.clone())
    }

    /// The topics that a producer publishes to; a consumer publishes to none.
    fn publishes(&self) -> &[Resource] {
        match &self.own.pub_sub {
            Some(PubSub::Publishing(publishing)) => &publishing.topics,
            _ => &[],
        }
    }
}

/// The registry is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

/// A client that left, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Departure {
    /// The client.
    pub(super) client_id: String,
    /// It is no longer known; otherwise it is only away.
    pub(super) forgotten: bool,
    /// It is in a consumer group, so it may hold something.
    pub(super) consumes: bool,
}

/// Which silence makes a client away or forgotten, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// After its telemetry stream closed: away.
    pub(super) stream_closed_ms: i64,
    /// When it goes on calling without one: away.
    pub(super) streamless_ms: i64,
    /// In any case: forgotten.
    pub(super) expired_ms: i64,
}

#[derive(Debug)]
struct Client<S> {
    profile: Profile,
    heard_ms: i64,
    /// The open telemetry stream: its number, and what sends to it.
    stream: Option<(u64, S)>,
    /// When the stream closed.
    closed_ms: i64,
    /// It went on calling afterwards: it has not noticed, or does not mind.
    streamless: bool,
    /// Calls that wait for something: while there is one, the client is there.
    calls: usize,
    away: bool,
}

/// The clients of this sidecar. `S` is what sends to a telemetry stream.
#[derive(Debug)]
pub(super) struct Registry<S> {
    clients: HashMap<String, Client<S>>,
}

impl<S> Default for Registry<S> {
    fn default() -> Self {
        Self { clients: HashMap::new() }
    }
}

impl<S> Registry<S> {
    /// The client sent settings over the telemetry stream with that number; an older stream of the client no longer
    /// counts.
    pub(super) fn register(
        &mut self,
        now_ms: i64,
        client_id: &str,
        profile: Profile,
        stream: (u64, S),
    ) -> Result<(), Full> {
        if let Some(client) = self.clients.get_mut(client_id) {
            client.profile = profile;
            client.heard_ms = now_ms;
            client.stream = Some(stream);
            client.streamless = false;
            client.away = false;
            return Ok(());
        }
        self.insert(now_ms, client_id, profile, Some(stream))
    }

    /// The client goes on without settings and telemetry stream; this is what its calls say of it.
    pub(super) fn adopt(&mut self, now_ms: i64, client_id: &str, profile: Profile) -> Result<(), Full> {
        match self.clients.contains_key(client_id) {
            true => Ok(()),
            false => self.insert(now_ms, client_id, profile, None),
        }
    }

    fn insert(&mut self, now_ms: i64, client_id: &str, profile: Profile, stream: Option<(u64, S)>) -> Result<(), Full> {
        if self.clients.len() >= limits::CLIENTS {
            return Err(Full);
        }
        let streamless = stream.is_none();
        let client = Client { profile, heard_ms: now_ms, stream, closed_ms: now_ms, streamless, calls: 0, away: false };
        self.clients.insert(client_id.to_owned(), client);
        Ok(())
    }

    /// The telemetry stream with that number closed. It does nothing if the client has opened another one.
    pub(super) fn stream_closed(&mut self, now_ms: i64, client_id: &str, stream: u64) {
        let Some(client) = self.clients.get_mut(client_id) else { return };
        if client.stream.as_ref().is_some_and(|(open, _)| *open == stream) {
            client.stream = None;
            client.closed_ms = now_ms;
            client.heard_ms = now_ms;
        }
    }

    /// The client called. True if it had been away.
    pub(super) fn heard(&mut self, now_ms: i64, client_id: &str) -> bool {
        let Some(client) = self.clients.get_mut(client_id) else { return false };
        client.heard_ms = now_ms;
        let without_stream = client.stream.is_none();
        client.streamless |= without_stream && now_ms.saturating_sub(client.closed_ms) >= limits::STREAMLESS_AFTER_MS;
        std::mem::take(&mut client.away)
    }

    /// A call of the client begins to wait; [`Registry::call_ended`] must follow.
    pub(super) fn call_began(&mut self, client_id: &str) {
        if let Some(client) = self.clients.get_mut(client_id) {
            client.calls += 1;
        }
    }

    /// A waiting call of the client ended, with an answer or by the loss of its connection.
    pub(super) fn call_ended(&mut self, now_ms: i64, client_id: &str) {
        if let Some(client) = self.clients.get_mut(client_id) {
            client.calls = client.calls.saturating_sub(1);
            client.heard_ms = now_ms;
        }
    }

    /// What is known of the client.
    #[must_use]
    pub(super) fn profile(&self, client_id: &str) -> Option<Profile> {
        self.clients.get(client_id).map(|client| client.profile.clone())
    }

    /// The settings that hold have changed. Answers what tells the client so, if its stream is open.
    pub(super) fn remerged(&mut self, client_id: &str, merged: Arc<Settings>) -> Option<&S> {
        let client = self.clients.get_mut(client_id)?;
        client.profile.merged = merged;
        client.stream.as_ref().map(|(_, sender)| sender)
    }

    /// The client says goodbye. False if nobody knew it.
    pub(super) fn terminate(&mut self, client_id: &str) -> bool {
        self.clients.remove(client_id).is_some()
    }

    /// So many milliseconds up to now count for nobody as silence.
    pub(super) fn forgive(&mut self, now_ms: i64, gap_ms: i64) {
        for client in self.clients.values_mut() {
            client.heard_ms = client.heard_ms.saturating_add(gap_ms).min(now_ms).max(client.heard_ms);
        }
    }

    /// Finds who has left. Each client is named once when it goes away and once when it is forgotten.
    pub(super) fn sweep(&mut self, now_ms: i64, patience: Patience) -> Vec<Departure> {
        let mut departures = Vec::new();
        self.clients.retain(|client_id, client| {
            let silent_ms = now_ms.saturating_sub(client.heard_ms);
            if client.calls > 0 {
                return true;
            }
            let forgotten = silent_ms >= patience.expired_ms;
            let grace_ms = if client.streamless { patience.streamless_ms } else { patience.stream_closed_ms };
            let goes_away = !client.away && client.stream.is_none() && silent_ms >= grace_ms;
            if forgotten || goes_away {
                client.away = true;
                let consumes = client.profile.group.is_some();
                departures.push(Departure { client_id: client_id.clone(), forgotten, consumes });
            }
            !forgotten
        });
        departures
    }

    /// The topics that producers publish to who are here.
    #[must_use]
    pub(super) fn published(&self) -> BTreeSet<String> {
        let here = self.clients.values().filter(|client| !client.away);
        here.flat_map(|client| client.profile.publishes()).map(|topic| topic.name.clone()).collect()
    }

    /// Producers of a topic whose telemetry streams are open, and how each calls the topic; not more than can be tried.
    #[must_use]
    pub(super) fn producers_of(&self, topic: &str) -> Vec<(Resource, S)>
    where
        S: Clone,
    {
        let told = self.clients.values().filter_map(|client| {
            let called = client.profile.publishes().iter().find(|published| published.name == topic)?;
            Some((called.clone(), client.stream.as_ref()?.1.clone()))
        });
        told.take(limits::PRODUCERS_TRIED).collect()
    }

    /// Whether the client is known and not away.
    #[must_use]
    pub(super) fn is_here(&self, client_id: &str) -> bool {
        self.clients.get(client_id).is_some_and(|client| !client.away)
    }

    /// The consumers that are here.
    #[must_use]
    pub(super) fn consumers(&self) -> Vec<String> {
        let here = self.clients.iter().filter(|(_, client)| !client.away && client.profile.group.is_some());
        here.map(|(client_id, _)| client_id.clone()).collect()
    }

    /// How many clients are known.
    #[must_use]
    pub(super) fn len(&self) -> usize {
        self.clients.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience = Patience { stream_closed_ms: 5_000, streamless_ms: 15_000, expired_ms: 120_000 };

    fn profile() -> Profile {
        Profile::new(Some("g".into()), Arc::default(), Arc::default())
    }

    fn with_client() -> Registry<()> {
        let mut registry = Registry::default();
        registry.register(0, "c", profile(), (1, ())).expect("room");
        registry
    }

    fn away(id: &str) -> Vec<Departure> {
        vec![Departure { client_id: id.into(), forgotten: false, consumes: true }]
    }

    fn forgotten(id: &str) -> Vec<Departure> {
        vec![Departure { client_id: id.into(), forgotten: true, consumes: true }]
    }

    #[test]
    fn a_silent_client_with_an_open_stream_is_forgotten_at_the_timeout_and_not_before() {
        let mut registry = with_client();
        assert_eq!(registry.sweep(119_999, PATIENCE), []);
        assert_eq!(registry.sweep(120_000, PATIENCE), forgotten("c"));
        assert!(registry.profile("c").is_none());
        assert_eq!(registry.sweep(900_000, PATIENCE), []);
    }

    #[test]
    fn a_heartbeat_starts_the_timeout_anew() {
        let mut registry = with_client();
        assert!(!registry.heard(100_000, "c"));
        assert_eq!(registry.sweep(219_999, PATIENCE), []);
        assert_eq!(registry.sweep(220_000, PATIENCE), forgotten("c"));
    }

    #[test]
    fn a_closed_stream_and_silence_is_away_once_and_keeps_the_settings() {
        let mut registry = with_client();
        registry.stream_closed(10_000, "c", 1);
        assert_eq!(registry.sweep(14_999, PATIENCE), []);
        assert_eq!(registry.sweep(15_000, PATIENCE), away("c"));
        assert_eq!(registry.sweep(16_000, PATIENCE), []);
        assert!(registry.profile("c").is_some());
        assert_eq!(registry.sweep(130_000, PATIENCE), forgotten("c"));
    }

    #[test]
    fn a_reconnect_within_the_grace_cancels() {
        let mut registry = with_client();
        registry.stream_closed(10_000, "c", 1);
        registry.register(11_000, "c", profile(), (2, ())).expect("room");
        assert_eq!(registry.sweep(100_000, PATIENCE), []);
    }

    #[test]
    fn the_late_end_of_an_old_stream_does_not_count() {
        let mut registry = with_client();
        registry.register(1_000, "c", profile(), (2, ())).expect("room");
        registry.stream_closed(2_000, "c", 1);
        assert_eq!(registry.sweep(60_000, PATIENCE), []);
    }

    #[test]
    fn a_client_that_calls_is_not_away_though_its_stream_is_closed() {
        let mut registry = with_client();
        registry.stream_closed(10_000, "c", 1);
        registry.heard(10_999, "c"); // on its way when the stream closed
        assert_eq!(registry.sweep(15_998, PATIENCE), []);
        assert_eq!(registry.sweep(15_999, PATIENCE), away("c"));
        assert!(registry.heard(30_000, "c"), "it is back");
        assert!(!registry.heard(30_001, "c"));
        assert_eq!(registry.sweep(45_000, PATIENCE), [], "it goes on without a stream: heartbeats are enough");
        assert_eq!(registry.sweep(45_001, PATIENCE), away("c"));
        registry.register(50_000, "c", profile(), (2, ())).expect("room");
        registry.stream_closed(60_000, "c", 2);
        assert_eq!(registry.sweep(65_000, PATIENCE), away("c"), "it minds its stream");
    }

    #[test]
    fn a_client_may_be_known_without_a_stream() {
        let mut registry: Registry<()> = Registry::default();
        registry.adopt(0, "c", profile()).expect("room");
        assert_eq!(registry.consumers(), ["c"]);
        assert_eq!(registry.sweep(14_999, PATIENCE), []);
        assert_eq!(registry.sweep(15_000, PATIENCE), away("c"));
        registry.register(16_000, "c", profile(), (1, ())).expect("room");
        registry.adopt(17_000, "c", profile()).expect("known");
        assert_eq!(registry.sweep(100_000, PATIENCE), [], "it has a stream now");
    }

    #[test]
    fn a_waiting_call_is_a_sign_of_life() {
        let mut registry = with_client();
        registry.stream_closed(0, "c", 1);
        registry.call_began("c");
        registry.call_began("c");
        assert_eq!(registry.sweep(500_000, PATIENCE), []);
        registry.call_ended(500_000, "c");
        assert_eq!(registry.sweep(510_000, PATIENCE), []);
        registry.call_ended(510_000, "c");
        registry.call_ended(510_000, "c"); // one too many does no harm
        assert_eq!(registry.sweep(514_999, PATIENCE), []);
        assert_eq!(registry.sweep(515_000, PATIENCE), away("c"));
    }

    #[test]
    fn a_clock_that_is_set_back_makes_nobody_leave() {
        let mut registry = with_client();
        registry.heard(1_000_000, "c");
        registry.stream_closed(1_000_000, "c", 1);
        assert_eq!(registry.sweep(0, PATIENCE), []);
        assert_eq!(registry.sweep(i64::MIN, PATIENCE), []);
    }

    #[test]
    fn goodbye_is_for_known_clients() {
        let mut registry = with_client();
        assert!(!registry.terminate("d"));
        assert!(registry.terminate("c"));
        assert!(!registry.terminate("c"));
        assert_eq!(registry.len(), 0);
    }

    fn producer(topics: &[&str]) -> Profile {
        let topics = topics.iter().map(|name| Resource { name: (*name).into(), ..Resource::default() }).collect();
        let publishing = waybill_protocol::grpc::v2::Publishing { topics, ..Default::default() };
        let own = Settings { pub_sub: Some(PubSub::Publishing(publishing)), ..Settings::default() };
        Profile::new(None, Arc::new(own), Arc::default())
    }

    #[test]
    fn producers_are_found_by_their_topics_while_they_listen() {
        let mut registry = Registry::default();
        registry.register(0, "consumer", profile(), (1, "consumer")).expect("room");
        registry.register(0, "a", producer(&["t", "u"]), (2, "a")).expect("room");
        registry.register(0, "b", producer(&["u"]), (3, "b")).expect("room");
        let of = |registry: &Registry<&'static str>, topic: &str| {
            let mut found: Vec<_> = registry.producers_of(topic).into_iter().map(|(_, sender)| sender).collect();
            found.sort_unstable();
            found
        };
        assert_eq!((of(&registry, "t"), of(&registry, "u"), of(&registry, "v")), (vec!["a"], vec!["a", "b"], vec![]));
        registry.stream_closed(1_000, "a", 2);
        assert_eq!(of(&registry, "t"), [""; 0], "it cannot be told");
        assert!(registry.published().contains("t"), "it may be back in a moment");
        registry.sweep(10_000, PATIENCE);
        assert_eq!(registry.published().into_iter().collect::<Vec<_>>(), ["u"]);
        registry.terminate("b");
        assert!(registry.published().is_empty());
    }

    #[test]
    fn strangers_leave_no_trace() {
        let mut registry: Registry<()> = Registry::default();
        registry.heard(1, "x");
        registry.call_began("x");
        registry.call_ended(1, "x");
        registry.stream_closed(1, "x", 1);
        assert!(registry.remerged("x", Arc::default()).is_none());
        assert_eq!(registry.len(), 0);
    }

    #[test]
    fn there_is_room_for_so_many_and_no_more() {
        let mut registry = Registry::default();
        for n in 0..limits::CLIENTS {
            registry.register(0, &n.to_string(), profile(), (1, ())).expect("room");
        }
        assert_eq!(registry.register(0, "one more", profile(), (1, ())), Err(Full));
        assert_eq!(registry.register(0, "7", profile(), (2, ())), Ok(()), "a known client is not one more");
    }
}
