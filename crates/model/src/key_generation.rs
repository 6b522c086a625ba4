//! Generations of keys.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The number of a generation of keys. 0 are the keys of version 0.1.0, which are derived from the cluster secret; a root
/// key has those from 1 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyGeneration(pub u32);

impl KeyGeneration {
    /// The keys that are derived from the cluster secret.
    pub const CLUSTER_SECRET: Self = Self(0);
    /// The first generation of a root key.
    pub const FIRST: Self = Self(1);
}

impl fmt::Display for KeyGeneration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
