//! What would be lost to somebody if this broker were taken away.

use std::collections::{HashMap, HashSet};

use waybill_protocol::names::{dlq_topic, is_system_topic};
use waybill_protocol::remoting::LeftBody;

use super::Core;
use super::counts::queues;
use crate::limits;
use crate::store::QueueKey;

impl Core {
    /// What is left here that somebody waits for; at most [`limits::LEFT_TOPICS_MAX`] topics are named.
    pub fn left(&self) -> LeftBody {
        // Before it is counted: what was taken until then is in the counts.
        let mut left = LeftBody { permission: self.config.load().permission(), ..LeftBody::default() };
        let mut topics: HashMap<String, u64> = HashMap::new();
        let mut add = |count: u64, topic: &str, of: &mut u64| {
            *of += count;
            if count > 0 {
                *topics.entry(topic.to_owned()).or_default() += count;
            }
        };
        let counted = self.group_counts();
        for (topic, _group, counts) in &counted {
            add(counts.in_flight, topic, &mut left.in_flight);
            add(counts.lag.saturating_sub(counts.in_flight), topic, &mut left.unread);
        }
        let dead_letters: HashMap<String, String> = self
            .catalog
            .groups()
            .iter()
            .map(|group| (dlq_topic(&group.config.group_name), group.config.group_name.clone()))
            .collect();
        let read: HashSet<&str> = counted.iter().map(|(topic, _, _)| topic.as_str()).collect();
        for topic in self.catalog.topics() {
            let name = topic.config.topic_name.as_str();
            if is_system_topic(name) || read.contains(name) {
                continue;
            }
            match dead_letters.get(name) {
                Some(group) => add(self.dead_letters(group), name, &mut left.dead_letters),
                None => {
                    let held = |queue| {
                        let (min, end) = self.store.bounds(QueueKey { topic: topic.id, queue });
                        end.saturating_sub(min)
                    };
                    add((0..queues(&topic)).map(held).sum(), name, &mut left.unread);
                }
            }
        }
        for (topic, count) in self.all_delayed() {
            add(count, &topic, &mut left.delayed);
        }
        let mut halves: HashMap<u32, u64> = HashMap::new();
        for half in self.open_halves() {
            *halves.entry(half.queue.topic).or_default() += 1;
        }
        for (topic, count) in halves {
            // One of a topic that was deleted comes to nothing, whatever its producer decides.
            if let Some(topic) = self.catalog.topic_by_id(topic) {
                add(count, &topic.config.topic_name, &mut left.half);
            }
        }
        left.topics = topics.into_keys().collect();
        left.topics.sort_unstable();
        left.topics.truncate(limits::LEFT_TOPICS_MAX);
        left
    }
}
