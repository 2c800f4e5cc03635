//! What goes between clients, manager and brokers, with every kind of accident on the way.

use waybill_protocol::handle::ReceiptHandle;
use waybill_sidecar::receipts::{
    AckOutcome, ChangeError, ChangeOutcome, DrainPolicy, Mode,
    core::{Ask, Batch, Find, Flight, Intent, Item, Purpose},
};

use super::{
    broker::Shape,
    world::{BACK_OFF, Operation, PLACES, Request, World, holder},
};

/// No setting of the model asks for more.
const MOST_AHEAD: i64 = 10_000;
const MOST_RETRIES: u32 = 3;

/// What happens to something on its way to the broker.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Answered,
    /// The broker did it, the answer was lost.
    AnswerLost,
    Failed(ChangeError),
}

fn asked(item: &Item) -> i64 {
    match item.ask {
        Ask::For(ms) => ms,
        Ask::Backoff(_) => BACK_OFF,
    }
}

impl World {
    /// Takes everything that is to be sent now, and checks it.
    pub fn pump(&mut self) {
        while let Some(batch) = self.core.next_batch(self.now) {
            let of_broker = |request: &&Request| request.batch.broker == batch.broker;
            let before = self.requests.iter().filter(of_broker).count();
            assert!(before < self.core.policy().max_requests_per_broker, "too many requests");
            assert!(!batch.items.is_empty() && batch.items.len() <= self.core.policy().max_batch);
            let deliveries: Vec<usize> = batch.items.iter().map(|item| self.check_item(&batch, item)).collect();
            let answers = vec![None; batch.items.len()];
            self.requests.push(Request { batch, deliveries, answers });
        }
    }

    fn check_item(&mut self, batch: &Batch, item: &Item) -> usize {
        let place = PLACES.iter().position(|(group, topic, broker, ..)| {
            **group == *batch.group && **topic == *batch.topic && **broker == *batch.broker
        });
        let place = place.expect("a place that exists");
        let is = |delivery: &&usize| {
            let delivery = &self.deliveries[**delivery];
            delivery.place == place && delivery.newest.as_ref() == Some(&item.handle)
        };
        // Only ever the newest handle of something that is to be held.
        let found = *self.live.iter().find(is).expect("nothing that was acked, returned, replaced, or renamed is sent");
        let (now, draining) = (self.now, self.draining);
        let delivery = &mut self.deliveries[found];
        assert!(delivery.flight.is_none(), "two requests about one handle");
        assert_eq!(delivery.operations, 0, "a request during an ack");
        assert!(!delivery.is_over(now), "a request about a lease that is over");
        assert!(!delivery.let_go, "what was let go is left alone");
        assert_eq!(item.purpose == Purpose::Return, delivery.returning, "clients that left get nothing renewed");
        assert_eq!(item.suspend, delivery.returning && delivery.undelivered);
        if item.purpose != Purpose::Return {
            assert_ne!(draining, Some(DrainPolicy::LeaveToLease), "what is left to its lease is not renewed");
            assert_eq!(delivery.mode, Mode::Renew, "kept handles are never renewed");
            assert!(!delivery.gave_up && delivery.failures <= MOST_RETRIES, "retried too often");
            assert!(now >= delivery.deadline - MOST_AHEAD - 100, "renewed too early");
        }
        let steps = &self.core.policy().renew_steps_ms;
        match item.purpose {
            Purpose::Renew => {
                assert_eq!(item.ask, Ask::For(steps[delivery.renewals.min(steps.len() - 1)]));
                assert!(now - delivery.held_since < self.core.policy().renew_max_time_ms);
            }
            Purpose::LetGo => assert!(now - delivery.held_since >= self.core.policy().renew_max_time_ms),
            Purpose::Return => assert_eq!(item.ask, Ask::For(1_000)),
        }
        delivery.flight = Some(item.purpose);
        found
    }

    fn fate(&mut self) -> Fate {
        if self.calm {
            return Fate::Answered;
        }
        match self.dice.below(100) {
            0..70 => Fate::Answered,
            70..76 => Fate::AnswerLost,
            76..84 => Fate::Failed(ChangeError::Busy),
            84..90 => Fate::Failed(ChangeError::Timeout),
            90..96 => Fate::Failed(ChangeError::Unavailable),
            96..98 => Fate::Failed(ChangeError::Other),
            _ => Fate::Failed(ChangeError::Refused),
        }
    }

    /// The broker works on one item of a request, or the whole answer arrives.
    pub fn advance_request(&mut self) {
        if self.requests.is_empty() {
            return;
        }
        let index = self.dice.below(self.requests.len());
        let size = self.requests[index].deliveries.len();
        if !self.calm && self.dice.percent(30) {
            let item = self.dice.below(size);
            self.serve(index, item);
            return;
        }
        for item in 0..size {
            self.serve(index, item);
        }
        let request = self.requests.swap_remove(index);
        for ((item, delivery), answer) in request.batch.items.iter().zip(request.deliveries).zip(request.answers) {
            let answer = answer.unwrap_or(Err(ChangeError::Other));
            self.settle(delivery, item, request.batch.sent_at, answer);
        }
        self.core.end_request(request.batch.lane);
    }

    fn serve(&mut self, request: usize, item: usize) {
        let fate = self.fate();
        let Request { batch, deliveries, answers } = &mut self.requests[request];
        if answers[item].is_some() {
            return;
        }
        let delivery = &mut self.deliveries[deliveries[item]];
        let item_of = &batch.items[item];
        let done = match fate {
            Fate::Failed(_) => None,
            _ => Some(self.brokers[delivery.place].change(&item_of.handle, self.now, asked(item_of))),
        };
        if let (Some(Err(_)), true) = (&done, delivery.newest.is_some()) {
            // Only if the lease was over, or somebody's ack was first.
            let excused = delivery.is_over(self.now) || delivery.answer_lost || delivery.operations > 0;
            assert!(excused, "a live lease was asked for with a dead handle");
        }
        answers[item] = Some(match (fate, done) {
            (Fate::AnswerLost, Some(Ok(_))) => {
                delivery.answer_lost = true;
                self.seen.answers_lost += 1;
                Err(ChangeError::Timeout)
            }
            (Fate::Failed(error), _) => Err(error),
            (_, done) => done.unwrap_or(Err(ChangeError::Other)),
        });
    }

    fn settle(&mut self, index: usize, item: &Item, sent_at: i64, result: Result<ReceiptHandle, ChangeError>) {
        let delivery = &mut self.deliveries[index];
        let current = delivery.newest.is_some() && delivery.flight.is_some();
        let awaited = current && delivery.operations > 0;
        let newest = self.core.settle(self.now, item.flight, item.purpose, (sent_at, asked(item)), result.clone());
        let expected = result.as_ref().ok().or(delivery.newest.as_ref()).filter(|_| awaited);
        assert_eq!(newest.as_ref(), expected);
        self.settled.push_back((item.flight, item.purpose));
        if self.settled.len() > 64 {
            self.settled.pop_front();
        }
        delivery.flight = None;
        if current {
            match result {
                Ok(handle) => {
                    delivery.newest = Some(handle);
                    delivery.deadline = sent_at + asked(item);
                    delivery.failures = 0;
                    match item.purpose {
                        Purpose::Renew => {
                            self.seen.renewals += 1;
                            self.seen.renewed_over_flip += u64::from(delivery.popped_in_renewal && !self.renew);
                            self.seen.remoting_renewed += u64::from(!delivery.popped_in_renewal);
                            delivery.renewals += 1;
                        }
                        Purpose::LetGo => {
                            self.seen.lets_go += 1;
                            delivery.let_go = true;
                            if delivery.returning {
                                delivery.forget("let go, client gone");
                            }
                        }
                        Purpose::Return => {
                            self.seen.returns += 1;
                            if delivery.mode == Mode::Keep {
                                self.seen.kept_returned += 1;
                                self.seen.kept_returned_over_flip += u64::from(self.renew);
                            }
                            match self.draining {
                                Some(DrainPolicy::Release) => self.seen.released += 1,
                                Some(DrainPolicy::LeaveToLease) => self.seen.returned_in_leave += 1,
                                None => {}
                            }
                            delivery.forget("returned");
                        }
                    }
                }
                Err(ChangeError::Gone) => delivery.forget("request: gone"),
                // The client left, or came back, meanwhile.
                Err(_) if (item.purpose == Purpose::Return) != delivery.returning => {}
                Err(ChangeError::Refused) if delivery.returning => {
                    delivery.forget("return refused");
                    delivery.answer_lost = true;
                }
                Err(error) if !delivery.returning => {
                    delivery.failures += 1;
                    delivery.gave_up |= error == ChangeError::Refused || delivery.failures > MOST_RETRIES;
                }
                Err(_) => {}
            }
        }
        self.wake(index, newest);
    }

    /// Whoever waits for something about this delivery tries again.
    fn wake(&mut self, delivery: usize, newest: Option<ReceiptHandle>) {
        for operation in &mut self.operations {
            let Some(begun) = operation.begun.as_mut().filter(|_| operation.delivery == Some(delivery)) else {
                continue;
            };
            if !begun.wait {
                continue;
            }
            match self.core.resume(begun.id, operation.intent) {
                Some(again) => {
                    operation.handle = again.handle.clone();
                    *begun = again;
                }
                None => {
                    operation.handle = newest.clone().unwrap_or_else(|| begun.handle.clone());
                    operation.begun = None;
                }
            }
            operation.sent_at = self.now;
        }
    }

    /// A client acks, forwards, extends or gives back something, with any handle it ever had.
    pub fn begin_operation(&mut self) {
        if self.deliveries.is_empty() || self.operations.len() >= 20 {
            return;
        }
        let any = match self.dice.percent(80) {
            true => self.dice.pick(&self.live).copied().unwrap_or(0),
            false => self.dice.below(self.deliveries.len()),
        };
        let (place, client, known) = {
            let delivery = &self.deliveries[any];
            (delivery.place, delivery.client, delivery.known.len())
        };
        let handle = self.deliveries[any].known[self.dice.below(known)].clone();
        let intent = if self.dice.percent(65) { Intent::Finish } else { Intent::Change };
        let change = ([1_000, 15_000, 90_000][self.dice.below(3)], self.dice.percent(60));
        let begun = self.core.begin(holder(client, place), Find::Handle(&handle), intent);
        let delivery = &mut self.deliveries[any];
        match &begun {
            Some(begun) => {
                let newest = delivery.newest.as_ref();
                assert_eq!(Some(&begun.handle), newest, "not the newest handle, or {}", delivery.forgotten);
                let moving = PLACES[place].3 == Shape::Moving;
                let must = delivery.flight.is_some() && (intent == Intent::Change || moving);
                assert!(!must || begun.wait, "did not wait for a request whose answer matters");
                assert!(!begun.wait || delivery.flight.is_some() || delivery.operations > 0, "waits for nothing");
                delivery.operations += 1;
                match intent {
                    _ if !begun.wait => {}
                    Intent::Finish => self.seen.acks_waited += 1,
                    Intent::Change => self.seen.changes_waited += 1,
                }
            }
            None => assert!(delivery.newest.is_none() || delivery.is_over(self.now), "lost a live delivery"),
        }
        let handle = begun.as_ref().map_or(handle, |begun| begun.handle.clone());
        let delivery = begun.is_some().then_some(any);
        self.operations.push(Operation { place, delivery, begun, intent, handle, change, sent_at: self.now });
    }

    pub fn end_operation(&mut self) {
        if self.operations.is_empty() {
            return;
        }
        let index = self.dice.below(self.operations.len());
        let waits = self.operations[index].begun.as_ref().is_some_and(|begun| begun.wait);
        if waits {
            if self.dice.percent(5) {
                let operation = self.operations.swap_remove(index);
                if let (Some(begun), Some(delivery)) = (operation.begun, operation.delivery) {
                    self.core.cancel(self.now, begun.id);
                    self.deliveries[delivery].operations -= 1;
                    let newest = self.deliveries[delivery].newest.clone();
                    self.wake(delivery, newest);
                }
            }
            return;
        }
        let operation = self.operations.swap_remove(index);
        match operation.intent {
            Intent::Finish => self.end_ack(&operation),
            Intent::Change => self.end_change(&operation),
        }
        let Some(delivery) = operation.delivery else { return };
        self.deliveries[delivery].operations -= 1;
        let newest = self.deliveries[delivery].newest.clone();
        self.wake(delivery, newest);
    }

    fn end_ack(&mut self, operation: &Operation) {
        let fate = self.fate();
        let done = match fate {
            Fate::Failed(_) => None,
            _ => Some(self.brokers[operation.place].ack(&operation.handle, self.now)),
        };
        if let Some(delivery) = operation.delivery.filter(|_| operation.begun.is_some()) {
            let delivery = &mut self.deliveries[delivery];
            let excused = delivery.is_doubtful(self.now);
            match &done {
                Some(Ok(true)) | None => {}
                Some(Ok(false)) => assert!(excused, "an OK without effect"),
                Some(Err(_)) => assert!(excused, "refused although the lease is live"),
            }
        }
        let outcome = match (fate, &done) {
            (Fate::AnswerLost, Some(Ok(_))) => AckOutcome::Failed,
            (_, Some(Ok(_))) => AckOutcome::Done,
            (_, Some(Err(_))) => AckOutcome::Gone,
            (_, None) => AckOutcome::Failed,
        };
        let Some(begun) = &operation.begun else {
            return self.note_unknown(operation, matches!(done, Some(Ok(_))));
        };
        self.core.end_ack(self.now, begun.id, outcome);
        let Some(delivery) = operation.delivery else { return };
        let delivery = &mut self.deliveries[delivery];
        match outcome {
            AckOutcome::Failed => delivery.answer_lost |= matches!(done, Some(Ok(_))),
            AckOutcome::Done | AckOutcome::Gone => delivery.forget("acked"),
        }
        self.seen.acks_done += u64::from(outcome == AckOutcome::Done);
    }

    fn end_change(&mut self, operation: &Operation) {
        let fate = self.fate();
        let (invisible_ms, let_go) = operation.change;
        let done = match fate {
            Fate::Failed(_) => None,
            _ => Some(self.brokers[operation.place].change(&operation.handle, self.now, invisible_ms)),
        };
        let Some(begun) = &operation.begun else {
            return self.note_unknown(operation, matches!(done, Some(Ok(_))));
        };
        let Some(delivery) = operation.delivery else { return };
        let delivery = &mut self.deliveries[delivery];
        if let Some(Err(_)) = done {
            let excused = delivery.is_doubtful(self.now);
            // An ack may go beside a change where handles stay valid.
            assert!(excused || delivery.operations > 1, "refused although the lease is live");
        }
        let lost = fate == Fate::AnswerLost && matches!(done, Some(Ok(_)));
        let outcome = match done {
            Some(Ok(handle)) if !lost && let_go => ChangeOutcome::LetGo(handle),
            Some(Ok(handle)) if !lost => ChangeOutcome::Extended(handle),
            Some(Err(_)) => ChangeOutcome::Gone,
            _ => ChangeOutcome::Failed,
        };
        delivery.answer_lost |= lost;
        if delivery.newest.is_some() {
            match &outcome {
                ChangeOutcome::Extended(handle) | ChangeOutcome::LetGo(handle) => {
                    delivery.known.push(handle.clone());
                    delivery.newest = Some(handle.clone());
                    if let_go && delivery.returning {
                        delivery.forget("negative ack, client gone");
                    }
                    delivery.deadline = operation.sent_at + invisible_ms;
                    delivery.failures = 0;
                    delivery.gave_up &= let_go;
                    delivery.let_go = let_go;
                }
                ChangeOutcome::Gone => delivery.forget("change: gone"),
                ChangeOutcome::Failed => {}
            }
        }
        self.core.end_change(self.now, begun.id, (operation.sent_at, invisible_ms), outcome);
    }

    /// A client did something with a handle that the manager did not know (any more); what it may think of that
    /// delivery is not its fault.
    fn note_unknown(&mut self, operation: &Operation, done: bool) {
        if done {
            for &live in &self.live {
                let delivery = &mut self.deliveries[live];
                if delivery.place == operation.place && delivery.first().offset == operation.handle.offset {
                    delivery.answer_lost = true;
                }
            }
        }
    }

    /// Old results arrive again, and say whatever they like.
    pub fn repeat_old_result(&mut self) {
        let Some(&(flight, purpose)) = self.settled.get(self.dice.below(self.settled.len())) else { return };
        let flight: Flight = flight;
        let garbage = match self.live.first() {
            Some(&live) if self.dice.percent(50) => Ok(self.deliveries[live].first().clone()),
            _ => Err(ChangeError::Gone),
        };
        let stale = self.core.counters().stale;
        assert_eq!(self.core.settle(self.now, flight, purpose, (self.now, 1), garbage), None);
        assert_eq!(self.core.counters().stale, stale + 1, "an old result counted");
    }
}
