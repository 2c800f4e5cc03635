//! What the server keeps: objects, their history, and what was asked of it.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{Fault, apply};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) plural: String,
    pub(super) namespace: String,
    pub(super) name: String,
}

impl Key {
    pub(super) fn named(plural: &str, namespace: &str, name: &str) -> Self {
        Self { plural: plural.to_owned(), namespace: namespace.to_owned(), name: name.to_owned() }
    }

    pub(super) fn of(object: &Value) -> Self {
        let kind = object["kind"].as_str().expect("a kind").to_lowercase();
        let plural = match kind.strip_suffix('y') {
            Some(stem) => format!("{stem}ies"),
            None => format!("{kind}s"),
        };
        let meta = &object["metadata"];
        Self::named(&plural, meta["namespace"].as_str().unwrap_or("default"), meta["name"].as_str().expect("a name"))
    }
}

#[derive(Clone)]
pub(super) struct Change {
    pub(super) version: u64,
    pub(super) kind: &'static str,
    pub(super) key: Key,
    pub(super) object: Value,
}

#[derive(Default)]
pub(super) struct State {
    objects: BTreeMap<Key, Value>,
    pub(super) version: u64,
    pub(super) history: Vec<Change>,
    /// Watches from before this version are told that it is gone.
    pub(super) forgotten: u64,
    /// Rises when watches are to end.
    pub(super) epoch: u64,
    pub(super) writes: Vec<String>,
    pub(super) faults: Vec<Fault>,
    /// What each manager applied last, by object and whether it was its status.
    applied: BTreeMap<(Key, String, bool), Value>,
    created: u64,
}

impl State {
    pub(super) fn get(&self, key: &Key) -> Option<Value> {
        self.objects.get(key).cloned()
    }

    pub(super) fn all<'a>(&'a self, plural: &'a str) -> impl Iterator<Item = &'a Value> {
        self.objects.iter().filter(move |(key, _)| key.plural == plural).map(|(_, object)| object)
    }

    pub(super) fn list(&self, plural: &str, namespace: Option<&str>) -> Vec<Value> {
        let here = |key: &Key| key.plural == plural && namespace.is_none_or(|namespace| namespace == key.namespace);
        self.objects.iter().filter(|(key, _)| here(key)).map(|(_, object)| object.clone()).collect()
    }

    /// Creates or replaces. What does not change anything is no change.
    pub(super) fn put(&mut self, key: Key, mut object: Value, now_ms: i64) -> Value {
        let before = self.objects.get(&key).cloned();
        let meta = match &before {
            Some(before) => before["metadata"].clone(),
            None => {
                self.created += 1;
                // Ages differ by a second from one object to the next.
                let created = time(now_ms + i64::try_from(self.created).expect("few") * 1_000);
                json!({ "uid": format!("uid-{}", self.created), "generation": 0, "creationTimestamp": created })
            }
        };
        for field in ["uid", "generation", "creationTimestamp", "resourceVersion", "deletionTimestamp"] {
            match meta.get(field) {
                Some(value) => object["metadata"][field] = value.clone(),
                None => drop(object["metadata"].as_object_mut().map(|meta| meta.remove(field))),
            }
        }
        object["metadata"]["namespace"] = json!(key.namespace);
        if before.as_ref() == Some(&object) {
            return object;
        }
        if before.as_ref().is_none_or(|before| before["spec"] != object["spec"]) {
            object["metadata"]["generation"] = json!(meta["generation"].as_i64().unwrap_or(0) + 1);
        }
        let kind = if before.is_some() { "MODIFIED" } else { "ADDED" };
        self.record(kind, key.clone(), &mut object);
        self.objects.insert(key.clone(), object.clone());
        self.let_go(&key);
        object
    }

    /// Server-side apply of one manager; `status` says which half of the object it is about.
    pub(super) fn apply(&mut self, key: &Key, manager: &str, patch: &Value, status: bool, now_ms: i64) -> Value {
        let mut object = self.get(key).unwrap_or_else(|| json!({ "metadata": { "name": key.name } }));
        let half = |value: &Value| -> Value {
            let keep = |(name, _): &(&String, &Value)| (*name == "status") == status || *name == "metadata";
            value.as_object().expect("an object").iter().filter(keep).map(|(k, v)| (k.clone(), v.clone())).collect()
        };
        let patch = half(patch);
        let owner = (key.clone(), manager.to_owned(), status);
        let before = self.applied.insert(owner, patch.clone()).unwrap_or(Value::Null);
        apply::apply(&mut object, &before, &patch);
        self.put(key.clone(), object, now_ms)
    }

    pub(super) fn delete(&mut self, key: &Key, now_ms: i64) -> Option<Value> {
        let mut object = self.get(key)?;
        if object["metadata"]["deletionTimestamp"].is_null() {
            object["metadata"]["deletionTimestamp"] = json!(time(now_ms));
            let generation = object["metadata"]["generation"].as_i64().unwrap_or(0);
            object["metadata"]["generation"] = json!(generation + 1);
            self.record("MODIFIED", key.clone(), &mut object);
            self.objects.insert(key.clone(), object.clone());
        }
        self.let_go(key);
        Some(object)
    }

    /// What is to be deleted goes when nobody holds it back.
    fn let_go(&mut self, key: &Key) {
        let Some(object) = self.objects.get(key) else { return };
        let meta = &object["metadata"];
        let held = meta["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty());
        if !meta["deletionTimestamp"].is_null() && !held {
            let mut object = self.objects.remove(key).expect("it is there");
            self.applied.retain(|(of, _, _), _| of != key);
            self.record("DELETED", key.clone(), &mut object);
        }
    }

    pub(super) fn forget(&mut self) {
        self.version += 1;
        self.forgotten = self.version;
        self.history.clear();
        self.epoch += 1;
    }

    fn record(&mut self, kind: &'static str, key: Key, object: &mut Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.history.push(Change { version: self.version, kind, key, object: object.clone() });
    }
}

fn time(ms: i64) -> String {
    Timestamp::from_second(ms / 1_000).expect("a time").to_string()
}
