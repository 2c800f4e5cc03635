//! When a message comes again that a consumer gives back: who decides it, at the gRPC interface.
#![allow(clippy::expect_used, clippy::panic, reason = "tests say what they expect")]

mod grpc_common;

use grpc_common::*;
use waybill_protocol::grpc::v2::{Code, ReceiveMessageRequest};
use waybill_protocol::remoting::ChangeInvisibleTimeRequestHeader;
use waybill_protocol::remoting::codes::request;
use waybill_protocol::remoting::{CustomizedRetryPolicy, GroupRetryPolicy, SubscriptionGroupConfig};

fn auto_renew() -> ReceiveMessageRequest {
    ReceiveMessageRequest { auto_renew: true, invisible_duration: None, ..receive() }
}

/// What the broker was asked for, milliseconds, in order.
fn asked_for(world: &World) -> Vec<i64> {
    let changes = world.brokers.seen(request::CHANGE_MESSAGE_INVISIBLETIME);
    let header = |command: &waybill_protocol::remoting::Command| {
        command.header::<ChangeInvisibleTimeRequestHeader>().expect("a header").invisible_time
    };
    changes.iter().map(header).collect()
}

/// On whose behalf, in order.
fn on_behalf_of(world: &World) -> Vec<String> {
    let changes = world.brokers.seen(request::CHANGE_MESSAGE_INVISIBLETIME);
    changes.iter().map(|command| command.ext.get("changedBy").unwrap_or("nobody").to_owned()).collect()
}

/// Gives the message back after each delivery, asking for so many milliseconds.
async fn give_back(world: &World, peer: &mut Peer, how: &ReceiveMessageRequest, asks: &[i64]) {
    for (delivery, ms) in (1..).zip(asks) {
        let received = peer.receive(how.clone()).await;
        let system =
            received.messages.first().and_then(|message| message.system_properties.clone()).expect("a message");
        assert_eq!(system.delivery_attempt(), delivery);
        assert_eq!(code(peer.change(system.receipt_handle(), *ms).await.status), Code::Ok);
        world.clock.advance(7_200_001);
    }
}

/// The published Node client knows no lists of delays and asks for 0 s; the group's policy holds all the same.
#[tokio::test]
async fn a_push_consumer_that_asks_for_no_time_waits_as_its_group_says() {
    let world = World::new().await;
    let mut peer = world.client("c", push()).await;
    peer.send(vec![message("ID")]).await;
    give_back(&world, &mut peer, &auto_renew(), &[0, 0, 0, 5_000]).await;
    assert_eq!(asked_for(&world), [10_000, 30_000, 60_000, 5_000], "the documented ladder, and what it does ask for");
    assert_eq!(on_behalf_of(&world), ["client"; 4], "it waits for a retry");
}

#[tokio::test]
async fn a_policy_of_the_group_comes_before_the_ladder() {
    let world = World::new().await;
    let list = CustomizedRetryPolicy { next: vec![1_000, 2_000] };
    let group_retry_policy = GroupRetryPolicy { customized_retry_policy: Some(list), ..Default::default() };
    world.brokers.group(SubscriptionGroupConfig { group_retry_policy, ..group("g") });
    let mut peer = world.client("c", push()).await;
    peer.send(vec![message("ID")]).await;
    give_back(&world, &mut peer, &auto_renew(), &[0, 0, 0]).await;
    assert_eq!(asked_for(&world), [1_000, 2_000, 2_000]);
}

/// A simple consumer means what it says: visible at once. So does whoever has a handle that is not held here.
#[tokio::test]
async fn a_simple_consumer_gets_what_it_asks_for() {
    let world = World::new().await;
    let mut peer = world.client("c", simple()).await;
    peer.send(vec![message("ID")]).await;
    give_back(&world, &mut peer, &receive(), &[0, 3_000]).await;
    let mut pusher = world.client("p", push()).await;
    let foreign = peer.receive(receive()).await.handles().remove(0);
    assert_eq!(code(pusher.change(&foreign, 0).await.status), Code::Ok);
    assert_eq!(asked_for(&world), [0, 3_000, 0]);
    assert_eq!(on_behalf_of(&world), ["extension", "extension", "client"], "a simple consumer holds it until then");
}
