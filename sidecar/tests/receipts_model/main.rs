//! Random sequences of everything that can happen to the receipt manager, checked against a simple oracle.
//!
//! `RECEIPTS_MODEL_STEPS` says how many steps to take (default: ten million, some twenty seconds), `RECEIPTS_MODEL_SEED` repeats one
//! seed; few steps need not go everywhere.

#![allow(unreachable_pub)]
#![allow(clippy::expect_used, clippy::panic)] // Helpers of a test, which clippy takes for something else.

mod broker;
mod dice;
mod oracle;
mod overload;
mod traffic;
mod world;

use world::World;

const STEPS_PER_SEED: usize = 20_000;

#[test]
fn random_sequences_keep_the_invariants() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let steps = number("RECEIPTS_MODEL_STEPS").unwrap_or(10_000_000) as usize;
    let seeds = match number("RECEIPTS_MODEL_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..steps.div_ceil(STEPS_PER_SEED) as u64,
    };
    let mut seen = world::Seen::default();
    for seed in seeds {
        let failed = std::panic::catch_unwind(|| World::new(seed).run(STEPS_PER_SEED));
        match failed {
            Ok(of_seed) => seen.add(&of_seed),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or_default();
                panic!("RECEIPTS_MODEL_SEED={seed}: {text}");
            }
        }
    }
    if steps < 1_000_000 || number("RECEIPTS_MODEL_SEED").is_some() {
        return;
    }
    // The model must have been where it is said to go.
    assert!(seen.renewals > 100 && seen.returns > 100 && seen.lets_go > 10, "{seen:?}");
    assert!(seen.acks_done > 100 && seen.acks_waited > 10 && seen.changes_waited > 10, "{seen:?}");
    assert!(seen.shed_of_client > 100 && seen.shed_of_all > 100, "{seen:?}");
    assert!(seen.flips.iter().all(|flips| *flips > 100) && seen.renewed_over_flip > 100, "{seen:?}");
    assert!(seen.kept_returned > 100 && seen.kept_returned_over_flip > 100 && seen.remoting_renewed > 100, "{seen:?}");
    assert!(seen.released > 100 && seen.received_in_release > 100, "{seen:?}");
    assert!(seen.left_to_lease > 100 && seen.returned_in_leave > 100, "{seen:?}");
    assert!(seen.stale > 100 && seen.redeliveries > 100 && seen.refused > 0 && seen.answers_lost > 100, "{seen:?}");
}
