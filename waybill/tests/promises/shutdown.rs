//! `shutdownPolicy`: what becomes of leases when the sidecar is told to stop.

use waybill_protocol::grpc::v2::Code;
use waybill_sidecar::Ended;

use crate::client::{Client, receive};
use crate::rig::{BrokerRig, Sidecar, until};

/// Three messages are held and a fourth waits when the sidecar is told to stop; one of the three is acknowledged while it
/// drains. Answers the handles of the other two, and the sidecar, which goes on draining.
async fn draining(rig: &BrokerRig, sidecar: &Sidecar) -> Vec<String> {
    let mut client = Client::new(&sidecar.endpoint, "c", "g").await;
    client.send(3).await;
    let mut handles = client.receive(3).await;
    client.send(1).await;
    until("brokers know", async || sidecar.is_ready().await).await;
    sidecar.stop.cancel();
    until("draining", async || !sidecar.is_ready().await).await;
    let asked = tokio::spawn(receive(client.again(), client.receive_request(1)));
    assert_eq!(client.ack(&handles.remove(0)).await, Some(Code::Ok), "acks are taken");
    assert_eq!(asked.await.expect("an answer"), Vec::<String>::new(), "nothing new is given out");
    assert!(rig.leases("g").await.len() <= 2, "the fourth was not taken");
    handles
}

#[tokio::test(flavor = "multi_thread")]
async fn leave_keeps_the_leases_and_says_nothing_of_the_clients() {
    let rig = BrokerRig::start().await;
    let (first, second) = tokio::join!(
        rig.sidecar("first", "shutdownPolicy: leave\ngrpcShutdownTimeSeconds: 10\n"),
        rig.sidecar("second", ""),
    );
    let handles = draining(&rig, &first).await;
    let before = rig.leases("g").await;
    let told = first.said();
    assert_eq!(first.ended().await, Ended::Clean);
    assert_eq!(told.departures(), [], "the client may be at another sidecar soon");
    assert_eq!(rig.leases("g").await, before, "as they were");
    assert_eq!(before.len(), 2);
    let mut moved = Client::new(&second.endpoint, "c", "g").await;
    for handle in &handles {
        assert_eq!(moved.ack(handle).await, Some(Code::Ok), "through another sidecar");
    }
    assert_eq!(moved.receive(1).await.len(), 1, "the fourth");
    assert_eq!(rig.leases("g").await.len(), 1, "and no other");
}

#[tokio::test(flavor = "multi_thread")]
async fn release_gives_back_what_clients_hold() {
    let rig = BrokerRig::start().await;
    let lines = "shutdownPolicy: release\ngrpcShutdownTimeSeconds: 10\ninvisibleTimeMillisWhenClear: 0\n";
    let (first, second) = tokio::join!(rig.sidecar("first", lines), rig.sidecar("second", ""));
    let handles = draining(&rig, &first).await;
    assert_eq!(handles.len(), 2);
    let told = first.said();
    assert_eq!(first.ended().await, Ended::Clean);
    assert_eq!(told.departures(), []);
    let mut other = Client::new(&second.endpoint, "other", "g").await;
    assert_eq!(other.receive(3).await.len(), 3, "at once, not after a minute");
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_waited_for_who_holds_nothing() {
    let rig = BrokerRig::start().await;
    let sidecar = rig.sidecar("s", "grpcShutdownTimeSeconds: 3600\n").await;
    let mut client = Client::new(&sidecar.endpoint, "c", "g").await;
    client.send(1).await;
    let handle = client.receive(1).await.remove(0);
    sidecar.stop.cancel();
    assert_eq!(client.ack(&handle).await, Some(Code::Ok));
    assert_eq!(sidecar.ended().await, Ended::Clean, "not after an hour");
}
