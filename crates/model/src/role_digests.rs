//! The public form of the roles' ZooKeeper identities.

use serde::{Deserialize, Serialize};

/// What access lists contain for the roles: `user:base64(sha1(user:password))`, as ZooKeeper's scheme `digest` has it. No
/// secrets: the passwords are keys of 256 bits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoleDigests {
    pub master: String,
    pub proxy: String,
    pub metadata_agent: String,
}
