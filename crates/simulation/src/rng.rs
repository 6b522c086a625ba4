//! The random numbers of a run: `SplitMix64`, so that a seed means the same run with every version of every library.

use std::time::Duration;

/// A generator. Equal seeds generate equal numbers.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A generator whose numbers do not depend on how many were drawn from this one.
    #[must_use]
    pub fn fork(&self, purpose: u64) -> Self {
        let mut forked = Self(self.0 ^ purpose.wrapping_mul(0xD6E8_FEB8_6659_FD93));
        forked.draw();
        forked
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// One of `0 .. below`; 0 if that is empty.
    pub fn below(&mut self, below: u64) -> u64 {
        if below == 0 { 0 } else { self.draw() % below }
    }

    /// An index of a list of this length.
    pub fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// One of `from ..= to`.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from + 1)
    }

    /// Whether an event of this probability happens.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// A duration of `from ..= to` milliseconds.
    pub fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.between(from, to))
    }

    /// A duration with this mean, exponentially distributed, at most ten times as long.
    pub fn around(&mut self, mean: Duration) -> Duration {
        let uniform = (self.below(1_000_000) + 1) as f64 / 1_000_001.0;
        mean.mul_f64((-uniform.ln()).min(10.0))
    }
}
