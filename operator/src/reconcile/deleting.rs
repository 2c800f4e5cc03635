//! Resources that are to go and cannot yet.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

/// Since when this operator has tried in vain to let a resource go, by its uid. When the API server was asked to delete it is told by another
/// machine's clock; and after a restart the count begins anew, so that nobody is waited for less than was promised.
#[derive(Debug, Clone, Default)]
pub struct Deleting(Arc<Mutex<HashMap<String, Tries>>>);

#[derive(Debug)]
struct Tries {
    first_ms: i64,
    last_ms: i64,
}

impl Deleting {
    /// It was tried in vain: for how long by now. What was not tried for `forgotten` went in another way.
    pub(super) fn failed(&self, uid: &str, now_ms: i64, forgotten: Duration) -> Duration {
        let mut all = self.0.lock();
        let most = i64::try_from(forgotten.as_millis()).unwrap_or(i64::MAX);
        all.retain(|_, tries| now_ms.saturating_sub(tries.last_ms) <= most);
        let tries = all.entry(uid.to_owned()).or_insert(Tries { first_ms: now_ms, last_ms: now_ms });
        tries.last_ms = now_ms;
        Duration::from_millis(u64::try_from(now_ms.saturating_sub(tries.first_ms)).unwrap_or(0))
    }

    /// It goes.
    pub(super) fn done(&self, uid: &str) {
        self.0.lock().remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_in_another_way_is_forgotten() {
        let deleting = Deleting::default();
        let (second, patience) = (Duration::from_secs(1), Duration::from_secs(300));
        assert_eq!(deleting.failed("a", 0, patience), Duration::ZERO);
        assert_eq!(deleting.failed("b", 1_000, patience), Duration::ZERO);
        assert_eq!(deleting.failed("a", 300_000, patience), second * 300);
        assert_eq!(deleting.0.lock().len(), 2);
        assert_eq!(deleting.failed("a", 301_001, patience).as_millis(), 301_001);
        assert_eq!(deleting.0.lock().len(), 1);
        deleting.done("a");
        assert!(deleting.0.lock().is_empty());
    }
}
