//! What is measured, one file each.

pub(crate) mod change;
pub(crate) mod e2e;
pub(crate) mod idle;
pub(crate) mod receive_ack;
pub(crate) mod send;

use waybill_protocol::grpc::v2;

use super::clients::Clients;
use crate::exit::Failure;
use crate::grpc::Receive;

/// Reads calls a second.
fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate.is_finite() && (0.001..=1_000_000.0).contains(&rate) => Ok(rate),
        _other => Err(format!("\"{text}\" is no rate: write messages a second, such as 300")),
    }
}

/// (message id, receipt handle) of each message.
fn deliveries(messages: Vec<v2::Message>) -> Vec<(String, String)> {
    let system = messages.into_iter().filter_map(|message| message.system_properties);
    system.map(|system| (system.message_id, system.receipt_handle.unwrap_or_default())).collect()
}

/// Receives once and acknowledges what comes, until nothing comes: the group exists then, and the topic is empty.
///
/// A topic that is full of other messages is left as it is after a while, so that this ends.
async fn settle(consumers: &Clients, what: &Receive) -> Result<(), Failure> {
    const RECEIVES_MAX: usize = 10_000;
    let Some(client) = consumers.for_worker(0) else { return Ok(()) };
    for _receive in 0..RECEIVES_MAX {
        let deliveries = deliveries(client.receive(what).await?);
        if deliveries.is_empty() {
            return Ok(());
        }
        client.ack(&what.topic, &what.group, deliveries).await?;
    }
    Err(Failure::failed(format!("the topic {} holds too many messages of others", what.topic))
        .hint("--topic with a name that nobody else uses"))
}
