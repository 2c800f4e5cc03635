//! The auditor: hears what brokers are asked and what they answer, and what clients are told, and says which promise was broken.
//!
//! It knows nothing of how broker and sidecar are made. [`wire`] reads remoting commands, [`lease`] keeps what is known of each
//! message and consumer group, [`client`] hears what clients see, [`order`] knows message groups, [`upkeep`] what operators do.

pub mod client;
pub mod lease;
mod order;
mod upkeep;
pub mod wire;

use std::collections::{BTreeMap, BTreeSet};

use crate::plan::Plan;
use client::Held;
use lease::Story;
use order::Order;
use upkeep::Upkeep;

/// A message: broker, topic, queue, offset.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The broker that has it.
    pub broker: String,
    /// Its topic.
    pub topic: String,
    /// Its queue.
    pub queue: i32,
    /// Its offset.
    pub offset: i64,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{}/{}", self.broker, self.topic, self.queue, self.offset)
    }
}

/// What the auditor knows of a broker.
#[derive(Debug, Default)]
struct BrokerFacts {
    /// By its own clock, when each client was last heard of.
    heard: BTreeMap<String, i64>,
    /// Clients that were silent for so long that what they held may have been returned, and when that was over (true time).
    silences: Vec<(String, i64)>,
    /// By client, the sidecars that vouched for it since the broker started, and when, by its clock.
    vouchers: BTreeMap<String, BTreeMap<String, i64>>,
}

impl BrokerFacts {
    /// A client is heard of, at this time of the broker's clock and this true time.
    fn heard(&mut self, client: &str, clock: i64, now: i64, gone_after: i64) {
        let before = self.heard.insert(client.to_owned(), clock);
        if before.is_some_and(|before| before + gone_after <= clock) {
            self.silences.push((client.to_owned(), now));
        }
    }

    /// A sidecar vouches for a client.
    fn vouched(&mut self, sidecar: &str, client: &str, clock: i64) {
        self.vouchers.entry(client.to_owned()).or_default().insert(sidecar.to_owned(), clock);
    }

    /// A sidecar says that a client is gone. If no other one vouches for it, what it holds may be returned with the next sweep.
    fn said_gone(&mut self, sidecar: &str, client: &str, (clock, now): (i64, i64), gone_after: i64) {
        let vouchers = self.vouchers.entry(client.to_owned()).or_default();
        vouchers.remove(sidecar);
        if !vouchers.values().any(|vouched| vouched + gone_after > clock) {
            self.silences.push((client.to_owned(), now + SWEPT_WITHIN_MS));
        }
    }

    /// By the broker's clock, from when on what a client held may be returned, if its lease was alive at the true time `since`.
    fn returned(&self, holder: &str, since: i64, gone_after: i64) -> i64 {
        if self.silences.iter().any(|(client, until)| client == holder && *until >= since) {
            return i64::MIN;
        }
        self.heard.get(holder).map_or(i64::MAX, |heard| heard + gone_after)
    }
}

/// A broker sweeps once a second, and what it does takes a while.
const SWEPT_WITHIN_MS: i64 = 3_000;

/// Longer than any run.
const NEVER_MS: i64 = 1 << 40;

/// A time during which something on a path did not work.
#[derive(Debug)]
struct Trouble {
    until: i64,
    /// Names of those it hit; a link is named by both of its ends.
    hit: Vec<String>,
}

/// The auditor.
#[derive(Debug)]
pub struct Audit {
    /// Milliseconds since the beginning of the run.
    pub now: i64,
    /// Counts what happens; tells before from after.
    step: u64,
    attempts: i32,
    /// Longer than any run if nobody watches over clients.
    gone_after_ms: i64,
    lease_ms: i64,
    /// Handles change, and with its sidecar a client loses what tells them apart.
    moving: bool,
    order: Order,
    upkeep: Upkeep,
    brokers: BTreeMap<String, BrokerFacts>,
    bodies: BTreeMap<Place, String>,
    /// Bodies that a producer was told are stored.
    sent: BTreeSet<String>,
    stories: BTreeMap<(Place, String), Story>,
    /// Bodies in the dead-letter topic of each group.
    dead: BTreeSet<(String, String)>,
    troubles: Vec<Trouble>,
    held: BTreeMap<(Place, String), Held>,
    /// Acks of past deliveries that were answered OK: broken promises, unless the message was dead by then, after deliveries
    /// whose answers never left the broker.
    suspicions: Vec<(Place, String, String)>,
    /// Broken promises.
    violations: Vec<String>,
    /// How often what happened.
    counted: BTreeMap<&'static str, u64>,
}

impl Audit {
    /// Knows nothing yet.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        Self {
            now: 0,
            step: 0,
            attempts: plan.attempts,
            gone_after_ms: if plan.moving { NEVER_MS } else { plan.gone_after_ms },
            lease_ms: plan.lease_ms,
            moving: plan.moving,
            order: Order::default(),
            upkeep: Upkeep::default(),
            brokers: BTreeMap::new(),
            bodies: BTreeMap::new(),
            sent: BTreeSet::new(),
            stories: BTreeMap::new(),
            dead: BTreeSet::new(),
            troubles: Vec::new(),
            held: BTreeMap::new(),
            suspicions: Vec::new(),
            violations: Vec::new(),
            counted: BTreeMap::new(),
        }
    }

    /// Broken promises so far.
    #[must_use]
    pub fn violations(&self) -> &[String] {
        &self.violations
    }

    /// A promise was broken.
    pub fn violation(&mut self, what: String) {
        self.violations.push(format!("at {} ms: {what}", self.now));
    }

    /// Counts what happens.
    pub fn note(&mut self, what: &'static str) {
        *self.counted.entry(what).or_default() += 1;
    }

    /// How often what has happened, in a line that a program can read.
    #[must_use]
    pub fn counts(&self) -> String {
        self.counted.iter().map(|(what, times)| format!("{what}={times}")).collect::<Vec<_>>().join(" ")
    }

    fn next_step(&mut self) -> u64 {
        self.step += 1;
        self.step
    }

    /// A producer was told that a message is stored.
    pub fn sent(&mut self, body: &str) {
        self.note("sent");
        self.sent.insert(body.to_owned());
    }

    /// A broker was started; `clock` is what its clock shows.
    pub fn broker_started(&mut self, broker: &str, clock: i64) {
        let facts = self.brokers.entry(broker.to_owned()).or_default();
        facts.vouchers.clear();
        // Everybody gets the full time again.
        for heard in facts.heard.values_mut() {
            *heard = clock;
        }
    }

    /// A broker was killed: what it had not answered by now may have been done, or not, and is not done later.
    /// `clock` is what its clock showed.
    pub fn broker_killed(&mut self, broker: &str, clock: i64) {
        let step = self.next_step();
        let (now, gone_after) = (self.now, self.gone_after_ms);
        let facts = self.brokers.entry(broker.to_owned()).or_default();
        for client in facts.heard.keys().cloned().collect::<Vec<_>>() {
            facts.heard(&client, clock, now, gone_after);
        }
        for ((place, _), story) in &mut self.stories {
            if place.broker == broker {
                story.cut(step);
            }
        }
    }

    /// Something does not work from now on for so long.
    pub fn trouble(&mut self, hit: &[&str], for_ms: i64) {
        let hit = hit.iter().map(|name| (*name).to_owned()).collect();
        self.troubles.push(Trouble { until: self.now + for_ms, hit });
    }

    /// Whether anything on the way between these did not work since then.
    fn excused(&self, since: i64, parties: &[&str]) -> bool {
        self.troubles
            .iter()
            .any(|trouble| trouble.until >= since && trouble.hit.iter().all(|hit| parties.contains(&hit.as_str())))
    }

    /// A message was found in a dead-letter topic.
    pub fn dead_letter(&mut self, group: &str, body: &str) {
        self.note("dead_letters");
        self.dead.insert((group.to_owned(), body.to_owned()));
    }

    /// The dead letters are known now.
    pub fn conclude(&mut self) {
        for (place, group, wrong) in std::mem::take(&mut self.suspicions) {
            let dead = self.bodies.get(&place).is_some_and(|body| self.dead.contains(&(group, body.clone())));
            if !dead {
                self.violations.push(wrong);
            }
        }
    }

    /// Messages that were sent and are not known to be done, with what is known of them.
    #[must_use]
    pub fn undone(&self, groups: &[&str]) -> Vec<String> {
        let places: BTreeMap<&str, &Place> = self.bodies.iter().map(|(place, body)| (body.as_str(), place)).collect();
        let mut undone = Vec::new();
        for body in &self.sent {
            for group in groups {
                let done = self.dead.contains(&((*group).to_owned(), body.clone()))
                    || places.get(body.as_str()).is_some_and(|place| {
                        self.stories.get(&((*place).clone(), (*group).to_owned())).is_some_and(Story::is_done)
                    });
                if !done {
                    let place = places.get(body.as_str()).map_or("never seen".to_owned(), ToString::to_string);
                    undone.push(format!("{body} ({place}) for {group}"));
                }
            }
        }
        undone
    }
}
