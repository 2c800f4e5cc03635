//! A client of the sidecar over gRPC.

use futures::{StreamExt, stream};
use tonic::transport::Channel;
use waybill_protocol::grpc::v2;
use waybill_protocol::grpc::v2::messaging_service_client::MessagingServiceClient;
use waybill_protocol::grpc::v2::receive_message_response::Content;

/// A push consumer of topic `t`.
pub(crate) struct Client {
    id: &'static str,
    group: &'static str,
    grpc: MessagingServiceClient<Channel>,
    _telemetry: tonic::Streaming<v2::TelemetryCommand>,
}

fn signed<Q>(id: &str, message: Q) -> tonic::Request<Q> {
    let mut request = tonic::Request::new(message);
    for (name, value) in [("x-mq-client-id", id), ("x-mq-client-version", "5.0.7"), ("grpc-timeout", "60S")] {
        request.metadata_mut().insert(name, value.parse().expect("a header value"));
    }
    request
}

fn resource(name: &str) -> Option<v2::Resource> {
    Some(v2::Resource { resource_namespace: String::new(), name: name.into() })
}

fn seconds(seconds: i64) -> Option<prost_types::Duration> {
    Some(prost_types::Duration { seconds, nanos: 0 })
}

impl Client {
    pub(crate) async fn new(endpoint: &str, id: &'static str, group: &'static str) -> Self {
        let mut grpc = MessagingServiceClient::connect(endpoint.to_owned()).await.expect("a connection");
        let expression = v2::FilterExpression { r#type: v2::FilterType::Tag.into(), expression: "*".into() };
        let entry = v2::SubscriptionEntry { topic: resource("t"), expression: Some(expression) };
        let subscription =
            v2::Subscription { group: resource(group), subscriptions: vec![entry], ..Default::default() };
        let settings = v2::Settings {
            client_type: Some(v2::ClientType::PushConsumer.into()),
            request_timeout: seconds(3),
            pub_sub: Some(v2::settings::PubSub::Subscription(subscription)),
            ..Default::default()
        };
        let command =
            v2::TelemetryCommand { status: None, command: Some(v2::telemetry_command::Command::Settings(settings)) };
        let outgoing = stream::once(std::future::ready(command)).chain(stream::pending());
        let mut telemetry = grpc.telemetry(signed(id, outgoing)).await.expect("a stream").into_inner();
        telemetry.message().await.expect("an answer").expect("settings");
        Self { id, group, grpc, _telemetry: telemetry }
    }

    /// Another call at the same time.
    pub(crate) fn again(&self) -> MessagingServiceClient<Channel> {
        self.grpc.clone()
    }

    pub(crate) async fn send(&mut self, count: usize) {
        for number in 0..count {
            let system = v2::SystemProperties { message_id: format!("M{number}"), ..Default::default() };
            let message = v2::Message {
                topic: resource("t"),
                system_properties: Some(system),
                body: b"body".to_vec().into(),
                ..Default::default()
            };
            let request = signed(self.id, v2::SendMessageRequest { messages: vec![message] });
            let answer = self.grpc.send_message(request).await.expect("an answer").into_inner();
            assert_eq!(answer.status.map(|status| status.code()), Some(v2::Code::Ok));
        }
    }

    /// One receive with automatic renewal.
    pub(crate) fn receive_request(&self, batch_size: i32) -> tonic::Request<v2::ReceiveMessageRequest> {
        let message = v2::ReceiveMessageRequest {
            group: resource(self.group),
            message_queue: Some(v2::MessageQueue { topic: resource("t"), ..Default::default() }),
            batch_size,
            auto_renew: true,
            long_polling_timeout: seconds(5),
            ..Default::default()
        };
        signed(self.id, message)
    }

    /// The handles of so many messages.
    pub(crate) async fn receive(&mut self, wanted: usize) -> Vec<String> {
        let mut handles = Vec::new();
        while handles.len() < wanted {
            let request = self.receive_request(i32::try_from(wanted - handles.len()).expect("few"));
            handles.extend(receive(self.again(), request).await);
        }
        handles
    }

    pub(crate) async fn ack(&mut self, handle: &str) -> Option<v2::Code> {
        self.ack_all(&[handle.to_owned()]).await
    }

    /// With one request.
    pub(crate) async fn ack_all(&mut self, handles: &[String]) -> Option<v2::Code> {
        let entry = |handle: &String| {
            let receipt_handle = handle.clone();
            v2::AckMessageEntry { message_id: "id".into(), receipt_handle, ..Default::default() }
        };
        let entries = handles.iter().map(entry).collect();
        let request = v2::AckMessageRequest { group: resource(self.group), topic: resource("t"), entries };
        let answer = self.grpc.ack_message(signed(self.id, request)).await.expect("an answer").into_inner();
        answer.status.map(|status| status.code())
    }
}

/// The handles of what one receive brings.
pub(crate) async fn receive(
    mut grpc: MessagingServiceClient<Channel>,
    request: tonic::Request<v2::ReceiveMessageRequest>,
) -> Vec<String> {
    let mut answer = grpc.receive_message(request).await.expect("a stream").into_inner();
    let mut handles = Vec::new();
    while let Some(element) = answer.message().await.expect("an element") {
        if let Some(Content::Message(message)) = element.content {
            handles.push(message.system_properties.expect("properties").receipt_handle().to_owned());
        }
    }
    handles
}
