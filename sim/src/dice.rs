//! The numbers that decide what happens in a run: a function of the seed and nothing else.

use std::ops::RangeInclusive;

/// What the state grows by at each draw.
pub const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// Scatters the bits of a number.
#[must_use]
pub fn mix(state: u64) -> u64 {
    let mut bits = state.wrapping_add(STEP);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

/// Dice.
#[derive(Debug)]
pub struct Dice(u64);

impl Dice {
    /// Dice of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// A number within a range.
    pub fn within(&mut self, range: RangeInclusive<i64>) -> i64 {
        let width = range.end().saturating_sub(*range.start()).max(0).cast_unsigned().saturating_add(1);
        range.start() + (self.draw() % width).cast_signed()
    }

    /// True so many times out of a thousand.
    pub fn chance(&mut self, per_mille: i64) -> bool {
        self.within(0..=999) < per_mille
    }

    /// One of several.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let last = i64::try_from(from.len()).unwrap_or(1).max(1) - 1;
        &from[usize::try_from(self.within(0..=last)).unwrap_or(0)]
    }
}
