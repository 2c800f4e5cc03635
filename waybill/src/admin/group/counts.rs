//! What a group has before it, for `waybill group describe`.

use serde::{Deserialize, Serialize};
use waybill_protocol::remoting::Command as Remoting;
use waybill_protocol::remoting::codes::{own, response};

use crate::admin::Broker;
use crate::exit::Failure;
use crate::output;

/// Messages of one topic that are not done, by state. Ready, in flight, waiting for a retry and blocked are all of the lag.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct OfTopic {
    topic: String,
    lag: u64,
    ready: u64,
    in_flight: u64,
    waiting_retry: u64,
    blocked: u64,
    delayed: u64,
    /// Filters that members use at the same time, if they are not alike.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    differing_filters: Vec<String>,
}

/// What a group has before it.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Counts {
    /// Messages that the group gave up on and that were not redriven.
    pub(super) dead_letters: u64,
    /// Lists of topics that members subscribe to at the same time, if they are not alike.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    differing_topics: Vec<String>,
    /// By topic that it reads.
    pub(super) topics: Vec<OfTopic>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Answer {
    groups: Vec<Counts>,
}

impl Counts {
    pub(super) fn text(&self) -> String {
        let rows = self.topics.iter().map(|of| {
            let numbers = [of.lag, of.ready, of.in_flight, of.waiting_retry, of.blocked, of.delayed];
            let [lag, ready, in_flight, waiting, blocked, delayed] = numbers.map(|number| number.to_string());
            [of.topic.clone(), lag, ready, in_flight, waiting, blocked, delayed]
        });
        let heading = ["TOPIC", "LAG", "READY", "IN FLIGHT", "WAITING RETRY", "BLOCKED", "DELAYED"];
        let topics = match self.topics.is_empty() {
            true => "it reads no topic yet\n".to_owned(),
            false => output::table(heading, rows),
        };
        let differing = self.topics.iter().filter(|of| !of.differing_filters.is_empty()).map(|of| {
            let filters = of.differing_filters.join(", ");
            format!("\nmembers ask for {} with different filters, so that each misses what another passes over: {filters}\n", of.topic)
        });
        let lists = match self.differing_topics.as_slice() {
            [] => String::new(),
            lists => format!(
                "\nmembers subscribe to different topics, so that not all work on each: {}\n",
                lists.join(" / ")
            ),
        };
        format!("dead letters: {}\n\n{topics}{}{lists}", self.dead_letters, differing.collect::<String>())
    }
}

impl Broker {
    /// What a group has before it; none from a broker that does not tell.
    pub(super) async fn counts(&self, group: &str) -> Result<Option<Counts>, Failure> {
        let mut question = Remoting::request(own::COUNT_MESSAGES);
        question.ext.set("consumerGroup", group);
        let answer = self.ask(question).await?;
        match answer.code {
            response::SUCCESS => {}
            response::REQUEST_CODE_NOT_SUPPORTED => return Ok(None),
            _refused => return Err(self.refused(&answer)),
        }
        let answer: Answer = serde_json::from_slice(&answer.body)
            .map_err(|error| Failure::failed(format!("the broker's answer cannot be read: {error}")))?;
        Ok(answer.groups.into_iter().next())
    }
}
