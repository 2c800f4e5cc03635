//! What goes wrong, and when.

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::broker::BrokerNode;
use crate::client::{Client, Kind, consume};
use crate::net::{Cut, Net};
use crate::sidecar::SidecarNode;
use crate::sim::Sim;

/// After something failed, everybody needs a while to find back: connections, routes, telemetry.
const AFTERMATH_MS: i64 = 8_000;

/// Everybody in a run.
pub struct World {
    /// What they share.
    pub sim: Arc<Sim>,
    /// The network.
    pub net: Arc<Net>,
    /// The sidecars.
    pub sidecars: Vec<Arc<SidecarNode>>,
    /// The consumers that live: their id, what they are, and what ends them.
    pub consumers: Vec<Consumer>,
    /// How many consumers there have been.
    pub born: usize,
}

/// A consumer that lives.
pub struct Consumer {
    id: String,
    kind: Kind,
    group: &'static str,
    /// Dropped when it is killed.
    _life: JoinSet<()>,
}

impl World {
    /// A new consumer.
    pub fn consumer(&mut self, kind: Kind, group: &'static str) {
        self.born += 1;
        let id = format!("{}-{}", if kind == Kind::Push { "push" } else { "simple" }, self.born);
        let first = usize::try_from(self.sim.dice().within(0..=7)).unwrap_or(0);
        let client = Client::new(&self.sim, &self.net, &self.sidecars, &id, first);
        self.sim.say(&id, format_args!("STARTED"));
        let mut life = JoinSet::new();
        life.spawn(consume(client, kind, group));
        self.consumers.push(Consumer { id, kind, group, _life: life });
    }

    /// Lets faults happen for as long as the plan says.
    pub async fn suffer(&mut self) {
        let sim = self.sim.clone();
        let end = sim.now() + sim.plan.chaos_ms;
        if sim.plan.fault_every_ms == 0 {
            return sim.sleep(sim.plan.chaos_ms).await;
        }
        while sim.now() < end {
            let pause = sim.dice().within(200..=sim.plan.fault_every_ms);
            sim.sleep(pause.min(end - sim.now()).max(1)).await;
            let what = sim.dice().within(0..=99);
            match what {
                0..15 => self.kill_broker(false).await,
                15..35 => self.kill_broker(true).await,
                35..48 => self.kill_sidecar().await,
                48..58 => self.kill_client(),
                58..64 => {
                    self.kill_client();
                    self.kill_sidecar().await;
                }
                64..74 => self.cut_broker_link(),
                74..82 => self.cut_client_link(),
                82..87 => self.fail_sync(),
                87..93 => self.fill_disk(),
                93..97 => self.step_broker_clock(),
                _ => self.step_sidecar_clock(),
            }
        }
    }

    /// Ends all faults; everybody is there.
    pub async fn heal(&mut self) {
        self.sim.say("all", format_args!("HEALED"));
        self.sim.heal();
        self.net.heal();
        for broker in self.net.brokers() {
            broker.disk.heal();
            broker.disk.fill(false);
            // What is being started again will be up within its down time.
            for _ in 0..200 {
                if broker.process().is_some() {
                    break;
                }
                self.sim.sleep(100).await;
            }
        }
    }

    fn any_broker(&self) -> Arc<BrokerNode> {
        self.sim.dice().pick(self.net.brokers()).clone()
    }

    async fn kill_broker(&self, power: bool) {
        let broker = self.any_broker();
        // Half of the time in the middle of a commit: what is written may be there afterwards, or not, or in part.
        if self.sim.dice().chance(500) {
            let soon = std::time::Duration::from_secs(3);
            self.sim.audit().trouble(&[&broker.name], 3_000 + AFTERMATH_MS);
            // If nothing is written for so long, the broker is idle when it is killed.
            let _ = tokio::time::timeout(soon, broker.disk.written_not_synced()).await;
            broker.disk.heal();
        }
        if !broker.kill().await {
            return;
        }
        self.sim.audit().note(if power { "power_cuts" } else { "broker_kills" });
        if power {
            broker.disk.cut_power();
        }
        let down = self.sim.dice().within(0..=6_000);
        self.sim.audit().trouble(&[&broker.name], down + AFTERMATH_MS);
        let sim = self.sim.clone();
        tokio::spawn(async move {
            sim.sleep(down).await;
            broker.start().await;
        });
    }

    async fn kill_sidecar(&self) {
        let sidecar = self.sim.dice().pick(&self.sidecars).clone();
        if !sidecar.kill() {
            return;
        }
        self.sim.audit().note("sidecar_kills");
        let down = self.sim.dice().within(0..=6_000);
        self.sim.audit().trouble(&[&sidecar.name], down + AFTERMATH_MS);
        let sim = self.sim.clone();
        tokio::spawn(async move {
            sim.sleep(down).await;
            sidecar.start().await;
        });
    }

    /// Another one takes its place.
    fn kill_client(&mut self) {
        if self.consumers.is_empty() {
            return;
        }
        let last = i64::try_from(self.consumers.len()).unwrap_or(1) - 1;
        let number = usize::try_from(self.sim.dice().within(0..=last)).unwrap_or(0);
        let dead = self.consumers.swap_remove(number);
        self.sim.say(&dead.id, format_args!("KILLED"));
        self.sim.audit().note("client_kills");
        self.sim.audit().died(&dead.id);
        self.consumer(dead.kind, dead.group);
    }

    fn cut_for_a_while(&self, from: &str, to: &str) {
        let (cut, long) = {
            let mut dice = self.sim.dice();
            (*dice.pick(&[Cut::Refused, Cut::Silent]), dice.within(100..=12_000))
        };
        self.sim.audit().trouble(&[from, to], long + AFTERMATH_MS);
        self.sim.audit().note("cuts");
        self.net.cut(from, to, Some(cut));
        let (sim, net, from, to) = (self.sim.clone(), self.net.clone(), from.to_owned(), to.to_owned());
        tokio::spawn(async move {
            sim.sleep(long).await;
            if !sim.is_healed() {
                net.cut(&from, &to, None);
            }
        });
    }

    fn cut_broker_link(&self) {
        let sidecar = self.sim.dice().pick(&self.sidecars).clone();
        self.cut_for_a_while(&sidecar.name, &self.any_broker().name);
    }

    fn cut_client_link(&self) {
        let Some(client) = self.consumers.first().map(|consumer| consumer.id.clone()) else { return };
        let sidecar = self.sim.dice().pick(&self.sidecars).clone();
        self.cut_for_a_while(&client, &sidecar.name);
    }

    fn fail_sync(&self) {
        let broker = self.any_broker();
        self.sim.audit().trouble(&[&broker.name], AFTERMATH_MS);
        self.sim.audit().note("syncs_to_fail");
        broker.disk.fail_next_sync();
    }

    fn fill_disk(&self) {
        let broker = self.any_broker();
        if broker.disk.is_full() {
            return;
        }
        let long = self.sim.dice().within(3_000..=20_000);
        self.sim.say(&broker.name, format_args!("DISK FULL for {long}"));
        self.sim.audit().trouble(&[&broker.name], long + AFTERMATH_MS);
        broker.disk.fill(true);
        let sim = self.sim.clone();
        tokio::spawn(async move {
            sim.sleep(long).await;
            broker.disk.fill(false);
        });
    }

    fn step_broker_clock(&self) {
        // With handles that change, everybody tells by its own clock whether a lease is over; they are taken to agree.
        if self.sim.plan.moving {
            return;
        }
        self.sim.audit().note("broker_clock_steps");
        let broker = self.any_broker();
        let step = self.sim.dice().within(-20_000..=20_000);
        self.sim.say(&broker.name, format_args!("CLOCK STEPS {step}"));
        self.sim.audit().trouble(&[&broker.name], 2 * AFTERMATH_MS);
        broker.wall.step(step);
    }

    fn step_sidecar_clock(&self) {
        if self.sim.plan.moving {
            return;
        }
        self.sim.audit().note("sidecar_clock_steps");
        let sidecar = self.sim.dice().pick(&self.sidecars).clone();
        let step = self.sim.dice().within(-40_000..=40_000);
        self.sim.say(&sidecar.name, format_args!("CLOCK STEPS {step}"));
        self.sim.audit().trouble(&[&sidecar.name], AFTERMATH_MS);
        sidecar.wall.step(step);
    }
}
