//! What was looked up, for a while: one look-up at a time for each key, refreshed while it is used.

use std::{collections::HashMap, future::Future, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture, future::Shared as SharedFuture};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::backend::BackendError;

/// How long an answer "there is no such thing" is believed.
const NEGATIVE: Duration = Duration::from_secs(1);
/// After a refresh that failed, the old value is used at least so long before the next try.
const RETRY: Duration = Duration::from_secs(1);

type Found<V> = Result<Arc<V>, BackendError>;

/// How long values are good.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ages {
    /// A value so old is looked up again when it is used; the old one is used meanwhile.
    pub(crate) refresh: Duration,
    /// A value so old is not used any more.
    pub(crate) expire: Duration,
}

/// Values by name. Cheap to clone.
pub(crate) struct Cache<V> {
    slots: Arc<Mutex<Slots<V>>>,
    max: usize,
}

struct Slots<V> {
    by_key: HashMap<String, Slot<V>>,
    /// What was asked for until then may be outdated: there may be something better.
    outdated_at: Option<Instant>,
}

struct Slot<V> {
    known: Option<Known<V>>,
    loading: Option<SharedFuture<BoxFuture<'static, Found<V>>>>,
}

struct Known<V> {
    found: Found<V>,
    /// When the look-up began.
    asked_at: Instant,
    /// When it ended.
    at: Instant,
    /// Do not try to refresh before.
    retry_at: Instant,
    /// Something suggests that it is out of date: wait for a look-up, and use this only if that fails.
    suspect: bool,
}

impl<V> Clone for Cache<V> {
    fn clone(&self) -> Self {
        Self { slots: Arc::clone(&self.slots), max: self.max }
    }
}

impl<V: Send + Sync + 'static> Cache<V> {
    /// An empty cache for at most `max` values.
    pub(crate) fn new(max: usize) -> Self {
        let slots = Slots { by_key: HashMap::new(), outdated_at: None };
        Self { slots: Arc::new(Mutex::new(slots)), max: max.max(1) }
    }

    /// The value of `key`; `load` looks it up if that is needed.
    pub(crate) async fn get<F>(&self, key: &str, ages: Ages, load: impl FnOnce() -> F) -> Found<V>
    where
        F: Future<Output = Result<V, BackendError>> + Send + 'static,
    {
        let loading = {
            let mut slots = self.slots.lock();
            let Slots { by_key: slots, outdated_at } = &mut *slots;
            let now = Instant::now();
            if let Some(slot) = slots.get_mut(key) {
                match slot.known.as_ref().map(|known| (known.state(now, ages, *outdated_at), known.found.clone())) {
                    Some((State::Fresh, found)) => return found,
                    Some((State::Stale, found)) => {
                        if slot.loading.is_none() {
                            slot.loading = Some(self.start(key, ages, load()));
                        }
                        return found;
                    }
                    _ => match &slot.loading {
                        Some(loading) => loading.clone(),
                        None => slot.loading.insert(self.start(key, ages, load())).clone(),
                    },
                }
            } else {
                if slots.len() >= self.max {
                    make_room(slots, now, ages, self.max);
                }
                let loading = self.start(key, ages, load());
                slots.insert(key.to_owned(), Slot { known: None, loading: Some(loading.clone()) });
                loading
            }
        };
        loading.await
    }

    /// The next `get` of `key` waits for a look-up.
    pub(crate) fn suspect(&self, key: &str) {
        if let Some(known) = self.slots.lock().by_key.get_mut(key).and_then(|slot| slot.known.as_mut()) {
            known.suspect = true;
        }
    }

    /// Everything is looked up again when it is next used, and used meanwhile.
    pub(crate) fn outdate_all(&self) {
        self.slots.lock().outdated_at = Some(Instant::now());
    }

    /// The value of `key`, however old it is; nothing is looked up.
    pub(crate) fn peek(&self, key: &str) -> Option<Arc<V>> {
        self.slots.lock().by_key.get(key)?.known.as_ref()?.found.as_ref().ok().cloned()
    }

    /// All values that were found, however old, in no order.
    pub(crate) fn known(&self) -> Vec<(String, Arc<V>)> {
        let slots = self.slots.lock();
        let found =
            |(key, slot): (&String, &Slot<V>)| Some((key.clone(), slot.known.as_ref()?.found.as_ref().ok().cloned()?));
        slots.by_key.iter().filter_map(found).collect()
    }

    /// The look-up goes on if those who wait for it go away.
    fn start<F>(&self, key: &str, ages: Ages, load: F) -> SharedFuture<BoxFuture<'static, Found<V>>>
    where
        F: Future<Output = Result<V, BackendError>> + Send + 'static,
    {
        let (cache, key, asked_at) = (self.clone(), key.to_owned(), Instant::now());
        let task = tokio::spawn(async move {
            let found = load.await.map(Arc::new);
            cache.finish(&key, ages, asked_at, found)
        });
        async move { task.await.unwrap_or_else(|failed| Err(BackendError::Unavailable(failed.to_string()))) }
            .boxed()
            .shared()
    }

    /// Keeps what was found and returns what is to be used.
    fn finish(&self, key: &str, ages: Ages, asked_at: Instant, found: Found<V>) -> Found<V> {
        let slots = &mut self.slots.lock().by_key;
        let Some(slot) = slots.get_mut(key) else { return found };
        slot.loading = None;
        let now = Instant::now();
        match &found {
            Ok(_) | Err(BackendError::TopicNotFound(_) | BackendError::GroupNotFound(_)) => {
                slot.known = Some(Known { found: found.clone(), asked_at, at: now, retry_at: now, suspect: false });
                found
            }
            Err(_) => match &mut slot.known {
                Some(known) if known.found.is_ok() && !known.has_expired(now, ages) => {
                    known.retry_at = now + RETRY;
                    known.suspect = false;
                    known.found.clone()
                }
                _ => {
                    slots.remove(key);
                    found
                }
            },
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// To be used as it is.
    Fresh,
    /// To be used, and looked up again.
    Stale,
    /// To be looked up before it is used.
    Doubtful,
    /// Not to be used.
    Expired,
}

impl<V> Known<V> {
    fn state(&self, now: Instant, ages: Ages, outdated_at: Option<Instant>) -> State {
        let age = now.saturating_duration_since(self.at);
        match &self.found {
            Err(_) if age < NEGATIVE => State::Fresh,
            Ok(_) if age >= ages.expire => State::Expired,
            // Looked up a moment ago: asking again so soon would say the same.
            Ok(_) if self.suspect && age >= RETRY && now >= self.retry_at => State::Doubtful,
            Ok(_) if now < self.retry_at => State::Fresh,
            Ok(_) if outdated_at.is_some_and(|outdated_at| self.asked_at <= outdated_at) && age >= RETRY => {
                State::Stale
            }
            Ok(_) if age < ages.refresh => State::Fresh,
            Ok(_) => State::Stale,
            Err(_) => State::Expired,
        }
    }

    fn has_expired(&self, now: Instant, ages: Ages) -> bool {
        self.state(now, ages, None) == State::Expired
    }
}

/// Forgets what has expired, and if that is not enough, a sixteenth of everything.
fn make_room<V>(slots: &mut HashMap<String, Slot<V>>, now: Instant, ages: Ages, max: usize) {
    slots.retain(|_, slot| {
        slot.loading.is_some() || slot.known.as_ref().is_some_and(|known| !known.has_expired(now, ages))
    });
    if slots.len() >= max {
        let mut surplus = (max / 16).max(1);
        slots.retain(|_, _| {
            let drop = surplus > 0;
            surplus = surplus.saturating_sub(1);
            !drop
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::time::advance;

    use super::*;

    const AGES: Ages = Ages { refresh: Duration::from_secs(20), expire: Duration::from_secs(300) };

    #[derive(Clone, Default)]
    struct Source(Arc<AtomicU32>);

    impl Source {
        async fn get(&self, cache: &Cache<u32>, answer: Result<(), BackendError>) -> Result<u32, BackendError> {
            let count = Arc::clone(&self.0);
            let load = || async move {
                tokio::task::yield_now().await;
                let n = count.fetch_add(1, Ordering::SeqCst) + 1;
                answer.map(|()| n)
            };
            cache.get("key", AGES, load).await.map(|value| *value)
        }

        fn count(&self) -> u32 {
            self.0.load(Ordering::SeqCst)
        }
    }

    fn gone() -> Result<(), BackendError> {
        Err(BackendError::TopicNotFound("key".into()))
    }

    fn down() -> Result<(), BackendError> {
        Err(BackendError::Unavailable("down".into()))
    }

    async fn settle() {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_hundred_callers_cause_one_look_up() {
        let (cache, source) = (Cache::new(10), Source::default());
        let all = futures::future::join_all((0..100).map(|_| source.get(&cache, Ok(())))).await;
        assert!(all.iter().all(|found| *found == Ok(1)));
        assert_eq!(source.count(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_value_is_used_while_it_is_refreshed_and_no_longer_when_it_expired() {
        let (cache, source) = (Cache::new(10), Source::default());
        assert_eq!(source.get(&cache, Ok(())).await, Ok(1));
        advance(Duration::from_secs(19)).await;
        assert_eq!(source.get(&cache, Ok(())).await, Ok(1));
        settle().await;
        assert_eq!(source.count(), 1);
        advance(Duration::from_secs(1)).await;
        assert_eq!(source.get(&cache, Ok(())).await, Ok(1), "the old one, while the new one is fetched");
        settle().await;
        assert_eq!(source.get(&cache, Ok(())).await, Ok(2));
        advance(Duration::from_secs(300)).await;
        assert_eq!(source.get(&cache, Ok(())).await, Ok(3), "expired: waited for");
    }

    #[tokio::test(start_paused = true)]
    async fn absence_is_believed_for_a_second() {
        let (cache, source) = (Cache::new(10), Source::default());
        assert!(source.get(&cache, gone()).await.is_err());
        advance(Duration::from_millis(999)).await;
        assert!(source.get(&cache, Ok(())).await.is_err());
        advance(Duration::from_millis(1)).await;
        assert_eq!(source.get(&cache, Ok(())).await, Ok(2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_refresh_keeps_the_value_and_a_deletion_does_not() {
        let (cache, source) = (Cache::new(10), Source::default());
        assert_eq!(source.get(&cache, Ok(())).await, Ok(1));
        advance(Duration::from_secs(20)).await;
        for _ in 0..5 {
            assert_eq!(source.get(&cache, down()).await, Ok(1));
            settle().await;
        }
        assert_eq!(source.count(), 2, "one failed try, then a pause");
        advance(Duration::from_secs(1)).await;
        assert_eq!(source.get(&cache, gone()).await, Ok(1));
        settle().await;
        assert!(source.get(&cache, Ok(())).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_value_that_expired_is_not_used_even_if_nothing_better_is_found() {
        let (cache, source) = (Cache::new(10), Source::default());
        assert_eq!(source.get(&cache, Ok(())).await, Ok(1));
        advance(Duration::from_secs(299)).await;
        assert_eq!(source.get(&cache, down()).await, Ok(1));
        settle().await;
        advance(Duration::from_secs(1)).await;
        assert_eq!(source.get(&cache, down()).await, Err(BackendError::Unavailable("down".into())));
        assert_eq!(source.get(&cache, Ok(())).await, Ok(4));
    }

    #[tokio::test(start_paused = true)]
    async fn other_errors_are_not_remembered() {
        let (cache, source) = (Cache::new(10), Source::default());
        assert!(source.get(&cache, down()).await.is_err());
        assert_eq!(source.get(&cache, Ok(())).await, Ok(2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_suspect_value_is_looked_up_first_but_serves_if_that_fails() {
        let (cache, source) = (Cache::new(10), Source::default());
        assert_eq!(source.get(&cache, Ok(())).await, Ok(1));
        cache.suspect("key");
        assert_eq!(source.get(&cache, Ok(())).await, Ok(1), "it was looked up a moment ago");
        advance(Duration::from_secs(1)).await;
        assert_eq!(source.get(&cache, Ok(())).await, Ok(2), "waited for");
        advance(Duration::from_secs(1)).await;
        cache.suspect("key");
        assert_eq!(source.get(&cache, down()).await, Ok(2));
        assert_eq!(source.count(), 3);
        assert_eq!(source.get(&cache, Ok(())).await, Ok(2), "not looked up again at once");
        assert_eq!(source.count(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_be_outdated_is_used_while_it_is_refreshed() {
        let (cache, source) = (Cache::new(10), Source::default());
        assert_eq!(source.get(&cache, Ok(())).await, Ok(1));
        cache.outdate_all();
        assert_eq!(source.get(&cache, Ok(())).await, Ok(1));
        settle().await;
        assert_eq!(source.count(), 1, "it was looked up a moment ago");
        advance(RETRY).await;
        assert_eq!(source.get(&cache, Ok(())).await, Ok(1), "the old one, while the new one is fetched");
        settle().await;
        assert_eq!(source.get(&cache, Ok(())).await, Ok(2));
        advance(RETRY).await;
        assert_eq!(source.get(&cache, Ok(())).await, Ok(2));
        assert_eq!(source.count(), 2, "once");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_asked_for_before_it_was_outdated_is_outdated_however_late_the_answer() {
        let (cache, source) = (Cache::new(10), Source::default());
        let late = cache.get("key", AGES, || async {
            tokio::time::sleep(RETRY).await;
            Ok(0)
        });
        let (late, ()) = tokio::join!(late, async {
            tokio::task::yield_now().await;
            cache.outdate_all();
        });
        assert_eq!(late.map(|value| *value), Ok(0));
        advance(RETRY).await;
        assert_eq!(source.get(&cache, Ok(())).await, Ok(0));
        settle().await;
        assert_eq!(source.get(&cache, Ok(())).await, Ok(1));
    }

    #[tokio::test(start_paused = true)]
    async fn it_never_holds_more_than_its_limit() {
        let cache = Cache::<u32>::new(16);
        for n in 0..1_000_u32 {
            let found = cache.get(&n.to_string(), AGES, || async move { Ok(n) }).await;
            assert_eq!(found.map(|value| *value), Ok(n));
            assert!(cache.slots.lock().by_key.len() <= 16);
        }
    }
}
