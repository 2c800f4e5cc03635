//! One run, from its seed to its end.

use std::path::Path;
use std::sync::Arc;

use waybill_protocol::message::StoredMessage;
use waybill_protocol::names::dlq_topic;
use waybill_protocol::remoting::codes::{request, response};
use waybill_protocol::remoting::{Command, PopMessageRequestHeader};

use crate::broker::BrokerNode;
use crate::client::{Client, Kind, produce};
use crate::dice::Dice;
use crate::faults::World;
use crate::museum::Bug;
use crate::net::Net;
use crate::plan::{CONSUME_TIMEOUT_MS, GROUPS, Plan};
use crate::promises::{READERS, keep, promise};
use crate::sidecar::{LONGEST_STEP_MS, RENEW_MAX_MS, SidecarNode};
use crate::sim::Sim;
use crate::slow::slow_disks;
use crate::upkeep::upkeep;

/// Reads the dead letters.
const AUDITORS: &str = "auditors";
/// What is held when faults are over comes back within the longest lease there can be, `clientGoneAfter`, and this.
const BOUND_MS: i64 = 30_000;

/// What came of a run.
#[derive(Debug)]
pub struct Report {
    /// Everything that happened, line by line.
    pub trace: String,
    /// Broken promises.
    pub violations: Vec<String>,
    /// How much happened.
    pub counted: String,
}

/// Runs a seed in a thread of its own. `dir` is for the disks, and is removed.
///
/// # Panics
/// If the run itself cannot be made.
#[must_use]
pub fn run(seed: u64, bug: Option<Bug>, dir: &Path) -> Report {
    let dir = dir.to_owned();
    let thread = std::thread::spawn(move || {
        crate::entropy::seed(seed);
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
        let report = runtime.block_on(live(seed, bug, &dir));
        drop(runtime);
        // In memory; what cannot be removed now is removed with the machine.
        let _ = std::fs::remove_dir_all(&dir);
        report
    });
    thread.join().expect("the run panicked")
}

async fn live(seed: u64, bug: Option<Bug>, dir: &Path) -> Report {
    let mut dice = Dice::new(seed);
    // Not drawn: what all other seeds do stays as it was.
    let plan = Plan { slow_disks: seed % 4 == 3, ..Plan::of(&mut dice) };
    let sim = Sim::new(plan.clone(), dice);
    sim.say("plan", format_args!("seed {seed} {bug:?} {plan:?}"));
    let brokers: Vec<_> =
        (0..plan.brokers).map(|number| BrokerNode::new(&sim, number, dir.join(number.to_string()), bug)).collect();
    for broker in &brokers {
        broker.start().await;
        broker.prepare(&[GROUPS[0], GROUPS[1], AUDITORS, READERS]).await;
    }
    let net = Net::new(&sim, brokers);
    let sidecars: Vec<_> = (0..plan.sidecars).map(|number| SidecarNode::new(&sim, &net, number, dir, bug)).collect();
    for sidecar in &sidecars {
        sidecar.start().await;
    }
    let mut world = World { sim: sim.clone(), net: net.clone(), sidecars, consumers: Vec::new(), born: 0 };
    for _ in 0..plan.push {
        world.consumer(Kind::Push, GROUPS[0]);
    }
    for _ in 0..plan.simple {
        world.consumer(Kind::Simple, GROUPS[1]);
    }
    let producer = Client::new(&sim, &net, &world.sidecars, "producer", 0);
    let producing = tokio::spawn(produce(producer, plan.messages));
    let promising = tokio::spawn(promise(sim.clone(), net.brokers().to_vec(), seed));
    let keeping = tokio::spawn(upkeep(sim.clone(), world.sidecars.clone()));
    let slowing = tokio::spawn(slow_disks(sim.clone(), net.brokers().to_vec()));
    world.suffer().await;
    world.heal().await;
    let _ = producing.await;
    let _ = keeping.await;
    let _ = slowing.await;
    settle(&sim, &net).await;
    if let Ok(promises) = promising.await {
        keep(&sim, net.brokers(), promises).await;
    }
    let mut audit = sim.audit();
    audit.conclude();
    let (violations, counted) = (audit.violations().to_vec(), audit.counts());
    drop(audit);
    Report { trace: sim.trace(), violations, counted }
}

/// Waits until every message is done; a promise is broken if that takes too long.
async fn settle(sim: &Arc<Sim>, net: &Arc<Net>) {
    let lease = CONSUME_TIMEOUT_MS.max(RENEW_MAX_MS + LONGEST_STEP_MS);
    let end = sim.now() + lease + sim.plan.gone_after_ms + BOUND_MS;
    loop {
        for broker in net.brokers() {
            for group in GROUPS {
                read_dead_letters(sim, broker, group).await;
            }
        }
        let undone = sim.audit().undone(&GROUPS);
        if undone.is_empty() || !sim.audit().violations().is_empty() {
            return;
        }
        if sim.now() >= end {
            for message in undone {
                sim.audit().violation(format!("{message}: neither delivered again nor among the dead letters"));
            }
            return;
        }
        sim.sleep(1_000).await;
    }
}

async fn read_dead_letters(sim: &Arc<Sim>, broker: &Arc<BrokerNode>, group: &str) {
    let header = PopMessageRequestHeader {
        consumer_group: AUDITORS.into(),
        topic: dlq_topic(group),
        queue_id: -1,
        max_msg_nums: 32,
        invisible_time: 3_600_000,
        init_mode: 0,
        ..Default::default()
    };
    let Some(answer) = broker.ask(Command::request(request::POP_MESSAGE).with_header(&header)).await else { return };
    if answer.code == response::SUCCESS {
        for message in StoredMessage::decode_all(answer.body).unwrap_or_default() {
            sim.audit().dead_letter(group, &String::from_utf8_lossy(&message.body));
        }
    }
}
