//! A configuration file that takes effect while the process runs.
//!
//! The file is YAML (and so may be JSON). A file that cannot be read, parsed or validated changes nothing: the last
//! good one stays in force and the mistake is reported, with file, line and key.

mod error;
mod file;
mod nearest;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use error::{ConfigError, Invalid};
use file::{Fingerprint, Hasher, Poller, Step};

/// How often the file's metadata is looked at. A change is loaded once it was the same at two looks in a row.
const POLL_EVERY: Duration = Duration::from_secs(1);

/// Checks what types alone cannot.
pub trait Validate {
    /// Whether the file holds secrets: then nothing of what is written in it is repeated in messages, and its hash is of use only
    /// within this process.
    const SECRET: bool = false;

    /// An error names the key and says what is wrong with its value.
    fn validate(&self) -> Result<(), Invalid>;
}

/// What is known about the configuration in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// 1 at the start, one more with each change that took effect.
    pub generation: u64,
    /// Of the file's bytes, 16 hexadecimal digits; empty when there is no file. Equal files have equal hashes, but if they hold
    /// secrets only within one process.
    pub hash: String,
    /// Why the file as it is now is not in force.
    pub error: Option<String>,
}

/// What the command line says: it goes over the file, also over each new state of it.
struct Adjust<T> {
    apply: Box<dyn Fn(&mut T) + Send + Sync>,
    /// Keys of the outermost level that the file must not set, and why.
    decided: Vec<Invalid>,
}

impl<T> std::fmt::Debug for Adjust<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Adjust")
    }
}

/// The configuration in force, and the way to the next one.
#[derive(Debug)]
pub struct Live<T> {
    path: Option<PathBuf>,
    hasher: Hasher,
    adjust: Adjust<T>,
    current: ArcSwap<T>,
    status: Mutex<Status>,
    generation: watch::Sender<u64>,
    metrics: Metrics,
}

#[derive(Debug, Clone, Default)]
struct Metrics {
    reloads: Counter,
    failures: Counter,
    generation: Gauge<i64, AtomicI64>,
    in_force: Gauge<i64, AtomicI64>,
    info: Family<Info, Gauge<i64, AtomicI64>>,
}

/// Tells replicas with different files apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Info {
    hash: String,
}

impl Metrics {
    fn show_hash(&self, hash: &str) {
        self.info.clear();
        self.info.get_or_create(&Info { hash: hash.to_owned() }).set(1);
    }
}

impl<T> Live<T> {
    fn new(value: T, path: Option<PathBuf>, (hasher, hash): (Hasher, String), adjust: Adjust<T>) -> Self {
        let metrics = Metrics::default();
        metrics.generation.set(1);
        metrics.in_force.set(1);
        metrics.show_hash(&hash);
        Self {
            path,
            hasher,
            adjust,
            current: ArcSwap::from_pointee(value),
            status: Mutex::new(Status { generation: 1, hash, error: None }),
            generation: watch::Sender::new(1),
            metrics,
        }
    }

    /// A configuration without a file; it never changes.
    pub fn fixed(value: T) -> Self {
        let hash = (Hasher::default(), String::new());
        Self::new(value, None, hash, Adjust { apply: Box::new(|_| {}), decided: Vec::new() })
    }

    /// The configuration in force. Cheap; take it once for each piece of work, so that the work sees one state.
    pub fn get(&self) -> Arc<T> {
        self.current.load_full()
    }

    /// Tells of each new generation. The configuration is in force before the number is sent.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    /// Generation, hash and the present mistake, for `/config` and for people.
    pub fn status(&self) -> Status {
        self.status.lock().clone()
    }

    /// Adds the metrics of the configuration file to `registry`.
    pub fn register(&self, registry: &mut Registry) {
        let names = [
            ("waybill_config_reloads", "Changes of the configuration file that took effect"),
            ("waybill_config_reload_failures", "Changes of the configuration file that were refused"),
            ("waybill_config_generation", "Number of the configuration in force"),
            ("waybill_config_in_force", "1 while the file as it is now is in force"),
        ];
        self.register_as(registry, names);
        let about = "1, with the hash of the configuration in force: empty without a file";
        registry.register("waybill_config_info", about, self.metrics.info.clone());
    }

    /// Adds the metrics of another file to `registry`: name and help of the changes that took effect, of those that were refused, of
    /// the generation, and of whether the file as it is now is in force.
    pub fn register_as(&self, registry: &mut Registry, names: [(&'static str, &'static str); 4]) {
        let [reloads, failures, generation, in_force] = names;
        let m = &self.metrics;
        registry.register(reloads.0, reloads.1, m.reloads.clone());
        registry.register(failures.0, failures.1, m.failures.clone());
        registry.register(generation.0, generation.1, m.generation.clone());
        registry.register(in_force.0, in_force.1, m.in_force.clone());
    }
}

impl<T: DeserializeOwned + Validate> Live<T> {
    /// Reads the file for the first time.
    ///
    /// # Errors
    /// The file cannot be read, is no YAML, has an unknown or wrong value, or is not valid. The process should then
    /// not start: exit code 64.
    pub fn load(path: impl Into<PathBuf>) -> Result<Self, ConfigError> {
        Self::load_adjusted(path, |_| {})
    }

    /// Like [`Live::load`]; `adjust` goes over what the file says, now and after each change, before it is validated.
    ///
    /// # Errors
    /// As [`Live::load`].
    pub fn load_adjusted(
        path: impl Into<PathBuf>,
        adjust: impl Fn(&mut T) + Send + Sync + 'static,
    ) -> Result<Self, ConfigError> {
        Self::load_decided(path, Vec::new(), adjust)
    }

    /// Like [`Live::load_adjusted`]; the file must not set the keys of the outermost level in `decided`, on which `adjust` has
    /// the last word whatever the file says: each comes with who decides instead.
    ///
    /// # Errors
    /// As [`Live::load`]; also when the file sets such a key.
    pub fn load_decided(
        path: impl Into<PathBuf>,
        decided: Vec<Invalid>,
        adjust: impl Fn(&mut T) + Send + Sync + 'static,
    ) -> Result<Self, ConfigError> {
        let path = path.into();
        let text = file::read(&path)?;
        let adjust = Adjust { apply: Box::new(adjust), decided };
        let value = parse(&path, &text, &adjust)?;
        let hasher = if T::SECRET { Hasher::of_this_process() } else { Hasher::default() };
        let hash = hasher.hash(&text);
        Ok(Self::new(value, Some(path), (hasher, hash), adjust))
    }

    /// Follows the file until `stop`, looking at its metadata once a second. Without a file it only waits.
    pub async fn watch(self: Arc<Self>, stop: CancellationToken) {
        let Some(path) = self.path.clone() else {
            return stop.cancelled().await;
        };
        let mut poller = Poller::default();
        let mut ticks = tokio::time::interval(POLL_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _tick = ticks.tick() => self.poll(&path, &mut poller),
            }
        }
    }

    fn poll(&self, path: &Path, poller: &mut Poller) {
        if poller.step(Fingerprint::of(path)) == Step::Load {
            self.reload(path);
        }
    }

    fn reload(&self, path: &Path) {
        let loaded = file::read(path).and_then(|text| {
            let hash = self.hasher.hash(&text);
            let changed = self.status.lock().hash != hash;
            Ok((if changed { Some(parse(path, &text, &self.adjust)?) } else { None }, hash))
        });
        match loaded {
            Ok((Some(value), hash)) => self.put_in_force(value, hash),
            Ok((None, _same)) => self.set_error(None),
            Err(error) => {
                tracing::error!(%error, "the changed configuration is refused; the last good one stays in force");
                self.metrics.failures.inc();
                self.set_error(Some(error.to_string()));
            }
        }
    }

    fn put_in_force(&self, value: T, hash: String) {
        self.current.store(Arc::new(value));
        let generation = {
            let mut status = self.status.lock();
            status.generation += 1;
            status.hash.clone_from(&hash);
            status.generation
        };
        self.set_error(None);
        self.metrics.reloads.inc();
        self.metrics.show_hash(&hash);
        self.metrics.generation.set(i64::try_from(generation).unwrap_or(i64::MAX));
        tracing::info!(generation, hash, "the changed configuration is in force");
        self.generation.send_replace(generation);
    }

    fn set_error(&self, error: Option<String>) {
        self.metrics.in_force.set(i64::from(error.is_none()));
        self.status.lock().error = error;
    }
}

fn parse<T: DeserializeOwned + Validate>(path: &Path, text: &str, adjust: &Adjust<T>) -> Result<T, ConfigError> {
    let mut value: T = serde_yaml::from_str(text).map_err(|error| match error.location() {
        _ if T::SECRET => ConfigError::of_secrets(path, &error),
        Some(_) => ConfigError::syntax(path, text, &error),
        // What a type says of its own text comes without its place.
        None => ConfigError::value(path, text, wrong_key::<T>(text), &error),
    })?;
    if let Some(decided) = decided(text, &adjust.decided) {
        return Err(ConfigError::invalid(path, text, decided.clone()));
    }
    (adjust.apply)(&mut value);
    value.validate().map_err(|invalid| ConfigError::invalid(path, text, invalid))?;
    Ok(value)
}

/// The first key of the outermost level whose value cannot be read.
fn wrong_key<T: DeserializeOwned>(text: &str) -> Option<String> {
    let set: BTreeMap<String, serde_json::Value> = serde_yaml::from_str(text).ok()?;
    set.into_iter().find_map(|(key, value)| {
        let alone = serde_json::Value::from_iter([(key.clone(), value)]);
        serde_json::from_value::<T>(alone).is_err().then_some(key)
    })
}

/// The first of the keys that the text sets.
fn decided<'a>(text: &str, keys: &'a [Invalid]) -> Option<&'a Invalid> {
    if keys.is_empty() {
        return None;
    }
    // A text that is no map, an empty one say, sets none.
    let set: BTreeMap<String, IgnoredAny> = serde_yaml::from_str(text).unwrap_or_default();
    keys.iter().find(|decided| set.contains_key(&decided.key))
}

#[cfg(test)]
mod tests;
