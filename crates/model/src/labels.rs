//! Labels: their keys, and what Kubernetes accepts as key and value. [`crate::engine_labels`] encodes and decodes those of an
//! engine.

use std::collections::BTreeMap;

use crate::engine_name::is_domain_part;

pub const NAME: &str = "name";
pub const NAMESPACE: &str = "namespace";
pub const TENANT: &str = "tenant_name";
pub const POOL: &str = "pool_name";
pub const UNIT: &str = "unit_name";
/// The four sizes.
pub const UNIT_CONFIGS: &str = "unit_configs";
/// The MD5 of the properties.
pub const UNIT_PROPERTIES: &str = "unit_properties";
/// The manager: always [`MANAGER`].
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The installation.
pub const CLUSTER: &str = "enginehouse.io/cluster";
pub const ROLE: &str = "enginehouse.io/role";
pub const SLOT: &str = "enginehouse.io/slot";
pub const INCARNATION: &str = "enginehouse.io/incarnation";
/// The owner of an engine that its tenant does not share: [`Owner::label`](crate::owner::Owner::label).
pub const OWNER: &str = "enginehouse.io/owner";
/// The hash of the whole effective configuration.
pub const CONFIG: &str = "enginehouse.io/config";

pub const MANAGER: &str = "enginehouse";
/// The value of [`ROLE`] on engines.
pub const ROLE_ENGINE: &str = "engine";
/// The value of [`ROLE`] on the executors of an engine.
pub const ROLE_EXECUTOR: &str = "executor";

pub type LabelMap = BTreeMap<String, String>;

/// The selector of all engines of one installation.
pub fn selector(cluster: &str) -> LabelMap {
    [(MANAGED_BY, MANAGER), (CLUSTER, cluster), (ROLE, ROLE_ENGINE)]
        .into_iter()
        .map(|(label, value)| (label.to_owned(), value.to_owned()))
        .collect()
}

/// The longest part of a label key after its prefix, and the longest value, in bytes.
const MAX_PART_BYTES: usize = 63;
/// The longest prefix of a label key, in bytes.
const MAX_PREFIX_BYTES: usize = 253;

/// Whether Kubernetes accepts the text as a label or annotation key: `[prefix/]name`, where the prefix is a domain
/// name.
pub fn is_key(text: &str) -> bool {
    let Some((prefix, name)) = text.split_once('/') else { return is_part(text) };
    prefix.len() <= MAX_PREFIX_BYTES && prefix.split('.').all(is_domain_part) && is_part(name)
}

/// Whether Kubernetes accepts the text as a label value.
pub fn is_value(text: &str) -> bool {
    text.is_empty() || is_part(text)
}

fn is_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    bytes.len() <= MAX_PART_BYTES
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_are_validated_as_in_kubernetes() {
        for key in ["name", "unit_configs", "enginehouse.io/slot", &format!("{}/x", "a".repeat(100))] {
            assert!(is_key(key), "{key}");
        }
        for key in
            ["", "a/b/c", "A.io/x", "-x", "/x", "a..b/x", "a/", &"a".repeat(64), &format!("{}/x", "a".repeat(254))]
        {
            assert!(!is_key(key), "{key}");
        }
        assert!(["", "0", "1_1G_2_2G", &"a".repeat(63)].into_iter().all(is_value));
        assert!(!["-", "a b", "a/b", &"a".repeat(64)].into_iter().any(is_value));
    }
}
