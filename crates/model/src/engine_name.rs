//! The name of an engine, which follows from its slot and incarnation.
//!
//! Lower case, at most 63 characters: `_` and `.` become `-`, long names are cut, and the last 6 hex digits are a
//! hash of the full names and the incarnation. The incarnation itself is never cut, and no incarnation is used twice,
//! so a name never means two engines. Names are looked up, never parsed.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::{ErrorKind, UserError};
use crate::number::Incarnation;

/// The longest name of an engine: the limit of a Kubernetes label value and of a DNS label.
pub const MAX_ENGINE_NAME_BYTES: usize = 63;

/// A DNS label. Cloning copies no text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EngineName(Arc<str>);

/// By text. Lists of thousands of engines are merged in this order, and most names are clones of each other.
impl Ord for EngineName {
    fn cmp(&self, other: &Self) -> Ordering {
        if Arc::ptr_eq(&self.0, &other.0) { Ordering::Equal } else { self.0.cmp(&other.0) }
    }
}

impl PartialOrd for EngineName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl EngineName {
    /// The name of the engine with these names of tenant, pool and unit, this ordinal of its slot and this incarnation.
    pub(crate) fn from_parts(names: [&str; 3], ordinal: u32, incarnation: Incarnation) -> Self {
        let [tenant, pool, unit] = names;
        let full = format!("{tenant}/{pool}/{unit}/{ordinal}/{incarnation}");
        let tail = format!("-{ordinal}-{incarnation}-{}", hex_prefix(full.as_bytes(), 6));
        let stem = dns_label(&format!("{tenant}-{pool}-{unit}"), MAX_ENGINE_NAME_BYTES - tail.len());
        Self((stem + &tail).into())
    }

    /// Accepts any text that can name an engine: a DNS label of at most 63 characters.
    pub fn new(text: impl Into<String>) -> Result<Self, UserError> {
        let text = text.into();
        let bytes = text.as_bytes();
        let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        let fits = bytes.len() <= MAX_ENGINE_NAME_BYTES
            && edge(bytes.first())
            && edge(bytes.last())
            && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-');
        if fits {
            return Ok(Self(text.into()));
        }
        let shown: String = text.chars().take(MAX_ENGINE_NAME_BYTES + 1).collect();
        Err(UserError::new(ErrorKind::InvalidName, format!("invalid engine name \"{shown}\""))
            .detail("An engine name has at most 63 of a-z, 0-9 and -.")
            .hint("SHOW ENGINES lists the names."))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EngineName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl TryFrom<String> for EngineName {
    type Error = UserError;
    fn try_from(text: String) -> Result<Self, UserError> {
        Self::new(text)
    }
}

impl From<EngineName> for Arc<str> {
    fn from(name: EngineName) -> Self {
        name.0
    }
}

impl From<EngineName> for String {
    fn from(name: EngineName) -> String {
        (*name.0).to_owned()
    }
}

/// Maps a text to a DNS label of at most `max` characters: `_` and `.` become `-`, the rest is cut, and a trailing
/// `-` is removed.
pub fn dns_label(text: &str, max: usize) -> String {
    let mapped = text.chars().map(|c| if matches!(c, '_' | '.') { '-' } else { c.to_ascii_lowercase() });
    let mut label: String = mapped.take(max).collect();
    label.truncate(label.trim_end_matches('-').len());
    label
}

/// The longest DNS label.
const MAX_DNS_LABEL_BYTES: usize = 63;

/// Whether the text is a DNS label: at most 63 of a-z, 0-9 and -, with no - at an end.
pub fn is_dns_label(text: &str) -> bool {
    text.len() <= MAX_DNS_LABEL_BYTES && is_domain_part(text)
}

/// Whether the text consists of one or more of a-z, 0-9 and -, with no - at an end.
pub(crate) fn is_domain_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    let edge = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-')
}

/// The first `digits` hex digits of the SHA-256 of the bytes.
pub(crate) fn hex_prefix(bytes: &[u8], digits: usize) -> String {
    let digest = Sha256::digest(bytes);
    let mut hex = hex(&digest[..digits.div_ceil(2).min(digest.len())]);
    hex.truncate(digits);
    hex
}

/// Bytes as lower-case hex digits.
pub fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use crate::name::{PoolName, TenantName, UnitName};
    use crate::slot::SlotKey;

    fn key(tenant: &str, pool: &str, unit: &str, ordinal: u32) -> SlotKey {
        SlotKey {
            tenant: TenantName::new(tenant).unwrap(),
            pool: PoolName::new(pool).unwrap(),
            unit: UnitName::new(unit).unwrap(),
            ordinal,
        }
    }

    #[test]
    fn a_dns_label_has_no_underscore_no_capital_and_no_dash_at_an_end() {
        assert!(["a", "rp-1--t-1", "0"].into_iter().all(is_dns_label));
        assert!(!["", "-a", "a-", "rp_1", "A", &"a".repeat(64)].into_iter().any(is_dns_label));
    }

    #[test]
    fn hex_has_two_digits_for_each_byte() {
        assert_eq!(hex(&[0, 0x0a, 0x9f, 0xff]), "000a9fff");
        // The SHA-256 of nothing.
        assert_eq!(hex_prefix(b"", 7), "e3b0c44");
        assert_eq!(hex_prefix(b"", 100).len(), 64);
    }

    #[test]
    fn the_name_is_readable_and_ends_in_a_hash() {
        let name = key("t_1", "rp_1", "uc.1", 0).engine(Incarnation(7));
        assert!(name.as_str().starts_with("t-1-rp-1-uc-1-0-7-"), "{name}");
        assert_eq!(name.as_str().len(), "t-1-rp-1-uc-1-0-7-".len() + 6);
    }

    #[test]
    fn names_that_map_alike_still_differ_by_their_hash() {
        let one = key("t_1", "rp_1", "uc_1", 0).engine(Incarnation(7));
        let other = key("t.1", "rp_1", "uc_1", 0).engine(Incarnation(7));
        assert_ne!(one, other);
    }

    #[test]
    fn the_longest_names_are_cut_but_keep_the_incarnation() {
        let long = format!("a{}z", "b_".repeat(30));
        let name = key(&long, &long, &long, 9_999).engine(Incarnation(i64::MAX));
        assert!(name.as_str().len() <= MAX_ENGINE_NAME_BYTES, "{name}");
        assert!(name.as_str().contains(&format!("-9999-{}-", i64::MAX)), "{name}");
        EngineName::new(name.as_str()).unwrap();
    }
}
