//! Speaking for the clients of this sidecar at every broker.

use std::hash::{BuildHasher, RandomState};

use async_trait::async_trait;
use futures::future::join_all;
use tokio::time::timeout;
use waybill_protocol::remoting::{
    Command, JsonBody, VouchAnswer, VouchBody,
    codes::{own, response},
};

use super::{peers::Feature, service::MessageService};
use crate::limits;
use crate::session::{Heard, Vouch, Words};

/// Vouches for clients under the name of this process.
pub struct Voucher {
    messages: MessageService,
    sidecar_id: String,
}

impl Voucher {
    /// One for this process; its name is another one after a restart.
    #[must_use]
    pub fn new(messages: MessageService) -> Self {
        let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "sidecar".to_owned());
        let random = RandomState::new().hash_one(&host);
        Self { messages, sidecar_id: format!("{host}@{}@{random:016x}", std::process::id()) }
    }

    /// What the broker answered; nothing if it knows nothing.
    ///
    /// # Errors
    /// It did not answer.
    async fn tell(&self, broker: &str, body: &VouchBody) -> Result<Option<VouchAnswer>, ()> {
        let request = Command::request(own::VOUCH_FOR_CLIENTS).with_json(body);
        let timeout = self.messages.request_timeout().min(limits::VOUCH_TIMEOUT);
        match self.messages.ask(broker, "", request, timeout).await {
            Ok(answer) if answer.code == response::SUCCESS => Ok(VouchAnswer::from_json(&answer.body).ok()),
            Ok(answer) if answer.code == response::REQUEST_CODE_NOT_SUPPORTED => {
                self.messages.does_not_watch(broker);
                Ok(None)
            }
            Ok(answer) => {
                tracing::warn!(
                    broker,
                    code = answer.code,
                    remark = answer.remark,
                    "the broker does not take a word for clients"
                );
                Ok(None)
            }
            Err(unanswered) => {
                tracing::debug!(broker, error = %unanswered.error, "the broker did not hear who is alive");
                Err(())
            }
        }
    }
}

impl MessageService {
    /// Brokers that may watch clients. One that no route has named so far may hold leases from before this sidecar started,
    /// so all brokers are asked for; but not for so long that those who are known take their clients for gone.
    async fn watching_brokers(&self) -> Vec<String> {
        let mut brokers = match timeout(limits::VOUCH_LOOKUP, self.inner.routes.cluster()).await {
            Ok(Ok(cluster)) => cluster.brokers.iter().map(|broker| broker.broker_name.clone()).collect(),
            Ok(Err(_)) | Err(_) => self.inner.routes.known_brokers(),
        };
        brokers.retain(|broker| self.most(broker, Feature::HolderLiveness) > 0);
        brokers
    }

    fn does_not_watch(&self, broker: &str) {
        if self.learn_most(broker, Feature::HolderLiveness, 0) {
            tracing::info!(broker, "the broker does not watch clients: leases of dead ones run to their end there");
        }
    }
}

#[async_trait]
impl Vouch for Voucher {
    async fn vouch(&self, words: Words) -> Heard {
        let brokers = self.messages.watching_brokers().await;
        let bodies = bodies(&self.sidecar_id, words);
        let questions = brokers.iter().flat_map(|broker| bodies.iter().map(move |body| (broker, body)));
        let answers = questions.map(|(broker, body)| async move { (broker, self.tell(broker, body).await) });
        let mut heard = Heard::default();
        for (broker, answer) in join_all(answers).await {
            let Ok(answer) = answer else {
                if !heard.silent.iter().any(|silent| **silent == **broker) {
                    heard.silent.push(broker.as_str().into());
                }
                continue;
            };
            let Some(answer) = answer else { continue };
            heard.elsewhere.extend(answer.elsewhere);
            if answer.client_gone_after > 0 {
                let least = heard.gone_after_ms.map_or(answer.client_gone_after, |ms| ms.min(answer.client_gone_after));
                heard.gone_after_ms = Some(least);
            }
        }
        heard
    }
}

/// As many requests as needed, none of which names too many.
fn bodies(sidecar_id: &str, words: Words) -> Vec<VouchBody> {
    let mut bodies = Vec::new();
    type Place = fn(&mut VouchBody) -> &mut Vec<String>;
    let lists: [(Vec<String>, Place); 3] = [
        (words.alive, |body| &mut body.alive),
        (words.gone, |body| &mut body.gone),
        (words.left, |body| &mut body.left),
    ];
    for (list, place) in lists {
        for part in list.chunks(limits::CLIENTS_PER_VOUCH) {
            let mut body = VouchBody { sidecar_id: sidecar_id.to_owned(), ..VouchBody::default() };
            *place(&mut body) = part.to_vec();
            bodies.push(body);
        }
    }
    bodies
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_request_names_more_than_a_broker_takes() {
        let names = |count: usize| (0..count).map(|n| n.to_string()).collect::<Vec<_>>();
        let words = Words { alive: names(2 * limits::CLIENTS_PER_VOUCH + 1), gone: names(3), left: Vec::new() };
        let bodies = bodies("s", words);
        let sizes: Vec<_> = bodies.iter().map(|body| (body.alive.len(), body.gone.len(), body.left.len())).collect();
        let most = limits::CLIENTS_PER_VOUCH;
        assert_eq!(sizes, [(most, 0, 0), (most, 0, 0), (1, 0, 0), (0, 3, 0)]);
    }
}
