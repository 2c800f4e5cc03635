//! What the rest of the sidecar calls.

use std::{sync::Arc, time::Duration};

use prometheus_client::registry::Registry;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use waybill_protocol::handle::ReceiptHandle;

use super::{
    changer::Changer,
    complain,
    core::{Dropped, Find, Intent},
    driver,
    metrics::Scrape,
    policy::Policy,
    shared::Shared,
    ticket::{AckTicket, ChangeTicket, Ticket},
    types::{ChannelKind, DrainPolicy, DrainReport, Holder, Received, Registered, Stats},
};

/// Slots released under one lock when the sidecar stops.
const RELEASE_AT_ONCE: u32 = 1_024;

/// The receipt handles that clients of this sidecar hold. Cheap to clone.
#[derive(Clone)]
pub struct Receipts {
    shared: Arc<Shared>,
}

impl Receipts {
    /// A manager that renews and returns until `stop`. Must be called within a tokio runtime: it spawns two tasks.
    ///
    /// Requests that are under way when it stops are not aborted; each ends within `request_timeout_ms`.
    #[must_use]
    pub fn start(policy: Policy, changer: Arc<dyn Changer>, stop: CancellationToken) -> Self {
        let shared = Arc::new(Shared::new(policy));
        tokio::spawn(complain::run(shared.clone(), stop.clone()));
        tokio::spawn(driver::run(shared.clone(), changer, stop));
        Self { shared }
    }

    /// New settings, for everything from now on.
    pub fn set_policy(&self, policy: Policy) {
        self.shared.with(|core, _| core.set_policy(policy));
    }

    /// Adds this manager's metrics to a registry.
    pub fn register_metrics(&self, registry: &mut Registry) {
        self.shared.metrics.register(registry);
        registry.register_collector(Box::new(Scrape(self.shared.clone())));
    }

    /// Takes over messages that were popped for a client, before they are written to it.
    #[must_use = "what was returned must not be delivered"]
    pub fn register(&self, holder: Holder<'_>, kind: ChannelKind, received: Vec<Received>) -> Registered {
        let registered = self.shared.with(|core, now| core.register(now, holder, kind, &received));
        self.shared.look_for_overload();
        registered
    }

    /// The newest handle of the delivery that `client_handle` names, or `client_handle` itself if it is not held here.
    ///
    /// Waits only while a renewal is under way at a broker whose handles change, at most `request_timeout_ms`.
    pub async fn resolve_for_ack(&self, holder: Holder<'_>, client_handle: ReceiptHandle) -> AckTicket {
        AckTicket::new(self.resolve(holder, client_handle, Intent::Finish).await)
    }

    /// Like [`Self::resolve_for_ack`]; waits while any renewal is under way, so that the change is the last word at the
    /// broker.
    pub async fn resolve_for_change(
        &self,
        holder: Holder<'_>,
        client_handle: ReceiptHandle,
        invisible_ms: i64,
    ) -> ChangeTicket {
        let ticket = self.resolve(holder, client_handle, Intent::Change).await;
        ChangeTicket::new(ticket, self.shared.now(), invisible_ms)
    }

    /// Like [`Self::resolve_for_ack`].
    pub async fn resolve_for_forward(&self, holder: Holder<'_>, client_handle: ReceiptHandle) -> AckTicket {
        self.resolve_for_ack(holder, client_handle).await
    }

    /// The newest handle held of a message, found by its id.
    #[must_use]
    pub fn find_by_message_id(&self, holder: Holder<'_>, message_id: &str) -> Option<ReceiptHandle> {
        self.shared.read(|core, _| core.newest(holder, Find::MessageId(message_id)))
    }

    /// How often the message of a delivery was delivered before; nothing if it is not held here.
    #[must_use]
    pub fn earlier_deliveries(&self, holder: Holder<'_>, handle: &ReceiptHandle) -> Option<i32> {
        self.shared.read(|core, _| core.earlier_deliveries(holder, Find::Handle(handle)))
    }

    /// Messages that could not be written to the client: returned to the broker, whether they were registered or not.
    pub fn give_back(&self, holder: Holder<'_>, kind: ChannelKind, handles: Vec<ReceiptHandle>) {
        self.shared.with(|core, now| core.give_back(now, holder, kind, handles));
    }

    /// The client is gone (from one group, or altogether): renewal stops, all it holds is returned. So are later
    /// `register`s for it, until
    /// `client_back`, for a minute.
    pub fn client_gone(&self, client: &str, group: Option<&str>) {
        self.shared.with(|core, now| core.client_gone(now, client, group));
    }

    /// The same, altogether, but for what it holds from these brokers, which have not said yet whether it is at another sidecar.
    /// Answers how many messages that are.
    pub fn client_gone_but_from(&self, client: &str, brokers: &[Arc<str>]) -> usize {
        self.shared.with(|core, now| core.client_gone_but_from(now, client, None, brokers))
    }

    /// The client is here (again). Call it whenever a client registers; what was not returned yet is kept and renewed
    /// again.
    pub fn client_back(&self, client: &str) {
        self.shared.with(|core, now| core.client_back(now, client));
    }

    /// Waits until clients hold nothing any more, at most `limit`. Meanwhile all goes on as before.
    pub async fn clients_done(&self, limit: Duration) {
        self.wait_until(limit, |stats| stats.held == stats.let_go).await;
    }

    /// Stops renewing; answers when all is returned (or nothing is under way any more and everything is left to its
    /// lease), at the latest after
    /// `limit`. Acks and changes are taken as before, also afterwards.
    pub async fn drain(&self, policy: DrainPolicy, limit: Duration) -> DrainReport {
        let until = Instant::now() + limit;
        let before = self.shared.with(|core, _| {
            core.drain(policy);
            core.counters().dropped(Dropped::Returned)
        });
        let mut next = (policy == DrainPolicy::Release).then_some(0);
        while let Some(from) = next {
            next = self.shared.with(|core, now| core.release(now, from, RELEASE_AT_ONCE));
            tokio::task::yield_now().await;
        }
        self.wait_until(until.saturating_duration_since(Instant::now()), |stats| is_drained(policy, stats)).await;
        self.shared.read(|core, _| DrainReport {
            returned: core.counters().dropped(Dropped::Returned).saturating_sub(before),
            left: core.stats().held,
        })
    }

    /// What is held at this moment.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.read(|core, _| core.stats())
    }

    /// At most `limit`.
    async fn wait_until(&self, limit: Duration, so: impl Fn(&Stats) -> bool) {
        let until = Instant::now() + limit;
        loop {
            let mut progress = std::pin::pin!(self.shared.progress.notified());
            progress.as_mut().enable();
            if so(&self.stats()) || timeout_at(until, progress).await.is_err() {
                return;
            }
        }
    }

    async fn resolve(&self, holder: Holder<'_>, client_handle: ReceiptHandle, intent: Intent) -> Ticket {
        let Some((mut begun, mut wait)) = self.shared.begin(holder, &client_handle, intent) else {
            return Ticket::of_unknown(client_handle);
        };
        let id = begun.id;
        // Made before waiting: if the call is cancelled, the ticket's end gives the handle free.
        let mut ticket = Ticket::waiting(self.shared.clone(), begun.clone());
        while let Some(turn) = wait {
            ticket.handle = turn.await.unwrap_or(begun.handle);
            let Some(again) = self.shared.resume(id, intent) else {
                ticket.release();
                return ticket;
            };
            (begun, wait) = again;
        }
        ticket.enter(intent, begun.handle);
        ticket
    }
}

fn is_drained(policy: DrainPolicy, stats: &Stats) -> bool {
    match policy {
        DrainPolicy::Release => stats.held == stats.let_go,
        DrainPolicy::LeaveToLease => stats.in_flight == 0 && stats.returning == 0,
    }
}
