//! Ending transactions, and telling brokers whose producers are here, so that they can ask.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use tokio::time::Instant;
use waybill_protocol::{
    message::sys_flag,
    remoting::{
        Command, EndTransactionRequestHeader, HeartbeatData, ProducerData, TopicConfig,
        codes::{request, response},
    },
    transaction::TransactionId,
};

use super::{
    error::{BackendError, Subject, from_response},
    from_brokers::OnRequest,
    service::{MessageService, Unanswered},
};
use crate::limits;

/// What a producer says about a transaction.
#[derive(Clone, Debug)]
pub struct EndTransaction {
    /// The transaction.
    pub id: TransactionId,
    /// The id the producer gave the message.
    pub message_id: String,
    /// Whether the message is to be delivered; otherwise it never is.
    pub commit: bool,
    /// Whether the broker had asked.
    pub from_check: bool,
    /// How long to wait for the broker.
    pub timeout: Duration,
}

impl MessageService {
    /// Ends a transaction. The same end once more does no harm.
    ///
    /// # Errors
    /// `TooLate` if it was ended otherwise before, `MessageNotFound` if there is no such transaction, `UnknownBroker`, and the temporary
    /// ones.
    pub async fn end_transaction(&self, end: EndTransaction) -> Result<(), BackendError> {
        let EndTransaction { id, message_id, commit, from_check, timeout } = end;
        let header = EndTransactionRequestHeader {
            topic: Some(id.topic.clone()),
            producer_group: id.topic.clone(),
            tran_state_table_offset: id.tran_state_table_offset,
            commit_log_offset: id.commit_log_offset,
            commit_or_rollback: if commit { sys_flag::TRANSACTION_COMMIT } else { sys_flag::TRANSACTION_ROLLBACK },
            from_transaction_check: Some(from_check),
            msg_id: message_id.clone(),
            transaction_id: Some(message_id),
            broker_name: Some(id.broker_name.clone()),
        };
        let command = Command::request(request::END_TRANSACTION).with_header(&header);
        let answer =
            self.ask(&id.broker_name, &id.topic, command, timeout).await.map_err(|Unanswered { error, .. }| error)?;
        let remark = || answer.remark.clone().unwrap_or_default();
        match answer.code {
            response::SUCCESS => Ok(()),
            response::ILLEGAL_OPERATION => Err(BackendError::TooLate(remark())),
            response::QUERY_NOT_FOUND => Err(BackendError::MessageNotFound(remark())),
            _ => Err(from_response(&answer, Subject::topic(&id.topic))),
        }
    }

    /// From now on requests that brokers send by themselves are given to `take`.
    pub fn on_request(&self, take: OnRequest) {
        self.inner.transport.on_request(take);
    }

    /// The name of the broker at this address, if a route has named it.
    pub fn broker_at(&self, address: &str) -> Option<String> {
        self.inner.routes.broker_at(address)
    }

    /// Whether messages of transactions may be sent to a topic, as far as that can be said.
    async fn takes_transactions(&self, topic: &str) -> bool {
        let kind = |config: &TopicConfig| {
            let kind = config.attributes.get("message.type").map(String::as_str);
            matches!(kind, Some("TRANSACTION" | "MIXED"))
        };
        !self.inner.config.get().enable_topic_message_type_check
            || self.topic_config(topic).await.is_ok_and(|config| kind(&config))
    }
}

/// What one broker was told last.
struct Told {
    topics: BTreeSet<String>,
    /// The number of the connection: over another one it is told again.
    connection: u64,
    at: Instant,
}

/// Tells brokers to whose topics producers of this sidecar send, by heartbeats as Apache's proxy sends them: the topic is the producer
/// group. Brokers then ask here what became of transactions.
pub struct Announcer {
    messages: MessageService,
    client_id: String,
    told: BTreeMap<String, Told>,
}

impl Announcer {
    /// One for this process, that has told nobody anything.
    #[must_use]
    pub fn new(messages: MessageService) -> Self {
        let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "sidecar".to_owned());
        let random = RandomState::new().hash_one(&host);
        let client_id = format!("waybill-producers-{host}@{}@{random:016x}", std::process::id());
        Self { messages, client_id, told: BTreeMap::new() }
    }

    /// There are producers of these topics, and of no others. Brokers to which that is news are told, the others now and then.
    pub async fn announce(&mut self, topics: BTreeSet<String>) {
        let mut wanted: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for topic in topics {
            if !self.messages.takes_transactions(&topic).await {
                continue;
            }
            let Ok(route) = self.messages.route(&topic).await else { continue };
            for queue in route.write_queues() {
                wanted.entry(queue.broker_name.clone()).or_default().insert(topic.clone());
            }
        }
        for broker in self.told.keys() {
            wanted.entry(broker.clone()).or_default();
        }
        for (broker, topics) in wanted {
            let connection = self.connection(&broker).await;
            let known = self.told.get(&broker).is_some_and(|told| {
                told.topics == topics && told.connection == connection && told.at.elapsed() < limits::ANNOUNCE_PERIOD
            });
            if known || !self.tell(&broker, &topics).await {
                continue;
            }
            if topics.is_empty() {
                self.told.remove(&broker);
            } else {
                // The connection may have been made for it.
                let connection = self.connection(&broker).await;
                self.told.insert(broker, Told { topics, connection, at: Instant::now() });
            }
        }
    }

    async fn connection(&self, broker: &str) -> u64 {
        let inner = &self.messages.inner;
        inner.routes.broker(broker).await.map_or(0, |address| inner.transport.connection(&address))
    }

    /// As many heartbeats as needed, each under a name of its own, for a heartbeat replaces the one before.
    async fn tell(&self, broker: &str, topics: &BTreeSet<String>) -> bool {
        let before = self.told.get(broker).map_or(0, |told| told.topics.len());
        let topics: Vec<&String> = topics.iter().collect();
        for part in 0..before.max(topics.len()).div_ceil(limits::TOPICS_PER_ANNOUNCEMENT) {
            let groups = topics.chunks(limits::TOPICS_PER_ANNOUNCEMENT).nth(part).unwrap_or_default();
            let beat = HeartbeatData {
                client_id: format!("{}-{part}", self.client_id),
                producer_data_set: groups.iter().map(|topic| ProducerData { group_name: (*topic).clone() }).collect(),
                ..HeartbeatData::default()
            };
            let command = Command::request(request::HEART_BEAT).with_json(&beat);
            match self.messages.ask(broker, "", command, self.messages.request_timeout()).await {
                Ok(answer) if answer.code == response::SUCCESS => {}
                Ok(answer) => {
                    tracing::warn!(broker, code = answer.code, remark = answer.remark, "the broker takes no producers");
                    return false;
                }
                Err(Unanswered { error, .. }) => {
                    tracing::debug!(broker, %error, "the broker did not hear which producers are here");
                    return false;
                }
            }
        }
        true
    }
}
