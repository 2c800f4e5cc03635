//! A small gRPC client of `apache.rocketmq.v2`, for messages by hand and for the load generator.

mod error;
mod identity;
mod session;

use std::net::IpAddr;
use std::time::Duration;

use futures::StreamExt;
use tonic::transport::{Channel, Endpoint};
use waybill_protocol::grpc::v2;
use waybill_protocol::grpc::v2::messaging_service_client::MessagingServiceClient;

pub(crate) use error::CallError;
pub(crate) use identity::{Identity, MessageIds};
pub(crate) use session::Session;

use crate::exit::Failure;
use crate::peer::Protocol;

/// How long a call may take, long polls aside.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for the answer on top of the wait that a long poll asks for.
const POLL_RESERVE: Duration = Duration::from_secs(5);
/// HTTP/2 windows wide enough for a receive of 32 large messages.
const STREAM_WINDOW: u32 = 4 * 1024 * 1024;
const CONNECTION_WINDOW: u32 = 16 * 1024 * 1024;
/// Larger than any message the server may send.
const MESSAGE_BYTES_MAX: usize = 256 * 1024 * 1024;

/// One connection to an endpoint, used under one client id.
#[derive(Clone)]
pub(crate) struct Client {
    stub: MessagingServiceClient<Channel>,
    identity: Identity,
    /// Where this client connected to, as requests for routes tell it.
    endpoints: v2::Endpoints,
}

/// What to receive.
#[derive(Debug, Clone)]
pub(crate) struct Receive {
    pub(crate) topic: String,
    pub(crate) group: String,
    /// Tags separated by `||`, or `*`.
    pub(crate) tags: String,
    pub(crate) max: i32,
    pub(crate) invisible: Duration,
    /// How long to wait for the first message.
    pub(crate) wait: Duration,
    /// Whether the sidecar shall keep the messages invisible for as long as this client is there.
    pub(crate) renew: bool,
}

impl Client {
    /// Connects to `host:port`, in plain text.
    pub(crate) async fn connect(endpoint: &str, identity: Identity) -> Result<Self, Failure> {
        let wrong = |error: tonic::transport::Error| Failure::usage(format!("\"{endpoint}\" is no endpoint: {error}"));
        let channel = Endpoint::from_shared(format!("http://{endpoint}"))
            .map_err(wrong)?
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .connect()
            .await
            .map_err(|error| {
                Failure::unavailable(format!("nobody answers at {endpoint}: {}", error::root(&error)))
                    .hint("is the server running there? `waybill standalone` starts one; --endpoint names another")
                    .looking_for(endpoint, Protocol::Grpc)
            })?;
        let stub = MessagingServiceClient::new(channel)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        Ok(Self { stub, identity, endpoints: endpoints(endpoint) })
    }

    fn request<T>(&self, body: T, timeout: Duration) -> tonic::Request<T> {
        let mut request = tonic::Request::new(body);
        self.identity.sign(request.metadata_mut());
        request.set_timeout(timeout);
        request
    }

    /// Asks where a topic lives, as every client does first. `TOPIC_NOT_FOUND` when it lives nowhere.
    pub(crate) async fn query_route(&self, topic: &str) -> Result<(), CallError> {
        let body = v2::QueryRouteRequest { topic: resource(topic), endpoints: Some(self.endpoints.clone()) };
        let answer = self.stub.clone().query_route(self.request(body, CALL_TIMEOUT)).await?.into_inner();
        error::check(answer.status)
    }

    /// Sends messages of one topic; one result for each.
    pub(crate) async fn send(&self, messages: Vec<v2::Message>) -> Result<Vec<v2::SendResultEntry>, CallError> {
        let request = self.request(v2::SendMessageRequest { messages }, CALL_TIMEOUT);
        let answer = self.stub.clone().send_message(request).await?.into_inner();
        error::check(answer.status)?;
        for entry in &answer.entries {
            error::check(entry.status.clone())?;
        }
        Ok(answer.entries)
    }

    /// Takes a delayed message back; answers its id.
    pub(crate) async fn recall(&self, topic: &str, recall_handle: &str) -> Result<String, CallError> {
        let body = v2::RecallMessageRequest { topic: resource(topic), recall_handle: recall_handle.to_owned() };
        let answer = self.stub.clone().recall_message(self.request(body, CALL_TIMEOUT)).await?.into_inner();
        error::check(answer.status)?;
        Ok(answer.message_id)
    }

    /// Takes messages; none when there are none by the end of the wait.
    pub(crate) async fn receive(&self, what: &Receive) -> Result<Vec<v2::Message>, CallError> {
        self.receive_where(what, tags(&what.tags)).await
    }

    /// The same with another filter than the tags.
    pub(crate) async fn receive_where(
        &self,
        what: &Receive,
        filter: v2::FilterExpression,
    ) -> Result<Vec<v2::Message>, CallError> {
        let body = v2::ReceiveMessageRequest {
            group: resource(&what.group),
            message_queue: Some(v2::MessageQueue { topic: resource(&what.topic), ..Default::default() }),
            filter_expression: Some(filter),
            batch_size: what.max,
            invisible_duration: Some(proto_duration(what.invisible)),
            auto_renew: what.renew,
            long_polling_timeout: Some(proto_duration(what.wait)),
            attempt_id: None,
        };
        let request = self.request(body, what.wait + POLL_RESERVE);
        let mut stream = self.stub.clone().receive_message(request).await?.into_inner();
        let mut messages = Vec::new();
        while let Some(part) = stream.next().await {
            match part?.content {
                Some(v2::receive_message_response::Content::Status(status)) => match error::check(Some(status)) {
                    Err(error) if error.is(v2::Code::MessageNotFound) => {}
                    other => other?,
                },
                Some(v2::receive_message_response::Content::Message(message)) => messages.push(message),
                Some(v2::receive_message_response::Content::DeliveryTimestamp(_)) | None => {}
            }
        }
        Ok(messages)
    }

    /// Acknowledges deliveries, given as (message id, receipt handle); one result for each, in order.
    pub(crate) async fn ack(
        &self,
        topic: &str,
        group: &str,
        deliveries: Vec<(String, String)>,
    ) -> Result<Vec<Result<(), CallError>>, CallError> {
        let entries = deliveries
            .into_iter()
            .map(|(message_id, receipt_handle)| v2::AckMessageEntry { message_id, receipt_handle, lite_topic: None })
            .collect();
        let body = v2::AckMessageRequest { group: resource(group), topic: resource(topic), entries };
        let answer = self.stub.clone().ack_message(self.request(body, CALL_TIMEOUT)).await?.into_inner();
        if answer.entries.is_empty() {
            error::check(answer.status)?;
        }
        Ok(answer.entries.into_iter().map(|entry| error::check(entry.status)).collect())
    }

    /// Changes how long a delivery stays invisible, counted from now; returns the new receipt handle.
    pub(crate) async fn change(
        &self,
        topic: &str,
        group: &str,
        delivery: (String, String),
        invisible: Duration,
    ) -> Result<String, CallError> {
        let (message_id, receipt_handle) = delivery;
        let body = v2::ChangeInvisibleDurationRequest {
            group: resource(group),
            topic: resource(topic),
            receipt_handle,
            invisible_duration: Some(proto_duration(invisible)),
            message_id,
            ..Default::default()
        };
        let request = self.request(body, CALL_TIMEOUT);
        let answer = self.stub.clone().change_invisible_duration(request).await?.into_inner();
        error::check(answer.status)?;
        Ok(answer.receipt_handle)
    }
}

/// `host:port` in the form of the interface.
fn endpoints(endpoint: &str) -> v2::Endpoints {
    let (host, port) = endpoint.rsplit_once(':').unwrap_or((endpoint, "80"));
    let host = host.trim_matches(['[', ']']);
    let scheme = match host.parse() {
        Ok(IpAddr::V4(_)) => v2::AddressScheme::IPv4,
        Ok(IpAddr::V6(_)) => v2::AddressScheme::IPv6,
        Err(_no_address) => v2::AddressScheme::DomainName,
    };
    let address = v2::Address { host: host.to_owned(), port: port.parse().unwrap_or(80) };
    v2::Endpoints { scheme: scheme.into(), addresses: vec![address] }
}

/// Messages with one of these tags, separated by `||`; `*` is all.
pub(crate) fn tags(expression: &str) -> v2::FilterExpression {
    v2::FilterExpression { r#type: v2::FilterType::Tag.into(), expression: expression.to_owned() }
}

/// Messages whose properties meet an SQL92 condition.
pub(crate) fn sql(condition: &str) -> v2::FilterExpression {
    v2::FilterExpression { r#type: v2::FilterType::Sql.into(), expression: condition.to_owned() }
}

/// A name in the default namespace.
pub(crate) fn resource(name: &str) -> Option<v2::Resource> {
    Some(v2::Resource { resource_namespace: String::new(), name: name.to_owned() })
}

/// A duration on the wire.
pub(crate) fn proto_duration(duration: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(duration.subsec_nanos()).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_tell_what_kind_of_address_they_are() {
        let told = |text| {
            let v2::Endpoints { scheme, addresses } = endpoints(text);
            let scheme = v2::AddressScheme::try_from(scheme).expect("known");
            (scheme, addresses.into_iter().map(|address| (address.host, address.port)).collect::<Vec<_>>())
        };
        assert_eq!(told("127.0.0.1:81"), (v2::AddressScheme::IPv4, vec![("127.0.0.1".into(), 81)]));
        assert_eq!(told("[::1]:81"), (v2::AddressScheme::IPv6, vec![("::1".into(), 81)]));
        assert_eq!(told("waybill.example:81"), (v2::AddressScheme::DomainName, vec![("waybill.example".into(), 81)]));
    }
}
