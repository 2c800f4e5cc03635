//! What groups have before them, in the status of each ConsumerGroup. Brokers are asked for all their groups at once, again and again;
//! only what is another number than before is written.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use futures::{FutureExt, StreamExt, stream};
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource, ResourceExt};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::on_brokers::{Brokers, OnBrokers, brokers, each};
use super::{ApiError, Context, Kind, key, status, while_doing};
use crate::admin::counts;
use crate::api::{ConditionStatus, ConsumerGroup, FIELD_MANAGER, GroupCounts, GroupStatus};

/// Brokers (the resources) that are asked at once.
const AT_ONCE: usize = 16;

/// Counts what the known groups have before them, every [`super::Pace::counting`], until `stop`; the first time a little sooner, for
/// one operator may take over from another often.
pub(super) async fn keep_counts(kind: Arc<Kind<ConsumerGroup>>, stop: CancellationToken) {
    let every = kind.context.pace.counting;
    let mut wait = every / 6;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
        count_groups(&kind).await;
        wait = every;
    }
}

/// Counts once. Where a broker does not answer, what was told of its groups stays: a part of them would look like all.
pub async fn count_groups(kind: &Kind<ConsumerGroup>) {
    let mut of_broker: BTreeMap<(Option<String>, String), Vec<Arc<ConsumerGroup>>> = BTreeMap::new();
    for group in kind.known.state() {
        of_broker.entry((group.namespace(), group.broker_ref().name.clone())).or_default().push(group);
    }
    let count = |groups: Vec<Arc<ConsumerGroup>>| async move {
        if let Err(error) = count_those(&groups, &kind.context).await {
            warn!(%error, "what groups have before them could not be told, it is tried again");
        }
    };
    // One Broker whose brokers hang does not hold up the others.
    stream::iter(of_broker.into_values()).for_each_concurrent(AT_ONCE, count).await;
}

/// The groups of one Broker.
async fn count_those(groups: &[Arc<ConsumerGroup>], context: &Context) -> Result<(), ApiError> {
    let Some(first) = groups.first() else { return Ok(()) };
    let Some(Brokers { addresses, way, .. }) = brokers(&**first, context).await? else { return Ok(()) };
    let way = &way;
    let ask = |address| async move { counts(&mut way.open(address).await?).await };
    let mut all: HashMap<String, GroupCounts> = HashMap::new();
    let ask = |address| context.hanging.ask(address, ask(address)).boxed();
    for (address, answer) in each(&addresses, ask).await {
        match answer {
            Ok(counts) => {
                counts.into_iter().for_each(|(group, of_broker)| add(all.entry(group).or_default(), of_broker))
            }
            Err(error) => {
                debug!(address, %error, "a broker does not count");
                return Ok(());
            }
        }
    }
    for group in groups {
        if let Some(counts) = all.get(&group.name_on_brokers()) {
            tell(group, *counts, context).await?;
        }
    }
    Ok(())
}

/// A consumer is a member of its group at many brokers; a message is on one.
fn add(all: &mut GroupCounts, of_broker: GroupCounts) {
    all.members = all.members.max(of_broker.members);
    all.lag = all.lag.saturating_add(of_broker.lag);
    all.in_flight = all.in_flight.saturating_add(of_broker.in_flight);
    all.dead_letters = all.dead_letters.saturating_add(of_broker.dead_letters);
}

async fn tell(group: &ConsumerGroup, counts: GroupCounts, context: &Context) -> Result<(), ApiError> {
    // One that is not on the brokers as it should be has other things to tell, such as that the group is another resource's.
    let Some(told) = &group.status else { return Ok(()) };
    let ready = status::ready(&told.applied.conditions).is_some_and(|ready| ready.status == ConditionStatus::True);
    if !ready || told.counts == counts || group.meta().deletion_timestamp.is_some() {
        return Ok(());
    }
    let api: Api<ConsumerGroup> = Api::namespaced(context.client.clone(), &group.namespace().unwrap_or_default());
    let patch = json!({
        "apiVersion": ConsumerGroup::api_version(&()),
        "kind": ConsumerGroup::kind(&()),
        // Only onto what was read: a status that is newer must not be undone.
        "metadata": { "name": group.name_any(), "resourceVersion": group.resource_version() },
        "status": GroupStatus { counts, ..told.clone() },
    });
    let params = PatchParams::apply(FIELD_MANAGER).force();
    match api.patch_status(&group.name_any(), &params, &Patch::Apply(patch)).await {
        Ok(_told) => Ok(()),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {
            debug!(resource = key(group), "it has changed meanwhile, it is counted again");
            Ok(())
        }
        Err(error) => Err(while_doing("tell what a group has before it")(error)),
    }
}
