//! A value for each of the three components that are charged: CPU, memory and the number of engines.

use serde::{Deserialize, Serialize};

/// A component of an amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Component {
    Cpu,
    Memory,
    Engines,
}

impl Component {
    /// In the order in which the first short component is reported.
    pub const ALL: [Self; 3] = [Self::Cpu, Self::Memory, Self::Engines];

    /// The word of the control language.
    pub const fn keyword(self) -> &'static str {
        match self {
            Self::Cpu => "CPU",
            Self::Memory => "MEMORY",
            Self::Engines => "ENGINES",
        }
    }

    /// The component in a sentence.
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Cpu => "CPU",
            Self::Memory => "memory",
            Self::Engines => "engines",
        }
    }

    /// An amount of this component without the component's name: `0.5`, `64G`, `3`. It may be negative.
    pub fn number(self, amount: i64) -> String {
        let sign = if amount < 0 { "-" } else { "" };
        let size = amount.unsigned_abs();
        match self {
            Self::Cpu => {
                let cores = format!("{}.{:03}", size / 1_000, size % 1_000);
                format!("{sign}{}", cores.trim_end_matches('0').trim_end_matches('.'))
            }
            Self::Memory => {
                let (size, unit) = whole_unit(size);
                format!("{sign}{size}{unit}")
            }
            Self::Engines => amount.to_string(),
        }
    }

    /// An amount of this component for readers: `0.5 CPU`, `64 GiB`, `1 engine`. It may be negative.
    pub fn shown(self, amount: i64) -> String {
        match self {
            Self::Cpu => format!("{} CPU", self.number(amount)),
            Self::Memory => {
                let sign = if amount < 0 { "-" } else { "" };
                match whole_unit(amount.unsigned_abs()) {
                    (size, 'B') => format!("{sign}{size} B"),
                    (size, unit) => format!("{sign}{size} {unit}iB"),
                }
            }
            Self::Engines => format!("{amount} engine{}", if amount == 1 { "" } else { "s" }),
        }
    }
}

/// Bytes in the largest unit of which they are a whole number: `(64, 'G')`. Zero is 0 G.
pub(crate) fn whole_unit(bytes: u64) -> (u64, char) {
    const UNITS: [(char, u32); 4] = [('T', 40), ('G', 30), ('M', 20), ('K', 10)];
    match UNITS.into_iter().find(|(_, power)| bytes > 0 && bytes.is_multiple_of(1 << power)) {
        Some((unit, power)) => (bytes >> power, unit),
        None if bytes == 0 => (0, 'G'),
        None => (bytes, 'B'),
    }
}

/// A value for each component.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Triple<T> {
    /// Amounts of CPU are in thousandths of a core.
    pub cpu_m: T,
    /// Amounts of memory are in bytes.
    pub memory: T,
    pub engines: T,
}

/// What a request is charged, or a scope holds.
pub type Amount = Triple<i64>;

impl<T: Copy> Triple<T> {
    /// The same value for each component.
    pub const fn all(value: T) -> Self {
        Self { cpu_m: value, memory: value, engines: value }
    }

    pub fn from_fn(mut of: impl FnMut(Component) -> T) -> Self {
        Self { cpu_m: of(Component::Cpu), memory: of(Component::Memory), engines: of(Component::Engines) }
    }

    pub const fn get(&self, component: Component) -> T {
        match component {
            Component::Cpu => self.cpu_m,
            Component::Memory => self.memory,
            Component::Engines => self.engines,
        }
    }

    pub const fn set(&mut self, component: Component, value: T) {
        match component {
            Component::Cpu => self.cpu_m = value,
            Component::Memory => self.memory = value,
            Component::Engines => self.engines = value,
        }
    }

    pub fn map<U: Copy>(&self, mut of: impl FnMut(T) -> U) -> Triple<U> {
        Triple::from_fn(|component| of(self.get(component)))
    }
}

impl Amount {
    pub const ZERO: Self = Self::all(0);

    /// `None` if a component leaves 64 bits.
    pub fn checked_add(&self, other: &Self) -> Option<Self> {
        Some(Self {
            cpu_m: self.cpu_m.checked_add(other.cpu_m)?,
            memory: self.memory.checked_add(other.memory)?,
            engines: self.engines.checked_add(other.engines)?,
        })
    }

    /// `None` if a component leaves 64 bits. Components may become negative.
    pub fn checked_sub(&self, other: &Self) -> Option<Self> {
        Some(Self {
            cpu_m: self.cpu_m.checked_sub(other.cpu_m)?,
            memory: self.memory.checked_sub(other.memory)?,
            engines: self.engines.checked_sub(other.engines)?,
        })
    }

    /// `None` if a component leaves 64 bits.
    pub fn checked_mul(&self, count: i64) -> Option<Self> {
        Some(Self {
            cpu_m: self.cpu_m.checked_mul(count)?,
            memory: self.memory.checked_mul(count)?,
            engines: self.engines.checked_mul(count)?,
        })
    }

    /// The larger of each component.
    #[must_use]
    pub fn maximum(&self, other: &Self) -> Self {
        Self::from_fn(|component| self.get(component).max(other.get(component)))
    }

    /// Whether a component is more than `other`'s.
    pub fn any_more(&self, other: &Self) -> bool {
        Component::ALL.into_iter().any(|component| self.get(component) > other.get(component))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_printed_in_the_largest_whole_unit() {
        for (component, amount, expected) in [
            (Component::Cpu, 18_000, "18"),
            (Component::Cpu, 500, "0.5"),
            (Component::Cpu, -1_250, "-1.25"),
            (Component::Cpu, 0, "0"),
            (Component::Memory, 64 << 30, "64G"),
            (Component::Memory, 1_280 << 20, "1280M"),
            (Component::Memory, -(2 << 40), "-2T"),
            (Component::Memory, 1_025, "1025B"),
            (Component::Memory, 0, "0G"),
            (Component::Engines, -3, "-3"),
        ] {
            assert_eq!(component.number(amount), expected);
        }
        assert_eq!(Component::Cpu.number(i64::MIN), "-9223372036854775.808");
    }

    #[test]
    fn sums_and_differences_outside_of_64_bits_are_none() {
        let (most, one) = (Amount { memory: i64::MAX, ..Amount::ZERO }, Amount::all(1));
        assert_eq!(most.checked_add(&one), None);
        assert_eq!(Amount { engines: i64::MIN, ..Amount::ZERO }.checked_sub(&one), None);
        assert_eq!(one.checked_sub(&Amount::all(3)), Some(Amount::all(-2)));
    }
}
