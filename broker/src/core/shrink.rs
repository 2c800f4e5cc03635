//! Taking queues away from a topic: only those in which nothing waits for anybody, since nobody could read it any more.

use std::collections::HashMap;

use waybill_protocol::remoting::TopicConfig;

use super::{Core, GroupTopic, Slot};
use crate::catalog::TopicInfo;
use crate::error::BrokerError;
use crate::store::QueueKey;

/// A topic's number of queues that can be read, and how many it shall have.
#[derive(Clone, Copy)]
pub(super) struct ReadQueues {
    pub(super) now: u32,
    pub(super) wanted: u32,
    /// Queues that shall be written to.
    write: u32,
}

impl ReadQueues {
    /// How the number changes if it becomes less.
    pub(super) fn lowered(now: &TopicConfig, wanted: &TopicConfig) -> Option<Self> {
        let number = |number: i32| u32::try_from(number).unwrap_or(0);
        let write = number(wanted.write_queue_nums);
        let change = Self { now: number(now.read_queue_nums), wanted: number(wanted.read_queue_nums), write };
        (change.wanted < change.now).then_some(change)
    }
}

/// A group that reads the topic, and what its ledger says. The caller holds the ledger's lock.
pub(super) struct Reader<'a> {
    pub(super) consumer: &'a GroupTopic,
    pub(super) slot: &'a Slot,
}

impl Core {
    /// Checks that no queue that would go is still written to, or holds a message that a group has not finished, or, if no
    /// group reads the topic yet, any message at all. `ends`: the next offset of each queue, whose counters the caller holds.
    pub(super) fn check_emptied(
        &self,
        topic: &TopicInfo,
        change: ReadQueues,
        ends: &[u64],
        readers: &[Reader<'_>],
    ) -> Result<(), BrokerError> {
        if change.write > change.wanted {
            let ReadQueues { now, wanted, write } = change;
            return Err(BrokerError::InvalidParameter(format!(
                "readQueueNums of {} stays {now}: with writeQueueNums {write} messages would go on coming into queues that \
                 nobody could read. Lower writeQueueNums to {wanted} first, let the consumers finish, then lower readQueueNums",
                topic.config.topic_name
            )));
        }
        let readers: Vec<Open<'_>> = readers.iter().map(Open::of).collect();
        for (queue, end) in (0..).zip(ends).skip(change.wanted as usize) {
            let (oldest, _) = self.store.bounds(QueueKey { topic: topic.id, queue });
            let holds = |messages: u64, whose: &str| {
                let ReadQueues { now, wanted, .. } = change;
                BrokerError::InvalidParameter(format!(
                    "readQueueNums of {} stays {now}: queue {queue} holds {messages} messages {whose}, and with {wanted} \
                     queues nobody could read them. Lower writeQueueNums to {wanted} first, let the consumers finish, \
                     then lower readQueueNums",
                    topic.config.topic_name
                ))
            };
            if readers.is_empty() && *end > oldest {
                return Err(holds(end - oldest, "that no consumer group has read"));
            }
            for reader in &readers {
                let (open, unread) = reader.unfinished(queue, oldest, *end);
                if open + unread > 0 {
                    let groups = self.catalog.groups();
                    let group = groups.iter().find(|group| group.id == reader.group);
                    let name = group.map_or("?", |group| group.config.group_name.as_str());
                    let whose = format!("that consumer group {name} has not finished ({open} of them given out)");
                    return Err(holds(open + unread, &whose));
                }
            }
        }
        Ok(())
    }
}

/// What a group has not finished.
struct Open<'a> {
    group: u32,
    slot: &'a Slot,
    /// Messages given out and not acknowledged, by queue.
    given_out: HashMap<u32, u64>,
}

impl<'a> Open<'a> {
    fn of(reader: &Reader<'a>) -> Self {
        let mut given_out = HashMap::new();
        for (queue, _, _) in reader.slot.ledger.iter() {
            *given_out.entry(queue).or_default() += 1;
        }
        Self { group: reader.consumer.group, slot: reader.slot, given_out }
    }

    /// Messages of a queue given out, and those never considered.
    fn unfinished(&self, queue: u32, oldest: u64, end: u64) -> (u64, u64) {
        let next = self.slot.ledger.next(queue).unwrap_or(oldest).max(oldest);
        (self.given_out.get(&queue).copied().unwrap_or(0), end.saturating_sub(next))
    }
}
