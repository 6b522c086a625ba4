//! Amounts of CPU and memory of nodes: what a pod requests, and what a node has.

/// CPU and memory, in requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct NodeAmount {
    /// In thousandths of a core.
    pub cpu_millis: u64,
    pub memory_bytes: u64,
}

impl NodeAmount {
    pub const ZERO: Self = Self { cpu_millis: 0, memory_bytes: 0 };

    /// Whether this much fits into the other amount.
    pub const fn fits(self, other: Self) -> bool {
        self.cpu_millis <= other.cpu_millis && self.memory_bytes <= other.memory_bytes
    }

    /// How often this amount fits into the other; nothing at all fits without end.
    pub fn times_in(self, other: Self) -> u64 {
        let times = |part: u64, whole: u64| whole.checked_div(part).unwrap_or(u64::MAX);
        times(self.cpu_millis, other.cpu_millis).min(times(self.memory_bytes, other.memory_bytes))
    }

    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            cpu_millis: self.cpu_millis.saturating_add(other.cpu_millis),
            memory_bytes: self.memory_bytes.saturating_add(other.memory_bytes),
        }
    }

    /// The difference; a component that would be negative is 0.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self {
            cpu_millis: self.cpu_millis.saturating_sub(other.cpu_millis),
            memory_bytes: self.memory_bytes.saturating_sub(other.memory_bytes),
        }
    }

    /// The smaller one of each component.
    #[must_use]
    pub fn minimum(self, other: Self) -> Self {
        Self {
            cpu_millis: self.cpu_millis.min(other.cpu_millis),
            memory_bytes: self.memory_bytes.min(other.memory_bytes),
        }
    }

    /// The larger one of each component.
    #[must_use]
    pub fn maximum(self, other: Self) -> Self {
        Self {
            cpu_millis: self.cpu_millis.max(other.cpu_millis),
            memory_bytes: self.memory_bytes.max(other.memory_bytes),
        }
    }

    #[must_use]
    pub const fn times(self, count: u64) -> Self {
        Self {
            cpu_millis: self.cpu_millis.saturating_mul(count),
            memory_bytes: self.memory_bytes.saturating_mul(count),
        }
    }

    /// The larger one of its shares of the CPU and of the memory of `whole`, multiplied by both of them, so that it is
    /// exact.
    pub(super) fn dominant_share(self, whole: Self) -> u128 {
        let cpu = u128::from(self.cpu_millis) * u128::from(whole.memory_bytes);
        let memory = u128::from(self.memory_bytes) * u128::from(whole.cpu_millis);
        cpu.max(memory)
    }
}
