//! Events: what a person should know of a resource, once, when it happens.

use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource};
use tracing::warn;

use crate::api::FIELD_MANAGER;

/// The most characters of a note: a quarter of the bytes that it can have.
const NOTE_MAX: usize = 250;

/// Tells people.
#[derive(Clone)]
pub struct Events(Recorder);

impl Events {
    /// Events that are written with `client`.
    #[must_use]
    pub fn new(client: Client) -> Self {
        // Which instance: the pod's name, as the system has it.
        let instance = std::env::var("HOSTNAME").ok();
        Self(Recorder::new(client, Reporter { controller: FIELD_MANAGER.to_owned(), instance }))
    }

    /// Something went as it should.
    pub(super) async fn normal(&self, about: &impl Resource<DynamicType = ()>, reason: &str, note: String) {
        self.publish(about, EventType::Normal, reason, note).await;
    }

    /// Somebody should have a look.
    pub(super) async fn warning(&self, about: &impl Resource<DynamicType = ()>, reason: &str, note: String) {
        self.publish(about, EventType::Warning, reason, note).await;
    }

    /// An event that cannot be written is logged and lost: nothing depends on it.
    async fn publish(&self, about: &impl Resource<DynamicType = ()>, type_: EventType, reason: &str, note: String) {
        let note = note.chars().take(NOTE_MAX).collect();
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(note),
            action: "Reconcile".to_owned(),
            secondary: None,
        };
        if let Err(error) = self.0.publish(&event, &about.object_ref(&())).await {
            warn!(%error, reason, "an event could not be written");
        }
    }
}
