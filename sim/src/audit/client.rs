//! What clients are told: compared with what brokers said, and with what clients may count on while nothing fails.

use waybill_protocol::handle::ReceiptHandle;

use super::{Audit, Place};
use crate::plan::CONSUME_TIMEOUT_MS;

/// A message that a client works on, and counts on having for itself.
#[derive(Debug)]
pub struct Held {
    client: String,
    pop_time: i64,
    since: i64,
    /// The sidecars through which the client was served meanwhile.
    sidecars: Vec<String>,
}

/// One delivery as its client has it.
#[derive(Debug, Clone)]
pub struct Got {
    /// The consumer group.
    pub group: String,
    /// The message.
    pub place: Place,
    /// The handle.
    pub handle: ReceiptHandle,
}

impl Audit {
    /// What counts as asked for later than now.
    #[must_use]
    pub fn step(&self) -> u64 {
        self.step
    }

    /// A client has a message whose lease is kept for it.
    pub fn holds(&mut self, client: &str, sidecar: &str, got: &Got) {
        let held = Held {
            client: client.to_owned(),
            pop_time: got.handle.pop_time,
            // The lease began before the message arrived.
            since: self.now - 5_000,
            sidecars: vec![sidecar.to_owned()],
        };
        self.held.insert((got.place.clone(), got.group.clone()), held);
    }

    /// A message is renewed: counts it if the switch of its sidecar is off by now.
    pub(super) fn renewal_asked(&mut self, place: &Place, group: &str) {
        let held = self.held.get(&(place.clone(), group.to_owned()));
        let sidecar = held.and_then(|held| held.sidecars.first());
        if sidecar.and_then(|sidecar| self.switch_of(sidecar)) == Some(false) {
            self.note("renewed_over_flip");
        }
    }

    /// A client speaks through another sidecar.
    pub fn moved(&mut self, client: &str, sidecar: &str) {
        if self.moving {
            // The other one does not know which handles have taken the place of which.
            return self.died(client);
        }
        for held in self.held.values_mut().filter(|held| held.client == client) {
            held.sidecars.push(sidecar.to_owned());
        }
    }

    /// A client is about to give a message back or to acknowledge it, and no longer counts on having it.
    /// Whether nothing has failed since it got it.
    pub fn lets_go(&mut self, client: &str, got: &Got) -> bool {
        let key = (got.place.clone(), got.group.clone());
        let Some(held) =
            self.held.get(&key).filter(|held| held.client == client && held.pop_time == got.handle.pop_time)
        else {
            return false;
        };
        let calm = !self.excused(held.since, &parties(held, &got.place.broker));
        self.held.remove(&key);
        calm
    }

    /// Whether something has failed on the way of a client since then.
    #[must_use]
    pub fn disturbed(&self, since: i64, client: &str, sidecar: &str, got: &Got) -> bool {
        self.excused(since, &[client, sidecar, &got.place.broker])
    }

    /// A client is dead.
    pub fn died(&mut self, client: &str) {
        self.held.retain(|_, held| held.client != client);
    }

    /// A broker gave a message to somebody.
    pub(super) fn given_to_another(&mut self, place: &Place, group: &str, pop_time: i64, client: Option<&str>) {
        let key = (place.clone(), group.to_owned());
        let Some(held) = self.held.get(&key).filter(|held| held.pop_time < pop_time) else { return };
        if self.excused(held.since, &parties(held, &place.broker)) {
            return;
        }
        let (holder, since) = (held.client.clone(), held.pop_time);
        self.violation(format!(
            "{place} for {group}: given to {client:?} while {holder} works on its delivery {since}, and nothing has failed"
        ));
    }

    /// A client was told OK to its ack of what it held all the time, and nothing has failed: so it is done.
    pub fn acked_in_calm(&mut self, client: &str, sidecar: &str, got: &Got) {
        self.note("acked_in_calm");
        if self.story(&got.place, &got.group).popped_for(got.handle.pop_time) == Some(CONSUME_TIMEOUT_MS)
            && self.switch_of(sidecar) == Some(true)
        {
            self.note("kept_over_flip");
        }
        let most = self.attempts;
        let story = self.story(&got.place, &got.group);
        let dead = story.last.as_ref().is_none_or(|last| last.attempt >= most);
        if !story.acked && !dead {
            let place = &got.place;
            self.violation(format!(
                "{client} was told OK to its ack of {place}, which did nothing, and nothing has failed"
            ));
        }
    }

    /// A client was told OK to an ack.
    pub fn ack_told(&mut self, client: &str, got: &Got) {
        let most = self.attempts;
        if !self.story(&got.place, &got.group).may_be_over(most) {
            let place = &got.place;
            self.violation(format!("{client} was told OK to its ack of {place}, which no broker has said"));
        }
    }

    /// A client was told that its handle is invalid although nothing has failed.
    pub fn refused_in_calm(&mut self, client: &str, got: &Got, code: i32) {
        let place = &got.place;
        self.violation(format!("{client} was told {code} to its ack of {place}, and nothing has failed"));
    }

    /// A client was told OK to a change that it asked for after that step.
    pub fn change_told(&mut self, client: &str, got: &Got, asked_after: u64) {
        let pop_time = got.handle.pop_time;
        if !self.story(&got.place, &got.group).changed_since(asked_after, pop_time) {
            let place = &got.place;
            self.violation(format!("{client} was told OK to a change of {place}, which no broker has said"));
        }
    }
}

fn parties<'a>(held: &'a Held, broker: &'a str) -> Vec<&'a str> {
    let mut parties = vec![held.client.as_str(), broker];
    parties.extend(held.sidecars.iter().map(String::as_str));
    parties
}
