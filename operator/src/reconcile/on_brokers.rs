//! Resources that stand for something on every broker of a Broker.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use kube::core::NamespaceResourceScope;
use kube::runtime::controller::Action;
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::status::{self, Outcome};
use super::{ApiError, Context, Kind, finalizer, key, secured};
use crate::admin::{AdminError, Applied, Connection, Gone, Way};
use crate::api::{AppliedStatus, BrokerRef, ConditionStatus, DeletionPolicy, Reason, Told};

/// Brokers that are asked at once for one resource.
const BROKERS_AT_ONCE: usize = 8;
/// Brokers that a message names; of the others it tells the number.
const NAMED_MAX: usize = 3;

/// A kind that stands for something on every broker.
pub trait OnBrokers:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Told
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
    /// What it asks brokers for.
    type Settings: Send + Sync;
    /// All that it tells.
    type Status: Serialize + Send + Sync;
    /// What people call the thing.
    const WHAT: &'static str;

    /// Which brokers.
    fn broker_ref(&self) -> &BrokerRef;
    /// The thing's name there.
    fn name_on_brokers(&self) -> String;
    /// What was told last.
    fn status(&self) -> Option<&AppliedStatus>;
    /// What is to be told: this, and what is known besides.
    fn status_with(&self, applied: &AppliedStatus) -> Self::Status;
    /// What becomes of the thing.
    fn deletion_policy(&self) -> DeletionPolicy;
    /// What is asked for.
    ///
    /// # Errors
    /// It cannot be, and why, for people.
    fn settings(&self) -> Result<Self::Settings, String>;
    /// Makes it so on one broker.
    fn apply(
        settings: &Self::Settings,
        broker: &mut Connection,
    ) -> impl Future<Output = Result<Applied, AdminError>> + Send;
    /// Whether one broker has nothing in it.
    fn is_empty(name: &str, broker: &mut Connection) -> impl Future<Output = Result<bool, AdminError>> + Send;
    /// Deletes it on one broker; if `only_empty`, not where the broker has something in it, which it looks at in the same moment.
    fn delete(
        name: &str,
        only_empty: bool,
        broker: &mut Connection,
    ) -> impl Future<Output = Result<Gone, AdminError>> + Send;
    /// What is done beside the reconciliations, until `stop`.
    fn beside(_kind: Arc<Kind<Self>>, _stop: CancellationToken) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// Makes all brokers have what the resource asks for, and tells in its status how far they do.
///
/// # Errors
/// The API server does not do its part.
pub async fn reconcile<K: OnBrokers>(object: Arc<K>, kind: Arc<Kind<K>>) -> Result<Action, ApiError> {
    let context = &kind.context;
    let namespace = object.namespace().unwrap_or_default();
    let api: Api<K> = Api::namespaced(context.client.clone(), &namespace);
    if object.meta().deletion_timestamp.is_some() {
        return delete(&api, &object, &kind).await;
    }
    finalizer::set(&api, &*object, object.deletion_policy() != DeletionPolicy::Retain).await?;
    let came = converge(&*object, &kind).await?;
    tell(&*object, context, &came).await?;
    Ok(match came.outcome.reason {
        // That is for the controller: `crate::resync`.
        Reason::Applied => Action::await_change(),
        Reason::BrokerUnreachable | Reason::BrokerRefused => context.pace.retry(failing_for(&*object, context)),
        _needs_somebody => Action::requeue(context.pace.retry_max),
    })
}

/// What to do when the API server did not do its part.
pub fn on_api_error<K: OnBrokers>(object: Arc<K>, error: &ApiError, kind: Arc<Kind<K>>) -> Action {
    warn!(kind = K::WHAT, resource = key(&*object), %error, "tried again");
    super::after_api_error(error, kind.context.pace)
}

/// What came of it on the brokers.
struct Came {
    outcome: Outcome,
    brokers: usize,
    applied: usize,
    /// What was changed where, in words.
    changes: Vec<String>,
}

impl Came {
    /// No broker was asked.
    fn unasked(reason: Reason, message: String) -> Self {
        Self { outcome: Outcome { reason, message }, brokers: 0, applied: 0, changes: Vec::new() }
    }
}

/// Dereference, validate, apply.
async fn converge<K: OnBrokers>(object: &K, kind: &Kind<K>) -> Result<Came, ApiError> {
    let settings = match object.settings() {
        Ok(settings) => settings,
        Err(reason) => return Ok(Came::unasked(Reason::InvalidSpec, reason)),
    };
    if let Some(older) = owner(object, kind) {
        let name = object.name_on_brokers();
        let message = format!("{} {older} has the {} {name} on these brokers", K::kind(&()), K::WHAT);
        return Ok(Came::unasked(Reason::NameConflict, message));
    }
    let Some(brokers) = brokers(object, &kind.context).await? else {
        let message = format!("there is no Broker {} in this namespace", object.broker_ref().name);
        return Ok(Came::unasked(Reason::BrokerNotFound, message));
    };
    let (settings, way) = (&settings, &brokers.way);
    let apply = |address| async move { K::apply(settings, &mut way.open(address).await?).await };
    let hanging = &kind.context.hanging;
    let mut asked = each(&brokers.addresses, |address| hanging.ask(address, apply(address)).boxed()).await;
    let leaving = |address: &str| brokers.addresses.iter().skip(brokers.staying).any(|leaving| leaving == address);
    // One that is to go may be gone already, and need not take what is new.
    asked.retain(|(address, result)| result.is_ok() || !leaving(address));
    Ok(in_all(K::WHAT, &asked))
}

/// Asks every broker, some at once, and answers in the order of `addresses`.
pub(super) async fn each<'a, T: Send>(
    addresses: &'a [String],
    ask: impl Fn(&'a str) -> BoxFuture<'a, Result<T, AdminError>>,
) -> Vec<(&'a str, Result<T, AdminError>)> {
    let asked: Vec<_> =
        addresses.iter().map(|address| ask(address).map(move |said| (address.as_str(), said))).collect();
    stream::iter(asked).buffered(BROKERS_AT_ONCE).collect().await
}

fn in_all(what: &str, asked: &[(&str, Result<Applied, AdminError>)]) -> Came {
    let (mut changes, mut refused, mut unreachable) = (Vec::new(), Vec::new(), Vec::new());
    for (address, result) in asked {
        match result {
            Ok(Applied::Unchanged) => {}
            Ok(Applied::Created) => changes.push(format!("{address}: it was missing")),
            Ok(Applied::Changed) => changes.push(format!("{address}: it had other settings")),
            Err(AdminError::Refused(reason)) => refused.push(format!("{address}: {reason}")),
            Err(AdminError::Unreachable(reason)) => unreachable.push(format!("{address}: {reason}")),
        }
    }
    let brokers = asked.len();
    let applied = brokers - refused.len() - unreachable.len();
    let (reason, message) = if !refused.is_empty() {
        (Reason::BrokerRefused, in_words(&refused))
    } else if !unreachable.is_empty() {
        (Reason::BrokerUnreachable, in_words(&unreachable))
    } else {
        (Reason::Applied, format!("the {what} is on {brokers} of {brokers} brokers"))
    };
    Came { outcome: Outcome { reason, message }, brokers, applied, changes }
}

/// The first few, and how many more.
fn in_words(all: &[String]) -> String {
    let named: Vec<&str> = all.iter().take(NAMED_MAX).map(String::as_str).collect();
    match all.len() - named.len() {
        0 => named.join("; "),
        more => format!("{}; and {more} more", named.join("; ")),
    }
}

/// The other resources that stand for the same thing.
fn others<K: OnBrokers>(object: &K, kind: &Kind<K>) -> Vec<Arc<K>> {
    let name = object.name_on_brokers();
    let same = |other: &Arc<K>| {
        other.namespace() == object.namespace()
            && other.broker_ref() == object.broker_ref()
            && other.name_any() != object.name_any()
            && other.name_on_brokers() == name
    };
    kind.known.state().into_iter().filter(same).collect()
}

/// The name of the oldest of them, if it is older than this one.
fn owner<K: OnBrokers>(object: &K, kind: &Kind<K>) -> Option<String> {
    let age = |object: &K| (object.creation_timestamp(), object.name_any());
    let oldest = others(object, kind).into_iter().min_by_key(|other| age(other))?;
    (age(&oldest) < age(object)).then(|| oldest.name_any())
}

/// The name of one of them that is to stay.
fn heir<K: OnBrokers>(object: &K, kind: &Kind<K>) -> Option<String> {
    let mut others = others(object, kind).into_iter();
    others.find(|other| other.meta().deletion_timestamp.is_none()).map(|heir| heir.name_any())
}

/// The brokers of a Broker.
pub(super) struct Brokers {
    pub(super) addresses: Vec<String>,
    /// How many of them are to stay. The others, behind them, drain: their consumers go on, so they are to know what changes.
    staying: usize,
    /// How they are spoken with.
    pub(super) way: Way,
}

/// The brokers. None: there is no such Broker.
pub(super) async fn brokers<K: OnBrokers>(object: &K, context: &Context) -> Result<Option<Brokers>, ApiError> {
    let namespace = object.namespace().unwrap_or_default();
    let broker = super::broker_of(context, &namespace, &object.broker_ref().name).await?;
    let Some(broker) = broker else { return Ok(None) };
    let there = broker.status.as_ref().map_or(0, |status| status.replicas);
    let numbers = 0..broker.spec.replicas.max(there);
    let addresses = numbers.map(|number| (context.address)(&broker, number)).collect();
    let staying = usize::try_from(broker.spec.replicas).unwrap_or(0);
    Ok(Some(Brokers { addresses, staying, way: secured::way(&broker, context).await? }))
}

/// Writes the status if it says something new, and tells people what happened.
async fn tell<K: OnBrokers>(object: &K, context: &Context, came: &Came) -> Result<(), ApiError> {
    let generation = object.meta().generation.unwrap_or(0);
    let name = object.name_on_brokers();
    let before = object.status();
    let old = before.map_or(&[][..], |before| &before.conditions);
    let now = AppliedStatus {
        observed_generation: generation,
        name: name.clone(),
        brokers: count(came.brokers),
        applied_brokers: count(came.applied),
        conditions: status::conditions(old, &came.outcome, generation, context.clock.now_ms()),
    };
    let settled = before
        .is_some_and(|before| before.observed_generation == generation && before.brokers == now.brokers)
        && status::ready(old).is_some_and(|was| was.status == ConditionStatus::True);
    if settled && !came.changes.is_empty() {
        let note = format!("{} {name} was put back: {}", K::WHAT, in_words(&came.changes));
        warn!(resource = key(object), "{note}");
        context.events.warning(object, "DriftCorrected", note).await;
    }
    if before != Some(&now) && status::write(object, context, &object.status_with(&now)).await? {
        status::announce(object, context, status::ready(old), &came.outcome).await;
    }
    Ok(())
}

fn count(brokers: usize) -> i32 {
    i32::try_from(brokers).unwrap_or(i32::MAX)
}

/// How long the resource has not been ready.
fn failing_for<K: OnBrokers>(object: &K, context: &Context) -> Duration {
    let conditions = object.status().map_or(&[][..], |status| &status.conditions);
    let since = status::ready(conditions)
        .filter(|ready| ready.status == ConditionStatus::False)
        .and_then(|ready| status::millis(&ready.last_transition_time));
    elapsed(since, context)
}

fn elapsed(since_ms: Option<i64>, context: &Context) -> Duration {
    let ms = since_ms.map_or(0, |since| context.clock.now_ms().saturating_sub(since));
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

/// Deletes what the resource stands for where that is asked for, then lets the resource go. That never hangs: what cannot be
/// deleted within [`super::Pace::deletion_patience`] stays on the brokers, and an event says so.
async fn delete<K: OnBrokers>(api: &Api<K>, object: &K, kind: &Kind<K>) -> Result<Action, ApiError> {
    if !finalizer::present(object) {
        return Ok(Action::await_change());
    }
    let context = &kind.context;
    let (name, uid) = (object.name_on_brokers(), object.uid().unwrap_or_default());
    match deletion(object, kind).await? {
        Deletion::Nothing => {}
        Deletion::Done => context.events.normal(object, "Deleted", format!("{} {name} is deleted", K::WHAT)).await,
        Deletion::NotEmpty(address) => {
            let note = format!("{} {name} stays on the brokers: {address} has messages in it", K::WHAT);
            context.events.warning(object, "Retained", note).await;
        }
        Deletion::Inherited(heir) => {
            let note = format!("{} {name} stays on the brokers: {} {heir} stands for it", K::WHAT, K::kind(&()));
            context.events.warning(object, "Retained", note).await;
        }
        Deletion::Failed(failures) => {
            let now = context.clock.now_ms();
            let waited = context.deleting.failed(&uid, now, context.pace.deletion_patience * 2);
            if waited < context.pace.deletion_patience {
                warn!(kind = K::WHAT, resource = key(object), "cannot be deleted yet: {failures}");
                return Ok(context.pace.retry(waited));
            }
            let note = format!("{} {name} may stay on brokers: {failures}", K::WHAT);
            context.events.warning(object, "Retained", note).await;
        }
    }
    finalizer::set(api, object, false).await?;
    context.deleting.done(&uid);
    Ok(Action::await_change())
}

/// What came of a deletion.
enum Deletion {
    /// There was nothing to delete, or nobody to ask.
    Nothing,
    Done,
    /// A broker has messages, so nothing is deleted there, nor anywhere if it had them at the look before.
    NotEmpty(String),
    /// This resource asks for the same thing, and gets it.
    Inherited(String),
    Failed(String),
}

async fn deletion<K: OnBrokers>(object: &K, kind: &Kind<K>) -> Result<Deletion, ApiError> {
    let policy = object.deletion_policy();
    // What belongs to another resource, or never was, is not deleted.
    if policy == DeletionPolicy::Retain || object.settings().is_err() || owner(object, kind).is_some() {
        return Ok(Deletion::Nothing);
    }
    if let Some(heir) = heir(object, kind) {
        return Ok(Deletion::Inherited(heir));
    }
    let Some(Brokers { addresses, way, .. }) =
        brokers(object, &kind.context).await?.filter(|known| !known.addresses.is_empty())
    else {
        return Ok(Deletion::Nothing);
    };
    let (way, hanging) = (&way, &kind.context.hanging);
    let name = &object.name_on_brokers();
    if policy == DeletionPolicy::DeleteIfEmpty {
        let ask = |address| async move { K::is_empty(name, &mut way.open(address).await?).await };
        let asked = each(&addresses, |address| hanging.ask(address, ask(address)).boxed()).await;
        if let Some((address, _)) = asked.iter().find(|(_, empty)| *empty == Ok(false)) {
            return Ok(Deletion::NotEmpty((*address).to_owned()));
        }
        if let Some(failures) = failures(&asked) {
            return Ok(Deletion::Failed(failures));
        }
    }
    let (only_empty, term) = (policy == DeletionPolicy::DeleteIfEmpty, &kind.context.term);
    let delete = |address| async move {
        let mut broker = way.open(address).await?;
        if !term.holds() {
            return Err(AdminError::Unreachable("another operator may lead now".to_owned()));
        }
        K::delete(name, only_empty, &mut broker).await
    };
    let asked = each(&addresses, |address| hanging.ask(address, delete(address)).boxed()).await;
    // Something came since the look.
    if let Some((address, _)) = asked.iter().find(|(_, gone)| *gone == Ok(Gone::NotEmpty)) {
        return Ok(Deletion::NotEmpty((*address).to_owned()));
    }
    Ok(failures(&asked).map_or(Deletion::Done, Deletion::Failed))
}

fn failures<T>(asked: &[(&str, Result<T, AdminError>)]) -> Option<String> {
    let failed = asked.iter().filter_map(|(address, result)| Some(format!("{address}: {}", result.as_ref().err()?)));
    let failed: Vec<String> = failed.collect();
    (!failed.is_empty()).then(|| in_words(&failed))
}
