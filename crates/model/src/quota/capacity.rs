//! The capacity of a resource pool as its statement sets it, and how borrowed capacity is reclaimed.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::amount::DeclaredAmount;
use crate::error::{ErrorKind, UserError};

/// The source of a pool's capacity. A pool without one is unlimited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Capacity {
    /// The allocatable amounts of its nodes.
    Nodes,
    /// What an external program registers.
    Registered,
    /// A component that is not named is unlimited.
    Amount(DeclaredAmount),
}

impl fmt::Display for Capacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nodes => f.write_str("of its nodes"),
            Self::Registered => f.write_str("registered by a program"),
            Self::Amount(amount) => amount.fmt(f),
        }
    }
}

/// Which engines of tenants that borrow are ended for a tenant within its guarantee.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reclaim {
    None,
    /// Only idle ones.
    #[default]
    Idle,
}

impl Reclaim {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Idle => "idle",
        }
    }
}

impl AsRef<str> for Reclaim {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl FromStr for Reclaim {
    type Err = UserError;

    fn from_str(text: &str) -> Result<Self, UserError> {
        match text.to_ascii_lowercase().as_str() {
            "none" => Ok(Self::None),
            "idle" => Ok(Self::Idle),
            "drain" | "force" => Err(UserError::new(ErrorKind::NotSupported, format!("'{text}' is not supported yet"))
                .detail("Engines with sessions are not reclaimed.")
                .hint("Use RECLAIM 'idle'.")),
            _ => Err(UserError::new(ErrorKind::InvalidValue, format!("invalid value \"{text}\""))
                .detail("It is 'none' or 'idle'.")),
        }
    }
}
