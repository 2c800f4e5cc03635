//! Clients and brokers that have addresses of IPv6.

use waybill_protocol::grpc::v2;
use waybill_protocol::grpc::v2::Code;
use waybill_protocol::grpc::v2::receive_message_response::Content;

use crate::client::Client;
use crate::rig::BrokerRig;
use crate::support::client::{Grpc, resource, signed};

/// Whether this machine has an address of IPv6. Says so if it has none.
fn here() -> bool {
    let has = std::net::TcpListener::bind("[::1]:0").is_ok();
    if !has {
        println!("SKIPPED: this machine has no IPv6");
    }
    has
}

/// The route of topic `t`, asked for by the endpoints `told`.
async fn route(grpc: &mut Grpc, told: &v2::Endpoints) -> Vec<v2::MessageQueue> {
    let request = v2::QueryRouteRequest { topic: resource("t"), endpoints: Some(told.clone()) };
    let answer = grpc.query_route(signed("c", request)).await.expect("an answer").into_inner();
    assert_eq!(answer.status.as_ref().map(v2::Status::code), Some(Code::Ok), "{answer:?}");
    answer.message_queues
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_goes_the_whole_way_by_ipv6() {
    if !here() {
        return;
    }
    let broker = BrokerRig::at("[::1]:0", |_| ()).await;
    assert_eq!(broker.broker.announced_address(), broker.address, "it can be connected to as it is announced");
    let sidecar = broker.sidecar_at("[::1]:0", "ipv6", "").await;
    let mut client = Client::new(&sidecar.endpoint, "c", "g").await;
    client.send(1).await;

    let port = sidecar.endpoint.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    let address = v2::Address { host: "::1".into(), port };
    let told = v2::Endpoints { scheme: v2::AddressScheme::IPv6.into(), addresses: vec![address] };
    let queues = route(&mut client.again(), &told).await;
    assert!(!queues.is_empty());
    for queue in queues {
        assert_eq!(
            queue.broker.and_then(|broker| broker.endpoints).as_ref(),
            Some(&told),
            "clients stay with their address"
        );
    }

    let mut answer = client.again().receive_message(client.receive_request(1)).await.expect("a stream").into_inner();
    let mut message = None;
    while let Some(element) = answer.message().await.expect("an element") {
        if let Some(Content::Message(one)) = element.content {
            message = Some(one);
        }
    }
    let system = message.and_then(|message| message.system_properties).expect("a message");
    assert_eq!(system.born_host, "::1");
    assert_eq!(system.store_host, broker.address);
    assert_eq!(client.ack(system.receipt_handle()).await, Some(Code::Ok));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_by_ipv4_to_a_listener_of_both_families_has_an_address_of_ipv4() {
    let broker = BrokerRig::start().await;
    let sidecar = broker.sidecar_at("[::]:0", "both", "").await;
    let port = sidecar.endpoint.rsplit(':').next().expect("a port");
    let families = [("127.0.0.1", true), ("::1", here())];
    for (host, _) in families.iter().filter(|(_, here)| *here) {
        let endpoint =
            format!("http://{}:{port}", if host.contains(':') { format!("[{host}]") } else { (*host).into() });
        let mut client = Client::new(&endpoint, "c", "g").await;
        client.send(1).await;
        let mut answer =
            client.again().receive_message(client.receive_request(1)).await.expect("a stream").into_inner();
        let mut hosts = Vec::new();
        while let Some(element) = answer.message().await.expect("an element") {
            if let Some(Content::Message(v2::Message { system_properties: Some(system), .. })) = element.content {
                assert_eq!(client.ack(system.receipt_handle()).await, Some(Code::Ok));
                hosts.push(system.born_host);
            }
        }
        assert_eq!(hosts, [*host]);
    }
}
