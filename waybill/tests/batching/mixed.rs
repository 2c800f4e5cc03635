//! C08: one call with acks of every kind, at two brokers.

use waybill_ops::config::Live;
use waybill_protocol::grpc::v2::Code;
use waybill_sidecar::backend::MessageService;
use waybill_sidecar::config::Config;

use crate::grpc::{Sidecar, ack, announce, receive};
use crate::rig::{BrokerRig, give_back, handles, introduce, pop_request, send, take};

/// One message of another's: the lease of the first has ended.
async fn overtaken(service: &MessageService) -> String {
    send(service, 1).await;
    let first = handles(&take(service, "x", 1, 200).await).remove(0);
    let second = take(service, "y", 1, 600_000).await.remove(0);
    assert_eq!(second.message.reconsume_times, 1, "the same message");
    first
}

async fn each_entry_is_judged_by_itself(batches: bool) {
    let rigs = [BrokerRig::named("broker-a").await, BrokerRig::named("broker-b").await];
    let services = [0, 1].map(|n: usize| rigs[n].service(rigs[n].remote(), |_| {}));
    for service in &services {
        introduce(service, &["g"], "t").await;
    }
    let stale = overtaken(&services[0]).await;
    for (service, count) in services.iter().zip([4, 5]) {
        send(service, count).await;
    }
    let config = Config {
        namesrv_addr: format!("{};{}", rigs[0].address, rigs[1].address),
        enable_batch_ack: batches,
        ..rigs[0].config()
    };
    let sidecar = Sidecar::start(Live::fixed(config), rigs[0].remote()).await;
    let mut client = sidecar.client().await;
    let _telemetry = announce(&mut client).await;
    let (a, b): (Vec<_>, Vec<_>) =
        receive(&mut client, 9).await.into_iter().partition(|handle| handle.contains("broker-a"));
    assert_eq!((a.len(), b.len()), (4, 5));
    let before = [rigs[0].acks(), rigs[1].acks()];

    // The last of each broker is left alone.
    let garbage = "garbage".to_owned();
    let entries = [&a[0], &b[0], &garbage, &b[1], &a[1], &stale, &b[2], &a[2], &b[3], &b[3]].map(String::clone);
    let (ok, bad) = (Code::Ok, Code::InvalidReceiptHandle);
    let codes = vec![ok, ok, bad, ok, ok, bad, ok, ok, ok, ok];
    assert_eq!(ack(&mut client, &entries).await, (Code::MultipleResults, codes));
    let acks = [0, 1].map(|n: usize| {
        let (single, batches) = rigs[n].acks();
        (single - before[n].0, batches - before[n].1)
    });
    assert_eq!(acks, if batches { [(0, 1), (0, 1)] } else { [(4, 0), (5, 0)] });

    for (service, all) in services.iter().zip([a, b]) {
        assert_eq!(give_back(service, &all).await, 1, "all but one are done");
        let again = handles(&take(service, "d", 1, 600_000).await).remove(0);
        let offset = |handle: &str| handle.split(' ').nth(7).map(str::to_owned);
        assert_eq!(offset(&again), all.last().and_then(|handle| offset(handle)));
        let mut more = pop_request("d", 600_000);
        more.poll_ms = 0;
        assert!(service.pop(more).await.expect("a pop").messages.is_empty(), "nothing else comes back");
    }
    sidecar.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_entry_of_an_ack_is_judged_by_itself() {
    each_entry_is_judged_by_itself(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn so_it_is_in_batches() {
    each_entry_is_judged_by_itself(true).await;
}
