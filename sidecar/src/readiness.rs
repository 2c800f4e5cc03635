//! Whether the sidecar can serve.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::backend::MessageService;

/// How often brokers are looked for until there is one.
const TRY_EVERY: Duration = Duration::from_secs(1);

const STARTING: u8 = 0;
const READY: u8 = 1;
const DRAINING: u8 = 2;

/// Ready from the first answer of a name server or broker until the sidecar is told to stop. Cheap to clone.
///
/// A broker that is lost later does not make it unready: all sidecars would be unready at once, and clients get better
/// answers from a sidecar that knows what is missing than from nobody.
#[derive(Clone, Debug, Default)]
pub(crate) struct Readiness {
    state: Arc<AtomicU8>,
}

impl Readiness {
    /// For the readiness probe.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self.state.load(Ordering::Relaxed) {
            READY => Ok(()),
            DRAINING => Err("draining".to_owned()),
            _ => Err("no name server and no broker of namesrvAddr has answered yet".to_owned()),
        }
    }

    /// From now on it is stopping.
    pub(crate) fn draining(&self) {
        self.state.store(DRAINING, Ordering::Relaxed);
    }

    /// Asks until somebody answers, whatever the answer.
    pub(crate) async fn find_brokers(self, messages: MessageService, stop: CancellationToken) {
        while let Err(error) = messages.reach().await {
            tracing::debug!(%error, "nobody of namesrvAddr answers yet");
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(TRY_EVERY) => {}
            }
        }
        let _ = self.state.compare_exchange(STARTING, READY, Ordering::Relaxed, Ordering::Relaxed);
    }
}
