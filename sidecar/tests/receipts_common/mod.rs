//! What the tests of the receipt manager share: shorthand for the core, and handles in the shapes of both brokers.
#![allow(dead_code, unreachable_pub)] // Each test file uses its own part.
#![allow(clippy::expect_used, clippy::panic)] // Helpers of tests, which clippy takes for something else.

use waybill_protocol::handle::{ReceiptHandle, TopicType};
use waybill_sidecar::receipts::{
    AckOutcome, ChangeError, ChangeOutcome, ChannelKind, Holder, Mode, Policy, Received, Registered,
    core::{Ask, Batch, Begun, Core, Dropped, Find, Intent, Item, Purpose},
};

pub const HOLDER: Holder<'static> = Holder { client: "client-a", group: "group", topic: "topic" };
pub const LEASE: i64 = 60_000;
pub const MINUTE: i64 = 60_000;

/// A handle as a broker gives it out at a pop. The broker's clock has nothing to do with ours.
pub fn handle(offset: i64, pop_time: i64) -> ReceiptHandle {
    ReceiptHandle {
        start_offset: offset,
        pop_time,
        invisible_time: LEASE,
        revive_queue_id: 3,
        topic_type: TopicType::Normal,
        broker_name: "broker-a".to_owned(),
        queue_id: 0,
        offset,
        commit_log_offset: Some(offset * 1_000),
    }
}

/// How our broker answers a change: the pop time stays, the duration counts from there.
pub fn extended(old: &ReceiptHandle, invisible_ms: i64) -> ReceiptHandle {
    ReceiptHandle { invisible_time: old.invisible_time + invisible_ms, ..old.clone() }
}

/// How Apache's broker answers a change: a new checkpoint, the old handle is dead.
pub fn moved(old: &ReceiptHandle, invisible_ms: i64) -> ReceiptHandle {
    ReceiptHandle {
        start_offset: old.offset,
        pop_time: old.pop_time + 50_000,
        invisible_time: invisible_ms,
        revive_queue_id: 5,
        ..old.clone()
    }
}

pub type Shape = fn(&ReceiptHandle, i64) -> ReceiptHandle;

/// How our broker answers, and how Apache's does.
pub const SHAPES: [Shape; 2] = [extended, moved];

pub fn received(handle: ReceiptHandle, mode: Mode) -> Received {
    Received { message_id: format!("id-{}", handle.offset), handle, reconsume_times: 0, mode }
}

/// The core, a clock, and short names for what the tests do all the time.
pub struct World {
    pub core: Core,
    pub now: i64,
}

impl World {
    pub fn new() -> Self {
        Self::with(Policy::default())
    }

    pub fn with(policy: Policy) -> Self {
        Self { core: Core::new(policy), now: 1_000_000 }
    }

    pub fn hold(&mut self, handle: &ReceiptHandle, mode: Mode) -> Registered {
        self.hold_for(HOLDER, handle, mode)
    }

    pub fn hold_for(&mut self, holder: Holder<'_>, handle: &ReceiptHandle, mode: Mode) -> Registered {
        self.core.register(self.now, holder, ChannelKind::Grpc, &[received(handle.clone(), mode)])
    }

    /// Lets time pass until `now + ms`; whatever becomes due on the way stays due.
    pub fn pass(&mut self, ms: i64) {
        self.now += ms;
    }

    /// All requests that can be sent now.
    pub fn batches(&mut self) -> Vec<Batch> {
        let now = self.now;
        std::iter::from_fn(|| self.core.next_batch(now)).collect()
    }

    /// The one item that is sent now.
    #[track_caller]
    pub fn only_item(&mut self) -> (Batch, Item) {
        let mut batches = self.batches();
        assert_eq!(batches.iter().map(|batch| batch.items.len()).sum::<usize>(), 1, "{batches:?}");
        let batch = batches.remove(0);
        let item = batch.items[0].clone();
        (batch, item)
    }

    #[track_caller]
    pub fn nothing_sent(&mut self) {
        let batches = self.batches();
        assert!(batches.is_empty(), "{batches:?}");
    }

    pub fn settle(
        &mut self,
        batch: &Batch,
        item: &Item,
        invisible_ms: i64,
        result: Result<ReceiptHandle, ChangeError>,
    ) -> Option<ReceiptHandle> {
        self.core.settle(self.now, item.flight, item.purpose, (batch.sent_at, invisible_ms), result)
    }

    pub fn answer(
        &mut self,
        batch: &Batch,
        item: &Item,
        invisible_ms: i64,
        result: Result<ReceiptHandle, ChangeError>,
    ) {
        self.settle(batch, item, invisible_ms, result);
        self.core.end_request(batch.lane);
    }

    /// Waits for the first thing that is sent, and takes it.
    #[track_caller]
    pub fn next_item(&mut self) -> (Batch, Item) {
        for _ in 0..10 {
            let batches = self.batches();
            if let Some(batch) = batches.first() {
                assert_eq!((batches.len(), batch.items.len()), (1, 1), "{batches:?}");
                return (batch.clone(), batch.items[0].clone());
            }
            self.now = self.core.next_wake(self.now).expect("nothing will ever be sent").max(self.now + 1);
        }
        panic!("woken ten times for nothing");
    }

    pub fn begin(&mut self, handle: &ReceiptHandle, intent: Intent) -> Option<Begun> {
        self.core.begin(HOLDER, Find::Handle(handle), intent)
    }

    #[track_caller]
    pub fn begin_ack(&mut self, handle: &ReceiptHandle) -> Begun {
        self.begin(handle, Intent::Finish).expect("held")
    }

    pub fn end_ack(&mut self, begun: &Begun, outcome: AckOutcome) {
        self.core.end_ack(self.now, begun.id, outcome);
    }

    pub fn end_change(&mut self, begun: &Begun, invisible_ms: i64, outcome: ChangeOutcome) {
        self.core.end_change(self.now, begun.id, (self.now, invisible_ms), outcome);
    }

    pub fn newest(&self, handle: &ReceiptHandle) -> Option<ReceiptHandle> {
        self.core.newest(HOLDER, Find::Handle(handle))
    }

    pub fn held(&self) -> u64 {
        self.core.stats().held
    }

    pub fn dropped(&self, why: Dropped) -> u64 {
        self.core.counters().dropped(why)
    }

    /// Renews once, as a broker of the given shape would answer; answers the newest handle.
    #[track_caller]
    pub fn renew(&mut self, shape: fn(&ReceiptHandle, i64) -> ReceiptHandle) -> ReceiptHandle {
        let (batch, item) = self.next_item();
        assert_eq!(item.purpose, Purpose::Renew);
        let Ask::For(ms) = item.ask else { panic!("{item:?}") };
        let newest = shape(&item.handle, ms);
        self.answer(&batch, &item, ms, Ok(newest.clone()));
        newest
    }
}
