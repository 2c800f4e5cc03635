//! What happens when the file changes while the process runs.

use std::sync::Arc;

use serde_json::{Value as Json, json};
use tokio_util::sync::CancellationToken;
use waybill_ops::config::Live;

use super::{Config, Effect};

/// The names of the keys that `new` changes and that only count after a restart.
fn waiting_for_restart(running: &Config, new: &Config) -> Vec<&'static str> {
    Config::keys()
        .into_iter()
        .zip(running.values().into_iter().zip(new.values()))
        .filter(|(key, (old, new))| key.effect == Effect::Restart && old != new)
        .map(|(key, _)| key.name)
        .collect()
}

/// For `/config`: the values that count, and which keys of the file wait for a restart. `running` is what the process
/// was started with.
#[must_use]
pub fn effective(running: &Config, live: &Live<Config>) -> Json {
    let file = live.get();
    let config = Config::clone(&file).with_restart_keys_of(running);
    json!({ "config": config, "needsRestart": waiting_for_restart(running, &file), "file": live.status() })
}

/// Says in the log which changes of the file wait for a restart, until `stop`.
pub async fn report_changes(running: Arc<Config>, live: Arc<Live<Config>>, stop: CancellationToken) {
    let mut generations = live.subscribe();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            changed = generations.changed() => if changed.is_err() { return },
        }
        for key in waiting_for_restart(&running, &live.get()) {
            tracing::warn!(key, "the changed value counts after a restart");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_that_need_a_restart_wait_for_it() {
        let running = Config { namesrv_addr: "127.0.0.1:9876".into(), ..Config::default() };
        let new = Config { grpc_server_port: 9_000, enable_batch_ack: true, ..running.clone() };
        assert_eq!(waiting_for_restart(&running, &new), ["grpcServerPort"]);
        let shown = effective(&running, &Live::fixed(new));
        assert_eq!(shown["needsRestart"], json!(["grpcServerPort"]));
        assert_eq!(shown["config"]["grpcServerPort"], json!(8081), "still the old one");
        assert_eq!(shown["config"]["enableBatchAck"], json!(true), "in force");
        assert_eq!(shown["file"], json!({"generation": 1, "hash": "", "error": null}));
    }
}
