//! Secret values: passwords and keys among the properties of a unit, which must not be shown.
//!
//! A value is secret if its key contains one of the configured words. Case, `.`, `_` and `-` are ignored, so
//! `access.key` also matches `aws_access_key_id`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::sealed::is_sealed;

/// The text shown for a secret value. ALTER with this text keeps the stored value; CREATE with it is refused.
pub const MASK: &str = "******";

/// The words that make a key secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SecretKeys(Vec<String>);

impl Default for SecretKeys {
    fn default() -> Self {
        Self(["password", "secret", "token", "credential", "access.key"].map(str::to_owned).to_vec())
    }
}

fn letters(text: &str) -> String {
    text.chars().filter(|c| !matches!(c, '.' | '_' | '-')).flat_map(char::to_lowercase).collect()
}

impl SecretKeys {
    pub fn new(words: Vec<String>) -> Self {
        Self(words)
    }

    pub fn is_secret(&self, key: &str) -> bool {
        let key = letters(key);
        self.0.iter().map(|word| letters(word)).any(|word| !word.is_empty() && key.contains(&word))
    }

    pub fn mask(&self, properties: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        self.mask_also(properties, |_| false)
    }

    /// The same, with the values of further keys masked, and those that are sealed.
    pub fn mask_also(
        &self,
        properties: &BTreeMap<String, String>,
        also: impl Fn(&str) -> bool,
    ) -> BTreeMap<String, String> {
        let masked = |key: &str, value: &str| self.is_secret(key) || also(key) || is_sealed(value);
        properties
            .iter()
            .map(|(key, value)| (key.clone(), if masked(key, value) { MASK.to_owned() } else { value.clone() }))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_compared_without_case_and_separators() {
        let keys = SecretKeys::default();
        for secret in ["db.password", "AWS_ACCESS_KEY_ID", "fs.s3a.access.key", "myToken", "x.client-secret.y"] {
            assert!(keys.is_secret(secret), "{secret}");
        }
        for open in ["spark.sql.shuffle.partitions", "key", "access"] {
            assert!(!keys.is_secret(open), "{open}");
        }
    }
}
