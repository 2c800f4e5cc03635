//! Sends messages, each once, and remembers which ones it was told are stored.

use waybill_protocol::grpc::v2::{self, Code};

use super::{Client, PATIENCE, code, resource};
use crate::broker::TOPIC;

/// Sends so many messages, within the time of the faults.
pub async fn produce(client: Client, messages: usize) {
    let sim = client.sim.clone();
    let pause = sim.plan.chaos_ms / i64::try_from(messages).unwrap_or(1).max(1);
    for number in 0..messages {
        sim.sleep_within(0..=2 * pause).await;
        let body = format!("m{number}");
        let order = sim.plan.message_groups;
        let message_group = (order > 0).then(|| format!("g{}", sim.dice().within(1..=order)));
        let kind = if order > 0 { v2::MessageType::Fifo } else { v2::MessageType::Normal };
        let system = v2::SystemProperties {
            message_id: format!("ID-{number}"),
            message_type: kind.into(),
            message_group,
            body_encoding: v2::Encoding::Identity.into(),
            born_host: client.id.clone(),
            ..Default::default()
        };
        let message = v2::Message {
            topic: Some(resource(TOPIC)),
            system_properties: Some(system),
            body: body.clone().into(),
            user_properties: [("padding".to_owned(), "x".repeat(sim.plan.padding))].into(),
        };
        let request = client.request(v2::SendMessageRequest { messages: vec![message] });
        let mut rpc = client.rpc();
        let code = match tokio::time::timeout(PATIENCE, rpc.send_message(request)).await {
            Ok(Ok(answer)) => code(answer.get_ref().status.as_ref()),
            Ok(Err(_)) | Err(_) => 0,
        };
        sim.say(&client.id, format_args!("sent {body}: {code}"));
        if code == i32::from(Code::Ok) {
            sim.audit().sent(&body);
        } else {
            client.move_on();
        }
    }
}
