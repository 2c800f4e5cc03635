//! A whole sidecar whose mounted ConfigMap is swapped under it, as the kubelet does it.
#![allow(clippy::expect_used, clippy::panic, reason = "tests say what they expect")]

mod grpc_common;

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use grpc_common::{Peer, START, broker::FakeBrokers, group, messages, push, receive};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_util::sync::CancellationToken;
use waybill_ops::{clock::ManualClock, config::Live};
use waybill_protocol::{
    grpc::v2::{Code, ReceiveMessageRequest, messaging_service_client::MessagingServiceClient},
    remoting::{PopMessageRequestHeader, codes::request},
};
use waybill_sidecar::{App, Listeners, config::Config};

const SWITCH: &str = "enableGrpcChannelReceiptHandleRenew";

/// A directory as the kubelet mounts it: `sidecar.yaml` -> `..data/sidecar.yaml`, `..data` -> the folder of one state.
struct ConfigMap {
    dir: tempfile::TempDir,
    state: usize,
}

impl ConfigMap {
    fn new(text: &str) -> Self {
        let mut map = Self { dir: tempfile::tempdir().expect("directory"), state: 0 };
        map.swap(text);
        std::os::unix::fs::symlink("..data/sidecar.yaml", map.path()).expect("link");
        map
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("sidecar.yaml")
    }

    /// A new folder, then `..data` is turned to it at once, then the old folder goes.
    fn swap(&mut self, text: &str) {
        let at = |name: &str| self.dir.path().join(name);
        let (old, new) = (format!("..state_{}", self.state), format!("..state_{}", self.state + 1));
        std::fs::create_dir(at(&new)).expect("create");
        std::fs::write(at(&new).join("sidecar.yaml"), text).expect("write");
        std::os::unix::fs::symlink(&new, at("..data_tmp")).expect("link");
        std::fs::rename(at("..data_tmp"), at("..data")).expect("swap");
        if self.state > 0 {
            std::fs::remove_dir_all(at(&old)).expect("remove");
        }
        self.state += 1;
    }
}

/// What the admin port answers to a GET.
async fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("connect");
    let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("write");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("read");
    answer.split_once("\r\n\r\n").expect("a body").1.to_owned()
}

/// `/config`, as soon as it is so.
async fn config_that(address: SocketAddr, so: impl Fn(&Value) -> bool) -> Value {
    let found = tokio::time::timeout(grpc_common::PATIENCE, async {
        loop {
            let config: Value = serde_json::from_str(&get(address, "/config").await).expect("JSON");
            if so(&config) {
                return config;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    found.await.expect("in time")
}

async fn has_metrics(address: SocketAddr, wanted: &[&str]) {
    let metrics = get(address, "/metrics").await;
    for wanted in wanted {
        assert!(metrics.lines().any(|line| line == *wanted), "{wanted} is missing in {metrics}");
    }
}

/// The lease with which a message that was just sent was popped.
async fn lease_ms(peer: &mut Peer, brokers: &FakeBrokers) -> i64 {
    peer.send(messages(1)).await;
    let request = ReceiveMessageRequest { auto_renew: true, invisible_duration: None, ..receive() };
    let received = peer.receive(request).await;
    assert_eq!((received.code(), received.messages.len()), (Code::Ok, 1));
    let pop = brokers.seen(request::POP_MESSAGE);
    pop.last().expect("a pop").header::<PopMessageRequestHeader>().expect("a header").invisible_time
}

#[tokio::test]
async fn a_swapped_configmap_flips_renewal_and_a_bad_one_changes_nothing() {
    let text = |switch: &str| format!("namesrvAddr: broker-a:10911\n{SWITCH}: {switch}\n");
    let mut map = ConfigMap::new(&text("true"));
    let clock = Arc::new(ManualClock::new(START));
    let brokers = FakeBrokers::new(clock.clone());
    brokers.topic("t", "NORMAL", 1);
    brokers.group(group("g"));
    let bind = || TcpListener::bind("127.0.0.1:0");
    let listeners = Listeners { grpc: bind().await.expect("bind"), admin: Some(bind().await.expect("bind")) };
    let live = Arc::new(Live::<Config>::load(map.path()).expect("valid"));
    let app = App::build(live, brokers.clone(), clock, listeners).await.expect("builds");
    let (grpc, admin) = (app.grpc_address(), app.admin_address().expect("an admin port"));
    let stop = CancellationToken::new();
    let running = tokio::spawn(app.run(stop.clone()));
    let client = MessagingServiceClient::connect(format!("http://{grpc}")).await.expect("a connection");
    let mut peer = Peer { client, id: "c".into(), credentials: None, telemetry: None };
    peer.open(push()).await.expect("settings");

    let first = config_that(admin, |_| true).await;
    assert_eq!((&first["config"][SWITCH], &first["file"]["generation"]), (&true.into(), &1.into()));
    assert_eq!(lease_ms(&mut peer, &brokers).await, 60_000, "a short lease, to be renewed");
    has_metrics(admin, &["waybill_sidecar_receipts_held 1", "waybill_sidecar_receipts_kept 0"]).await;

    map.swap(&text("false"));
    let second = config_that(admin, |config| config["file"]["generation"] == 2).await;
    assert_eq!((&second["config"][SWITCH], &second["file"]["error"]), (&false.into(), &Value::Null));
    assert_ne!(second["file"]["hash"], first["file"]["hash"]);
    assert_eq!(lease_ms(&mut peer, &brokers).await, 15 * 60_000, "the group's consume time-out, as one lease");
    let hash = second["file"]["hash"].as_str().expect("a hash");
    let info = format!("waybill_config_info{{hash=\"{hash}\"}} 1");
    let kept = ["waybill_sidecar_receipts_held 2", "waybill_sidecar_receipts_kept 1"];
    has_metrics(admin, &[&info, kept[0], kept[1], "waybill_config_generation 2", "waybill_config_in_force 1"]).await;

    let misfit = format!("{}maxInvisibleTimeMills: 5000\n", text("true"));
    for (failures, (bad, said)) in (1..).zip([
        (text("perhaps"), format!("sidecar.yaml line 2, {SWITCH}: ")),
        (misfit, "sidecar.yaml line 3, maxInvisibleTimeMills: 5000 is less than ".to_owned()),
    ]) {
        map.swap(&bad);
        let is_told = |config: &Value| config["file"]["error"].as_str().is_some_and(|error| error.contains(&said));
        let refused = config_that(admin, is_told).await;
        assert_eq!(refused["config"], second["config"], "the last good one stays");
        for what in ["generation", "hash"] {
            assert_eq!(refused["file"][what], second["file"][what]);
        }
        assert_eq!(lease_ms(&mut peer, &brokers).await, 15 * 60_000);
        let count = format!("waybill_config_reload_failures_total {failures}");
        has_metrics(admin, &[&info, &count, "waybill_config_generation 2", "waybill_config_in_force 0"]).await;
    }

    map.swap(&text("true"));
    let third = config_that(admin, |config| config["file"]["generation"] == 3).await;
    assert_eq!((&third["config"][SWITCH], &third["file"]["error"]), (&true.into(), &Value::Null));
    assert_eq!(third["file"]["hash"], first["file"]["hash"], "the same bytes as at first");
    assert_eq!(lease_ms(&mut peer, &brokers).await, 60_000);
    has_metrics(admin, &["waybill_sidecar_receipts_held 5", "waybill_sidecar_receipts_kept 3"]).await;
    stop.cancel();
    // It would wait for the client, which holds something, until its grace time is over.
    running.abort();
}
