//! When resources are compared again although nothing happened.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use kube::Resource;
use kube::runtime::reflector::{ObjectRef, Store};
use tokio::time::{MissedTickBehavior, interval};

use crate::noticed::those;
use crate::reconcile::key;

/// A period has so many parts, and each resource is in one of them.
const PARTS: u32 = 64;

/// Each of the known resources once in every `period`, which is at least a second; they are spread over it, so that a thousand do not
/// ask at once. To ask the controller for each one's next time would need more memory than the resource itself.
pub(crate) fn resync<K>(known: Store<K>, period: Duration) -> impl Stream<Item = ObjectRef<K>> + Send + 'static
where
    K: Resource<DynamicType = ()> + Clone + Send + Sync + 'static,
{
    let mut ticks = interval(period.max(Duration::from_secs(1)) / PARTS);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    stream::unfold((ticks, 0), move |(mut ticks, part)| {
        let known = known.clone();
        async move {
            ticks.tick().await;
            let due = those(&known, |resource| part_of(&key(resource)) == part);
            Some((stream::iter(due), (ticks, (part + 1) % PARTS)))
        }
    })
    .flatten()
}

fn part_of(key: &str) -> u32 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    u32::try_from(hasher.finish() % u64::from(PARTS)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::runtime::{reflector, watcher};
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_comes_once_in_a_period_and_they_are_spread() {
        const MANY: usize = 300;
        let period = Duration::from_secs(64);
        let (known, mut writer) = reflector::store::<ConfigMap>();
        for n in 0..MANY {
            let mut one = ConfigMap::default();
            one.metadata.name = Some(format!("m{n}"));
            writer.apply_watcher_event(&watcher::Event::Apply(one));
        }
        let began = Instant::now();
        let twice: Vec<(String, Duration)> =
            resync(known, period).take(2 * MANY).map(|one| (one.name, began.elapsed())).collect().await;
        let mut times: BTreeMap<String, Vec<Duration>> = BTreeMap::new();
        twice.into_iter().for_each(|(name, at)| times.entry(name).or_default().push(at));
        assert_eq!(times.len(), MANY);
        let mut at_once: BTreeMap<Duration, usize> = BTreeMap::new();
        for came in times.values() {
            let [first, second] = came.as_slice() else { panic!("not twice: {came:?}") };
            assert_eq!(*second - *first, period);
            *at_once.entry(*first).or_default() += 1;
        }
        assert!(at_once.len() > 50 && at_once.values().all(|many| *many < 20), "{at_once:?}");
    }
}
