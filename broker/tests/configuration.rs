//! The page about the configuration says what the code does.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use waybill_broker::BrokerConfig;
use waybill_ops::config::Live;

fn rows() -> Vec<(String, String, String)> {
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/configuration-broker.md")).unwrap();
    page.lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            (cells[1].trim_matches('`').to_owned(), cells[2].trim_matches('`').to_owned(), cells[4].to_owned())
        })
        .collect()
}

#[test]
fn every_key_is_documented_with_its_default_and_no_other() {
    let defaults = serde_json::to_value(BrokerConfig::default()).unwrap();
    let mut in_code: Vec<(String, String)> = defaults
        .as_object()
        .unwrap()
        .iter()
        .map(|(key, value)| (key.clone(), value.as_str().map_or_else(|| value.to_string(), str::to_owned)))
        .collect();
    let mut in_page: Vec<_> = rows().into_iter().map(|(key, default, _)| (key, default)).collect();
    in_code.sort();
    in_page.sort();
    assert_eq!(in_page, in_code);
}

/// Another value for every key.
fn all_others() -> BrokerConfig {
    let mut all = serde_json::to_value(BrokerConfig::default()).unwrap();
    for (key, value) in all.as_object_mut().unwrap() {
        *value = match (key.as_str(), &*value) {
            ("bindAddress", _) => "127.0.0.1".into(),
            ("adminListen", _) => serde_json::Value::Null,
            ("flushDiskType", _) => "ASYNC_FLUSH".into(),
            ("tlsServerMode", _) => "disabled".into(),
            (_, serde_json::Value::Bool(is)) => (!is).into(),
            (_, serde_json::Value::Number(is)) => (is.as_u64().unwrap() + 1).into(),
            (_, serde_json::Value::String(is)) => format!("{is}-other").into(),
            _list => vec!["another"].into(),
        };
    }
    serde_json::from_value(all).unwrap()
}

#[test]
fn keys_take_effect_when_the_page_says_so() {
    let (started, file) = (BrokerConfig::default(), all_others());
    let at_start = started.needs_restart(&file);
    for (key, _, takes_effect) in rows() {
        assert_eq!(takes_effect, if at_start.contains(&key) { "at start" } else { "at once" }, "{key}");
        assert_eq!(waybill_broker::DYNAMIC.contains(&key.as_str()), takes_effect == "at once", "{key}");
    }
    let now = started.with_dynamic_keys_of(&file);
    assert_eq!(now.needs_restart(&file), at_start);
    assert_eq!((now.batch_max_entries, now.listen_port), (file.batch_max_entries, started.listen_port));
}

#[test]
fn a_broker_that_is_to_go_is_read_only() {
    let of = |permission, names: &[&str]| {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        BrokerConfig { broker_permission: permission, read_only_brokers: names, ..BrokerConfig::default() }.permission()
    };
    assert_eq!((of(6, &[]), of(6, &["broker-b"]), of(6, &["broker-b", "broker-a"])), (6, 6, 4));
    assert_eq!((of(2, &["broker-a"]), of(4, &["broker-a"])), (0, 4));
}

#[test]
fn a_wrong_key_or_value_is_refused_by_name() {
    let file = tempfile::NamedTempFile::new().unwrap();
    for (text, expected) in [
        ("brokerNam: x\n", "brokerNam"),
        ("defaultTopicQueueNums: 0\n", "defaultTopicQueueNums"),
        ("flushDiskType: MAYBE_FLUSH\n", "MAYBE_FLUSH"),
        ("brokerName: two words\n", "brokerName"),
        ("maxMessageSize: 99999999\n", "maxMessageSize"),
        ("tlsServerMode: sometimes\n", "sometimes"),
        ("tlsServerMode: enforcing\n", "tlsServerMode"),
        ("tlsServerCertPath: a\n", "tlsServerKeyPath"),
        ("tlsServerKeyPath: a\n", "tlsServerCertPath"),
    ] {
        std::fs::write(file.path(), text).unwrap();
        let error = Live::<BrokerConfig>::load(file.path()).expect_err("refused").to_string();
        assert!(error.contains(expected), "{error}");
    }
    std::fs::write(file.path(), "brokerName: b\nflushDiskType: ASYNC_FLUSH\n").unwrap();
    assert_eq!(Live::<BrokerConfig>::load(file.path()).unwrap().get().broker_name, "b");
}

#[test]
fn wrong_usage_ends_the_program_with_2_and_a_wrong_file_with_64() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "listenPort: 0\nbrokerNam: x\n").unwrap();
    let path = file.path().to_str().unwrap();
    for (arguments, code, parts) in [
        (&["--bogus"][..], 2, &["--bogus", "--help"][..]),
        (&["--listen", "somewhere"], 2, &["--listen"]),
        (&["--name", "two words"], 2, &["brokerName", "two words"]),
        (
            &["--config", path],
            64,
            &["line 2, brokerNam: unknown key; did you mean brokerName?", "configuration-broker.md"],
        ),
    ] {
        let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_waybill-broker"));
        let output = program.args(arguments).env_remove("RUST_LOG").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        for part in parts {
            assert!(said.contains(part), "{part} is not in: {said}");
        }
    }
}
