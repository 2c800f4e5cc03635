//! Messages to send, and topics filled before they are read.

use std::sync::Arc;

use bytes::Bytes;
use waybill_ops::clock;
use waybill_protocol::grpc::v2;

use super::clients::Clients;
use super::options::Options;
use crate::exit::Failure;
use crate::grpc::{MessageIds, resource};
use crate::output::{self, Format};

/// Makes messages that differ in their ids only.
pub(crate) struct Messages {
    ids: MessageIds,
    topic: Option<v2::Resource>,
    body: Bytes,
}

impl Messages {
    /// Bodies hold text that does not compress to nothing and does not need random numbers.
    pub(crate) fn new(options: &Options) -> Self {
        let body: Vec<u8> =
            (0..options.load.size).map(|at| b'a' + ((at.wrapping_mul(2_654_435_761) >> 24) % 26) as u8).collect();
        Self { ids: MessageIds::new(), topic: resource(&options.load.topic), body: body.into() }
    }

    pub(crate) fn next(&self) -> v2::Message {
        self.with_property(None)
    }

    /// A message with one property of its own.
    pub(crate) fn with_property(&self, property: Option<(&str, String)>) -> v2::Message {
        let now_ms = clock::now_ms();
        v2::Message {
            topic: self.topic.clone(),
            user_properties: property.map(|(key, value)| (key.to_owned(), value)).into_iter().collect(),
            system_properties: Some(v2::SystemProperties {
                message_id: self.ids.next(),
                body_encoding: v2::Encoding::Identity.into(),
                message_type: v2::MessageType::Normal.into(),
                born_timestamp: Some(prost_types::Timestamp {
                    seconds: now_ms / 1000,
                    nanos: ((now_ms % 1000) * 1_000_000) as i32,
                }),
                ..Default::default()
            }),
            body: self.body.clone(),
        }
    }
}

/// Sends `count` messages, as fast as the options allow. The first error ends it.
pub(crate) async fn fill(options: &Options, count: u64, format: Format) -> Result<(), Failure> {
    output::progress(format, &format!("sending {count} messages to be received …"));
    let producers = Clients::producers(options).await?;
    let messages = Arc::new(Messages::new(options));
    let left = Arc::new(std::sync::atomic::AtomicI64::new(i64::try_from(count).unwrap_or(i64::MAX)));
    let mut workers = tokio::task::JoinSet::new();
    for client in producers.dealt(options.load.in_flight as usize) {
        let (messages, left) = (messages.clone(), left.clone());
        workers.spawn(async move {
            while left.fetch_sub(1, std::sync::atomic::Ordering::Relaxed) > 0 {
                client.send(vec![messages.next()]).await?;
            }
            Ok::<(), Failure>(())
        });
    }
    while let Some(ended) = workers.join_next().await {
        ended.map_err(|error| Failure::failed(format!("a worker ended early: {error}")))??;
    }
    producers.close().await;
    Ok(())
}
