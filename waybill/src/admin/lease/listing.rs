//! Asking a broker who holds what.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use waybill_protocol::remoting::Command as Remoting;
use waybill_protocol::remoting::codes::{own, response};

use super::Filters;
use crate::admin::Broker;
use crate::exit::Failure;

/// What the broker answers. Moments in milliseconds since the Unix epoch.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Leases {
    pub(super) leases: Vec<Lease>,
    /// There are more behind the last one.
    pub(super) truncated: bool,
    /// When this was so.
    pub(super) now: i64,
    pub(super) broker_name: String,
    /// What one batch request may have.
    pub(super) batch_max_entries: usize,
    /// Holders that are watched: when somebody last vouched for them.
    pub(super) watched: BTreeMap<String, i64>,
    /// The groups of the leases.
    pub(super) groups: BTreeMap<String, OfGroup>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct OfGroup {
    pub(super) consume_timeout_minutes: i64,
    /// The group's own renewal switch, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) renew: Option<bool>,
    /// Its own invisible duration at the receive of messages that are renewed, milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) invisible_time: Option<i64>,
    /// Its own limit of the leases of one request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) batch_max: Option<u64>,
}

/// Times in milliseconds, moments since the Unix epoch.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Lease {
    pub(super) group: String,
    pub(super) topic: String,
    pub(super) queue_id: i32,
    pub(super) offset: i64,
    /// The client that holds it; empty if not known.
    pub(super) holder: String,
    pub(super) pop_time: i64,
    pub(super) invisible_time: i64,
    pub(super) deadline: i64,
    /// Deliveries so far, this one included.
    pub(super) attempts: i64,
    /// How often its end was moved.
    pub(super) changes: i64,
    /// So many of these were renewals by a sidecar that said so; 255 = 255 or more.
    pub(super) renewals: i64,
    /// On whose behalf it was moved last: a word of `ChangedBy`; nothing if nobody said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) changed_by: Option<String>,
}

impl Broker {
    /// The leases that are wanted, as many as the broker gives at once; those behind `after` if there is one.
    pub(super) async fn leases(&self, filters: &Filters, after: Option<&Lease>) -> Result<Leases, Failure> {
        let mut question = Remoting::request(own::LIST_LEASES);
        let ext = &mut question.ext;
        for (name, text) in
            [("consumerGroup", &filters.group), ("topic", &filters.topic), ("clientId", &filters.client)]
        {
            if let Some(text) = text {
                ext.set(name, text);
            }
        }
        if let Some(queue) = filters.queue {
            ext.set_number("queueId", queue);
        }
        if let Some(offset) = filters.offset {
            ext.set_number("offset", offset);
        }
        if let Some(after) = after {
            ext.set("afterGroup", &after.group);
            ext.set("afterTopic", &after.topic);
            ext.set_number("afterQueueId", after.queue_id);
            ext.set_number("afterOffset", after.offset);
        }
        let answer = self.ask(question).await?;
        if answer.code == response::REQUEST_CODE_NOT_SUPPORTED {
            return Err(Failure::failed("this broker does not list leases: only Waybill's brokers do"));
        }
        if answer.code != response::SUCCESS {
            return Err(self.refused(&answer));
        }
        serde_json::from_slice(&answer.body)
            .map_err(|error| Failure::failed(format!("the broker's answer cannot be read: {error}")))
    }
}
