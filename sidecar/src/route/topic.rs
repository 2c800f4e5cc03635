//! One topic's brokers and queues.

use std::collections::BTreeMap;

use waybill_protocol::remoting::{BrokerData, QueueData, TopicRouteData};

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
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TopicRoute {
    /// Queues per broker.
    pub queues: Vec<QueueData>,
    /// Addresses per broker.
    pub brokers: Vec<BrokerData>,
    write_queues: Vec<WriteQueue>,
    readable: Vec<String>,
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
        let mut route = Self { queues, brokers, write_queues: Vec::new(), readable: Vec::new() };
        for queue in &route.queues {
            let Some(broker) = route.brokers.iter().find(|broker| broker.broker_name == queue.broker_name) else {
                tracing::warn!(broker = queue.broker_name, "a route names a broker without addresses");
                continue;
            };
            if queue.perm & PERM_WRITE != 0 && broker.broker_addrs.contains_key(&MASTER) {
                route.write_queues.extend(
                    (0..queue.write_queue_nums)
                        .map(|queue_id| WriteQueue { broker_name: queue.broker_name.clone(), queue_id }),
                );
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
