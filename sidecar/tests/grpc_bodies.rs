//! Bodies, how they are encoded, and their digests, as the published clients expect them; and kinds of messages that are not built.
#![allow(clippy::expect_used, clippy::panic, reason = "tests say what they expect")]

mod grpc_common;

use grpc_common::*;
use waybill_protocol::grpc::v2::{self, Code, Digest, DigestType, Encoding, Message, SystemProperties};

fn with(change: impl FnOnce(&mut SystemProperties)) -> Message {
    let mut message = message("ID");
    change(message.system_properties.as_mut().expect("system properties"));
    message
}

/// The digest is over the body as it is transmitted, compressed or not; all clients check it before they decompress.
#[tokio::test]
async fn a_body_comes_as_it_was_sent_with_its_encoding_and_digest() {
    let world = World::new().await;
    let mut peer = world.client("c", simple()).await;
    // `printf hello | gzip -n`, and the MD5 of both.
    let gzip = hex::decode("1f8b0800000000000003cb48cdc9c9070086a6103605000000").expect("digits");
    let cases = [
        (Encoding::Identity.into(), b"hello".to_vec(), Encoding::Identity),
        (Encoding::Unspecified.into(), b"hello".to_vec(), Encoding::Identity),
        (Encoding::Gzip.into(), gzip, Encoding::Gzip),
    ];
    for (encoding, body, wanted) in cases {
        let mut sent = with(|system| system.body_encoding = encoding);
        sent.body = body.clone().into();
        assert_eq!(code(peer.send(vec![sent]).await.status), Code::Ok);
        let received = peer.receive(receive()).await;
        let message = received.messages.first().expect("a message");
        let system = message.system_properties.as_ref().expect("system properties");
        assert_eq!((message.body.to_vec(), system.body_encoding()), (body.clone(), wanted));
        let checksum = hex::encode_upper(<md5::Md5 as md5::Digest>::digest(&body));
        assert_eq!(system.body_digest, Some(Digest { r#type: DigestType::Md5.into(), checksum }));
        assert_eq!(code(peer.ack(&received.handles()).await.status), Code::Ok);
    }
}

/// Producers of the remoting protocol compress with zlib, under a flag that has no other name here than GZIP. Some clients fail on it.
#[tokio::test]
async fn what_clients_cannot_read_comes_as_it_was_before_it_was_compressed() {
    let world = World::new().await;
    let mut peer = world.client("c", simple()).await;
    let mut sent = with(|system| system.body_encoding = Encoding::Gzip.into());
    sent.body = hex::decode("785ecb48cdc9c90700062c0215").expect("digits").into();
    assert_eq!(code(peer.send(vec![sent]).await.status), Code::Ok);
    let received = peer.receive(receive()).await;
    let message = received.messages.first().expect("a message");
    let system = message.system_properties.as_ref().expect("system properties");
    assert_eq!((&message.body[..], system.body_encoding()), (&b"hello"[..], Encoding::Identity));
    let checksum = "5D41402ABC4B2A76B9719D911017C592".to_owned();
    assert_eq!(system.body_digest, Some(Digest { r#type: DigestType::Md5.into(), checksum }));
}

/// A producer's digest is not looked at, whether it is right, wrong or of no known kind, as upstream does not.
#[tokio::test]
async fn a_digest_of_a_producer_decides_nothing() {
    let world = World::new().await;
    let mut peer = world.client("c", simple()).await;
    for (kind, checksum) in [(1, "00"), (2, "not hex"), (3, ""), (77, "00")] {
        let digest = Digest { r#type: kind, checksum: checksum.into() };
        assert_eq!(code(peer.send(vec![with(|system| system.body_digest = Some(digest))]).await.status), Code::Ok);
    }
}

#[tokio::test]
async fn an_encoding_that_nobody_knows_is_refused() {
    let world = World::new().await;
    let mut peer = world.client("c", simple()).await;
    for encoding in [3, 99, -1] {
        let status = peer.send(vec![with(|system| system.body_encoding = encoding)]).await.status.expect("a status");
        assert_eq!(status.code(), Code::MessageCorrupted);
        assert!(status.message.contains(&encoding.to_string()), "{}", status.message);
    }
    assert_eq!(peer.receive(receive()).await.code(), Code::MessageNotFound, "nothing was stored");
}

/// Lite topics and priorities: NOT_IMPLEMENTED where they would be right, the conflict of types where they would be wrong anyway.
#[tokio::test]
async fn lite_topics_and_priorities_are_not_implemented() {
    let world = World::new().await;
    world.brokers.topic("lite", "LITE", 1);
    world.brokers.topic("priority", "PRIORITY", 1);
    let mut peer = world.client("c", simple()).await;
    let lite = || with(|system| system.lite_topic = Some("l".into()));
    let priority = || with(|system| system.priority = Some(5));
    let to = |topic: &str, message: Message| vec![Message { topic: Some(resource(topic)), ..message }];
    for (messages, wanted) in [
        (to("lite", lite()), Code::NotImplemented),
        (to("priority", priority()), Code::NotImplemented),
        (to("t", lite()), Code::MessagePropertyConflictWithType),
        (to("t", priority()), Code::MessagePropertyConflictWithType),
        (to("lite", message("ID")), Code::MessagePropertyConflictWithType),
        (to("priority", message("ID")), Code::MessagePropertyConflictWithType),
    ] {
        assert_eq!(code(peer.send(messages).await.status), wanted);
    }
    let request = v2::SyncLiteSubscriptionRequest {
        topic: Some(resource("lite")),
        group: Some(resource("g")),
        lite_topic_set: vec!["l".into()],
        ..Default::default()
    };
    let answer = peer.client.sync_lite_subscription(peer.request(request)).await.expect("an answer").into_inner();
    assert_eq!(code(answer.status), Code::NotImplemented);
    let illegal = v2::SyncLiteSubscriptionRequest { topic: Some(resource("a b")), ..Default::default() };
    let answer = peer.client.sync_lite_subscription(peer.request(illegal)).await.expect("an answer").into_inner();
    assert_eq!(code(answer.status), Code::IllegalTopic, "what is wrong anyway is said first");
}
