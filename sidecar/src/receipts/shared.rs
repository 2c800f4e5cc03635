//! The core under its lock, the clock, and who is to be woken.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};
use waybill_protocol::handle::ReceiptHandle;

use super::{
    changer::ChangeError,
    core::{Begun, Core, Find, Id, Intent, Item, NotKept, Step},
    metrics::Metrics,
    policy::Policy,
    types::Holder,
};

struct State {
    core: Core,
    /// Acks and changes that wait for the end of a request.
    waiters: HashMap<Id, Vec<oneshot::Sender<ReceiptHandle>>>,
    /// Until when the driver sleeps; it is woken only if there is something to do before.
    asleep_until: i64,
}

/// Brings the newest handle when it is worth trying again; nothing if there is no need to wait.
pub(super) type Wait = Option<oneshot::Receiver<ReceiptHandle>>;

impl State {
    fn await_turn(&mut self, begun: Begun) -> (Begun, Wait) {
        let wait = begun.wait.then(|| {
            let (sender, receiver) = oneshot::channel();
            self.waiters.entry(begun.id).or_default().push(sender);
            receiver
        });
        (begun, wait)
    }

    /// Those that wait try again. The handle is for those who then find the message gone; without one the senders are
    /// dropped, which ends the waiting as well.
    fn wake_waiters(&mut self, id: Id, newest: Option<&ReceiptHandle>) {
        for waiter in self.waiters.remove(&id).unwrap_or_default() {
            if let Some(newest) = newest {
                let _ = waiter.send(newest.clone());
            }
        }
    }
}

pub(super) struct Shared {
    state: Mutex<State>,
    started: Instant,
    /// Wakes the driver.
    pub(super) wake: Notify,
    /// Tells that something is not kept for lack of room.
    pub(super) overload: Notify,
    /// Tells that something ended.
    pub(super) progress: Notify,
    pub(super) metrics: Metrics,
}

impl Shared {
    pub(super) fn new(policy: Policy) -> Self {
        Self {
            state: Mutex::new(State { core: Core::new(policy), waiters: HashMap::new(), asleep_until: i64::MAX }),
            started: Instant::now(),
            wake: Notify::new(),
            overload: Notify::new(),
            progress: Notify::new(),
            metrics: Metrics::default(),
        }
    }

    /// Milliseconds since the start. Monotonic: a step of the wall clock ends no lease.
    pub(super) fn now(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    /// The moment of a time of the core.
    pub(super) fn instant(&self, at: i64) -> Instant {
        self.started + std::time::Duration::from_millis(u64::try_from(at).unwrap_or(0))
    }

    /// Looks at the core.
    pub(super) fn read<R>(&self, look: impl FnOnce(&Core, i64) -> R) -> R {
        let state = self.state.lock();
        look(&state.core, self.now())
    }

    /// Tells the core of an event, and wakes the driver if that made something due before it would wake by itself.
    pub(super) fn with<R>(&self, event: impl FnOnce(&mut Core, i64) -> R) -> R {
        let mut state = self.state.lock();
        let now = self.now();
        let result = event(&mut state.core, now);
        self.rouse(&mut state, now);
        result
    }

    /// Tells whoever says so in the log that there is something to say.
    pub(super) fn look_for_overload(&self) {
        if self.state.lock().core.has_not_kept() {
            self.overload.notify_one();
        }
    }

    pub(super) fn take_not_kept(&self) -> Vec<NotKept> {
        self.state.lock().core.take_not_kept()
    }

    fn rouse(&self, state: &mut State, now: i64) {
        if state.core.next_wake(now).is_some_and(|next| next < state.asleep_until) {
            // Once is enough: until the driver looks again it counts as awake.
            state.asleep_until = i64::MIN;
            self.wake.notify_one();
        }
        self.progress.notify_waiters();
    }

    /// Begins an ack or a change. If it has to wait, the second part tells when to try again, and the newest handle
    /// then.
    pub(super) fn begin(&self, holder: Holder<'_>, handle: &ReceiptHandle, intent: Intent) -> Option<(Begun, Wait)> {
        let mut state = self.state.lock();
        let begun = state.core.begin(holder, Find::Handle(handle), intent)?;
        Some(state.await_turn(begun))
    }

    /// Tries again. `None` if the message is not held any more.
    pub(super) fn resume(&self, id: Id, intent: Intent) -> Option<(Begun, Wait)> {
        let mut state = self.state.lock();
        let begun = state.core.resume(id, intent)?;
        Some(state.await_turn(begun))
    }

    /// Tells the core that an ack or a change has ended, and those who waited for it.
    pub(super) fn end(&self, id: Id, event: impl FnOnce(&mut Core, i64)) {
        let mut state = self.state.lock();
        let now = self.now();
        event(&mut state.core, now);
        state.wake_waiters(id, None);
        self.rouse(&mut state, now);
    }

    /// The next request to be sent. The second part says when to look again if there is none.
    pub(super) fn step(&self, limit: &dyn Fn(&str) -> usize) -> (Step, Option<i64>) {
        let mut state = self.state.lock();
        let now = self.now();
        let lag = state.core.lag(now);
        let step = state.core.step(now, limit);
        let next = state.core.next_wake(now);
        state.asleep_until = if matches!(step, Step::Rest) { next.unwrap_or(i64::MAX) } else { i64::MIN };
        drop(state);
        if let Step::Send(batch) = &step {
            self.metrics.batch(batch.items.len(), lag);
        }
        self.progress.notify_waiters();
        (step, next)
    }

    /// Tells the core what became of some items of a request.
    pub(super) fn settle(
        &self,
        sent_at: i64,
        results: impl Iterator<Item = (Item, i64, Result<ReceiptHandle, ChangeError>)>,
    ) {
        let mut state = self.state.lock();
        let now = self.now();
        for (item, invisible_ms, result) in results {
            let newest = state.core.settle(now, item.flight, item.purpose, (sent_at, invisible_ms), result);
            state.wake_waiters(item.flight.id, newest.as_ref());
        }
        self.rouse(&mut state, now);
    }
}
