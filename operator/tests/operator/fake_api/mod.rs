//! An API server in this process: it lists, watches, creates, patches (merge and server-side apply, with the status apart),
//! deletes (with finalizers), and fails when it is told to. It knows no schemas.

mod apply;
mod http;
mod select;
mod store;

use std::sync::Arc;

use kube::Client;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;
use waybill_ops::clock::{Clock, ManualClock};

use self::store::{Key, State};

#[derive(Clone)]
pub(crate) struct FakeApi {
    state: Arc<Mutex<State>>,
    /// Rises with every change, and when watches are to end.
    changed: Arc<watch::Sender<u64>>,
    clock: Arc<ManualClock>,
}

/// A request that is to be answered with a failure.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) method: &'static str,
    /// What the path holds.
    pub(crate) path: &'static str,
    pub(crate) code: u16,
    pub(crate) times: usize,
}

impl FakeApi {
    pub(crate) fn new(clock: Arc<ManualClock>) -> Self {
        Self { state: Arc::default(), changed: Arc::new(watch::Sender::new(0)), clock }
    }

    pub(crate) fn client(&self) -> Client {
        let api = self.clone();
        let service = tower::service_fn(move |request| {
            let api = api.clone();
            async move { Ok::<_, std::convert::Infallible>(api.answer(request).await) }
        });
        Client::new(service, "default")
    }

    /// What a person with `kubectl apply` does: the specification is another one, all else stays.
    pub(crate) fn put(&self, wanted: &Value) {
        let key = Key::of(wanted);
        self.change(|state, now| {
            let mut object = state.get(&key).unwrap_or_else(|| wanted.clone());
            object["spec"] = wanted["spec"].clone();
            state.put(key, object, now);
        });
    }

    /// Puts an object there as it is, in place of what was there.
    pub(crate) fn put_whole(&self, object: &Value) {
        let key = Key::of(object);
        self.change(|state, now| drop(state.put(key, object.clone(), now)));
    }

    /// Changes an object in place, as somebody else.
    pub(crate) fn edit(&self, plural: &str, name: &str, edit: impl FnOnce(&mut Value)) {
        let key = Key::named(plural, "default", name);
        self.change(|state, now| {
            let mut object = state.get(&key).expect("it is there");
            edit(&mut object);
            state.put(key.clone(), object, now);
        });
    }

    pub(crate) fn delete(&self, plural: &str, name: &str) {
        let key = Key::named(plural, "default", name);
        self.change(|state, now| drop(state.delete(&key, now)));
    }

    pub(crate) fn get(&self, plural: &str, name: &str) -> Option<Value> {
        self.state.lock().get(&Key::named(plural, "default", name))
    }

    pub(crate) fn get_in(&self, namespace: &str, plural: &str, name: &str) -> Option<Value> {
        self.state.lock().get(&Key::named(plural, namespace, name))
    }

    pub(crate) fn all(&self, plural: &str) -> Vec<Value> {
        self.state.lock().list(plural, None)
    }

    /// Reads it as its type.
    pub(crate) fn typed<K: serde::de::DeserializeOwned>(&self, plural: &str, name: &str) -> K {
        serde_json::from_value(self.get(plural, name).expect("it is there")).expect("its type")
    }

    /// The requests that changed something or were to, without events.
    pub(crate) fn writes(&self) -> Vec<String> {
        self.state.lock().writes.iter().filter(|write| !write.contains("/events")).cloned().collect()
    }

    /// Reason and note of all events.
    pub(crate) fn events(&self) -> Vec<(String, String)> {
        let text = |event: &Value, key: &str| event[key].as_str().unwrap_or_default().to_owned();
        let state = self.state.lock();
        state.all("events").map(|event| (text(event, "reason"), text(event, "note"))).collect()
    }

    pub(crate) fn fail(&self, fault: Fault) {
        self.state.lock().faults.push(fault);
    }

    /// How many faults have not happened yet.
    pub(crate) fn faults_left(&self) -> usize {
        self.state.lock().faults.iter().map(|fault| fault.times).sum()
    }

    /// Forgets what happened before, and ends all watches: they are told 410 when they come back.
    pub(crate) fn lose_history(&self) {
        self.change(|state, _now| state.forget());
    }

    /// Waits until a fault has happened.
    pub(crate) async fn until_faulty(&self) {
        let before = self.faults_left();
        self.until("a fault", |api| api.faults_left() < before).await;
    }

    /// Waits until `done`, looking again at every change.
    pub(crate) async fn until(&self, what: &str, done: impl Fn(&Self) -> bool) {
        let mut changes = self.changed.subscribe();
        let waiting = async {
            while !done(self) {
                changes.changed().await.expect("the server is there");
            }
        };
        let waited = tokio::time::timeout(std::time::Duration::from_secs(60), waiting).await;
        assert!(waited.is_ok(), "not within a minute: {what}; {:#?}", self.writes());
    }

    fn change<T>(&self, change: impl FnOnce(&mut State, i64) -> T) -> T {
        let done = change(&mut self.state.lock(), self.clock.now_ms());
        self.changed.send_modify(|changes| *changes += 1);
        done
    }
}
