//! The kinds of resources: their names, and the aliases that are read but never printed.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{ErrorKind, KIND_UNKNOWN, UserError};
use crate::text::cut;

/// The longest part of a name that an error repeats, in bytes.
const MAX_SHOWN_BYTES: usize = 100;

/// The kind of a resource: the fields that it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    Memory,
    Cpu,
    Load,
    LoadInstance,
    Queue,
    DriverAndExecutor,
    Special,
}

impl Kind {
    pub const ALL: [Self; 7] =
        [Self::Memory, Self::Cpu, Self::Load, Self::LoadInstance, Self::Queue, Self::DriverAndExecutor, Self::Special];

    /// The name in JSON and in `RESOURCE_KIND`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "Memory",
            Self::Cpu => "Cpu",
            Self::Load => "Load",
            Self::LoadInstance => "LoadInstance",
            Self::Queue => "Queue",
            Self::DriverAndExecutor => "DriverAndExecutor",
            Self::Special => "Special",
        }
    }

    const fn aliases(self) -> &'static [&'static str] {
        match self {
            Self::Queue => &["Yarn"],
            Self::DriverAndExecutor => &["DriverAndYarn", "DriverAndKubernetes"],
            _ => &[],
        }
    }
}

impl AsRef<str> for Kind {
    fn as_ref(&self) -> &str {
        self.name()
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kind {
    type Err = UserError;

    /// Reads a name or an alias; anything else is `KIND_UNKNOWN`.
    fn from_str(text: &str) -> Result<Self, UserError> {
        let is_named = |kind: &Self| kind.name() == text || kind.aliases().contains(&text);
        Self::ALL.into_iter().find(is_named).ok_or_else(|| unknown(text))
    }
}

fn unknown(name: &str) -> UserError {
    let kinds = Kind::ALL.map(Kind::name).join(", ");
    UserError::new(ErrorKind::InvalidValue, format!("unrecognized resource kind \"{}\"", cut(name, MAX_SHOWN_BYTES)))
        .detail(format!("The kinds are {kinds} (KIND_UNKNOWN)."))
        .with_error_code(KIND_UNKNOWN)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_and_aliases_are_read_and_other_names_are_unknown() {
        for kind in Kind::ALL {
            assert_eq!(kind.name().parse::<Kind>().unwrap(), kind);
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{kind}\""), "rows have the same name");
        }
        assert_eq!("Yarn".parse::<Kind>().unwrap(), Kind::Queue);
        for alias in ["DriverAndYarn", "DriverAndKubernetes"] {
            assert_eq!(alias.parse::<Kind>().unwrap(), Kind::DriverAndExecutor);
        }
        for name in ["", "memory", "Default", "Yarn "] {
            let error = name.parse::<Kind>().unwrap_err();
            assert_eq!((error.sqlstate(), error.error_code()), ("22023", KIND_UNKNOWN), "{name}");
        }
    }
}
