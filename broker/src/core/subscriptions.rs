//! What the members of a group ask for: on a topic with which filter, and which topics they subscribe to at all. They share the messages,
//! so that whoever takes a message decides for all: with different filters each of them misses what another one passed over, and with
//! different topics fewer of them than one thinks work on a topic. Nobody is refused for it, but it is said.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::{info, warn};

use super::filter::Filter;
use super::pop::{Asked, Pop};
use super::{Core, GroupTopic};

/// Filters that are told apart; more differ all the same.
const FILTERS_MAX: usize = 8;
/// A filter counts for so long after the latest poll with it, milliseconds: longer than a poll waits.
const REMEMBERED_MS: i64 = 60_000;
/// Clients remembered of those that use one filter: when one of them changes its mind, the other still counts.
const CLIENTS_MAX: usize = 2;
/// Members of a group that are remembered; more are not counted.
const MEMBERS_MAX: usize = 1_024;
/// Bytes that are kept of a filter and of a client's name.
const TEXT_BYTES_MAX: usize = 512;

#[derive(Debug)]
struct Seen {
    filter: String,
    /// Who asked with it last, and when.
    clients: Vec<(String, i64)>,
}

#[derive(Debug, Default)]
struct State {
    seen: Vec<Seen>,
    differ: bool,
    /// Clients that asked for messages, and when last. Only kept of a whole group.
    members: HashMap<String, i64>,
}

impl Seen {
    fn note(&mut self, client: &str, now_ms: i64) {
        if let Some((_, at_ms)) = self.clients.iter_mut().find(|(known, _)| known == client) {
            *at_ms = now_ms;
            return;
        }
        if self.clients.len() >= CLIENTS_MAX
            && let Some(oldest) =
                (0..self.clients.len()).min_by_key(|at| self.clients.get(*at).map(|(_, at_ms)| *at_ms))
        {
            self.clients.swap_remove(oldest);
        }
        self.clients.push((client.to_owned(), now_ms));
    }
}

/// What members of a group ask with: filters on a topic, or lists of topics.
#[derive(Debug, Default)]
pub(super) struct Subscriptions(Mutex<State>);

impl Subscriptions {
    /// A client asks with a filter. Answers whether the group's filters differ, if that is news, and which there are.
    fn asked(&self, now_ms: i64, client: &str, filter: &str) -> Option<(bool, Vec<String>)> {
        let (client, filter) = (cut(client), cut(filter));
        let mut state = self.0.lock();
        let state = &mut *state;
        for seen in &mut state.seen {
            // A client that asks for something else now is not two clients.
            seen.clients
                .retain(|(known, at_ms)| is_fresh(*at_ms, now_ms) && (known != client || seen.filter == filter));
        }
        state.seen.retain(|seen| !seen.clients.is_empty() || seen.filter == filter);
        if let Some(seen) = state.seen.iter_mut().find(|seen| seen.filter == filter) {
            seen.note(client, now_ms);
        } else if state.seen.len() < FILTERS_MAX {
            state.seen.push(Seen { filter: filter.to_owned(), clients: vec![(client.to_owned(), now_ms)] });
        }
        let differ = state.seen.len() > 1;
        if std::mem::replace(&mut state.differ, differ) == differ {
            return None;
        }
        Some((differ, state.seen.iter().map(|seen| seen.filter.clone()).collect()))
    }

    /// A client asks for messages.
    fn note_member(&self, now_ms: i64, client: &str) {
        let client = cut(client);
        let members = &mut self.0.lock().members;
        if let Some(at_ms) = members.get_mut(client) {
            *at_ms = now_ms;
            return;
        }
        if members.len() >= MEMBERS_MAX {
            members.retain(|_, at_ms| is_fresh(*at_ms, now_ms));
        }
        if members.len() < MEMBERS_MAX {
            members.insert(client.to_owned(), now_ms);
        }
    }

    /// Clients that asked for messages a moment ago, or earlier and are alive. Others are forgotten.
    fn members(&self, now_ms: i64, alive: &dyn Fn(&str) -> bool) -> usize {
        let members = &mut self.0.lock().members;
        members.retain(|client, at_ms| is_fresh(*at_ms, now_ms) || alive(client));
        members.len()
    }

    /// The filters in use.
    fn now(&self, now_ms: i64) -> Vec<String> {
        let fresh = |seen: &&Seen| seen.clients.iter().any(|(_, at_ms)| is_fresh(*at_ms, now_ms));
        self.0.lock().seen.iter().filter(fresh).map(|seen| seen.filter.clone()).collect()
    }

    /// What is in use, if it is not the same for all.
    pub(super) fn differing(&self, now_ms: i64) -> Vec<String> {
        let now = self.now(now_ms);
        if now.len() > 1 { now } else { Vec::new() }
    }
}

impl GroupTopic {
    /// The filters that members use, if they differ: what one of them does not want is done for the group.
    pub(crate) fn differing_filters(&self, now_ms: i64) -> Vec<String> {
        self.filters.differing(now_ms)
    }
}

impl Core {
    /// Notes what a client asks for. Said once when members begin to differ, and once when they are alike again.
    pub(super) fn note_subscription(&self, pop: &Pop, asked: &Asked) {
        let Some(client) = pop.client_id.as_deref().filter(|client| !client.is_empty()) else { return };
        let group = &asked.group.config.group_name;
        asked.consumer.topics.note_member(self.now(), client);
        if let Some(topics) = &pop.subscribed_topics
            && let Some((differ, topics)) = asked.consumer.topics.asked(self.now(), client, topics)
        {
            if differ {
                warn!(group, ?topics, "members of a group subscribe to different topics: not all of them work on each");
            } else {
                info!(group, "all members of the group subscribe to the same topics again");
            }
        }
        let text = text(&asked.filter, pop.expression.as_deref());
        let Some((differ, filters)) = asked.consumer.filters.asked(self.now(), client, &text) else { return };
        let topic = &asked.topic.config.topic_name;
        if differ {
            warn!(
                group,
                topic,
                ?filters,
                "members of a group ask with different filters: each misses what another passes over"
            );
        } else {
            info!(group, topic, "all members of the group ask with the same filter again");
        }
    }

    /// Groups whose members use different filters on a topic: topic, group, how many filters.
    pub fn differing_filters(&self) -> Vec<(String, String, usize)> {
        let now = self.now();
        let consumers: Vec<_> = self.ledgers.read().values().cloned().collect();
        let differing = consumers.into_iter().filter_map(|consumer| match consumer.differing_filters(now).len() {
            0 => None,
            filters => Some((consumer, filters)),
        });
        let named = differing.filter_map(|(consumer, filters)| {
            let topic = self.catalog.topics().into_iter().find(|topic| topic.id == consumer.topic)?;
            let group = self.catalog.groups().into_iter().find(|group| group.id == consumer.group)?;
            Some((topic.config.topic_name.clone(), group.config.group_name.clone(), filters))
        });
        named.collect()
    }

    /// How many clients consume in a group: those that asked for messages a moment ago, and those that did so earlier and are `alive`.
    pub(crate) fn members(&self, group: &str, alive: &dyn Fn(&str) -> bool) -> usize {
        let Some(id) = self.catalog.group(group).map(|group| group.id) else { return 0 };
        let subscribed = self.subscribed.lock().get(&id).cloned();
        subscribed.map_or(0, |members| members.members(self.now(), alive))
    }

    /// The topics that members of a group subscribe to.
    pub(super) fn subscribed_by(&self, group: u32) -> Arc<Subscriptions> {
        Arc::clone(self.subscribed.lock().entry(group).or_default())
    }

    /// Groups whose members subscribe to different topics: group, how many lists of topics there are.
    pub fn differing_topics(&self) -> Vec<(String, usize)> {
        let now = self.now();
        let subscribed: Vec<_> = self.subscribed.lock().iter().map(|(group, of)| (*group, Arc::clone(of))).collect();
        let differing: Vec<_> = subscribed
            .iter()
            .map(|(group, of)| (*group, of.differing(now).len()))
            .filter(|(_, lists)| *lists > 0)
            .collect();
        let named = |(id, lists)| {
            let group = self.catalog.groups().into_iter().find(|group| group.id == id)?;
            Some((group.config.group_name.clone(), lists))
        };
        differing.into_iter().filter_map(named).collect()
    }
}

/// Equal for filters that take the same: the tags in their order, each once.
fn text<'a>(filter: &Filter, expression: Option<&str>) -> Cow<'a, str> {
    match filter {
        Filter::All => "*".into(),
        Filter::Tags(tags) => {
            let mut tags: Vec<&str> = tags.iter().map(|(_, tag)| tag.as_str()).collect();
            tags.sort_unstable();
            tags.dedup();
            tags.join("||").into()
        }
        Filter::Sql(_) => format!("SQL92: {}", expression.unwrap_or_default().trim()).into(),
    }
}

fn is_fresh(at_ms: i64, now_ms: i64) -> bool {
    now_ms.saturating_sub(at_ms) < REMEMBERED_MS
}

fn cut(text: &str) -> &str {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn differ(filters: &[&str]) -> Option<(bool, Vec<String>)> {
        Some((filters.len() > 1, filters.iter().map(|filter| (*filter).to_owned()).collect()))
    }

    #[test]
    fn two_members_with_different_filters_are_news_once() {
        let group = Subscriptions::default();
        assert_eq!(group.asked(0, "a", "A"), None);
        assert_eq!(group.asked(1, "b", "A"), None);
        assert_eq!(group.asked(2, "c", "B"), differ(&["A", "B"]));
        assert_eq!(group.asked(3, "a", "A"), None);
        assert_eq!(group.asked(4, "c", "B"), None);
        assert_eq!(group.asked(59_999, "a", "A"), None);
        assert_eq!(group.now(60_003), ["A", "B"]);
        assert_eq!(group.now(60_004), ["A"], "c asks no more");
        assert_eq!(group.asked(60_004, "a", "A"), differ(&["A"]), "alike again");
    }

    #[test]
    fn one_member_may_change_its_mind() {
        let group = Subscriptions::default();
        for (now, filter) in ["A", "B", "C"].into_iter().enumerate() {
            assert_eq!(group.asked(now as i64, "a", filter), None);
        }
        assert_eq!(group.now(3), ["C"]);
    }

    #[test]
    fn who_asked_a_moment_ago_is_a_member_and_later_whoever_is_alive() {
        let group = Subscriptions::default();
        group.note_member(0, "a");
        group.note_member(0, "b");
        group.note_member(50_000, "b");
        let nobody: &dyn Fn(&str) -> bool = &|_| false;
        let a: &dyn Fn(&str) -> bool = &|client| client == "a";
        assert_eq!(group.members(59_999, nobody), 2);
        assert_eq!(group.members(60_000, a), 2, "it works on what it got");
        assert_eq!(group.members(60_000, nobody), 1);
        assert_eq!(group.members(60_000, a), 1, "who was forgotten comes back by asking");
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let group = Subscriptions::default();
        for n in 0..100 {
            group.asked(0, &format!("client {n}"), &format!("{n}{}", "ü".repeat(10_000)));
        }
        for n in 0..2 * MEMBERS_MAX {
            group.note_member(0, &format!("client {n}"));
        }
        assert_eq!(group.members(0, &|_| false), MEMBERS_MAX);
        let kept = group.now(0);
        assert_eq!(kept.len(), FILTERS_MAX);
        assert!(kept.iter().all(|filter| filter.len() <= TEXT_BYTES_MAX));
    }

    #[test]
    fn filters_that_take_the_same_are_the_same() {
        let of = |kind: &str, expression: &str| {
            text(&Filter::parse(Some(kind), Some(expression)).expect("parses"), Some(expression)).into_owned()
        };
        assert_eq!(of("TAG", " B || A||B"), of("TAG", "A||B"));
        assert_eq!(of("TAG", ""), of("SQL92", "*"));
        assert_ne!(of("TAG", "A"), of("TAG", "B"));
        assert_ne!(of("TAG", "a"), of("SQL92", "a = 1"));
    }
}
