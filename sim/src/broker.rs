//! A broker machine: the real broker, which may be killed and started again, on a disk whose power may be cut.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;
use waybill_broker::store::Drive;
use waybill_broker::{Broker, BrokerConfig, Peer};
use waybill_ops::clock::Clock;
use waybill_protocol::remoting::codes::{request, response};
use waybill_protocol::remoting::{
    Command, CreateTopicRequestHeader, ExponentialRetryPolicy, GroupRetryPolicy, GroupRetryPolicyType, JsonBody,
    SubscriptionGroupConfig,
};

use crate::clock::{ProcessClock, Wall};
use crate::disk::SimDisk;
use crate::moving::{Entered, Moving, nothing_there};
use crate::museum::{Bug, Exhibit};
use crate::plan::GROUPS;
use crate::sim::Sim;
use crate::slow;

/// The topic of all messages.
pub const TOPIC: &str = "t";
/// The topic of delayed messages and of transactions.
pub const PROMISED: &str = "promised";
/// Bytes of a log segment: small, so that runs go over many.
const SEGMENT: u64 = 64 << 10;
/// How often a broker looks whether there is room again.
const SPACE_RETRY: Duration = Duration::from_secs(2);

/// A broker machine.
pub struct BrokerNode {
    sim: Arc<Sim>,
    /// The broker's name.
    pub name: String,
    /// Where it listens.
    pub address: String,
    /// The clock on its wall.
    pub wall: Arc<Wall>,
    /// Its disk.
    pub disk: Arc<SimDisk>,
    dir: PathBuf,
    running: Mutex<Option<Running>>,
    starts: AtomicU64,
    exhibit: Arc<Exhibit>,
    /// Only if the broker is like Apache's.
    moving: Option<Moving>,
}

/// One process.
struct Running {
    broker: Arc<Broker>,
    clock: Arc<ProcessClock>,
    tasks: JoinSet<()>,
}

impl BrokerNode {
    /// A machine whose broker is not started.
    #[must_use]
    pub fn new(sim: &Arc<Sim>, number: usize, dir: PathBuf, bug: Option<Bug>) -> Arc<Self> {
        let name = format!("broker-{number}");
        Arc::new(Self {
            sim: sim.clone(),
            address: format!("{name}:10911"),
            wall: Arc::default(),
            disk: Arc::new(SimDisk::new(sim, &name, bug)),
            exhibit: Arc::new(Exhibit::new(bug)),
            moving: sim.plan.moving.then(Moving::default),
            name,
            dir,
            running: Mutex::new(None),
            starts: AtomicU64::new(0),
        })
    }

    /// Starts the broker, which recovers what the last one left. Tries again if the disk fails.
    pub async fn start(&self) {
        let mut tries = 0;
        while tries < 5 {
            match self.try_start() {
                Ok(()) => return,
                Err(error) => {
                    // Without room it may refuse for as long as that lasts.
                    tries += usize::from(!self.disk.is_full());
                    // Where the disk is differs from run to run.
                    let error = error.to_string().replace(&*self.dir.to_string_lossy(), "<dir>");
                    self.sim.say(&self.name, format_args!("DOES NOT START {error}"));
                }
            }
            self.sim.sleep(500).await;
        }
        self.sim.audit().violation(format!("{} does not start any more", self.name));
    }

    fn try_start(&self) -> Result<(), waybill_broker::BrokerError> {
        let bell = Arc::new(Notify::new());
        let clock = Arc::new(ProcessClock::new(&self.sim, &self.wall));
        let config = BrokerConfig {
            broker_name: self.name.clone(),
            broker_host: self.name.clone(),
            store_path_root_dir: self.dir.clone(),
            client_gone_after: if self.moving.is_some() { 0 } else { self.sim.plan.gone_after_ms.cast_unsigned() },
            max_message_size: 4096,
            // The disk of the machine that simulates is none of the simulated ones.
            disk_max_used_space_ratio: 100,
            ..BrokerConfig::default()
        };
        let broker = Broker::open_with(config, clock.clone(), |options| {
            options.segment_bytes = SEGMENT;
            options.disk = self.disk.clone();
            options.drive = Drive::ByHand { bell: bell.clone() };
        })?;
        let start = self.starts.fetch_add(1, Ordering::SeqCst) + 1;
        self.sim.say(&self.name, format_args!("STARTED {start}"));
        self.sim.audit().broker_started(&self.name, clock.now_ms());
        self.exhibit.started();
        let mut tasks = JoinSet::new();
        tasks.spawn(broker.clone().keep_house());
        tasks.spawn(commit(self.sim.clone(), broker.clone(), self.disk.clone(), bell));
        tasks.spawn(checkpoint(self.sim.clone(), broker.clone(), self.disk.clone()));
        if start > 1 && self.exhibit.forgets_order() {
            tasks.spawn(forget_order(broker.clone(), self.sim.plan.attempts));
        }
        *self.running.lock() = Some(Running { broker, clock, tasks });
        Ok(())
    }

    /// Ends the broker as `kill -9` does. Whether it ran.
    pub async fn kill(&self) -> bool {
        let Some(mut running) = self.running.lock().take() else { return false };
        self.sim.say(&self.name, format_args!("KILLED"));
        running.tasks.shutdown().await;
        self.sim.audit().broker_killed(&self.name, running.clock.now_ms());
        true
    }

    /// Which process it is, from 1; `None` if none runs.
    #[must_use]
    pub fn process(&self) -> Option<u64> {
        self.running.lock().as_ref().map(|_| self.starts.load(Ordering::SeqCst))
    }

    /// Hands a request to the broker. The answer comes, unless the broker is killed before.
    pub fn deliver(self: &Arc<Self>, peer: Peer, command: Command) -> Option<oneshot::Receiver<Command>> {
        let mut running = self.running.lock();
        let running = running.as_mut()?;
        let clock = running.clock.clone();
        let asked_outside = command.clone();
        let command = match self.moving.as_ref().map(|moving| moving.enter(command)) {
            None => asked_outside.clone(),
            Some(Entered::Ask(command)) => command,
            Some(Entered::Answered(answer)) => {
                self.sim.say(&self.name, format_args!("{} -> {} here", asked_outside.code, answer.code));
                self.note_hollow(&asked_outside, answer.code);
                let (sender, receiver) = oneshot::channel();
                let _ = sender.send(answer);
                return Some(receiver);
            }
        };
        let (asked, said) = self.sim.audit().asked(&self.name, clock.now_ms(), &command);
        self.sim.say(&self.name, format_args!("{said}"));
        let (sender, answer) = oneshot::channel();
        let (node, broker) = (self.clone(), running.broker.clone());
        running.tasks.spawn(async move {
            let Some(command) = node.exhibit.clone().handle(&broker, clock.now_ms(), &peer, command).await else {
                return;
            };
            let said = node.sim.audit().answered(&asked, clock.now_ms(), &command);
            node.sim.say(&node.name, format_args!("{said}"));
            if node.disk.has_refused()
                && asked_outside.code == request::SEND_MESSAGE_V2
                && command.code != response::SUCCESS
            {
                node.sim.audit().note("refused_for_space");
            }
            let command = match &node.moving {
                Some(moving) => {
                    if nothing_there(&command) {
                        node.note_hollow(&asked_outside, response::SUCCESS);
                    }
                    let answer = moving.leave(clock.now_ms(), &asked_outside, command);
                    if asked_outside.code == request::CHANGE_MESSAGE_INVISIBLETIME && answer.code == response::SUCCESS {
                        node.sim.audit().note("moved_handles");
                    }
                    answer
                }
                None => command,
            };
            // The sidecar may be gone.
            let _ = sender.send(command);
        });
        Some(answer)
    }

    /// An ack that did nothing is answered OK.
    fn note_hollow(&self, asked: &Command, code: i32) {
        if asked.code == request::ACK_MESSAGE && code == response::SUCCESS {
            self.sim.audit().hollow_ok(&self.name, asked);
        }
    }

    /// Asks the broker from its own machine.
    pub async fn ask(self: &Arc<Self>, command: Command) -> Option<Command> {
        let answer = self.deliver(Peer::local(), command)?;
        answer.await.ok()
    }

    fn in_order(&self) -> bool {
        self.sim.plan.message_groups > 0
    }

    /// Makes the topic and the consumer groups.
    pub async fn prepare(self: &Arc<Self>, groups: &[&str]) {
        let topic = CreateTopicRequestHeader {
            attributes: self.in_order().then(|| "+message.type=FIFO".to_owned()),
            ..CreateTopicRequestHeader::new(TOPIC, self.sim.plan.queues)
        };
        let promised = CreateTopicRequestHeader { topic: PROMISED.into(), attributes: None, ..topic.clone() };
        let mut commands: Vec<_> = [topic, promised]
            .iter()
            .map(|topic| Command::request(request::UPDATE_AND_CREATE_TOPIC).with_header(topic))
            .collect();
        for group in groups {
            commands.push(make_group(group, self.sim.plan.attempts, self.in_order() && GROUPS.contains(group)));
        }
        for command in commands {
            let answer = self.ask(command).await.map(|answer| answer.code);
            assert_eq!(answer, Some(response::SUCCESS), "the run cannot begin");
        }
    }
}

/// Commits what waits, a while after it has arrived.
async fn commit(sim: Arc<Sim>, broker: Arc<Broker>, disk: Arc<SimDisk>, bell: Arc<Notify>) {
    loop {
        // Now and then by itself: whether there is room again.
        let _ = tokio::time::timeout(SPACE_RETRY, bell.notified()).await;
        let takes = if disk.is_slow() { slow::SYNC_MS } else { 0..=sim.plan.sync_ms };
        sim.sleep_within(takes).await;
        broker.core().store().work();
    }
}

/// Writes to the index now and then.
async fn checkpoint(sim: Arc<Sim>, broker: Arc<Broker>, disk: Arc<SimDisk>) {
    loop {
        sim.sleep_within(3_000..=20_000).await;
        // The index has no room either; the store's own thread would try again later.
        if disk.is_full() {
            continue;
        }
        if let Err(error) = broker.core().store().checkpoint() {
            sim.audit().violation(format!("a checkpoint failed: {error}"));
        }
    }
}

fn make_group(name: &str, attempts: i32, in_order: bool) -> Command {
    let group = SubscriptionGroupConfig {
        group_name: name.to_owned(),
        consume_message_orderly: in_order,
        retry_max_times: attempts - 1,
        consume_timeout_minute: 1,
        group_retry_policy: GroupRetryPolicy {
            kind: GroupRetryPolicyType::Exponential,
            exponential_retry_policy: Some(ExponentialRetryPolicy { initial: 500, max: 2_000, multiplier: 2 }),
            ..Default::default()
        },
        ..Default::default()
    };
    Command::request(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP).with_body(group.to_json())
}

/// A bug of the museum: that groups consume in order does not survive a restart.
async fn forget_order(broker: Arc<Broker>, attempts: i32) {
    for group in GROUPS {
        broker.handle(&Peer::local(), make_group(group, attempts, false)).await;
    }
}
