//! The task that sends what is due. It sleeps until something is.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::time::{sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use waybill_protocol::handle::ReceiptHandle;

use super::{
    changer::{Change, ChangeError, Changer},
    core::{Ask, Batch, Item, Purpose, Step},
    shared::Shared,
};
use crate::batching::Caller;

/// Results taken over under one lock, so that acks never wait long.
const SETTLE_AT_ONCE: usize = 256;

pub(super) async fn run(shared: Arc<Shared>, changer: Arc<dyn Changer>, stop: CancellationToken) {
    loop {
        let (step, next) = shared.step(&|broker| changer.batch_limit(broker));
        match step {
            Step::Send(batch) => {
                let limit = shared.read(|core, _| core.policy().request_timeout_ms);
                let limit = Duration::from_millis(u64::try_from(limit).unwrap_or(0));
                tokio::spawn(request(InFlight::new(shared.clone(), batch), changer.clone(), limit));
                continue;
            }
            Step::Again => {
                tokio::task::yield_now().await;
                continue;
            }
            Step::Rest => {}
        }
        let woken = shared.wake.notified();
        tokio::select! {
            () = stop.cancelled() => return,
            () = woken => {}
            () = async {
                match next {
                    Some(at) => sleep_until(shared.instant(at)).await,
                    None => std::future::pending().await,
                }
            } => {}
        }
    }
}

async fn request(mut batch: InFlight, changer: Arc<dyn Changer>, limit: Duration) {
    let results = match timeout(limit, call(&mut batch, changer.as_ref())).await {
        Ok(results) => results,
        Err(_) => batch.asked.iter().map(|_| Err(ChangeError::Timeout)).collect(),
    };
    batch.settle(results);
}

/// One result per item; those for which the broker was not asked have failed already.
async fn call(batch: &mut InFlight, changer: &dyn Changer) -> Vec<Result<ReceiptHandle, ChangeError>> {
    let mut delays = HashMap::new();
    for (item, asked) in batch.batch.items.iter().zip(&mut batch.asked) {
        *asked = match item.ask {
            Ask::For(invisible_ms) => Some(invisible_ms),
            Ask::Backoff(times) => match delays.get(&times) {
                Some(delay) => *delay,
                None => {
                    let delay = changer.retry_delay_ms(&batch.batch.group, &batch.batch.topic, times).await;
                    delays.insert(times, delay);
                    delay
                }
            },
        };
    }
    let with_duration = batch.batch.items.iter().zip(&batch.asked);
    let changes = with_duration
        .filter_map(|(item, asked)| {
            let invisible_ms = (*asked)?;
            Some(Change { handle: item.handle.clone(), invisible_ms, suspend: item.suspend, caller: caller(item) })
        })
        .collect::<Vec<_>>();
    let mut answers = Vec::new().into_iter();
    if !changes.is_empty() {
        answers = changer.change_invisible(&batch.batch.group, &batch.batch.topic, changes).await.into_iter();
    }
    let result = |asked: &Option<i64>| match asked {
        Some(_) => answers.next().unwrap_or(Err(ChangeError::Other)),
        // Nobody knows how long the message shall rest: its lease runs out.
        None => Err(ChangeError::Refused),
    };
    batch.asked.iter().map(result).collect()
}

fn caller(item: &Item) -> Caller {
    match item.purpose {
        Purpose::Renew | Purpose::LetGo => Caller::Renewal,
        Purpose::Return if item.suspend => Caller::Undelivered,
        Purpose::Return => Caller::Disconnect,
    }
}

/// A request whose items are settled exactly once, even if its task panics or is dropped.
struct InFlight {
    shared: Arc<Shared>,
    batch: Batch,
    /// The invisible durations asked for, where known.
    asked: Vec<Option<i64>>,
}

impl InFlight {
    fn new(shared: Arc<Shared>, batch: Batch) -> Self {
        let asked = vec![None; batch.items.len()];
        Self { shared, batch, asked }
    }

    fn settle(mut self, results: Vec<Result<ReceiptHandle, ChangeError>>) {
        self.settle_all(results);
    }

    fn settle_all(&mut self, results: Vec<Result<ReceiptHandle, ChangeError>>) {
        let items = std::mem::take(&mut self.batch.items);
        let failed = results.iter().filter(|result| result.is_err()).count();
        if failed > 0 {
            let (broker, group, topic) = (&*self.batch.broker, &*self.batch.group, &*self.batch.topic);
            tracing::debug!(broker, group, topic, failed, of = items.len(), "leases not changed");
        }
        let results = results.into_iter().chain(std::iter::repeat(Err(ChangeError::Other)));
        let asked = self.asked.iter().map(|asked| asked.unwrap_or(0));
        let mut all = items.into_iter().zip(asked).zip(results).map(|((item, ms), result)| (item, ms, result));
        loop {
            let some: Vec<(Item, i64, _)> = all.by_ref().take(SETTLE_AT_ONCE).collect();
            if some.is_empty() {
                break;
            }
            self.shared.settle(self.batch.sent_at, some.into_iter());
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if !self.batch.items.is_empty() {
            self.settle_all(Vec::new());
        }
        let lane = self.batch.lane;
        self.shared.with(|core, _| core.end_request(lane));
    }
}
