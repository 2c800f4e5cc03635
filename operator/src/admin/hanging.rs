//! Brokers that take connections and do not answer.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::AdminError;

/// Whoever could not be reached and needed this long for it keeps everybody waiting.
const LONG: Duration = Duration::from_secs(1);

/// Brokers that kept somebody waiting, and have answered nobody since. Only one at a time asks such a broker, and everybody else has
/// the same error at once: what waits for it would take the places of what is about other brokers.
#[derive(Debug, Clone, Default)]
pub struct Hanging(Arc<Mutex<HashMap<String, Hung>>>);

#[derive(Debug)]
struct Hung {
    error: AdminError,
    /// Somebody asks it.
    asked: bool,
}

impl Hanging {
    /// Waits for `ask`, which asks the broker at `address`, if that is worth it.
    ///
    /// # Errors
    /// Those of `ask`, now or before.
    pub async fn ask<T>(
        &self,
        address: &str,
        ask: impl Future<Output = Result<T, AdminError>>,
    ) -> Result<T, AdminError> {
        let _asks = match self.0.lock().get_mut(address) {
            None => None,
            Some(hung) if hung.asked => return Err(hung.error.clone()),
            Some(hung) => {
                hung.asked = true;
                Some(Asks { hanging: self, address })
            }
        };
        let began = Instant::now();
        let came = ask.await;
        match &came {
            Err(error @ AdminError::Unreachable(_)) if began.elapsed() >= LONG => {
                self.0.lock().entry(address.to_owned()).or_insert(Hung { error: error.clone(), asked: false });
            }
            _soon => drop(self.0.lock().remove(address)),
        }
        came
    }
}

/// The one that asks; when it has its answer, or does not wait for it any more, another one may.
struct Asks<'a> {
    hanging: &'a Hanging,
    address: &'a str,
}

impl Drop for Asks<'_> {
    fn drop(&mut self) {
        if let Some(hung) = self.hanging.0.lock().get_mut(self.address) {
            hung.asked = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::time::sleep;

    use super::*;

    async fn late<T>(_never: Option<T>) -> Result<T, AdminError> {
        sleep(LONG * 2).await;
        Err(AdminError::Unreachable("late".to_owned()))
    }

    #[tokio::test(start_paused = true)]
    async fn one_at_a_time_asks_a_broker_that_hangs_until_it_answers() {
        let hanging = Hanging::default();
        let failed: Result<u8, _> = Err(AdminError::Unreachable("late".to_owned()));
        // Nobody knows yet: all ask.
        let both = futures::future::join(hanging.ask("a:1", late::<u8>(None)), hanging.ask("a:1", late(None))).await;
        assert_eq!(both, (failed.clone(), failed.clone()));
        let asks = hanging.ask("a:1", late::<u8>(None));
        let mut asks = std::pin::pin!(asks);
        assert!(asks.as_mut().now_or_never().is_none());
        assert_eq!(hanging.ask("a:1", async { Ok(1) }).now_or_never(), Some(failed.clone()), "it is not asked");
        assert_eq!(hanging.ask("b:1", async { Ok(2) }).await, Ok(2), "another one");
        assert_eq!(asks.await, failed);
        // One that gives up makes room.
        assert!(hanging.ask("a:1", late::<u8>(None)).now_or_never().is_none());
        assert_eq!(hanging.ask("a:1", async { Ok(3) }).await, Ok(3));
        let both =
            futures::future::join(hanging.ask("a:1", late::<u8>(None)), hanging.ask("a:1", async { Ok(4) })).await;
        assert_eq!(both, (failed, Ok(4)), "it answers, so all ask");
    }

    #[tokio::test(start_paused = true)]
    async fn who_refuses_or_is_not_there_keeps_nobody_waiting() {
        let hanging = Hanging::default();
        for error in [AdminError::Unreachable("refused".to_owned()), AdminError::Refused("no".to_owned())] {
            let soon = error.clone();
            assert_eq!(hanging.ask::<()>("a:1", async { Err(soon) }).await, Err(error));
            assert!(hanging.0.lock().is_empty());
        }
    }
}
