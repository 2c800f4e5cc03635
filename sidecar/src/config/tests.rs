use std::collections::BTreeSet;

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
        ("namesrvAddr: a:1\ntlsCertPath: /tls/tls.crt\n", ["tlsKeyPath", "tlsCertPath is set"]),
        (
            "namesrvAddr: a:1\nminInvisibleTimeMillsForRecv: 9000\nmaxInvisibleTimeMills: 8000\ndefaultInvisibleTimeMills: 8000\n",
            ["minInvisibleTimeMillsForRecv", "maxInvisibleTimeMills, which is 8000"],
        ),
    ] {
        let error = load(text).expect_err(text);
        for part in parts {
            assert!(error.contains(part), "{part} is not in: {error}");
        }
    }
}

#[test]
fn address_lists_take_both_separators() {
    assert_eq!(addresses(" a:1; b:2,a:1 ;;"), ["a:1", "b:2"]);
    for good in ["a:1", "broker-0.broker.default.svc:10911;broker-1.broker.default.svc:10911", "[::1]:9876"] {
        assert_eq!(Config { namesrv_addr: good.into(), ..valid() }.validate(), Ok(()), "{good}");
    }
    for bad in ["", ";", "a", "a:", ":1", "a:0", "a:65536", "a:1;b", "a b:1"] {
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
