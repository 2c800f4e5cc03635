//! A client of the sidecar over gRPC.

use waybill_protocol::grpc::v2;

pub(crate) use crate::support::client::receive;
use crate::support::client::{Grpc, ack, announce, resource, seconds, signed};

/// A push consumer of topic `t`.
pub(crate) struct Client {
    id: &'static str,
    group: &'static str,
    grpc: Grpc,
    _telemetry: tonic::Streaming<v2::TelemetryCommand>,
}

impl Client {
    pub(crate) async fn new(endpoint: &str, id: &'static str, group: &'static str) -> Self {
        let mut grpc = Grpc::connect(endpoint.to_owned()).await.expect("a connection");
        let telemetry = announce(&mut grpc, id, group, v2::ClientType::PushConsumer).await;
        Self { id, group, grpc, _telemetry: telemetry }
    }

    /// Another call at the same time.
    pub(crate) fn again(&self) -> Grpc {
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
        let answer = ack(&mut self.grpc, self.id, self.group, handles).await;
        answer.status.map(|status| status.code())
    }
}
