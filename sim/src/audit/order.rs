//! Message groups: within one, no message is given out before its predecessors are done.

use std::collections::{BTreeMap, BTreeSet};

use super::{Audit, Place};

/// Which message group each message is of.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// Offsets of a message group in one queue, by broker, topic, queue and name.
    offsets: BTreeMap<(String, String, i32, String), BTreeSet<i64>>,
}

impl Order {
    /// A message of a message group lies there.
    pub(super) fn is_in(&mut self, place: &Place, message_group: &str) {
        self.offsets.entry(key(place, message_group)).or_default().insert(place.offset);
    }

    fn before(&self, place: &Place, message_group: &str) -> Vec<i64> {
        let known = self.offsets.get(&key(place, message_group));
        known.into_iter().flat_map(|offsets| offsets.range(..place.offset)).copied().collect()
    }
}

fn key(place: &Place, message_group: &str) -> (String, String, i32, String) {
    (place.broker.clone(), place.topic.clone(), place.queue, message_group.to_owned())
}

impl Audit {
    /// A broker gave out a message of a message group; `together`: offsets that came before it in the same answer.
    pub(super) fn in_order(
        &mut self,
        place: &Place,
        (group, message_group): (&str, &str),
        pop_time: i64,
        together: &BTreeSet<i64>,
    ) {
        self.note("in_order");
        for offset in self.order.before(place, message_group) {
            let before = Place { offset, ..place.clone() };
            let story = self.story(&before, group);
            // Given out later still, by an answer that overtook this one: it was open for that, and not for this one.
            let overtaken = story.last.as_ref().is_some_and(|last| last.pop_time > pop_time);
            if story.is_done() || overtaken || together.contains(&offset) {
                continue;
            }
            let wrong = format!(
                "at {} ms: {place} for {group}: given out although its predecessor {before} in {message_group} is not done",
                self.now
            );
            // Unless that is a dead letter.
            self.suspicions.push((before, group.to_owned(), wrong));
        }
    }
}
