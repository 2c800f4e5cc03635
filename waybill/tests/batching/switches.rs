//! The switch in the configuration file, flipped in both directions while changes are under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use waybill_ops::config::Live;
use waybill_protocol::grpc::v2;

use crate::grpc::{Client, Sidecar, ack, announce, receive, resource, seconds, signed, write};
use crate::rig::{BrokerRig, send, take, until};

const WORKERS: usize = 32;

/// Changes the duration of one message over and over, and acknowledges it in the end. Every answer must be OK.
async fn work(mut client: Client, mut handle: String, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        let request = v2::ChangeInvisibleDurationRequest {
            group: resource("g"),
            topic: resource("t"),
            receipt_handle: handle,
            invisible_duration: seconds(600),
            ..Default::default()
        };
        let answer = client.change_invisible_duration(signed(request)).await.expect("an answer").into_inner();
        assert_eq!(answer.status.map(|status| status.code()), Some(v2::Code::Ok));
        handle = answer.receipt_handle;
    }
    assert_eq!(ack(&mut client, &[handle]).await, (v2::Code::Ok, vec![v2::Code::Ok]));
}

#[tokio::test(flavor = "multi_thread")]
async fn flipping_the_switch_in_the_file_takes_effect_with_changes_under_way() {
    let rig = BrokerRig::start().await;
    let file = rig.dir.path().join("sidecar.yaml");
    write(&file, &rig.address, false);
    let sidecar = Sidecar::start(Live::load(&file).expect("a configuration"), rig.remote()).await;

    let direct = rig.service(rig.remote(), |_| {});
    send(&direct, 1).await;
    let early = take(&direct, "x", 1, 600_000).await.remove(0);
    let lease = waybill_sidecar::backend::LeaseRef { group: "g".into(), topic: "t".into(), handle: early.handle };
    assert_eq!(direct.ack(vec![lease]).await, [Ok(())]);
    send(&direct, WORKERS).await;

    let mut client = sidecar.client().await;
    let _telemetry = announce(&mut client).await;
    let stop = Arc::new(AtomicBool::new(false));
    let handles = receive(&mut client, WORKERS).await;
    let workers: Vec<_> =
        handles.into_iter().map(|handle| tokio::spawn(work(client.clone(), handle, Arc::clone(&stop)))).collect();

    until("changes go one by one", || rig.changes().0 > 200).await;
    assert_eq!(rig.changes().1, 0, "off");
    for _ in 0..2 {
        write(&file, &rig.address, true);
        let before = rig.changes().1;
        until("changes go in batches", || rig.changes().1 > before + 100).await;
        write(&file, &rig.address, false);
        // Off at last: many single changes without a batch among them.
        let mut seen = rig.changes();
        until("changes go one by one again", || {
            let now = rig.changes();
            if now.1 > seen.1 {
                seen = now;
            }
            now.0 > seen.0 + 500
        })
        .await;
    }
    stop.store(true, Ordering::Relaxed);
    for worker in workers {
        worker.await.expect("every answer was OK");
    }
    sidecar.stop().await;
}
