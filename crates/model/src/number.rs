//! The counters that order all changes: generation, incarnation, epoch.
//!
//! All are positive 64-bit integers that never decrease. Generations and incarnations are drawn from one counter, in
//! the database's `catalog` row, so they can be compared with each other.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! counter {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub i64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl $name {
            pub const fn get(self) -> i64 {
                self.0
            }

            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }
    };
}

counter! {
    /// The version of the catalog, or of one object in it: the number that its last change drew.
    Generation
}
counter! {
    /// Identifies an engine of a slot. Never reused, not even after DROP and CREATE of the same names.
    Incarnation
}

impl Incarnation {
    /// Of an engine that has no slot yet.
    pub const UNDRAWN: Self = Self(0);
}

counter! {
    /// The fencing token of a master, raised in the database by each new master before its first write.
    Epoch
}
