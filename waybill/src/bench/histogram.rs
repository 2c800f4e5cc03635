//! Latencies in little memory: buckets whose width grows with the value, so that the error stays under one percent.

/// Buckets for each doubling; the error of a value is at most one in this many.
const STEPS: u64 = 128;
const BITS: u32 = STEPS.trailing_zeros();

/// Counts values (microseconds here, but any will do).
#[derive(Debug, Clone, Default)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
    max: u64,
    sum: u128,
}

impl Histogram {
    pub(crate) fn record(&mut self, value: u64) {
        self.record_many(value, 1);
    }

    pub(crate) fn record_many(&mut self, value: u64, count: u64) {
        let index = index(value);
        if self.counts.len() <= index {
            self.counts.resize(index + 1, 0);
        }
        if let Some(counted) = self.counts.get_mut(index) {
            *counted += count;
        }
        self.total += count;
        self.max = self.max.max(value);
        self.sum += u128::from(value) * u128::from(count);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.total += other.total;
        self.max = self.max.max(other.max);
        self.sum += other.sum;
    }

    pub(crate) fn count(&self) -> u64 {
        self.total
    }

    pub(crate) fn max(&self) -> u64 {
        self.max
    }

    /// The average; 0 of nothing.
    pub(crate) fn mean(&self) -> f64 {
        if self.total == 0 { 0.0 } else { self.sum as f64 / self.total as f64 }
    }

    /// The value that `share` (0 to 1) of all values do not exceed; 0 of nothing.
    pub(crate) fn quantile(&self, share: f64) -> u64 {
        let wanted = ((self.total as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return highest(index).min(self.max);
            }
        }
        self.max
    }
}

/// Values below 2 × STEPS have a bucket each; above, each doubling has STEPS buckets.
fn index(value: u64) -> usize {
    let shift = value.checked_ilog2().unwrap_or(0).saturating_sub(BITS);
    (u64::from(shift) * STEPS + (value >> shift)) as usize
}

/// The largest value of a bucket.
fn highest(index: usize) -> u64 {
    let index = index as u64;
    let shift = (index / STEPS).saturating_sub(1);
    let mantissa = u128::from(index - shift * STEPS);
    u64::try_from(((mantissa + 1) << shift) - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_one_another() {
        let mut last = 0;
        for value in
            (0..5_000).chain((13..64).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + 1])).chain([u64::MAX])
        {
            let index = index(value);
            assert!(index >= last || value < 5_000 && index + 1 >= last, "{value}");
            last = last.max(index);
            let high = highest(index);
            assert!(
                high >= value && (high - value) as f64 <= value as f64 / STEPS as f64,
                "{value} in a bucket up to {high}"
            );
        }
    }

    #[test]
    fn quantiles_are_within_a_percent() {
        let mut histogram = Histogram::default();
        (1..=100_000).for_each(|value| histogram.record(value));
        for (share, exact) in [(0.5, 50_000.0), (0.9, 90_000.0), (0.99, 99_000.0), (0.999, 99_900.0)] {
            let found = histogram.quantile(share) as f64;
            assert!((found / exact - 1.0).abs() < 0.01, "{share}: {found}");
        }
        assert_eq!(histogram.quantile(1.0), 100_000);
        assert_eq!((histogram.max(), histogram.count()), (100_000, 100_000));
        assert!((histogram.mean() - 50_000.5).abs() < 1e-6);
    }

    #[test]
    fn nothing_has_no_quantile() {
        let histogram = Histogram::default();
        assert_eq!((histogram.quantile(0.99), histogram.max(), histogram.count()), (0, 0, 0));
        assert_eq!(histogram.mean(), 0.0);
    }

    #[test]
    fn merging_is_as_recording_all() {
        let (mut a, mut b, mut all) = (Histogram::default(), Histogram::default(), Histogram::default());
        for value in 0..1_000 {
            if value % 3 == 0 {
                a.record(value * value)
            } else {
                b.record(value * value)
            }
            all.record(value * value);
        }
        a.merge(&b);
        for share in [0.0, 0.1, 0.5, 0.99, 1.0] {
            assert_eq!(a.quantile(share), all.quantile(share));
        }
        assert_eq!((a.count(), a.max(), a.mean()), (all.count(), all.max(), all.mean()));
    }
}
