//! What is asked of a broker about delayed messages, and what is made of its answers.

use std::time::Duration;

use waybill_protocol::{
    recall::RecallHandle,
    remoting::{
        Command,
        codes::{request, response},
    },
};
use waybill_sidecar::backend::BackendError;

use crate::scripted::{ok, refuse, service, two_brokers};
use crate::service::send_request;

fn handle(broker: &str) -> RecallHandle {
    RecallHandle {
        topic: "T".into(),
        broker_name: broker.into(),
        time_ms: 1_800_000_000_000,
        message_id: "ID".into(),
        position: None,
    }
}

async fn recall(answer: Command) -> (Result<String, BackendError>, Vec<(String, Command)>) {
    let transport = two_brokers(move |_, _| Ok(answer.clone()));
    let service = service(transport.clone(), |_| {}).service;
    let result = service.recall(&handle("b"), "as it came", Duration::from_secs(1)).await;
    (result, transport.asked(request::RECALL_MESSAGE))
}

#[tokio::test]
async fn the_broker_of_the_handle_is_asked() {
    let mut answer = ok();
    answer.ext.set("msgId", "ID");
    let (result, asked) = recall(answer).await;
    assert_eq!(result, Ok("ID".to_owned()));
    let [(address, command)] = asked.as_slice() else { panic!("{asked:?}") };
    assert_eq!(address, "b:10911");
    for (name, value) in [("producerGroup", "T"), ("topic", "T"), ("recallHandle", "as it came"), ("bname", "b")] {
        assert_eq!(command.ext.get(name), Some(value), "{name}");
    }
}

#[tokio::test]
async fn refusals_are_told_apart() {
    for (code, expected) in [
        (response::ILLEGAL_OPERATION, BackendError::TooLate("why".into())),
        (response::QUERY_NOT_FOUND, BackendError::MessageNotFound("why".into())),
        (response::NO_PERMISSION, BackendError::NoPermission("why".into())),
        (response::TOPIC_NOT_EXIST, BackendError::TopicNotFound("T".into())),
        (response::REQUEST_CODE_NOT_SUPPORTED, BackendError::NotSupported),
    ] {
        let (result, _) = recall(Command::response(code, "why")).await;
        assert_eq!(result, Err(expected));
    }
    let (result, _) = recall(ok()).await;
    assert!(matches!(result, Err(BackendError::Other { .. })), "an OK without the id: {result:?}");
    let nobody = service(two_brokers(|_, _| Ok(ok())), |_| {}).service;
    let result = nobody.recall(&handle("broker-x"), "x", Duration::from_secs(1)).await;
    assert_eq!(result, Err(BackendError::UnknownBroker("broker-x".into())));
}

/// A broker that keeps messages for a shorter time than the sidecar allows.
#[tokio::test]
async fn what_is_too_far_for_the_broker_is_an_illegal_time_and_no_other_refusal_is() {
    let remark = "timer message illegal, the delay time should not be bigger than the max delay 259200000ms";
    for (remark, too_far) in [(remark, true), ("message body size 5 over max 4", false)] {
        let transport = two_brokers(move |_, _| refuse(response::MESSAGE_ILLEGAL, remark));
        let result = service(transport, |_| {}).service.send(send_request(1)).await.map(drop);
        let expected = match too_far {
            true => BackendError::DeliveryTooFar(remark.into()),
            false => BackendError::Illegal(remark.into()),
        };
        assert_eq!(result, Err(expected));
    }
}
