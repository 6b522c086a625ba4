//! Resource quantities: CPU in thousandths of a core, memory in bytes.
//!
//! CPU is written `500m`, `0.5` or `2`; memory as in Spark, where `1G` is 1 GiB (so `1G`, `1024M` and `1Gi` are
//! equal). Both print as the largest whole unit, and printing then parsing gives the same quantity.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{ErrorKind, UserError};

/// The most CPU of one process, in thousandths of a core.
pub const MAX_CPU_MILLIS: u64 = 1_000_000;
/// The most memory of one process, in bytes (64 TiB).
pub const MAX_MEMORY_BYTES: u64 = 64 << 40;

/// An amount of CPU. Never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cpu(u64);

impl Cpu {
    pub const ONE: Self = Self(1000);

    /// From thousandths of a core; `None` for zero or more than [`MAX_CPU_MILLIS`].
    pub const fn from_millis(millis: u64) -> Option<Self> {
        if millis == 0 || millis > MAX_CPU_MILLIS { None } else { Some(Self(millis)) }
    }

    pub const fn millis(self) -> u64 {
        self.0
    }

    /// Whole cores, rounded up: the number of threads that can use this much CPU.
    pub const fn threads(self) -> usize {
        self.0.div_ceil(1000) as usize
    }
}

impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_multiple_of(1000) { write!(f, "{}", self.0 / 1000) } else { write!(f, "{}m", self.0) }
    }
}

impl FromStr for Cpu {
    type Err = UserError;

    fn from_str(text: &str) -> Result<Self, UserError> {
        parse_cpu_millis(text).and_then(Self::from_millis).ok_or_else(|| {
            UserError::new(ErrorKind::InvalidValue, format!("invalid amount of CPU \"{text}\""))
                .detail("An amount of CPU is more than 0 and at most 1000 cores, in steps of a thousandth.")
                .hint("Write 2, 0.5 or 500m.")
        })
    }
}

/// Thousandths of a core of `500m`, `0.5` or `2`.
pub(crate) fn parse_cpu_millis(text: &str) -> Option<u64> {
    if let Some(millis) = text.strip_suffix('m') {
        return digits(millis);
    }
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    if fraction.len() > 3 {
        return None;
    }
    let scale = 10u64.pow(3 - fraction.len() as u32);
    digits(whole)?.checked_mul(1000)?.checked_add(digits(fraction)? * scale)
}

/// An amount of memory. Never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Memory(u64);

/// Suffixes of memory, largest first, with their factor as a power of two.
const MEMORY_UNITS: [(char, u32); 4] = [('T', 40), ('G', 30), ('M', 20), ('K', 10)];

impl Memory {
    /// One GiB.
    pub const GIB: Self = Self(1 << 30);

    /// From bytes; `None` for zero or more than [`MAX_MEMORY_BYTES`].
    pub const fn from_bytes(bytes: u64) -> Option<Self> {
        if bytes == 0 || bytes > MAX_MEMORY_BYTES { None } else { Some(Self(bytes)) }
    }

    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (suffix, power) in MEMORY_UNITS {
            if self.0.is_multiple_of(1 << power) {
                return write!(f, "{}{suffix}", self.0 >> power);
            }
        }
        write!(f, "{}B", self.0)
    }
}

impl FromStr for Memory {
    type Err = UserError;

    fn from_str(text: &str) -> Result<Self, UserError> {
        parse_memory_bytes(text).and_then(Self::from_bytes).ok_or_else(|| {
            UserError::new(ErrorKind::InvalidValue, format!("invalid amount of memory \"{text}\""))
                .detail("An amount of memory is a whole number with a unit, more than 0 and at most 64T.")
                .hint("Write 1G, 1024M or 1Gi: as in Spark, G is GiB.")
        })
    }
}

/// Bytes of a whole number with a unit.
pub(crate) fn parse_memory_bytes(text: &str) -> Option<u64> {
    let upper = text.to_ascii_uppercase();
    let number_end = upper.find(|c: char| !c.is_ascii_digit())?;
    let (number, suffix) = upper.split_at(number_end);
    digits(number)?.checked_mul(1 << memory_power(suffix)?)
}

/// The power of two of a suffix in upper case: `G`, `GB`, `GI` and `GIB` are equal.
pub(crate) fn memory_power(suffix: &str) -> Option<u32> {
    if suffix == "B" {
        return Some(0);
    }
    let letter = suffix.strip_suffix("IB").or(suffix.strip_suffix('I')).or(suffix.strip_suffix('B'));
    let letter = letter.unwrap_or(suffix);
    MEMORY_UNITS.iter().find(|(unit, _)| letter.len() == 1 && letter.starts_with(*unit)).map(|(_, power)| *power)
}

fn digits(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) { None } else { text.parse().ok() }
}

macro_rules! as_text {
    ($name:ident) => {
        impl TryFrom<String> for $name {
            type Error = UserError;
            fn try_from(text: String) -> Result<Self, UserError> {
                text.parse()
            }
        }
        impl From<$name> for String {
            fn from(value: $name) -> String {
                value.to_string()
            }
        }
    };
}
as_text!(Cpu);
as_text!(Memory);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn equal_amounts_of_memory_are_equal_and_print_as_the_largest_whole_unit() {
        for text in ["1G", "1024M", "1Gi", "1g", "1GB", "1048576K", "1073741824B"] {
            assert_eq!(text.parse::<Memory>().unwrap().to_string(), "1G", "{text}");
        }
        assert_eq!("1536M".parse::<Memory>().unwrap().to_string(), "1536M");
    }

    #[test]
    fn cpu_is_read_in_all_three_forms() {
        assert_eq!("500m".parse::<Cpu>().unwrap(), "0.5".parse().unwrap());
        assert_eq!("2".parse::<Cpu>().unwrap().to_string(), "2");
        assert_eq!("2000m".parse::<Cpu>().unwrap().to_string(), "2");
        assert_eq!("0.25".parse::<Cpu>().unwrap().to_string(), "250m");
        assert_eq!("1.5".parse::<Cpu>().unwrap().threads(), 2);
    }

    #[test]
    fn invalid_amounts_are_refused() {
        for text in ["", "0", "-1", "1.2345", "m", "1 ", "1e3", "99999999999999999999", ".", "1.", ".5"] {
            assert_eq!(text.parse::<Cpu>().unwrap_err().sqlstate(), "22023", "{text}");
        }
        for text in ["", "1", "0G", "-1G", "1X", "1GG", "G", "1.5G", "99999999999999999999G", "65T", "1é"] {
            assert_eq!(text.parse::<Memory>().unwrap_err().sqlstate(), "22023", "{text}");
        }
    }

    proptest! {
        #[test]
        fn printing_and_parsing_give_the_same_quantity(millis in 1..=MAX_CPU_MILLIS, bytes in 1..=MAX_MEMORY_BYTES) {
            let cpu = Cpu::from_millis(millis).unwrap();
            prop_assert_eq!(cpu.to_string().parse::<Cpu>().unwrap(), cpu);
            let memory = Memory::from_bytes(bytes).unwrap();
            prop_assert_eq!(memory.to_string().parse::<Memory>().unwrap(), memory);
        }

        #[test]
        fn no_text_makes_the_parsers_panic(text in ".{0,40}") {
            let _ = text.parse::<Cpu>();
            let _ = text.parse::<Memory>();
        }
    }
}
