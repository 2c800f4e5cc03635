//! Says in the log what is not kept for lack of room: at once, and then not more often than every few seconds.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;

use super::{
    core::{Limit, NotKept},
    shared::Shared,
};

/// A line for each limit at most so often; what comes in between is counted.
const EVERY: Duration = Duration::from_secs(5);

pub(super) async fn run(shared: Arc<Shared>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = shared.overload.notified() => {}
        }
        for not_kept in shared.take_not_kept() {
            let limit = shared.read(|core, _| match not_kept.limit {
                Limit::OfClient => core.policy().max_handles_per_client,
                Limit::OfAll => core.policy().max_handles,
            });
            complain(&not_kept, limit);
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

fn complain(not_kept: &NotKept, limit: u32) {
    let NotKept { client, group, of_client, handles, .. } = not_kept;
    tracing::warn!(
        key = not_kept.limit.key(),
        limit,
        handles,
        of_client,
        client = &**client,
        group = &**group,
        "too many messages are held: the leases of some are not renewed and end by themselves; they can still be \
         acknowledged until then. Let clients hold fewer messages, or raise the key"
    );
}
