//! Events: what a person should know of a resource, once, when it happens.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource};
use parking_lot::Mutex;
use serde_json::json;
use tracing::warn;

use crate::api::FIELD_MANAGER;

/// The most characters of a note: a quarter of the bytes that it can have.
const NOTE_MAX: usize = 250;
/// The most characters of a resource's name in the name of an event: with the time behind it, a name has room for 253.
const NAME_MAX: usize = 230;
/// What happens again within this is counted at the event that is there, seconds.
const AGAIN_S: i64 = 360;
/// Events that are remembered for that, at most.
const REMEMBERED_MAX: usize = 4096;

/// Tells people.
#[derive(Clone)]
pub struct Events {
    client: Client,
    /// Which instance: the pod's name, as the system has it.
    instance: String,
    /// By a hash of all that an event says: a thousand resources have thousands of events when an operator starts, and to keep
    /// those whole would need more memory than everything else that it keeps.
    told: Arc<Mutex<HashMap<u64, Told>>>,
}

/// An event that was written.
#[derive(Debug, Clone, Copy)]
struct Told {
    /// Nanoseconds, which are in its name.
    first: i128,
    /// Seconds.
    last_s: i64,
    times: i32,
}

impl Events {
    /// Events that are written with `client`.
    #[must_use]
    pub fn new(client: Client) -> Self {
        let instance = std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty());
        Self { client, instance: instance.unwrap_or_else(|| FIELD_MANAGER.to_owned()), told: Arc::default() }
    }

    /// Something went as it should.
    pub(super) async fn normal(&self, about: &impl Resource<DynamicType = ()>, reason: &str, note: String) {
        self.publish(about, "Normal", reason, &note).await;
    }

    /// Somebody should have a look.
    pub(super) async fn warning(&self, about: &impl Resource<DynamicType = ()>, reason: &str, note: String) {
        self.publish(about, "Warning", reason, &note).await;
    }

    /// An event that cannot be written is logged and lost: nothing depends on it.
    async fn publish(&self, about: &impl Resource<DynamicType = ()>, kind: &str, reason: &str, note: &str) {
        let note: String = note.chars().take(NOTE_MAX).collect();
        if let Err(error) = self.tell(about.object_ref(&()), kind, reason, note).await {
            warn!(%error, reason, "an event could not be written");
        }
    }

    async fn tell(&self, about: ObjectReference, kind: &str, reason: &str, note: String) -> Result<(), kube::Error> {
        let now = Timestamp::now();
        let namespace = about.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let api: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        let key = hash(&(&about.kind, &namespace, &about.name, &about.uid, kind, reason, &note));
        let before = self.told.lock().get(&key).copied();
        if let Some(before) = before.filter(|before| now.as_second() - before.last_s < AGAIN_S) {
            let again = Told { last_s: now.as_second(), times: before.times.saturating_add(1), ..before };
            let series = json!({ "series": { "count": again.times, "lastObservedTime": MicroTime(now) } });
            match api.patch(&name(&about, again.first), &PatchParams::default(), &Patch::Merge(series)).await {
                // Somebody has removed it: it is told anew.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                patched => {
                    patched?;
                    self.remember(key, again);
                    return Ok(());
                }
            }
        }
        let told = Told { first: now.as_nanosecond(), last_s: now.as_second(), times: 1 };
        let event = Event {
            metadata: ObjectMeta {
                name: Some(name(&about, told.first)),
                namespace: Some(namespace),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(now)),
            type_: Some(kind.to_owned()),
            reason: Some(reason.to_owned()),
            note: Some(note),
            action: Some("Reconcile".to_owned()),
            regarding: Some(about),
            reporting_controller: Some(FIELD_MANAGER.to_owned()),
            reporting_instance: Some(self.instance.clone()),
            ..Event::default()
        };
        api.create(&PostParams::default(), &event).await?;
        self.remember(key, told);
        Ok(())
    }

    fn remember(&self, key: u64, event: Told) {
        let mut told = self.told.lock();
        if told.len() >= REMEMBERED_MAX {
            told.retain(|_, other| event.last_s - other.last_s < AGAIN_S);
        }
        if told.len() < REMEMBERED_MAX {
            told.insert(key, event);
        }
    }
}

/// The name of an event about a resource, first told at this time.
fn name(about: &ObjectReference, first: i128) -> String {
    let of: String = about.name.as_deref().unwrap_or(FIELD_MANAGER).chars().take(NAME_MAX).collect();
    format!("{}.{first:x}", of.trim_end_matches(['.', '-']))
}

fn hash(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}
