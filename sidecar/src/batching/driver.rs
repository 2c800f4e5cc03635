//! The core under its lock, and a task for each request that is under way.

use std::{future::Future, sync::Arc};

use parking_lot::Mutex;
use tokio::{runtime::Handle, time::Instant};

use super::{
    core::{Core, Effect, Item, Limits, Slot},
    types::{Plan, Target},
};

/// Why an entry was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotSent {
    /// Too much waits already.
    Full,
    /// It has waited too long.
    Late,
}

/// What it takes to send what was gathered.
pub(crate) trait Carrier: Clone + Send + Sync + 'static {
    /// One lease, and who is to be told what became of it.
    type Entry: Send + 'static;

    /// Where entries gather.
    fn gatherer(&self) -> &Gatherer<Self::Entry>;

    /// What holds for a broker at this moment. Called often: it must only look something up.
    fn plan(&self, broker: &str) -> Plan;

    /// Sends entries with one request and tells each what became of it. Answers those that are to be sent again,
    /// because the request was refused as a whole and nothing happened.
    fn send(
        &self,
        broker: &Arc<str>,
        target: &Target,
        items: Vec<Item<Self::Entry>>,
    ) -> impl Future<Output = Vec<Item<Self::Entry>>> + Send;

    /// Tells an entry that it was not sent.
    fn not_sent(&self, entry: Self::Entry, why: NotSent);

    /// So many entries wait at this moment.
    fn waiting(&self, entries: usize);
}

/// Entries of one target at one broker, in their order.
pub(crate) struct Run<E> {
    pub(crate) broker: Arc<str>,
    pub(crate) target: Target,
    pub(crate) items: Vec<Item<E>>,
}

/// Where entries gather.
pub(crate) struct Gatherer<E> {
    core: Mutex<Core<E>>,
    started: Instant,
}

impl<E: Send + 'static> Gatherer<E> {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { core: Mutex::new(Core::new(limits)), started: Instant::now() }
    }

    /// Milliseconds since the start: the time of [`Item::start_by`].
    pub(crate) fn now(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    /// Takes entries over, and sends what may be sent now. Must be called within a tokio runtime.
    pub(crate) fn hand_over<C: Carrier<Entry = E>>(carrier: &C, runs: Vec<Run<E>>) {
        let mut brokers: Vec<(Arc<str>, Plan)> = Vec::new();
        for run in &runs {
            if !brokers.iter().any(|(known, _)| *known == run.broker) {
                brokers.push((Arc::clone(&run.broker), carrier.plan(&run.broker)));
            }
        }
        let mut full = Vec::new();
        let effects = {
            let gatherer = carrier.gatherer();
            let mut core = gatherer.core.lock();
            for Run { broker, target, items } in runs {
                full.extend(core.push(&broker, &target, items));
            }
            let now = gatherer.now();
            let effects = brokers.iter().flat_map(|(broker, plan)| core.take(broker, now, plan)).collect();
            carrier.waiting(core.waiting());
            effects
        };
        for item in full {
            carrier.not_sent(item.value, NotSent::Full);
        }
        carry_out(carrier, &Handle::current(), effects);
    }
}

fn carry_out<C: Carrier>(carrier: &C, runtime: &Handle, effects: Vec<Effect<C::Entry>>) {
    for effect in effects {
        match effect {
            Effect::Send(slot, items) => {
                let under_way = UnderWay { carrier: carrier.clone(), runtime: runtime.clone(), slot, ended: false };
                runtime.spawn(under_way.run(items));
            }
            Effect::Late(entries) => {
                for entry in entries {
                    carrier.not_sent(entry, NotSent::Late);
                }
            }
        }
    }
}

/// A request has ended, or something was handed over: what may be sent to the broker now is sent.
fn proceed<C: Carrier>(carrier: &C, runtime: &Handle, broker: &Arc<str>, event: impl FnOnce(&mut Core<C::Entry>)) {
    let plan = carrier.plan(broker);
    let effects = {
        let gatherer = carrier.gatherer();
        let mut core = gatherer.core.lock();
        event(&mut core);
        let effects = core.take(broker, gatherer.now(), &plan);
        carrier.waiting(core.waiting());
        effects
    };
    carry_out(carrier, runtime, effects);
}

/// A request. Its end is told exactly once, even if its task panics or is dropped.
struct UnderWay<C: Carrier> {
    carrier: C,
    runtime: Handle,
    slot: Slot,
    ended: bool,
}

impl<C: Carrier> UnderWay<C> {
    async fn run(mut self, items: Vec<Item<C::Entry>>) {
        let again = self.carrier.send(&self.slot.broker, &self.slot.target, items).await;
        self.ended = true;
        let slot = &self.slot;
        proceed(&self.carrier, &self.runtime, &slot.broker, |core| {
            core.again(&slot.broker, &slot.target, again);
            core.ended(slot);
        });
    }
}

impl<C: Carrier> Drop for UnderWay<C> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        self.carrier.gatherer().core.lock().ended(&self.slot);
        // Not from here: a runtime that shuts down drops new tasks at once, which would end here again and again.
        let (carrier, runtime, broker) = (self.carrier.clone(), self.runtime.clone(), Arc::clone(&self.slot.broker));
        self.runtime.spawn(async move { proceed(&carrier, &runtime, &broker, |_| {}) });
    }
}
