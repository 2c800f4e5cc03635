//! Which resources an event about another one concerns.

use std::collections::HashMap;
use std::sync::Arc;

use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Resource, ResourceExt};
use parking_lot::Mutex;

use crate::reconcile::key;

/// What was seen of resources last, by namespace and name: what matters to others, and all that the status said.
pub(crate) struct Noticed<M, S>(Mutex<HashMap<String, (M, S)>>);

impl<M, S> Default for Noticed<M, S> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<M: PartialEq, S: PartialEq> Noticed<M, S> {
    /// Whether this event concerns others: the resource is new, or what matters has changed. What else its status says, it may say
    /// often, and does not concern them. An event in which nothing is new is the resource's end, or tells of its metadata, and does.
    pub(crate) fn concerns_others(&self, resource: &impl ResourceExt, matters: M, status: S) -> bool {
        let mut seen = self.0.lock();
        let key = key(resource);
        let concerns = seen.get(&key).is_none_or(|(before, said)| *before != matters || *said == status);
        seen.insert(key, (matters, status));
        concerns
    }
}

/// Those of the known resources that are concerned.
pub(crate) fn those<K>(known: &Store<K>, concerned: impl Fn(&K) -> bool) -> Vec<ObjectRef<K>>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    let known: Vec<Arc<K>> = known.state();
    known.iter().filter(|object| concerned(object)).map(|object| ObjectRef::from_obj(&**object)).collect()
}
