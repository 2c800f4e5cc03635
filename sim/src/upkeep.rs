//! What operators do while everything runs: the renewal switch is flipped, sidecars are stopped in good order.
//!
//! None of this is a fault: who is served by a sidecar may count on everything until its calls are cut at the end of a drain.

use std::sync::Arc;

use waybill_sidecar::receipts::DrainPolicy;

use crate::sidecar::SidecarNode;
use crate::sim::Sim;

/// Goes on until faults are over.
pub async fn upkeep(sim: Arc<Sim>, sidecars: Vec<Arc<SidecarNode>>) {
    let end = sim.plan.chaos_ms;
    if sim.plan.upkeep_every_ms == 0 {
        return;
    }
    loop {
        sim.sleep_within(1_000..=sim.plan.upkeep_every_ms).await;
        if sim.now() >= end {
            return;
        }
        let (sidecar, what) = {
            let mut dice = sim.dice();
            (dice.pick(&sidecars).clone(), dice.within(0..=99))
        };
        match what {
            0..65 => sidecar.flip(),
            _ => {
                let policy = if what < 83 { DrainPolicy::Release } else { DrainPolicy::LeaveToLease };
                if sidecar.drain(policy).await {
                    sim.sleep_within(0..=3_000).await;
                    sidecar.start().await;
                }
            }
        }
    }
}
