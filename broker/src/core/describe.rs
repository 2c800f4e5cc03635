//! Where a message is, and what each group has done with it.

use serde::Serialize;
use waybill_protocol::message::{StoredMessage, offset_msg_id, peek_properties, peek_sys_flag, properties, sys_flag};
use waybill_protocol::names::dlq_topic;

use super::{Core, Match, Query, Wanted};
use crate::catalog::TopicInfo;
use crate::error::BrokerError;
use crate::limits;
use crate::store::{HeldRow, Keyspace};

/// What a group has done with a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupState {
    /// The group.
    pub group: String,
    /// `Ready` (can be delivered), `Inflight` (a consumer holds it), `WaitingRetry` (given back until a time), `Commit` (done, or not
    /// wanted by the group's filter), `DLQ` (given up).
    pub state: &'static str,
    /// Who holds it, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// Until when, milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<i64>,
    /// Deliveries so far, as long as it is not done.
    pub attempts: u32,
    /// It waits for a message before it in its message group.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub blocked: bool,
    /// Its offset in the dead-letter topic of the group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letter_offset: Option<u64>,
}

/// Where a message is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Described {
    /// The id the producer gave it.
    pub message_id: String,
    /// The broker's id, which says where it lies.
    pub offset_message_id: String,
    /// `Stored` (in its queue), `Timing` (delayed until a time), `Half` (of a transaction that is not decided).
    pub state: &'static str,
    /// When it is due (`Timing`), milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due: Option<i64>,
    /// The topic.
    pub topic: String,
    /// The queue it is in, or will be.
    pub queue_id: u32,
    /// Its place there, once it is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// Its place in the log.
    pub position: u64,
    /// When the producer made it, milliseconds since 1970.
    pub born_timestamp: i64,
    /// The producer's address.
    pub born_host: String,
    /// When it came into its queue, or to the broker if it is not there yet, milliseconds since 1970.
    pub store_timestamp: i64,
    /// Bytes of its body as it was sent.
    pub body_bytes: usize,
    /// All its properties.
    pub properties: std::collections::BTreeMap<String, String>,
    /// What the groups that read the topic have done with it.
    pub groups: Vec<GroupState>,
}

/// Described messages, and how far the search came.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DescribeAnswer {
    /// The messages.
    pub messages: Vec<Described>,
    /// Messages looked at.
    pub looked_at: usize,
    /// See [`super::QueryAnswer::oldest_first`].
    pub oldest_first: bool,
    /// See [`super::QueryAnswer::since_ms`].
    pub since: i64,
    /// See [`super::QueryAnswer::cut_at`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut_at: Option<i64>,
    /// Not all delayed messages and halves could be looked at.
    pub held_cut: bool,
}

impl Core {
    /// Searches a topic, and the first of the messages that wait to come into it, and says of each message where it is.
    ///
    /// # Errors
    /// As [`Core::query`].
    pub async fn describe(&self, query: &Query) -> Result<DescribeAnswer, BrokerError> {
        let found = self.query(query).await?;
        let topic = self.topic(&query.topic)?;
        let mut answer = DescribeAnswer {
            looked_at: found.looked_at,
            oldest_first: found.oldest_first,
            since: found.since_ms,
            cut_at: found.cut_at,
            ..DescribeAnswer::default()
        };
        for found in &found.matches {
            let mut described = self.described(&found.payload, found.entry.position)?;
            described.topic.clone_from(&query.topic);
            described.queue_id = found.queue;
            described.offset = Some(found.entry.offset);
            described.store_timestamp = found.entry.store_time_ms;
            described.groups = self.group_states(&topic, found).await?;
            answer.messages.push(described);
        }
        if answer.messages.is_empty() {
            self.describe_held(query, &topic, &mut answer).await?;
        }
        Ok(answer)
    }

    fn described(&self, payload: &bytes::Bytes, position: u64) -> Result<Described, BrokerError> {
        let message = StoredMessage::decode(&mut payload.clone());
        let message = message.map_err(|error| BrokerError::Internal(error.to_string()))?;
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        Ok(Described {
            message_id: properties::get(&message.properties, properties::UNIQ_KEY).unwrap_or_default().to_owned(),
            offset_message_id: offset_msg_id(self.store_host, position.cast_signed()),
            state: "Stored",
            due: None,
            queue_id: message.queue_id.cast_unsigned(),
            offset: None,
            position,
            born_timestamp: message.born_timestamp,
            born_host: message.born_host.to_string(),
            store_timestamp: message.store_timestamp,
            body_bytes: message.body.len(),
            properties: properties::iter(&message.properties).map(owned).collect(),
            groups: Vec::new(),
            topic: message.topic,
        })
    }

    /// Delayed messages and halves: the first of the topic's by time, since they are not in the order in which they came.
    async fn describe_held(
        &self,
        query: &Query,
        topic: &TopicInfo,
        answer: &mut DescribeAnswer,
    ) -> Result<(), BrokerError> {
        for (keyspace, state) in [(Keyspace::Timer, "Timing"), (Keyspace::Half, "Half")] {
            for row in self.first_held(keyspace, topic.id, answer).await? {
                tokio::task::yield_now().await;
                let Ok(payload) = self.store.read(row.position) else { continue };
                if !query.wanted.names(&payload, || offset_msg_id(self.store_host, row.position.cast_signed())) {
                    continue;
                }
                let mut described = self.described(&payload, row.position)?;
                described.state = state;
                described.due = (keyspace == Keyspace::Timer).then_some(row.time_ms.cast_signed());
                described.queue_id = row.queue.queue;
                described.topic.clone_from(&query.topic);
                answer.messages.push(described);
                if answer.messages.len() >= query.max {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// So many of what is held for a topic as one search may look at; `answer` hears if there are more.
    async fn first_held(
        &self,
        keyspace: Keyspace,
        topic: u32,
        answer: &mut DescribeAnswer,
    ) -> Result<Vec<HeldRow>, BrokerError> {
        let (mut of_topic, mut bytes, mut rows) = (Vec::new(), 0, 0);
        for page in self.store.pages(keyspace, limits::QUERY_HELD_MAX) {
            let page = page?;
            for row in page.iter().filter_map(|(key, value)| HeldRow::read(key, value)) {
                if row.queue.topic != topic {
                    continue;
                }
                if of_topic.len() >= limits::QUERY_HELD_MAX || bytes >= limits::QUERY_BYTES_MAX {
                    answer.held_cut = true;
                    return Ok(of_topic);
                }
                bytes += row.len as usize;
                of_topic.push(row);
            }
            rows += page.len();
            if rows >= limits::QUERY_ENTRIES_MAX {
                answer.held_cut = true;
                break;
            }
            tokio::task::yield_now().await;
        }
        Ok(of_topic)
    }

    async fn group_states(&self, topic: &TopicInfo, found: &Match) -> Result<Vec<GroupState>, BrokerError> {
        let raw = peek_properties(&found.payload).unwrap_or_default();
        let only = (peek_sys_flag(&found.payload) & sys_flag::FOR_ONE_GROUP != 0)
            .then(|| properties::get(raw, properties::ORIGIN_GROUP).unwrap_or_default());
        let id = properties::get(raw, properties::UNIQ_KEY).unwrap_or_default();
        let mut states = Vec::new();
        for group in self.groups_of(&topic.config.topic_name)? {
            let name = group.config.group_name.as_str();
            if only.is_some_and(|only| only != name) {
                continue;
            }
            let Some(mut state) = self.group_state(name, group.id, topic.id, found) else { continue };
            if state.state == "Commit" && !id.is_empty() {
                let letter = self.dead_letter_of(name, id, found.entry.store_time_ms).await?;
                if letter.is_some() {
                    (state.state, state.dead_letter_offset) = ("DLQ", letter);
                }
            }
            states.push(state);
        }
        Ok(states)
    }

    /// `None` if the group is gone by now.
    fn group_state(&self, name: &str, group: u32, topic: u32, found: &Match) -> Option<GroupState> {
        let consumer = self.existing_ledger(group, topic)?;
        let ledger = consumer.open_ledger()?;
        let (queue, offset) = (found.queue, found.entry.offset);
        let mut state = GroupState {
            group: name.to_owned(),
            state: "Ready",
            holder: None,
            until: None,
            attempts: 0,
            blocked: false,
            dead_letter_offset: None,
        };
        match ledger.get(queue, offset) {
            Some(lease) => {
                state.attempts = lease.attempts;
                state.blocked = lease.is_deferred();
                if lease.is_live(self.now()) {
                    state.state = if lease.is_given_back() { "WaitingRetry" } else { "Inflight" };
                    state.until = Some(lease.deadline_ms());
                    state.holder = self.holders.name(lease.holder).map(|name| name.to_string());
                }
            }
            None if ledger.next(queue).is_some_and(|next| offset < next) => state.state = "Commit",
            None => {}
        }
        Some(state)
    }

    /// The offset of the newest letter with this id among the first that died since the message was stored.
    async fn dead_letter_of(&self, group: &str, id: &str, since_ms: i64) -> Result<Option<u64>, BrokerError> {
        let name = dlq_topic(group);
        if self.catalog.topic(&name).is_none() {
            return Ok(None);
        }
        let query =
            Query { topic: name, wanted: Wanted::Id(id.to_owned()), since_ms, until_ms: i64::MAX - 1, max: usize::MAX };
        let found = self.search(&query, limits::QUERY_LETTERS_MAX).await?;
        Ok(found.matches.iter().map(|found| found.entry.offset).max())
    }
}
