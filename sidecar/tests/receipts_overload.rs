//! The receipt manager when there is no room: what has the latest deadline is shed, counted, and told.

mod receipts_common;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use receipts_common::{HOLDER, SHAPES, World, extended, handle, received};
use tokio_util::sync::CancellationToken;
use waybill_protocol::handle::ReceiptHandle;
use waybill_sidecar::receipts::{
    AckOutcome, Change, ChangeError, ChangeOutcome, Changer, ChannelKind, Holder, MAX_HANDLES, Mode, Policy, Receipts,
    core::{Core, Dropped, Intent, Limit, Purpose},
};

const B: Holder<'static> = Holder { client: "client-b", ..HOLDER };
const C: Holder<'static> = Holder { client: "client-c", group: "other-group", ..HOLDER };

fn lease(offset: i64, invisible_ms: i64) -> ReceiptHandle {
    ReceiptHandle { invisible_time: invisible_ms, ..handle(offset, 77) }
}

fn world(max_handles: u32, max_handles_per_client: u32) -> World {
    World::with(Policy { max_handles, max_handles_per_client, ..Policy::default() })
}

/// (limit, of all, client, group, of that client)
fn told(core: &mut Core) -> Vec<(Limit, u64, String, String, u64)> {
    let told = core.take_not_kept().into_iter();
    told.map(|it| (it.limit, it.handles, it.client.to_string(), it.group.to_string(), it.of_client)).collect()
}

#[test]
fn one_clients_limit_sheds_its_own_latest_deadline() {
    let mut world = world(100, 3);
    let (short, long, middle) = (lease(1, 30_000), lease(2, 600_000), lease(3, 90_000));
    assert_eq!(world.hold(&short, Mode::Renew).held, 1);
    assert_eq!(world.hold(&long, Mode::Keep).held, 1);
    assert_eq!(world.hold(&middle, Mode::Renew).held, 1);
    world.hold_for(B, &lease(4, 900_000), Mode::Keep);
    assert!(!world.core.has_not_kept());
    let next = lease(5, 60_000);
    assert_eq!(world.hold(&next, Mode::Renew).held, 1, "there is room for what ends earlier");
    assert_eq!((world.newest(&long), world.dropped(Dropped::Shed)), (None, 1), "its own latest, nobody else's");
    assert_eq!(
        world.hold(&lease(6, 90_000), Mode::Renew).refused,
        [0],
        "the newcomer is the latest: not earlier than all"
    );
    assert_eq!(world.hold(&lease(7, 90_001), Mode::Renew).refused, [0]);
    assert_eq!((world.held(), world.core.counters().refused), (4, 2));
    let told = told(&mut world.core);
    assert_eq!(told, [(Limit::OfClient, 3, "client-a".to_owned(), "group".to_owned(), 3)]);
    assert!(!world.core.has_not_kept(), "told once");
}

#[test]
fn the_limit_of_all_sheds_the_latest_deadline_whoever_has_it() {
    let mut world = world(3, 100);
    world.hold(&lease(1, 60_000), Mode::Renew);
    world.hold_for(C, &lease(2, 61_000), Mode::Renew);
    world.hold_for(B, &lease(3, 55_000), Mode::Keep);
    // The end of the lease counts, not when there is something to do about it.
    world.hold_for(B, &lease(4, 60_500), Mode::Keep);
    assert_eq!(world.core.stats().clients, 2, "the last of client-c was shed");
    assert_eq!(told(&mut world.core), [(Limit::OfAll, 1, "client-c".to_owned(), "other-group".to_owned(), 1)]);
    assert_eq!(world.hold_for(C, &lease(5, 60_500), Mode::Renew).refused, [0]);
    assert_eq!(world.core.stats().clients, 2, "nothing is remembered of a client that holds nothing");
    // Room again.
    let begun = world.begin_ack(&lease(1, 60_000));
    world.end_ack(&begun, AckOutcome::Done);
    assert_eq!(world.hold_for(C, &lease(5, 60_500), Mode::Renew).held, 1);
}

/// A renewal moves the deadline, and what has the latest one is another then.
#[test]
fn deadlines_move() {
    for shape in SHAPES {
        let mut world = world(100, 2);
        let (first, second) = (lease(1, 60_000), lease(2, 70_000));
        world.hold(&first, Mode::Renew);
        world.hold(&second, Mode::Keep);
        world.renew(shape);
        world.hold(&lease(3, 15_000), Mode::Keep);
        assert_eq!(world.newest(&first), None, "renewed to the later end");
        assert!(world.newest(&second).is_some());
        // So does a change by the client.
        let change = world.begin(&lease(3, 15_000), Intent::Change).unwrap();
        world.end_change(&change, 300_000, ChangeOutcome::Extended(extended(&lease(3, 15_000), 300_000)));
        world.hold(&lease(4, 5_000), Mode::Keep);
        assert_eq!(world.newest(&lease(3, 15_000)), None);
        assert!(world.newest(&second).is_some());
    }
}

/// What is under way about a message, and what goes back, is not cut short.
#[test]
fn nothing_is_shed_in_the_middle_of_something() {
    let mut world = world(100, 3);
    let (acked, renewed) = (lease(1, 900_000), lease(2, 12_000));
    world.hold(&acked, Mode::Keep);
    world.hold(&renewed, Mode::Renew);
    let ack = world.begin_ack(&acked);
    let (batch, item) = world.next_item();
    world.hold_for(B, &lease(3, 900_000), Mode::Keep);
    world.core.client_gone(world.now, B.client, None);
    world.core.set_policy(Policy { max_handles: 3, max_handles_per_client: 1, ..Policy::default() });
    assert_eq!(world.hold(&lease(4, 1_000), Mode::Keep).refused, [0], "its own are both busy");
    world.core.set_policy(Policy { max_handles: 3, ..Policy::default() });
    assert_eq!(world.hold(&lease(4, 1_000), Mode::Keep).refused, [0], "all are busy or go back");
    assert_eq!(world.only_item().1.purpose, Purpose::Return);
    // An ack that failed: it can be shed again. One that is due and waits for a request as well.
    world.end_ack(&ack, AckOutcome::Failed);
    assert_eq!(world.hold(&lease(4, 1_000), Mode::Keep).held, 1);
    assert_eq!(world.newest(&acked), None);
    world.settle(&batch, &item, 60_000, Err(ChangeError::Busy));
    assert_eq!(world.hold(&lease(5, 500), Mode::Keep).held, 1);
    assert_eq!(world.newest(&renewed), None);
}

#[test]
fn what_is_due_but_waits_for_a_request_can_be_shed() {
    let mut world = World::with(Policy {
        max_handles_per_client: 3,
        max_requests_per_broker: 1,
        max_batch: 1,
        ..Policy::default()
    });
    for offset in 1..=3 {
        world.hold(&lease(offset, 60_000 + offset), Mode::Renew);
    }
    world.pass(55_000);
    let (batch, item) = world.only_item();
    assert_eq!(world.core.stats().due, 2);
    assert_eq!(world.hold(&lease(4, 1_000), Mode::Keep).held, 1);
    assert_eq!(world.newest(&lease(3, 60_003)), None);
    assert_eq!(world.core.stats().due, 1);
    world.answer(&batch, &item, 60_000, Ok(extended(&item.handle, 60_000)));
    assert_eq!(world.only_item().1.handle.offset, 2);
}

/// What is shed is not renewed any more, but the broker still has the lease and takes the client's handle.
#[test]
fn what_is_shed_is_left_to_its_lease() {
    let mut world = world(1, 1);
    world.hold(&lease(1, 60_000), Mode::Renew);
    world.hold(&lease(2, 30_000), Mode::Keep);
    assert!(world.begin(&lease(1, 60_000), Intent::Finish).is_none(), "the handle goes to the broker as it is");
    world.pass(29_999);
    world.nothing_sent();
    world.core.client_gone(world.now, HOLDER.client, None);
    assert_eq!(world.only_item().1.handle.offset, 2, "nobody returns it either");
}

#[test]
fn a_limit_that_was_lowered_is_reached_as_messages_come() {
    let mut world = world(1_000, 1_000);
    for offset in 0..100 {
        world.hold(&lease(offset, 60_000 + offset), Mode::Renew);
    }
    world.core.set_policy(Policy { max_handles_per_client: 10, ..Policy::default() });
    let mut came = 0;
    while world.held() > 10 {
        came += 1;
        assert_eq!(world.hold(&lease(1_000 + came, 50_000 - came), Mode::Keep).held, 1);
    }
    assert_eq!(came, 90, "each time one more goes than comes");
    assert_eq!(world.hold(&lease(2_000, 50_000), Mode::Keep).refused, [0]);
}

/// Memory is bounded: over the limits everything is refused or shed, counted, and told.
#[test]
fn a_flood_is_bounded_and_counted() {
    let mut world = world(500, 75);
    let mut refused = 0;
    for offset in 0..2_000 {
        let client = format!("client-{}", offset % 7);
        let handle = lease(offset, 60_000 + offset * 7_919 % 20_000);
        refused += world.hold_for(Holder { client: &client, ..HOLDER }, &handle, Mode::Renew).refused.len() as u64;
    }
    let shed = world.dropped(Dropped::Shed);
    let counters = *world.core.counters();
    assert_eq!((world.held(), counters.refused), (500, refused));
    assert_eq!(counters.registered - shed, 500);
    assert!(shed > 0 && refused > 0);
    let told: u64 = world.core.take_not_kept().iter().map(|not_kept| not_kept.handles).sum();
    assert_eq!(told, shed + refused, "nothing silently");
}

#[test]
fn of_a_flood_what_ends_first_is_kept() {
    let mut world = world(300, MAX_HANDLES);
    let mut all: Vec<i64> = (0..2_000).map(|n| 60_000 + n * 7_919 % 20_011).collect();
    for (offset, invisible_ms) in (0..).zip(&all) {
        let client = format!("client-{}", offset % 7);
        let mode = if offset % 3 == 0 { Mode::Keep } else { Mode::Renew };
        world.hold_for(Holder { client: &client, ..HOLDER }, &lease(offset, *invisible_ms), mode);
    }
    let held = (0..).zip(&all).filter(|(offset, ms)| world.newest(&lease(*offset, **ms)).is_some());
    let mut held: Vec<i64> = held.map(|(_, ms)| *ms).collect();
    held.sort_unstable();
    all.sort_unstable();
    assert_eq!(held, all[..300]);
}

/// Limits that are neared, left half-way, reached, lowered and raised, while leases move: against the rule said plainly.
#[test]
fn what_ends_last_goes_however_limits_are_neared_and_left() {
    const CLIENTS: [&str; 5] = ["c0", "c1", "c2", "c3", "c4"];
    let mut world = world(400, 120);
    let mut dice = 88_172_645_463_325_252_u64;
    let mut roll = |sides: usize| {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        (dice % sides as u64) as usize
    };
    // (client, handle, end of the lease), the ends all different.
    let mut held: Vec<(usize, ReceiptHandle, i64)> = Vec::new();
    let (mut limits, mut grows, mut sheds) = ((400, 120), 90, [0; 2]);
    for step in 0..60_000_i64 {
        if step % 151 == 0 {
            grows = [25, 50, 95][roll(3)];
        }
        if step % 5_000 == 4_999 {
            limits = [(400, 120), (200, 120), (400, 30), (90, 90)][roll(4)];
            let (max_handles, max_handles_per_client) = limits;
            world.core.set_policy(Policy { max_handles, max_handles_per_client, ..Policy::default() });
        }
        let ends = 1_000_000 + roll(1_000_000) as i64 * 100_000 + step;
        if roll(100) < grows || held.is_empty() {
            let client = roll(CLIENTS.len()) * roll(2);
            let handle = lease(step, ends);
            let mut room = true;
            for (scope, limit) in [limits.1, limits.0].into_iter().enumerate() {
                let is_in = |it: &(usize, ReceiptHandle, i64)| scope == 1 || it.0 == client;
                let mut shed = 0;
                while room && held.iter().filter(|it| is_in(it)).count() >= limit as usize {
                    let latest = (0..held.len()).filter(|&n| is_in(&held[n])).max_by_key(|&n| held[n].2);
                    match latest.filter(|&n| held[n].2 > ends && shed < 2) {
                        Some(latest) => drop(held.swap_remove(latest)),
                        None => {
                            room = shed > 0;
                            break;
                        }
                    }
                    shed += 1;
                }
                sheds[scope] += shed;
            }
            let holder = Holder { client: CLIENTS[client], ..HOLDER };
            assert_eq!(world.hold_for(holder, &handle, Mode::Keep).held, usize::from(room), "step {step}");
            if room {
                held.push((client, handle, ends));
            }
        } else if roll(3) == 0 {
            let moved = roll(held.len());
            let change = world.begin(&held[moved].1, Intent::Change).unwrap();
            let newer = extended(&change.handle, ends);
            world.end_change(&change, ends, ChangeOutcome::Extended(newer));
            held[moved].2 = ends;
        } else {
            let (_, handle, _) = held.swap_remove(roll(held.len()));
            let ack = world.begin_ack(&handle);
            world.end_ack(&ack, AckOutcome::Done);
        }
        assert_eq!(world.held(), held.len() as u64, "step {step}");
        if step % 50 == 0 {
            assert!(held.iter().all(|(_, handle, _)| world.newest(handle).is_some()), "step {step}");
        }
    }
    assert!(sheds.iter().all(|sheds| *sheds > 500), "{sheds:?}");
}

/// Many consumers at their limits: what is told stays small, and counts all.
#[test]
fn what_is_told_is_bounded() {
    let mut world = world(1, 1);
    world.hold(&lease(0, 1_000), Mode::Keep);
    for offset in 1..=5_000 {
        let client = format!("client-{}", offset % 2_500);
        world.hold_for(Holder { client: &client, ..HOLDER }, &lease(offset, 60_000), Mode::Renew);
    }
    world.hold_for(Holder { client: "client-1", ..HOLDER }, &lease(9_999, 60_000), Mode::Renew);
    let told = told(&mut world.core);
    assert_eq!(told, [(Limit::OfAll, 5_001, "client-1".to_owned(), "group".to_owned(), 3)]);
}

/// How late the manager is must be seen exactly when nothing can be sent.
#[test]
fn the_lag_grows_while_every_request_is_taken() {
    let policy = Policy { max_requests_per_broker: 1, max_batch: 1, ..Policy::default() };
    let mut world = World::with(policy);
    world.hold(&lease(1, 60_000), Mode::Renew);
    world.hold(&lease(2, 62_000), Mode::Renew);
    world.hold(&lease(3, 61_000), Mode::Renew);
    world.pass(49_999);
    assert_eq!((world.batches().len(), world.core.lag(world.now)), (0, 0));
    world.pass(2_001);
    assert_eq!(world.core.lag(world.now), 2_000, "due for so long, and not even looked at");
    let (batch, item) = world.only_item();
    assert_eq!((item.handle.offset, world.core.stats().due), (1, 2));
    assert_eq!(world.core.lag(world.now), 1_000, "that of the third");
    world.pass(3_000);
    world.nothing_sent();
    assert_eq!(world.core.lag(world.now), 4_000);
    world.answer(&batch, &item, 60_000, Ok(extended(&item.handle, 60_000)));
    let (batch, item) = world.only_item();
    assert_eq!((item.handle.offset, world.core.lag(world.now)), (3, 3_000), "that of the second");
    // An ack takes it out of what waits.
    let ack = world.begin_ack(&lease(2, 62_000));
    assert_eq!(world.core.lag(world.now), 0);
    world.end_ack(&ack, AckOutcome::Failed);
    assert_eq!((world.core.lag(world.now), world.core.stats().due), (0, 0), "due again at half of what is left");
    world.answer(&batch, &item, 60_000, Ok(extended(&item.handle, 60_000)));
    world.pass(3_500);
    assert_eq!(world.only_item().1.handle.offset, 2);
    assert_eq!(world.core.lag(world.now), 0);
}

struct Silent;

#[async_trait]
impl Changer for Silent {
    async fn change_invisible(
        &self,
        _group: &Arc<str>,
        _topic: &Arc<str>,
        _changes: Vec<Change>,
    ) -> Vec<Result<ReceiptHandle, ChangeError>> {
        std::future::pending().await
    }

    async fn retry_delay_ms(&self, _group: &Arc<str>, _topic: &Arc<str>, _times: i32) -> Option<i64> {
        None
    }
}

/// Lines of a log: level, then fields in their order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = event.metadata().level().to_string();
        event.record(&mut |field: &tracing::field::Field, value: &dyn std::fmt::Debug| {
            line.push_str(&format!(" {field}={value:?}"));
        });
        self.0.lock().push(line);
    }

    fn new_span(&self, _span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _span: &tracing::span::Id, _values: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _span: &tracing::span::Id, _follows: &tracing::span::Id) {}
    fn enter(&self, _span: &tracing::span::Id) {}
    fn exit(&self, _span: &tracing::span::Id) {}
}

impl Log {
    fn lines(&self) -> Vec<String> {
        self.0.lock().clone()
    }

    fn is_told_of<'a>(&self, wanted: impl IntoIterator<Item = &'a str>) -> usize {
        let lines = self.lines();
        for wanted in wanted {
            assert!(lines.last().is_some_and(|line| line.contains(wanted)), "{wanted} is not in the last of {lines:?}");
        }
        lines.len()
    }
}

fn receipts(policy: Policy) -> Receipts {
    Receipts::start(policy, Arc::new(Silent), CancellationToken::new())
}

fn hold(receipts: &Receipts, offset: i64) -> usize {
    receipts.register(HOLDER, ChannelKind::Grpc, vec![received(lease(offset, 60_000), Mode::Renew)]).held
}

async fn pass(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

#[tokio::test(start_paused = true)]
async fn the_log_says_at_once_what_is_not_kept_and_then_how_much_every_few_seconds() {
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let receipts = receipts(Policy { max_handles_per_client: 2, ..Policy::default() });
    assert_eq!((hold(&receipts, 1), hold(&receipts, 2)), (1, 1));
    pass(10).await;
    assert_eq!(log.lines().len(), 0);
    assert_eq!(hold(&receipts, 3), 0);
    pass(10).await;
    let wanted = [
        "WARN",
        "receiptHandleMaxNumPerClient",
        "limit=2",
        "handles=1",
        "client=\"client-a\"",
        "group=\"group\"",
        "raise the key",
    ];
    assert_eq!(log.is_told_of(wanted), 1);
    for offset in 4..104 {
        assert_eq!(hold(&receipts, offset), 0);
        pass(10).await;
    }
    assert_eq!(log.lines().len(), 1, "not a line for each");
    pass(5_000).await;
    assert_eq!(log.is_told_of(["handles=100"]), 2);
    pass(60_000).await;
    assert_eq!(log.lines().len(), 2, "nothing new");
}

#[tokio::test(start_paused = true)]
async fn the_metrics_say_how_late_it_is_while_no_broker_answers() {
    let receipts = receipts(Policy { max_requests_per_broker: 1, max_batch: 1, ..Policy::default() });
    let mut registry = Registry::default();
    receipts.register_metrics(&mut registry);
    assert_eq!((hold(&receipts, 1), hold(&receipts, 2)), (1, 1));
    pass(53_000).await;
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let line = "waybill_sidecar_receipts_oldest_due_seconds 3.0";
    assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
}
