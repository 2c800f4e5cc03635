//! Wall clocks, one for each machine, which may be set wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use waybill_ops::clock::Clock;

use crate::sim::{BEGIN_MS, Sim};

/// The wall clock of a machine: the true time and how much it is wrong.
#[derive(Debug, Default)]
pub struct Wall(AtomicI64);

impl Wall {
    /// Sets the clock forward, or back.
    pub fn step(&self, ms: i64) {
        self.0.fetch_add(ms, Ordering::SeqCst);
    }
}

/// The clock of one process: as `waybill_ops::clock::SystemClock` it follows the wall clock forward, and runs on when that is set
/// back.
pub struct ProcessClock {
    sim: Arc<Sim>,
    wall: Arc<Wall>,
    most: AtomicI64,
}

impl ProcessClock {
    /// A clock that begins with the time of the wall.
    #[must_use]
    pub fn new(sim: &Arc<Sim>, wall: &Arc<Wall>) -> Self {
        Self { sim: sim.clone(), wall: wall.clone(), most: AtomicI64::new(i64::MIN) }
    }
}

impl Clock for ProcessClock {
    fn now_ms(&self) -> i64 {
        let wrong = self.wall.0.load(Ordering::SeqCst);
        let most = self.most.fetch_max(wrong, Ordering::SeqCst).max(wrong);
        BEGIN_MS + self.sim.now() + most
    }
}
