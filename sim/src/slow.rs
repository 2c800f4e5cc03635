//! Disks that are slow for a while: each sync takes from a fifth of a second to two seconds.
//!
//! This is no fault either. Whoever waits is answered late, and what is kept for somebody is kept all the same.

use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::broker::BrokerNode;
use crate::sim::Sim;

/// How long a sync of a slow disk takes, in milliseconds.
pub const SYNC_MS: RangeInclusive<i64> = 200..=2_000;

/// Goes on until faults are over.
pub async fn slow_disks(sim: Arc<Sim>, brokers: Vec<Arc<BrokerNode>>) {
    if !sim.plan.slow_disks {
        return;
    }
    while sim.now() < sim.plan.chaos_ms {
        sim.sleep_within(500..=8_000).await;
        let broker = sim.dice().pick(&brokers).clone();
        sim.say(&broker.name, format_args!("DISK SLOW"));
        sim.audit().note("slow_disks");
        broker.disk.slow_down(true);
        sim.sleep_within(3_000..=15_000).await;
        broker.disk.slow_down(false);
        sim.say(&broker.name, format_args!("DISK FAST"));
    }
}
