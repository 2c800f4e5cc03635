use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;
use waybill_ops::config::Live;

use super::*;

fn valid() -> Config {
    Config { namesrv_addr: "127.0.0.1:9876".into(), ..Config::default() }
}

fn load(text: &str) -> Result<Config, String> {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("sidecar.yaml");
    std::fs::write(&path, text).expect("write");
    Live::<Config>::load(path).map(|live| Config::clone(&live.get())).map_err(|error| error.to_string())
}

#[test]
fn defaults_are_valid_but_for_the_route_sources() {
    assert_eq!(valid().validate(), Ok(()));
    let refused = Config::default().validate().expect_err("no route source");
    assert_eq!(refused.key, "namesrvAddr");
    assert!(refused.reason.contains("host:port"), "{}", refused.reason);
}

#[test]
fn every_default_is_in_its_own_range_and_every_key_has_one_name() {
    let keys = Config::keys();
    let names: BTreeSet<&str> = keys.iter().map(|key| key.name).collect();
    assert_eq!(names.len(), keys.len());
    for key in &keys {
        assert!(key.name == "namesrvAddr" || key.allowed.accepts(&key.default), "{}", key.name);
        assert!(!key.doc.trim().is_empty());
    }
    let file = serde_json::to_value(Config::default()).expect("serializes");
    let written: BTreeSet<String> = file.as_object().expect("a map").keys().cloned().collect();
    assert_eq!(written, names.into_iter().map(str::to_owned).collect(), "the table and the file agree on the names");
}

#[test]
fn upstreams_names_and_defaults_are_kept() {
    for (name, default) in [
        ("enableProxyAutoRenew", Value::Bool(true)),
        ("enableGrpcChannelReceiptHandleRenew", Value::Bool(true)),
        ("enableBatchChangeInvisibleTime", Value::Bool(false)),
        ("defaultInvisibleTimeMills", Value::Number(60_000)),
        ("renewAheadTimeMillis", Value::Number(10_000)),
        ("renewMaxTimeMillis", Value::Number(10_800_000)),
        ("maxRenewRetryTimes", Value::Number(3)),
        ("invisibleTimeMillisWhenClear", Value::Number(1_000)),
        ("channelExpiredTimeout", Value::Number(120_000)),
        ("minInvisibleTimeMillsForRecv", Value::Number(10_000)),
        ("maxInvisibleTimeMills", Value::Number(43_200_000)),
        ("enableBatchAck", Value::Bool(false)),
        ("longPollingReserveTimeInMillis", Value::Number(100)),
        ("grpcClientConsumerMinLongPollingTimeoutMillis", Value::Number(5_000)),
        ("grpcClientConsumerMaxLongPollingTimeoutMillis", Value::Number(20_000)),
        ("grpcClientConsumerLongPollingBatchSize", Value::Number(32)),
        ("grpcMaxInboundMessageSize", Value::Number(136_314_880)),
        ("grpcClientIdleTimeMills", Value::Number(120_000)),
        ("grpcServerPort", Value::Number(8_081)),
        ("maxMessageSize", Value::Number(4_194_304)),
        ("maxUserPropertySize", Value::Number(16_384)),
        ("userPropertyMaxNum", Value::Number(128)),
        ("maxMessageGroupSize", Value::Number(64)),
        ("maxDelayTimeMills", Value::Number(86_400_000)),
        ("maxTransactionRecoverySecond", Value::Number(3_600)),
        ("topicRouteServiceCacheExpiredSeconds", Value::Number(300)),
        ("topicRouteServiceCacheRefreshSeconds", Value::Number(20)),
    ] {
        let key = Config::keys().into_iter().find(|key| key.name == name);
        assert_eq!(key.map(|key| key.default), Some(default), "{name}");
    }
}

#[test]
fn a_wrong_value_is_refused_with_key_line_and_range() {
    let error = load("namesrvAddr: a:1\nrenewAheadTimeMillis: -5\n").expect_err("out of range");
    for part in ["line 2", "renewAheadTimeMillis", "-5", "0 to 3600000 ms"] {
        assert!(error.contains(part), "{part} is not in: {error}");
    }
    for (text, parts) in [
        ("namesrvAddr: a:1\nenableBatchAk: true\n", ["enableBatchAk", "line 2"]),
        ("namesrvAddr: a:1\nenableBatchAck: 7\n", ["enableBatchAck", "line 2"]),
        ("namesrvAddr: localhost\n", ["namesrvAddr", "host:port"]),
        ("namesrvAddr: a:1\ngrpcServerHost: somewhere\n", ["grpcServerHost", "IP address"]),
    ] {
        let error = load(text).expect_err(text);
        for part in parts {
            assert!(error.contains(part), "{part} is not in: {error}");
        }
    }
}

/// Of keys that do not fit each other, with what follows the file's name in the message.
const MISFITS: &[(&str, &str)] = &[
    (
        "namesrvAddr: a:1\nmaxInvisibleTimeMills: 5000\n",
        " line 2, maxInvisibleTimeMills: 5000 is less than minInvisibleTimeMillsForRecv, which is 10000 by default",
    ),
    (
        "namesrvAddr: a:1\n\ndefaultInvisibleTimeMills: 43200001\n",
        " line 3, defaultInvisibleTimeMills: 43200001 is more than maxInvisibleTimeMills, which is 43200000 by default",
    ),
    (
        "maxInvisibleTimeMills: 8000\nnamesrvAddr: a:1\nminInvisibleTimeMillsForRecv: 9000\n",
        " line 3, minInvisibleTimeMillsForRecv: 9000 is more than maxInvisibleTimeMills, which is 8000",
    ),
    (
        // Written out, a default is no less a default.
        "minInvisibleTimeMillsForRecv: 10000\nmaxInvisibleTimeMills: 8000\nnamesrvAddr: a:1\n",
        " line 2, maxInvisibleTimeMills: 8000 is less than minInvisibleTimeMillsForRecv, which is 10000 by default",
    ),
    (
        "namesrvAddr: a:1\ntopicRouteServiceCacheExpiredSeconds: 10\n",
        " line 2, topicRouteServiceCacheExpiredSeconds: 10 is less than topicRouteServiceCacheRefreshSeconds, which is 20 by default",
    ),
    (
        "namesrvAddr: a:1\ntlsCertPath: /tls/tls.crt\n",
        " line 2, tlsCertPath: needs tlsKeyPath, which is not set; set both or neither",
    ),
    (
        "tlsKeyPath: /tls/tls.key\nnamesrvAddr: a:1\n",
        " line 1, tlsKeyPath: needs tlsCertPath, which is not set; set both or neither",
    ),
    ("enableBatchAck: true\n", ", namesrvAddr: is not set; use at least one host:port"),
    ("enableBatchAck: true\nnamesrvAddr: ''\n", " line 2, namesrvAddr: is not set; use at least one host:port"),
];

#[test]
fn keys_that_do_not_fit_each_other_are_named_where_they_were_set() {
    for (text, said) in MISFITS {
        let error = load(text).expect_err(text);
        assert!(error.ends_with(&format!("sidecar.yaml{said}")), "not {said} but {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn so_they_are_when_the_file_changes_and_the_last_good_one_stays() {
    let dir = tempfile::tempdir().expect("directory");
    let (path, next) = (dir.path().join("sidecar.yaml"), dir.path().join("next"));
    // A rename changes the inode, whatever the resolution of times.
    let write = |text: &str| std::fs::write(&next, text).and_then(|()| std::fs::rename(&next, &path)).expect("write");
    write("namesrvAddr: a:1\ngrpcServerPort: 7\n");
    let live = Arc::new(Live::<Config>::load(&path).expect("valid"));
    let stop = CancellationToken::new();
    let watching = tokio::spawn(Arc::clone(&live).watch(stop.clone()));
    for (text, said) in MISFITS {
        write(text);
        tokio::time::sleep(Duration::from_secs(5)).await;
        let error = live.status().error.expect(text);
        assert!(error.ends_with(&format!("sidecar.yaml{said}")), "not {said} but {error}");
        assert_eq!((live.status().generation, live.get().grpc_server_port), (1, 7), "the last good one stays");
    }
    stop.cancel();
    watching.await.expect("no panic");
}

#[test]
fn address_lists_take_both_separators() {
    assert_eq!(addresses(" a:1; b:2,a:1 ;;"), ["a:1", "b:2"]);
    for good in ["a:1", "broker-0.broker.default.svc:10911;broker-1.broker.default.svc:10911", "[::1]:9876"] {
        assert_eq!(Config { namesrv_addr: good.into(), ..valid() }.validate(), Ok(()), "{good}");
    }
    for bad in ["", ";", "a", "a:", ":1", "a:0", "a:65536", "a:1;b", "a b:1", "::1:9876"] {
        assert!(Config { namesrv_addr: bad.into(), ..valid() }.validate().is_err(), "{bad}");
    }
}

#[test]
fn the_documentation_page_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/configuration-sidecar.md");
    let page = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        page == document(),
        "docs/configuration-sidecar.md differs from the table of keys; make it with: cargo run -p waybill-sidecar -- --print-config-docs > docs/configuration-sidecar.md"
    );
}
