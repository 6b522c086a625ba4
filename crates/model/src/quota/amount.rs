//! Declared amounts: the CPU, memory, engines and custom amounts that a statement writes in parentheses.
//!
//! A component that a declared amount does not name is unlimited; what that means for a guarantee and for the protected
//! part of a pool is documented there. Every component is from 0 to [`MAX_AMOUNT`]. The text form is that of the
//! control language, and [`DeclaredAmount`] prints for readers: `18 CPU, 64 GiB, 5 engines`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::limit::Limit;
use crate::error::{ErrorKind, UserError};
use crate::quantity::{parse_cpu_millis, parse_memory_bytes};
use crate::resource::{Component, MAX_AMOUNT, whole_unit};

/// CPU from 0 to [`MAX_AMOUNT`] thousandths of a core. Written `500m`, `0.5` or `42`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CpuAmount(i64);

/// Memory from 0 to [`MAX_AMOUNT`] bytes. Written as in Spark, where `64G` is 64 GiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MemoryAmount(i64);

/// A number of engines or of a custom resource, from 0 to [`MAX_AMOUNT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "i64", into = "i64")]
pub struct Count(i64);

fn within(amount: i64) -> Option<i64> {
    (0..=MAX_AMOUNT).contains(&amount).then_some(amount)
}

impl CpuAmount {
    /// `None` below 0 and above [`MAX_AMOUNT`].
    pub fn from_millis(millis: i64) -> Option<Self> {
        within(millis).map(Self)
    }

    pub const fn millis(self) -> i64 {
        self.0
    }
}

impl MemoryAmount {
    /// `None` below 0 and above [`MAX_AMOUNT`].
    pub fn from_bytes(bytes: i64) -> Option<Self> {
        within(bytes).map(Self)
    }

    pub const fn bytes(self) -> i64 {
        self.0
    }
}

impl Count {
    /// `None` below 0 and above [`MAX_AMOUNT`].
    pub fn new(number: i64) -> Option<Self> {
        within(number).map(Self)
    }

    pub const fn get(self) -> i64 {
        self.0
    }
}

impl fmt::Display for CpuAmount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 % 1_000 == 0 { write!(f, "{}", self.0 / 1_000) } else { write!(f, "{}m", self.0) }
    }
}

impl fmt::Display for MemoryAmount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, unit) = whole_unit(self.0.unsigned_abs());
        write!(f, "{number}{unit}")
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The error for a text that is no amount, or one outside of 0 to [`MAX_AMOUNT`].
fn invalid(what: &str, text: &str, detail: String, hint: &str) -> UserError {
    UserError::new(ErrorKind::InvalidValue, format!("invalid {what} \"{text}\"")).detail(detail).hint(hint)
}

impl FromStr for CpuAmount {
    type Err = UserError;

    fn from_str(text: &str) -> Result<Self, UserError> {
        let millis = parse_cpu_millis(text).and_then(|millis| i64::try_from(millis).ok());
        millis.and_then(Self::from_millis).ok_or_else(|| {
            let detail =
                format!("An amount of CPU is from 0 to {MAX_AMOUNT} thousandths of a core, in steps of a thousandth.");
            invalid("amount of CPU", text, detail, "Write 42, 0.5 or 500m.")
        })
    }
}

impl FromStr for MemoryAmount {
    type Err = UserError;

    fn from_str(text: &str) -> Result<Self, UserError> {
        let bytes = parse_memory_bytes(text).and_then(|bytes| i64::try_from(bytes).ok());
        bytes.and_then(Self::from_bytes).ok_or_else(|| {
            let detail = format!("An amount of memory is a whole number with a unit, from 0 to {MAX_AMOUNT} bytes.");
            invalid("amount of memory", text, detail, "Write 64G, 512M or 64Gi: as in Spark, G is GiB.")
        })
    }
}

impl FromStr for Count {
    type Err = UserError;

    fn from_str(text: &str) -> Result<Self, UserError> {
        let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|_| is_digits).and_then(Self::new).ok_or_else(|| {
            UserError::new(ErrorKind::InvalidValue, format!("invalid number \"{text}\""))
                .detail(format!("It is a whole number from 0 to {MAX_AMOUNT}."))
        })
    }
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
as_text!(CpuAmount);
as_text!(MemoryAmount);

impl TryFrom<i64> for Count {
    type Error = UserError;
    fn try_from(number: i64) -> Result<Self, UserError> {
        Self::new(number).ok_or_else(|| UserError::internal(format!("count {number} is out of range")))
    }
}

impl From<Count> for i64 {
    fn from(count: Count) -> Self {
        count.0
    }
}

/// Components by name; any of them may be absent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DeclaredAmount {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuAmount>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryAmount>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engines: Option<Count>,
    /// By name, such as `nvidia.com/gpu`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub custom: BTreeMap<String, Count>,
}

impl DeclaredAmount {
    /// Whether no component is named.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// In thousandths of a core, bytes or engines; `None` if the component is not named.
    pub fn get(&self, component: Component) -> Option<i64> {
        match component {
            Component::Cpu => self.cpu.map(CpuAmount::millis),
            Component::Memory => self.memory.map(MemoryAmount::bytes),
            Component::Engines => self.engines.map(Count::get),
        }
    }

    /// The amount as an upper bound.
    pub fn limit(&self, component: Component) -> Limit {
        self.get(component).map_or(Limit::Unlimited, Limit::Of)
    }
}

impl fmt::Display for DeclaredAmount {
    /// `18 CPU, 64 GiB, 5 engines, 2 nvidia.com/gpu`; `unlimited` if no component is named.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = Component::ALL.into_iter().filter_map(|component| Some(component.shown(self.get(component)?)));
        let custom = self.custom.iter().map(|(name, count)| format!("{count} {name}"));
        let parts: Vec<String> = named.chain(custom).collect();
        if parts.is_empty() { f.write_str("unlimited") } else { f.write_str(&parts.join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn amount(cpu: &str, memory: &str, engines: &str) -> DeclaredAmount {
        DeclaredAmount {
            cpu: Some(cpu.parse().unwrap()),
            memory: Some(memory.parse().unwrap()),
            engines: Some(engines.parse().unwrap()),
            custom: BTreeMap::new(),
        }
    }

    #[test]
    fn an_amount_is_shown_with_units_and_without_what_it_does_not_name() {
        assert_eq!(amount("18", "64G", "5").to_string(), "18 CPU, 64 GiB, 5 engines");
        assert_eq!(amount("1500m", "1536M", "1").to_string(), "1.5 CPU, 1536 MiB, 1 engine");
        assert_eq!(amount("0", "0G", "0").to_string(), "0 CPU, 0 GiB, 0 engines");
        assert_eq!(amount("0.05", "1025B", "2").to_string(), "0.05 CPU, 1025 B, 2 engines");
        let custom = [("nvidia.com/gpu".to_owned(), "2".parse().unwrap())].into();
        assert_eq!(DeclaredAmount { custom, ..DeclaredAmount::default() }.to_string(), "2 nvidia.com/gpu");
        assert_eq!(DeclaredAmount::default().to_string(), "unlimited");
    }

    #[test]
    fn amounts_end_at_two_to_the_power_of_53() {
        assert_eq!("9007199254740992m".parse::<CpuAmount>().unwrap().millis(), MAX_AMOUNT);
        assert_eq!("8192T".parse::<MemoryAmount>().unwrap().bytes(), MAX_AMOUNT);
        assert_eq!("9007199254740992".parse::<Count>().unwrap().get(), MAX_AMOUNT);
        for text in ["9007199254740993m", "9007199254741", "99999999999999999999", "-1", "", "1e3", "0.0001", "+1"] {
            assert_eq!(text.parse::<CpuAmount>().unwrap_err().sqlstate(), "22023", "{text}");
        }
        for text in ["9007199254740993B", "8193T", "-1G", "0", "1.5G", "", "G"] {
            assert_eq!(text.parse::<MemoryAmount>().unwrap_err().sqlstate(), "22023", "{text}");
        }
        for text in ["9007199254740993", "-1", "+1", "1.0", "", "99999999999999999999"] {
            assert_eq!(text.parse::<Count>().unwrap_err().sqlstate(), "22023", "{text}");
        }
        assert!(serde_json::from_str::<DeclaredAmount>(r#"{"engines":9007199254740993}"#).is_err());
        assert!(serde_json::from_str::<DeclaredAmount>(r#"{"engines":-1}"#).is_err());
    }

    #[test]
    fn an_absent_component_is_unlimited_and_takes_no_place_in_a_row() {
        let named: DeclaredAmount = serde_json::from_str(r#"{"cpu":"500m"}"#).unwrap();
        assert_eq!(named.limit(Component::Cpu), Limit::Of(500));
        assert_eq!(named.limit(Component::Memory), Limit::Unlimited);
        assert_eq!(serde_json::to_string(&named).unwrap(), r#"{"cpu":"500m"}"#);
        let full = r#"{"cpu":"18","memory":"64G","engines":5,"custom":{"nvidia.com/gpu":2}}"#;
        assert_eq!(serde_json::to_string(&serde_json::from_str::<DeclaredAmount>(full).unwrap()).unwrap(), full);
    }

    proptest! {
        #[test]
        fn printing_and_parsing_give_the_same_amount(
            millis in 0..=MAX_AMOUNT, bytes in 0..=MAX_AMOUNT, gib in 0_i64..8_000_000,
        ) {
            let cpu = CpuAmount::from_millis(millis).unwrap();
            prop_assert_eq!(cpu.to_string().parse::<CpuAmount>().unwrap(), cpu);
            for bytes in [bytes, gib << 30] {
                let memory = MemoryAmount::from_bytes(bytes).unwrap();
                prop_assert_eq!(memory.to_string().parse::<MemoryAmount>().unwrap(), memory);
            }
            let count = Count::new(bytes).unwrap();
            prop_assert_eq!(count.to_string().parse::<Count>().unwrap(), count);
        }
    }
}
