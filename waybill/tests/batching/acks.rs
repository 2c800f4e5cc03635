//! Acks of gRPC clients: 1,000 cost as few requests as the limit allows, and each has its own result.

use futures::future::join_all;
use waybill_ops::config::Live;
use waybill_protocol::grpc::v2::Code;
use waybill_protocol::remoting::codes::request;
use waybill_sidecar::config::Config;

use crate::gates::Gate;
use crate::grpc::{Sidecar, ack};
use crate::rig::{BrokerRig, give_back, handles, introduce, send, stale, take};

const COUNT: usize = 1_000;
const STALE: usize = 10;
const MOST: usize = 256;
/// Requests about one group and topic that may be under way; what is acked meanwhile gathers.
const UNDER_WAY: usize = 4;

fn config(rig: &BrokerRig) -> Live<Config> {
    Live::fixed(Config { enable_batch_ack: true, batch_change_invisible_time_max_num: MOST as i64, ..rig.config() })
}

/// Handles of leased messages, every hundredth of which is somebody else's by now.
async fn leased(rig: &BrokerRig) -> Vec<String> {
    let service = rig.service(rig.remote(), |_| {});
    introduce(&service, &["g"], "t").await;
    send(&service, STALE).await;
    let stale = stale(&service, STALE).await;
    send(&service, COUNT - STALE).await;
    let mut all = handles(&take(&service, "c", COUNT - STALE, 600_000).await);
    for (n, handle) in stale.into_iter().enumerate() {
        all.insert(n * 100 + 50, handle);
    }
    all
}

fn wanted() -> Vec<Code> {
    (0..COUNT).map(|n| if n % 100 == 50 { Code::InvalidReceiptHandle } else { Code::Ok }).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn acks_of_many_clients_gather() {
    let rig = BrokerRig::start().await;
    let handles = leased(&rig).await;
    let before = rig.acks();
    let gate = Gate::shut(rig.remote(), [request::ACK_MESSAGE, request::BATCH_ACK_MESSAGE]);
    let sidecar = Sidecar::start(config(&rig), gate.clone()).await;
    let clients = join_all((0..20).map(|_| sidecar.client())).await;
    let acks = handles.iter().zip(clients.iter().cycle()).map(|(handle, client)| {
        let (mut client, handle) = (client.clone(), handle.clone());
        tokio::spawn(async move { ack(&mut client, &[handle]).await.0 })
    });
    let acks: Vec<_> = acks.collect();
    sidecar.until("waybill_sidecar_leases_waiting", (COUNT - UNDER_WAY) as u64).await;
    gate.open();
    let codes: Vec<_> = join_all(acks).await.into_iter().map(|code| code.expect("an answer")).collect();
    assert_eq!(codes, wanted());
    let (single, batches) = rig.acks();
    let gathered = (COUNT - UNDER_WAY).div_ceil(MOST);
    assert_eq!((single - before.0, batches - before.1), (UNDER_WAY as u64, gathered as u64));
    assert_eq!(give_back(&rig.service(rig.remote(), |_| {}), &handles).await, 0, "all are done");
    sidecar.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_call_with_many_acks_costs_few_requests() {
    let rig = BrokerRig::start().await;
    let handles = leased(&rig).await;
    let before = rig.acks();
    let sidecar = Sidecar::start(config(&rig), rig.remote()).await;
    let mut client = sidecar.client().await;
    assert_eq!(ack(&mut client, &handles).await, (Code::MultipleResults, wanted()));
    let (single, batches) = rig.acks();
    assert_eq!((single - before.0, batches - before.1), (0, COUNT.div_ceil(MOST) as u64));
    assert_eq!(give_back(&rig.service(rig.remote(), |_| {}), &handles).await, 0, "all are done");
    sidecar.stop().await;
}
