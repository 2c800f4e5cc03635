//! The renewal switch: flipped in the file while handles are in hand, and overridden by groups.

use serde_json::{Value, json};
use waybill_protocol::grpc::v2::Code;

use crate::client::Client;
use crate::rig::{BrokerRig, Sidecar, until};

const MINUTE: i64 = 60_000;
/// The broker may put a deadline some milliseconds off; everything compared here is seconds apart.
const NEAR: i64 = 500;

fn is_near(lease: &Value, ms: i64) -> bool {
    lease["invisibleTime"].as_i64().expect("milliseconds").abs_diff(ms) < NEAR.unsigned_abs()
}

fn changes(lease: &Value) -> i64 {
    lease["changes"].as_i64().expect("a number")
}

async fn kept(sidecar: &Sidecar) -> Option<String> {
    let metrics = sidecar.metrics().await;
    metrics.lines().find_map(|line| line.strip_prefix("waybill_sidecar_receipts_kept ").map(str::to_owned))
}

/// Leases of twelve seconds are renewed after two: a machine that stands still for a while does not let them end.
fn file(renew: bool) -> String {
    format!(
        "enableGrpcChannelReceiptHandleRenew: {renew}\ndefaultInvisibleTimeMills: 12000\nrenewAheadTimeMillis: 10000\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_popped_before_a_flip_keeps_its_promise() {
    let rig = BrokerRig::start().await;
    rig.group("g", |group| group.consume_timeout_minute = 7).await;
    let sidecar = rig.sidecar("s", &file(true)).await;
    let mut client = Client::new(&sidecar.endpoint, "c", "g").await;
    client.send(3).await;

    let mut handles = client.receive(1).await;
    sidecar.rewrite(&file(false)).await;
    handles.extend(client.receive(1).await);
    until("the first is renewed, though the switch is off now", async || {
        let leases = rig.leases("g").await;
        assert_eq!(leases.len(), 2, "nobody else got them");
        leases.iter().any(|lease| changes(lease) == 1 && lease["changedBy"] == "renewal" && lease["renewals"] == 1)
    })
    .await;
    sidecar.rewrite(&file(true)).await;
    handles.extend(client.receive(1).await);
    until("the third is renewed, too", async || {
        rig.leases("g").await.iter().filter(|lease| changes(lease) == 1).count() == 2
    })
    .await;
    let leases = rig.leases("g").await;
    let second: Vec<&Value> = leases.iter().filter(|lease| changes(lease) == 0).collect();
    assert_eq!(second.len(), 1);
    assert!(is_near(second[0], 7 * MINUTE), "the second has the whole time to consume: {}", second[0]);
    assert_eq!(kept(&sidecar).await.as_deref(), Some("1"), "and is not renewed now either");
    for handle in &handles {
        assert_eq!(client.ack(handle).await, Some(Code::Ok), "the handle that the client got");
    }
    assert_eq!(rig.leases("g").await, Vec::<Value>::new());
    sidecar.stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_groups_own_values_come_before_the_sidecars() {
    let rig = BrokerRig::start().await;
    let own = |pairs: &'static [(&str, &str)]| {
        move |group: &mut waybill_protocol::remoting::SubscriptionGroupConfig| {
            group.consume_timeout_minute = 7;
            group.attributes = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        }
    };
    rig.group("plain", own(&[])).await;
    rig.group("never", own(&[("+waybill.renew", "false"), ("+waybill.invisible.time", "20000")])).await;
    rig.group("always", own(&[("+waybill.renew", "true"), ("+waybill.invisible.time", "20000")])).await;
    let file = |renew| format!("enableGrpcChannelReceiptHandleRenew: {renew}\ndefaultInvisibleTimeMills: 40000\n");
    let (on, off) = (rig.sidecar("on", &file(true)).await, rig.sidecar("off", &file(false)).await);
    let mut producer = Client::new(&on.endpoint, "producer", "plain").await;
    producer.send(1).await;
    let overridden = json!(["waybill.renew", "waybill.invisible.time"]);
    for (sidecar, group, renew, ms) in [
        (&on, "plain", true, 40_000),
        (&off, "plain", false, 7 * MINUTE),
        (&on, "never", false, 7 * MINUTE),
        (&off, "never", false, 7 * MINUTE),
        (&on, "always", true, 20_000),
        (&off, "always", true, 20_000),
    ] {
        let mut client = Client::new(&sidecar.endpoint, "c", group).await;
        let handle = client.receive(1).await.remove(0);
        let leases = rig.leases(group).await;
        assert!(leases.len() == 1 && is_near(&leases[0], ms), "{group} {leases:?}");
        assert_eq!(kept(sidecar).await.as_deref(), Some(if renew { "0" } else { "1" }), "{group}");
        let shown = sidecar.config().await["groups"][group].clone();
        let wanted = if group == "plain" { json!([]) } else { overridden.clone() };
        let wanted = json!({"renew": renew, "invisibleTimeMillis": ms, "batchMaxNum": 1_024, "overrides": wanted});
        assert_eq!(shown, wanted, "{group}");
        assert_eq!(client.ack(&handle).await, Some(Code::Ok));
        producer.send(1).await;
    }
    for sidecar in [on, off] {
        assert_eq!(sidecar.config().await["groupsLeftOut"], 0);
        sidecar.stop.cancel();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_bounds_the_batches_of_its_leases() {
    let rig = BrokerRig::start().await;
    rig.group("small", |group| drop(group.attributes.insert("+waybill.batch.max".into(), "2".into()))).await;
    rig.group("large", |_| {}).await;
    let sidecar = rig.sidecar("s", "enableBatchAck: true\n").await;
    for (group, most) in [("large", 9), ("small", 2)] {
        let mut client = Client::new(&sidecar.endpoint, "c", group).await;
        client.send(9).await;
        let handles = client.receive(9).await;
        let before = sidecar.said().acks_of_batches().len();
        assert_eq!(client.ack_all(&handles).await, Some(Code::Ok));
        let batches = sidecar.said().acks_of_batches().split_off(before);
        assert_eq!(batches.iter().max(), Some(&most), "{group}: {batches:?}");
        assert_eq!(rig.leases(group).await, Vec::<Value>::new(), "all are done");
    }
    sidecar.stop.cancel();
}
