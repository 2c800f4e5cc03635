use super::*;
use serde::Deserialize;

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Settings {
    renew_ahead_ms: u64,
    flush: Flush,
    store: Store,
    port: u16,
    admin: Option<std::net::SocketAddr>,
    bind: Option<std::net::IpAddr>,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Flush {
    Sync,
    Async,
}

#[derive(Debug, Deserialize, PartialEq, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Store {
    segment_bytes: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { renew_ahead_ms: 10, flush: Flush::Sync, store: Store::default(), port: 1, admin: None, bind: None }
    }
}

impl Validate for Settings {
    fn validate(&self) -> Result<(), Invalid> {
        if self.store.segment_bytes > 100 {
            return Err(Invalid::new("store.segmentBytes", "must be at most 100"));
        }
        Ok(())
    }
}

struct Files(tempfile::TempDir);

impl Files {
    fn new(text: &str) -> Self {
        let files = Self(tempfile::tempdir().expect("directory"));
        files.write(text);
        files
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("waybill.yaml")
    }

    /// Replaces the file, so that its inode changes whatever the resolution of its times.
    fn write(&self, text: &str) {
        let next = self.0.path().join("next");
        std::fs::write(&next, text).expect("write");
        std::fs::rename(&next, self.path()).expect("rename");
    }

    fn error(&self) -> ConfigError {
        Live::<Settings>::load(self.path()).expect_err("a mistake")
    }
}

#[test]
fn reads_yaml_and_json() {
    let files = Files::new("renewAheadMs: 7\nflush: async\n");
    let live = Live::<Settings>::load(files.path()).expect("valid");
    assert_eq!(*live.get(), Settings { renew_ahead_ms: 7, flush: Flush::Async, ..Settings::default() });
    files.write("{\"store\": {\"segmentBytes\": 100}}");
    assert_eq!(Live::<Settings>::load(files.path()).expect("valid").get().store.segment_bytes, 100);
    files.write("");
    assert_eq!(*Live::<Settings>::load(files.path()).expect("valid").get(), Settings::default());
}

#[test]
fn a_mistake_is_named_with_file_line_and_key() {
    let files = Files::new("flush: sync\nrenewAheadMs: soon\n");
    let error = files.error();
    assert_eq!((error.line(), error.key()), (Some(2), Some("renewAheadMs")), "{error}");
    assert!(error.to_string().contains("waybill.yaml line 2, renewAheadMs: "), "{error}");
    assert!(!error.to_string().contains("column"), "the place is told once: {error}");

    files.write("store:\n  segmentBytes: 5\n  segmentBites: 6\n");
    let error = files.error();
    assert_eq!((error.line(), error.key()), (Some(3), Some("store.segmentBites")), "{error}");
    assert!(error.to_string().ends_with("unknown key; did you mean segmentBytes?"), "{error}");

    files.write("store:\n  flush: sync\n");
    assert!(files.error().to_string().ends_with("store.flush: unknown key"), "{}", files.error());

    files.write("\nflush: perhaps\n");
    let error = files.error();
    assert_eq!((error.line(), error.key()), (Some(2), Some("flush")), "{error}");

    files.write("flush: sync\nstore:\n  segmentBytes: 101\n");
    let error = files.error();
    assert_eq!((error.line(), error.key()), (Some(3), Some("store.segmentBytes")), "{error}");
    assert!(error.to_string().ends_with("must be at most 100"), "{error}");

    files.write("flush: [sync\n");
    assert!(files.error().line().is_some(), "{}", files.error());

    std::fs::remove_file(files.path()).expect("remove");
    assert!(files.error().to_string().contains("cannot be opened"), "{}", files.error());
}

#[test]
fn whatever_type_a_value_should_have_its_line_and_key_are_named() {
    for (line, key) in [
        ("admin: 8082", "admin"),
        ("admin: hello", "admin"),
        ("admin: [1]", "admin"),
        ("port: hello", "port"),
        ("port: 70000", "port"),
        ("port: -1", "port"),
        ("port: 1.5", "port"),
        ("bind: 1", "bind"),
        ("bind: here", "bind"),
        ("flush: 1", "flush"),
        ("flush: [sync]", "flush"),
        ("store: 1", "store"),
        ("renewAheadMs:", "renewAheadMs"),
    ] {
        for (text, number) in [(format!("{line}\n"), 1), (format!("# comment\n\nstore: {{}}\n{line}\n"), 4)] {
            let error = Files::new(&text).error();
            assert_eq!((error.line(), error.key()), (Some(number), Some(key)), "{text}{error}");
        }
    }
}

#[test]
fn a_good_change_takes_effect_and_a_bad_one_does_not() {
    let files = Files::new("renewAheadMs: 1\n");
    let live = Live::<Settings>::load(files.path()).expect("valid");
    let mut generations = live.subscribe();
    let mut poller = Poller::default();
    let mut looks = |n: usize| (0..n).for_each(|_| live.poll(&files.path(), &mut poller));
    let first = live.status();
    looks(3);
    assert_eq!(live.status(), first, "nothing changed");
    assert!(!generations.has_changed().expect("open"));

    files.write("renewAheadMs: 2\n");
    looks(1);
    assert_eq!(live.get().renew_ahead_ms, 1, "it may still be changing");
    looks(1);
    assert_eq!(live.get().renew_ahead_ms, 2);
    assert_eq!(*generations.borrow_and_update(), 2);
    let second = live.status();
    assert_eq!((second.generation, &second.error), (2, &None));
    assert_ne!(second.hash, first.hash);

    files.write("renewAheadMs: never\n");
    looks(2);
    assert_eq!(live.get().renew_ahead_ms, 2, "the last good one stays");
    let refused = live.status();
    assert_eq!((refused.generation, &refused.hash), (2, &second.hash));
    assert!(refused.error.is_some_and(|e| e.contains("line 1, renewAheadMs")));
    assert!(!generations.has_changed().expect("open"));

    files.write("renewAheadMs: 2\n");
    looks(2);
    assert_eq!(live.status(), second, "back to what is in force: no new generation, no error left");

    let mut registry = Registry::default();
    live.register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).expect("text");
    for line in [
        "waybill_config_reloads_total 1",
        "waybill_config_reload_failures_total 1",
        "waybill_config_generation 2",
        "waybill_config_in_force 1",
        &format!("waybill_config_info{{hash=\"{}\"}} 1", second.hash),
    ] {
        assert!(text.contains(line), "{line} is missing in {text}");
    }
    assert_eq!(text.matches("waybill_config_info{").count(), 1, "the hash of before is gone");
}

#[test]
fn a_swapped_configmap_is_noticed() {
    let dir = tempfile::tempdir().expect("directory");
    let at = |name: &str| dir.path().join(name);
    let fill = |name: &str, text: &str| {
        std::fs::create_dir(at(name)).expect("create");
        std::fs::write(at(name).join("waybill.yaml"), text).expect("write");
    };
    let turn = |name: &str| {
        std::os::unix::fs::symlink(name, at("..data_tmp")).expect("link");
        std::fs::rename(at("..data_tmp"), at("..data")).expect("swap");
    };
    fill("..1", "renewAheadMs: 1\n");
    turn("..1");
    std::os::unix::fs::symlink("..data/waybill.yaml", at("waybill.yaml")).expect("link");

    let path = at("waybill.yaml");
    let live = Live::<Settings>::load(&path).expect("valid");
    let mut poller = Poller::default();
    live.poll(&path, &mut poller);
    fill("..2", "renewAheadMs: 2\n");
    turn("..2");
    live.poll(&path, &mut poller);
    live.poll(&path, &mut poller);
    assert_eq!(live.get().renew_ahead_ms, 2);
}

#[tokio::test]
async fn watching_ends_with_the_process() {
    let stop = CancellationToken::new();
    let fixed = Arc::new(Live::fixed(Settings::default()));
    let files = Files::new("renewAheadMs: 1\n");
    let loaded = Arc::new(Live::<Settings>::load(files.path()).expect("valid"));
    let tasks = [tokio::spawn(fixed.watch(stop.clone())), tokio::spawn(loaded.watch(stop.clone()))];
    stop.cancel();
    for task in tasks {
        task.await.expect("ends");
    }
}

#[test]
fn the_command_line_goes_over_every_state_of_the_file() {
    let files = Files::new("renewAheadMs: 7\n");
    let adjust = |settings: &mut Settings| settings.store.segment_bytes = 50;
    let live = Live::load_adjusted(files.path(), adjust).expect("valid");
    assert_eq!((live.get().renew_ahead_ms, live.get().store.segment_bytes), (7, 50));
    files.write("renewAheadMs: 8\nstore: {segmentBytes: 1}\n");
    live.reload(&files.path());
    assert_eq!((live.get().renew_ahead_ms, live.get().store.segment_bytes), (8, 50));
    let refused = Live::load_adjusted(files.path(), |settings: &mut Settings| settings.store.segment_bytes = 101);
    assert_eq!(refused.expect_err("validated afterwards").key(), Some("store.segmentBytes"));
}

#[test]
fn what_the_command_line_decides_the_file_must_not_set() {
    let files = Files::new("renewAheadMs: 7\nflush: async\n");
    let load = || {
        let decided = vec![Invalid::new("flush", "--flush says")];
        Live::load_decided(files.path(), decided, |settings: &mut Settings| settings.flush = Flush::Sync)
    };
    let refused = load().expect_err("set");
    assert_eq!((refused.line(), refused.key()), (Some(2), Some("flush")));
    assert!(refused.to_string().ends_with("waybill.yaml line 2, flush: --flush says"), "{refused}");
    for (same, said) in [("{renewAheadMs: 7, \"flush\": sync}", "sync as well"), ("'flush': sync\n", "quoted")] {
        files.write(same);
        assert_eq!(load().expect_err(said).key(), Some("flush"));
    }
    for sets_none in ["", "# flush: async\n", "store: {segmentBytes: 1}\n"] {
        files.write(sets_none);
        assert_eq!(load().expect("not set").get().flush, Flush::Sync, "{sets_none}");
    }
    let live = load().expect("not set");
    files.write("flush: async\n");
    live.reload(&files.path());
    let status = live.status();
    assert_eq!(status.generation, 1, "the last good one stays");
    assert!(status.error.is_some_and(|error| error.contains("--flush says")));
}
