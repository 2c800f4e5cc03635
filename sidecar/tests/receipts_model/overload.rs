//! What the limits must do, said in the plainest way: whoever comes when there is no room takes the place of what has the latest
//! deadline, of the same client or of all, unless that is its own.

use waybill_sidecar::receipts::{Received, Registered, core::Find};

use super::world::{World, holder};

/// At most so much goes for one that comes, for each limit.
const SHED_AT_ONCE: usize = 2;

/// Something that the manager holds.
#[derive(Clone)]
struct Held {
    /// Nothing for what has just come.
    delivery: Option<usize>,
    client: usize,
    deadline: i64,
    may_be_shed: bool,
}

/// What is held before messages are registered; only if a limit may be reached by them.
pub struct Before {
    held: Vec<Held>,
}

/// A way in which things may have gone.
#[derive(Clone)]
struct Way {
    held: Vec<Held>,
    /// Positions of what was not taken.
    refused: Vec<usize>,
    gone: Vec<(usize, Scope)>,
}

/// Whom a limit is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    OfClient(usize),
    OfAll,
}

impl Scope {
    fn has(self, held: &Held) -> bool {
        match self {
            Self::OfClient(client) => held.client == client,
            Self::OfAll => true,
        }
    }
}

impl World {
    /// To be asked before so many messages are registered for a client.
    pub fn before_register(&self, client: usize, coming: usize) -> Option<Before> {
        let policy = self.core.policy();
        let known = |live: &&usize| self.deliveries[**live].newest.is_some();
        let of_client = self.live.iter().filter(known).filter(|live| self.deliveries[**live].client == client).count();
        let of_all = self.core.stats().held as usize;
        if of_client + coming <= policy.max_handles_per_client as usize
            && of_all + coming <= policy.max_handles as usize
        {
            return None;
        }
        let held = self.live.iter().copied().filter(|&live| self.is_held(live)).map(|live| {
            let delivery = &self.deliveries[live];
            let busy = delivery.flight.is_some() || delivery.operations > 0;
            let may_be_shed = !busy && !delivery.returning;
            Held { delivery: Some(live), client: delivery.client, deadline: delivery.deadline, may_be_shed }
        });
        let held: Vec<_> = held.collect();
        assert_eq!(held.len(), of_all, "the manager holds something that it was not given");
        Some(Before { held })
    }

    fn is_held(&self, delivery: usize) -> bool {
        let delivery = &self.deliveries[delivery];
        self.core.newest(holder(delivery.client, delivery.place), Find::Handle(delivery.first())).is_some()
    }

    /// After messages were registered: the right ones were shed, and the right ones not taken.
    pub fn check_overload(
        &mut self,
        before: Option<Before>,
        (client, place): (usize, usize),
        received: &[Received],
        outcome: &Registered,
    ) {
        let Some(Before { held }) = before else {
            return assert!(outcome.refused.is_empty(), "refused although there is room");
        };
        let mut ways = vec![Way { held, refused: Vec::new(), gone: Vec::new() }];
        for (position, item) in received.iter().enumerate() {
            let deadline = self.now + item.handle.invisible_time;
            let mut next = Vec::new();
            for mut way in ways {
                way.held.retain(|held| !held.delivery.is_some_and(|old| self.is_replaced(old, place, item)));
                for (mut way, room) in self.make_room(way, &[Scope::OfClient(client), Scope::OfAll], deadline) {
                    match room {
                        true => way.held.push(Held { delivery: None, client, deadline, may_be_shed: true }),
                        false => way.refused.push(position),
                    }
                    next.push(way);
                }
            }
            ways = next;
        }
        let as_it_was = |way: &Way| {
            way.refused == outcome.refused
                && way.held.iter().all(|held| held.delivery.is_none_or(|it| self.is_held(it)))
        };
        let way = ways
            .into_iter()
            .find(as_it_was)
            .expect("what ends last is shed, and nothing else, and only for lack of room");
        for (shed, scope) in way.gone {
            match scope {
                Scope::OfClient(_) => self.seen.shed_of_client += 1,
                Scope::OfAll => self.seen.shed_of_all += 1,
            }
            let delivery = &mut self.deliveries[shed];
            delivery.forget("shed");
            delivery.answer_lost = true;
        }
    }

    /// Whether a held delivery makes way for a later one of the same message.
    fn is_replaced(&self, old: usize, place: usize, item: &Received) -> bool {
        let old = &self.deliveries[old];
        old.place == place
            && (old.first().offset, old.first().topic_type) == (item.handle.offset, item.handle.topic_type)
    }

    /// All that may have happened within these limits, and whether there is room then. Of several that end together any may go.
    fn make_room(&self, way: Way, scopes: &[Scope], deadline: i64) -> Vec<(Way, bool)> {
        let Some((&scope, more)) = scopes.split_first() else { return vec![(way, true)] };
        let mut ended = Vec::new();
        let mut open = vec![(way, 0)];
        while let Some((way, shed)) = open.pop() {
            let latest =
                way.held.iter().filter(|held| scope.has(held) && held.may_be_shed).map(|held| held.deadline).max();
            if way.held.iter().filter(|held| scope.has(held)).count() < self.most(scope) {
                ended.extend(self.make_room(way, more, deadline));
            } else if let Some(latest) = latest.filter(|latest| *latest > deadline && shed < SHED_AT_ONCE) {
                open.extend(self.without_one(&way, scope, latest).into_iter().map(|way| (way, shed + 1)));
            } else if shed > 0 {
                ended.extend(self.make_room(way, more, deadline));
            } else {
                ended.push((way, false));
            }
        }
        ended
    }

    /// One that ends at `latest` is gone, of each client that has one that is gone.
    fn without_one(&self, way: &Way, scope: Scope, latest: i64) -> Vec<Way> {
        let mut of_clients = Vec::new();
        let mut ways = Vec::new();
        for (index, held) in way.held.iter().enumerate() {
            let ends_last = scope.has(held) && held.may_be_shed && held.deadline == latest;
            let Some(gone) = held.delivery.filter(|delivery| ends_last && !self.is_held(*delivery)) else { continue };
            if !of_clients.contains(&held.client) {
                of_clients.push(held.client);
                let mut way = way.clone();
                way.held.swap_remove(index);
                way.gone.push((gone, scope));
                ways.push(way);
            }
        }
        ways
    }

    fn most(&self, scope: Scope) -> usize {
        let policy = self.core.policy();
        match scope {
            Scope::OfClient(_) => policy.max_handles_per_client as usize,
            Scope::OfAll => policy.max_handles as usize,
        }
    }
}
