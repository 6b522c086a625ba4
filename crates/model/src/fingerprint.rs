//! Fingerprints of secret properties: the keys in clear, and one keyed digest of all values.
//!
//! Labels are readable with the right to read pods, and rows with access to a backup. A plain digest of a password
//! can be guessed with a dictionary, so labels are computed from masked values, and a change of a secret shows in a
//! fingerprint that only metadata agents, which have the key, can compute.
//!
//! The metadata agent computes the fingerprint when a secret value changes and stores it in the unit's row; no other
//! process needs the key. A new generation of keys therefore changes no fingerprint and replaces no engine.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::engine_name::hex;
use crate::name::UnitName;
use crate::secret::SecretKeys;

/// The hex digits of a fingerprint.
pub const FINGERPRINT_DIGITS: usize = 16;

/// The key of fingerprints. Never printed. The default key is empty, which protects nothing: for tests only.
#[derive(Clone)]
pub struct FingerprintKey(Arc<dyn Fn() -> String + Send + Sync>);

impl Default for FingerprintKey {
    fn default() -> Self {
        Self::new("")
    }
}

impl fmt::Debug for FingerprintKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FingerprintKey(******)")
    }
}

impl FingerprintKey {
    /// A key that stays.
    pub fn new(key: impl Into<String>) -> Self {
        let key = key.into();
        Self::current(move || key.clone())
    }

    /// The key that is in use when a fingerprint is computed.
    pub fn current(key: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self(Arc::new(key))
    }

    /// HMAC-SHA-256 of the unit's name, a zero byte and the pairs as JSON, shortened.
    fn fingerprint(&self, unit: &UnitName, pairs: &BTreeMap<&str, &str>) -> String {
        // HMAC accepts a key of any length, so this cannot fail.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice((self.0)().as_bytes()) else { return String::new() };
        mac.update(unit.as_str().as_bytes());
        mac.update(&[0]);
        mac.update(serde_json::to_string(pairs).unwrap_or_default().as_bytes());
        let mut digits = hex(&mac.finalize().into_bytes());
        digits.truncate(FINGERPRINT_DIGITS);
        digits
    }
}

/// The properties of a unit before a change.
#[derive(Debug, Clone, Copy)]
pub struct StoredProperties<'a> {
    pub properties: &'a BTreeMap<String, String>,
    pub secrets: Option<&'a SecretProperties>,
}

/// The secret properties of one unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretProperties {
    /// A value is secret as long as its key is listed here, even if the configured words change.
    pub keys: BTreeSet<String>,
    pub fingerprint: String,
}

impl SecretProperties {
    /// The secret properties among a unit's new properties; `None` if there are none. The stored fingerprint is kept
    /// unless a secret value changes.
    pub fn new(
        unit: &UnitName,
        stored: Option<StoredProperties<'_>>,
        properties: &BTreeMap<String, String>,
        words: &SecretKeys,
        key: &FingerprintKey,
    ) -> Option<Self> {
        let known = stored.and_then(|stored| stored.secrets);
        let is_secret = |key: &str| words.is_secret(key) || known.is_some_and(|known| known.keys.contains(key));
        let pairs: BTreeMap<&str, &str> = properties
            .iter()
            .filter(|(key, _)| is_secret(key))
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect();
        if pairs.is_empty() {
            return None;
        }
        let keys: BTreeSet<String> = pairs.keys().map(|key| (*key).to_owned()).collect();
        let unchanged = |known: &&Self| {
            let same = |(key, value): (&&str, &&str)| {
                stored.is_some_and(|stored| stored.properties.get(*key).map(String::as_str) == Some(*value))
            };
            known.keys == keys && pairs.iter().all(same)
        };
        let fingerprint = match known.filter(unchanged) {
            Some(known) => known.fingerprint.clone(),
            None => key.fingerprint(unit, &pairs),
        };
        Some(Self { keys, fingerprint })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use crate::catalog::UnitSpec;
    use crate::change::UnitPatch;
    use crate::configuration::Defaults;

    fn key(secret: &str) -> FingerprintKey {
        FingerprintKey::new(secret)
    }

    fn spec(pairs: &[(&str, &str)], before: Option<&UnitSpec>, key: &FingerprintKey) -> UnitSpec {
        let mut spec = UnitPatch::default().create(&Defaults::default()).unwrap();
        spec.properties = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let unit = UnitName::new("uc_1").unwrap();
        spec.secrets = SecretProperties::new(
            &unit,
            before.map(UnitSpec::stored_properties),
            &spec.properties,
            &SecretKeys::default(),
            key,
        );
        spec
    }

    fn fingerprint(spec: &UnitSpec) -> &str {
        &spec.secrets.as_ref().unwrap().fingerprint
    }

    #[test]
    fn a_fingerprint_follows_secret_values_and_nothing_else() {
        let ours = key("0123456789abcdef");
        let one = spec(&[("a", "1"), ("db.password", "x")], None, &ours);
        assert_eq!(fingerprint(&one).len(), FINGERPRINT_DIGITS);
        let open = spec(&[("a", "2"), ("db.password", "x")], None, &ours);
        assert_eq!(fingerprint(&one), fingerprint(&open));
        for other in [&[("db.password", "y")][..], &[("my.password", "x")], &[("db.password", "x"), ("token", "")]] {
            assert_ne!(fingerprint(&one), fingerprint(&spec(other, None, &ours)), "{other:?}");
        }
        assert_eq!(spec(&[("a", "1")], Some(&one), &ours).secrets, None);
    }

    #[test]
    fn a_new_key_changes_no_fingerprint_of_values_that_stay() {
        let one = spec(&[("db.password", "x")], None, &key("0123456789abcdef"));
        let next = key("fedcba9876543210");
        let kept = spec(&[("db.password", "x"), ("a", "1")], Some(&one), &next);
        assert_eq!(fingerprint(&kept), fingerprint(&one));
        assert_ne!(fingerprint(&spec(&[("db.password", "x")], None, &next)), fingerprint(&one));
    }

    #[test]
    fn a_key_that_was_secret_once_stays_so() {
        let mut one = spec(&[("db.password", "x"), ("odd", "y")], None, &key("0123456789abcdef"));
        one.secrets.as_mut().unwrap().keys.insert("odd".to_owned());
        let after = spec(&[("db.password", "x"), ("odd", "z")], Some(&one), &key("0123456789abcdef"));
        assert!(after.secrets.unwrap().keys.contains("odd"));
    }
}
