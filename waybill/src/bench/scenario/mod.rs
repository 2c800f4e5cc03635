//! What is measured, one file each.

pub(crate) mod age;
pub(crate) mod change;
pub(crate) mod delay;
pub(crate) mod disconnect;
pub(crate) mod e2e;
pub(crate) mod fifo;
pub(crate) mod idle;
pub(crate) mod latency;
pub(crate) mod leases;
pub(crate) mod receive_ack;
pub(crate) mod redeliver;
pub(crate) mod send;

use std::time::Duration;

use futures::future::try_join_all;
use parking_lot::Mutex;
use waybill_protocol::grpc::v2;

use super::clients::Clients;
use super::options::Load;
use crate::exit::Failure;
use crate::grpc::Receive;

/// Receives under way at once while a measurement is prepared.
const RECEIVES_AT_ONCE: usize = 8;
/// Receives without a message before the topic is held to be empty.
const EMPTY_RECEIVES_MAX: usize = 5;

/// Reads calls a second.
fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate.is_finite() && (0.001..=1_000_000.0).contains(&rate) => Ok(rate),
        _other => Err(format!("\"{text}\" is no rate: write messages a second, such as 300")),
    }
}

/// How the clients of a measurement receive: whatever the topic has, as many as one receive may bring.
fn everything(load: &Load, invisible: Duration, renew: bool) -> Receive {
    Receive {
        topic: load.topic.clone(),
        group: load.group.clone(),
        tags: "*".to_owned(),
        max: 32,
        invisible,
        wait: Duration::from_secs(5),
        renew,
    }
}

/// (message id, receipt handle) of each message.
fn deliveries(messages: Vec<v2::Message>) -> Vec<(String, String)> {
    let system = messages.into_iter().filter_map(|message| message.system_properties);
    system.map(|system| (system.message_id, system.receipt_handle.unwrap_or_default())).collect()
}

/// Receives, all clients at once, until so many messages are out.
async fn hold(consumers: &Clients, what: &Receive, count: usize) -> Result<Vec<(String, String)>, Failure> {
    let (held, mut empty) = (Mutex::new(Vec::new()), 0);
    while held.lock().len() < count && empty < EMPTY_RECEIVES_MAX {
        let before = held.lock().len();
        let receives = (count - before).div_ceil(what.max.max(1) as usize).min(RECEIVES_AT_ONCE);
        try_join_all(consumers.dealt(receives).map(async |client| {
            let received = deliveries(client.receive(what).await?);
            held.lock().extend(received);
            Ok::<(), Failure>(())
        }))
        .await?;
        empty = if held.lock().len() == before { empty + 1 } else { 0 };
    }
    let held = held.into_inner();
    if held.len() < count {
        return Err(Failure::failed(format!("sent {count} messages, but could receive only {}", held.len())));
    }
    Ok(held)
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
