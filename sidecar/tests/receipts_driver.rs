//! The receipt manager as a whole, with a made-up broker and a clock that is moved by hand (tokio's, paused).

mod receipts_common;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use receipts_common::{HOLDER, LEASE, extended, handle, moved, received};
use tokio::time::{Instant, advance, sleep, timeout};
use tokio_util::sync::CancellationToken;
use waybill_protocol::handle::ReceiptHandle;
use waybill_sidecar::receipts::{
    AckOutcome, Change, ChangeError, ChangeOutcome, Changer, ChannelKind, DrainPolicy, Holder, Mode, Policy, Receipts,
};

/// How the made-up brokers behave.
#[derive(Clone)]
struct Behaviour {
    shape: fn(&ReceiptHandle, i64) -> ReceiptHandle,
    /// Before the answer.
    takes: Duration,
    /// These brokers never answer.
    hung: HashSet<String>,
    /// Everything fails so.
    error: Option<ChangeError>,
    /// Answers only so many entries.
    at_most: usize,
    panics: bool,
    back_off: Option<i64>,
    batch_limit: usize,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            shape: extended,
            takes: Duration::ZERO,
            hung: HashSet::new(),
            error: None,
            at_most: usize::MAX,
            panics: false,
            back_off: Some(10_000),
            batch_limit: usize::MAX,
        }
    }
}

#[derive(Clone)]
struct Call {
    at: Duration,
    changes: Vec<Change>,
}

struct Brokers {
    started: Instant,
    behaviour: Mutex<Behaviour>,
    calls: Mutex<Vec<Call>>,
    asked_back_off: Mutex<usize>,
    /// By broker: now, and the most ever.
    under_way: Mutex<HashMap<String, (usize, usize)>>,
}

impl Brokers {
    fn behave(&self, change: impl FnOnce(&mut Behaviour)) {
        change(&mut self.behaviour.lock());
    }

    fn calls(&self) -> Vec<Call> {
        self.calls.lock().clone()
    }

    fn changes(&self) -> usize {
        self.calls.lock().iter().map(|call| call.changes.len()).sum()
    }
}

#[async_trait]
impl Changer for Brokers {
    async fn change_invisible(
        &self,
        _group: &Arc<str>,
        _topic: &Arc<str>,
        changes: Vec<Change>,
    ) -> Vec<Result<ReceiptHandle, ChangeError>> {
        let behaviour = self.behaviour.lock().clone();
        let broker = changes[0].handle.broker_name.clone();
        assert!(changes.iter().all(|change| change.handle.broker_name == broker));
        self.calls.lock().push(Call { at: self.started.elapsed(), changes: changes.clone() });
        {
            let mut under_way = self.under_way.lock();
            let (now, most) = under_way.entry(broker.clone()).or_default();
            *now += 1;
            *most = (*most).max(*now);
        }
        if behaviour.hung.contains(&broker) {
            std::future::pending::<()>().await;
        }
        sleep(behaviour.takes).await;
        self.under_way.lock().entry(broker).and_modify(|(now, _)| *now -= 1);
        assert!(!behaviour.panics, "a broker client with a defect");
        let answer = |change: &Change| match behaviour.error {
            Some(error) => Err(error),
            None => Ok((behaviour.shape)(&change.handle, change.invisible_ms)),
        };
        changes.iter().take(behaviour.at_most).map(answer).collect()
    }

    fn batch_limit(&self, _broker: &str) -> usize {
        self.behaviour.lock().batch_limit
    }

    async fn retry_delay_ms(&self, _group: &Arc<str>, _topic: &Arc<str>, _times: i32) -> Option<i64> {
        *self.asked_back_off.lock() += 1;
        self.behaviour.lock().back_off
    }
}

struct World {
    receipts: Receipts,
    brokers: Arc<Brokers>,
    stop: CancellationToken,
}

impl World {
    fn new(policy: Policy) -> Self {
        let brokers = Arc::new(Brokers {
            started: Instant::now(),
            behaviour: Mutex::default(),
            calls: Mutex::default(),
            asked_back_off: Mutex::default(),
            under_way: Mutex::default(),
        });
        let stop = CancellationToken::new();
        Self { receipts: Receipts::start(policy, brokers.clone(), stop.clone()), brokers, stop }
    }

    fn hold(&self, handle: &ReceiptHandle, mode: Mode) {
        let registered = self.receipts.register(HOLDER, ChannelKind::Grpc, vec![received(handle.clone(), mode)]);
        assert_eq!((registered.held, registered.client_gone), (1, false));
    }
}

/// Moves the clock; everything that is due on the way happens at its time.
async fn pass(ms: u64) {
    sleep(Duration::from_millis(ms)).await;
    settled().await;
}

/// Lets all tasks that can run do so, without moving the clock.
async fn settled() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn renews_by_itself_and_sleeps_in_between() {
    let world = World::new(Policy::default());
    pass(3_600_000).await;
    world.hold(&handle(1, 77), Mode::Renew);
    pass(49_000).await;
    assert_eq!(world.brokers.changes(), 0);
    pass(1_000).await;
    assert_eq!(world.brokers.changes(), 1);
    // 50 s, then every step of the policy less ten seconds.
    pass(3 * 3_600_000).await;
    let at: Vec<u64> = world.brokers.calls().iter().map(|call| call.at.as_secs() - 3_600).collect();
    assert_eq!(at[..6], [50, 100, 270, 560, 1_150, 2_940]);
}

#[tokio::test(start_paused = true)]
async fn an_earlier_deadline_wakes_the_sleeper() {
    let world = World::new(Policy::default());
    world.hold(&handle(1, 77), Mode::Keep);
    pass(1_000).await;
    let mut short = handle(2, 77);
    short.invisible_time = 20_000;
    world.hold(&short, Mode::Renew);
    pass(10_000).await;
    assert_eq!(world.brokers.changes(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_ack_waits_for_a_moving_handle_but_not_for_a_stable_one() {
    for (shape, waits) in [(moved as fn(&ReceiptHandle, i64) -> ReceiptHandle, true), (extended, false)] {
        let world = World::new(Policy::default());
        world.brokers.behave(|b| b.shape = shape);
        let first = handle(1, 77);
        world.hold(&first, Mode::Renew);
        // The first renewal shows how handles behave here, the second takes a second.
        pass(51_000).await;
        world.brokers.behave(|b| b.takes = Duration::from_secs(1));
        pass(49_500).await;
        let began = Instant::now();
        let ticket = world.receipts.resolve_for_ack(HOLDER, first.clone()).await;
        assert!(ticket.is_held());
        assert_eq!(began.elapsed() > Duration::ZERO, waits);
        assert!(began.elapsed() <= Duration::from_secs(1));
        let expected = if waits { moved(&moved(&first, 60_000), 180_000) } else { extended(&first, 60_000) };
        assert_eq!(*ticket.handle(), expected);
        ticket.done(AckOutcome::Done);
        pass(10_000).await;
        assert_eq!(world.receipts.stats().held, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_hangs_holds_no_ack_longer_than_a_request_may_take() {
    let world = World::new(Policy::default());
    world.brokers.behave(|b| b.hung = ["broker-a".to_owned()].into());
    let first = handle(1, 77);
    world.hold(&first, Mode::Renew);
    pass(50_500).await;
    let began = Instant::now();
    let ticket = world.receipts.resolve_for_ack(HOLDER, first.clone()).await;
    assert_eq!(began.elapsed(), Duration::from_millis(5_500));
    assert_eq!(*ticket.handle(), first);
    ticket.done(AckOutcome::Done);
    assert_eq!(world.receipts.stats().in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn a_change_waits_and_is_the_last_word() {
    let world = World::new(Policy::default());
    world.brokers.behave(|b| b.takes = Duration::from_secs(1));
    let first = handle(1, 77);
    world.hold(&first, Mode::Renew);
    pass(50_100).await;
    let ticket = world.receipts.resolve_for_change(HOLDER, first.clone(), 90_000).await;
    assert!(ticket.is_held());
    assert_eq!(*ticket.handle(), extended(&first, 60_000));
    let changed = extended(ticket.handle(), 90_000);
    ticket.done(ChangeOutcome::Extended(changed.clone()));
    let changed_at = world.brokers.started.elapsed();
    pass(200_000).await;
    let next = world.brokers.calls().remove(1);
    assert_eq!(next.changes[0].handle, changed);
    let after = next.at - changed_at;
    assert!((79_900..=80_000).contains(&after.as_millis()), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn what_goes_alone_is_followed_by_what_waits_for_it() {
    for (finish, cancelled) in [(true, false), (true, true), (false, false), (false, true)] {
        let world = World::new(Policy::default());
        world.brokers.behave(|b| b.shape = moved);
        let first = handle(1, 77);
        world.hold(&first, Mode::Renew);
        pass(50_000).await;
        let newest = moved(&first, 60_000);
        let change = world.receipts.resolve_for_change(HOLDER, first.clone(), 90_000).await;
        let receipts = world.receipts.clone();
        let waiting = tokio::spawn(async move {
            if finish {
                receipts.resolve_for_ack(HOLDER, handle(1, 77)).await.handle().clone()
            } else {
                receipts.resolve_for_change(HOLDER, handle(1, 77), 1_000).await.handle().clone()
            }
        });
        pass(1_000).await;
        assert!(!waiting.is_finished());
        let changed = moved(&newest, 90_000);
        if cancelled {
            drop(change);
        } else {
            change.done(ChangeOutcome::Extended(changed.clone()));
        }
        settled().await;
        assert!(waiting.is_finished());
        assert_eq!(waiting.await.unwrap(), if cancelled { newest } else { changed });
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_that_waits_for_an_ack_goes_on_when_the_message_is_acked() {
    let world = World::new(Policy::default());
    world.brokers.behave(|b| b.shape = moved);
    let first = handle(1, 77);
    world.hold(&first, Mode::Renew);
    pass(50_000).await;
    let ack = world.receipts.resolve_for_ack(HOLDER, first.clone()).await;
    let receipts = world.receipts.clone();
    let waiting = tokio::spawn(async move { receipts.resolve_for_change(HOLDER, first, 1_000).await.is_held() });
    settled().await;
    assert!(!waiting.is_finished());
    ack.done(AckOutcome::Done);
    assert!(!waiting.await.unwrap(), "the broker says what is left of the message");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_ticket_counts_as_failed() {
    let world = World::new(Policy::default());
    let first = handle(1, 77);
    world.hold(&first, Mode::Renew);
    drop(world.receipts.resolve_for_ack(HOLDER, first.clone()).await);
    drop(world.receipts.resolve_for_change(HOLDER, first.clone(), 1).await);
    pass(50_000).await;
    assert_eq!(world.brokers.changes(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_cancelled_while_it_waits_leaves_nothing_behind() {
    let world = World::new(Policy::default());
    world.brokers.behave(|b| b.takes = Duration::from_secs(2));
    let first = handle(1, 77);
    world.hold(&first, Mode::Renew);
    pass(50_500).await;
    let waiting = world.receipts.resolve_for_change(HOLDER, first.clone(), 90_000);
    assert!(timeout(Duration::from_millis(100), waiting).await.is_err());
    // Renewal goes on after the one that was waited for.
    pass(60_000).await;
    assert_eq!(world.brokers.changes(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_handle_is_passed_through() {
    let world = World::new(Policy::default());
    let ticket = world.receipts.resolve_for_forward(HOLDER, handle(1, 77)).await;
    assert!(!ticket.is_held());
    assert_eq!(*ticket.handle(), handle(1, 77));
    ticket.done(AckOutcome::Done);
    let ticket = world.receipts.resolve_for_change(HOLDER, handle(1, 77), 1).await;
    assert!(!ticket.is_held());
    ticket.done(ChangeOutcome::LetGo(handle(1, 77)));
    assert_eq!(world.receipts.stats().held, 0);
}

#[tokio::test(start_paused = true)]
async fn a_panic_and_a_short_answer_are_failures_like_others() {
    let world = World::new(Policy { max_requests_per_broker: 1, ..Policy::default() });
    for offset in 0..4 {
        world.hold(&handle(offset, 77), Mode::Renew);
    }
    world.brokers.behave(|b| b.panics = true);
    pass(50_000).await;
    assert_eq!((world.receipts.stats().in_flight, world.receipts.stats().held), (0, 4));
    world.brokers.behave(|b| (b.panics, b.at_most) = (false, 3));
    pass(2_000).await;
    world.brokers.behave(|b| b.at_most = usize::MAX);
    pass(5_000).await;
    let sizes: Vec<usize> = world.brokers.calls().iter().map(|call| call.changes.len()).collect();
    assert_eq!(sizes, [4, 4, 1]);
    assert_eq!(world.receipts.stats().gave_up, 0);
}

#[tokio::test(start_paused = true)]
async fn requests_per_broker_are_bounded_and_brokers_do_not_wait_for_each_other() {
    let world = World::new(Policy { max_requests_per_broker: 3, max_batch: 2, ..Policy::default() });
    world.brokers.behave(|b| {
        b.hung = ["broker-a".to_owned()].into();
        b.takes = Duration::from_millis(10);
    });
    for offset in 0..100 {
        let mut handle = handle(offset, 77);
        if offset % 2 == 1 {
            handle.broker_name = "broker-b".to_owned();
        }
        world.hold(&handle, Mode::Renew);
    }
    pass(50_100).await;
    let calls = world.brokers.calls();
    let of = |broker: &str| calls.iter().filter(|call| call.changes[0].handle.broker_name == broker).count();
    assert_eq!((of("broker-a"), of("broker-b")), (3, 25));
    assert_eq!(world.brokers.under_way.lock()["broker-b"], (0, 3));
    let stats = world.receipts.stats();
    assert_eq!((stats.in_flight, stats.due), (6, 44));
    // Acks of what waits behind the hanging broker wait for nothing.
    let began = Instant::now();
    let waiting = (0..100).step_by(2).map(|offset| handle(offset, 77));
    let mut at_once = 0;
    for handle in waiting {
        if let Ok(ticket) = timeout(Duration::from_millis(1), world.receipts.resolve_for_ack(HOLDER, handle)).await {
            at_once += 1;
            ticket.done(AckOutcome::Done);
        }
    }
    assert_eq!(at_once, 44, "all but those in the six requests whose answer matters");
    assert!(began.elapsed() <= Duration::from_millis(20));
}

#[tokio::test(start_paused = true)]
async fn brokers_that_are_asked_one_by_one_get_small_requests() {
    let world = World::new(Policy::default());
    world.brokers.behave(|b| b.batch_limit = 32);
    for offset in 0..100 {
        world.hold(&handle(offset, 77), Mode::Renew);
    }
    pass(50_000).await;
    let sizes: Vec<usize> = world.brokers.calls().iter().map(|call| call.changes.len()).collect();
    assert_eq!(sizes, [32, 32, 32, 4]);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_left_gives_everything_back_after_an_outage() {
    let world = World::new(Policy::default());
    for offset in 0..100 {
        world.hold(&handle(offset, 77), if offset % 2 == 0 { Mode::Renew } else { Mode::Keep });
    }
    world.brokers.behave(|b| b.error = Some(ChangeError::Unavailable));
    world.receipts.client_gone(HOLDER.client, None);
    settled().await;
    assert_eq!(world.brokers.calls().len(), 1, "one request for all, at once");
    pass(10_000).await;
    world.brokers.behave(|b| b.error = None);
    pass(5_000).await;
    assert_eq!(world.receipts.stats().held, 0);
    assert!(world.brokers.calls().iter().flat_map(|call| &call.changes).all(|change| change.invisible_ms == 1_000));
    pass(600_000).await;
    let calls = world.brokers.calls().len();
    assert!(calls <= 7, "{calls}");
}

#[tokio::test(start_paused = true)]
async fn thousands_of_clients_dropped_at_once() {
    let world = World::new(Policy::default());
    world.brokers.behave(|b| b.takes = Duration::from_millis(5));
    let clients: Vec<String> = (0..3_000).map(|n| format!("client-{n}")).collect();
    for (n, client) in clients.iter().enumerate() {
        let received = (0..5).map(|k| received(handle(n as i64 * 5 + k, 77), Mode::Renew)).collect();
        let _held = world.receipts.register(Holder { client, ..HOLDER }, ChannelKind::Grpc, received);
    }
    for client in &clients {
        world.receipts.client_gone(client, None);
    }
    pass(1_000).await;
    assert_eq!(world.receipts.stats().held, 0);
    assert_eq!(world.brokers.changes(), 15_000);
    assert!(world.brokers.calls().len() <= 30, "{}", world.brokers.calls().len());
}

#[tokio::test(start_paused = true)]
async fn outliving_the_longest_time_asks_for_the_groups_back_off() {
    let policy = Policy { renew_max_time_ms: 1_000, ..Policy::default() };
    let world = World::new(policy.clone());
    for offset in 0..10 {
        world.hold(&handle(offset, 77), Mode::Renew);
    }
    pass(50_000).await;
    assert_eq!((world.brokers.changes(), *world.brokers.asked_back_off.lock()), (10, 1));
    assert!(world.brokers.calls()[0].changes.iter().all(|change| change.invisible_ms == 10_000));
    pass(10_100).await;
    assert_eq!(world.receipts.stats().held, 0);
    // Unknown back-off: nothing is sent, the lease runs out.
    let world = World::new(policy);
    world.brokers.behave(|b| b.back_off = None);
    world.hold(&handle(1, 77), Mode::Renew);
    pass(59_000).await;
    assert_eq!((world.brokers.calls().len(), world.receipts.stats().gave_up), (0, 1));
    pass(1_100).await;
    assert_eq!(world.receipts.stats().held, 0);
}

#[tokio::test(start_paused = true)]
async fn new_settings_count_at_once() {
    let world = World::new(Policy::default());
    world.hold(&handle(1, 77), Mode::Renew);
    world.receipts.set_policy(Policy { renew_ahead_ms: 20_000, clear_invisible_ms: 7, ..Policy::default() });
    world.hold(&handle(2, 77), Mode::Renew);
    pass(40_000).await;
    assert_eq!(world.brokers.changes(), 1);
    world.receipts.client_gone(HOLDER.client, Some(HOLDER.group));
    settled().await;
    assert!(world.brokers.calls()[1].changes.iter().all(|change| change.invisible_ms == 7));
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_releases_waits_for_acks_and_returns() {
    let world = World::new(Policy { max_batch: 100, ..Policy::default() });
    world.brokers.behave(|b| b.takes = Duration::from_millis(50));
    for offset in 0..5_000 {
        world.hold(&handle(offset, 77), Mode::Renew);
    }
    let ticket = world.receipts.resolve_for_ack(HOLDER, handle(7, 77)).await;
    let receipts = world.receipts.clone();
    let drain = tokio::spawn(async move { receipts.drain(DrainPolicy::Release, Duration::from_secs(30)).await });
    pass(2_000).await;
    assert!(!drain.is_finished());
    ticket.done(AckOutcome::Done);
    let report = drain.await.unwrap();
    assert_eq!((report.returned, report.left), (4_999, 0));
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_at_its_limit() {
    let world = World::new(Policy::default());
    world.brokers.behave(|b| b.error = Some(ChangeError::Unavailable));
    world.hold(&handle(1, 77), Mode::Renew);
    let began = Instant::now();
    let report = world.receipts.drain(DrainPolicy::Release, Duration::from_secs(9)).await;
    assert_eq!((report.returned, report.left), (0, 1));
    assert_eq!(began.elapsed(), Duration::from_secs(9));
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_leaves_sends_nothing_more() {
    let world = World::new(Policy::default());
    world.brokers.behave(|b| b.takes = Duration::from_secs(1));
    world.hold(&handle(1, 77), Mode::Renew);
    pass(20_000).await;
    world.hold(&handle(2, 77), Mode::Renew);
    pass(30_500).await;
    let began = Instant::now();
    let report = world.receipts.drain(DrainPolicy::LeaveToLease, Duration::from_secs(9)).await;
    assert_eq!((report.returned, report.left), (0, 2));
    assert_eq!(began.elapsed(), Duration::from_millis(500), "the request under way is waited for");
    pass(LEASE as u64 * 2).await;
    assert_eq!((world.brokers.changes(), world.receipts.stats().held), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn after_stop_nothing_is_sent() {
    let world = World::new(Policy::default());
    world.hold(&handle(1, 77), Mode::Renew);
    world.stop.cancel();
    pass(120_000).await;
    assert_eq!(world.brokers.calls().len(), 0);
    advance(Duration::from_secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn what_happens_is_seen_in_the_metrics() {
    let world = World::new(Policy::default());
    let mut registry = Registry::default();
    world.receipts.register_metrics(&mut registry);
    for offset in 0..3 {
        world.hold(&handle(offset, 77), Mode::Renew);
    }
    world.hold(&handle(9, 77), Mode::Keep);
    world.brokers.behave(|b| b.error = Some(ChangeError::Busy));
    pass(51_000).await;
    world.brokers.behave(|b| b.error = None);
    pass(3_000).await;
    world.receipts.resolve_for_ack(HOLDER, handle(0, 77)).await.done(AckOutcome::Done);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for line in [
        "waybill_sidecar_receipts_held 3",
        "waybill_sidecar_receipts_kept 1",
        "waybill_sidecar_receipts_due 0",
        "waybill_sidecar_receipts_in_flight 0",
        "waybill_sidecar_receipts_registered_total 4",
        "waybill_sidecar_receipts_renewed_total 3",
        "waybill_sidecar_receipts_late_total 0",
        "waybill_sidecar_receipts_failed_total{cause=\"busy\"} 3",
        "waybill_sidecar_receipts_dropped_total{cause=\"done\"} 1",
        "waybill_sidecar_receipts_batch_size_sum 6.0",
        "waybill_sidecar_receipts_batch_size_count 2",
        "waybill_sidecar_receipts_lag_seconds_count 2",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
    }
}
