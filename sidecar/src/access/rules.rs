//! What a user may do: permissions about topics and consumer groups, in upstream's manner.
//!
//! Of the permissions that fit, the one with the most exact name decides: the whole name before a beginning of it, a longer beginning
//! before a shorter one, and `*` last. Of two with the same name, the one that denies. Where none fits, nothing is permitted.

use serde::Deserialize;
use waybill_protocol::names::{DLQ_PREFIX, RETRY_PREFIX};

/// What is done with a topic or a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Action {
    /// Messages are sent to a topic.
    Pub,
    /// Messages of a topic are consumed; in a group.
    Sub,
}

/// With what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource<'a> {
    /// A topic, under the name that brokers know.
    Topic(&'a str),
    /// A consumer group, under the name that brokers know.
    Group(&'a str),
}

impl std::fmt::Display for Resource<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Topic(name) => write!(f, "topic {name}"),
            Self::Group(name) => write!(f, "group {name}"),
        }
    }
}

/// What a call needs: one of the actions on the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need<'a> {
    /// With what.
    pub resource: Resource<'a>,
    /// Any of these suffices.
    pub any_of: &'static [Action],
}

/// Whether a permission permits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Decision {
    /// It permits.
    #[default]
    Allow,
    /// It forbids.
    Deny,
}

/// One permission, about a topic or about a group.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Permission {
    /// A name, the beginning of names with `*` behind it, or `*`.
    #[serde(default)]
    pub topic: Option<String>,
    /// The same.
    #[serde(default)]
    pub group: Option<String>,
    /// Of a topic: what. Of a group there is only SUB, which need not be said.
    #[serde(default)]
    pub actions: Vec<Action>,
    /// Whether it permits.
    #[serde(default)]
    pub decision: Decision,
}

impl Permission {
    /// How exactly it names the resource; None if it is about another one or another action.
    fn fits(&self, resource: Resource<'_>, action: Action) -> Option<usize> {
        let (pattern, name, about) = match resource {
            Resource::Topic(name) => (self.topic.as_deref()?, name, self.actions.contains(&action)),
            Resource::Group(name) => (self.group.as_deref()?, name, action == Action::Sub),
        };
        if !about {
            return None;
        }
        match pattern.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning).then_some(beginning.len()),
            None => (pattern == name).then_some(usize::MAX),
        }
    }

    /// What is wrong with it, if anything.
    pub(super) fn mistake(&self) -> Option<&'static str> {
        let (name, is_group) = match (&self.topic, &self.group) {
            (Some(name), None) => (name, false),
            (None, Some(name)) => (name, true),
            _ => return Some("it names either a topic or a group"),
        };
        let bare = name.strip_suffix('*').unwrap_or(name);
        let allowed = |c: char| c.is_ascii_alphanumeric() || "_-%|".contains(c);
        if name.is_empty() || !bare.chars().all(allowed) {
            return Some(
                "a name has letters, digits, _, -, % and |, and a * at its end if it is the beginning of names",
            );
        }
        match (is_group, self.actions.as_slice()) {
            (false, []) => Some("a topic needs actions: PUB, SUB or both"),
            (true, actions) if actions.contains(&Action::Pub) => Some("a group has no action but SUB"),
            _ => None,
        }
    }
}

/// Whether the permissions give one of the actions that are needed.
pub(super) fn permit(permissions: &[Permission], need: Need<'_>) -> bool {
    let given = |resource| need.any_of.iter().any(|action| decide(permissions, resource, *action));
    if given(need.resource) {
        return true;
    }
    // What a group could not do with, and what it gave up on, is read by who may consume in the group.
    match need.resource {
        Resource::Topic(name) if need.any_of.contains(&Action::Sub) => group_behind(name).is_some_and(|group| {
            !denied(permissions, need.resource) && decide(permissions, Resource::Group(group), Action::Sub)
        }),
        _ => false,
    }
}

/// The group of a topic of retries or dead letters.
fn group_behind(topic: &str) -> Option<&str> {
    [RETRY_PREFIX, DLQ_PREFIX].into_iter().find_map(|prefix| topic.strip_prefix(prefix))
}

fn denied(permissions: &[Permission], resource: Resource<'_>) -> bool {
    decision(permissions, resource, Action::Sub) == Some(Decision::Deny)
}

fn decide(permissions: &[Permission], resource: Resource<'_>, action: Action) -> bool {
    decision(permissions, resource, action) == Some(Decision::Allow)
}

fn decision(permissions: &[Permission], resource: Resource<'_>, action: Action) -> Option<Decision> {
    let fitting = permissions.iter().filter_map(|one| Some((one.fits(resource, action)?, one.decision)));
    fitting.max_by_key(|(exact, decision)| (*exact, *decision == Decision::Deny)).map(|(_, decision)| decision)
}
