//! When resources are compared although nothing happened to them.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use kube::Resource;
use kube::runtime::reflector::{ObjectRef, Store};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::noticed::those;
use crate::reconcile::key;

/// A round has so many parts, and each resource is in one of them.
const PARTS: u32 = 64;
/// From one resource to the next in a round that is soon to be over: about as long as one takes.
const SOON: Duration = Duration::from_millis(3);

/// Each of the known resources once in every `period`, which is at least a second, and soon after `listed` tells that they were listed
/// anew. They are spread: a thousand do not ask at once, and the controller has no thousand to remember; its queues keep the room for
/// the most that they ever held, which is more than the resources themselves need.
pub(crate) fn resync<K>(
    known: Store<K>,
    listed: Arc<Notify>,
    period: Duration,
) -> impl Stream<Item = ObjectRef<K>> + Send + 'static
where
    K: Resource<DynamicType = ()> + Clone + Send + Sync + 'static,
{
    let pause = period.max(Duration::from_secs(1)) / PARTS;
    // The next part, how many of the parts are to come soon, and when the next one is due.
    stream::unfold((0, 0, pause), move |(part, mut soon, wait)| {
        let (known, listed) = (known.clone(), listed.clone());
        async move {
            tokio::select! {
                () = listed.notified() => soon = PARTS,
                () = sleep(wait) => {}
            }
            let due = those(&known, |resource| part_of(&key(resource)) == part);
            soon = u32::saturating_sub(soon, 1);
            let wait = if soon == 0 { pause } else { SOON * u32::try_from(due.len()).unwrap_or(PARTS) };
            Some((stream::iter(due), ((part + 1) % PARTS, soon, wait)))
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

    use futures::FutureExt;
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
        let again = resync(known, Arc::default(), period);
        let twice: Vec<(String, Duration)> =
            again.take(2 * MANY).map(|one| (one.name, began.elapsed())).collect().await;
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
    #[tokio::test(start_paused = true)]
    async fn what_is_listed_anew_comes_soon_and_once() {
        let (known, mut writer) = reflector::store::<ConfigMap>();
        for n in 0..100 {
            let mut one = ConfigMap::default();
            one.metadata.name = Some(format!("m{n}"));
            writer.apply_watcher_event(&watcher::Event::Apply(one));
        }
        let listed = Arc::<Notify>::default();
        let mut again = std::pin::pin!(resync(known, listed.clone(), Duration::from_secs(6_400)));
        assert!(again.next().now_or_never().is_none());
        listed.notify_one();
        let began = Instant::now();
        let mut names: Vec<String> = again.by_ref().take(100).map(|one| one.name).collect().await;
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 100);
        again.next().await;
        assert!(began.elapsed() > Duration::from_secs(50), "and then as ever");
    }
}
