//! Each of those on whose behalf leases are changed: 1,000 messages cost as few requests as the limit allows.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};
use waybill_protocol::remoting::Command;
use waybill_protocol::remoting::codes::request;
use waybill_sidecar::backend::{MessageService, PoppedMessage, Transport, TransportError};
use waybill_sidecar::receipts::{ChannelKind, Holder, Mode, Policy, Receipts, Received};

use crate::rig::{BrokerRig, introduce, pop_of, pop_request, send, send_to, take, take_of, until, waiting};

const COUNT: usize = 1_000;
const MOST: usize = 256;
/// ceil(1000 / 256)
const REQUESTS: u64 = 4;
const HOLDER: Holder<'_> = Holder { client: "c", group: "g", topic: "t" };

struct World {
    rig: BrokerRig,
    service: MessageService,
    receipts: Receipts,
    _stops: DropGuard,
}

impl World {
    async fn start() -> Self {
        let rig = BrokerRig::start().await;
        let service = rig.service(rig.remote(), |config| {
            config.enable_batch_change_invisible_time = true;
            config.batch_change_invisible_time_max_num = MOST as i64;
        });
        let stop = CancellationToken::new();
        let policy = Policy { max_batch: MOST, ..Policy::default() };
        let receipts = Receipts::start(policy, Arc::new(service.clone()), stop.clone());
        Self { rig, service, receipts, _stops: stop.drop_guard() }
    }

    /// So many messages are in the client's hands, held for it.
    async fn held(invisible_ms: i64) -> Self {
        let world = Self::start().await;
        // The group exists before the messages, with a message that it is done with: what counts is what comes after.
        let mut first = pop_request("c", invisible_ms);
        first.poll_ms = 0;
        send(&world.service, 1).await;
        let early = world.service.pop(first).await.expect("a pop").messages;
        world.service.ack(early.into_iter().map(lease).collect()).await;
        send(&world.service, COUNT).await;
        let taken = take(&world.service, "c", COUNT, invisible_ms).await;
        let received = taken.into_iter().map(|message| Received {
            handle: message.handle,
            message_id: message.message_id,
            reconsume_times: message.message.reconsume_times,
            mode: Mode::Renew,
        });
        let registered = world.receipts.register(HOLDER, ChannelKind::Grpc, received.collect());
        assert_eq!(registered.held, COUNT);
        assert_eq!(world.rig.changes(), (0, 0));
        world
    }
}

fn lease(message: PoppedMessage) -> waybill_sidecar::backend::LeaseRef {
    waybill_sidecar::backend::LeaseRef { group: "g".into(), topic: "t".into(), handle: message.handle }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_gone_gives_everything_back_with_few_requests() {
    let world = World::held(600_000).await;
    world.receipts.client_gone("c", None);
    until("all is returned", || world.receipts.stats().held == 0).await;
    assert_eq!(world.rig.changes(), (0, REQUESTS));
    let again = take(&world.service, "d", COUNT, 600_000).await;
    assert!(again.iter().all(|message| message.message.reconsume_times == 1), "the client had them");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_could_not_be_written_goes_back_with_few_requests() {
    let world = World::start().await;
    send(&world.service, 1).await;
    let early = take(&world.service, "c", 1, 600_000).await;
    world.service.ack(early.into_iter().map(lease).collect()).await;
    send(&world.service, COUNT).await;
    let taken = take(&world.service, "c", COUNT, 600_000).await;
    // Not held by the receipts: a client that does not ask for renewal.
    let handles = taken.into_iter().map(|message| message.handle).collect();
    world.receipts.give_back(HOLDER, ChannelKind::Grpc, handles);
    until("all is returned", || world.receipts.stats().held == 0).await;
    assert_eq!(world.rig.changes(), (0, REQUESTS));
    let again = take(&world.service, "d", COUNT, 600_000).await;
    assert!(again.iter().all(|message| message.message.reconsume_times == 0), "nobody had them");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_due_is_renewed_with_few_requests() {
    let world = World::held(10_000).await;
    until("half of the lease is over, and all is renewed", || world.rig.changes().1 >= REQUESTS).await;
    until("no request is under way", || world.receipts.stats().in_flight == 0).await;
    assert_eq!(world.rig.changes(), (0, REQUESTS));
    assert_eq!(world.receipts.stats().held, COUNT as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_held_of_many_topics_and_groups_goes_back_with_few_requests_each() {
    const OF_EACH: usize = 500;
    let world = World::start().await;
    let topics = ["t1", "t2", "t3", "t4"];
    let groups = ["g1", "g2"];
    for topic in topics {
        introduce(&world.service, &groups, topic).await;
        send_to(&world.service, topic, OF_EACH, "body").await;
    }
    let targets: Vec<_> = groups.iter().flat_map(|group| topics.map(|topic| (*group, topic))).collect();
    let mut held = Vec::new();
    for target in &targets {
        held.push(take_of(&world.service, pop_of("c", *target, 600_000), OF_EACH).await.into_iter());
    }
    // A client receives of all its topics in turn.
    while held.iter().any(|messages| messages.len() > 0) {
        for ((group, topic), messages) in targets.iter().zip(&mut held) {
            let received = messages.by_ref().take(32).map(|message| Received {
                handle: message.handle,
                message_id: message.message_id,
                reconsume_times: 0,
                mode: Mode::Renew,
            });
            let holder = Holder { client: "c", group, topic };
            let registered = world.receipts.register(holder, ChannelKind::Grpc, received.collect());
            assert!(registered.refused.is_empty());
        }
    }
    assert_eq!(world.receipts.stats().held, 8 * OF_EACH as u64);
    world.receipts.client_gone("c", None);
    until("all is returned", || world.receipts.stats().held == 0).await;
    assert_eq!(world.rig.changes(), (0, 8 * OF_EACH.div_ceil(MOST) as u64));
}

/// Holds back what pops bring, and changes, until it is let.
struct Late {
    to: Arc<dyn Transport>,
    answers: Semaphore,
    changes: Semaphore,
    /// One for each answer that has come.
    came: Semaphore,
}

#[async_trait]
impl Transport for Late {
    async fn call(&self, address: &str, request: Command, timeout: Duration) -> Result<Command, TransportError> {
        let pop = request.code == request::POP_MESSAGE;
        if request.code == request::BATCH_CHANGE_MESSAGE_INVISIBLETIME {
            self.changes.acquire().await.expect("open").forget();
        }
        let answer = self.to.call(address, request, timeout).await;
        if pop {
            self.came.add_permits(1);
            self.answers.acquire().await.expect("open").forget();
        }
        answer
    }

    async fn oneway(&self, address: &str, request: Command, timeout: Duration) -> Result<(), TransportError> {
        self.to.oneway(address, request, timeout).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_pops_that_nobody_waits_for_go_back_with_few_requests() {
    let rig = BrokerRig::start().await;
    let [changes, came] = [0; 2].map(Semaphore::new);
    let late = Arc::new(Late { to: rig.remote(), answers: Semaphore::new(1), changes, came });
    let (service, metrics) = rig.counted_service(late.clone(), |config| {
        config.enable_batch_change_invisible_time = true;
        config.batch_change_invisible_time_max_num = MOST as i64;
    });
    send(&service, 1).await;
    let early = take(&service, "c", 1, 600_000).await;
    service.ack(early.into_iter().map(lease).collect()).await;
    late.came.acquire().await.expect("open").forget();
    send(&service, COUNT).await;
    let pops = COUNT.div_ceil(32);
    let given_up: Vec<_> = (0..pops)
        .map(|_| {
            let service = service.clone();
            tokio::spawn(async move { service.pop(pop_request("c", 600_000)).await })
        })
        .collect();
    late.came.acquire_many(pops as u32).await.expect("open").forget();
    for pop in given_up {
        pop.abort();
        assert!(pop.await.is_err(), "nobody waits any more");
    }
    // The first four leave at once with what one pop brought; all others gather meanwhile.
    const GATHERED: usize = COUNT - 4 * 32;
    late.answers.add_permits(10_000);
    until("all others have gathered", || waiting(&metrics) >= GATHERED).await;
    late.changes.add_permits(10_000);
    let again = take(&service, "d", COUNT, 600_000).await;
    assert!(again.iter().all(|message| message.message.reconsume_times == 0), "nobody had them");
    // One of the first four may have been the pop that brought less than 32.
    let gathered = GATHERED.div_ceil(MOST) as u64;
    let (single, batches) = rig.changes();
    assert_eq!((single, batches), (0, 4 + gathered));
}
