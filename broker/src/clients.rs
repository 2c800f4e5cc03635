//! Clients that announced themselves by HEART_BEAT: who consumes and produces in which group. Pure: it is given the time.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::error::BrokerError;
use crate::limits;
use crate::server::Channel;

/// How a client speaks to the broker, and is spoken to.
#[derive(Debug, Clone)]
pub(crate) struct Way {
    /// The number of the connection.
    pub(crate) connection: u64,
    /// The way back.
    pub(crate) channel: Channel,
}

#[derive(Debug)]
struct Client {
    way: Way,
    last_heartbeat_ms: i64,
    consumer_groups: BTreeSet<String>,
    producer_groups: BTreeSet<String>,
}

/// The clients known to this broker.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    clients: HashMap<String, Client>,
    consumers: BTreeMap<String, BTreeSet<String>>,
    producers: BTreeMap<String, BTreeSet<String>>,
}

impl Clients {
    /// Takes a heartbeat; what it names replaces what the client named before.
    ///
    /// # Errors
    /// No client id, too many clients, too many groups.
    pub(crate) fn heartbeat(
        &mut self,
        now_ms: i64,
        way: Way,
        client_id: &str,
        consumer_groups: BTreeSet<String>,
        producer_groups: BTreeSet<String>,
    ) -> Result<(), BrokerError> {
        if client_id.is_empty() {
            return Err(BrokerError::InvalidParameter("clientID is empty".into()));
        }
        if consumer_groups.len() + producer_groups.len() > limits::GROUPS_PER_CLIENT_MAX {
            return Err(BrokerError::InvalidParameter(format!(
                "client {client_id} names more than {} groups",
                limits::GROUPS_PER_CLIENT_MAX
            )));
        }
        if self.clients.len() >= limits::CLIENTS_MAX && !self.clients.contains_key(client_id) {
            return Err(BrokerError::Busy(format!(
                "{} clients are registered, no more are taken",
                limits::CLIENTS_MAX
            )));
        }
        self.unlink(client_id);
        for group in &consumer_groups {
            self.consumers.entry(group.clone()).or_default().insert(client_id.to_owned());
        }
        for group in &producer_groups {
            self.producers.entry(group.clone()).or_default().insert(client_id.to_owned());
        }
        let client = Client { way, last_heartbeat_ms: now_ms, consumer_groups, producer_groups };
        self.clients.insert(client_id.to_owned(), client);
        Ok(())
    }

    /// Takes a client out of one consumer group and one producer group; with neither left it is forgotten.
    pub(crate) fn unregister(&mut self, client_id: &str, consumer_group: Option<&str>, producer_group: Option<&str>) {
        let Some(client) = self.clients.get_mut(client_id) else { return };
        if let Some(group) = consumer_group {
            client.consumer_groups.remove(group);
            remove_member(&mut self.consumers, group, client_id);
        }
        if let Some(group) = producer_group {
            client.producer_groups.remove(group);
            remove_member(&mut self.producers, group, client_id);
        }
        if client.consumer_groups.is_empty() && client.producer_groups.is_empty() {
            self.clients.remove(client_id);
        }
    }

    /// A connection is closed: forgets the clients that last spoke through it.
    pub(crate) fn connection_closed(&mut self, connection: u64) {
        self.forget(|client| client.way.connection == connection);
    }

    /// Forgets clients that sent no heartbeat for `expiry_ms`.
    pub(crate) fn expire(&mut self, now_ms: i64, expiry_ms: i64) {
        self.forget(|client| now_ms - client.last_heartbeat_ms > expiry_ms);
    }

    /// Client ids that consume in a group, in order.
    pub(crate) fn consumers(&self, group: &str) -> Vec<String> {
        self.consumers.get(group).map(|ids| ids.iter().cloned().collect()).unwrap_or_default()
    }

    /// The ways to those who produce in a group, in the order of their ids; not more than can be tried for one question.
    pub(crate) fn producers(&self, group: &str) -> Vec<Channel> {
        let ids = self.producers.get(group).into_iter().flatten().take(limits::PRODUCERS_TRIED);
        ids.filter_map(|id| self.clients.get(id)).map(|client| client.way.channel.clone()).collect()
    }

    fn forget(&mut self, gone: impl Fn(&Client) -> bool) {
        let ids: Vec<String> =
            self.clients.iter().filter(|(_, client)| gone(client)).map(|(id, _)| id.clone()).collect();
        for id in ids {
            self.unlink(&id);
            self.clients.remove(&id);
        }
    }

    fn unlink(&mut self, client_id: &str) {
        if let Some(client) = self.clients.get(client_id) {
            for group in &client.consumer_groups {
                remove_member(&mut self.consumers, group, client_id);
            }
            for group in &client.producer_groups {
                remove_member(&mut self.producers, group, client_id);
            }
        }
    }
}

fn remove_member(all: &mut BTreeMap<String, BTreeSet<String>>, group: &str, client_id: &str) {
    if let Some(members) = all.get_mut(group) {
        members.remove(client_id);
        if members.is_empty() {
            all.remove(group);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn by(connection: u64) -> Way {
        Way { connection, channel: Channel::none() }
    }

    #[test]
    fn a_heartbeat_replaces_what_the_client_named_before() {
        let mut clients = Clients::default();
        clients.heartbeat(0, by(1), "c", groups(&["a", "b"]), groups(&[])).expect("taken");
        clients.heartbeat(1, by(1), "c", groups(&["b"]), groups(&["p"])).expect("taken");
        assert!(clients.consumers("a").is_empty());
        assert_eq!(clients.consumers("b"), ["c"]);
        clients.unregister("c", Some("b"), None);
        assert!(clients.consumers("b").is_empty());
        assert_eq!((clients.clients.len(), clients.producers("p").len()), (1, 1), "it still produces");
        clients.unregister("c", None, Some("p"));
        assert!(clients.clients.is_empty() && clients.producers("p").is_empty());
    }

    #[test]
    fn silence_and_a_closed_connection_both_forget() {
        let mut clients = Clients::default();
        clients.heartbeat(0, by(1), "old", groups(&["g"]), groups(&[])).expect("taken");
        clients.heartbeat(100, by(2), "new", groups(&["g"]), groups(&[])).expect("taken");
        clients.expire(101, 100);
        assert_eq!(clients.consumers("g"), ["new"]);
        clients.connection_closed(1);
        assert_eq!(clients.consumers("g"), ["new"], "another connection's client stays");
        clients.connection_closed(2);
        assert!(clients.consumers("g").is_empty());
    }

    #[test]
    fn producers_are_found_by_their_groups_as_long_as_they_are_connected() {
        let mut clients = Clients::default();
        clients.heartbeat(0, by(1), "c", groups(&[]), groups(&["p", "q"])).expect("taken");
        clients.heartbeat(0, by(2), "d", groups(&[]), groups(&["q"])).expect("taken");
        let found = |clients: &Clients| ["p", "q", "r"].map(|group| clients.producers(group).len());
        assert_eq!(found(&clients), [1, 2, 0]);
        clients.heartbeat(1, by(1), "c", groups(&[]), groups(&["r"])).expect("taken");
        assert_eq!(found(&clients), [0, 1, 1]);
        clients.connection_closed(1);
        assert_eq!(found(&clients), [0, 1, 0]);
        clients.expire(1_000, 100);
        assert!(clients.producers.is_empty() && clients.clients.is_empty());
    }

    #[test]
    fn a_nameless_client_is_refused() {
        let mut clients = Clients::default();
        assert!(matches!(
            clients.heartbeat(0, by(1), "", groups(&[]), groups(&[])),
            Err(BrokerError::InvalidParameter(_))
        ));
    }
}
