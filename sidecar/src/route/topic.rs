//! One topic's brokers and queues.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use waybill_protocol::remoting::{BrokerData, QueueData, TopicRouteData};

use crate::limits;

/// The id of a broker that takes writes.
pub const MASTER: i64 = 0;
const PERM_WRITE: i32 = 2;
const PERM_READ: i32 = 4;

/// A queue that may be written to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WriteQueue {
    /// Its broker.
    pub broker_name: String,
    /// Its number.
    pub queue_id: i32,
}

/// A topic's brokers and queues, merged from all route sources, sorted by broker name.
#[derive(Clone, Debug)]
pub struct TopicRoute {
    /// Queues per broker.
    pub queues: Vec<QueueData>,
    /// Addresses per broker.
    pub brokers: Vec<BrokerData>,
    write_queues: Vec<WriteQueue>,
    readable: Vec<String>,
    left_out: u64,
    turns: Arc<Turns>,
}

/// Whose turn it is in this topic. Each sidecar begins somewhere else, so that not all of them begin with the same queue.
#[derive(Debug)]
struct Turns {
    send: AtomicUsize,
    pop: AtomicUsize,
}

impl Default for Turns {
    fn default() -> Self {
        let anywhere = |number: u8| AtomicUsize::new(RandomState::new().hash_one(number) as usize);
        Self { send: anywhere(0), pop: anywhere(1) }
    }
}

impl TopicRoute {
    /// Merges what several sources said. Where two speak of the same broker, the earlier one is believed, and the later
    /// one may add addresses.
    #[must_use]
    pub fn merge(answers: impl IntoIterator<Item = TopicRouteData>) -> Self {
        let mut queues: BTreeMap<String, QueueData> = BTreeMap::new();
        let mut brokers: BTreeMap<String, BrokerData> = BTreeMap::new();
        for answer in answers {
            for queue in answer.queue_datas {
                queues.entry(queue.broker_name.clone()).or_insert(queue);
            }
            for broker in answer.broker_datas {
                match brokers.get_mut(&broker.broker_name) {
                    Some(known) => {
                        for (id, address) in broker.broker_addrs {
                            known.broker_addrs.entry(id).or_insert(address);
                        }
                    }
                    None => {
                        brokers.insert(broker.broker_name.clone(), broker);
                    }
                }
            }
        }
        Self::new(queues.into_values().collect(), brokers.into_values().collect())
    }

    fn new(queues: Vec<QueueData>, brokers: Vec<BrokerData>) -> Self {
        let mut route = Self {
            queues,
            brokers,
            write_queues: Vec::new(),
            readable: Vec::new(),
            left_out: 0,
            turns: Arc::default(),
        };
        for queue in &route.queues {
            let Some(broker) = route.brokers.iter().find(|broker| broker.broker_name == queue.broker_name) else {
                tracing::warn!(broker = queue.broker_name, "a route names a broker without addresses");
                continue;
            };
            if queue.perm & PERM_WRITE != 0 && broker.broker_addrs.contains_key(&MASTER) {
                // The number comes from outside and costs memory.
                let room = limits::BROKER_QUEUES.min(limits::ROUTE_QUEUES - route.write_queues.len());
                route.write_queues.extend(
                    (0..queue.write_queue_nums)
                        .map(|queue_id| WriteQueue { broker_name: queue.broker_name.clone(), queue_id })
                        .take(room),
                );
                let said = u64::try_from(queue.write_queue_nums).unwrap_or(0);
                route.left_out += said.saturating_sub(room as u64);
            }
            if queue.perm & PERM_READ != 0 && queue.read_queue_nums > 0 && !broker.broker_addrs.is_empty() {
                route.readable.push(queue.broker_name.clone());
            }
        }
        route
    }

    /// The queues that may be written to, sorted by broker name and number: every sidecar sees the same order.
    #[must_use]
    pub fn write_queues(&self) -> &[WriteQueue] {
        &self.write_queues
    }

    /// How many queues that may be written to are not used because a broker claims more than
    /// [`limits::BROKER_QUEUES`], or all of them more than [`limits::ROUTE_QUEUES`].
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The place, among the queues or brokers that take turns, at which the next send without a message group begins;
    /// wraps around.
    pub(crate) fn next_send(&self) -> usize {
        self.turns.send.fetch_add(1, Ordering::Relaxed)
    }

    /// As [`TopicRoute::next_send`], for the next pop that asks for no particular broker.
    pub(crate) fn next_pop(&self) -> usize {
        self.turns.pop.fetch_add(1, Ordering::Relaxed)
    }

    /// Goes on where the older route of the same topic was: otherwise a topic with few sends would begin with the same queue
    /// after each refresh.
    pub(super) fn go_on_from(&mut self, older: &Self) {
        self.turns = Arc::clone(&older.turns);
    }

    /// Whether both lead messages to the same queues, and polls to the same brokers.
    pub(crate) fn leads_to_the_same(&self, other: &Self) -> bool {
        self.write_queues == other.write_queues && self.readable == other.readable
    }

    /// The names of all brokers of the topic, sorted.
    #[must_use]
    pub fn broker_names(&self) -> Vec<String> {
        self.brokers.iter().map(|broker| broker.broker_name.clone()).collect()
    }

    /// The names of the brokers that may be read from, sorted.
    #[must_use]
    pub fn readable_brokers(&self) -> &[String] {
        &self.readable
    }
}

/// The address of a broker's master, or of the acting one with the least number.
pub(super) fn address_of(broker: &BrokerData) -> Option<&str> {
    broker.broker_addrs.values().next().map(String::as_str)
}
