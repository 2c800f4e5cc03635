//! Time in milliseconds since the Unix epoch, behind a trait so that tests can move it.

use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Tells the time.
pub trait Clock: Send + Sync {
    /// Milliseconds since the Unix epoch; never less than what the same clock said before.
    fn now_ms(&self) -> i64;
}

impl<T: Clock + ?Sized> Clock for Arc<T> {
    fn now_ms(&self) -> i64 {
        self.as_ref().now_ms()
    }
}

/// The machine's clock, made safe against being set back.
///
/// Leases and delays must not stand still for an hour because somebody set the clock back by one. So this clock
/// follows the wall clock forward, and when the wall clock jumps back it runs on at the speed of the monotonic clock.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
    /// The largest "wall minus monotonic" seen so far, in microseconds.
    offset_us: AtomicI64,
}

impl SystemClock {
    /// A clock that starts at the present wall time.
    #[must_use]
    pub fn new() -> Self {
        let clock = Self { start: Instant::now(), offset_us: AtomicI64::new(i64::MIN) };
        clock.now_ms();
        clock
    }

    /// Reads both clocks, the wall clock first: a process that is stopped in between sees too small an offset then, which a later reading
    /// makes good. The other way round the clock would be ahead by the time of the stop for as long as the process lives, and what is
    /// delayed would be delivered early.
    fn look(&self, wall_us: impl FnOnce() -> i64, monotonic_us: impl FnOnce() -> i64) -> i64 {
        let wall_us = wall_us();
        self.read(monotonic_us(), wall_us)
    }

    fn read(&self, monotonic_us: i64, wall_us: i64) -> i64 {
        let seen = wall_us.saturating_sub(monotonic_us);
        let mut offset = self.offset_us.load(Ordering::Relaxed);
        if seen > offset {
            offset = self.offset_us.fetch_max(seen, Ordering::Relaxed).max(seen);
        }
        monotonic_us.saturating_add(offset) / 1000
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now_ms(&self) -> i64 {
        let monotonic = || i64::try_from(self.start.elapsed().as_micros()).unwrap_or(i64::MAX);
        #[expect(clippy::disallowed_methods, reason = "this is the clock that all others are to use")]
        let wall = || match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_micros()).unwrap_or(i64::MAX),
            Err(_) => 0, // a clock before 1970 is treated as 1970
        };
        self.look(wall, monotonic)
    }
}

static SYSTEM: LazyLock<SystemClock> = LazyLock::new(SystemClock::new);

/// The process-wide [`SystemClock`]: milliseconds since the Unix epoch, never going back.
pub fn now_ms() -> i64 {
    SYSTEM.now_ms()
}

/// A clock that stands still until it is moved.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock that shows `now_ms`.
    #[must_use]
    pub fn new(now_ms: i64) -> Self {
        Self(AtomicI64::new(now_ms))
    }

    /// Shows `now_ms` from now on. A test may also set the clock back, to see what a broken clock does.
    pub fn set(&self, now_ms: i64) {
        self.0.store(now_ms, Ordering::SeqCst);
    }

    /// Moves the clock by `ms` and returns the new time.
    pub fn advance(&self, ms: i64) -> i64 {
        self.0.fetch_add(ms, Ordering::SeqCst).saturating_add(ms)
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blank() -> SystemClock {
        SystemClock { start: Instant::now(), offset_us: AtomicI64::new(i64::MIN) }
    }

    #[test]
    fn follows_the_wall_clock_forward() {
        let clock = blank();
        assert_eq!(clock.read(0, 5_000_000), 5_000);
        assert_eq!(clock.read(1_000, 9_000_000), 9_000, "a jump forward is followed");
    }

    #[test]
    fn runs_on_when_the_wall_clock_is_set_back() {
        let clock = blank();
        assert_eq!(clock.read(0, 5_000_000), 5_000);
        assert_eq!(clock.read(2_000_000, 1_000_000), 7_000, "two seconds passed, whatever the wall clock says");
        assert_eq!(clock.read(3_000_000, 20_000_000), 20_000, "and it follows again once the wall clock is ahead");
    }

    #[test]
    fn a_stop_between_the_two_readings_does_not_put_it_ahead() {
        let clock = blank();
        let stopped_us = std::cell::Cell::new(0);
        let wall = || 5_000_000 + stopped_us.get();
        let monotonic = || 1_000_000 + stopped_us.get();
        let stop = |us| stopped_us.set(stopped_us.get() + us);
        assert_eq!(clock.look(wall, monotonic), 5_000);
        let stopped = clock.look(
            || {
                let seen = wall();
                stop(3_000_000);
                seen
            },
            monotonic,
        );
        assert_eq!(stopped, 8_000, "three seconds passed in between");
        assert_eq!(clock.look(wall, monotonic), 8_000, "and it is not ahead afterwards");
        let first = blank();
        first.look(
            || {
                let seen = wall();
                stop(2_000_000);
                seen
            },
            monotonic,
        );
        assert_eq!(first.look(wall, monotonic), 10_000, "what the first reading missed is made good by the next");
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the wall clock itself is what is compared with")]
    fn system_clock_is_near_the_wall_clock() {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as i64);
        let first = now_ms();
        let second = now_ms();
        assert!(first >= wall, "{first} < {wall}");
        assert!(second >= first);
    }

    #[test]
    fn manual_clock_moves_only_by_hand() {
        let clock = Arc::new(ManualClock::new(10));
        let shared: Arc<dyn Clock> = clock.clone();
        assert_eq!(shared.now_ms(), 10);
        assert_eq!(clock.advance(5), 15);
        assert_eq!(shared.now_ms(), 15);
        clock.set(1);
        assert_eq!(shared.now_ms(), 1);
    }
}
