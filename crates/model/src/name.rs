//! Validated names of tenants, resource pools, resource units and resource quotas.
//!
//! A name matches `[a-z]([a-z0-9_.-]{0,61}[a-z0-9])?`: it is a valid Kubernetes label value and needs no quotes in
//! the control language. The types keep a pool's name from being passed as a tenant's. Cloning copies no text: a snapshot has three
//! for each slot and each engine, and every tick copies it.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::alteration::ObjectKind;
use crate::error::{ErrorKind, UserError};

/// The longest name, in bytes: the limit of a Kubernetes label value.
pub const MAX_NAME_BYTES: usize = 63;

pub fn is_valid(text: &str) -> bool {
    let bytes = text.as_bytes();
    let inner = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'.' | b'-');
    match bytes {
        [first] => first.is_ascii_lowercase(),
        [first, middle @ .., last] => {
            bytes.len() <= MAX_NAME_BYTES
                && first.is_ascii_lowercase()
                && middle.iter().all(inner)
                && (last.is_ascii_lowercase() || last.is_ascii_digit())
        }
        [] => false,
    }
}

fn check(kind: ObjectKind, text: &str) -> Result<(), UserError> {
    if is_valid(text) {
        return Ok(());
    }
    let shown: String = text.chars().take(MAX_NAME_BYTES + 1).collect();
    Err(UserError::new(ErrorKind::InvalidName, format!("invalid {kind} name \"{shown}\""))
        .detail("A name begins with a letter, ends with a letter or digit, and has at most 63 of a-z, 0-9, _, . and -.")
        .hint("Unquoted upper case is folded to lower case; quoted upper case is refused."))
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $kind:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl Ord for $name {
            /// The order of the texts. Copies share theirs, so that the keys of the slots of one link are mostly compared without it.
            fn cmp(&self, other: &Self) -> Ordering {
                if Arc::ptr_eq(&self.0, &other.0) { Ordering::Equal } else { self.0.cmp(&other.0) }
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl $name {
            /// Fails with SQLSTATE 42602 if the text is not a valid name.
            pub fn new(text: impl Into<String>) -> Result<Self, UserError> {
                let text = text.into();
                check($kind, &text)?;
                Ok(Self(text.into()))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = UserError;
            fn from_str(text: &str) -> Result<Self, UserError> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = UserError;
            fn try_from(text: String) -> Result<Self, UserError> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                (*name.0).to_owned()
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
}

name! {
    /// The name of a tenant, such as `t_1`.
    TenantName, ObjectKind::Tenant
}
name! {
    /// The name of a resource pool, such as `rp_1`.
    PoolName, ObjectKind::ResourcePool
}
name! {
    /// The name of a resource unit, such as `uc_1`.
    UnitName, ObjectKind::ResourceUnit
}
name! {
    /// The name of a resource quota, such as `q_1`.
    QuotaName, ObjectKind::ResourceQuota
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn names_follow_the_documented_pattern() {
        for good in ["a", "t_1", "a.b-c_d9", &"a".repeat(63)] {
            assert!(is_valid(good), "{good}");
        }
        for bad in ["", "1a", "_a", "a_", "a-", "A", "aB", "a b", "ä", &"a".repeat(64)] {
            assert!(!is_valid(bad), "{bad}");
        }
    }

    #[test]
    fn an_invalid_name_is_refused_with_the_kind_of_its_object() {
        let error = PoolName::new("Rp").unwrap_err();
        assert_eq!(error.sqlstate(), "42602");
        assert!(error.message.contains("resource pool"), "{}", error.message);
    }

    #[test]
    fn json_refuses_what_the_constructor_refuses() {
        assert!(serde_json::from_str::<TenantName>("\"T\"").is_err());
        assert_eq!(serde_json::from_str::<TenantName>("\"t\"").unwrap().as_str(), "t");
    }
}
