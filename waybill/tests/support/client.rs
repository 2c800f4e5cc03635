//! A client of the sidecar over gRPC.

use futures::{StreamExt, stream};
use tonic::transport::Channel;
use waybill_protocol::grpc::v2;
use waybill_protocol::grpc::v2::messaging_service_client::MessagingServiceClient;
use waybill_protocol::grpc::v2::receive_message_response::Content;

pub(crate) type Grpc = MessagingServiceClient<Channel>;

/// A request with the metadata of client `id`.
pub(crate) fn signed<Q>(id: &str, message: Q) -> tonic::Request<Q> {
    let mut request = tonic::Request::new(message);
    for (name, value) in [("x-mq-client-id", id), ("x-mq-client-version", "5.0.7"), ("grpc-timeout", "60S")] {
        request.metadata_mut().insert(name, value.parse().expect("a header value"));
    }
    request
}

pub(crate) fn resource(name: &str) -> Option<v2::Resource> {
    Some(v2::Resource { resource_namespace: String::new(), name: name.into() })
}

pub(crate) fn seconds(seconds: i64) -> Option<prost_types::Duration> {
    Some(prost_types::Duration { seconds, nanos: 0 })
}

/// Announces client `id`, a consumer of topic `t`; the stream must be kept.
pub(crate) async fn announce(
    grpc: &mut Grpc,
    id: &str,
    group: &str,
    kind: v2::ClientType,
) -> tonic::Streaming<v2::TelemetryCommand> {
    let expression = v2::FilterExpression { r#type: v2::FilterType::Tag.into(), expression: "*".into() };
    let entry = v2::SubscriptionEntry { topic: resource("t"), expression: Some(expression) };
    let subscription = v2::Subscription { group: resource(group), subscriptions: vec![entry], ..Default::default() };
    let settings = v2::Settings {
        client_type: Some(kind.into()),
        request_timeout: seconds(3),
        pub_sub: Some(v2::settings::PubSub::Subscription(subscription)),
        ..Default::default()
    };
    let command =
        v2::TelemetryCommand { status: None, command: Some(v2::telemetry_command::Command::Settings(settings)) };
    let outgoing = stream::once(std::future::ready(command)).chain(stream::pending());
    let mut answers = grpc.telemetry(signed(id, outgoing)).await.expect("a stream").into_inner();
    answers.message().await.expect("an answer").expect("settings");
    answers
}

/// The handles of what one receive brings.
pub(crate) async fn receive(mut grpc: Grpc, request: tonic::Request<v2::ReceiveMessageRequest>) -> Vec<String> {
    let mut answer = grpc.receive_message(request).await.expect("a stream").into_inner();
    let mut handles = Vec::new();
    while let Some(element) = answer.message().await.expect("an element") {
        if let Some(Content::Message(message)) = element.content {
            handles.push(message.system_properties.expect("properties").receipt_handle().to_owned());
        }
    }
    handles
}

/// Acknowledges messages of topic `t` with one request.
pub(crate) async fn ack(grpc: &mut Grpc, id: &str, group: &str, handles: &[String]) -> v2::AckMessageResponse {
    let entry = |handle: &String| v2::AckMessageEntry {
        message_id: "id".into(),
        receipt_handle: handle.clone(),
        ..Default::default()
    };
    let entries = handles.iter().map(entry).collect();
    let request = v2::AckMessageRequest { group: resource(group), topic: resource("t"), entries };
    grpc.ack_message(signed(id, request)).await.expect("an answer").into_inner()
}
