//! What all parts of a run share: the time, the dice, the trace, the auditor.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::audit::Audit;
use crate::dice::Dice;
use crate::plan::Plan;

/// When every run begins, milliseconds since 1970.
pub const BEGIN_MS: i64 = 1_800_000_000_000;

/// What all parts of a run share.
pub struct Sim {
    /// The shape of the run.
    pub plan: Plan,
    dice: Mutex<Dice>,
    trace: Mutex<String>,
    audit: Mutex<Audit>,
    began: Instant,
    healed: AtomicBool,
}

impl Sim {
    /// A run at its beginning. Must be called within the runtime, whose time stands still.
    #[must_use]
    pub fn new(plan: Plan, dice: Dice) -> Arc<Self> {
        Arc::new(Self {
            audit: Mutex::new(Audit::new(&plan)),
            plan,
            dice: Mutex::new(dice),
            trace: Mutex::default(),
            began: Instant::now(),
            healed: AtomicBool::new(false),
        })
    }

    /// Milliseconds since the beginning of the run.
    #[must_use]
    pub fn now(&self) -> i64 {
        i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    /// The dice.
    pub fn dice(&self) -> MutexGuard<'_, Dice> {
        self.dice.lock()
    }

    /// The auditor.
    pub fn audit(&self) -> MutexGuard<'_, Audit> {
        let mut audit = self.audit.lock();
        audit.now = self.now();
        audit
    }

    /// Writes a line into the trace.
    pub fn say(&self, who: &str, what: std::fmt::Arguments<'_>) {
        let mut trace = self.trace.lock();
        // A string takes everything.
        let _ = writeln!(trace, "{:>8} {who:<12} {what}", self.now());
        tracing::debug!("{who} {what}");
    }

    /// The trace so far.
    #[must_use]
    pub fn trace(&self) -> String {
        self.trace.lock().clone()
    }

    /// Waits.
    pub async fn sleep(&self, ms: i64) {
        if ms > 0 {
            tokio::time::sleep(Duration::from_millis(ms.cast_unsigned())).await;
        }
    }

    /// Waits for a time out of a range.
    pub async fn sleep_within(&self, range: std::ops::RangeInclusive<i64>) {
        let ms = self.dice().within(range);
        self.sleep(ms).await;
    }

    /// From now on nothing fails any more.
    pub fn heal(&self) {
        self.healed.store(true, Ordering::SeqCst);
    }

    /// Whether faults are over.
    #[must_use]
    pub fn is_healed(&self) -> bool {
        self.healed.load(Ordering::SeqCst)
    }
}
