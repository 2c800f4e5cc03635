//! Clients, brokers, a network that loses and delays, and the manager in the middle.

use std::collections::VecDeque;

use waybill_protocol::handle::ReceiptHandle;
use waybill_sidecar::receipts::{
    ChangeError, ChannelKind, DrainPolicy, Holder, Mode, Policy, PromiseSettings, Received,
    core::{Batch, Begun, Core, Dropped, Find, Flight, Intent, Purpose},
    promise,
};

use super::{
    broker::{Broker, Shape},
    dice::Dice,
    oracle::Delivery,
};

const CLIENTS: [&str; 4] = ["client-0", "client-1", "client-2", "client-3"];
/// Where messages lie: group, topic, broker.
pub const PLACES: [(&str, &str, &str, Shape, i64); 4] = [
    ("group-0", "topic-0", "ours", Shape::Stable, 3_600_000),
    ("group-0", "topic-0", "apache", Shape::Moving, 5_000),
    ("group-1", "topic-0", "ours", Shape::Stable, 3_600_000),
    ("group-1", "topic-1", "apache", Shape::Moving, 5_000),
];
const MESSAGES: usize = 24;
pub const BACK_OFF: i64 = 10_000;

/// What was done and seen, to prove that the model went everywhere.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub renewals: u64,
    pub returns: u64,
    pub lets_go: u64,
    pub acks_done: u64,
    pub acks_waited: u64,
    pub changes_waited: u64,
    pub stale: u64,
    pub redeliveries: u64,
    pub refused: u64,
    pub answers_lost: u64,
    pub shed_of_client: u64,
    pub shed_of_all: u64,
    /// The switch was turned, off and on.
    pub flips: [u64; 2],
    /// Renewed after the switch was turned off.
    pub renewed_over_flip: u64,
    /// Kept messages that were returned, and those of them for which that was after the switch was turned on.
    pub kept_returned: u64,
    pub kept_returned_over_flip: u64,
    /// Renewed although the switch was off when they were popped: clients of remoting.
    pub remoting_renewed: u64,
    /// Returned and received while the sidecar released everything, and what ended while it left all to the leases.
    pub released: u64,
    pub received_in_release: u64,
    pub left_to_lease: u64,
    pub returned_in_leave: u64,
}

impl Seen {
    pub fn add(&mut self, other: &Self) {
        self.renewals += other.renewals;
        self.returns += other.returns;
        self.lets_go += other.lets_go;
        self.acks_done += other.acks_done;
        self.acks_waited += other.acks_waited;
        self.changes_waited += other.changes_waited;
        self.stale += other.stale;
        self.redeliveries += other.redeliveries;
        self.refused += other.refused;
        self.answers_lost += other.answers_lost;
        self.shed_of_client += other.shed_of_client;
        self.shed_of_all += other.shed_of_all;
        for (flips, more) in self.flips.iter_mut().zip(other.flips) {
            *flips += more;
        }
        self.renewed_over_flip += other.renewed_over_flip;
        self.kept_returned += other.kept_returned;
        self.kept_returned_over_flip += other.kept_returned_over_flip;
        self.remoting_renewed += other.remoting_renewed;
        self.released += other.released;
        self.received_in_release += other.received_in_release;
        self.left_to_lease += other.left_to_lease;
        self.returned_in_leave += other.returned_in_leave;
    }
}

/// A request on its way, with what the broker has answered to each item so far.
pub struct Request {
    pub batch: Batch,
    pub deliveries: Vec<usize>,
    pub answers: Vec<Option<Result<ReceiptHandle, ChangeError>>>,
}

/// An ack, forward or change on its way.
pub struct Operation {
    pub place: usize,
    /// The delivery, if the manager knew it.
    pub delivery: Option<usize>,
    pub begun: Option<Begun>,
    pub intent: Intent,
    pub handle: ReceiptHandle,
    /// Of a change: the invisible duration, and whether it is a negative ack.
    pub change: (i64, bool),
    pub sent_at: i64,
}

pub struct World {
    pub dice: Dice,
    pub now: i64,
    pub core: Core,
    /// No failures, no delays.
    pub calm: bool,
    pub renew: bool,
    /// How the sidecar stops, if it does.
    pub draining: Option<DrainPolicy>,
    drains: Option<DrainPolicy>,
    pub brokers: Vec<Broker>,
    pub deliveries: Vec<Delivery>,
    /// Deliveries that the manager may still hold.
    pub live: Vec<usize>,
    /// The last delivery of each message of each place.
    last: Vec<[Option<usize>; MESSAGES]>,
    /// Whether each client is gone from each group, and until when the manager remembers that.
    gone: [[bool; 2]; CLIENTS.len()],
    gone_until: [i64; CLIENTS.len()],
    pub requests: Vec<Request>,
    pub operations: Vec<Operation>,
    pub settled: VecDeque<(Flight, Purpose)>,
    pub seen: Seen,
}

pub fn holder(client: usize, place: usize) -> Holder<'static> {
    Holder { client: CLIENTS[client], group: PLACES[place].0, topic: PLACES[place].1 }
}

fn group_of(place: usize) -> usize {
    usize::from(PLACES[place].0 == "group-1")
}

fn policy(dice: &mut Dice) -> Policy {
    Policy {
        renew_ahead_ms: [10_000, 5_000][dice.below(2)],
        renew_max_time_ms: [10_800_000, 120_000][dice.below(2)],
        max_batch: [1, 3, 1_024][dice.below(3)],
        max_requests_per_broker: [1, 4][dice.below(2)],
        max_handles: [60, 1_000][dice.below(2)],
        max_handles_per_client: [20, 1_000][dice.below(2)],
        ..Policy::default()
    }
}

impl World {
    pub fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let policy = policy(&mut dice);
        let broker = |(_, _, name, shape, skew): &(_, _, &str, Shape, i64)| Broker::new(name, *shape, *skew, MESSAGES);
        Self {
            now: 1_000,
            core: Core::new(policy),
            calm: seed.is_multiple_of(4),
            renew: true,
            draining: None,
            drains: [None, Some(DrainPolicy::Release), Some(DrainPolicy::LeaveToLease)][(seed % 3) as usize],
            brokers: PLACES.iter().map(broker).collect(),
            deliveries: Vec::new(),
            live: Vec::new(),
            last: vec![[None; MESSAGES]; PLACES.len()],
            gone: [[false; 2]; CLIENTS.len()],
            gone_until: [0; CLIENTS.len()],
            requests: Vec::new(),
            operations: Vec::new(),
            settled: VecDeque::new(),
            seen: Seen::default(),
            dice,
        }
    }

    pub fn run(mut self, steps: usize) -> Seen {
        let last_steps = steps - steps / 20;
        for step in 0..steps {
            if step == last_steps {
                self.drain();
            }
            self.step();
            self.check_one();
            if step % 1_000 == 0 {
                self.check_all();
            }
        }
        self.end();
        self.seen
    }

    fn step(&mut self) {
        match self.dice.below(100) {
            0..20 => self.pass(),
            20..40 => self.receive(),
            40..60 => self.advance_request(),
            60..72 => self.begin_operation(),
            72..92 => self.end_operation(),
            92..95 => self.client_leaves_or_returns(),
            95 => self.give_back(),
            96 => {
                self.renew = !self.renew;
                self.seen.flips[usize::from(self.renew)] += 1;
            }
            97..99 => self.repeat_old_result(),
            _ => {
                let policy = policy(&mut self.dice);
                self.core.set_policy(policy);
            }
        }
        if self.calm || self.dice.percent(70) {
            self.pump();
        }
    }

    fn pass(&mut self) {
        let ms = match self.dice.below(10) {
            0..6 => self.dice.ms(300),
            6..9 => self.dice.ms(5_000),
            _ => self.dice.ms(70_000),
        };
        let until = self.now + ms;
        if self.calm {
            self.run_quietly(until);
        }
        self.now = until;
    }

    /// Whatever is due on the way happens at its time, and is answered at once.
    fn run_quietly(&mut self, until: i64) {
        loop {
            self.pump();
            while !self.requests.is_empty() || !self.operations.is_empty() {
                while !self.requests.is_empty() {
                    self.advance_request();
                    self.pump();
                }
                while !self.operations.is_empty() {
                    self.end_operation();
                }
                self.pump();
            }
            match self.core.next_wake(self.now).filter(|at| *at <= until) {
                Some(at) => self.now = self.now.max(at),
                None => return,
            }
        }
    }

    fn receive(&mut self) {
        let (client, place) = (self.dice.below(CLIENTS.len()), self.dice.below(PLACES.len()));
        let kind = if self.dice.percent(25) { ChannelKind::Remoting } else { ChannelKind::Grpc };
        let (mode, lease) = promise(kind, &self.promises());
        let renewed = kind == ChannelKind::Remoting || self.renew;
        assert_eq!(mode, if renewed { Mode::Renew } else { Mode::Keep }, "the switch is for gRPC only");
        let mut received: Vec<Received> = Vec::new();
        let mut messages = Vec::new();
        for _ in 0..1 + self.dice.below(4) {
            let message = self.dice.below(MESSAGES);
            if let Some(handle) = self.brokers[place].pop(message, self.now, lease) {
                self.check_redelivery(place, message);
                let message_id = format!("{place}-{message}");
                // What the switch says: the manager must know that it is not for everybody.
                let mode = if self.renew { Mode::Renew } else { Mode::Keep };
                received.push(Received { handle, message_id, reconsume_times: 0, mode });
                messages.push(message);
            }
        }
        let gone = self.gone[client][group_of(place)] && self.now < self.gone_until[client];
        let gone = gone || self.draining == Some(DrainPolicy::Release);
        let before = if gone { None } else { self.before_register(client, received.len()) };
        let shed = self.core.counters().dropped(Dropped::Shed);
        let outcome = self.core.register(self.now, holder(client, place), kind, &received);
        assert_eq!(outcome.client_gone, gone);
        assert!(before.is_some() || self.core.counters().dropped(Dropped::Shed) == shed, "shed although there is room");
        self.check_overload(before, (client, place), &received, &outcome);
        if self.draining == Some(DrainPolicy::Release) {
            self.seen.received_in_release += received.len() as u64;
        }
        self.seen.refused += outcome.refused.len() as u64;
        for (position, (item, message)) in received.into_iter().zip(messages).enumerate() {
            let held = !outcome.refused.contains(&position);
            let delivery = Delivery {
                client,
                place,
                mode,
                popped_in_renewal: self.renew,
                known: vec![item.handle.clone()],
                newest: held.then_some(item.handle),
                forgotten: if held { "" } else { "refused" },
                held_since: self.now,
                deadline: self.now + lease,
                operations: 0,
                flight: None,
                returning: gone,
                undelivered: gone,
                let_go: false,
                gave_up: false,
                renewals: 0,
                failures: 0,
                // Without a place here, nobody looks after it.
                answer_lost: !held,
            };
            // At our broker a redelivery has the place of the old one, unless that was acked and this is another
            // message.
            if let Some(old) = self.last[place][message].replace(self.deliveries.len()) {
                let of = |delivery: &Delivery| (delivery.first().offset, delivery.first().topic_type);
                if of(&self.deliveries[old]) == of(&delivery) {
                    self.deliveries[old].forget("replaced");
                }
            }
            self.live.push(self.deliveries.len());
            self.deliveries.push(delivery);
        }
        if self.live.len() > 256 {
            let (now, core, deliveries) = (self.now, &self.core, &self.deliveries);
            self.live.retain(|&live| {
                let delivery = &deliveries[live];
                let find = Find::Handle(delivery.first());
                let held = || core.newest(holder(delivery.client, delivery.place), find).is_some();
                delivery.newest.is_some() && (!delivery.must_be_forgotten(now) || held())
            });
        }
    }

    /// A message comes again: nobody who was promised it may still be thought to have it.
    fn check_redelivery(&mut self, place: usize, message: usize) {
        let Some(old) = self.last[place][message] else { return };
        let old = &self.deliveries[old];
        self.seen.redeliveries += 1;
        assert!(old.is_doubtful(self.now), "redelivered although held until {} and it is {}", old.deadline, self.now);
        if old.newest.is_none() || old.answer_lost || old.flight.is_some() {
            return;
        }
        let renewed = old.mode == Mode::Renew && !old.let_go && !old.returning && self.draining.is_none();
        assert!(!(self.calm && renewed), "a client that is there lost a message that was to be renewed");
    }

    fn client_leaves_or_returns(&mut self) {
        let client = self.dice.below(CLIENTS.len());
        if self.dice.percent(75) {
            self.core.client_back(self.now, CLIENTS[client]);
            self.gone[client] = [false; 2];
            if self.draining == Some(DrainPolicy::Release) {
                return;
            }
            for &live in &self.live {
                let delivery = &mut self.deliveries[live];
                if delivery.client == client && delivery.returning && !delivery.undelivered {
                    delivery.returning = false;
                    delivery.gave_up = false;
                    delivery.failures = 0;
                }
            }
            return;
        }
        let group = self.dice.percent(30).then(|| self.dice.below(2));
        self.client_gone(client, group);
    }

    /// What decides at a pop, as it is now.
    fn promises(&mut self) -> PromiseSettings {
        PromiseSettings {
            grpc_renew: self.renew,
            group_renew: None,
            default_invisible_ms: [12_000, 60_000, 60_000, 60_000][self.dice.below(4)],
            consume_timeout_minutes: 15,
            max_invisible_ms: 43_200_000,
        }
    }

    /// The sidecar is told to stop, if this run is one in which it is.
    fn drain(&mut self) {
        let Some(policy) = self.drains else { return };
        self.draining = Some(policy);
        self.core.drain(policy);
        if policy == DrainPolicy::LeaveToLease {
            return;
        }
        let mut next = Some(0);
        while let Some(from) = next {
            next = self.core.release(self.now, from, 7);
        }
        for &live in &self.live {
            let delivery = &mut self.deliveries[live];
            if delivery.newest.is_some() {
                delivery.go_back();
            }
        }
    }

    fn client_gone(&mut self, client: usize, group: Option<usize>) {
        if self.now >= self.gone_until[client] {
            self.gone[client] = [false; 2];
        }
        self.core.client_gone(self.now, CLIENTS[client], group.map(|group| ["group-0", "group-1"][group]));
        self.gone_until[client] = self.now + 60_000;
        for left in 0..2 {
            if group.is_none_or(|group| group == left) {
                self.gone[client][left] = true;
            }
        }
        for &live in &self.live {
            let delivery = &mut self.deliveries[live];
            let left = group.is_none_or(|group| group == group_of(delivery.place));
            if delivery.client == client && left {
                delivery.go_back();
            }
        }
    }

    /// A write to the client failed.
    fn give_back(&mut self) {
        let Some(&live) = self.dice.pick(&self.live) else { return };
        let delivery = &mut self.deliveries[live];
        if delivery.newest.is_none() || delivery.is_over(self.now) {
            return;
        }
        let known = delivery.known.len();
        let handle = delivery.known[self.dice.below(known)].clone();
        delivery.undelivered = true;
        delivery.go_back();
        self.core.give_back(self.now, holder(delivery.client, delivery.place), ChannelKind::Grpc, vec![handle]);
    }

    /// The manager's opinion of one delivery is the oracle's.
    fn check(&self, delivery: &Delivery) {
        let holder = holder(delivery.client, delivery.place);
        for handle in delivery.known.iter().chain(&delivery.newest) {
            let newest = self.core.newest(holder, Find::Handle(handle));
            match &delivery.newest {
                Some(expected) if !delivery.is_over(self.now) => assert_eq!(newest.as_ref(), Some(expected)),
                Some(expected) => assert!(newest.is_none() || newest.as_ref() == Some(expected)),
                None => assert_eq!(newest, None, "held although it must not be: {}", delivery.forgotten),
            }
        }
    }

    fn check_one(&mut self) {
        if let Some(&live) = self.dice.pick(&self.live) {
            self.check(&self.deliveries[live]);
        }
    }

    fn check_all(&mut self) {
        self.pump();
        let (now, deliveries) = (self.now, &self.deliveries);
        let stats = self.core.stats();
        for &live in &self.live {
            let delivery = &deliveries[live];
            self.check(delivery);
            // What is due but has no free request is looked at later.
            if stats.due == 0 && delivery.must_be_forgotten(now) {
                let find = Find::Handle(delivery.first());
                assert_eq!(self.core.newest(holder(delivery.client, delivery.place), find), None, "held for ever");
            }
        }
        let held = self.live.iter().filter(|live| deliveries[**live].newest.is_some());
        assert!(stats.held <= held.clone().count() as u64, "{stats:?}");
        let must = held.filter(|live| !deliveries[**live].is_over(now)).count() as u64;
        assert!(stats.held >= must, "{stats:?} {must}");
        let in_flight = self.requests.iter().map(|request| request.deliveries.len()).sum::<usize>() as u64;
        assert!(stats.in_flight <= in_flight, "{stats:?}");
    }

    /// The brokers are well again, all clients leave: everything goes back within seconds and nothing stays.
    fn end(&mut self) {
        self.calm = true;
        self.run_quietly(self.now);
        for client in 0..CLIENTS.len() {
            self.client_gone(client, None);
        }
        self.run_quietly(self.now + 6_000);
        self.now += 6_000;
        let stats = self.core.stats();
        assert_eq!((stats.held, stats.in_flight, stats.due, stats.returning), (stats.let_go, 0, 0, 0), "{stats:?}");
        for &live in &self.live {
            let delivery = &self.deliveries[live];
            let lease = self.brokers[delivery.place].deadline(delivery.first(), self.now);
            // A change that took long ends later than the manager can be sure of.
            let known = delivery.let_go || delivery.answer_lost || delivery.is_over(self.now);
            assert!(lease.is_none() || known, "hidden until {lease:?}, held by nobody: {}", delivery.forgotten);
        }
        self.run_quietly(i64::MAX);
        self.now += 24 * 3_600_000;
        self.core.client_back(self.now, CLIENTS[0]);
        let stats = self.core.stats();
        assert_eq!((stats.held, stats.clients, self.core.requests()), (0, 0, 0), "{stats:?}");
        let counters = self.core.counters();
        let dropped: u64 = Dropped::ALL.iter().map(|why| counters.dropped(*why)).sum();
        assert_eq!(counters.registered, dropped, "every handle has one end");
        self.seen.stale = counters.stale;
        if self.draining == Some(DrainPolicy::LeaveToLease) {
            self.seen.left_to_lease += counters.dropped(Dropped::GaveUp);
        }
    }
}
