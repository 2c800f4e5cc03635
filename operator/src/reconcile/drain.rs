//! Brokers that are to go: the last one first, and none before nothing is left in it. Nothing is remembered here: which brokers
//! take no new messages is in the ConfigMap, what is left is asked anew each time, so another operator goes on where one stopped.

use kube::ResourceExt;
use tracing::{info, warn};
use waybill_protocol::remoting::LeftBody;

use super::{Context, key, secured};
use crate::admin::{AdminError, in_words, left};
use crate::api::Broker;
use crate::place::broker_name;

/// The annotation of a Broker with the name of a broker that is to go at once, whatever is left in it. Its volume stays if
/// `spec.storage.reclaim` does not say otherwise.
const ABANDON: &str = "waybill.dev/abandon";

/// How many brokers there are to be now, and what is waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Drained {
    pub(super) replicas: i32,
    /// Why there are still more than asked for. None: there are not.
    pub(super) waits: Option<String>,
}

/// Decides about the last of `running` brokers, if there are more than the resource asks for.
pub(super) async fn step(broker: &Broker, context: &Context, running: i32) -> Drained {
    let wanted = broker.spec.replicas;
    if running <= wanted {
        return Drained { replicas: wanted, waits: None };
    }
    let last = running - 1;
    let name = broker_name(&broker.name_any(), last);
    let stays = |why: String| Drained { replicas: running, waits: Some(format!("{name} is to go, and {why}")) };
    if broker.annotations().get(ABANDON).is_some_and(|abandoned| *abandoned == name) {
        let note = format!("{name} goes as it is: the annotation {ABANDON} says so");
        warn!(resource = key(broker), "{note}");
        context.events.warning(broker, "BrokerAbandoned", note).await;
        return goes(last, wanted, &name);
    }
    let address = (context.address)(broker, last);
    for round in 0..2 {
        if round > 0 {
            // What was on its way in when the broker became read only is counted the second time.
            tokio::time::sleep(context.pace.settling).await;
        }
        match ask(broker, &address, context).await {
            Ok(left) if left.takes_more() => {
                return stays("does not know yet that it takes no new messages".to_owned());
            }
            Ok(left) if !left.is_nothing() => return stays(format!("still has {}", in_words(&left))),
            Ok(_nothing) => {}
            Err(error) => return stays(format!("does not say what is left in it: {error}")),
        }
    }
    let note = format!("nothing is left in {name}: it goes");
    info!(resource = key(broker), "{note}");
    context.events.normal(broker, "BrokerDrained", note).await;
    goes(last, wanted, &name)
}

fn goes(replicas: i32, wanted: i32, name: &str) -> Drained {
    Drained { replicas, waits: (replicas > wanted).then(|| format!("{name} goes, others follow")) }
}

async fn ask(broker: &Broker, address: &str, context: &Context) -> Result<LeftBody, AdminError> {
    let way = secured::way(broker, context).await.map_err(|error| AdminError::Unreachable(error.to_string()))?;
    left(&mut way.open(address).await?).await
}
